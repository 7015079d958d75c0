"""Membership: whether an attacker can tell that a row is among those behind what it saw, and the ε which that implies.

An attack gives each candidate a score, higher for those it takes for members. The area under the ROC is the mean over all
candidates; what a person asks is the true-positive rate where false alarms are rare. A mechanism that is (ε, δ)-
differentially private allows no pair of rates beyond TPR ≤ e^ε FPR + δ and 1 − FPR ≤ e^ε (1 − TPR) + δ, so a pair that was
measured bounds ε from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from mooring.errors import InputError
from mooring.metrics.intervals import LEVEL, Figure, Interval, clopper_pearson, clopper_pearson_bounds
from mooring.metrics.validation import finite_vector
from mooring.serialization import Serializable
from mooring.typing import Matrix

FALSE_POSITIVE_RATES = {"membership_at_1_percent": 0.01, "membership_at_0.1_percent": 0.001}
"""The figures of true-positive rates, and the false-positive rate of each."""
_N_THRESHOLDS, _LEAST_IN_TAIL, _WIDEST_TAIL = 60, 10, 0.5
_LARGEST_EPSILON = 1e3
_N_ON_CURVE = 40


@dataclass(frozen=True, eq=False)
class Membership:
    """How well scores tell members from others.

    Examples
    --------
    >>> found = Membership(np.array([3.0, 2.0, 1.0]), np.array([2.5, 0.5]))
    >>> round(found.auc, 3), found.true_positive_rate(0.01)[0] == 1 / 3
    (0.667, True)
    """

    members: Matrix
    others: Matrix
    """Of shape (m,) and (n,): scores of rows that are behind what the attacker saw, and of rows that are not."""

    def __post_init__(self) -> None:
        for name in ("members", "others"):
            object.__setattr__(self, name, finite_vector(name, getattr(self, name)))

    @property
    def auc(self) -> float:
        """The area under the ROC: how often a member scores higher than another row; a tie counts half."""
        return float(self.wins()[0].mean())

    def auc_interval(self) -> Interval:
        """DeLong's interval of the area; for a perfect separation, of which it has none, that of the smaller sample."""
        of_members, of_others = self.wins()
        m, n = of_members.size, of_others.size
        if min(m, n) < 2 or np.union1d(self.members, self.others).size == 1:  # scores all alike tell nothing
            return Interval.unknown()
        variance = float(of_members.var(ddof=1) / m + of_others.var(ddof=1) / n)
        if variance == 0:
            reached = clopper_pearson(min(m, n), min(m, n))
            return reached if self.auc > 0.5 else Interval(1 - reached.high, 1 - reached.low)
        half = float(ndtri((1 + LEVEL) / 2)) * math.sqrt(variance)
        return Interval(max(0.0, self.auc - half), min(1.0, self.auc + half))

    def true_positive_rate(self, false_positive_rate: float) -> tuple[float, Interval]:
        """The share of members that score above all but so large a share of the others, and its interval over members.

        With fewer than 1/`false_positive_rate` others, above all of them.
        """
        found = int(self._found(np.array([false_positive_rate]))[0])
        return found / self.members.size, clopper_pearson(found, self.members.size)

    def _found(self, rates: Matrix) -> NDArray[np.int64]:
        """How many members score above all but so large a share of the others, for each rate."""
        allowed = np.minimum(np.floor(rates * self.others.size).astype(np.int64), self.others.size - 1)
        thresholds = np.sort(self.others)[-1 - allowed]
        return np.asarray(self.members.size - np.searchsorted(np.sort(self.members), thresholds, "right"))

    def figures(self, control: Membership | None = None) -> dict[str, Figure]:
        """The area and the true-positive rates as figures, beside those of an attacker without the upload."""
        before = None if control is None else control.auc
        area = Figure("membership_auc", self.auc, self.auc_interval(), 0.5, before, None, self.members.size, True)
        return {"membership_auc": area, **self._rates(control, "")}

    def outlying_figures(self, outlying: NDArray[np.bool_], control: Membership | None = None) -> dict[str, Figure]:
        """The true-positive rates of some members, at the thresholds that hold for all."""
        some = None if control is None else replace(control, members=control.members[outlying])
        return replace(self, members=self.members[outlying])._rates(some, "outlying_")

    def _rates(self, control: Membership | None, prefix: str) -> dict[str, Figure]:
        found = {}
        for measure, rate in FALSE_POSITIVE_RATES.items():
            name, (value, interval) = prefix + measure, self.true_positive_rate(rate)
            before = None if control is None else control._found(np.array([rate]))[0] / control.members.size
            chance = max(rate, 1 / (self.others.size + 1))  # of one row to score above so few others
            found[name] = Figure(name, value, interval, chance, before, None, self.members.size, True)
        return found

    def curve(self) -> tuple[tuple[float, float], ...]:
        """The ROC at false-positive rates spread evenly on a log scale, from 1/n of the others to all: pairs of rates."""
        rates = np.geomspace(1 / self.others.size, 1.0, _N_ON_CURVE)
        found = self._found(rates) / self.members.size
        return tuple((float(f"{rate:.4g}"), float(f"{share:.4g}")) for rate, share in zip(rates, found, strict=True))

    def wins(self) -> tuple[Matrix, Matrix]:
        """How often each member scores above another, and each other below a member."""
        return _share_below(self.members, self.others), 1 - _share_below(self.others, self.members)


def _share_below(scores: Matrix, others: Matrix) -> Matrix:
    """The share of others below each score; a tie counts half."""
    ordered = np.sort(others)
    below, not_above = (np.searchsorted(ordered, scores, side) for side in ("left", "right"))
    return np.asarray((below + not_above) / (2 * others.size))


@dataclass(frozen=True)
class EpsilonBound(Serializable):
    """What measured rates say of ε, at the stated confidence."""

    epsilon: float
    """ε is at least this, whatever the noise is."""
    gaussian: float
    """ε is at least this if the score's noise is Gaussian: the ε at δ of a Gaussian mechanism that is told apart as well as
    this one was. Much nearer the truth, since tails too rare to be observed are not left out."""
    delta: float
    level: float
    n: int
    """Independent scores behind it, of both kinds together; half of them choose thresholds."""


@dataclass(frozen=True)
class EpsilonAudit(Serializable):
    """The ε that a study claims beside the one that its noise was measured to have at least."""

    claimed: float
    reachable: float
    """What the bound tends to with ever more runs, if the noise is as it should be: the exact ε of Gaussian noise of this
    scale. The claim is above it, since its accounting holds for discrete noise, too."""
    measured: EpsilonBound

    @property
    def holds(self) -> bool:
        """Whether what was measured allows what is claimed."""
        return max(self.measured.epsilon, self.measured.gaussian) <= self.claimed


def bound_epsilon(included: ArrayLike, excluded: ArrayLike, *, delta: float) -> EpsilonBound:
    """Bound ε from below by scores of independent runs with and without one record.

    Parameters
    ----------
    included, excluded : array of shape (m,) and (n,)
        A score of each run in which the record was included, or excluded; higher where it looks included.

    Notes
    -----
    Thresholds, and which of the two kinds is claimed, are chosen on every other score; on the rest, Clopper and Pearson's
    bounds of both rates there hold together with a probability of 95 %.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = bound_epsilon(rng.standard_normal(4000) + 1, rng.standard_normal(4000), delta=1e-5)
    >>> 1 < found.epsilon < found.gaussian < gaussian_epsilon(1.0, 1e-5)
    True
    """
    runs = finite_vector("included", included), finite_vector("excluded", excluded)
    if min(one.size for one in runs) < 2:
        raise InputError("included", expected="two scores of each kind", got="fewer", cure="Repeat the run.")
    if not 0 <= delta < 1:
        raise InputError("delta", expected="from 0 to 1", got=str(delta), cure="Pass the δ of the claim.")

    def ratio(true: Matrix, false: Matrix) -> Matrix:
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(true - delta, 0.0)) - np.log(false)

    def separation(true: Matrix, false: Matrix) -> Matrix:
        return np.asarray(ndtri(true) - ndtri(false))

    n = sum(one.size for one in runs)
    tails = np.geomspace(min(_WIDEST_TAIL, _LEAST_IN_TAIL / n), _WIDEST_TAIL, _N_THRESHOLDS)
    mu = _highest(separation, runs, np.array([0.5]))  # in the middle both rates are known best
    epsilon = max(0.0, _highest(ratio, runs, tails))
    return EpsilonBound(epsilon, gaussian_epsilon(mu, delta) if mu > 0 else 0.0, delta, LEVEL, n)


def gaussian_epsilon(separation: float, delta: float) -> float:
    """The exact ε at δ of Gaussian noise, one record moving the mean by so many standard deviations (Balle and Wang 2018).

    Examples
    --------
    >>> round(gaussian_epsilon(1 / 3.731, 1e-5), 2)
    1.0
    """
    if not math.isfinite(separation):
        return math.inf

    def excess(epsilon: float) -> float:
        beyond = float(log_ndtr(-separation / 2 - epsilon / separation))
        return float(ndtr(separation / 2 - epsilon / separation)) - math.exp(min(epsilon + beyond, 0.0)) - delta

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, _LARGEST_EPSILON)) if excess(_LARGEST_EPSILON) < 0 else _LARGEST_EPSILON


def _highest(statistic: Callable[[Matrix, Matrix], Matrix], runs: tuple[Matrix, Matrix], tails: Matrix) -> float:
    """The bound of a statistic of two rates, at the tail and the claim that half of the scores choose."""
    included, excluded = runs
    sides = (included, excluded), (-excluded, -included)  # claiming that the record is in; claiming that it is not

    def bounded(side: int, thresholds: Matrix, half: int, level: float) -> Matrix:
        """The statistic's bound at each threshold, by Clopper and Pearson's bounds of both rates."""
        scores = [np.sort(one[half::2]) for one in sides[side]]
        (true, m), (false, n) = [(one.size - np.searchsorted(one, thresholds, "right"), one.size) for one in scores]
        return statistic(clopper_pearson_bounds(true, m, level)[0], clopper_pearson_bounds(false, n, level)[1])

    cautious = 1 - (1 - LEVEL) / (2 * len(tails))  # the best of so many: else chance in a tail would choose
    tried = [np.quantile(np.concatenate([one[::2] for one in both]), 1 - tails) for both in sides]
    found = [bounded(side, thresholds, 0, cautious) for side, thresholds in enumerate(tried)]
    _, side, threshold = max((one.max(), side, tried[side][one == one.max()].max()) for side, one in enumerate(found))
    return float(bounded(side, np.array([threshold]), 1, LEVEL)[0])


def state_alarms(figure: Figure) -> str:
    """The false alarms at which rows are told: 1 % or, of few other rows, the least that they allow."""
    return f"{100 * max(0.01, figure.chance or 0):.2g} % false alarms"
