"""Decision trees of scikit-learn and XGBoost as one function of arrays.

scikit-learn's forests and XGBoost compare numbers in single precision, and models here in double precision. Thresholds are
changed so that every row still takes the same path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.learners.models import TreeFunction
from mooring.typing import Matrix, Vector

OBJECTIVES = ("reg:squarederror", "binary:logistic", "multi:softprob")
"""The objectives of XGBoost that can be read: a number, two classes, several classes."""

_MOST_STEPS = 4  # twice the largest error of rounding, in units in the last place

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree as its library stores it, with one entry per node, the root first."""

    left: Integers
    """The index of each node's left child. It means nothing for a leaf."""
    right: Integers
    """The index of each node's right child. It means nothing for a leaf."""
    feature: Integers
    """The column that each node compares."""
    limit: Vector
    """The threshold of each node. A row with at most this number goes to the left child."""
    is_leaf: npt.NDArray[np.bool_]
    values: Matrix
    """The numbers that each node adds to the outputs, with shape (nodes, width)."""


def lay_out_trees(
    trees: Sequence[Tree], first_output: Sequence[int], *, intercepts: npt.ArrayLike, divisor: float = 1.0
) -> TreeFunction:
    """Return the function of these trees, with their nodes in the order of levels; the other arguments become its fields."""
    starts = np.cumsum([0, *(tree.feature.size for tree in trees)])
    left, right = (
        np.concatenate([getattr(tree, name) + start for tree, start in zip(trees, starts[:-1], strict=True)])
        for name in ("left", "right")
    )
    is_leaf = np.concatenate([tree.is_leaf for tree in trees])
    level, order = starts[:-1], [starts[:-1]]
    while level.size:
        inner = level[~is_leaf[level]]
        level = np.column_stack([left[inner], right[inner]]).ravel()
        order.append(level)
    nodes = np.concatenate(order)
    leaf = is_leaf[nodes]
    return TreeFunction(
        feature=np.where(leaf, -1, np.concatenate([tree.feature for tree in trees])[nodes]).astype(np.int32),
        limit=np.where(leaf, 0.0, np.concatenate([tree.limit for tree in trees])[nodes]),
        values=np.concatenate([tree.values for tree in trees])[nodes][leaf].astype(np.float64),
        first_output=np.asarray(first_output, dtype=np.int32),
        divisor=np.asarray(divisor, dtype=np.float64),
        intercepts=np.asarray(intercepts, dtype=np.float64),
    )


def read_forest(model: Any, scale: float) -> list[Tree]:
    """Return the trees of a scikit-learn forest that was trained on rows / `scale`."""
    return [
        Tree(
            left=tree.children_left,
            right=tree.children_right,
            feature=tree.feature,
            limit=unscale_limits(widen_limits(tree.threshold), scale),
            is_leaf=tree.children_left < 0,
            values=tree.value[:, 0, :],
        )
        for tree in (estimator.tree_ for estimator in model.estimators_)
    ]


def read_gradient_boosting(model: Any, scale: float) -> list[list[Tree]]:
    """Return the trees of scikit-learn's histogram gradient boosting, trained on rows / `scale`: a list for each round."""
    return [
        [
            Tree(
                left=nodes["left"].astype(np.int64),
                right=nodes["right"].astype(np.int64),
                feature=nodes["feature_idx"].astype(np.int64),
                limit=unscale_limits(nodes["num_threshold"], scale),
                is_leaf=nodes["is_leaf"].astype(np.bool_),
                values=nodes["value"][:, None],
            )
            for nodes in (predictor.nodes for predictor in predictors)
        ]
        for predictors in model._predictors
    ]


def read_xgboost(document: bytes, scale: float) -> tuple[list[Tree], list[int], Vector]:
    """Return the trees of an XGBoost model in JSON, the output that each tree adds to, and the scores without any tree.

    XGBoost tests x < t in single precision, which is the same as x ≤ the next number below t.
    """
    learner = json.loads(document)["learner"]
    booster, objective = learner["gradient_booster"], learner["objective"]["name"]
    if booster["name"] != "gbtree" or objective not in OBJECTIVES:
        raise _unknown_booster(f"{booster['name']} for {objective}")
    trees = booster["model"]["trees"]
    if not trees:
        raise _unknown_booster("no tree")
    if any(any(tree["split_type"]) or len(tree["categories"]) for tree in trees):
        raise _unknown_booster("splits by category")
    if any(int(tree["tree_param"]["size_leaf_vector"]) > 1 for tree in trees):
        raise _unknown_booster("trees with several outputs each")
    n_outputs = max(1, int(learner["learner_model_param"]["num_class"]))
    read = []
    for tree in trees:
        conditions = np.asarray(tree["split_conditions"], dtype=np.float32)
        left, right, feature = (
            np.asarray(tree[name], dtype=np.int64) for name in ("left_children", "right_children", "split_indices")
        )
        limit = unscale_limits(widen_limits(np.nextafter(conditions, np.float32(-np.inf)).astype(np.float64)), scale)
        read.append(Tree(left, right, feature, limit, left < 0, conditions[:, None].astype(np.float64)))
    return read, booster["model"]["tree_info"], _base_scores(learner["learner_model_param"], objective, n_outputs)


def widen_limits(limit: Vector) -> Vector:
    """Return the largest double that, rounded to single precision, is at most the limit.

    Examples
    --------
    >>> limit = np.array([0.1])
    >>> largest = widen_limits(limit)
    >>> largest.astype(np.float32) <= limit, np.nextafter(largest, 1).astype(np.float32) <= limit
    (array([ True]), array([False]))
    """
    single = limit.astype(np.float32)
    single = np.where(single > limit, np.nextafter(single, np.float32(-np.inf)), single)
    middle = (single.astype(np.float64) + np.nextafter(single, np.float32(np.inf)).astype(np.float64)) / 2
    is_even = single.view(np.int32) % 2 == 0  # a number in the middle is rounded to the even one
    return np.where(is_even, middle, np.nextafter(middle, -np.inf))


def unscale_limits(limit: Vector, scale: float) -> Vector:
    """Return the largest double that, divided by the scale, is at most the limit.

    Examples
    --------
    >>> largest = unscale_limits(np.array([0.1]), 0.3)
    >>> largest / 0.3 <= 0.1, np.nextafter(largest, 1) / 0.3 <= 0.1
    (array([ True]), array([False]))
    """
    largest = limit * scale
    for _ in range(_MOST_STEPS):
        largest = np.where(largest / scale > limit, np.nextafter(largest, -np.inf), largest)
    for _ in range(_MOST_STEPS):
        above = np.nextafter(largest, np.inf)
        largest = np.where(above / scale <= limit, above, largest)
    return largest


def _base_scores(parameters: Mapping[str, str], objective: str, n_outputs: int) -> Vector:
    """Return the scores of a model without trees, before they become probabilities."""
    base = np.broadcast_to(np.asarray(json.loads(parameters["base_score"]), dtype=np.float64), (n_outputs,)).copy()
    return np.log(base) - np.log1p(-base) if objective == "binary:logistic" else base


def _unknown_booster(got: str) -> InputError:
    return InputError(
        "the booster",
        expected=f"trees with one number per leaf and splits by number, trained for {', '.join(OBJECTIVES)}",
        got=got,
        cure="Train it with 'mooring train --learner xgboost'.",
    )
