"""What a desk can do now: its state, and steps with their fields, checked before they run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mooring.desk.jobs import Outcome
from mooring.desk.workspace import CARD_FILES, Workspace
from mooring.errors import InputError, MooringError, require_choice
from mooring.protocol.messages.card import Role, read_card
from mooring.protocol.messages.study import Study
from mooring.protocol.storage.vault import Vault, has_vault, is_encrypted
from mooring.tables.schema import Schema
from mooring.typing import Progress

Values = Mapping[str, str]


@dataclass(frozen=True)
class Field:
    """One entry of a step's form."""

    name: str
    label: str
    kind: Literal["text", "number", "password", "tick", "choice", "many"] = "text"
    choices: tuple[str, ...] = ()
    """What a choice allows."""
    default: str = ""
    """What is chosen at first; without one, somebody has to choose."""
    is_optional: bool = False
    is_rare: bool = False
    """Whether it is folded away."""
    hint: str = ""

    @property
    def is_remembered(self) -> bool:
        """Whether other steps offer what was given last: tables, anchors, columns to leave out; never a reason or a name."""
        return self.kind == "choice" or self.name == "ignore"

    def check(self, given: list[str]) -> str:
        """The value, if this field allows it; several of them with line breaks between."""
        known = [one for one in given if one]
        if not known and self.is_optional:
            return ""
        if not known or (len(known) > 1 and self.kind != "many"):
            got = "nothing" if not known else "several"
            raise InputError(self.label, expected="given, once", got=got, cure="Fill it in.")
        if self.kind in ("choice", "many"):
            for one in known:
                require_choice(self.label, one, self.choices, cure="Choose one of the list; load the page again.")
        if self.kind == "number":
            try:
                float(known[0])
            except ValueError:
                raise InputError(self.label, expected="a number", got="something else", cure="Correct it.") from None
        return "\n".join(known)


@dataclass(frozen=True)
class Step:
    """A step that somebody can take."""

    name: str
    title: str
    explanation: str
    run: Callable[[Values, Progress], Outcome]
    """Takes checked values and a progress callback."""
    fields: tuple[Field, ...] = ()
    waits_for: str = ""
    """Why it cannot be taken yet; empty if it can."""
    is_done: bool = False
    """Whether it was taken before."""
    advice: str = ""
    """What an earlier step found for or against it."""

    @property
    def obstacle(self) -> str:
        """Why it cannot be taken yet, a list without entries included; empty if it can."""
        lists = [one for one in self.fields if one.kind in ("choice", "many")]
        empty = [one.label for one in lists if not (one.choices or one.is_optional)]
        return self.waits_for or (f"Waits for: {', '.join(empty).lower()}. Put it in below." if empty else "")

    def read(self, form: Mapping[str, list[str]]) -> dict[str, str]:
        """The values of a form, checked; what the step does not know is not read."""
        return {one.name: one.check(form.get(one.name, [])) for one in self.fields}


@dataclass
class Desk:
    """A workspace, and the vault that is open."""

    workspace: Workspace
    opened: Vault | None = field(default=None, repr=False)
    """Kept so that a passphrase is asked once."""
    chosen: dict[str, str] = field(default_factory=dict, repr=False)
    """What was given last, by the name of the field."""
    fitted: Schema | None = None
    """The columns that a table was last found to fit, since the desk was opened."""

    @property
    def is_locked(self) -> bool:
        """Whether there is a vault whose passphrase was not given yet."""
        return self.opened is None and is_encrypted(self.workspace.vault)

    @property
    def vault(self) -> Vault:
        """The vault; an error where there is none, or none that is open."""
        if self.opened is None:
            self.opened = Vault.open(self.workspace.vault)
        return self.opened

    @property
    def has_vault(self) -> bool:
        """Whether there is one that can be used."""
        return has_vault(self.workspace.vault) and not self.is_locked

    def read_study(self) -> Study | None:
        """The study, or None where there is no file of one."""
        return Study.read(self.workspace.study) if self.workspace.study.is_file() else None

    def find_role(self, study: Study | None) -> tuple[Role | Literal[""], str, bool]:
        """Role and name of the vault's owner, by the roster or the card that was written here; whether it is enrolled."""
        if not self.has_vault:
            return "", "", False
        key = self.vault.signing_key.public
        if study is not None and study.analyst is not None and study.analyst.signing_key == key:
            return "analyst", study.analyst.name, True
        member = None if study is None else study.member_with_key(key)
        if member is not None:
            return "participant", member.name, True
        for name in self.workspace.list_files(CARD_FILES):
            try:
                role, member = read_card(self.workspace.root / name)
            except MooringError:
                continue
            if member.signing_key == key:
                return role, member.name, False
        return "", "", False


def spell_command(*words: str | Path) -> str:
    """What somebody would type in the desk's folder."""
    return shlex.join(["mooring", *map(str, words)])


def split_columns(text: str) -> tuple[str, ...]:
    """Names of columns between commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
