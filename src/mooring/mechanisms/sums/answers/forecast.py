"""A forecast, before anybody shares, of how wide the interval of each answer will be, and which answers will be refused.

A forecast computes the answers from an expected total, which has sums without noise but states the variance of the noise to
come. The widths of the intervals of these answers are the forecast. The expected total is either that of known rows, or it
is invented from the declaration alone (`invent_total`). In an invented total, columns are independent and nothing is
missing, categories are equally frequent, numbers have a bell curve whose standard deviation is an eighth of the declared
range, and half of the rows would have survival's event by the last interval if no row were censored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mooring.errors import InputError
from mooring.mechanisms.sums.answers.answer import write_number
from mooring.mechanisms.sums.answers.association import associate
from mooring.mechanisms.sums.answers.description import ALL_ROWS, describe
from mooring.mechanisms.sums.answers.readings import read_products
from mooring.mechanisms.sums.answers.regression import regress
from mooring.mechanisms.sums.answers.survival import estimate_survival
from mooring.mechanisms.sums.general.levels import Levels
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.mechanisms.sums.general.workload import Workload
from mooring.serialization import Count, FloatOrNaN, Record, Rows
from mooring.typing import Vector

ASSUMED = (
    "Assumed of the rows, which nobody has looked at: categories are equally frequent, numbers have a standard deviation of "
    "an eighth of their declared range, columns are independent, and nothing is missing. Rare levels and wider ranges have "
    "wider intervals."
)
POINTS, DEVIATIONS, TIMES = "points", "standard deviations", "times"
_SPREAD = 1 / 8  # standard deviation of a number, in units of its range
_EVENTS, _CENSORED = 0.5, 0.2  # shares by the last interval: of events without censoring, of censorings without events
_GRID = 4_001
_TERMS = (1, 2, 4, 8)  # numbers of other columns in the regressions that are tried
_MOST_COEFFICIENTS = 30  # a regression with more coefficients would take long to forecast
_MOST_PAIRED = 5  # the most columns whose correlations are forecast
_MOST_ROWS = 10**9


@dataclass(frozen=True)
class ForecastLine(Record):
    """The forecast of one kind of answer."""

    question: str
    """The question of a study to which the answer belongs: "tables", "regression" or "survival"."""
    answer: str
    """Name of the kind of answer."""
    half_width: FloatOrNaN
    """Median, over columns and levels, of half the width of the 95 % interval; NaN if the answer is refused."""
    unit: str
    """The unit of the half width; empty for correlations. With "times", the answer is a ratio: its interval reaches from the
    ratio divided by the half width to the ratio multiplied by the half width."""
    rows_needed: Count | None = None
    """Minimum number of rows with which the answer is not refused. None if the answer is not refused, or if it would be
    refused with any number of rows."""

    @property
    def is_refused(self) -> bool:
        """Whether the answer is refused."""
        return math.isnan(self.half_width)

    def __str__(self) -> str:
        if self.is_refused:
            return "refused" + (f"; from about {self.rows_needed:,} rows on" if self.rows_needed else "")
        if self.unit == TIMES:
            return f"×/÷ {write_number(self.half_width)}"
        return f"± {write_number(self.half_width, 2)} {self.unit}".rstrip()


@dataclass(frozen=True)
class AnswerForecast(Record):
    """How wide the intervals of a study's answers will be."""

    rows: Count
    """The number of rows that all participants together are expected to have."""
    lines: tuple[ForecastLine, ...]

    def list_table(self) -> Rows:
        """Return a table with a line per kind of answer."""
        return [("answer", "95 % interval"), *((line.answer, str(line)) for line in self.lines)]


def forecast_answers(workload: Workload, noise_variance: float, n_rows: int) -> AnswerForecast:
    """Return how wide the interval of each answer will be, from the declaration alone.

    Parameters
    ----------
    workload : Workload
        The columns that the study declares, from `make_workload`.
    noise_variance : float
        The variance of all contributions' noise, as in `PairwiseTotal`.
    n_rows : int
        The number of rows that all participants together are expected to have.

    Returns
    -------
    AnswerForecast
    """
    return forecast_total(invent_total(workload, n_rows, noise_variance))


def forecast_total(total: PairwiseTotal) -> AnswerForecast:
    """Return how wide intervals will be if the sums are those of `total`, with noise of the variance that it states.

    Parameters
    ----------
    total : PairwiseTotal
        The expected sums without noise, with the variance of the noise to come.

    Returns
    -------
    AnswerForecast
    """
    return AnswerForecast(round(total.n_rows), tuple(_forecast(total, question) for question in _list_questions(total)))


def invent_total(workload: Workload, n_rows: float, noise_variance: float) -> PairwiseTotal:
    """Return the total that is expected for these columns; the module states what is assumed of the rows."""
    margins, bubbles = [np.ones(1)], []
    for levels in workload.columns:
        margin, bubble = _invent_margin(levels)
        margins.append(margin)
        bubbles += [] if levels.is_exact else [n_rows * bubble]
    shares = np.concatenate(margins)
    matrix = workload.assemble(n_rows * np.outer(shares, shares), np.array(bubbles))
    return PairwiseTotal(workload, matrix, noise_variance)


def find_most_columns(workload: Workload, noise_variance: float, n_rows: int, question: str) -> int:
    """Return the largest number of columns besides the outcomes with which a question's first answer is not refused.

    Columns are left out one by one, from the last one on. The workload with all columns is not tried. 0 is returned if no
    such number of columns is small enough.
    """
    others = [levels.name for levels in workload.columns if levels.name not in workload.outcomes]
    for n_columns in range(len(others) - 1, 0, -1):
        narrow = workload.narrow(others[:n_columns])
        variance = noise_variance * narrow.sensitivity_squared / workload.sensitivity_squared
        total = invent_total(narrow, n_rows, variance)
        first = next((asked for asked in _list_questions(total) if asked.question == question), None)
        if first is not None and not math.isnan(first.find(total)):
            return n_columns
    return 0


def _invent_margin(levels: Levels) -> tuple[Vector, float]:
    """Return the expected weight of a row on each level, and the expected 4t(1 − t), for t the place between two nodes."""
    n_known = levels.n_levels - levels.has_missing
    if levels.kind == "survival":
        return _invent_survival(levels), 0.0
    if not levels.nodes:
        shares = np.full(n_known, 1 / n_known)
        return np.append(shares, [0.0] * levels.has_missing), 0.0
    last = n_known - 1
    place = np.arange(n_known, dtype=np.float64) if levels.is_exact else np.linspace(0, last, _GRID)
    density = np.exp(-((place / last - 0.5) ** 2) / (2 * _SPREAD**2))
    density /= density.sum()
    below = np.minimum(place.astype(np.int64), last - 1)
    t, shares = place - below, np.zeros(levels.n_levels)
    np.add.at(shares, below, density * (1 - t))
    np.add.at(shares, below + 1, density * t)
    return shares, float((density * 4 * t * (1 - t)).sum())


def _invent_survival(levels: Levels) -> Vector:
    n_intervals = (levels.n_levels - levels.has_missing - 1) // 2
    stays, seen = (1 - share for share in (_EVENTS, _CENSORED))
    event, censored = 1 - stays ** (1 / n_intervals), 1 - seen ** (1 / n_intervals)
    shares, left = np.zeros(levels.n_levels), 1.0
    for k in range(n_intervals):
        shares[2 * k] = left * event
        shares[2 * k + 1] = left * (1 - event) * censored
        left -= shares[2 * k] + shares[2 * k + 1]
    shares[2 * n_intervals] = left
    return shares


@dataclass(frozen=True, eq=False)
class _Asked:
    """One line of a forecast, with the function that finds its half width in an expected total."""

    question: str
    answer: str
    unit: str
    half_width: Callable[[PairwiseTotal], float]

    def find(self, total: PairwiseTotal) -> float:
        """Return the half width; NaN if the answer is refused."""
        try:
            return self.half_width(total)
        except InputError:
            return math.nan


def _forecast(total: PairwiseTotal, asked: _Asked) -> ForecastLine:
    half_width = asked.find(total)
    needed = _find_rows_needed(total, asked) if math.isnan(half_width) else None
    return ForecastLine(asked.question, asked.answer, half_width, asked.unit, needed)


def _find_rows_needed(total: PairwiseTotal, asked: _Asked) -> int | None:
    """Return the minimum number of rows with which an answer is given, to two significant digits; None if none suffices."""

    def is_given(factor: float) -> bool:
        return not math.isnan(asked.find(replace(total, matrix=factor * total.matrix)))

    low, high = 1.0, 2.0
    while not is_given(high):
        low, high = high, 2 * high
        if high * total.n_rows > _MOST_ROWS:
            return None
    while high > 1.05 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_given(middle) else (middle, high)
    needed = high * total.n_rows
    unit: int = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    return math.ceil(needed / unit) * unit


def _list_questions(total: PairwiseTotal) -> Iterator[_Asked]:
    yield from _list_tables(total.workload)
    yield from _list_regressions(total)
    yield from _list_survival(total.workload)


def _list_tables(workload: Workload) -> Iterator[_Asked]:
    described = [levels for levels in workload.columns if levels.kind != "survival"]
    categories = [levels.name for levels in described if not levels.nodes]
    numbers = [levels for levels in described if levels.nodes]
    group = _choose_group(workload)
    if categories:
        yield _Asked("tables", "share of a category", POINTS, partial(_find_share, columns=categories))
    if numbers:
        yield _Asked("tables", "mean of a number", DEVIATIONS, partial(_find_mean, numbers=numbers))
    if within := [name for name in categories if name != group]:
        ask = partial(_find_share, columns=within, by=group)
        yield _Asked("tables", f"share in a group by {group}", POINTS, ask)
    if group and numbers:
        yield _Asked(
            "tables", f"mean in a group by {group}", DEVIATIONS, partial(_find_mean, numbers=numbers, by=group)
        )
    if len(numbers) > 1:
        paired = [levels.name for levels in numbers][:_MOST_PAIRED]
        yield _Asked("tables", "correlation of two numbers", "", partial(_find_correlation, columns=paired))


def _choose_group(workload: Workload) -> str:
    """Return the column that forms groups: the label if it has classes, otherwise the category with fewest levels."""
    groups = [levels for levels in workload.columns if levels.kind == "category"]
    return min(groups, key=lambda levels: (levels.name != workload.label, levels.n_levels)).name if groups else ""


def _find_share(total: PairwiseTotal, columns: Sequence[str], by: str = "") -> float:
    statistics = describe(total, by=by, columns=columns).statistics
    entries = [entry for entry in statistics if entry.statistic == "share" and (entry.group == ALL_ROWS) == (not by)]
    known = [50 * (entry.high - entry.low) for entry in entries if not math.isnan(entry.estimate)]
    return _find_median(known, len(entries))


def _find_mean(total: PairwiseTotal, numbers: Sequence[Levels], by: str = "") -> float:
    """Return the median half width of means, in units of the standard deviation over all rows."""
    known, n_entries = list[float](), 0
    for levels in numbers:
        statistics = describe(total, by=by, columns=[levels.name]).statistics
        entries = [entry for entry in statistics if entry.statistic == "mean" and (entry.group == ALL_ROWS) == (not by)]
        deviation = _find_deviation(total, levels)
        known += [(entry.high - entry.low) / 2 / deviation for entry in entries if not math.isnan(entry.estimate)]
        n_entries += len(entries)
    return _find_median(known, n_entries)


def _find_median(known: Sequence[float], n_entries: int) -> float:
    """Return the median of the known widths; NaN unless these are more than half of all entries."""
    return float(np.median(known)) if 2 * len(known) > n_entries else math.nan


def _find_deviation(total: PairwiseTotal, levels: Levels, level: str = "") -> float:
    """Return the standard deviation of a number, or of the indicator of a level, from sums without noise."""
    workload = total.workload
    function = workload.indicator(levels.name, level) if level else workload.number(levels.name)
    known = workload.present(levels.name)
    pairs = [(function, function), (function, workload.constant), (known, workload.constant)]
    squares, mean, n = read_products(total, pairs).values
    return math.sqrt(max(squares / n - (mean / n) ** 2, 1e-12))


def _find_correlation(total: PairwiseTotal, columns: Sequence[str]) -> float:
    pairs = associate(total, columns).correlations
    return _find_median([(pair.high - pair.low) / 2 for pair in pairs], len(columns) * (len(columns) - 1) // 2)


def _list_regressions(total: PairwiseTotal) -> Iterator[_Asked]:
    """Yield the largest regression that is answered, its odds ratios (for a category), and the first that is refused."""
    workload = total.workload
    if not workload.has_regressions:
        return
    outcome = min(workload.regression_outcomes, key=lambda levels: levels.name != workload.label)
    terms = [levels for levels in workload.regressed if levels.name != outcome.name]
    answered, refused = None, None
    for n_terms in dict.fromkeys(min(n, len(terms)) for n in _TERMS):
        chosen = terms[:n_terms]
        if sum(1 if levels.nodes else levels.n_levels - 1 for levels in chosen) > _MOST_COEFFICIENTS:
            break
        on = f"{outcome.name} against {n_terms} other column{'s' if n_terms > 1 else ''}"
        ask = partial(_find_coefficient, outcome=outcome, terms=chosen)
        asked = _Asked("regression", f"regression of {on}, per standard deviation", DEVIATIONS, ask)
        if math.isnan(asked.find(total)):
            refused = asked
            break
        odds = _Asked(
            "regression",
            f"odds ratio of {on}, per standard deviation",
            TIMES,
            partial(_find_ratio, ask=ask, outcome=outcome),
        )
        answered = (asked,) if outcome.nodes else (asked, odds)
    yield from answered or ()
    if refused is not None:
        yield refused


def _find_coefficient(total: PairwiseTotal, outcome: Levels, terms: Sequence[Levels]) -> float:
    """Return the median half width of coefficients: standard deviations of the outcome per standard deviation of a term."""
    answer = regress(total, f"{_write_term(outcome)} ~ {' + '.join(map(_write_term, terms))}")
    known = {levels.name: levels for levels in terms} | {f"log({levels.name})": levels for levels in terms}
    of_outcome = _find_deviation(total, outcome, "" if outcome.nodes else outcome.names[1])
    widths = [
        (term.high - term.low) / 2 * _find_deviation(total, known[term.term], term.level) / of_outcome
        for term in answer.terms[1:]
    ]
    return _find_median(widths, len(widths))


def _find_ratio(total: PairwiseTotal, ask: Callable[[PairwiseTotal], float], outcome: Levels) -> float:
    """Return the factor by which an odds ratio's interval reaches up and down.

    If there is hardly any effect, the log odds ratio is the coefficient of the linear regression divided by p(1 − p), the
    variance of the outcome. The error of the log odds ratio is that of the coefficient divided by the same number.
    """
    return math.exp(min(ask(total) / _find_deviation(total, outcome, outcome.names[1]), 700.0))


def _write_term(levels: Levels) -> str:
    """Return a column as it is written in a formula."""
    return f"log(`{levels.name}`)" if levels.is_log else f"`{levels.name}`"


def _list_survival(workload: Workload) -> Iterator[_Asked]:
    if (survival := workload.survival) is None:
        return
    middle, last = survival.edges[(survival.n_intervals + 1) // 2], survival.edges[-1]
    for end in dict.fromkeys((middle, last)):
        yield _Asked("survival", f"share that survives {end:g}", POINTS, partial(_find_survival, end=end))
    if group := _choose_group(workload):
        name = f"share that survives {last:g} in a group by {group}"
        yield _Asked("survival", name, POINTS, partial(_find_survival, end=last, by=group))


def _find_survival(total: PairwiseTotal, end: float, by: str = "") -> float:
    points = [point for point in estimate_survival(total, by=by).points if point.end == end]
    return _find_median([50 * (point.high - point.low) for point in points], len(points))
