"""Learners that take the matrix in pieces: `mooring train --engine dask`. No process holds more than some blocks of it.

Numbers are predicted by ridge regression, whose sums over rows are added up over workers: one pass, and exactly the model
that the local engine makes of all rows. Classes are predicted by logistic regression through scikit-learn's `partial_fit`: a
few chains of pieces run side by side, and their weights are averaged after every pass. Both work on the rows themselves
("linear") or on random waves of them ("waves"), and become the same ONNX model as the local learners'. Boosted trees
("xgboost") are in `mooring.engines.dask.xgboost_learner`.

As there, everybody is scored by a model that was trained on others only; but for boosted trees, all these models are trained
in the same passes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.dummy import DummyClassifier

from mooring.engines.dask.block_tasks import (
    LINEAR_C,
    RIDGE,
    Features,
    Moments,
    Piece,
    advance,
    averaged,
    chain_start,
    fitted_from,
    moments_of,
    ridge_sums,
    sampled,
    solved_ridge,
)
from mooring.engines.dask.bundle_locations import StudyAtWork
from mooring.engines.dask.cluster import Client, Future, handed_out, in_turn
from mooring.engines.dask.xgboost_learner import boosted_models
from mooring.engines.dask.xgboost_training import require_xgboost
from mooring.errors import InputError
from mooring.learners import Fitted, score
from mooring.protocol.analyst.alignment_state import CommonSpace, read_space
from mooring.protocol.analyst.collaboration_parts import PARTS_FOLDER, checked_parts
from mooring.protocol.analyst.training import Training, folds_of, keep_model, require_label, written
from mooring.protocol.messages.study import Study
from mooring.typing import Progress

IN_PIECES = ("waves", "linear", "xgboost")
_ROWS_SCORED = 50_000
_PIECES_A_TASK = 8
_CHAINS = 4
_ROWS_SEEN, _FEWEST_PASSES, _MOST_PASSES = 400_000, 2, 20


@dataclass
class _Steps:
    progress: Progress | None
    total: int
    done: int = 0

    def one(self, count: int = 1) -> None:
        self.done += count
        if self.progress:
            self.progress(self.done, self.total)


def train_in_pieces(
    client: Client,
    study: Study,
    folder: Path,
    *,
    learner: str = "auto",
    seed: int = 0,
    passes: int | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Training:
    """Train, score by participant, and write the model as ONNX; see `mooring.engines.dask.train_on_dask`."""
    kind = require_label(study)
    learner = IN_PIECES[0] if learner == "auto" else learner
    if learner not in IN_PIECES:
        raise InputError(
            "learner",
            expected=f"one that takes the matrix in pieces: auto, {', '.join(IN_PIECES)}",
            got=repr(learner),
            cure="Others need all rows at once; leave --engine out to train them on a share of the rows.",
        )
    if passes is not None and passes < 1:
        raise InputError("passes", expected="one or more", got=str(passes), cure="Leave it out.")
    if learner == "xgboost":
        if passes is not None:
            raise InputError("passes", expected="left out with xgboost", got="given", cure="It has rounds of its own.")
        require_xgboost(client)
    space = read_space(folder, study)
    pieces, n_folds = _pieces(folder, space, seed)
    some = [pieces[k : k + _PIECES_A_TASK] for k in range(0, len(pieces), _PIECES_A_TASK)]
    rows = sum(space.rows.values())
    passes = passes or max(_FEWEST_PASSES, min(_MOST_PASSES, math.ceil(_ROWS_SEEN / rows)))
    trainings = n_folds + 2 if learner == "xgboost" else 1 if kind == "number" else passes
    steps = _Steps(progress, len(some) * (2 + trainings))
    moments = Moments.none(study)
    told = client.submit(StudyAtWork.of, study, pure=False)
    for _, found in in_turn(client, (((), moments_of, (told, each)) for each in some)):
        moments = moments + found
        steps.one()
    features = Features.of(learner, moments, seed=seed)
    models: list[Fitted]
    if kind == "classes" and np.count_nonzero(moments.labels) < 2:
        models = [_always(features, int(np.argmax(moments.labels)))] * (n_folds + 1)
    elif learner == "xgboost":
        classes = np.flatnonzero(moments.labels) if kind == "classes" else None
        models = boosted_models(client, told, features, pieces, some, rows, n_folds, classes, seed, steps)
    elif kind == "number":
        models = _ridge(client, told, features, some, n_folds, steps)
    else:
        models = _logistic(client, told, features, pieces, n_folds, moments, passes, seed, steps)
    overall, each, scored_rows, scored_labels = _scored(client, told, space, models, some, rows, seed, steps)
    data = written(study, models[-1], scored_rows, scored_labels, seed)
    training = Training(learner, kind, overall, each, (), rows, rows, hashlib.sha256(data).hexdigest())
    keep_model(folder, study, space, training, data, command=command)
    return training


def _pieces(folder: Path, space: CommonSpace, seed: int) -> tuple[list[Piece], int]:
    """Every part, with the fold in which its participant is left out; and how many folds there are."""
    if space.record.get("table") != PARTS_FOLDER:
        raise InputError(
            "the collaboration matrix",
            expected="in parts, as 'mooring align --engine dask' writes it",
            got="one file",
            cure="Align with --engine dask, or train without --engine.",
        )
    folds = folds_of(len(space.names), seed)
    fold_of = {int(place): k for k, fold in enumerate(folds) for place in fold}
    parts = checked_parts(folder, space, space.names)
    pieces = [Piece(path, place, fold_of[place]) for place, name in enumerate(space.names) for path in parts[name]]
    return pieces, len(folds)


def _ridge(
    client: Client, study: Future, features: Features, some: Sequence[list[Piece]], n_folds: int, steps: _Steps
) -> list[Fitted]:
    """One exact model without each fold, and last the one of everybody."""
    width = features.width + 2
    sums = np.zeros((n_folds, width, width))
    at_work = handed_out(client, features)
    for _, found in in_turn(client, (((), ridge_sums, (study, at_work, each)) for each in some)):
        for fold, own in found.items():
            sums[fold] += own
        steps.one()
    total = sums.sum(axis=0)
    alpha = RIDGE[features.learner]
    left = [total - own for own in sums]
    return [fitted_from(features, "number", *solved_ridge(each, alpha=alpha)) for each in (*left, total)]


def _logistic(
    client: Client,
    study: Future,
    features: Features,
    pieces: Sequence[Piece],
    n_folds: int,
    moments: Moments,
    passes: int,
    seed: int,
    steps: _Steps,
) -> list[Fitted]:
    """Models without each fold and one of everybody, in chains that do not depend on the number of workers."""
    classes = np.flatnonzero(moments.labels)
    alpha = 1 / (LINEAR_C[features.learner] * moments.count)
    at_work = handed_out(client, features)
    state: Future = client.submit(chain_start, at_work, classes, n_folds + 1, alpha, pure=False)
    rng = np.random.default_rng(seed)
    n_chains = min(_CHAINS, len(pieces))
    settled: list[Future] = []
    for turn in range(passes):
        order = [pieces[k] for k in rng.permutation(len(pieces))]
        ends = []
        for chain in range(n_chains):
            own, here = order[chain::n_chains], state
            for k in range(0, len(own), _PIECES_A_TASK):
                here = client.submit(
                    advance, here, study, at_work, own[k : k + _PIECES_A_TASK], seed + turn, pure=False
                )
            ends.append(here)
        state = client.submit(averaged, *ends, pure=False)
        _wait(state)
        settled.append(state)
        steps.one(math.ceil(len(pieces) / _PIECES_A_TASK))
    last = client.submit(averaged, *settled[passes // 2 :], pure=False).result()
    return [fitted_from(features, "classes", model.coef_, model.intercept_, classes) for model in last]


def _wait(future: Future) -> None:
    from distributed import wait

    wait(future)
    if future.status == "error":
        future.result()


def _always(features: Features, label: int) -> Fitted:
    """With one class only, that class is what is predicted."""
    model = DummyClassifier(strategy="most_frequent").fit(np.zeros((1, features.centre.size)), [label])
    return Fitted("classes", features.centre, features.scale, model)


def _scored(
    client: Client,
    study: Future,
    space: CommonSpace,
    models: Sequence[Fitted],
    some: Sequence[list[Piece]],
    n_rows: int,
    seed: int,
    steps: _Steps,
) -> tuple[Any, tuple[tuple[str, Any], ...], npt.NDArray[np.float64], npt.NDArray[Any]]:
    """Scores over an even share of everybody's rows, each row predicted by a model of others; and these rows and labels."""
    kind = models[-1].kind
    share = min(1.0, _ROWS_SCORED / n_rows)
    at_work = handed_out(client, list(models))
    found: dict[int, tuple[Any, ...]] = {}
    jobs = ((k, sampled, (study, at_work, each, share, seed)) for k, each in enumerate(some))
    for k, sample in in_turn(client, jobs):
        found[k] = sample
        steps.one()
    owners, rows, truth, predicted = (np.concatenate([found[k][j] for k in sorted(found)]) for j in range(4))
    rng = np.random.default_rng(seed)
    overall = score(truth, predicted, kind=kind, rng=rng)
    each = tuple(
        (name, score(truth[mine], predicted[mine], kind=kind, rng=rng))
        for place, name in enumerate(space.names)
        if (mine := owners == place).any()
    )
    return overall, each, rows, truth
