"""Who does not fit the others, by its anchor representation or by its rows (threat 11).

By the anchor. Legend: C_i the aligned, centred anchor representation of participant i; T_i the mean of all the others'. The
fit of i is ‖C_iᵀ T_i‖_* / (‖C_i‖ ‖T_i‖), the correlation with T_i after the best turn: 1 for the same anchor without noise.

Garbage fits too, a little: the best turn finds something. How much is measured, by a few draws of garbage pushed through the
same fit. A participant is flagged if it lies near garbage where most others do not; where most lie near garbage themselves,
or honest ones scatter that far (noise near the transition, or few components), nobody can be told from garbage, and nobody
is flagged. Flagged is also who fits less well than the median by more than noise explains: how far honest fits scatter is
measured by draws, too.

By the rows. An anchor that was reflected, moved, or has its columns in another order is as good as an honest one, and brings
its participant's rows to the wrong place. Labels show it: a model of the others' rows does not go with them. Two measures,
both 1 at best and 0 for guesses, say how it does:

- the correlation of a participant's labels (one column a class) with what a model of the others predicts, both centred
  within the participant: in a linear model, neither other shares of classes nor rows shifted as a whole lower it;
- of classes, the balanced accuracy above chance, which rows lose that are shifted as a whole and keep their labels.
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
_NEAR_GARBAGE = 0.4  # of the way from garbage to the median participant
_STREAM = 0x6D697366
_CLEAR = 4.0  # spreads of garbage from it to the median, and honest spreads from the median to what lies near garbage
_SCATTER, _ROUNDING = 8.0, 1e-5  # spreads of honest fits below the median, and what float32 does to them
_FAR_LOWER = 0.5  # than the median participant: of the correlation
_LOWER = (0.9, 0.5)  # than the median, and than a model of its own rows: of the correlation, of balanced accuracy
_AS_GOOD = 0.75  # of the best learner's median agreement, for a learner to have a say
_FEWEST_ROWS = 10
_DEVIATIONS = 2.58  # of Fisher's transform: intervals of 99 %


@dataclass(frozen=True, eq=False)
class Fits:
    """How well each participant fits the others, and what garbage would reach."""

    values: npt.NDArray[np.float64]
    """Of shape (p,): one fit a participant, 0 to 1."""
    garbage: float
    spread: float
    """Mean and standard deviation of garbage's fit."""

    def find_low(self, values: Sequence[float], honest_spread: float) -> list[bool] | None:
        """Whether each fit is near garbage, or lower than honest ones scatter (`measure_honest_spread`); None if untold."""
        median = float(np.median(self.values))
        near = self.garbage + _NEAR_GARBAGE * (median - self.garbage)
        if median - self.garbage <= _CLEAR * self.spread or median - near <= _CLEAR * honest_spread:
            return None
        cut = max(near, median - _SCATTER * honest_spread - _ROUNDING)
        return [bool(value < cut) for value in values]


def measure_fit(template: Matrix, centred: Matrix) -> float:
    """The correlation of a centred anchor representation with a template, after the best turn."""
    size = float(np.linalg.norm(centred) * np.linalg.norm(template))
    if size == 0:
        return 0.0
    return min(1.0, float(np.linalg.svd(centred.T @ template, compute_uv=False).sum()) / size)


def measure_fits(aligned: Sequence[Matrix], *, seed: int = 0) -> Fits:
    """Fit each of two or more aligned, centred anchor representations to the mean of the others."""
    total = np.sum(aligned, axis=0)
    values = np.array([measure_fit(total - own, own) for own in aligned])
    return Fits(values, *measure_random_fit(total, seed=seed))


def measure_random_fit(total: Matrix, *, seed: int = 0) -> tuple[float, float]:
    """How well garbage fits a sum of aligned anchor representations: mean and standard deviation of a few draws."""
    rng = np.random.default_rng([_STREAM, seed])  # no stream that made an anchor in an experiment
    drawn = [measure_fit(total, _draw_garbage(total.shape, rng)) for _ in range(_DRAWS)]
    return float(np.mean(drawn)), float(np.std(drawn))


def measure_honest_spread(template: Matrix, noise_scale: float, *, seed: int = 0) -> float:
    """The standard deviation of the fits of honest anchor representations, by a few draws around a template."""
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
    """Who has labels that models of the others' rows hardly go with, while they go with most others'."""
    targets = labels[:, None].astype(np.float64) if kind == "number" else np.eye(int(labels.max()) + 1)[labels]
    rows_of = _Rows(rows, targets, owners, [np.flatnonzero(owners == place) for place in range(int(owners.max()) + 1)])
    p, nobody = len(rows_of.places), np.zeros(0, dtype=np.int64)
    trusted, doubted = np.ones(p, dtype=bool), np.zeros(p, dtype=bool)
    if p < 3:
        return nobody
    for _ in range(
        2
    ):  # the second time without those in doubt: their rows took part in what the others were compared with
        doubted = _doubt(rows_of, labels, trusted, seed)
        if not doubted.any() or 2 * doubted.sum() >= p:
            return nobody
        trusted = ~doubted
    return np.flatnonzero(doubted)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows with targets, of shape (n, k), whose they are, and where each participant's are."""

    rows: Matrix
    targets: Matrix
    owners: Indices
    places: Sequence[Indices]

    def predict_by_others(self, name: str, trusted: npt.NDArray[np.bool_], seed: int) -> Matrix:
        """What models of the trusted others predict of everybody's rows."""
        folds, inside = group_folds(trusted.size, seed), trusted[self.owners]
        rows, targets, parts = self.rows[inside], self.targets[inside], folds[self.owners[inside]]
        predicted = np.empty_like(self.targets)
        predicted[inside] = cross_validate(name, rows, targets, parts, kind="number", seed=seed)
        if not inside.all():
            fitted = train_learner(name, rows, targets, kind="number", seed=seed)
            predicted[~inside] = fitted.predict(self.rows[~inside]).reshape(-1, targets.shape[1])
        return predicted

    def predict_by_itself(self, name: str, own: Indices, labels: Labels, seed: int) -> Matrix:
        """What models of the rest of a participant's own rows predict of these."""
        parts = row_folds(labels[own], seed)
        return cross_validate(name, self.rows[own], self.targets[own], parts, kind="number", seed=seed)


def _doubt(rows_of: _Rows, labels: Labels, trusted: npt.NDArray[np.bool_], seed: int) -> npt.NDArray[np.bool_]:
    """Who is in doubt, by models of the trusted."""
    predicted = [rows_of.predict_by_others(name, trusted, seed) for name in CANDIDATES]
    measured = np.array(
        [[_measure(rows_of.targets[own], each[own]) for own in rows_of.places] for each in predicted]
    )  # learners, participants, measures, (low, value, high)
    known = ~np.isnan(measured).any(axis=(0, 2, 3)) & (np.array([own.size for own in rows_of.places]) >= _FEWEST_ROWS)
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
        own = rows_of.places[place]
        for k in np.flatnonzero(tells & ~far_lower[:, place]):
            itself = _measure(rows_of.targets[own], rows_of.predict_by_itself(CANDIDATES[k], own, labels, seed))
            suspect[place] &= bool((lower[k, place] & (high[k, place] < share * itself[:, 1])).any())
    return suspect


def _measure(targets: Matrix, predicted: Matrix) -> npt.NDArray[np.float64]:
    """Measures of predictions of shape (n, k), each with the ends of its interval; nan where all targets are the same."""
    n, k = targets.shape
    centred, own = targets - targets.mean(axis=0), predicted - predicted.mean(axis=0)
    size = float(np.linalg.norm(centred) * np.linalg.norm(own))
    if n <= 3 or not centred.any():
        return np.full((min(k, 2), 3), np.nan)
    z = np.arctanh(np.clip((centred * own).sum() / size, -0.999, 0.999)) if size > 0 else 0.0
    found = [np.tanh(z + _DEVIATIONS / np.sqrt(n - 3) * np.array([-1, 0, 1]))]
    if k > 1:
        members = targets[:, targets.any(axis=0)]
        counts, right = members.sum(axis=0), (targets * np.eye(k)[predicted.argmax(axis=1)]).sum(axis=1)
        recalls = right @ members / counts
        smoothed = (recalls * counts + 1) / (counts + 2)
        width = _DEVIATIONS * float(np.sqrt((smoothed * (1 - smoothed) / counts).sum())) / counts.size
        chance = 1 / counts.size
        found.append((recalls.mean() + width * np.array([-1, 0, 1]) - chance) / (1 - chance))
    return np.stack(found)
