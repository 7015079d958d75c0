"""The contract of an answer that is read off the general total of a study."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import bdtr

from mooring.errors import InputError
from mooring.mechanisms.sums.answers.answer import Answer, make_frame
from mooring.mechanisms.sums.general.survival import Survival
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.mechanisms.sums.general.workload import Workload, make_workload
from mooring.mechanisms.sums.guarantee import calibrate_multiplier
from mooring.tables.schema import Column, Label, Schema
from mooring.testing.contract import require
from mooring.typing import Matrix, Vector

_SCHEMA = Schema(
    (
        Column("age", "integer", 18, 90),
        Column("bmi", "number", 15, 55),
        Column("crp", "number", 0.1, 300),
        Column("children", "integer", 0, 4),
        Column("sex", "category", categories=("f", "m")),
        Column("ward", "category", categories=("a", "b", "c")),
        Column("months", "number", 0, 60),
        Column("status", "category", categories=("alive", "dead")),
    ),
    Label("ill", "classes", ("no", "yes")),
)
_SURVIVAL = Survival("months", "status", "dead", tuple(6.0 * k for k in range(9)))
_N_POPULATION, _N_ROWS, _DELTA = 2_000, 6_000, 1e-5
_CHANCE = 1e-4  # of a false alarm, for an interval that covers in exactly 93 % of draws
_LEAST_COVERAGE, _MOST_COVERAGE = 0.93, 0.98


def check_answer(
    ask: Callable[[PairwiseTotal], Answer],
    *,
    oracle: Callable[[Any], Mapping[str, float]] | None = None,
    n_draws: int = 100,
    epsilon: float = 1.0,
) -> None:
    """Check that an answer keeps the contract that every answer of mooring keeps.

    The answer is computed from totals of an invented population. Its columns are the numbers age, bmi, crp (on a logarithmic
    scale) and children, the categories sex, ward and ill, and survival by months and status. Without noise, the answer must
    equal its oracle. With noise, its 95 % intervals must cover the population's values in 93 to 98 % of draws of rows and
    noise, up to binomial error. The answer must be unchanged after it is written as JSON and read back, and depend on
    nothing but the total. Where noise exceeds all counts, it must be refused or have only NaN as estimates.

    Parameters
    ----------
    ask : callable
        Returns the answer for a total.
    oracle : callable, optional
        Returns estimates by the names of `Answer.list_estimates` for a pandas DataFrame of the rows.
    n_draws : int, default 100
        Number of draws of rows and noise. An interval is checked if at least half of the draws show it. Its coverage must
        reach a threshold that an interval with a true coverage of 93 % misses with a probability of at most 1 in 10,000.
        The mean coverage may exceed 98 % by three standard errors.
    epsilon : float, default 1.0
        ε of the noise on each draw of 6,000 rows, with δ = 10⁻⁵ for adding or removing one row.

    Raises
    ------
    AssertionError
        If the answer breaks the contract; the message says where.
    """
    exact = population().draw(np.random.default_rng(0))
    answer = ask(exact)
    require(isinstance(answer, Answer), "An answer must derive from Answer.")
    before = exact.matrix.copy()
    require(ask(exact).as_dict() == answer.as_dict(), "An answer must be the same for the same total.")
    require(np.array_equal(exact.matrix, before), "An answer must leave the total unchanged.")
    again = type(answer).from_json(answer.to_json())
    require(again.as_dict() == answer.as_dict(), "An answer must be read back from JSON as it was.")
    require(answer.source.rows == exact.n_rows, "An answer must state the number of rows of its total.")
    require(answer.list_tables(), "An answer must have a table.")
    if oracle is not None:
        _check_oracle(answer, oracle(population().frame(np.random.default_rng(0))))
    _check_coverage(ask, n_draws, epsilon)
    _check_refusal(ask)


def _check_oracle(answer: Answer, expected: Mapping[str, float]) -> None:
    values = answer.list_estimates()
    require(expected, "The oracle has no values.")
    for name, value in expected.items():
        require(name in values, f"The answer has no estimate {name!r}. It has {', '.join(values)}.")
        near = math.isclose(values[name][0], value, rel_tol=1e-9, abs_tol=1e-9)
        require(near, f"Without noise, {name} must be {value}, got {values[name][0]}.")


def _check_coverage(ask: Callable[[PairwiseTotal], Answer], n_draws: int, epsilon: float) -> None:
    coverage = measure_coverage(ask, n_draws=n_draws, epsilon=epsilon)
    require(coverage, f"The answer shows no estimate in any of {n_draws} draws of rows and noise.")
    for name, entry in coverage.items():
        n = entry.n_shown
        least = next(k for k in range(n + 1) if bdtr(k, n, _LEAST_COVERAGE) > _CHANCE) / max(n, 1)
        covered = f"covers the population's value in {entry.share:.1%} of the {n} draws that show it"
        require(
            entry.share >= least or n < n_draws / 2,
            f"The interval of {name} {covered}, below {least:.1%}.",
        )
    mean = float(np.mean([entry.share for entry in coverage.values()]))
    most = _MOST_COVERAGE + 3 * math.sqrt(_MOST_COVERAGE * (1 - _MOST_COVERAGE) / n_draws)
    require(mean <= most, f"Intervals cover in {mean:.1%} of draws, above {most:.1%}: they are too wide.")


@dataclass(frozen=True)
class Coverage:
    """How often an interval covers the population's value."""

    share: float
    """The share of intervals that cover the value, among the draws that show the estimate."""
    n_shown: int
    half_width: float
    """Median of half the interval's width."""


def measure_coverage(
    ask: Callable[[PairwiseTotal], Answer], *, n_draws: int, epsilon: float, n_rows: int = _N_ROWS
) -> dict[str, Coverage]:
    """Return the coverage of each estimate that was shown in at least one draw of rows and noise."""
    truth = ask(population().total).list_estimates()
    shown: dict[str, list[tuple[bool, float]]] = {name: [] for name in truth}
    for seed in range(n_draws):
        try:
            answer = ask(draw_total(seed, epsilon, n_rows))
        except InputError:
            continue
        for name, (value, low, high) in answer.list_estimates().items():
            if not math.isnan(value) and name in truth:
                shown[name].append((low <= truth[name][0] <= high, (high - low) / 2))
    return {
        name: Coverage(float(np.mean([hit for hit, _ in draws])), len(draws), float(np.median([w for _, w in draws])))
        for name, draws in shown.items()
        if draws
    }


def measure_false_alarms(*, n_draws: int, epsilon: float, n_rows: int = _N_ROWS, level: float = 0.05) -> float:
    """Return the share of draws in which the log-rank test rejects at a level, although groups have the same survival.

    The sex of each row that is drawn is chosen by a fair coin. A draw without a test counts as one that does not reject.
    """
    from mooring.mechanisms.sums.answers.survival import estimate_survival

    n_rejected = 0
    for seed in range(n_draws):
        rng = np.random.default_rng([2, seed])
        total = population().draw_with_coins("sex", rng, n_rows).with_noise(rng, _find_variance(epsilon))
        try:
            test = estimate_survival(total, by="sex").log_rank
        except InputError:
            continue
        n_rejected += test is not None and test.p < level
    return n_rejected / n_draws


def _check_refusal(ask: Callable[[PairwiseTotal], Answer]) -> None:
    try:
        answer = ask(draw_total(0, 0.001, 300))
    except InputError:
        return
    values = [value for value, _, _ in answer.list_estimates().values()]
    require(
        all(map(math.isnan, values)), "Where noise exceeds all counts, an answer must be refused or have no estimates."
    )


@lru_cache(maxsize=256)
def draw_total(seed: int, epsilon: float, n_rows: int) -> PairwiseTotal:
    """Return the total of rows that are drawn from the population, with the noise that ε = `epsilon` needs."""
    rng = np.random.default_rng([1, seed])
    total = population().draw(rng, n_rows).with_noise(rng, _find_variance(epsilon))
    return replace(total, epsilon=epsilon, delta=_DELTA)


@lru_cache(maxsize=8)
def _find_variance(epsilon: float) -> float:
    return population().workload.noise_variance(calibrate_multiplier(epsilon, _DELTA))


class _Population:
    """An invented population, of which tables are drawn with replacement."""

    def __init__(self) -> None:
        self.workload: Workload = make_workload(_SCHEMA, log_scaled=frozenset({"crp"}), survival=_SURVIVAL)
        self.values = _draw_population(np.random.default_rng(7))
        weights, self.curves = self.workload.weigh(_encode(self.values), self.values["ill"])
        self.levels: Matrix = np.hstack([np.ones((len(weights), 1)), weights])
        self.total = self._sum(np.ones(_N_POPULATION))

    def _sum(self, counts: Vector) -> PairwiseTotal:
        products = self.levels.T @ (counts[:, None] * self.levels)
        return PairwiseTotal(self.workload, self.workload.assemble(products, counts @ self.curves))

    def draw_counts(self, rng: np.random.Generator, n_rows: int = _N_ROWS) -> Vector:
        """Return how often each row of the population is drawn."""
        return rng.multinomial(n_rows, np.full(_N_POPULATION, 1 / _N_POPULATION)).astype(np.float64)

    def draw(self, rng: np.random.Generator, n_rows: int = _N_ROWS) -> PairwiseTotal:
        """Return the total of rows drawn with replacement, without noise."""
        return self._sum(self.draw_counts(rng, n_rows))

    def draw_with_coins(self, name: str, rng: np.random.Generator, n_rows: int) -> PairwiseTotal:
        """Return the total of rows drawn with replacement; each row's level of one column is then drawn at random."""
        index = next(k for k, levels in enumerate(self.workload.columns) if levels.name == name)
        n_levels = self.workload.columns[index].n_levels
        start = 1 + sum(levels.n_levels for levels in self.workload.columns[:index])
        counts = rng.multinomial(self.draw_counts(rng, n_rows).astype(np.int64), np.full(n_levels, 1 / n_levels))
        products = np.zeros((self.levels.shape[1],) * 2)
        for level, drawn in enumerate(counts.T.astype(np.float64)):
            rows = self.levels.copy()
            rows[:, start : start + n_levels] = np.eye(n_levels)[level]
            products += rows.T @ (drawn[:, None] * rows)
        curves = counts.sum(axis=1) @ self.curves
        return PairwiseTotal(self.workload, self.workload.assemble(products, curves))

    def frame(self, rng: np.random.Generator, n_rows: int = _N_ROWS) -> Any:
        """Return the rows that `draw` sums, as a pandas DataFrame."""
        import pyarrow as pa

        rows = np.repeat(np.arange(_N_POPULATION), self.draw_counts(rng, n_rows).astype(np.int64))
        words = {column.name: np.array(column.categories) for column in _SCHEMA.columns if column.categories}
        words["ill"] = np.array(_SCHEMA.label.classes)
        columns = {name: words[name][x[rows]] if name in words else x[rows] for name, x in self.values.items()}
        return make_frame(pa.table(columns))


@lru_cache(maxsize=1)
def population() -> _Population:
    """Return the population, which is made once."""
    return _Population()


def _draw_population(rng: np.random.Generator) -> dict[str, Any]:
    n = _N_POPULATION
    age = np.clip(np.rint(rng.normal(55, 14, n)), 18, 90).astype(int)
    sex, ward = rng.integers(2, size=n), rng.choice(3, n, p=[0.5, 0.35, 0.15])
    bmi = np.clip(22 + 0.06 * age + 1.5 * sex + 4 * rng.gamma(2, 0.8, n) - 6, 15, 55)
    crp = np.clip(np.exp(0.5 + 0.03 * (bmi - 25) + 0.3 * (ward == 2) + 0.9 * rng.standard_normal(n)), 0.1, 300)
    children = np.minimum(rng.poisson(1.1 + 0.4 * (age > 40)), 4)
    risk = -3 + 0.03 * age + 0.4 * np.log(crp) + 0.5 * sex + 0.3 * (ward == 1)
    ill = (rng.random(n) < 1 / (1 + np.exp(-risk))).astype(int)
    until = rng.exponential(60 * np.exp(-0.02 * (age - 55) - 0.5 * (ward == 2)))
    lost = rng.uniform(5, 90, n)
    months = np.minimum(np.minimum(until, lost), 60)
    status = ((until <= lost) & (until <= 60)).astype(int)
    names = ("age", "bmi", "crp", "children", "sex", "ward", "months", "status", "ill")
    return dict(zip(names, (age, bmi, crp, children, sex, ward, months, status, ill), strict=True))


def _encode(values: Mapping[str, Any]) -> Matrix:
    parts = [
        np.eye(len(column.categories))[values[column.name]]
        if column.categories
        else ((values[column.name] - column.centre) / column.spread)[:, None]
        for column in _SCHEMA.columns
    ]
    return np.hstack(parts)
