"""Learners that take the matrix in pieces: `mooring train --engine dask`. No process holds more than some blocks of it.

Numbers are predicted by ridge regression, whose sums over rows are added up over workers: one pass, and exactly the model
that the local engine makes of all rows. Classes are predicted by logistic regression through scikit-learn's `partial_fit`: a
few chains of pieces run side by side, and their weights are averaged after every pass. Both work on the rows themselves
("linear") or on features of them ("random-fourier"), and become the same ONNX model as the local learners'. Of boosted trees
("xgboost"), every model takes all workers: at every level of a tree they add up sums over their rows, over connections of
XGBoost's own (`mooring.engines.dask.xgboost_training`).

"auto" is chosen by the same rows and scores as locally: `choose_learner` on a share of the rows, in one process.

Everybody is scored by a model that was trained on others only; but for boosted trees, all these models are trained in the
same passes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.dummy import DummyClassifier

from mooring.engines.dask.block_tasks import (
    Features,
    Moments,
    Piece,
    advance,
    averaged,
    chain_start,
    fitted_from,
    moments_of,
    picked_rows,
    ridge_sums,
    sampled,
    solved_ridge,
)
from mooring.engines.dask.bundle_locations import StudyAtWork
from mooring.engines.dask.cluster import Client, Future, handed_out, in_turn
from mooring.engines.dask.xgboost_tasks import BINS, CutRows, cut_rows
from mooring.engines.dask.xgboost_training import Boosting, require_xgboost, trained_together
from mooring.errors import InputError
from mooring.learners import AUTO, LEARNERS, Fitted, Kind, choose_learner, require_learner
from mooring.learners.boosted_trees import Boosted, FittedBoosted
from mooring.learners.fitting import choice_rows, group_folds
from mooring.learners.trees import MOST_TREES
from mooring.protocol.analyst.alignment_state import CommonSpace, read_space
from mooring.protocol.analyst.collaboration_matrix import PARTS_FOLDER, check_parts, read_facts
from mooring.protocol.analyst.training import (
    Steps,
    Training,
    export_model,
    keep_model,
    require_label,
    score_participants,
)
from mooring.protocol.messages.study import Study
from mooring.typing import Indices, Progress

ROUNDS, FEWEST_ROUNDS = 200, 20
_DEPTH, _RATE = 6, 0.1
_CUT_ROWS, _CUT_NUMBERS = 50_000, 2**23
_ROWS_SCORED = 50_000
_PIECES_A_TASK = 8
_CHAINS = 4
_ROWS_SEEN, _FEWEST_PASSES, _MOST_PASSES = 400_000, 2, 20


@dataclass(frozen=True, eq=False)
class _Job:
    """One training on a cluster: the study as the workers have it, the parts in groups of a task each, folds, steps done."""

    client: Client
    study: Future
    space: CommonSpace
    groups: list[list[Piece]]
    n_folds: int
    seed: int
    steps: Steps

    @property
    def pieces(self) -> list[Piece]:
        return [piece for group in self.groups for piece in group]

    @property
    def n_rows(self) -> int:
        return sum(self.space.rows.values())

    def run(
        self, task: Callable[..., Any], *given: Any, each: Callable[[Sequence[Piece]], Any] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Give a task the study, a group of parts, what is given, and `each` of the group; yield (group, result) as done."""
        jobs = (
            (k, task, (self.study, group, *given, *(() if each is None else (each(group),))))
            for k, group in enumerate(self.groups)
        )
        for k, found in in_turn(self.client, jobs):
            self.steps.advance()
            yield k, found

    def gather(self, task: Callable[..., Any], *given: Any, **options: Any) -> list[Any]:
        """The results of a task, in the order of the parts."""
        return [found for _, found in sorted(self.run(task, *given, **options), key=lambda pair: pair[0])]


def train_in_pieces(
    client: Client,
    study: Study,
    folder: Path,
    *,
    learner: str = AUTO,
    seed: int = 0,
    passes: int | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Training:
    """Train, score by participant, and write the model as ONNX; see `mooring.engines.dask.train_on_dask`."""
    kind = require_label(study)
    require_learner(learner, engine="dask")
    if passes is not None and passes < 1:
        raise InputError("passes", expected="one or more", got=str(passes), cure="Leave it out.")
    if learner == "xgboost":
        if passes is not None:
            raise InputError("passes", expected="left out with xgboost", got="given", cure="It has rounds of its own.")
        require_xgboost(client)
    space = read_space(folder, study)
    groups, n_folds = _groups(folder, space, seed)
    rows = sum(space.rows.values())
    passes = passes or max(_FEWEST_PASSES, min(_MOST_PASSES, math.ceil(_ROWS_SEEN / rows)))
    trainings = n_folds + 2 if learner == "xgboost" else 1 if kind == "number" else passes
    steps = Steps(len(groups) * (2 + trainings + (learner == AUTO)), progress)
    job = _Job(client, client.submit(StudyAtWork.of, study, pure=False), space, groups, n_folds, seed, steps)
    if learner == AUTO:
        learner = _choice(job, kind)
    moments = sum((found for _, found in job.run(moments_of)), Moments.none(study))
    features = Features.of(learner, moments, seed=seed)
    classes = np.flatnonzero(moments.labels) if kind == "classes" else None
    models: list[Fitted]
    if classes is not None and classes.size < 2:
        models = [_always(features, int(classes[0]))] * (n_folds + 1)
    elif learner == "xgboost":
        models = _boosted(job, features, classes)
    elif classes is None:
        models = _ridge(job, features)
    else:
        models = _logistic(job, features, classes, passes)
    share = min(1.0, _ROWS_SCORED / rows)
    found = job.gather(sampled, handed_out(client, models), share, seed)
    owners, some, truth, predicted = (np.concatenate(parts) for parts in zip(*found, strict=True))
    rng = np.random.default_rng(seed)
    overall, each = score_participants(space.names, owners, truth, predicted, kind=kind, rng=rng)
    data = export_model(study, models[-1], some, truth, seed)
    training = Training(learner, kind, overall, each, (), rows, rows, hashlib.sha256(data).hexdigest())
    keep_model(folder, study, space, training, data, command=command)
    return training


def _groups(folder: Path, space: CommonSpace, seed: int) -> tuple[list[list[Piece]], int]:
    """Every part, with the fold in which its participant is left out, as tasks take them; and how many folds there are."""
    if space.record.get("table") != PARTS_FOLDER:
        raise InputError(
            "the collaboration matrix",
            expected="in parts, as 'mooring align --engine dask' writes it",
            got="one file",
            cure="Align with --engine dask, or train without --engine.",
        )
    folds = group_folds(len(space.names), seed)
    parts = check_parts(folder, space, space.names)
    pieces = [Piece(path, place, int(folds[place])) for place, name in enumerate(space.names) for path in parts[name]]
    return [pieces[k : k + _PIECES_A_TASK] for k in range(0, len(pieces), _PIECES_A_TASK)], int(folds.max()) + 1


def _choice(job: _Job, kind: Kind) -> str:
    """What "auto" is: chosen in this process, by the rows that the local engine chooses by."""
    drawn = choice_rows([job.space.rows[name] for name in job.space.names], job.seed)

    def positions(group: Sequence[Piece]) -> list[Indices]:
        """Where in each part the rows drawn are."""
        facts = [read_facts(piece.path, job.space.names[piece.place]) for piece in group]
        return [
            drawn[piece.place][(drawn[piece.place] >= one.start) & (drawn[piece.place] < one.stop)] - one.start
            for piece, one in zip(group, facts, strict=True)
            if one is not None
        ]

    found = [one for group in job.gather(picked_rows, each=positions) for one in group]
    owners = np.repeat([piece.place for piece in job.pieces], [len(rows) for rows, _ in found])
    rows, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return choose_learner(rows, labels, kind=kind, seed=job.seed, owners=owners)


def _ridge(job: _Job, features: Features) -> list[Fitted]:
    """One exact model without each fold, and last the one of everybody."""
    linear, width = LEARNERS[features.learner].linear, features.width + 2
    assert linear is not None
    sums = np.zeros((job.n_folds, width, width))
    for _, found in job.run(ridge_sums, handed_out(job.client, features)):
        for fold, own in found.items():
            sums[fold] += own
    total = sums.sum(axis=0)
    left = [total - own for own in sums]
    return [fitted_from(features, "number", *solved_ridge(each, alpha=linear.alpha)) for each in (*left, total)]


def _logistic(job: _Job, features: Features, classes: npt.NDArray[np.int64], passes: int) -> list[Fitted]:
    """Models without each fold and one of everybody, in chains that do not depend on the number of workers."""
    linear, pieces = LEARNERS[features.learner].linear, job.pieces
    assert linear is not None
    alpha = 1 / (linear.C * job.n_rows)
    at_work = handed_out(job.client, features)
    state: Future = job.client.submit(chain_start, at_work, classes, job.n_folds + 1, alpha, pure=False)
    rng = np.random.default_rng(job.seed)
    n_chains = min(_CHAINS, len(pieces))
    settled: list[Future] = []
    for turn in range(passes):
        order = [pieces[k] for k in rng.permutation(len(pieces))]
        ends = []
        for chain in range(n_chains):
            own, here = order[chain::n_chains], state
            for k in range(0, len(own), _PIECES_A_TASK):
                some = own[k : k + _PIECES_A_TASK]
                here = job.client.submit(advance, here, job.study, at_work, some, job.seed + turn, pure=False)
            ends.append(here)
        state = job.client.submit(averaged, *ends, pure=False)
        _wait(state)
        settled.append(state)
        job.steps.advance(len(job.groups))
    last = job.client.submit(averaged, *settled[passes // 2 :], pure=False).result()
    return [fitted_from(features, "classes", model.coef_, model.intercept_, classes) for model in last]


def _wait(future: Future) -> None:
    from distributed import wait

    wait(future)
    if future.status == "error":
        future.result()


def _always(features: Features, label: int) -> Fitted:
    """With one class only, that class is what is predicted."""
    model = DummyClassifier().fit(np.zeros((1, features.centre.size)), [label])
    return Fitted(features.learner, "classes", features.centre, features.scale, model)


def _boosted(job: _Job, features: Features, classes: npt.NDArray[np.int64] | None) -> list[Fitted]:
    """One model without each fold, and last the one of everybody; each takes all workers."""
    n_classes = 0 if classes is None else classes.size
    rounds = rounds_for(n_classes)
    at_work = handed_out(job.client, features)
    share = min(1.0, min(_CUT_ROWS, _CUT_NUMBERS // features.width) / job.n_rows)
    found = job.gather(cut_rows, at_work, share, job.seed)
    drawn = CutRows(*(np.concatenate([getattr(few, name) for few in found]) for name in ("folds", "rows", "labels")))
    kind: Kind = "number" if classes is None else "classes"
    unit = drawn.unit if classes is None else (0.0, 1.0)
    boosting = Boosting(job.study, at_work, settings_for(kind, n_classes, job.seed), rounds, classes, unit)
    models: list[Fitted] = []
    for fold in (*range(job.n_folds), None):
        others = [piece for piece in job.pieces if piece.fold != fold]
        raw = trained_together(job.client, boosting, others, drawn.cuts(fold))
        own = Boosted(raw, classes, centre=unit[0], scale=unit[1])
        models.append(FittedBoosted(features.learner, kind, features.centre, features.scale, own))
        job.steps.advance(len(job.groups))
    return models


def rounds_for(n_classes: int) -> int:
    """Rounds of boosting; fewer with many classes, of which each takes a tree a round."""
    trees = n_classes if n_classes > 2 else 1
    most = MOST_TREES // trees
    if most < FEWEST_ROUNDS:
        raise InputError(
            "learner",
            expected=f"one for more than {MOST_TREES // FEWEST_ROUNDS} classes",
            got="xgboost, which makes a tree a class and round: more than participants accept",
            cure="Choose 'random-fourier' or 'linear'.",
        )
    return min(ROUNDS, most)


def settings_for(kind: Kind, n_classes: int, seed: int) -> dict[str, Any]:
    """XGBoost's settings. Rows are not drawn: the model must not depend on how they are shared out.

    Parameters
    ----------
    kind : {"classes", "number"}
    n_classes : int
        Classes that occur; 0 for numbers.
    seed : int
    """
    told: dict[str, Any] = {"objective": "reg:squarederror"}
    if kind == "classes":
        told = {"objective": "binary:logistic", "base_score": 0.5}
        if n_classes > 2:
            told = {"objective": "multi:softprob", "base_score": 0.5, "num_class": n_classes}
    return {
        **told,
        "tree_method": "hist",
        "max_bin": BINS,
        "max_depth": _DEPTH,
        "eta": _RATE,
        "nthread": 1,
        "seed": seed,
        "verbosity": 0,
        "disable_default_eval_metric": True,
    }
