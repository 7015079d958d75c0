"""Figures of leakage and their confidence intervals.

A figure has a value and an interval. It is compared with the chance level, the control (an attacker without the upload, or
with an upload of other rows) and the floor (what the exact projected rows disclose).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtri, stdtrit

from mooring.errors import InputError
from mooring.metrics.validation import BLOCK_NUMBERS, finite_vector, require_minimum
from mooring.randomness import require_generator
from mooring.serialization import FloatOrNaN, Record
from mooring.typing import Indices, Matrix

# Figures that are not shares of rows, although a higher value is worse.
_NUMBERS = ("attribute", "empirical_epsilon", "median_r2", "membership_auc", "psnr", "ssim")
LEVEL = 0.95
"""The confidence level of every interval."""
N_RESAMPLES = 2000
"""Default number of bootstrap resamples."""


@dataclass(frozen=True)
class Interval(Record):
    """A confidence interval. NaN bounds mean that the data, for instance a single row, do not determine an interval.

    Examples
    --------
    >>> 0.5 in Interval(0.25, 0.75)
    True
    """

    low: FloatOrNaN
    high: FloatOrNaN
    level: float = LEVEL

    def __post_init__(self) -> None:
        for name in ("low", "high", "level"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if not 0 < self.level < 1:
            got = f"{self.level:g}"
            raise InputError("level", expected="strictly between 0 and 1", got=got, cure="Pass 0.95, for instance.")
        if self.low > self.high or math.isnan(self.low) != math.isnan(self.high):
            raise InputError(
                "low",
                expected=f"at most high = {self.high:g}, or both must be NaN",
                got=f"{self.low:g}",
                cure="Pass the smaller bound as low, and NaN for both bounds or for neither.",
            )

    @classmethod
    def unknown(cls) -> Interval:
        """Return the interval for data that do not determine one."""
        return cls(math.nan, math.nan)

    @property
    def known(self) -> bool:
        """Whether the interval has bounds."""
        return not math.isnan(self.low)

    def round_outwards(self, n_decimals: int) -> Interval:
        """Return the interval with its low end rounded down and its high end rounded up, so that it covers this one."""
        ends = (round_number(self.low, n_decimals, ROUND_FLOOR), round_number(self.high, n_decimals, ROUND_CEILING))
        return Interval(*ends, self.level)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Written:
    """A measurement as text, with its interval and levels. An unknown value is '–', and any other unknown field is None."""

    value: str
    interval: tuple[str, str] | None
    chance: str | None = None
    control: str | None = None
    floor: str | None = None


@dataclass(frozen=True)
class Figure(Record):
    """One figure of leakage, with the levels to compare it with.

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
    value: FloatOrNaN
    """The measurement; NaN where it is undefined."""
    interval: Interval
    chance: float | None
    """The score of guessing."""
    control: float | None
    """The score of an attacker without the upload, or with an upload of other rows."""
    floor: float | None
    """The score of the exact projected rows, where only the projection protects. The floor of records depends on the
    decoder; a better decoder may recover more."""
    n: int
    """The number of independent rows, images or queries that the value is computed from."""
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
                raise InputError(
                    name,
                    expected="finite, or NaN where undefined",
                    got="Inf",
                    cure="Limit the measure to finite values.",
                )
        require_minimum("n", self.n, 1)

    def with_interval(self) -> str:
        """Return the value as text, followed by its interval if it has one."""
        text = self.describe()
        return text.value if text.interval is None else f"{text.value} [{text.interval[0]}, {text.interval[1]}]"

    @property
    def is_share(self) -> bool:
        """Whether the value is a share of rows, which is written as a percentage."""
        return self.higher_is_worse and self.name not in _NUMBERS

    def describe(self) -> Written:
        """Return value, interval, chance, control and floor as text (`Written`)."""
        n_decimals = 1 if self.name == "psnr" else 2
        if self.is_share:
            n_decimals = 4 if "0.1_percent" in self.name else 3
        digits = f".{n_decimals - 2}%" if self.is_share else f".{n_decimals}f"

        def written(value: float | None) -> str | None:
            return None if value is None or math.isnan(value) else f"{value:{digits}}"

        ends = self.interval.round_outwards(n_decimals)
        interval = (written(ends.low) or "", written(ends.high) or "") if ends.known else None
        levels = (written(level) for level in (self.chance, self.control, self.floor))
        return Written(written(self.value) or "–", interval, *levels)


def round_number(number: float, n_decimals: int, rounding: str) -> float:
    """Return a number rounded in a mode of `decimal`, after errors of representation are removed; NaN stays NaN."""
    if math.isnan(number):
        return number
    return float(Decimal(repr(round(float(number), 12))).quantize(Decimal(1).scaleb(-n_decimals), rounding=rounding))


def strongest_value(values: ArrayLike, *, higher_is_worse: bool) -> Matrix:
    """Return the highest value over attacks, or the lowest one of errors; NaN if no attack has a value.

    Values are of shape (n_attacks, …), with NaN where an attack was not run.
    """
    strongest = np.fmax if higher_is_worse else np.fmin  # unlike nanmax, these do not warn if no attack has a value
    return np.asarray(strongest.reduce(values, axis=0, initial=math.nan), dtype=np.float64)


def wilson(successes: float, trials: int) -> Interval:
    """Return Wilson's score interval of a proportion. Successes may be fractional, if ties count fractionally.

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
    """Return the exact Clopper–Pearson interval of a proportion; each bound holds with a probability of at least 97.5 %.

    Examples
    --------
    >>> interval = clopper_pearson(0, 100)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.0, 0.0362)
    """
    _require_counts(successes, trials)
    counts = np.array(successes)
    return Interval(float(lower_bounds(counts, trials, LEVEL)), float(upper_bounds(counts, trials, LEVEL)))


def lower_bounds(successes: Matrix | Indices, trials: int, level: float) -> Matrix:
    """Return the lower Clopper–Pearson bound for each count out of `trials`."""
    low = betaincinv(np.maximum(successes, 1), trials - successes + 1, (1 - level) / 2)
    return np.where(successes == 0, 0.0, low)


def upper_bounds(successes: Matrix | Indices, trials: int, level: float) -> Matrix:
    """Return the upper Clopper–Pearson bound for each count out of `trials`."""
    high = betaincinv(successes + 1, np.maximum(trials - successes, 1), 1 - (1 - level) / 2)
    return np.where(successes == trials, 1.0, high)


def bootstrap_mean(values: ArrayLike, *, rng: np.random.Generator) -> Interval:
    """Return the percentile bootstrap interval of a mean, from 2,000 resamples; unknown for a single value.

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
    """Return the percentile bootstrap interval of √(Σ numerators / Σ denominators), a relative error over rows.

    Resamples whose denominators sum to zero are left out. If none remains, or there is only one row, the interval is
    unknown.

    Parameters
    ----------
    numerators, denominators : array of shape (n,)
        Squared error and squared size of each row.

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
        raise InputError(
            "denominators", expected=expected, got=got, cure="Pass one numerator and one denominator per row."
        )
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
    """Return the mean over columns of Σ numerators / Σ denominators, its standard error, and the number of rows or clusters.

    Numerators and denominators are of shape (n, k); columns whose denominators sum to zero are left out. The mean is linear
    in the numerators, so paired differences give the difference of two such means. The standard error is linearised. Rows of
    one cluster may depend on each other. `pseudo_rows` adds discordant rows to the variance only, so that rows which all
    agree have a positive error. For one column, `pseudo_rows` of 1 gives the interval of Agresti and Min (2005) for paired
    proportions, without its shrunken centre. Value and error are NaN if no column remains; the error is also NaN for a
    single row or cluster.

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
    """Return Student's interval of an estimate with a standard error over `n` rows; unknown if the error is NaN."""
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * error
    return Interval(value - half, value + half)


def resampled_sums(
    columns: Matrix, *, rng: np.random.Generator, n_resamples: int, block_numbers: int = BLOCK_NUMBERS
) -> Matrix:
    """Return the sums of each column over rows drawn with replacement, of shape (n_resamples, n_columns).

    Resamples are drawn in blocks of at most `block_numbers` counts of rows, or one by one if there are more rows than that.
    """
    require_minimum("n_resamples", n_resamples, 1)
    n_rows = len(columns)
    shares, block = np.full(n_rows, 1.0 / n_rows), max(1, block_numbers // n_rows)
    sizes = [min(block, n_resamples - start) for start in range(0, n_resamples, block)]
    return np.concatenate([rng.multinomial(n_rows, shares, size=size).astype(np.float64) @ columns for size in sizes])


def percentile_interval(estimates: Matrix, *, n_rows: int) -> Interval:
    """Return the interval between equal tails of bootstrap estimates; unknown without estimates or with a single row."""
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
