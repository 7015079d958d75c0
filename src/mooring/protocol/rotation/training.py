"""`mooring train`: a learner on everybody's rows, scored on participants that it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from mooring.audit.release import N_MODELS, ReleaseRisk, measure_trained_release
from mooring.errors import RefusedError
from mooring.learners import (
    AUTO,
    Fitted,
    Gain,
    Kind,
    LearnerLike,
    Model,
    Score,
    compare,
    cross_validate,
    require_learner,
    score,
)
from mooring.learners.fitting import (
    MOST_ALONE,
    MOST_ROWS,
    decide_learner,
    draw_rows,
    group_folds,
    row_folds,
    screening_rows,
)
from mooring.protocol.analyst.trained_model import TRAINED_FILE, keep_training, require_label
from mooring.protocol.messages.model import write_model
from mooring.protocol.messages.study import Study
from mooring.protocol.results import Finding, TrainingRecord
from mooring.protocol.rotation.alignment_state import AlignmentState, read_space
from mooring.protocol.rotation.collaboration_matrix import read_blocks
from mooring.protocol.rotation.outliers import find_disagreeing
from mooring.protocol.rotation.scheme import rotation_of
from mooring.serialization import Count, Rows, render_html
from mooring.typing import Indices, Labels, Matrix, Progress

_FEWEST_ALONE = 10
_ROWS_COMPARED = 5_000
_SAME_NUMBERS = 1e-6  # of their range


@dataclass(frozen=True)
class Training(TrainingRecord):
    """What was trained, and how well it predicts."""

    mechanism: ClassVar[str] = "rotation"

    learner: str
    """What was trained; where "auto" was asked for, what it chose."""
    kind: Kind
    score: Score
    """Over participants: each was predicted by a learner trained on the others only."""
    participants: tuple[tuple[str, Score], ...]
    alone: tuple[tuple[str, Score], ...]
    """Cross-validated score of a model of each upload alone, for up to `MOST_ALONE` participants with ten rows or more.
    It stands in for the score of a model of the participant's raw rows, which carry no noise."""
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
    """Participants left out of the training because models of the others do not predict their labels
    (`find_disagreeing`), with the model's score on up to 500 of their rows."""
    release: ReleaseRisk | None = None
    """What the model gives away, where the study limits it and there are rows enough to tell."""
    study: str = ""
    made_from: str = ""
    """Digests of the study, and of the alignment's space."""
    command: str = ""
    """How the step was asked for."""

    @property
    def is_whole(self) -> bool:
        """Whether nobody's rows were left out."""
        return not self.left_out

    def list_tables(self) -> dict[str, Rows]:
        """The score on each participant's rows."""
        return {f"{self.score.metric.capitalize()} on each participant's rows": self.list_scores()}

    def list_scores(self) -> Rows:
        """A line a participant: the score on its upload of a model of the others' uploads, and of its own upload alone."""
        alone = dict(self.alone)
        rows = [(name, str(own), str(alone[name]) if name in alone else "–") for name, own in self.participants]
        return [("participant", "by the others' uploads", "by its own upload alone"), *rows]

    def __str__(self) -> str:
        used = "" if self.rows_used == self.rows else f" ({self.rows_used:,} of them, drawn evenly, were used)"
        return f"Trained {self.learner!r} on {self.rows:,} rows{used}."

    def state_warnings(self) -> list[str]:
        """A sentence on each participant that is left out."""
        return [
            f"Left out {name}: models trained on the others' rows do not predict its labels (score: {left_out_score}), "
            "as if its rows were aligned wrongly. Ask how its upload was made. It still gets its map and the model."
            for name, left_out_score in self.left_out
        ]

    def state_scores(self) -> list[str]:
        """Sentences on the score, on the gain over one upload alone, and on what the model gives away."""
        lines = [
            f"{self.score.metric.capitalize()} across participants: {self.score.with_interval()}. Each participant was "
            "predicted by a model trained on the others only. Uploaded rows may carry noise; new rows are scored "
            "without it.",
            "The score of one upload alone is cross-validated within that upload. The analyst cannot know what a model "
            "of the pooled raw rows would score."
            if self.alone
            else f"Scored on {self.score.n:,} rows. No model was trained on one upload alone, because the rows are "
            "stored in parts or are too few.",
        ]
        if self.gain is not None:
            sentence = (
                "Difference between models of the other uploads and models of one upload alone: "
                f"{self.gain}, pooled over the same {self.gain.n:,} rows."
            )
            if self.gain.metric != "R²":  # over pooled rows, it helps to know the class frequencies of an upload
                sentence += " A model of one upload also learns its class frequencies, so participants may differ."
            lines.append(
                f"{sentence} 'mooring predict --beside' shows each participant if joining beats its raw rows alone."
            )
        return lines if self.release is None else [*lines, str(self.release)]

    def _repr_html_(self) -> str:
        return render_html(str(self), *self.state_warnings(), *self.state_scores(), tables=[self.list_scores()])

    def list_findings(self) -> tuple[Finding, ...]:
        """Who was left out of the training."""
        names = tuple(name for name, _ in self.left_out)
        words = f"Left out of the training, as models of the others do not predict their labels: {', '.join(names)}."
        return (Finding("left out", words, names),) if names else ()


def train(
    study: Study,
    folder: str | Path,
    *,
    learner: LearnerLike = AUTO,
    seed: int = 0,
    most_rows: int = MOST_ROWS,
    command: str = "",
    progress: Progress | None = None,
) -> Training:
    """Train on the collaboration matrix, score by participant, and write the model.

    Parameters
    ----------
    folder : path
        The analyst's work folder, after `align_bundles`.
    learner : str or Learner, default "auto"
        A name in `mooring.learners.LEARNERS` or a learner of one's own, whose model holds no rows; or "auto": what
        `mooring.learners.choose_learner` chooses.
    seed : int, default 0
        For folds, and for what is random in the learner.
    most_rows : int
        Of more, an even share of each participant's rows is drawn.
    """
    rotation_of(study)
    folder = Path(folder)
    kind = require_label(study)
    require_learner(learner, to_deliver=True)
    space = read_space(folder, study)
    owners, rows, labels = _gathered(folder, study, space, seed=seed, most_rows=most_rows)
    screened = Screened.of(*_draw_screened(owners, rows, labels, seed, space.space_digest), kind=kind, seed=seed)
    kept = ~np.isin(owners, screened.left_out)
    owners, rows, labels = owners[kept], rows[kept], labels[kept]
    chosen = decide_learner(learner, rows, labels, kind=kind, seed=seed, owners=owners)
    names = space.names
    folds = group_folds(len(names), seed)
    large_enough = [place for place in range(len(names)) if _can_learn_alone(labels[owners == place], kind)]
    trained_alone = large_enough[:MOST_ALONE]
    n_attacked = N_MODELS if study.model_limit else 0
    steps = Steps(np.unique(folds[owners]).size + len(trained_alone) + 1 + n_attacked, progress)
    predicted = cross_validate(chosen, rows, labels, folds[owners], kind=kind, seed=seed, on_part=steps.advance)
    rng = np.random.default_rng(seed)
    overall, each = score_participants(names, owners, labels, predicted, kind=kind, rng=rng)
    alone, predicted_alone = [], labels.copy()
    for place in trained_alone:
        is_owner = owners == place
        own_rows, own_labels = rows[is_owner], labels[is_owner]
        own_folds = row_folds(own_labels, seed)
        predicted_alone[is_owner] = cross_validate(chosen, own_rows, own_labels, own_folds, kind=kind, seed=seed)
        alone.append((names[place], score(own_labels, predicted_alone[is_owner], kind=kind, rng=rng)))
        steps.advance()
    fitted = chosen.fit(rows, labels, kind=kind, seed=seed)
    digest = write_model(folder / TRAINED_FILE, convert_model(study, fitted, rows, labels, seed))
    steps.advance()
    total = sum(space.rows[names[place]] for place in np.unique(owners))
    compared, gain = np.isin(owners, trained_alone), None
    if trained_alone:
        gain = compare(labels[compared], predicted[compared], predicted_alone[compared][None], kind=kind)
    left_out = screened.score_left_out(names, fitted, kind=kind, rng=rng)
    release = None
    if study.model_limit:
        release = measure_trained_release(chosen, rows, labels, kind=kind, seed=seed, on_model=steps.advance)
    made_of = study.digest, space.space_digest, command
    training = Training(
        chosen.name, kind, overall, each, tuple(alone), total, len(rows), digest, gain, left_out, release, *made_of
    )
    keep_training(folder, training)
    return training


@dataclass(frozen=True, eq=False)
class Screened:
    """Some rows of every participant, and who is left out of the training by what they show."""

    owners: Indices
    """Of shape (n,)."""
    rows: Matrix
    """Of shape (n, h)."""
    labels: Labels
    """Of shape (n,)."""
    left_out: Indices
    """Places of participants."""

    @classmethod
    def of(cls, owners: Indices, rows: Matrix, labels: Labels, *, kind: Kind, seed: int) -> Screened:
        """Screen rows that `screening_rows` drew.

        Parameters
        ----------
        owners : integers of shape (n,)
            From 0.
        rows : array of shape (n, h)
            In the common space.
        labels : array of shape (n,)
        kind, seed
            Of the labels; of models and folds.
        """
        return cls(owners, rows, labels, find_disagreeing(rows, labels, owners, kind=kind, seed=seed))

    def score_left_out(
        self, names: Sequence[str], fitted: Fitted, *, kind: Kind, rng: np.random.Generator
    ) -> tuple[tuple[str, Score], ...]:
        """The score on the rows of those who are left out, each by name.

        Parameters
        ----------
        fitted : Fitted
            Trained on the others.
        """
        found = []
        for place in self.left_out:
            mine = self.owners == place
            found.append((names[place], score(self.labels[mine], fitted.predict(self.rows[mine]), kind=kind, rng=rng)))
        return tuple(found)


def score_participants(
    names: Sequence[str], owners: Indices, truth: Labels, predicted: Labels, *, kind: Kind, rng: np.random.Generator
) -> tuple[Score, tuple[tuple[str, Score], ...]]:
    """The score over all rows, and each participant's own where it has rows.

    Parameters
    ----------
    owners : integers of shape (n,)
        The place of each row's owner in `names`.
    truth, predicted : arrays of shape (n,)
    """
    overall = score(truth, predicted, kind=kind, rng=rng)
    each = tuple(
        (name, score(truth[mine], predicted[mine], kind=kind, rng=rng))
        for place, name in enumerate(names)
        if (mine := owners == place).any()
    )
    return overall, each


class Steps:
    """Counts steps of a training, and tells `progress` of each."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def advance(self, count: int = 1) -> None:
        """So many more steps are done."""
        self._done += count
        if self._progress:
            self._progress(self._done, self._total)


def _gathered(
    folder: Path, study: Study, space: AlignmentState, *, seed: int, most_rows: int
) -> tuple[Indices, Matrix, Labels]:
    """Everybody's rows, or an even share of them; whose they are, and their labels."""
    drawn = draw_rows([space.rows[name] for name in space.names], most_rows, seed)
    seen = np.zeros(len(space.names), dtype=np.int64)
    places = {name: place for place, name in enumerate(space.names)}
    owners, parts, labels = [], [], []
    for name, rows, own_labels in read_blocks(folder, study, space):
        place = places[name]
        picks = drawn[place] - seen[place]
        picks = picks[(picks >= 0) & (picks < len(rows))]
        seen[place] += len(rows)
        owners.append(np.full(len(picks), place))
        parts.append(rows[picks].astype(np.float64))
        labels.append(cast(Labels, own_labels)[picks])
    return np.concatenate(owners), np.concatenate(parts), np.concatenate(labels)


def _draw_screened(
    owners: Indices, rows: Matrix, labels: Labels, seed: int, salt: str
) -> tuple[Indices, Matrix, Labels]:
    mine = [np.flatnonzero(owners == place) for place in range(int(owners.max()) + 1)]
    chosen = screening_rows([own.size for own in mine], seed, salt=salt)
    drawn = np.concatenate([own[few] for own, few in zip(mine, chosen, strict=True)])
    return owners[drawn], rows[drawn], labels[drawn]


def _can_learn_alone(labels: npt.NDArray[Any], kind: Kind) -> bool:
    """Whether a model of these rows alone means anything: of one class, it would be right about nothing but that."""
    return labels.size >= _FEWEST_ALONE and (kind == "number" or np.unique(labels).size > 1)


def convert_model(study: Study, fitted: Fitted, rows: Matrix, labels: Labels, seed: int) -> Model:
    """Return the model as arrays, after checking that it says what the learner says.

    Parameters
    ----------
    study, fitted
        Classes, and the trained learner.
    rows, labels
        Training rows, of which some are compared.
    seed : int
        For which.
    """
    model = fitted.to_model(len(study.label.classes))
    some = np.random.default_rng(seed).permutation(len(rows))[:_ROWS_COMPARED]
    expected, found = fitted.predict(rows[some]), model.predict(rows[some])
    if fitted.kind == "classes":
        agrees = np.array_equal(expected, found)
    else:
        agrees = bool(np.abs(expected - found).max() <= _SAME_NUMBERS * (float(np.ptp(labels)) or 1.0))
    if not agrees:
        reason = "its exported arrays do not predict what the trained learner predicts"
        raise RefusedError("the model", reason=reason, cure="Choose another learner, and report this as a bug.")
    return model
