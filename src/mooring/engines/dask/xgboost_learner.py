"""Boosted trees over workers: `mooring train --engine dask --learner xgboost`.

Every model takes all workers: of every level of a tree they add up sums over their rows, over connections of XGBoost's own
(`mooring.engines.dask.xgboost_training`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.engines.dask.block_tasks import Features, Piece
from mooring.engines.dask.cluster import Client, Future, handed_out, in_turn
from mooring.engines.dask.xgboost_tasks import BINS, CutRows, cut_rows
from mooring.engines.dask.xgboost_training import Boosting, trained_together
from mooring.errors import InputError
from mooring.learners import Fitted
from mooring.learners.boosted_trees import Boosted, FittedBoosted
from mooring.learners.scikit import Kind
from mooring.learners.trees import MOST_TREES

ROUNDS, FEWEST_ROUNDS = 200, 20
_DEPTH, _RATE = 6, 0.1
_CUT_ROWS, _CUT_NUMBERS = 50_000, 2**23
_CUT_FIELDS = ("folds", "rows", "labels")


def rounds_for(n_classes: int) -> int:
    """Rounds of boosting; fewer with many classes, of which each takes a tree a round."""
    trees = n_classes if n_classes > 2 else 1
    most = MOST_TREES // trees
    if most < FEWEST_ROUNDS:
        raise InputError(
            "learner",
            expected=f"one for more than {MOST_TREES // FEWEST_ROUNDS} classes",
            got="xgboost, which makes a tree a class and round: more than participants accept",
            cure="Choose the learner 'waves' or 'linear'.",
        )
    return min(ROUNDS, most)


def settings_for(kind: Kind, n_classes: int, seed: int) -> dict[str, Any]:
    """XGBoost's settings. Rows are not drawn: the model must not depend on how they are shared out."""
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


def boosted_models(
    client: Client,
    study: Future,
    features: Features,
    pieces: Sequence[Piece],
    some: Sequence[list[Piece]],
    n_rows: int,
    n_folds: int,
    classes: npt.NDArray[np.int64] | None,
    seed: int,
    steps: Any,
) -> list[Fitted]:
    """One model without each fold, and last the one of everybody; each takes all workers."""
    n_classes = 0 if classes is None else classes.size
    rounds = rounds_for(n_classes)
    at_work = handed_out(client, features)
    share = min(1.0, min(_CUT_ROWS, _CUT_NUMBERS // features.width) / n_rows)
    found: dict[int, CutRows] = {}
    for k, few in in_turn(client, ((k, cut_rows, (study, at_work, each, share, seed)) for k, each in enumerate(some))):
        found[k] = few
        steps.one()
    drawn = CutRows(*(np.concatenate([getattr(found[k], name) for k in sorted(found)]) for name in _CUT_FIELDS))
    kind: Kind = "number" if classes is None else "classes"
    unit = drawn.unit if classes is None else (0.0, 1.0)
    boosting = Boosting(study, at_work, settings_for(kind, n_classes, seed), rounds, classes, unit)
    models: list[Fitted] = []
    for fold in (*range(n_folds), None):
        others = [piece for piece in pieces if piece.fold != fold]
        raw = trained_together(client, boosting, others, drawn.cuts(fold))
        own = Boosted(raw, classes, centre=unit[0], scale=unit[1])
        models.append(FittedBoosted(kind, features.centre, features.scale, own))
        steps.one(len(some))
    return models
