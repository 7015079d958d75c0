"""The record of a training on aligned rows: what was trained, how well it predicts, and who was left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mooring.audit.release import ReleaseRisk
from mooring.learners import Gain, Kind, Score
from mooring.protocol.results import Finding, TrainingRecord
from mooring.serialization import Count, Rows, render_html


@dataclass(frozen=True)
class Training(TrainingRecord):
    """The trained learner, and how well it predicts."""

    mechanism: ClassVar[str] = "rotation"

    learner: str
    """Name of the learner; with "auto", the name of the learner that was chosen."""
    kind: Kind
    score: Score
    """Score over all rows, each predicted by a model that was trained on the other participants only."""
    participants: tuple[tuple[str, Score], ...]
    """The same score on each participant's rows, by name."""
    alone: tuple[tuple[str, Score], ...]
    """Cross-validated score of a model of each upload alone, for up to `MOST_ALONE` participants that have enough rows.
    This score stands in for the score of a model of the participant's raw rows, which carry no noise."""
    rows: Count
    """Rows of all participants that were not left out."""
    rows_used: Count
    """How many of these rows the model was trained on."""
    model_digest: str
    """SHA-256 of the model."""
    gain: Gain | None = None
    """Score of models of the other uploads minus that of models of one upload alone, pooled over the rows of the
    participants in `alone`; None if no model was trained on one upload alone."""
    left_out: tuple[tuple[str, Score], ...] = ()
    """Participants left out of the training, with the model's score on up to 500 rows of each: models of the others do not
    predict its labels (`find_disagreeing`), or it is in `harmful`."""
    harmful: tuple[tuple[str, float], ...] = ()
    """Participants in `left_out` whose rows made models worse for most others (`find_harmful`), and the others' mean loss
    of score."""
    limited: tuple[tuple[str, Count], ...] = ()
    """Participants with more rows than the study's `weight_limit` allows, and how many of their rows it allows."""
    release: ReleaseRisk | None = None
    """What the model discloses; None if the study does not limit it, or if there are too few rows to measure it."""
    study: str = ""
    made_from: str = ""
    """Digests of the study and of the common space."""
    command: str = ""
    """The command that was run."""

    @property
    def is_whole(self) -> bool:
        """Whether nobody's rows were left out."""
        return not self.left_out

    def list_tables(self) -> dict[str, Rows]:
        """Return a table with the score on each participant's rows."""
        return {f"Score on each participant's rows ({self.score.metric})": self.list_scores()}

    def list_scores(self) -> Rows:
        """Return the scores of each upload, by a model of the others' uploads and by a model of that upload alone."""
        alone = dict(self.alone)
        rows = [
            (name, self._write_score(by_others), self._write_score(alone[name]) if name in alone else "–")
            for name, by_others in self.participants
        ]
        return [("participant", "by the others' uploads", "by its own upload alone"), *rows]

    def __str__(self) -> str:
        used = "" if self.rows_used == self.rows else f" ({self.rows_used:,} of them, drawn evenly, were used)"
        return f"Trained {self.learner!r} on {self.rows:,} rows{used}."

    def list_findings(self) -> tuple[Finding, ...]:
        """Return a finding on each participant that is left out, and on each whose number of rows is limited."""
        losses = dict(self.harmful)
        findings = []
        for name, score in self.left_out:
            kind = "harmful" if name in losses else "left out"
            reason = (
                f"its rows make models worse for most of the others, by {self._write_loss(losses[name])} on average"
                if name in losses
                else f"models trained on the others' rows do not predict its labels (score: {score}), as if its rows "
                "were aligned wrongly or its labels were false"
            )
            words = f"Left out {name}: {reason}. Ask how its upload was made. It still gets its map and the model."
            findings.append(Finding(kind, words, (name,)))
        for name, count in self.limited:
            words = (
                f"Only {count:,} rows of {name}, drawn at random, were used: the study's weight_limit allows no more, so "
                "that no participant dominates by its number of rows. A larger limit would use more of them, and would let "
                f"{name} do more harm if its rows were false."
            )
            findings.append(Finding("limited", words, (name,)))
        return tuple(findings)

    def _write_score(self, participant: Score) -> str:
        """Return a score as text, with its metric if that differs from the metric of all rows."""
        return str(participant) + ("" if participant.metric == self.score.metric else f" ({participant.metric})")

    def _write_loss(self, loss: float) -> str:
        return f"{loss:.2f} of R²" if self.score.metric == "R²" else f"{100 * loss:.1f} points"

    def state_scores(self) -> list[str]:
        """Return sentences on the score, on the gain over one upload alone, and on what the model discloses."""
        lines = [
            f"Score across participants ({self.score.metric}): {self.score.with_interval()}. Each participant was "
            "predicted by a model trained on the others only. Uploaded rows may carry noise; new rows are scored "
            "without it.",
            "The score of one upload alone is cross-validated within that upload. The analyst cannot know what a model "
            "of the pooled raw rows would score."
            if self.alone
            else f"Scored on {self.score.n:,} rows. No model was trained on one upload alone, because the training ran on a "
            "cluster, or every upload has too few rows or classes.",
        ]
        if self.gain is not None:
            sentence = (
                "Difference between models of the other uploads and models of one upload alone: "
                f"{self.gain}, pooled over the same {self.gain.n:,} rows."
            )
            if self.gain.metric != "R²":  # over pooled rows, it helps to know the class frequencies of an upload
                sentence += " A model of one upload also learns its class frequencies, so participants may differ."
            lines.append(
                f"{sentence} 'mooring predict --beside' shows each participant whether joining beats a model of its raw "
                "rows alone."
            )
        return lines if self.release is None else [*lines, str(self.release)]

    def _repr_html_(self) -> str:
        return render_html(str(self), *self.state_warnings(), *self.state_scores(), tables=[self.list_scores()])
