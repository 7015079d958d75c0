"""Membership inference: how well an attacker recognises rows that contributed to an upload, and the ε that this implies.

An attack gives each candidate a score, which is higher for likely members. The area under the ROC curve averages over all
candidates; for a person, the true positive rate at a low false positive rate matters more. An (ε, δ)-differentially private
mechanism satisfies TPR ≤ e^ε FPR + δ and 1 − FPR ≤ e^ε (1 − TPR) + δ, so measured rates bound ε from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, log_ndtr, ndtr, ndtri

from mooring.errors import InputError
from mooring.metrics.intervals import LEVEL, Figure, Interval, clopper_pearson, lower_bounds, upper_bounds
from mooring.metrics.validation import finite_vector
from mooring.serialization import Record
from mooring.typing import Matrix

FALSE_POSITIVE_RATES = {"membership_at_1_percent": 0.01, "membership_at_0.1_percent": 0.001}
"""Names of the figures of true positive rates, and the false positive rate of each."""
_N_THRESHOLDS, _LEAST_IN_TAIL, _WIDEST_TAIL = 60, 10, 0.5
_LARGEST_EPSILON = 1e3
_N_ON_CURVE = 40
_NEGLIGIBLE, _ROUNDING = 1e-6, 1e-9


@dataclass(frozen=True, eq=False)
class Membership:
    """Scores of members and of other rows, and how well the scores separate the two.

    Examples
    --------
    >>> membership = Membership(np.array([3.0, 2.0, 1.0]), np.array([2.5, 1.5, 0.5]))
    >>> round(membership.auc, 3), round(membership.true_positive_rate(0.01)[0], 3)
    (0.667, 0.667)
    """

    members: Matrix
    """Scores of rows that contributed to what the attacker saw, of shape (m,)."""
    others: Matrix
    """Scores of rows that did not contribute, of shape (n,)."""

    def __post_init__(self) -> None:
        for name in ("members", "others"):
            object.__setattr__(self, name, finite_vector(name, getattr(self, name)))

    @property
    def auc(self) -> float:
        """The area under the ROC curve: the share of pairs in which the member scores higher; a tie counts half."""
        return float(self.wins()[0].mean())

    def auc_interval(self) -> Interval:
        """Return DeLong's interval of the area, or the Clopper–Pearson interval if the scores separate the rows perfectly.

        The interval is unknown for fewer than two members or others, and if all scores are equal.
        """
        of_members, of_others = self.wins()
        m, n = of_members.size, of_others.size
        if min(m, n) < 2 or np.union1d(self.members, self.others).size == 1:  # equal scores are not informative
            return Interval.unknown()
        variance = float(of_members.var(ddof=1) / m + of_others.var(ddof=1) / n)
        if variance == 0:
            reached = clopper_pearson(min(m, n), min(m, n))
            return reached if self.auc > 0.5 else Interval(1 - reached.high, 1 - reached.low)
        half = float(ndtri((1 + LEVEL) / 2)) * math.sqrt(variance)
        return Interval(max(0.0, self.auc - half), min(1.0, self.auc + half))

    def true_positive_rate(self, false_positive_rate: float) -> tuple[float, Interval]:
        """Return the share of members that an attacker recognises at a false positive rate, and its interval.

        These members score above all others but the share `false_positive_rate`. If there are n < 1 / `false_positive_rate`
        others, the rate is 1 / n, the lowest that n others can show.
        """
        rate = self.attainable_rate(false_positive_rate)
        value = int(self._count_recognised(np.array([rate]))[0]) / self.members.size
        interval = self._rate_interval(rate)
        return value, Interval(min(interval.low, value), max(interval.high, value))

    def attainable_rate(self, false_positive_rate: float) -> float:
        """Return the false positive rate, or 1 / n if n others cannot show so low a rate."""
        return max(false_positive_rate, 1 / self.others.size)

    def _count_recognised(self, rates: Matrix) -> NDArray[np.int64]:
        """Return, for each false positive rate, the number of members that score above all others but this share."""
        n = self.others.size
        allowed = np.clip(np.floor(rates * n + _ROUNDING).astype(np.int64), 1, n - 1)  # no false positive for n = 1
        return self._count_above(np.sort(self.others)[-1 - allowed])

    def _count_above(self, thresholds: Matrix) -> NDArray[np.int64]:
        return np.asarray(self.members.size - np.searchsorted(np.sort(self.members), thresholds, "right"))

    def _rate_interval(self, rate: float) -> Interval:
        """Return the interval of a true positive rate over other draws of the members and of the others.

        The threshold with this false positive rate has R of the n others above it, where R is binomial. Given R, the
        threshold lies between two neighbouring scores of the others, and either is taken with probability one half. Nothing
        is known about the place of a threshold above all others, so half of the members above all others are taken to lie
        above it. Given the threshold, the true positive rate has Jeffreys' posterior from the members above it. The interval
        lies between equal tails of this mixture.
        """
        from scipy.optimize import brentq  # takes half a second to load

        m, n = self.members.size, self.others.size
        ranks, shares_of_ranks = _rank_threshold(n, rate)
        counts = self._count_above(np.sort(self.others)[::-1])
        above = np.concatenate([[counts[0] // 2], counts, [m]])  # members above the threshold, by its rank
        weights = np.bincount(above[ranks], weights=shares_of_ranks / 2, minlength=m + 1)
        weights += np.bincount(above[ranks + 1], weights=shares_of_ranks / 2, minlength=m + 1)
        counts = np.flatnonzero(weights).astype(np.int64)
        shares = weights[counts] / weights.sum()

        def excess(share: float, tail: float) -> float:
            return float(shares @ betainc(counts + 0.5, m - counts + 0.5, share)) - tail

        return Interval(*(brentq(excess, 0.0, 1.0, args=(tail,)) for tail in ((1 - LEVEL) / 2, (1 + LEVEL) / 2)))

    def figures(self, control: Membership | None = None) -> dict[str, Figure]:
        """Return the area and the true positive rates as figures, beside those of an attacker without the upload."""
        before = None if control is None else control.auc
        area = Figure("membership_auc", self.auc, self.auc_interval(), 0.5, before, None, self.members.size, True)
        return {"membership_auc": area, **self._rates(control, "")}

    def outlying_figures(self, outlying: NDArray[np.bool_], control: Membership | None = None) -> dict[str, Figure]:
        """Return the true positive rates of the members that `outlying` marks, at the thresholds that all others set."""
        some = None if control is None else replace(control, members=control.members[outlying])
        return replace(self, members=self.members[outlying])._rates(some, "outlying_")

    def _rates(self, control: Membership | None, prefix: str) -> dict[str, Figure]:
        figures = {}
        for measure, rate in FALSE_POSITIVE_RATES.items():
            name, (value, interval) = prefix + measure, self.true_positive_rate(rate)
            before = None if control is None else control._count_recognised(np.array([rate]))[0] / control.members.size
            chance = self.attainable_rate(rate)
            figures[name] = Figure(name, value, interval, chance, before, None, self.members.size, True)
        return figures

    def curve(self) -> tuple[tuple[float, float], ...]:
        """Return pairs of false and true positive rates, with false positive rates evenly spaced on a log scale."""
        rates = np.geomspace(1 / self.others.size, 1.0, _N_ON_CURVE)
        shares = self._count_recognised(rates) / self.members.size
        return tuple((float(f"{rate:.4g}"), float(f"{share:.4g}")) for rate, share in zip(rates, shares, strict=True))

    def wins(self) -> tuple[Matrix, Matrix]:
        """Return the share of others below each member, and the share of members above each other row."""
        return _share_below(self.members, self.others), 1 - _share_below(self.others, self.members)


@lru_cache(maxsize=64)
def _rank_threshold(n: int, rate: float) -> tuple[NDArray[np.int64], Matrix]:
    """Return how many of n others may lie above a threshold with this false positive rate, and each number's probability.

    The result is cached, since all attacks of an audit have the same n.
    """
    from scipy.stats import binom  # takes half a second to load

    ranks = np.arange(int(binom.ppf(1 - _NEGLIGIBLE, n, rate)) + 1)
    return ranks, binom.pmf(ranks, n, rate)


def _share_below(scores: Matrix, others: Matrix) -> Matrix:
    """Return the share of others below each score; a tie counts half."""
    ordered = np.sort(others)
    below, not_above = (np.searchsorted(ordered, scores, side) for side in ("left", "right"))
    return np.asarray((below + not_above) / (2 * others.size))


@dataclass(frozen=True)
class EpsilonBound(Record):
    """Lower bounds of ε from measured rates, at the stated confidence level."""

    epsilon: float
    """Lower bound of ε that assumes nothing about the noise."""
    gaussian: float
    """Lower bound of ε if the score's noise is Gaussian: the ε at δ of a Gaussian mechanism with the same separation. It is
    much tighter, because it includes tails that are too rare to be observed."""
    delta: float
    level: float
    n: int
    """Number of independent scores, with and without the record together; half of them select thresholds."""


@dataclass(frozen=True)
class EpsilonAudit(Record):
    """The ε that a study claims, beside a measured lower bound."""

    claimed: float
    reachable: float
    """What the measured bound approaches with more and more runs, if the noise is correct: the exact ε of Gaussian noise of
    this scale. The claim of secure sums is higher, because its accounting also covers discrete noise."""
    measured: EpsilonBound

    @property
    def holds(self) -> bool:
        """Whether the measured bounds do not exceed the claim."""
        return max(self.measured.epsilon, self.measured.gaussian) <= self.claimed


def bound_epsilon(included: ArrayLike, excluded: ArrayLike, *, delta: float) -> EpsilonBound:
    """Return lower bounds of ε from scores of independent runs with and without one record.

    Parameters
    ----------
    included, excluded : array of shape (m,) and (n,)
        One score per run in which the record was included, or excluded. Higher scores mean that the record looks included.

    Notes
    -----
    The threshold, and whether inclusion or exclusion is claimed, are selected on every other score. On the remaining scores
    the Clopper–Pearson bounds of both rates hold together with a probability of 95 %.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> bound = bound_epsilon(rng.standard_normal(4000) + 1, rng.standard_normal(4000), delta=1e-5)
    >>> 1 < bound.epsilon < bound.gaussian < gaussian_epsilon(1.0, 1e-5)
    True
    """
    runs = finite_vector("included", included), finite_vector("excluded", excluded)
    if min(scores.size for scores in runs) < 2:
        got = f"{runs[0].size} with and {runs[1].size} without the record"
        raise InputError("included", expected="two scores of each kind", got=got, cure="Run the mechanism more often.")
    if not 0 <= delta < 1:
        raise InputError("delta", expected="at least 0 and below 1", got=str(delta), cure="Pass the δ of the claim.")

    def ratio(true: Matrix, false: Matrix) -> Matrix:
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(true - delta, 0.0)) - np.log(false)

    def separation(true: Matrix, false: Matrix) -> Matrix:
        return np.asarray(ndtri(true) - ndtri(false))

    n = sum(scores.size for scores in runs)
    tails = np.geomspace(min(_WIDEST_TAIL, _LEAST_IN_TAIL / n), _WIDEST_TAIL, _N_THRESHOLDS)
    mu = _highest(separation, runs, np.array([0.5]))  # both rates are estimated best in the middle
    epsilon = max(0.0, _highest(ratio, runs, tails))
    return EpsilonBound(epsilon, gaussian_epsilon(mu, delta) if mu > 0 else 0.0, delta, LEVEL, n)


def gaussian_epsilon(separation: float, delta: float) -> float:
    """Return the exact ε at δ of Gaussian noise if one record moves the mean by `separation` standard deviations.

    See Balle and Wang (2018). Values above 1,000 are returned as 1,000, and an infinite separation gives infinity.

    Examples
    --------
    >>> round(gaussian_epsilon(1 / 3.731, 1e-5), 2)
    1.0
    """
    from scipy.optimize import brentq

    if not math.isfinite(separation):
        return math.inf

    def excess(epsilon: float) -> float:
        beyond = float(log_ndtr(-separation / 2 - epsilon / separation))
        return float(ndtr(separation / 2 - epsilon / separation)) - math.exp(min(epsilon + beyond, 0.0)) - delta

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, _LARGEST_EPSILON)) if excess(_LARGEST_EPSILON) < 0 else _LARGEST_EPSILON


def _highest(statistic: Callable[[Matrix, Matrix], Matrix], runs: tuple[Matrix, Matrix], tails: Matrix) -> float:
    """Return a lower bound of a statistic of two rates: half of the scores select threshold and claim, the rest bound it."""
    included, excluded = runs
    sides = (included, excluded), (-excluded, -included)  # claim that the record is included, or excluded

    def bounded(side: int, thresholds: Matrix, half: int, level: float) -> Matrix:
        """Return the statistic's bound at each threshold, from the Clopper–Pearson bounds of both rates."""
        scores = [np.sort(run[half::2]) for run in sides[side]]
        (true, m), (false, n) = [(run.size - np.searchsorted(run, thresholds, "right"), run.size) for run in scores]
        return statistic(lower_bounds(true, m, level), upper_bounds(false, n, level))

    cautious = 1 - (1 - LEVEL) / (
        2 * len(tails)
    )  # corrects for the number of thresholds, so that chance does not select one
    tried = [np.quantile(np.concatenate([run[::2] for run in both]), 1 - tails) for both in sides]
    bounds = [bounded(side, thresholds, 0, cautious) for side, thresholds in enumerate(tried)]
    _, side, threshold = max(
        (values.max(), side, tried[side][values == values.max()].max()) for side, values in enumerate(bounds)
    )
    return float(bounded(side, np.array([threshold]), 1, LEVEL)[0])
