"""Trees as arrays, from which ONNX models are written: scikit-learn's forests and XGBoost's boosted trees in one form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError

OBJECTIVES = ("reg:squarederror", "binary:logistic", "multi:softprob")
"""What XGBoost may have trained for: a number, two classes, several classes."""
MOST_TREES = 10_000
"""Of six levels. Participants refuse a model with more (`mooring.protocol.messages.model`): it takes too much memory."""

Whole = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees, node after node and tree after tree."""

    roots: npt.NDArray[np.int64]
    """Of shape (trees,): where each tree begins."""
    feature: Whole
    limit: npt.NDArray[np.float32]
    left: Whole
    right: Whole
    """Of shape (nodes,): a row whose number in column `feature` is at most `limit` goes to node `left`, any other to
    `right`. A leaf leads to itself."""
    slot: Whole
    """Of shape (nodes,): where a leaf's value stands in `values`; 0 for other nodes."""
    values: npt.NDArray[np.float32]
    """Of shape (leaves, outputs), or (leaves,) with `turns`: what leaves add to the outputs."""
    turns: Whole | None
    """Of shape (rounds, outputs): where each tree adds to one output only: the tree of each round for each output."""
    depth: int
    """Steps from a root to the deepest leaf."""


def forest_trees(model: Any) -> Trees:
    """The trees of a scikit-learn forest."""
    found = [estimator.tree_ for estimator in model.estimators_]
    left, right, feature, threshold = (
        [getattr(tree, name) for tree in found] for name in ("children_left", "children_right", "feature", "threshold")
    )
    limits = [rounded_down(each) for each in threshold]
    return _laid_out(left, right, feature, limits, [tree.value[:, 0, :] for tree in found], None)


def boosted_trees(document: bytes) -> tuple[Trees, npt.NDArray[np.float64]]:
    """The trees of an XGBoost model as it writes it in JSON, and the scores that they are added to, one an output.

    XGBoost asks x < t of single-precision numbers, which says x ≤ the next number below t.
    """
    learner = json.loads(document)["learner"]
    booster, objective = learner["gradient_booster"], learner["objective"]["name"]
    if booster["name"] != "gbtree" or objective not in OBJECTIVES:
        raise _other(f"{booster['name']} for {objective}")
    trees = booster["model"]["trees"]
    if not trees:
        raise _other("no tree")
    if any(any(tree["split_type"]) or len(tree["categories"]) for tree in trees):
        raise _other("splits by category")
    if any(int(tree["tree_param"]["size_leaf_vector"]) > 1 for tree in trees):
        raise _other("trees with several outputs each")
    outputs = max(1, int(learner["learner_model_param"]["num_class"]))
    turns = np.argsort(np.asarray(booster["model"]["tree_info"]), kind="stable").reshape(outputs, -1).T
    conditions = [np.asarray(tree["split_conditions"], dtype=np.float32) for tree in trees]
    left, right, feature = (
        [np.asarray(tree[name], dtype=np.int64) for tree in trees]
        for name in ("left_children", "right_children", "split_indices")
    )
    limits = [np.nextafter(each, np.float32(-np.inf)) for each in conditions]
    values = [each if outputs > 1 else each[:, None] for each in conditions]
    laid = _laid_out(left, right, feature, limits, values, turns.astype(np.int32) if outputs > 1 else None)
    return laid, _base(learner["learner_model_param"], objective, outputs)


def _base(said: Mapping[str, str], objective: str, outputs: int) -> npt.NDArray[np.float64]:
    """What an untrained model says, before a probability is made of it: one number for all outputs, or one for each."""
    base = np.broadcast_to(np.asarray(json.loads(said["base_score"]), dtype=np.float64), (outputs,)).copy()
    return np.log(base) - np.log1p(-base) if objective == "binary:logistic" else base


def _laid_out(
    left: Sequence[npt.NDArray[Any]],
    right: Sequence[npt.NDArray[Any]],
    feature: Sequence[npt.NDArray[Any]],
    limit: Sequence[npt.NDArray[np.float32]],
    values: Sequence[npt.NDArray[Any]],
    turns: Whole | None,
) -> Trees:
    """One array of each kind, in which every tree's nodes count on from those of the tree before."""
    sizes = [len(each) for each in left]
    starts = np.cumsum([0, *sizes])
    own, offset = np.arange(starts[-1]), np.repeat(starts[:-1], sizes)
    lefts, rights = np.concatenate(left), np.concatenate(right)
    leaf = lefts < 0
    lefts, rights = (np.where(leaf, own, branch + offset).astype(np.int32) for branch in (lefts, rights))
    return Trees(
        roots=starts[:-1],
        feature=np.where(leaf, 0, np.concatenate(feature)).astype(np.int32),
        limit=np.where(leaf, np.float32(0), _normal(np.concatenate(limit))),
        left=lefts,
        right=rights,
        slot=np.maximum(np.cumsum(leaf) - 1, 0).astype(np.int32),
        values=np.concatenate(values)[leaf].astype(np.float32),
        turns=turns,
        depth=_depth(starts[:-1], lefts, rights, leaf),
    )


def _depth(roots: npt.NDArray[np.int64], left: Whole, right: Whole, leaf: npt.NDArray[np.bool_]) -> int:
    depth, inner = 0, roots[~leaf[roots]]
    while inner.size:
        below = np.concatenate([left[inner], right[inner]])
        depth, inner = depth + 1, below[~leaf[below]]
    return depth


def rounded_down(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """The largest single-precision number not above: x ≤ t then says the same of single-precision x."""
    single = values.astype(np.float32)
    return np.where(single > values, np.nextafter(single, np.float32(-np.inf)), single)


def _normal(limit: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Zero or the normal number next below where a limit is subnormal: runtimes may take a subnormal number for zero."""
    tiny = np.finfo(np.float32).tiny
    return np.where(np.abs(limit) < tiny, np.where(limit < 0, -tiny, np.float32(0)), limit)


def _other(got: str) -> InputError:
    return InputError(
        "the booster",
        expected=f"trees with one number a leaf and splits by number, trained for {', '.join(OBJECTIVES)}",
        got=got,
        cure="Train it with 'mooring train --engine dask --learner xgboost'.",
    )
