"""What is known about joining: every score that a role knows, each with its source, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mooring.audit.results.statements import state_alone
from mooring.learners import Answer, Gain, Score
from mooring.report.records import AttackedStudy, StudyRecords
from mooring.serialization import Record, count_noun

if TYPE_CHECKING:
    from mooring.protocol.description import Description

_NOT_SCORED = (
    "What joining gives was not measured here: 'mooring train' (analyst) or 'mooring predict' on labelled rows "
    "(participant) measures it."
)
Group = Literal["joint", "joint by participant", "alone", "local only", "pooled raw"]


@dataclass(frozen=True)
class NamedScore(Record):
    """A score that a role knows, and where it comes from."""

    group: Group
    name: str
    source: str
    score: Score

    @property
    def title(self) -> str:
        """The name of the score, preceded by the group unless the name contains the group."""
        return self.name if self.group in self.name else f"{self.group}: {self.name}"


@dataclass(frozen=True)
class JoiningFact(Record):
    """A fact about the benefit of joining."""

    kind: Literal["uploads", "new rows", "own rows", "simulation", "pooled raw not known", "not measured"]
    words: str
    """The fact in sentences."""
    gain: Gain | None = None
    """The joint model compared with training alone on the same rows."""

    @property
    def answer(self) -> Answer | None:
        """Whether joining pays, if models were compared on the same rows."""
        return None if self.gain is None else self.gain.answer


def list_joining(
    description: Description | None,
    records: StudyRecords,
    audits: Sequence[AttackedStudy],
    scores: Sequence[NamedScore],
) -> list[JoiningFact]:
    """List what is known about joining: scores on uploads, on new rows (or else on own rows), and in simulations.

    Scores on uploads compare models of the other uploads with models of one upload alone. They do not show whether
    joining pays: the delivered model is also trained on the participant's own upload, and a participant alone would
    train on rows without noise.
    """
    facts = []
    if records.training is not None and records.training.score is not None:
        facts.append(_state_uploads(records, is_noisy=description is not None and description.has_noisy_rows))
    if records.predict is not None and records.predict.score is not None:
        facts.append(_state_new_rows(records))
    elif records.check is not None and records.check.local_only is not None:
        facts.append(JoiningFact("own rows", state_alone(records.check.local_only)))
    for attacked in audits:
        result = attacked.study_result
        point = result.headline_point
        if not attacked.is_self_attack and result.references.local_only is not None and point is not None:
            gain = None if attacked.study_point is None else point.gain
            facts.append(JoiningFact("simulation", f"In the audit's simulation: {result.joining}", gain))
    if not facts or all(fact.kind == "simulation" for fact in facts):
        facts.append(JoiningFact("not measured", _NOT_SCORED if description is None else description.scoring))
    if facts[0].kind != "not measured" and not any(score.group == "pooled raw" for score in scores):
        facts.append(
            JoiningFact("pooled raw not known", "What pooling all raw rows would score is not known to this role.")
        )
    return facts


def _state_uploads(records: StudyRecords, *, is_noisy: bool) -> JoiningFact:
    training = records.training
    assert training is not None
    assert training.score is not None
    score, gain = training.score, training.gain
    words = f"Models trained without one upload score {score.with_interval()} {score.metric} on that upload."
    words += " Uploaded rows carry the study's noise; new rows are scored without it." if is_noisy else ""
    if gain is not None:
        n_alone = count_noun(len(training.alone), "participant")
        words += (
            f" Compared with a model of each upload alone, the difference is {gain}, pooled over the {gain.n:,} rows of "
            f"{n_alone}."
        )
        if score.metric != "R²":
            words += (
                " A model of one upload also learns how common each class is there, so the difference may vary between "
                "participants."
            )
    return JoiningFact(
        "uploads",
        f"{words} The delivered model is trained on each participant's own rows as well, so this does not show whether "
        "joining pays. 'mooring predict --beside' shows that at each participant.",
    )


def _state_new_rows(records: StudyRecords) -> JoiningFact:
    predict = records.predict
    assert predict is not None
    assert predict.score is not None
    score, local, shared = predict.score, predict.local_only, predict.n_shared
    gain = None if shared else predict.gain
    n_rows = predict.n_scored or predict.n_rows
    rows = f"On {n_rows} new rows of this participant"
    if shared:
        trained = count_noun(shared, "was", "were")
        rows = f"On {n_rows} rows of this participant, of which {trained} shared and trained on,"
    words = f"{rows} the joint model scores {score.with_interval()} {score.metric}"
    if local is None:
        return JoiningFact("new rows", f"{words}. The participant's own model was not measured on these rows.")
    words += f", and a model of the participant's raw rows alone scores {local.with_interval()}."
    if gain is not None:
        return JoiningFact("new rows", f"{words} {gain.sentence()}", gain)
    why = "The two models were not compared row by row, so whether joining pays is not shown."
    if shared:
        why = "Neither score is on new rows alone, so whether joining pays is not shown."
    return JoiningFact("new rows", f"{words} {why}")


def list_scores(records: StudyRecords, audits: Sequence[AttackedStudy], *, is_noisy: bool) -> list[NamedScore]:
    """Return every score that this role knows, each with its source."""
    training, predict, check = records.training, records.predict, records.check
    scores: list[NamedScore] = []

    def add(group: Group, name: str, source: str, score: Score | None) -> None:
        if score is not None and not math.isnan(score.value):
            scores.append(NamedScore(group, name, source, score))

    if training is not None:
        name = "joint model, noisy uploads" if is_noisy else "joint model"
        add("joint", name, "mooring train: each participant's upload held out in turn", training.score)
        for name, score in training.participants:
            add("joint by participant", name, "mooring train: this participant held out", score)
        for name, score in training.alone:
            add("alone", name, "mooring train: a model of this participant's upload only", score)
    if predict is not None:
        which = "rows, some of them trained on" if predict.n_shared else "new rows"
        source = f"mooring predict: {which} of this participant, labelled"
        add("joint", f"joint model, {which}", source, predict.score)
        add("local only", f"my rows alone, {which}", f"mooring predict: the same {which}", predict.local_only)
    if check is not None:
        add("local only", "my rows alone, held out", "mooring check: my rows, held out in turn", check.local_only)
    for attacked in audits:
        about, how = f"{attacked.title}, a simulation", "self-attack" if attacked.is_self_attack else "simulated"
        if attacked.study_point is not None:
            add("joint", f"joint model, {how}", f"{about}: {attacked.study_point.title}", attacked.study_point.deployed)
        add("local only", f"local only, {how}", about, attacked.result.references.local_only)
        add("pooled raw", f"pooled raw, {how}", about, attacked.result.references.pooled_raw)
    return scores
