"""The folder in which a member of a study works, its content, and the outcome of a step.

This module loads nothing heavy, since commands begin with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mooring.errors import MooringError
from mooring.serialization import Rows

if TYPE_CHECKING:
    from mooring.protocol.inspection import Inspection
    from mooring.protocol.messages.study import Study
    from mooring.protocol.storage.vault import Vault
    from mooring.tables.schema import Schema

MAPPING = "mapping.toml"
"""Usual name of the file that says how a site's own table is read."""
CARDS = (".card.toml",)
"""Endings of the file names of cards."""


@dataclass(frozen=True)
class Identity:
    """Who the owner of a vault is in a study."""

    role: str = ""
    """'participant', 'helper' or 'analyst'; empty while it is not known."""
    name: str = ""
    is_enrolled: bool = False
    """Whether the study's roster has this member."""


@dataclass
class Workspace:
    """The folder that a member works in, and what it holds: study, vault, inbox, the analyst's work."""

    root: Path
    study_file: Path
    vault_folder: Path
    analysis: Path
    """The analyst's work folder."""
    pages: Pages = field(repr=False)
    """Writes the pages of steps."""
    engine: Any = field(default=None, repr=False)
    """Runs the analyst's long steps; None to run them in this process."""
    mapping: Path | None = None
    """The file that says how this site's own table is read; None for the usual one."""
    ask_passphrase: Callable[[Path], str | None] = field(default=lambda vault: None, repr=False)
    """Asks a person for the passphrase of a vault."""
    opened: Vault | None = field(default=None, repr=False)
    """The vault once it is open, so that the passphrase is asked for only once."""
    fitted: Schema | None = None
    """The study's schema if the table that was last examined fits it; otherwise None."""
    is_misfit: bool = False
    """Whether sharing the table that was last examined would be refused, because the table does not fit."""
    _read: tuple[tuple[int, ...], Study] | None = field(default=None, repr=False)
    """The study as it was last read, with the version of its file."""
    _owner: Identity | None = field(default=None, repr=False)
    """The owner, if it is not looked up any more; see `as_it_is`."""

    @classmethod
    def at(cls, root: Path, pages: Pages) -> Workspace:
        """Return a folder in which everything has its usual name."""
        return cls(root, root / "study.toml", root / "vault", root / "analysis", pages)

    @property
    def is_locked(self) -> bool:
        """Whether there is a vault whose passphrase was not given yet."""
        from mooring.protocol.storage.vault import is_encrypted

        return self.opened is None and is_encrypted(self.vault_folder)

    @property
    def vault(self) -> Vault:
        """The vault, which is opened first; an error is raised if there is none, or its passphrase is not given."""
        from mooring.protocol.storage.vault import Vault

        if self.opened is None:
            self.opened = Vault.open(self.vault_folder, passphrase=self.ask_passphrase(self.vault_folder))
        return self.opened

    @property
    def study(self) -> Study:
        """The study; its file is read again if it has changed, except in a folder from `as_it_is`."""
        from mooring.protocol.messages.study import Study

        if self._owner is not None and self._read is not None:
            return self._read[1]
        try:
            facts = self.study_file.stat()
        except OSError:
            return Study.read(self.study_file)  # raises an error that says what is missing
        version = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
        if self._read is None or self._read[0] != version:
            self._read = version, Study.read(self.study_file)
        return self._read[1]

    @property
    def mapping_file(self) -> Path:
        """The file that says how this site's own table is read; it need not exist."""
        return self.mapping or self.root / MAPPING

    @property
    def has_study(self) -> bool:
        """Whether the folder has a study's file."""
        return self.study_file.is_file()

    @property
    def records(self) -> Path:
        """Where the records of this member's steps lie: the work folder, or the vault's folder of the study."""
        if self.identify().role == "analyst":
            return self.analysis
        return self.vault.study_path(self.study.folder_name)

    def identify(self) -> Identity:
        """Return who the vault's owner is, according to the roster or to a card that was written here."""
        from mooring.protocol.messages.card import read_card
        from mooring.protocol.storage.vault import has_vault

        if self._owner is not None:
            return self._owner
        if self.is_locked or not has_vault(self.vault_folder):
            return Identity()
        key, study = self.vault.signing_key.public, self.study if self.has_study else None
        if study is not None and study.analyst is not None and study.analyst.signing_key == key:
            return Identity("analyst", study.analyst.name, is_enrolled=True)
        if study is not None and (member := study.member_with_key(key)) is not None:
            return Identity("participant", member.name, is_enrolled=True)
        if study is not None and (helper := study.helper_with_key(key)) is not None:
            return Identity("helper", helper.name, is_enrolled=True)
        for name in self.list_files(CARDS):
            try:
                role, card = read_card(self.root / name)
            except MooringError:
                continue
            if card.signing_key == key:
                return Identity(role, card.name)
        return Identity()

    def as_it_is(self) -> Workspace:
        """Return this folder with its present owner and study, which are then not looked up again."""
        owner = self.identify()
        if self.has_study:
            _ = self.study  # is read here if it has changed
        return replace(self, _owner=owner)

    def list_files(self, endings: tuple[str, ...], *, folder: str = "") -> list[str]:
        """Return the names of plain files with one of the endings; hidden files and links are left out."""
        inside = self.root / folder
        if not inside.is_dir() or inside.is_symlink():
            return []
        return sorted(path.name for path in inside.iterdir() if path.name.endswith(endings) and is_plain(path))

    def show(self, path: str | Path) -> str:
        """Return a path as a person in this folder would write it."""
        return str(path.relative_to(self.root) if isinstance(path, Path) and path.is_relative_to(self.root) else path)


def is_plain(path: Path) -> bool:
    """Whether a path is a file that is neither hidden nor a link."""
    return path.is_file() and not path.is_symlink() and not path.name.startswith(".")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a step, for a person, for a program, and for the next step."""

    result: Any
    """The typed result of the step."""
    record: Mapping[str, Any]
    """The result for programs, as values that JSON can hold."""
    lines: tuple[str, ...]
    """Sentences on what was done."""
    hand_off: tuple[str, ...] = ()
    """Sentences on what to send to whom, where people carry files."""
    details: tuple[str, ...] = ()
    """Sentences on what was measured, which a page folds away."""
    notes: tuple[str, ...] = ()
    """Sentences on what deserves attention."""
    tables: tuple[tuple[str, Rows], ...] = ()
    """Tables: a title, which may be empty, and rows of text, headings first."""
    decision: str = ""
    """The most important sentence; empty if there is none."""
    page: Path | None = None
    """The page that was written, if any."""
    standing: Literal["whole", "in part", "refused"] = "whole"
    """Whether everything was used, something was set aside or advised against, or a limit of the study is exceeded."""


class Pages(Protocol):
    """Writes the pages of steps; `mooring.report` implements this protocol."""

    def write_check(self, study: Study, inspection: Inspection, output: Path) -> None:
        """Write the page of a check."""

    def write_report(
        self, study: Study | None, records: Path, output: Path, *, audit: Path | None = None, examples: bool = True
    ) -> Outcome:
        """Write the page of everything that a member knows of a study and, if given, of an audit."""


def has_file(workspace: Workspace, pattern: str) -> bool:
    """Whether a folder has a plain file that matches a pattern of an `Item`; links are not followed."""
    folder, _, name = pattern.rpartition("/")
    base = workspace.records if folder == "RECORDS" else workspace.root / folder
    if "STUDY" in name or "NAME" in name:
        name = name.replace("STUDY", workspace.study.name).replace("NAME", workspace.identify().name)
    if not base.is_dir() or base.is_symlink():
        return False
    return any(fnmatchcase(path.name, name) and is_plain(path) for path in base.iterdir())


def has_record(name: str) -> Callable[[Workspace], bool]:
    """Return a test of whether a member's records include the record of a step."""
    return lambda workspace: workspace.identify().is_enrolled and has_file(workspace, f"RECORDS/{name}.json")


def has_label(workspace: Workspace) -> bool:
    """Whether the study of a folder has a label, so that there is something to train and to predict."""
    return workspace.study.label.kind != "none"
