"""What a step of a study is: who takes it, what it needs, makes and asks, which command takes it, and what it does.

This module loads nothing heavy, since help texts are made from the steps.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from mooring.errors import InputError, require_choice
from mooring.protocol.workspace import Outcome, Workspace, has_file

TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
AGREE = "Agree on a study"
SHARE_ONCE = "Participants: check, then upload once"
ANALYSE = "The analyst: gather, train, hand back"
USE = "Participants: use the joint model"
AFTERWARDS = "At any time"
"""Headings under which steps and their commands are listed."""
Value = str | float | bool | Path | tuple[str, ...] | tuple[Path, ...] | None
"""An answer to a question: text, a number, a tick, a file, a word of a list, or several of these; None if it is left out."""


@dataclass(frozen=True)
class Item:
    """Something that a step needs or makes: files in a member's folder, or a state of the study."""

    what: str
    """A noun phrase that fits into a sentence."""
    files: tuple[str, ...] = ()
    """Patterns of paths below the folder. NAME stands for the member's name, STUDY for the study's name, and RECORDS for the
    folder of the member's records."""
    holds: Callable[[Workspace], bool] | None = None
    """Tests whether the item is there; None to look for the files."""

    def is_there(self, workspace: Workspace) -> bool:
        """Whether a folder has the item."""
        return (
            self.holds(workspace)
            if self.holds is not None
            else all(has_file(workspace, pattern) for pattern in self.files)
        )

    @property
    def described(self) -> str:
        """The item in words, with the names of its files."""
        return f"{self.what} ({', '.join(self.files)})" if self.files else self.what


def _has_agreed(workspace: Workspace) -> bool:
    return workspace.has_study and workspace.study.is_complete and workspace.identify().is_enrolled


AGREED = Item("the complete study with your card", ("study.toml",), _has_agreed)
BUNDLES = Item("participants' bundles", ("inbox/*.bundle",))


@dataclass(frozen=True)
class Choice:
    """One entry of a list to choose from."""

    value: str
    words: str = ""
    """The label on a page; the value itself if empty."""
    flag: str = ""
    """The option of the command that chooses this entry; empty if the command takes the value."""


Choices = tuple[Choice, ...] | Callable[[Workspace], Sequence[str]]


@dataclass(frozen=True)
class Question:
    """A question that a step asks a person, and the option of its command that takes the answer."""

    name: str
    """The parameter of the step's function."""
    label: str
    """The text of the question; it may have fields of the study, as for `str.format`."""
    kind: Literal["text", "number", "password", "tick", "choice", "many", "usual"] = "text"
    """`many` takes several answers, chosen from a list or separated by commas. A `password` is a new one, so it is asked for
    twice. `usual` is not asked; its answer is the file or folder that `default` names."""
    option: str = ""
    """The command's option; empty for its argument."""
    choices: Choices = ()
    endings: tuple[str, ...] = ()
    """Endings of file names, for a question whose answers are files in the folder."""
    default: str = ""
    """The preselected answer; empty if a person has to choose."""
    is_optional: bool = False
    is_rare: bool = False
    """Whether a page folds the question away."""
    hint: str = ""
    when: Callable[[Workspace], bool] | None = None
    """Whether the question is asked in a folder; None if it always is."""

    def word(self, workspace: Workspace) -> str:
        """Return the label, with fields of the study filled in."""
        return self.label.format(study=workspace.study) if "{" in self.label else self.label

    def list_choices(self, workspace: Workspace) -> tuple[Choice, ...]:
        """Return the choices in a folder."""
        if self.endings:
            return tuple(Choice(name) for name in workspace.list_files(self.endings))
        return tuple(Choice(value) for value in self.choices(workspace)) if callable(self.choices) else self.choices

    @property
    def is_kept(self) -> bool:
        """Whether other steps offer the last answer again: files, and lists that were typed in, such as names of columns.

        A reason or a member's name is never offered again.
        """
        return bool(self.endings) or (self.kind == "many" and not self.is_list)

    @property
    def is_list(self) -> bool:
        """Whether answers are entries of a list."""
        return bool(self.endings or self.choices)

    def read(self, texts: Sequence[str], workspace: Workspace) -> Value:
        """Return the answer that the entries of a form give; refuse entries that are not a valid answer."""
        if self.kind == "usual":
            return workspace.root / self.default
        entries = [entry for entry in texts if entry]
        if self.kind == "many" and not self.is_list:
            entries = [word for entry in entries for word in split_words(entry)]
        label = self.word(workspace)
        if not entries and not self.is_optional:
            raise InputError(label, problem=f"'{label}' has no answer.", cure="Fill it in.")
        if self.kind == "password":
            if len(set(texts)) > 1:
                problem = f"The two entries for '{label}' do not match."
                raise InputError(label, problem=problem, cure="Type the same one twice.")
            entries = entries[:1]
        if len(entries) > 1 and self.kind != "many":
            problem = f"'{label}' takes one answer, but {len(entries)} were given."
            raise InputError(label, problem=problem, cure="Give one of them.")
        for entry in entries if self.is_list else ():
            known = [choice.value for choice in self.list_choices(workspace)]
            require_choice(label, entry, known, cure="Choose from the list; load the page again.")
        return self._convert(entries, workspace)

    def _convert(self, entries: Sequence[str], workspace: Workspace) -> Value:
        if self.kind == "tick":
            return bool(entries)
        if self.kind == "many":
            return tuple(workspace.root / entry for entry in entries) if self.endings else tuple(entries)
        if not entries:
            return None
        if self.kind == "number":
            try:
                return float(entries[0])
            except ValueError:
                raise InputError(self.label, expected="a number", got="text", cure="Correct it.") from None
        return workspace.root / entries[0] if self.endings else entries[0]

    def spell(self, answer: Value, workspace: Workspace) -> list[str]:
        """Return the words of a command line that give the same answer, never a password."""
        if answer is None or answer is False or answer == ():
            return []
        if answer is True or self.kind == "password":
            return [self.option]
        chosen = {choice.value: choice for choice in self.list_choices(workspace)}
        words = [workspace.show(part) if isinstance(part, Path) else _spell(part) for part in _list_parts(answer)]
        if any(choice.flag for choice in chosen.values()):
            return [chosen[word].flag for word in words if chosen[word].flag]
        return [part for word in words for part in ((self.option, word) if self.option else (word,))]


def split_words(text: str) -> list[str]:
    """Return the words of a text that are separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _list_parts(answer: Value) -> Sequence[Any]:
    return answer if isinstance(answer, tuple) else (answer,)


def _spell(part: Any) -> str:
    return str(part).removesuffix(".0") if isinstance(part, float) else str(part)


@dataclass(frozen=True)
class Awaited:
    """Files of several members that a step takes together, one from each."""

    file: str
    """The path of each file below the folder; NAME stands for the member that made the file."""
    names: Callable[[Workspace], Iterable[str]]
    """Returns the members that make such a file."""
    enough: Callable[[Workspace], int] | None = None
    """Returns how many of the files suffice; None for all. Once that many are there, the step waits for the others only for
    a while."""
    ready: Callable[[Workspace], Collection[str]] | None = None
    """Returns the members whose file can be used; None if every file that is there can be used."""

    def list_missing(self, workspace: Workspace) -> tuple[list[str], bool]:
        """Return the members whose file is not ready, and whether the files that are ready suffice."""
        names = list(self.names(workspace))
        if self.ready is None:
            missing = [name for name in names if not has_file(workspace, self.file.replace("NAME", name))]
        else:
            usable = self.ready(workspace)
            missing = [name for name in names if name not in usable]
        most = len(names) if self.enough is None else self.enough(workspace)
        return missing, len(names) - len(missing) >= most


AWAITS_NOBODY: tuple[Awaited, ...] = ()
AWAITED_BUNDLES = Awaited("inbox/NAME.bundle", lambda workspace: [m.name for m in workspace.study.participants])
ASK_BUNDLES = Question("bundles", "Bundles", "usual", "--bundles", default="inbox")


@dataclass(frozen=True)
class Sent:
    """A file that a step makes for other members. People carry the file, or it goes through a place."""

    file: str
    """The file's path below the folder. NAME stands for the sender, STUDY for the study, RECIPIENT for each recipient."""
    to: str = "everybody"
    """The role of the recipients."""
    arrives: str = ""
    """The subfolder of the recipient's folder in which steps look for the file; empty for the recipient's folder itself."""
    grows: bool = False
    """Whether a later version may replace the file."""


@dataclass(frozen=True)
class Step:
    """One step of a study."""

    name: str
    role: str
    """The role that takes the step: designer, participant, analyst, everybody, or a role that the mechanism names."""
    title: str
    explanation: str
    """What the step does, in a sentence or two."""
    command: str
    """The words that follow `mooring`, without the options that answer questions."""
    phase: str
    """The heading under which the command is listed."""
    needs: tuple[Item, ...] = ()
    makes: tuple[Item, ...] = ()
    sends: tuple[Sent, ...] = ()
    asks: tuple[Question, ...] = ()
    awaits: tuple[Awaited, ...] | None = None
    """Files of others that 'mooring run' waits for before it takes the step, in this order; None if only people take it."""
    consent: Literal["", "reading", "members", "share"] = ""
    """What a person is asked before 'mooring run' runs the step: whether the table is read correctly, who the members are,
    or whether rows are shared."""
    run: Callable[..., Outcome] | None = None
    """Takes the folder, the answers by name, `command` and `progress`; None for a step that has a command only."""
    when: Callable[[Workspace], bool] | None = None
    """Whether the step can be taken in a folder; None if it always can."""
    advise: Callable[[Workspace], tuple[str, bool] | None] | None = None
    """Returns an earlier step's advice about this step and whether the advice is a warning, or None without advice."""
    after: str = ""
    """For a step of a mechanism: the step that it follows."""
    is_optional: bool = False
    """Whether a study can go on without the step."""

    def list_questions(self, workspace: Workspace) -> tuple[Question, ...]:
        """Return the questions that are asked in a folder."""
        return tuple(question for question in self.asks if question.when is None or question.when(workspace))

    def read(self, form: Mapping[str, Sequence[str]], workspace: Workspace) -> dict[str, Value]:
        """Return the checked answers in a form; entries that the step does not ask for are ignored."""
        return {asked.name: asked.read(form.get(asked.name, ()), workspace) for asked in self.list_questions(workspace)}

    def spell(self, answers: Mapping[str, Value], workspace: Workspace) -> str:
        """Return the command line that takes the step with these answers, in the folder."""
        asked = [question for question in self.asks if question.name in answers]
        words = [word for question in asked for word in question.spell(answers[question.name], workspace)]
        return shlex.join(["mooring", *self.command.split(), *words])


@dataclass(frozen=True)
class Addition:
    """Additions of a mechanism to a common step, and texts that replace those of the step."""

    step: str
    """The name of the common step."""
    needs: tuple[Item, ...] = ()
    makes: tuple[Item, ...] = ()
    sends: tuple[Sent, ...] = ()
    asks: tuple[Question, ...] = ()
    awaits: tuple[Awaited, ...] | None = None
    """Replaces the files that the step waits for; None to keep them."""
    title: str = ""
    explanation: str = ""

    def extend(self, step: Step) -> Step:
        """Return the step with the additions."""
        return replace(
            step,
            needs=(*step.needs, *self.needs),
            makes=(*step.makes, *self.makes),
            sends=(*step.sends, *self.sends),
            awaits=step.awaits if self.awaits is None else self.awaits,
            asks=(*step.asks, *self.asks),
            title=self.title or step.title,
            explanation=self.explanation or step.explanation,
        )
