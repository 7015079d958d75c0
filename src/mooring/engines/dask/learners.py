"""Learners that read the matrix in pieces, for `mooring train --engine dask`.

No process holds more than a few blocks and a sample of the rows; with XGBoost, a worker also holds its own rows, at two
bytes a number.

Numbers are predicted by ridge regression. Its sums over rows are added up over workers in one pass, which gives the model
that the local engine fits to all rows. Classes are predicted by logistic regression with scikit-learn's partial_fit. In
every pass, the pieces are divided among a few chains. Along a chain, a model learns from one piece after the other; chains
run in parallel, and the weights at their ends are averaged. Both regressions use the rows themselves ("linear") or features
of the rows ("random-fourier"), and return the same kind of model as the local learners. Each model of boosted trees
("xgboost") is trained on all workers. At every level of a tree, the workers add up sums over their rows by connections of
XGBoost's own (`mooring.engines.dask.xgboost_training`).

"auto" chooses by the same rows and scores as the local engine: `choose_learner` runs on a sample of the rows in one process.

Each participant is scored by a model that was trained without its rows. Except for boosted trees, all these models are
trained in the same passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.engines.dask.block_tasks import (
    Features,
    Moments,
    Piece,
    advance,
    average_models,
    fit_ridge,
    fitted_from,
    fitted_to_one_class,
    linear_settings,
    moments_of,
    picked_rows,
    ridge_sums,
    start_chain,
)
from mooring.engines.dask.cluster import (
    Client,
    Future,
    explain_dask_errors,
    require_shared,
    run_throttled,
    share_with_workers,
)
from mooring.engines.dask.xgboost_training import Boosting, require_boosting_cluster, train_distributed
from mooring.errors import InputError
from mooring.learners import AUTO, choose_learner, require_learner
from mooring.learners.boosted_trees import BoostingTask, find_cuts
from mooring.learners.fitted import FittedModel, predict_classes
from mooring.learners.fitting import (
    choice_rows,
    draw_rows,
    group_folds,
    influence_rows,
    limit_counts,
    screening_rows,
)
from mooring.learners.models import Predicted
from mooring.protocol.analyst.trained_model import require_label
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.analyst.alignment_state import AlignmentState, read_space
from mooring.protocol.rotation.analyst.collaboration_matrix import check_parts, read_facts
from mooring.protocol.rotation.analyst.training import (
    LabelledRows,
    Steps,
    Trained,
    find_left_out,
    keep_trained,
)
from mooring.protocol.rotation.analyst.training_record import Training
from mooring.protocol.rotation.scheme import rotation_of
from mooring.typing import Indices, Progress, Vector

_CUT_ROWS, _CUT_NUMBERS = 50_000, 2**23
_ROWS_SCORED = 50_000
_PIECES_A_TASK = 8
_CHAINS = 4
_ROWS_SEEN, _FEWEST_PASSES, _MOST_PASSES = 400_000, 2, 20


@dataclass(frozen=True, eq=False)
class _Job:
    """One training on a cluster: the study on the workers, a group of parts for each task, the folds, and the progress."""

    client: Client
    study: Future
    space: AlignmentState
    groups: list[list[Piece]]
    folds: Indices
    seed: int
    steps: Steps

    @property
    def pieces(self) -> list[Piece]:
        return [piece for group in self.groups for piece in group]

    @property
    def n_folds(self) -> int:
        return int(self.folds.max()) + 1

    @property
    def counts(self) -> list[int]:
        """The number of rows of each participant; 0 for those who are left out."""
        here = {piece.place for piece in self.pieces}
        return [self.space.rows[name] if place in here else 0 for place, name in enumerate(self.space.names)]

    def limit(self, weight_limit: float) -> _Job:
        """Return the same training, with a random sample of the rows of each participant that has more than the limit."""
        counts = self.counts
        limited = limit_counts(counts, weight_limit)
        kept = {
            place: np.sort(np.random.default_rng([self.seed, place]).choice(count, most, replace=False))
            for place, (count, most) in enumerate(zip(counts, limited, strict=True))
            if most < count
        }

        def keep(piece: Piece) -> Piece:
            if piece.place not in kept:
                return piece
            at = kept[piece.place]
            return replace(piece, kept=at[(at >= piece.start) & (at < piece.stop)] - piece.start)

        return replace(self, groups=[[keep(piece) for piece in group] for group in self.groups])

    def without(self, left_out: Indices) -> _Job:
        """Return the same training without the parts of some participants."""
        groups = [[piece for piece in group if piece.place not in left_out] for group in self.groups]
        return replace(self, groups=[group for group in groups if group])

    @property
    def rows_used(self) -> int:
        """The number of rows to train on."""
        return sum(piece.stop - piece.start if piece.kept is None else piece.kept.size for piece in self.pieces)

    def run(self, task: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
        """Run a task on the study, each group of parts and further arguments; yield the results as they arrive."""
        jobs = ((k, task, (self.study, group, *arguments)) for k, group in enumerate(self.groups))
        for _, result in run_throttled(self.client, jobs):
            self.steps.advance()
            yield result

    def rows_at(self, positions: Sequence[Indices]) -> LabelledRows:
        """Return the rows at each participant's positions, in the order of the parts and, within a part, of the rows."""
        wanted = [
            [
                at[(at >= piece.start) & (at < piece.stop)] - piece.start
                for piece in group
                for at in [positions[piece.place]]
            ]
            for group in self.groups
        ]
        jobs = ((k, picked_rows, (self.study, *each)) for k, each in enumerate(zip(self.groups, wanted, strict=True)))
        parts_by_group: dict[int, list[Any]] = {}
        for k, group_parts in run_throttled(self.client, jobs):
            parts_by_group[k] = group_parts
            self.steps.advance()
        parts = [part for k in sorted(parts_by_group) for part in parts_by_group[k]]
        owners = np.repeat([piece.place for piece in self.pieces], [len(rows) for rows, _ in parts])
        return LabelledRows(owners, *(np.concatenate([part[k] for part in parts]) for k in range(2)))


@explain_dask_errors()
def train_on_dask(
    client: Client,
    study: Study,
    folder: str | Path,
    *,
    learner: str = AUTO,
    seed: int = 0,
    passes: int | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Training:
    """Train on the collaboration matrix in pieces, without holding all of it in memory.

    Every worker must be able to read the work folder. `learner` is "auto", "linear", "random-fourier" or "xgboost"; "auto"
    does not try "xgboost". `passes` is the number of passes over the rows if classes are predicted; by default, there are
    fewer passes if there are more rows.
    """
    folder = Path(folder).absolute()
    if folder.is_dir():
        require_shared(client, folder)
    kind = require_label(study.schema)
    require_learner(learner, engine="dask")
    if passes is not None and passes < 1:
        raise InputError("passes", expected="one or more", got=str(passes), cure="Leave it out.")
    if learner == "xgboost":
        if passes is not None:
            raise InputError(
                "passes",
                expected="left out with xgboost",
                got=str(passes),
                cure="Leave it out: xgboost has its own number of rounds.",
            )
        require_boosting_cluster(client)
    space = read_space(folder, study)
    folds = group_folds(len(space.names), seed)
    groups, rows = _groups(folder, space, folds), sum(space.rows.values())
    passes = passes or max(_FEWEST_PASSES, min(_MOST_PASSES, math.ceil(_ROWS_SEEN / rows)))
    trainings = int(folds.max()) + 3 if learner == "xgboost" else 1 if kind == "number" else passes
    steps = Steps(len(groups) * (4 + trainings + (learner == AUTO)), progress)
    job = _Job(client, client.submit(replace, study, pure=False), space, groups, folds, seed, steps)
    # The participants to leave out and, for "auto", the learner are chosen in this process, from the local engine's rows.
    weight_limit, salt, counts = rotation_of(study).weight_limit, space.space_digest, job.counts
    screened = job.rows_at(screening_rows(counts, seed, salt=salt, weight_limit=weight_limit))
    influential = job.rows_at(influence_rows(counts, seed, salt=salt, weight_limit=weight_limit))
    left_out = find_left_out(screened, influential, kind=kind, seed=seed)
    if learner == AUTO:
        some = job.rows_at(choice_rows(counts, seed, left_out=left_out.places, weight_limit=weight_limit))
        learner = choose_learner(some.rows, some.labels, kind=kind, seed=seed, owners=some.owners)
    job = job.limit(weight_limit).without(left_out.places)
    models = _models(job, learner, sum(job.run(moments_of), Moments.none(study)), passes)
    scored = job.rows_at(draw_rows(job.counts, _ROWS_SCORED, seed, weight_limit=weight_limit))
    predicted = _predict_left_out(models, scored, folds[scored.owners], len(study.label.classes))
    trained = Trained(learner, models[-1], scored, predicted, job.rows_used)
    return keep_trained(study, folder, space, trained, left_out, seed=seed, command=command)


def _predict_left_out(models: Sequence[FittedModel], scored: LabelledRows, folds: Indices, n_classes: int) -> Predicted:
    """Return the predictions for each row, and the class scores, by the model that did not learn from the row's fold."""
    classes = np.arange(n_classes) if n_classes else None
    values, shares = np.zeros_like(scored.labels), None if classes is None else np.zeros((len(folds), n_classes))
    for fold in np.unique(folds):
        out = folds == fold
        values[out], scores = predict_classes(models[fold], scored.rows[out], classes)
        if shares is not None and scores is not None:
            shares[out] = scores
    return values, shares


def _groups(folder: Path, space: AlignmentState, folds: Indices) -> list[list[Piece]]:
    """Return a group of parts for each task; every part names the fold in which its participant is left out."""
    pieces = []
    for place, (name, paths) in enumerate(check_parts(folder, space, space.names).items()):
        for path in paths:
            facts = read_facts(path, name)
            assert facts is not None  # it was read for the check
            pieces.append(Piece(path, place, int(folds[place]), facts.start, facts.stop))
    return [pieces[k : k + _PIECES_A_TASK] for k in range(0, len(pieces), _PIECES_A_TASK)]


def _models(job: _Job, learner: str, moments: Moments, passes: int) -> list[FittedModel]:
    """Return, for each fold, the model trained without that fold, and at the end the model of all rows."""
    classes = np.flatnonzero(moments.labels) if moments.labels.size else None
    shares = np.ones(1) if classes is None else moments.labels[classes] / moments.labels.sum()
    if classes is not None and classes.size < 2:
        return [fitted_to_one_class(learner, moments.total.size, int(classes[0]))] * (job.n_folds + 1)
    if learner == "xgboost":
        centre, unit = moments.unit if classes is None else (0.0, 1.0)
        return _boosted(job, BoostingTask(moments.total.size, moments.scale, classes, shares, centre, unit))
    features = Features.of(learner, moments, seed=job.seed)
    return _ridge(job, features) if classes is None else _logistic(job, features, classes, shares, passes)


def _ridge(job: _Job, features: Features) -> list[FittedModel]:
    """Return exact ridge models: for each fold, one trained without that fold, and at the end one of all rows."""
    settings, width = linear_settings(features.learner), features.width + 2
    sums = np.zeros((job.n_folds, width, width))
    for sums_by_fold in job.run(ridge_sums, share_with_workers(job.client, features)):
        for fold, fold_sums in sums_by_fold.items():
            sums[fold] += fold_sums
    total = sums.sum(axis=0)
    left = [total - fold_sums for fold_sums in sums]
    return [fitted_from(features, *fit_ridge(each, alpha=settings.alpha)) for each in (*left, total)]


def _logistic(
    job: _Job, features: Features, classes: npt.NDArray[np.int64], shares: Vector, passes: int
) -> list[FittedModel]:
    """Return, for each fold, a model trained without that fold, and at the end a model of all rows.

    The models do not depend on the number of workers.
    """
    pieces = job.pieces
    alpha = 1 / (linear_settings(features.learner).C * job.rows_used)
    at_work = share_with_workers(job.client, features)
    state: Future = job.client.submit(start_chain, at_work, classes, job.n_folds + 1, alpha, pure=False)
    rng = np.random.default_rng(job.seed)
    n_chains = min(_CHAINS, len(pieces))
    settled: list[Future] = []
    for turn in range(passes):
        order = [pieces[k] for k in rng.permutation(len(pieces))]
        ends = []
        for chain in range(n_chains):
            chain_pieces, here = order[chain::n_chains], state
            for k in range(0, len(chain_pieces), _PIECES_A_TASK):
                some = chain_pieces[k : k + _PIECES_A_TASK]
                here = job.client.submit(advance, here, job.study, at_work, some, job.seed + turn, pure=False)
            ends.append(here)
        state = job.client.submit(average_models, *ends, pure=False)
        _wait(state)
        settled.append(state)
        job.steps.advance(len(job.groups))
    last = job.client.submit(average_models, *settled[passes // 2 :], pure=False).result()
    return [fitted_from(features, model.coef_, model.intercept_, classes, shares) for model in last]


def _wait(future: Future) -> None:
    from distributed import wait

    wait(future)
    if future.status == "error":
        future.result()


def _boosted(job: _Job, task: BoostingTask) -> list[FittedModel]:
    """Return boosted trees: a model without each fold, and a model of all rows. Each model is trained on all workers."""
    most = min(_CUT_ROWS, _CUT_NUMBERS // task.n_inputs)
    sample = job.rows_at(draw_rows(job.counts, most, job.seed + 1))  # drawn independently of the rows that are scored
    folds, drawn = job.folds[sample.owners], task.scale_rows(sample.rows)
    boosting = Boosting(job.study, share_with_workers(job.client, task), task.settings(job.seed), task.n_rounds)
    models = []
    for fold in (*range(job.n_folds), None):
        used = [piece for piece in job.pieces if piece.kept is None or piece.kept.size]
        others = [piece for piece in used if piece.fold != fold]
        cuts = find_cuts(drawn if fold is None else drawn[folds != fold])
        models.append(FittedModel("xgboost", task.to_model(train_distributed(job.client, boosting, others, cuts))))
        job.steps.advance(len(job.groups))
    return models
