"""Participants that do not fit the others, by their anchor representations or by their rows.

**By the anchor.** Legend: C_i the aligned, centred anchor representation of participant i; T_i the mean of all the others'.
The fit of i is ‖C_iᵀ T_i‖_* / (‖C_i‖ ‖T_i‖), the correlation with T_i after the best rotation: 1 for the same anchor without
noise.

Random numbers ("garbage") also fit a little after the best rotation. A few simulated anchor representations show how well
garbage fits, and how widely noise scatters honest fits. A participant is flagged if its fit is near the fit of garbage while
most fits are not, or if its fit is below the median by more than noise explains. Nobody is flagged if most fits are near the
fit of garbage, or if honest fits scatter so widely that some are near it (noise near the transition, or few components).

**By the labels** (`find_disagreeing`). An anchor that was reflected, moved, or has its columns in a different order fits as
well as an honest one, but brings its participant's rows to the wrong place. Labels show this: a model of the others' rows
does not predict the labels of misplaced rows. Nor does it predict falsified labels. Two measures are 1 at best and 0 for
guesses:

- the correlation of a participant's labels (one column per class) with the predictions of a model of the others. Labels and
  predictions are centred within the participant, so that with a linear model neither different class frequencies nor a
  shift of all rows lowers the correlation;
- for classes, balanced accuracy above chance, which falls if all rows are shifted and keep their labels.

**By the effect on the others** (`find_harmful`). Rows can distort a model although the model predicts their labels: rows
that are all of one class, that lie at the corners of the ranges, or that are few and repeated. So models with and without
each participant are compared on the others' rows. No row is scored by a model that was trained on it, and every other
participant has one vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mooring.learners import CANDIDATES, Kind, cross_validate, train_learner
from mooring.learners.fitting import group_folds, row_folds
from mooring.typing import Indices, Labels, Matrix

_DRAWS, _MOST_DRAWS, _NUMBERS_DRAWN = 32, 256, 2_000_000
_NEAR_GARBAGE = 0.4  # position between the fit of garbage and the median fit
_STREAM = 0x6D697366
_CLEAR = 4.0  # standard deviations that must separate garbage from the median, and the median from the cut near garbage
_SCATTER, _ROUNDING = 8.0, 1e-5  # standard deviations of honest fits below the median, and the effect of float32
_FAR_LOWER = 0.5  # share of the median correlation
_LOWER = (0.9, 0.5)  # shares of the median, for the correlation and for balanced accuracy
_AS_GOOD = 0.75  # share of the best learner's median correlation that a learner needs to be considered
_FEWEST_ROWS = 10
_FEWEST_OF_CLASS = 3
# Losses of AUC, of balanced accuracy and of R² that count as harm. Honest hospitals with different patients cost the others
# up to 3.4 points of AUC; different class frequencies also shift the threshold between classes, and lower balanced accuracy.
_HARM_TO_CLASSES, _HARM_TO_NUMBERS = np.array([0.04, 0.05]), np.array([0.05])
_SURE = 3.0  # standard deviations that must separate a loss from zero
_MOST_EXAMINED = 15  # with more participants, only those with at least a fifteenth of the rows can do much harm
_DEVIATIONS = 2.58  # standard deviations of an interval of 99 %


@dataclass(frozen=True, eq=False)
class Fits:
    """How well each participant fits the others, and how well garbage would."""

    values: npt.NDArray[np.float64]
    """The fit of each participant, 0 to 1, of shape (p,)."""
    garbage: float
    spread: float
    """Mean and standard deviation of the fit of garbage."""

    def find_low(self, values: Sequence[float], honest_spread: float) -> list[bool] | None:
        """Return whether each of `values` is too low, given the spread of honest fits; None if that cannot be known."""
        median = float(np.median(self.values))
        near = self.garbage + _NEAR_GARBAGE * (median - self.garbage)
        if median - self.garbage <= _CLEAR * self.spread or median - near <= _CLEAR * honest_spread:
            return None
        cut = max(near, median - _SCATTER * honest_spread - _ROUNDING)
        return [bool(value < cut) for value in values]


def measure_fit(template: Matrix, centred: Matrix) -> float:
    """Return a centred anchor representation's correlation with a template after the best rotation; 0 if one is zero."""
    size = float(np.linalg.norm(centred) * np.linalg.norm(template))
    if size == 0:
        return 0.0
    return min(1.0, float(np.linalg.svd(centred.T @ template, compute_uv=False).sum()) / size)


def measure_fits(aligned: Sequence[Matrix], *, seed: int = 0) -> Fits:
    """Return the fit of each of two or more aligned, centred anchor representations to the mean of the others."""
    total = np.sum(aligned, axis=0)
    values = np.array([measure_fit(total - block, block) for block in aligned])
    return Fits(values, *measure_random_fit(total, seed=seed))


def measure_random_fit(total: Matrix, *, seed: int = 0) -> tuple[float, float]:
    """Return mean and standard deviation of the fit of garbage to a sum of aligned anchor representations."""
    rng = np.random.default_rng([_STREAM, seed])  # a stream that no simulated anchor comes from
    drawn = [measure_fit(total, _draw_garbage(total.shape, rng)) for _ in range(_DRAWS)]
    return float(np.mean(drawn)), float(np.std(drawn))


def measure_honest_spread(template: Matrix, noise_scale: float, *, seed: int = 0) -> float:
    """Return the standard deviation of honest fits, from anchor representations simulated around a template."""
    left, _, right = np.linalg.svd(template, full_matrices=False)
    anchor, rng = left @ right, np.random.default_rng([_STREAM, seed, 1])
    drawn = []
    for _ in range(max(_DRAWS, min(_MOST_DRAWS, _NUMBERS_DRAWN // anchor.size))):
        noisy = anchor + noise_scale * rng.standard_normal(anchor.shape)
        noisy -= noisy.mean(axis=0)
        drawn.append(float((noisy * template).sum() / (np.linalg.norm(noisy) * np.linalg.norm(template))))
    return float(np.std(drawn))


def _draw_garbage(shape: tuple[int, ...], rng: np.random.Generator) -> Matrix:
    drawn = rng.standard_normal(shape)
    return np.asarray(drawn - drawn.mean(axis=0))


def find_disagreeing(rows: Matrix, labels: Labels, owners: Indices, *, kind: Kind, seed: int) -> Indices:
    """Return the participants whose labels models of the others' rows hardly predict, although they predict most labels.

    A participant is returned if, for every learner of `CANDIDATES` that predicts the labels of most participants, one of
    two conditions holds. Either the upper end of the correlation's interval is below half of the median over participants.
    Or the upper end of a measure's interval is below a share (0.9 for the correlation, 0.5 for balanced accuracy) of the
    median, and also below this share of what models of the participant's own rows reach: labels that no model predicts are
    no sign of misplaced rows.

    Nobody is returned if no learner predicts the labels of most participants, if half of the participants or more are in
    doubt, or if there are fewer than three participants. A participant with fewer than ten rows, or
    with labels that are all equal, is never returned.
    """
    targets = labels[:, None].astype(np.float64) if kind == "number" else np.eye(int(labels.max()) + 1)[labels]
    rows_of = _Rows(rows, targets, owners, [np.flatnonzero(owners == place) for place in range(int(owners.max()) + 1)])
    p, nobody = len(rows_of.places), np.zeros(0, dtype=np.int64)
    trusted, doubted = np.ones(p, dtype=bool), np.zeros(p, dtype=bool)
    if p < 3:
        return nobody
    for _ in range(2):  # in the second round, models leave out the rows of the participants in doubt
        doubted = _doubt(rows_of, labels, trusted, seed)
        if not doubted.any() or 2 * doubted.sum() >= p:
            return nobody
        trusted = ~doubted
    return np.flatnonzero(doubted)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows with targets of shape (n, k), their owners, and the positions of each participant's rows."""

    rows: Matrix
    targets: Matrix
    owners: Indices
    places: Sequence[Indices]

    def predict_by_others(self, name: str, trusted: npt.NDArray[np.bool_], seed: int) -> Matrix:
        """Return predictions for everybody's rows, each by a model of trusted participants without the row's owner."""
        folds, inside = group_folds(trusted.size, seed), trusted[self.owners]
        rows, targets, parts = self.rows[inside], self.targets[inside], folds[self.owners[inside]]
        predicted = np.empty_like(self.targets)
        predicted[inside], _ = cross_validate(name, rows, targets, parts, kind="number", seed=seed)
        if not inside.all():
            fitted = train_learner(name, rows, targets, kind="number", seed=seed)
            predicted[~inside] = fitted.predict(self.rows[~inside]).reshape(-1, targets.shape[1])
        return predicted

    def predict_by_itself(self, name: str, places: Indices, labels: Labels, seed: int) -> Matrix:
        """Return predictions for one participant's rows, which are at `places`, by models of the rest of these rows."""
        parts = row_folds(labels[places], seed)
        return cross_validate(name, self.rows[places], self.targets[places], parts, kind="number", seed=seed)[0]


def _doubt(rows_of: _Rows, labels: Labels, trusted: npt.NDArray[np.bool_], seed: int) -> npt.NDArray[np.bool_]:
    """Return whether each participant is in doubt, according to models of the trusted participants."""
    predicted = [rows_of.predict_by_others(name, trusted, seed) for name in CANDIDATES]
    measured = np.array(
        [[_measure(rows_of.targets[at], each[at]) for at in rows_of.places] for each in predicted]
    )  # learners, participants, measures, (low, value, high)
    known = ~np.isnan(measured).any(axis=(0, 2, 3)) & (np.array([at.size for at in rows_of.places]) >= _FEWEST_ROWS)
    most, nobody = known & trusted, np.zeros(len(rows_of.places), dtype=bool)
    if most.sum() < 2:
        return nobody
    low_end, median, _ = np.moveaxis(np.median(measured[:, most], axis=1), -1, 0)  # learners, measures
    tells = (low_end[:, 0] > 0) & (median[:, 0] >= _AS_GOOD * median[:, 0].max())
    high, share = measured[..., 2], np.array(_LOWER[: median.shape[1]])
    far_lower = high[..., 0] < _FAR_LOWER * median[:, None, 0]
    lower = high < share * median[:, None, :]
    suspect: npt.NDArray[np.bool_] = known & (far_lower | lower.any(axis=-1))[tells].all(axis=0) & bool(tells.any())
    for place in np.flatnonzero(suspect).tolist():
        at = rows_of.places[place]
        for k in np.flatnonzero(tells & ~far_lower[:, place]):
            itself = _measure(rows_of.targets[at], rows_of.predict_by_itself(CANDIDATES[k], at, labels, seed))
            suspect[place] &= bool((lower[k, place] & (high[k, place] < share * itself[:, 1])).any())
    return suspect


def _measure(targets: Matrix, predicted: Matrix) -> npt.NDArray[np.float64]:
    """Return (low, value, high) of each measure, where low and high are the ends of its interval.

    The shape is (1, 3) for numbers and (2, 3) for classes. All are NaN for three rows or fewer, or if all targets are equal.
    """
    n, k = targets.shape
    centred, centred_predictions = targets - targets.mean(axis=0), predicted - predicted.mean(axis=0)
    size = float(np.linalg.norm(centred) * np.linalg.norm(centred_predictions))
    if n <= 3 or not centred.any():
        return np.full((min(k, 2), 3), np.nan)
    # Labels that are almost all of one class say little: they count as if fewer rows had equally frequent classes.
    frequencies = targets.mean(axis=0)
    n_effective = n if k == 1 else n * float(1 - (frequencies**2).sum()) / (1 - 1 / k)
    z = np.arctanh(np.clip((centred * centred_predictions).sum() / size, -0.999, 0.999)) if size > 0 else 0.0
    measures = [np.tanh(z + _DEVIATIONS / np.sqrt(max(1.0, n_effective - 3)) * np.array([-1, 0, 1]))]
    if k > 1:
        members = targets[:, targets.any(axis=0)]
        counts, right = members.sum(axis=0), (targets * np.eye(k)[predicted.argmax(axis=1)]).sum(axis=1)
        recalls = right @ members / counts
        smoothed = (recalls * counts + 1) / (counts + 2)
        width = _DEVIATIONS * float(np.sqrt((smoothed * (1 - smoothed) / counts).sum())) / counts.size
        chance = 1 / counts.size
        measures.append((recalls.mean() + width * np.array([-1, 0, 1]) - chance) / (1 - chance))
    return np.stack(measures)


def find_harmful(rows: Matrix, labels: Labels, owners: Indices, *, kind: Kind, seed: int) -> dict[int, float]:
    """Return the participants whose rows make models worse for most others, with the others' mean loss of score.

    The scores for classes are balanced accuracy and the mean AUC of each class against the rest; the score for numbers is
    R². A loss counts if it is at least four points of AUC, five points of balanced accuracy or 0.05 of R², if it is more
    than three standard deviations from zero, and if more than half of the others lose. Participants are removed one by one,
    the most harmful first, and never half of all participants or more.
    """
    targets = labels[:, None].astype(np.float64) if kind == "number" else np.eye(int(labels.max()) + 1)[labels]
    harmful: dict[int, float] = {}
    folds = _fold_by_owner(labels, owners, seed)
    p = np.unique(owners).size
    while p >= 3 and 2 * (len(harmful) + 1) < p:
        kept = ~np.isin(owners, list(harmful))
        data = _Influence(rows[kept], targets[kept], owners[kept], folds[kept], seed)
        losses = {place: loss for place in data.list_examined() if (loss := data.measure_loss(place)) > 0}
        if not losses:
            break
        worst = max(losses, key=losses.__getitem__)
        harmful[worst] = losses[worst]
    return harmful


def _fold_by_owner(labels: Labels, owners: Indices, seed: int) -> Indices:
    folds = np.zeros(owners.size, dtype=np.int64)
    for place in np.unique(owners):
        folds[owners == place] = row_folds(labels[owners == place], seed)
    return folds


class _Influence:
    """The others' scores with and without a participant's rows, by models that are not trained on the rows they predict."""

    def __init__(self, rows: Matrix, targets: Matrix, owners: Indices, folds: Indices, seed: int) -> None:
        self._rows, self._targets, self._owners, self._folds, self._seed = rows, targets, owners, folds, seed
        everybody = np.ones(owners.size, dtype=bool)
        self._predicted = {name: self._predict(name, everybody) for name in CANDIDATES}

    def list_examined(self) -> list[int]:
        """Return the participants that can do much harm; see `_MOST_EXAMINED`."""
        places, counts = np.unique(self._owners, return_counts=True)
        large = (counts * _MOST_EXAMINED >= counts.sum()) | (places.size <= _MOST_EXAMINED)
        return [int(place) for place in places[large]]

    def measure_loss(self, place: int) -> float:
        """Return the others' mean loss of score because of a participant's rows; 0 if no harm is shown.

        The result is the largest loss among the learners that predict well without the participant.
        """
        others = self._owners != place
        without = {name: self._predict(name, others) for name in CANDIDATES}
        above_chance = {
            name: float(_score_rows(self._targets[others], predicted)[0][0].mean()) - self._chance
            for name, predicted in without.items()
        }
        best = max(above_chance.values())
        names = [name for name, value in above_chance.items() if best > 0 and value >= _AS_GOOD * best]
        return max((self._compare(others, without[name], self._predicted[name][others]) for name in names), default=0.0)

    @property
    def _chance(self) -> float:
        return -1.0 if self._targets.shape[1] == 1 else 0.5

    def _compare(self, others: npt.NDArray[np.bool_], without: Matrix, included: Matrix) -> float:
        owners, targets = self._owners[others], self._targets[others]
        losses, variances = [], []
        for other in np.unique(owners):
            at = owners == other
            before, members = _score_rows(targets[at], without[at])
            if members.size:
                mean, variance = _balance(before - _score_rows(targets[at], included[at])[0], members)
                losses.append(mean)
                variances.append(variance)
        if not losses:
            return 0.0
        loss, deviation = np.mean(losses, axis=0), np.sqrt(np.sum(variances, axis=0)) / len(losses)
        majority = np.mean(np.array(losses) > 0, axis=0) > 0.5
        harm = _HARM_TO_NUMBERS if targets.shape[1] == 1 else _HARM_TO_CLASSES
        shown = majority & (loss >= harm) & (loss > _SURE * deviation)
        return float(loss[shown].max(initial=0.0))

    def _predict(self, name: str, inside: npt.NDArray[np.bool_]) -> Matrix:
        inputs = self._rows[inside], self._targets[inside], self._folds[inside]
        return cross_validate(name, *inputs, kind="number", seed=self._seed)[0]


def _score_rows(targets: Matrix, predicted: Matrix) -> tuple[Matrix, Matrix]:
    """Return what each row adds to each score, of shape (scores, n), and the rows' classes as columns of 0 and 1.

    For classes, a row adds to the AUC the share of the other classes' rows above which it is ranked, and to balanced
    accuracy 1 if its class is recognised. Classes with fewer than `_FEWEST_OF_CLASS` rows get no column. If fewer than two
    classes remain, there are no columns, and all scores are 0. For numbers, the one column is all ones.
    """
    if targets.shape[1] == 1:
        spread = float(targets.var()) or 1.0
        return -(((targets - predicted) ** 2).T / spread), np.ones((len(targets), 1))
    members = targets[:, targets.sum(axis=0) >= _FEWEST_OF_CLASS]
    if members.shape[1] < 2:
        return np.zeros((2, len(targets))), np.zeros((0, 0))
    ranks = np.zeros(len(targets))
    for column, score in zip(targets.T.astype(bool), predicted.T, strict=True):
        rest = np.sort(score[~column])
        below = np.searchsorted(rest, score[column], "left") + np.searchsorted(rest, score[column], "right")
        ranks[column] = below / (2 * rest.size)
    right = predicted.argmax(axis=1) == targets.argmax(axis=1)
    return np.stack([ranks, right.astype(np.float64)]), members


def _balance(differences: Matrix, members: Matrix) -> tuple[Matrix, Matrix]:
    """Return, for each score, the mean over classes of its mean difference, and the variance of this mean."""
    counts = members.sum(axis=0)
    means = differences @ members / counts
    variances = np.maximum(differences**2 @ members / counts - means**2, 0.0) / counts  # rounding makes some negative
    scale = np.ones(len(differences))
    if len(differences) > 1:
        scale[0] = 4.0  # an AUC averages over pairs, and both rows of a pair vary (DeLong et al., 1988)
    return means.mean(axis=1), scale * variances.sum(axis=1) / counts.size**2
