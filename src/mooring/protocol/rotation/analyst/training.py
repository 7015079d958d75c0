"""`mooring train`: a learner on everybody's rows, scored on participants that it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from mooring.audit.release import N_MODELS, measure_trained_release
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
from mooring.learners.fitted import predict_classes
from mooring.learners.fitting import (
    MOST_ALONE,
    MOST_ROWS,
    decide_learner,
    draw_rows,
    group_folds,
    influence_rows,
    limit_counts,
    row_folds,
    screening_rows,
)
from mooring.learners.models import Predicted
from mooring.protocol.analyst.trained_model import (
    TRAINED_FILE,
    keep_training,
    require_label,
)
from mooring.protocol.messages.model import write_model
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.analyst.alignment_state import AlignmentState, read_space
from mooring.protocol.rotation.analyst.collaboration_matrix import read_blocks
from mooring.protocol.rotation.analyst.outliers import find_disagreeing, find_harmful
from mooring.protocol.rotation.analyst.training_record import Training
from mooring.protocol.rotation.scheme import rotation_of
from mooring.typing import Indices, Labels, Matrix, Progress

_FEWEST_ALONE = 10
_ROWS_COMPARED = 5_000
_SAME_NUMBERS = 1e-6  # of their range


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
    """Train on the collaboration matrix, score by participant, and write the model to the work folder.

    `learner` is the name of a learner, or a learner itself, whose model holds no rows; for "auto", `choose_learner` chooses.
    If a participant has more rows than the study's `weight_limit` allows, a random part of them is used: unlike weights,
    this works for every learner. If more than `most_rows` rows remain, the same fraction of each participant's rows is
    drawn.
    """
    weight_limit, folder = rotation_of(study).weight_limit, Path(folder)
    kind = require_label(study.schema)
    require_learner(learner, to_deliver=True)
    space = read_space(folder, study)
    names, counts = space.names, [space.rows[name] for name in space.names]
    drawn = draw_rows(counts, most_rows, seed, weight_limit=weight_limit)
    everything = _read_rows(folder, study, space, drawn)
    sizes = [positions.size for positions in drawn]
    screened = everything.draw(screening_rows(sizes, seed, salt=space.space_digest))
    influential = everything.draw(influence_rows(sizes, seed, salt=space.space_digest))
    left_out = find_left_out(screened, influential, kind=kind, seed=seed)
    data = everything.select(~np.isin(everything.owners, left_out.places))
    chosen = decide_learner(learner, data.rows, data.labels, kind=kind, seed=seed, owners=data.owners)
    folds = group_folds(len(names), seed)[data.owners]
    alone_at = [place for place in range(len(names)) if _can_learn_alone(data.of(place).labels, kind)][:MOST_ALONE]
    steps = Steps(np.unique(folds).size + len(alone_at) + 1 + (N_MODELS if study.model_limit else 0), progress)
    validate = partial(cross_validate, chosen, kind=kind, seed=seed, n_classes=len(study.label.classes))
    predicted = validate(data.rows, data.labels, folds, on_part=steps.advance)
    alone = {}
    for place in alone_at:
        upload = data.of(place)
        alone[place] = validate(upload.rows, upload.labels, row_folds(upload.labels, seed))
        steps.advance()
    fitted = chosen.fit(data.rows, data.labels, kind=kind, seed=seed)
    steps.advance()
    trained = Trained(chosen, fitted, data, predicted, len(data.rows), alone)
    return keep_trained(study, folder, space, trained, left_out, seed=seed, command=command, on_model=steps.advance)


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows in the common space, of shape (n, h), with their labels and their owners, who are numbered from 0."""

    owners: Indices
    rows: Matrix
    labels: Labels

    def select(self, chosen: npt.NDArray[Any]) -> LabelledRows:
        """Return the rows at these positions, or the rows for which a mask is True."""
        return LabelledRows(self.owners[chosen], self.rows[chosen], self.labels[chosen])

    def of(self, place: int) -> LabelledRows:
        """Return one participant's rows."""
        return self.select(self.owners == place)

    def draw(self, positions: Sequence[Indices]) -> LabelledRows:
        """Return the rows at these positions among each participant's own rows, participant after participant."""
        places = [np.flatnonzero(self.owners == place)[at] for place, at in enumerate(positions)]
        return self.select(np.concatenate(places))


@dataclass(frozen=True, eq=False)
class LeftOut:
    """The participants that are left out of a training."""

    places: Indices
    """Their indices, in ascending order."""
    losses: dict[int, float]
    """By the index of each participant whose rows are harmful: the others' mean loss of score because of them."""
    screened: LabelledRows
    """Up to the same number of rows of each participant, on which the participants left out are scored."""


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained learner, and the predictions by which it is scored."""

    learner: LearnerLike
    fitted: Fitted
    """The model that was trained on all rows."""
    data: LabelledRows
    """The rows that are scored."""
    predicted: Predicted
    """Predictions for these rows, each by a model that was trained without the rows of the row's participant."""
    rows_used: int
    """Number of rows that the model was trained on."""
    alone: Mapping[int, Predicted] = field(default_factory=dict)
    """By a participant's index: cross-validated predictions for its rows, by models of its rows alone."""


def find_left_out(screened: LabelledRows, influential: LabelledRows, *, kind: Kind, seed: int) -> LeftOut:
    """Return the participants to leave out of the training.

    Labels are compared on `screened`, up to the same number of rows of each participant. Effects on the others are measured
    on `influential`, in which each participant has its share of the training rows.
    """
    disagreeing = find_disagreeing(screened.rows, screened.labels, screened.owners, kind=kind, seed=seed)
    rest = influential.select(~np.isin(influential.owners, disagreeing))
    losses = find_harmful(rest.rows, rest.labels, rest.owners, kind=kind, seed=seed)
    places = np.sort(np.concatenate([disagreeing, np.array(list(losses), dtype=np.int64)]))
    return LeftOut(places, losses, screened)


def keep_trained(
    study: Study,
    folder: Path,
    space: AlignmentState,
    trained: Trained,
    left_out: LeftOut,
    *,
    seed: int,
    command: str,
    on_model: Callable[[], None] | None = None,
) -> Training:
    """Score a trained learner, write its model and the record of the training to the work folder, and return the record.

    `on_model` is called after each model that is trained in order to measure what the delivered model discloses.
    """
    names, kind, data, rng = space.names, require_label(study.schema), trained.data, np.random.default_rng(seed)
    overall, each = score_participants(names, data, trained.predicted, kind=kind, rng=rng)
    alone = [
        (names[place], _score(data.of(place).labels, predicted, kind=kind, rng=rng))
        for place, predicted in trained.alone.items()
    ]
    classes = np.arange(len(study.label.classes)) if kind == "classes" else None
    uploads = [(names[place], left_out.screened.of(place)) for place in left_out.places]
    scores_left_out = tuple(
        (name, _score(upload.labels, predict_classes(trained.fitted, upload.rows, classes), kind=kind, rng=rng))
        for name, upload in uploads
    )
    counts = [space.rows[name] for name in names]
    most_rows = limit_counts(counts, rotation_of(study).weight_limit)
    learner, release = trained.learner, None
    if study.model_limit:
        release = measure_trained_release(learner, data.rows, data.labels, kind=kind, seed=seed, on_model=on_model)
    training = Training(
        learner=learner if isinstance(learner, str) else learner.name,
        kind=kind,
        score=overall,
        participants=each,
        alone=tuple(alone),
        rows=sum(count for place, count in enumerate(counts) if place not in left_out.places),
        rows_used=trained.rows_used,
        model_digest=write_model(folder / TRAINED_FILE, convert_model(study, trained.fitted, data, seed)),
        gain=_measure_gain(trained, kind=kind),
        left_out=scores_left_out,
        harmful=tuple((names[place], loss) for place, loss in left_out.losses.items()),
        limited=tuple((name, most) for name, count, most in zip(names, counts, most_rows, strict=True) if most < count),
        release=release,
        study=study.digest,
        made_from=space.space_digest,
        command=command,
    )
    keep_training(folder, training)
    return training


def score_participants(
    names: Sequence[str], data: LabelledRows, predicted: Predicted, *, kind: Kind, rng: np.random.Generator
) -> tuple[Score, tuple[tuple[str, Score], ...]]:
    """Return the score over all rows, and each participant's score by name; participants without rows are left out."""
    overall = _score(data.labels, predicted, kind=kind, rng=rng)
    each = tuple(
        (name, _score(data.labels[at], _select(predicted, at), kind=kind, rng=rng))
        for place, name in enumerate(names)
        if (at := data.owners == place).any()
    )
    return overall, each


def _score(labels: Labels, predicted: Predicted, *, kind: Kind, rng: np.random.Generator) -> Score:
    return score(labels, predicted[0], kind=kind, rng=rng, shares=predicted[1])


def _select(predicted: Predicted, at: npt.NDArray[Any]) -> Predicted:
    values, shares = predicted
    return values[at], None if shares is None else shares[at]


def _measure_gain(trained: Trained, *, kind: Kind) -> Gain | None:
    """Return by how much models of the other uploads beat models of one upload alone; None without any of the latter."""
    if not trained.alone:
        return None
    order = np.concatenate([np.flatnonzero(trained.data.owners == place) for place in trained.alone])
    values, shares = _select(trained.predicted, order)
    alone_shares = [part for _, part in trained.alone.values() if part is not None]
    both = None if shares is None else (shares, np.concatenate(alone_shares)[None])
    by_one_upload = np.concatenate([part for part, _ in trained.alone.values()])[None]
    return compare(trained.data.labels[order], values, by_one_upload, kind=kind, shares=both)


class Steps:
    """Counts the steps of a training, and reports each to `progress`."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def advance(self, count: int = 1) -> None:
        """Count further steps as done."""
        self._done += count
        if self._progress:
            self._progress(self._done, self._total)


def _read_rows(folder: Path, study: Study, space: AlignmentState, drawn: Sequence[Indices]) -> LabelledRows:
    """Read the rows at these positions among each participant's rows of the collaboration matrix."""
    seen = np.zeros(len(space.names), dtype=np.int64)
    places = {name: place for place, name in enumerate(space.names)}
    owners, parts, labels = [], [], []
    for name, rows, block_labels in read_blocks(folder, study, space):
        place = places[name]
        picks = drawn[place] - seen[place]
        picks = picks[(picks >= 0) & (picks < len(rows))]
        seen[place] += len(rows)
        owners.append(np.full(len(picks), place))
        parts.append(rows[picks].astype(np.float64))
        labels.append(cast(Labels, block_labels)[picks])
    return LabelledRows(np.concatenate(owners), np.concatenate(parts), np.concatenate(labels))


def _can_learn_alone(labels: npt.NDArray[Any], kind: Kind) -> bool:
    """Return whether a model of these rows alone is meaningful: there are at least ten rows and, of classes, two."""
    return labels.size >= _FEWEST_ALONE and (kind == "number" or np.unique(labels).size > 1)


def convert_model(study: Study, fitted: Fitted, data: LabelledRows, seed: int) -> Model:
    """Return the model as arrays; refuse it if it predicts some training rows differently from the trained learner."""
    model = fitted.to_model(len(study.label.classes))
    some = data.select(np.random.default_rng(seed).permutation(len(data.rows))[:_ROWS_COMPARED])
    expected, predicted = fitted.predict(some.rows), model.predict(some.rows)
    if fitted.kind == "classes":
        agrees = np.array_equal(expected, predicted)
    else:
        agrees = bool(np.abs(expected - predicted).max() <= _SAME_NUMBERS * (float(np.ptp(data.labels)) or 1.0))
    if not agrees:
        reason = "its exported arrays do not predict what the trained learner predicts"
        raise RefusedError("the model", reason=reason, cure="Choose another learner, and report this as a bug.")
    return model
