"""Moments of two columns are those of the rows, and the interval of their correlation is the profile that is stated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq, minimize

from mooring.mechanisms.sums.answers.correlation import Moments, find_correlation_interval, read_moments
from mooring.mechanisms.sums.answers.readings import Readings, Z
from mooring.mechanisms.sums.general.total import PairwiseTotal, sum_exactly
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.tables.schema import Column, Schema
from mooring.typing import Matrix, Vector
from tests.mechanisms.sums.answers.support import differentiate

SCHEMA = Schema(
    (
        Column("visits", "integer", 0, 4, missing="indicate"),
        Column("falls", "integer", 1, 6, missing="indicate"),
        Column("sex", "category", categories=("f", "m")),
    )
)
WORKLOAD = make_workload(SCHEMA)


def draw_columns(seed: int = 0, n: int = 300) -> dict[str, Vector]:
    """Skewed columns that go together; NaN where a number is missing."""
    rng = np.random.default_rng(seed)
    visits = np.minimum(rng.poisson(1.2, n), 4).astype(float)
    falls = np.minimum(1 + rng.poisson(0.3 + 0.7 * visits), 6).astype(float)
    sex = (rng.random(n) < 0.2 + 0.1 * visits).astype(float)
    visits[rng.random(n) < 0.15], falls[rng.random(n) < 0.25] = np.nan, np.nan
    return {"visits": visits, "falls": falls, "sex": sex}


def sum_columns(columns: dict[str, Vector]) -> PairwiseTotal:
    parts = []
    for column in SCHEMA.columns:
        values = columns[column.name]
        if column.kind == "category":
            parts.append(np.eye(2)[values.astype(int)])
            continue
        gone = np.isnan(values)
        parts.append(np.column_stack([np.where(gone, 0, (values - column.centre) / column.spread), gone]))
    return sum_exactly(WORKLOAD, np.hstack(parts))


def moments_of(total: PairwiseTotal, first: str, second: str) -> Moments:
    moments = read_moments(total, total.workload.column(first), total.workload.column(second))
    assert isinstance(moments, Moments)
    return moments


@pytest.mark.parametrize(("first", "second"), [("visits", "falls"), ("falls", "visits"), ("sex", "falls")])
def test_moments_are_those_of_the_rows(first: str, second: str) -> None:
    """The covariance is of the rows in which both values are known, a variance of all known values of its column."""
    columns = draw_columns()
    moments = moments_of(sum_columns(columns), first, second)
    x, y = (2 * columns[name] / {"visits": 4, "falls": 5, "sex": 2}[name] for name in (first, second))  # ranges are 2
    known = ~np.isnan(x) & ~np.isnan(y)
    c, v, w = np.cov(x[known], y[known], bias=True)[0, 1], np.nanvar(x), np.nanvar(y)
    np.testing.assert_allclose(moments.readings.values, [c, v, w], rtol=1e-9)
    assert moments.n_rows == pytest.approx(known.sum())
    assert moments.correlation == pytest.approx(c / np.sqrt(v * w))
    r, a, b = moments.correlation, (x - np.nanmean(x)) / np.sqrt(v), (y - np.nanmean(y)) / np.sqrt(w)
    both = (1 + r**2 / 2) * np.nanmean(a**2 * b**2) - r * np.nanmean(a**3 * b + a * b**3)
    variance = both + r**2 / 4 * (np.nanmean(a**4) + np.nanmean(b**4))
    assert moments.kurtosis == pytest.approx(variance / (1 - r**2) ** 2, rel=1e-9)
    assert 0.4 < moments.kurtosis < 9


def test_the_noise_of_moments_is_that_of_the_delta_method() -> None:
    total = replace(sum_columns(draw_columns()), noise_variance=0.01)
    for pair in (("visits", "falls"), ("sex", "falls")):
        moments = moments_of(total, *pair)
        noise = differentiate(total, lambda moved, pair=pair: moments_of(moved, *pair).readings.values)
        np.testing.assert_allclose(moments.readings.noise, noise, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize(("together", "kurtosis"), [(0.02, 10.0), (-0.02, 1 / 3)])
def test_how_columns_vary_together_counts_within_limits(together: float, kurtosis: float) -> None:
    """Columns that leave their middle at once in 2 % of the rows, and never at once in 2 % of them each."""
    n = round(1000 * abs(together))
    middle, ends = np.full(1000, 2.0), np.repeat([0.0, 4.0], n // 2)
    visits, falls = middle.copy(), middle + 1.5
    visits[:n] = ends
    start = 0 if together > 0 else n
    falls[start : start + n] = np.tile([1.0, 6.0], n // 2)
    total = sum_columns({"visits": visits, "falls": np.rint(falls), "sex": 0 * visits})
    assert moments_of(total, "visits", "falls").kurtosis == kurtosis


def draw_between(widths: tuple[float, float], shared: float) -> PairwiseTotal:
    """Two numbers that vary over so much of their range, and whose places are shared to some part."""
    base = np.random.default_rng(1).uniform(-1, 1, (400, 3))
    rows = widths * ((1 - shared) * base[:, 1:] + shared * base[:, :1])
    return sum_exactly(make_workload(Schema(tuple(Column(name, "number", 0, 1) for name in "xy"))), rows)


def find_added(total: PairwiseTotal, name: str) -> float:
    """What hat functions add to the mean of squares of a column, in its variances."""
    number, constant = total.workload.number(name), total.workload.constant
    hats = total.workload.functional(name, number.values**2)
    pairs = ((hats, constant), (number, number), (number, constant))
    on_nodes, squares, mean = (total.estimate(total.workload.product(*pair)) / total.n_rows for pair in pairs)
    return (on_nodes - squares) / (squares - mean**2)


@pytest.mark.parametrize("shared", [0.0, 0.5])
def test_how_columns_vary_together_is_read_off_nodes_that_are_near_enough_for_both(shared: float) -> None:
    def draw(width: float) -> PairwiseTotal:
        return draw_between((width, width if shared else 1.0), shared)

    def is_read(width: float) -> float:
        return float(moments_of(draw(width), "x", "y").kurtosis != 1.0) - 0.5

    total = draw(brentq(is_read, 0.05, 1.0, xtol=1e-9))
    added = [find_added(total, name) for name in "xy"]
    r = moments_of(total, "x", "y").correlation
    uncertainty = 0.3 * added[0] * added[1] / (1 - r**2) ** 2
    limits = (uncertainty, max(added)) if shared else (max(added), uncertainty)
    assert limits[0] == pytest.approx(0.25 if shared else 1.0, rel=1e-6)
    assert limits[1] < (1.0 if shared else 0.25)


def find_kurtosis(a: Vector, b: Vector, least: float = 0.0) -> float:
    """κ of two columns of mean zero and variance one, divided by (1 − r²)², or by the square of what that is at least."""
    r = float(np.mean(a * b))
    return float(np.mean((a * b - r * (a**2 + b**2) / 2) ** 2) / max(1 - r**2, least) ** 2)


def test_how_columns_between_nodes_vary_together_is_that_of_the_rows() -> None:
    """Nodes are 1.2 standard deviations apart, so that hat functions add a quarter to a variance."""
    rng, n, r = np.random.default_rng(8), 20_000, 0.8
    size = rng.choice([0.15, 0.3], (n, 1))
    x, z = size.T * rng.normal(size=(2, n))
    rows = np.clip(np.column_stack([x, r * x + np.sqrt(1 - r**2) * z]), -1, 1)
    total = sum_exactly(make_workload(Schema(tuple(Column(name, "number", 0, 1) for name in "xy"))), rows)
    assert 0.15 < find_added(total, "x") < 0.3
    expected = find_kurtosis(*((rows - rows.mean(axis=0)) / rows.std(axis=0)).T)
    assert expected > 1.2
    assert moments_of(total, "x", "y").kurtosis == pytest.approx(expected, rel=0.03)


def test_how_columns_that_hardly_differ_vary_together_is_measured_as_if_they_differed_by_a_thousandth() -> None:
    x = np.repeat([0.0, 7.0], 2_500)
    y = x + np.where(np.arange(5_000) % 250 == 0, np.where(x > 0, -1.0, 1.0), 0.0)
    workload = make_workload(Schema(tuple(Column(name, "integer", 0, 7) for name in "xy")))
    moments = moments_of(sum_exactly(workload, np.column_stack([x, y]) / 3.5 - 1), "x", "y")
    a, b = ((values - values.mean()) / values.std() for values in (x, y))
    assert 1 - moments.correlation**2 < 1e-3
    assert moments.kurtosis == pytest.approx(find_kurtosis(a, b, least=1e-3), rel=1e-6)
    assert 1 / 3 < moments.kurtosis < 10


def test_how_equal_columns_vary_together_is_read_off_nodes_that_are_near_enough() -> None:
    """Few rows lie between nodes, as if the columns differed by a thousandth."""
    workload = make_workload(Schema(tuple(Column(name, "number", 0, 1) for name in "xy")))
    at_nodes, between = (
        sum_exactly(workload, np.repeat(places[:, None], 2, axis=1))
        for places in (np.repeat(np.linspace(-1, 1, 8), 50), np.linspace(-1, 1, 400))
    )

    def mix(share: float) -> PairwiseTotal:
        return replace(at_nodes, matrix=(1 - share) * at_nodes.matrix + share * between.matrix)

    share = brentq(lambda share: (moments_of(mix(share), "x", "y").kurtosis != 1.0) - 0.5, 0.0, 1.0, xtol=1e-12)
    assert find_added(mix(share), "x") == pytest.approx(1e-3 * np.sqrt(0.25 / 0.3), rel=1e-4)


def test_values_that_differ_by_a_millionth_of_their_range_are_the_same_without_noise() -> None:
    columns = draw_columns(n=400)
    same, different = (
        sum_columns(columns | {"visits": visits}) for visits in (np.full(400, 2.0), np.tile([0.0, 4.0], 200))
    )

    def is_read(share: float) -> bool:
        total = replace(same, matrix=(1 - share) * same.matrix + share * different.matrix)
        return isinstance(read_moments(total, *map(WORKLOAD.column, ("visits", "sex"))), Moments)

    share = np.exp(brentq(lambda log: is_read(np.exp(log)) - 0.5, np.log(1e-14), np.log(1e-10), xtol=1e-4))
    assert share == pytest.approx(1e-12, rel=0.05, abs=0)  # the variance, where half the range is 1


@pytest.mark.parametrize(("first", "second"), [("visits", "falls"), ("sex", "falls")])
def test_a_correlation_needs_more_than_three_rows(first: str, second: str) -> None:
    total = sum_columns(draw_columns())
    known = moments_of(total, first, second).n_rows

    def is_read(n_rows: float) -> bool:
        few = replace(total, matrix=n_rows / known * total.matrix)
        return isinstance(read_moments(few, *map(total.workload.column, (first, second))), Moments)

    assert is_read(3.001)
    assert not is_read(2.999)


def test_a_variance_is_read_from_three_standard_errors_of_its_noise_on() -> None:
    exact = sum_columns(draw_columns())
    for first, second in (("visits", "falls"), ("falls", "sex")):
        levels = [exact.workload.column(name) for name in (first, second)]
        readings = moments_of(replace(exact, noise_variance=1.0), first, second).readings
        least = float((readings.values / readings.errors)[1:].min())
        for n_errors in (2.999, 3.001):
            total = replace(exact, noise_variance=(least / n_errors) ** 2)
            assert isinstance(read_moments(total, *levels), Moments) == (n_errors > 3)


def list_moments() -> dict[str, Moments]:
    """Covariance and variances that are read, with the covariance of their noise."""

    def make(values: list[float], errors: list[float], n: float, kurtosis: float, crossed: float = 0.3) -> Moments:
        correlations = np.full((3, 3), crossed) + (1 - crossed) * np.eye(3)
        return Moments(Readings(np.array(values), correlations * np.outer(errors, errors)), n, kurtosis)

    return {
        "little noise": make([0.1, 0.2, 0.3], [1e-4, 1e-4, 1e-4], 1000, 1.0),
        "rows and noise": make([-0.15, 0.2, 0.3], [0.01, 0.008, 0.009], 400, 1.7),
        "one variance near its noise": make([0.08, 0.2, 0.3], [0.03, 0.05, 0.02], 2000, 0.8),
        "both variances near their noise": make([0.05, 0.2, 0.3], [0.03, 0.045, 0.07], 2000, 1.0, -0.2),
        "clear": make([0.05, 0.2, 0.3], [0.03, 0.2 / 6.01, 0.3 / 6.01], 2000, 1.0),
        "not clear": make([0.05, 0.2, 0.3], [0.03, 0.2 / 5.99, 0.3 / 5.99], 2000, 1.0),
        "up to one": make([0.23, 0.2, 0.3], [0.03, 0.03, 0.03], 500, 1.0),
        "beyond one": make([0.25, 0.2, 0.3], [0.01, 0.01, 0.01], 500, 1.0),
        "impossible": make([-0.3, 0.2, 0.3], [0.01, 0.01, 0.01], 500, 1.0),
        "down to minus one": make([-0.24, 0.2, 0.3], [0.02, 0.02, 0.02], 100, 0.5),
        "strong": make([0.235, 0.2, 0.3], [1e-3, 1e-3, 1e-3], 200, 1.0),
        "few rows": make([0.02, 0.2, 0.3], [1e-3, 1e-3, 1e-3], 5, 2.0),
    }


def find_misfit(r: float, moments: Moments) -> float:
    """The least misfit over variances, as the module states it."""
    read, noise = moments.readings.values, moments.readings.noise
    factors = np.where(read[1:] < 6 * np.sqrt(np.diag(noise))[1:], 4 / 3, 1.0)
    covariance = noise * np.outer([1, *factors], [1, *factors])
    covariance[0, 0] += moments.kurtosis * (1 - r**2) ** 2 * read[1] * read[2] / (moments.n_rows - 3)
    inverse: Matrix = np.linalg.inv(covariance)

    def misfit(logs: Vector) -> float:
        v, w = read[1:] * np.exp(logs)
        left = read - [r * np.sqrt(v * w), v, w]
        return float(left @ inverse @ left)

    starts = ([0.0, 0.0], [-0.5, -0.5], [0.5, 0.5])
    return min(
        minimize(misfit, start, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9}).fun for start in starts
    )


@pytest.mark.parametrize("name", list_moments())
def test_an_interval_has_each_correlation_that_fits_to_what_is_read(name: str) -> None:
    moments = list_moments()[name]
    low, high = find_correlation_interval(moments)
    nearest = float(np.clip(moments.correlation, -1, 1))
    assert bool(np.isnan(low)) == (name == "impossible")
    if np.isnan(low):
        assert np.isnan(high)
        assert find_misfit(nearest, moments) > Z**2
        return
    assert -1 <= low < nearest <= high <= 1
    for end, side in ((low, -1.0), (high, 1.0)):
        if abs(end) == 1:
            assert find_misfit(end, moments) <= Z**2
            continue
        at = brentq(lambda r: find_misfit(r, moments) - Z**2, nearest, side)
        assert end == pytest.approx(at, abs=(2e-3 if name == "beyond one" else 1e-5) * (high - low))
