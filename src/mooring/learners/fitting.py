"""Training of learners, cross-validation, and the choice that `auto` makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np

from mooring.learners.fitted import Fitted, predict_classes
from mooring.learners.models import Kind, Predicted
from mooring.learners.registry import AUTO, CANDIDATES, Learner, LearnerLike, resolve_learner
from mooring.learners.scores import score_value
from mooring.typing import Indices, Labels, Matrix

MOST_ROWS = 50_000
"""Maximum number of rows that `mooring train` uses; from more rows, it draws this many."""
MOST_ALONE = 12  # maximum number of participants whose own models are trained for comparison
ROW_FOLDS = 5
_MOST_GROUPS, _CHOICE_GROUPS, _CHOICE_ROWS = 10, 3, 600
_SCREENED_AT_LEAST, _SCREENED_EACH, _SCREENED = 10, 500, 10_000
_INFLUENCE_ROWS = 3_000


def train_learner(
    learner: LearnerLike, rows: Matrix, labels: Labels, *, kind: Kind, seed: int, owners: Indices | None = None
) -> Fitted:
    """Return a trained learner, which is given by a name in `LEARNERS`, as an object, or as "auto" (`choose_learner`).

    `rows` are of shape (n, h), and `labels` of shape (n,). `owners` are the participants of the rows, for "auto".

    Examples
    --------
    >>> rows = np.array([[0.0], [0.1], [1.0], [1.1]])
    >>> train_learner("svm", rows, np.array([0, 0, 1, 1]), kind="classes", seed=0).predict(rows).tolist()
    [0, 0, 1, 1]
    """
    chosen = decide_learner(learner, rows, labels, kind=kind, seed=seed, owners=owners)
    return chosen.fit(rows, labels, kind=kind, seed=seed)


def decide_learner(
    learner: LearnerLike, rows: Matrix, labels: Labels, *, kind: Kind, seed: int, owners: Indices | None = None
) -> Learner:
    """Return the learner with this name, or the learner itself; for "auto", the one that `choose_learner` chooses."""
    if learner == AUTO:
        learner = choose_learner(rows, labels, kind=kind, seed=seed, owners=owners)
    return resolve_learner(learner)


def choose_learner(rows: Matrix, labels: Labels, *, kind: Kind, seed: int, owners: Indices | None = None) -> str:
    """Return what "auto" means for these rows: the candidate that best predicts participants left out of training.

    It is one of `CANDIDATES`: the simplest if rows are too few or labels all equal, and the simpler one if scores are equal.
    The score is the AUC or R² over up to 600 rows, an equal share from every participant, in up to three folds. `owners` are
    the participants of the rows, from 0; without them, or with one participant, each of five parts of the rows is left out.
    """
    owners = np.zeros(len(rows), dtype=np.int64) if owners is None else owners
    mine = [np.flatnonzero(owners == place) for place in range(int(owners.max(initial=0)) + 1)]
    drawn = np.concatenate(
        [positions[picks] for positions, picks in zip(mine, choice_rows(list(map(len, mine)), seed), strict=True)]
    )
    rows, labels, owners = rows[drawn], labels[drawn], owners[drawn]
    if labels.size < 2 * ROW_FOLDS or np.unique(labels).size < 2:
        return CANDIDATES[0]
    several = np.unique(owners).size > 1
    parts = group_folds(len(mine), seed, most=_CHOICE_GROUPS)[owners] if several else row_folds(labels, seed)
    return _compare_candidates(rows, labels, parts, kind=kind, seed=seed)[0]


def cross_validate_choice(rows: Matrix, labels: Labels, *, kind: Kind, seed: int) -> Predicted:
    """Return what `cross_validate` returns in random folds of the rows, for the learner that `choose_learner` chooses.

    With at most 600 rows, the choice uses the same rows and folds, and its predictions are returned.
    """
    parts = row_folds(labels, seed)
    if 2 * ROW_FOLDS <= labels.size <= _CHOICE_ROWS and np.unique(labels).size > 1:
        return _compare_candidates(rows, labels, parts, kind=kind, seed=seed)[1]
    learner = choose_learner(rows, labels, kind=kind, seed=seed)
    return cross_validate(learner, rows, labels, parts, kind=kind, seed=seed)


def _compare_candidates(
    rows: Matrix, labels: Labels, parts: Indices, *, kind: Kind, seed: int
) -> tuple[str, Predicted]:
    """Return the candidate that scores best when each part is left out, and what it predicts there."""
    predicted = {name: cross_validate(name, rows, labels, parts, kind=kind, seed=seed) for name in CANDIDATES}
    values = {name: score_value(labels, given[0], kind=kind, shares=given[1]) for name, given in predicted.items()}
    best = max(CANDIDATES, key=lambda name: values[name])
    return best, predicted[best]


def cross_validate(
    learner: LearnerLike,
    rows: Matrix,
    labels: Labels,
    parts: Indices,
    *,
    kind: Kind,
    seed: int,
    n_classes: int = 0,
    on_part: Callable[[], None] | None = None,
) -> Predicted:
    """Return predicted labels and class scores, for each part by a learner that was trained on the other parts.

    The scores have the shape (n, n_classes); they are None if numbers are predicted.

    `parts` are integers of shape (n,), the part that each row is left out with. `n_classes` is the number of classes; 0
    stands for the largest label plus one. `on_part` is called after every part.
    """
    classes = np.arange(n_classes or int(labels.max()) + 1) if kind == "classes" else None
    predicted, shares = np.zeros_like(labels), None if classes is None else np.zeros((len(rows), classes.size))
    for part in np.unique(parts):
        out = parts == part
        fitted = train_learner(learner, rows[~out], labels[~out], kind=kind, seed=seed)
        predicted[out], scores = predict_classes(fitted, rows[out], classes)
        if shares is not None and scores is not None:
            shares[out] = scores
        if on_part:
            on_part()
    return predicted, shares


def group_folds(n_groups: int, seed: int, *, most: int = _MOST_GROUPS) -> Indices:
    """Return the fold in which each of `n_groups` participants is left out.

    Each participant has its own fold. If there are more than `most`, they are assigned to `most` folds at random.

    Examples
    --------
    >>> group_folds(3, 0).tolist(), group_folds(6, 0, most=2).tolist()
    ([0, 1, 2], [0, 1, 1, 0, 1, 0])
    """
    order = np.random.default_rng(seed).permutation(n_groups) if n_groups > most else np.arange(n_groups)
    folds = np.empty(n_groups, dtype=np.int64)
    folds[order] = np.arange(n_groups) % most
    return folds


def row_folds(labels: Labels, seed: int) -> Indices:
    """Return the fold in which each row is left out: random folds, stratified by class or by the rank of a number."""
    order = np.random.default_rng(seed).permutation(len(labels))
    ranked = order[np.argsort(labels[order], kind="stable")]
    folds = np.empty(len(labels), dtype=np.int64)
    folds[ranked] = np.arange(len(labels)) % ROW_FOLDS
    return folds


def draw_rows(
    counts: Sequence[int], most: int, seed: int | Sequence[int], *, weight_limit: float = math.inf
) -> list[Indices]:
    """Return the positions of an equal share of each participant's rows: about `most` in total, but at least one each.

    `counts` are the participants' numbers of rows. For the share, a participant with more than `weight_limit` times the
    rows of the median participant counts as having only that many.
    """
    rng = np.random.default_rng(seed)
    limited = limit_counts(counts, weight_limit)
    share = min(1.0, most / max(1, sum(limited)))
    sizes = [min(count, max(1, int(count * share))) for count in limited]
    return [np.sort(rng.choice(count, size=size, replace=False)) for count, size in zip(counts, sizes, strict=True)]


def limit_counts(counts: Sequence[int], weight_limit: float) -> list[int]:
    """Return each number of rows, or `weight_limit` times that of the median participant if this is less.

    If the number of participants is even, the smaller of the two in the middle counts as the median.

    Examples
    --------
    >>> limit_counts([60, 1_000_000, 50, 40], 3.0)
    [60, 150, 50, 40]
    """
    most = weight_limit * sorted(counts)[(len(counts) - 1) // 2]
    return [count if count <= most else max(1, int(most)) for count in counts]


def choice_rows(
    counts: Sequence[int], seed: int, *, left_out: Collection[int] = (), weight_limit: float = math.inf
) -> list[Indices]:
    """Return the positions of the rows that `choose_learner` uses, a subset of the rows that are trained on.

    No rows are drawn from the participants in `left_out`.
    """
    drawn = draw_rows(counts, MOST_ROWS, seed, weight_limit=weight_limit)
    sizes = [0 if place in left_out else positions.size for place, positions in enumerate(drawn)]
    return [positions[few] for positions, few in zip(drawn, draw_rows(sizes, _CHOICE_ROWS, seed), strict=True)]


def influence_rows(counts: Sequence[int], seed: int, *, salt: str, weight_limit: float = math.inf) -> list[Indices]:
    """Return the positions of about 3,000 of the rows that are trained on, an equal share of each participant's.

    `salt` holds hexadecimal digits that no participant knows before its upload, as for `screening_rows`.
    """
    drawn = draw_rows(counts, MOST_ROWS, seed, weight_limit=weight_limit)
    picks = draw_rows([positions.size for positions in drawn], _INFLUENCE_ROWS, [seed, int(salt, 16)])
    return [positions[few] for positions, few in zip(drawn, picks, strict=True)]


def screening_rows(counts: Sequence[int], seed: int, *, salt: str, weight_limit: float = math.inf) -> list[Indices]:
    """Return the positions of equally many rows of each participant, a subset of the rows that are trained on.

    The number per participant is the smallest of 500, of 10,000 divided by the number of participants, and of the median
    participant's rows, but at least 10; whoever has fewer rows gives all. So no participant weighs more by having more rows.
    `salt` holds hexadecimal digits that no participant knows before its upload. A participant that knew which rows are
    screened could manipulate only the other rows.
    """
    rng = np.random.default_rng([seed, int(salt, 16)])
    drawn = draw_rows(counts, MOST_ROWS, seed, weight_limit=weight_limit)
    median = sorted(positions.size for positions in drawn)[(len(drawn) - 1) // 2]
    each = max(_SCREENED_AT_LEAST, min(_SCREENED_EACH, _SCREENED // max(1, len(counts)), median))
    return [
        positions[np.sort(rng.choice(positions.size, size=min(each, positions.size), replace=False))]
        for positions in drawn
    ]
