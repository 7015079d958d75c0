"""Figures of leakage, and the intervals that say how far each can be trusted.

A figure never stands alone: beside its value and interval are the chance level, the control (an attacker with the
colluder's data but without the upload) and the floor (what the exact projected rows give away).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtri, stdtrit

from mooring.errors import InputError
from mooring.metrics.validation import BLOCK_NUMBERS, finite_vector, require_minimum
from mooring.randomness import require_generator
from mooring.serialization import Serializable
from mooring.typing import Indices, Matrix

_SHARES = ("roster", "holder", "claims_right", "columns read")  # in whole percent
LEVEL = 0.95
"""The confidence level of every interval."""
N_RESAMPLES = 2000
"""Of a bootstrap, unless it is told otherwise."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval; NaN bounds say that the data cannot give one, as with a single row.

    Examples
    --------
    >>> 0.5 in Interval(0.25, 0.75)
    True
    """

    low: float
    high: float
    level: float = LEVEL

    def __post_init__(self) -> None:
        for name in ("low", "high", "level"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if not 0 < self.level < 1:
            got = f"{self.level:g}"
            raise InputError("level", expected="between 0 and 1, both left out", got=got, cure="Pass 0.95, say.")
        if self.low > self.high or math.isnan(self.low) != math.isnan(self.high):
            raise InputError(
                "low", expected="at most high, or both NaN", got="another order", cure="Exchange the two bounds."
            )

    @classmethod
    def unknown(cls) -> Interval:
        """The interval of data that cannot give one."""
        return cls(math.nan, math.nan)

    @property
    def known(self) -> bool:
        """Whether the data gave an interval."""
        return not math.isnan(self.low)

    def written(self, digits: str = ".2f") -> str:
        """The interval as text that follows a value; nothing where it is unknown.

        Examples
        --------
        >>> Interval(0.25, 0.75).written(".0%")
        ' [25%, 75%]'
        """
        return f" [{self.low:{digits}}, {self.high:{digits}}]" if self.known else ""

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Figure(Serializable):
    """One figure of leakage, with what it must be read against.

    Examples
    --------
    >>> figure = Figure("linkage", 0.5, wilson(5, 10), chance=0.1, control=None, floor=None, n=10, higher_is_worse=True)
    >>> figure.as_dict()["chance"]
    0.1
    >>> Figure.from_dict(figure.as_dict()) == figure
    True
    """

    name: str
    """What was measured."""
    value: float
    """The measurement; NaN where it is undefined."""
    interval: Interval
    chance: float | None
    """What guessing scores."""
    control: float | None
    """What an attacker scores that has the colluder's data but not the upload."""
    floor: float | None
    """What the exact projected rows score, where only the projection protects. On records it depends on the decoder, and a
    better one may do better."""
    n: int
    """How many independent rows, images or queries stand behind the value."""
    higher_is_worse: bool
    """Whether a higher value means that more leaks."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))
        object.__setattr__(self, "n", int(self.n))
        object.__setattr__(self, "higher_is_worse", bool(self.higher_is_worse))
        for name in ("chance", "control", "floor"):
            level = getattr(self, name)
            object.__setattr__(self, name, None if level is None or math.isnan(level) else float(level))
        numbers = {name: getattr(self, name) for name in ("value", "chance", "control", "floor")}
        for name, number in {**numbers, "interval": max(abs(self.interval.low), abs(self.interval.high))}.items():
            if number is not None and math.isinf(number):
                raise InputError(name, expected="finite, or NaN where undefined", got="Inf", cure="Cap the measure.")
        require_minimum("n", self.n, 1)

    def with_interval(self) -> str:
        """The value and its interval, where it has one."""
        around = f" {self.interval.low:.2f}–{self.interval.high:.2f}"
        return f"{self.value:.2f}{around if self.interval.known else ''}"

    def describe(self) -> dict[str, Any]:
        """Value, interval, and the levels that it is read against, as text; None where not known."""

        def written(value: float | None) -> str | None:
            """A share as a percentage, decibels with one digit, the rest with two."""
            if value is None or math.isnan(value):
                return None
            digits = ".1f" if self.name == "psnr" else ".2f"
            if "linkage" in self.name or self.name in _SHARES:
                digits = ".0%"
            elif self.name.startswith(("carriers of", "membership_at", "outlying_", "register", "claims", "rows well")):
                digits = ".2%"
            return f"{value:{digits}}"

        interval = [written(self.interval.low), written(self.interval.high)] if self.interval.known else None
        levels = {name: written(getattr(self, name)) for name in ("chance", "control", "floor")}
        return {"value": written(self.value) or "–", "interval": interval, **levels}


def strongest_value(values: ArrayLike, *, higher_is_worse: bool) -> Matrix:
    """What the strongest of several attacks finds: the highest value, or the lowest of an error; NaN where none has one.

    Values are of shape (n_attacks, …), NaN where an attack was not run.
    """
    strongest = np.fmax if higher_is_worse else np.fmin  # unlike nanmax, silent where no attack has a value
    return np.asarray(strongest.reduce(values, axis=0, initial=math.nan), dtype=np.float64)


def wilson(successes: float, trials: int) -> Interval:
    """Wilson's score interval of a proportion; successes may be a fraction, where ties count in part.

    Examples
    --------
    >>> interval = wilson(81, 263)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.2553, 0.3662)
    """
    _require_counts(successes, trials)
    z = float(ndtri((1 + LEVEL) / 2))
    share = successes / trials
    centre = share + z**2 / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    scale = 1 + z**2 / trials
    low = 0.0 if successes == 0 else max(0.0, (centre - spread) / scale)
    high = 1.0 if successes == trials else min(1.0, (centre + spread) / scale)
    return Interval(low, high)


def clopper_pearson(successes: int, trials: int) -> Interval:
    """Clopper and Pearson's exact interval of a proportion: each bound holds with a probability of 97.5 % at least.

    Examples
    --------
    >>> interval = clopper_pearson(0, 100)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.0, 0.0362)
    """
    _require_counts(successes, trials)
    low, high = clopper_pearson_bounds(np.array(successes), trials, LEVEL)
    return Interval(float(low), float(high))


def clopper_pearson_bounds(successes: Matrix | Indices, trials: int, level: float) -> tuple[Matrix, Matrix]:
    """Both bounds of Clopper and Pearson's interval for each of many counts."""
    tail = (1 - level) / 2
    low = betaincinv(np.maximum(successes, 1), trials - successes + 1, tail)
    high = betaincinv(successes + 1, np.maximum(trials - successes, 1), 1 - tail)
    return np.where(successes == 0, 0.0, low), np.where(successes == trials, 1.0, high)


def bootstrap_mean(values: ArrayLike, *, rng: np.random.Generator) -> Interval:
    """Percentile bootstrap interval of a mean, from 2,000 resamples; unknown for a single value.

    Examples
    --------
    >>> interval = bootstrap_mean([1.0, 2.0, 3.0, 4.0], rng=np.random.default_rng(0))
    >>> 1.0 <= interval.low < 2.5 < interval.high <= 4.0
    True
    """
    require_generator(rng)
    values = finite_vector("values", values)
    sums = resampled_sums(values[:, None], rng=rng, n_resamples=N_RESAMPLES)
    return percentile_interval(sums[:, 0] / len(values), n_rows=len(values))


def bootstrap_ratio(
    numerators: ArrayLike, denominators: ArrayLike, *, rng: np.random.Generator, n_resamples: int = N_RESAMPLES
) -> Interval:
    """Percentile bootstrap interval of √(Σ numerators / Σ denominators), a relative error over rows.

    Resamples whose denominators sum to zero have no ratio and are left out; without any other, or with a single row,
    the interval is unknown.

    Parameters
    ----------
    numerators, denominators : array of shape (n,)
        Squared errors and squared sizes, one each a row.

    Examples
    --------
    >>> interval = bootstrap_ratio([4.0, 4.0], [1.0, 1.0], rng=np.random.default_rng(0))
    >>> interval.low, interval.high
    (2.0, 2.0)
    """
    require_generator(rng)
    numerators, denominators = finite_vector("numerators", numerators), finite_vector("denominators", denominators)
    if len(numerators) != len(denominators):
        expected, got = f"as long as the {len(numerators)} numerators", f"{len(denominators)} values"
        raise InputError("denominators", expected=expected, got=got, cure="Pass one of each a row.")
    for what, values in (("numerators", numerators), ("denominators", denominators)):
        if (values < 0).any():
            raise InputError(
                what, expected="squares, so not negative", got="negative values", cure="Square them first."
            )
    sums = resampled_sums(np.column_stack([numerators, denominators]), rng=rng, n_resamples=n_resamples)
    defined = sums[:, 1] > 0
    return percentile_interval(np.sqrt(sums[defined, 0] / sums[defined, 1]), n_rows=len(numerators))


def mean_ratio(
    numerators: Matrix, denominators: Matrix, *, clusters: ArrayLike | None = None, pseudo_rows: float = 0.0
) -> tuple[float, float, int]:
    """The mean over columns of Σ numerators / Σ denominators, its standard error by linearisation, and the sample's size.

    Linear in the numerators, so numerators that are paired differences give the difference of two such means.

    Returns
    -------
    value, error : float
        NaN without any column; an error of NaN for a single row or cluster.
    n : int
        Rows, or clusters.

    Examples
    --------
    >>> value, error, n = mean_ratio(np.array([[1.0], [0.0], [1.0], [0.0]]), np.ones((4, 1)))
    >>> value, round(error, 4), n
    (0.5, 0.2887, 4)
    """
    codes = np.arange(len(numerators)) if clusters is None else np.unique(np.asarray(clusters), return_inverse=True)[1]
    n = int(codes.max(initial=-1)) + 1
    totals = denominators.sum(axis=0)
    used = totals > 0
    if not used.any():
        return math.nan, math.nan, n
    totals = totals[used]
    ratios = numerators[:, used].sum(axis=0) / totals
    influence = ((numerators[:, used] - ratios * denominators[:, used]) / totals).mean(axis=1)
    squares = float((np.bincount(codes, weights=influence, minlength=n) ** 2).sum())
    added = pseudo_rows * float(((len(codes) / n / totals) ** 2).mean()) / len(totals) ** 2
    error = math.sqrt(squares * n / (n - 1) + added) if n > 1 else math.nan
    return float(ratios.mean()), error, n


def student_interval(value: float, error: float, *, n: int) -> Interval:
    """Student's interval of an estimate with a standard error over `n` rows or clusters; unknown where the error is NaN."""
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * error
    return Interval(value - half, value + half)


def resampled_sums(columns: Matrix, *, rng: np.random.Generator, n_resamples: int) -> Matrix:
    """Sum each column over rows drawn with replacement, `n_resamples` times: shape (n_resamples, n_columns)."""
    require_minimum("n_resamples", n_resamples, 1)
    n_rows = len(columns)
    shares, block = np.full(n_rows, 1.0 / n_rows), max(1, BLOCK_NUMBERS // n_rows)
    sizes = [min(block, n_resamples - start) for start in range(0, n_resamples, block)]
    return np.concatenate([rng.multinomial(n_rows, shares, size=size).astype(np.float64) @ columns for size in sizes])


def percentile_interval(estimates: Matrix, *, n_rows: int) -> Interval:
    """The interval that cuts equal tails off bootstrap estimates of `n_rows` rows; one row alone cannot give any."""
    if n_rows < 2 or len(estimates) == 0:
        return Interval.unknown()
    low, high = np.quantile(estimates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(low, high)


def _require_counts(successes: float, trials: int) -> None:
    require_minimum("trials", trials, 1)
    if not 0 <= successes <= trials:
        raise InputError(
            "successes", expected=f"between 0 and trials = {trials}", got=f"{successes:g}", cure="Count them again."
        )
