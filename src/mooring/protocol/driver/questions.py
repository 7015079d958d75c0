"""The questions that only a person can answer, and the answers that a person gives before a run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mooring.protocol.messages.card import Member, Role, card_fingerprint
from mooring.protocol.messages.study import Study
from mooring.protocol.registry import exchange_of
from mooring.protocol.step import Value
from mooring.protocol.workspace import Workspace
from mooring.serialization import Record, count_noun

Sharing = Literal["ask", "yes", "no", "if-advised"]


@dataclass(frozen=True)
class OpenQuestion(Record):
    """A question that a person answers with yes or no."""

    kind: Literal["reading", "members", "study", "share"]
    """What is asked: whether a table is read correctly, whether the list of members is complete, whether this is the agreed
    study, or whether rows are shared."""
    subject: str
    """What is asked about, as a digest, so that the answer to one question does not count for another."""
    words: str
    facts: tuple[tuple[str, str], ...] = ()
    """What a person should know before answering: headings and sentences."""
    columns: tuple[tuple[str, ...], ...] = ()
    """For "study" and "share", the study's columns with their allowed values; for "reading", how columns are read. Headings
    come first. Empty if there is nothing to list."""
    fingerprints: tuple[tuple[str, str], ...] = ()
    """Names and fingerprints, to be compared with those that others read out by telephone."""
    advice: str = ""
    """What mooring recommends about sharing: "share", "do not share" or "cannot tell". Where ε is declared, the advice
    follows from the study alone. Empty for other questions, and if no check was made."""


Decide = Callable[[OpenQuestion], bool | None]
"""Returns a person's answer; None if there is none yet."""


@dataclass(frozen=True)
class Given:
    """What a person says before a run starts."""

    answers: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """Answers to the questions of steps, by the names of step and question."""
    is_analyst: bool = False
    """Whether this member is the analyst, who also completes the study."""
    accepted: Collection[str] = ()
    """Fingerprints that a person has compared: the study's or, for the analyst, those of all members' cards."""
    share: Sharing = "ask"
    without: Collection[str] = ()
    """Members for whose files the run does not wait."""
    patience: int = 10
    """For how many minutes the run waits for files that a step can do without, such as those of combiners beyond the
    threshold."""
    n_members: int = 0
    """Number of members besides the analyst. Once that many have joined, the analyst is asked whether these are all."""

    def answer(self, question: OpenQuestion) -> bool | None:
        """Return the answer that was given before the run; None if there is none."""
        if question.kind == "share":
            advised = question.advice == "share"
            return {"ask": None, "yes": True, "no": False, "if-advised": advised}[self.share]
        known = [fingerprint for _, fingerprint in question.fingerprints]
        return True if known and set(known) <= set(self.accepted) else None


def ask_about_study(study: Study) -> OpenQuestion:
    """Return the question whether a complete study is the one that was agreed on."""
    analyst = study.analyst.name if study.analyst else ""
    return OpenQuestion(
        "study",
        study.digest,
        f"Is this the study whose fingerprint {analyst} read out to you, by telephone or in person?",
        describe_terms(study),
        list_columns(study),
        ((study.name, study.fingerprint),),
    )


def describe_terms(study: Study) -> tuple[tuple[str, str], ...]:
    """Return what everybody agrees on in a study, as pairs of a heading and sentences."""
    label, exchange = study.label, exchange_of(study)
    facts = [("Study", study.name)]
    if label.kind != "none":
        values = (
            ", ".join(label.classes) if label.kind == "classes" else f"a number from {label.low:g} to {label.high:g}"
        )
        seen = "; the analyst sees its value for every row" if study.mechanism.shows_labels else ""
        facts.append(("Predicts", f"{label.column} ({values}){seen}"))
    facts += [*list_members(study), *exchange.describe_study(study)]
    if (forecast := exchange.forecast(study)) is not None:
        facts.append((forecast.heading, " ".join(forecast.list_sentences())))
    return tuple(facts)


def list_columns(study: Study) -> tuple[tuple[str, ...], ...]:
    """Return a table of a study's columns, headings first."""
    rows = ((column.name, column.kind, column.described, column.missing) for column in study.columns)
    return (("column", "kind", "can be", "if missing"), *rows)


def ask_about_members(cards: Sequence[tuple[Role, Member]]) -> OpenQuestion:
    """Return the question whether these are all members, with the fingerprint that each must read out to the analyst."""
    fingerprints = tuple(sorted((member.name, card_fingerprint(role, member)) for role, member in cards))
    return OpenQuestion(
        "members",
        " ".join(fingerprint for _, fingerprint in fingerprints),
        "Once you answer yes, nobody else can join. Is this list of members complete, and has each of them read out to you, "
        "by telephone, the fingerprint that is shown here?",
        tuple((member.name, role) for role, member in sorted(cards, key=lambda card: card[1].name)),
        fingerprints=fingerprints,
    )


def ask_about_reading(workspace: Workspace, data: Path, ignore: Sequence[str] = ()) -> OpenQuestion | None:
    """Return the question whether a table that differs from the study is read correctly; None if there is nothing to ask.

    There is nothing to ask if the folder has a mapping, or if the table is read as it is or cannot be read at all.
    """
    from mooring.protocol.participant.reading import propose_reading

    reading = propose_reading(workspace, data, ignore=tuple(ignore))
    if reading is None:
        return None
    facts = [("Encoding", f"{reading.encoding}, since the file is not UTF-8")] if reading.encoding else []
    facts += [("Left out", ", ".join(reading.left_out))] if reading.left_out else []
    facts += [("Not recognised", " ".join(reading.notes))] if reading.notes else []
    subject = hashlib.sha256(repr((workspace.study.digest, reading)).encode()).hexdigest()
    return OpenQuestion(
        "reading",
        subject,
        "Your table differs from what the study declares. If you answer yes, the reading that is shown here is written to "
        f"{workspace.show(workspace.mapping_file)}, a file that you can edit. Is this reading correct?",
        tuple(facts),
        tuple(map(tuple, reading.rules)) if len(reading.rules) > 1 else (),
    )


def ask_about_sharing(workspace: Workspace) -> OpenQuestion:
    """Return the question whether a participant shares its contribution to the study of a folder."""
    from mooring.protocol.participant.membership import read_check

    study = workspace.study
    exchange, checked = exchange_of(study), read_check(workspace.vault, study)
    facts = [*describe_terms(study), ("Fingerprint", study.fingerprint)]
    if checked is not None:
        facts.append(("The check of your rows, which only you see", checked.advice))
    advice = exchange.advise_sharing(study) or (checked.answer if checked is not None else "")
    words = "What you share cannot be taken back. Do you want to share the contribution that is made from your rows?"
    return OpenQuestion("share", study.digest, words, tuple(facts), list_columns(study), advice=advice)


def list_members(study: Study) -> list[tuple[str, str]]:
    """Return who takes part, as pairs of a heading and names."""
    names = [member.name for member in study.participants]
    members = [(count_noun(len(names), "participant").capitalize(), ", ".join(names))]
    members += [("Helpers", ", ".join(member.name for member in study.helpers))] if study.helpers else []
    return [*members, ("Analyst", study.analyst.name if study.analyst else "nobody yet")]
