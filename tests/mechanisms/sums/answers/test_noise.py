"""What the noise adds to an answer is what the delta method gives, one number of the total after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from mooring.mechanisms.sums.answers.association import associate
from mooring.mechanisms.sums.answers.description import _project_shares, describe
from mooring.mechanisms.sums.answers.readings import Readings, Z, find_ratio_interval, list_levels
from mooring.mechanisms.sums.answers.regression import regress
from mooring.mechanisms.sums.answers.survival import Estimator, estimate_survival
from mooring.mechanisms.sums.general.survival import Survival
from mooring.mechanisms.sums.general.total import PairwiseTotal, sum_exactly
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.tables.schema import Column, Schema
from mooring.typing import Matrix, Vector
from tests.mechanisms.sums.answers.support import differentiate

N = 500
COLUMNS = (
    Column("arm", "category", categories=("a", "b", "c")),
    Column("site", "category", categories=("x", "y")),
    Column("score", "integer", 0, 3),
    Column("dose", "integer", 0, 2, missing="indicate"),
    Column("weeks", "integer", 0, 40),
    Column("status", "category", categories=("alive", "dead")),
)
WORKLOAD = make_workload(Schema(COLUMNS), survival=Survival("weeks", "status", "dead", (0.0, 10.0, 20.0, 30.0)))


def draw_total(variance: float, seed: int = 0) -> PairwiseTotal:
    """Columns that go together, and the variance of noise that is not there."""
    rng = np.random.default_rng(seed)
    arm = rng.choice(3, N, p=[0.5, 0.3, 0.2])
    site = (rng.random(N) < 0.3 + 0.15 * arm).astype(int)
    score = np.minimum(rng.poisson(0.6 + 0.4 * arm), 3)
    dose = np.minimum(rng.poisson(0.4 + 0.3 * score), 2) - 1.0
    gone = rng.random(N) < 0.2
    until, lost = rng.exponential(30 - 6 * arm), rng.uniform(3, 50, N)
    weeks = np.minimum(np.ceil(np.minimum(until, lost)), 40)
    status = (until < lost).astype(int)
    rows = [np.eye(3)[arm], np.eye(2)[site], score[:, None] / 1.5 - 1, np.where(gone, 0, dose)[:, None], gone[:, None]]
    total = sum_exactly(WORKLOAD, np.hstack([*rows, weeks[:, None] / 20 - 1, np.eye(2)[status]]))
    return replace(total, noise_variance=variance)


@pytest.mark.parametrize("formula", ["score ~ arm + site + dose", "dose ~ score + site"])
def test_coefficients_have_the_standard_errors_of_the_noise(formula: str) -> None:
    """Where outcomes are missing, sums of terms are scaled to the share of known ones, whose own noise is left out."""
    total, outcome = draw_total(0.04), formula.split()[0]

    def share_known(moved: PairwiseTotal) -> float:
        present = moved.workload.present(outcome)
        return moved.estimate(moved.workload.product(present, present)) / moved.n_rows

    known = share_known(total)

    def estimate(moved: PairwiseTotal) -> Vector:
        terms = regress(moved, formula).terms[1:]
        return np.array([term.estimate for term in terms]) * share_known(moved) / known

    stated = [term.noise_error for term in regress(total, formula).terms[1:]]
    np.testing.assert_allclose(stated, np.sqrt(np.diag(differentiate(total, estimate))), rtol=1e-5)


def read_counts(total: PairwiseTotal, first: str, second: str) -> Matrix:
    """The number of rows with each level of one column and each of another."""
    product = total.workload.product
    return np.array(
        [[total.estimate(product(f, g)) for g in list_levels(total, second)] for f in list_levels(total, first)]
    )


def test_a_test_of_independence_has_the_noise_in_its_covariance() -> None:
    total = draw_total(3.0)
    counts = read_counts(total, "arm", "site")
    n, r, c = counts.sum(), counts.sum(axis=1) / counts.sum(), counts.sum(axis=0) / counts.sum()

    def deviate(moved: PairwiseTotal) -> Vector:
        table = read_counts(moved, "arm", "site")
        expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
        return np.asarray((table - expected)[:-1, 0])

    V = n * (np.diag(r) - np.outer(r, r))[:-1, :-1] * c[0] * (1 - c[0])
    noise = differentiate(total, deviate)
    assert np.trace(noise) > 0.1 * np.trace(V)
    w = deviate(total)
    (test,) = associate(total, ["arm", "site"]).tests
    assert test.chi_square == pytest.approx(w @ np.linalg.solve(V + noise, w), rel=1e-6)


def split_survival(counts: Matrix, estimator: Estimator) -> tuple[Matrix, Matrix, Matrix]:
    """Events, numbers at risk, and what events are divided by, from numbers of rows by group and level of survival."""
    K = WORKLOAD.survival.n_intervals if WORKLOAD.survival else 0
    events, censored = counts[:, 0 : 2 * K : 2], counts[:, 1 : 2 * K : 2]
    at_risk = np.stack([counts[:, 2 * k :].sum(axis=1) for k in range(K)], axis=1)
    return events, at_risk, at_risk - censored / 2 if estimator == "life-table" else at_risk


@pytest.mark.parametrize("estimator", ["kaplan-meier", "life-table"])
def test_survival_has_intervals_of_the_effective_number_of_rows_and_of_the_noise(estimator: Estimator) -> None:
    total = draw_total(0.5)
    points = estimate_survival(total, by="site", estimator=estimator).points
    assert len(points) == 6

    def survive(moved: PairwiseTotal) -> Vector:
        events, _, exposed = split_survival(read_counts(moved, "site", "weeks × status"), estimator)
        return np.cumprod(1 - events / exposed, axis=1).ravel()

    events, _, exposed = split_survival(read_counts(total, "site", "weeks × status"), estimator)
    shares, noise = survive(total), np.diag(differentiate(total, survive))
    greenwood = np.cumsum(events / (exposed * (exposed - events)), axis=1).ravel()
    for point, share, variance, of_rows in zip(points, shares, noise, greenwood, strict=True):
        size = (1 - share) / (share * of_rows)
        read = Readings(np.array([share, 1.0]), np.diag([variance, 0.0]))
        interval = find_ratio_interval(read, (0.0, 1 / size, -1 / size), (0.0, 1.0))
        assert (point.survival, point.low, point.high) == pytest.approx((share, *interval), rel=1e-6)


@pytest.mark.parametrize(("by", "variance"), [("arm", 0.0), ("arm", 1.0), ("site", 1.0)])
def test_a_log_rank_test_has_the_noise_in_its_covariance(by: str, variance: float) -> None:
    total = draw_total(variance)

    def deviate(moved: PairwiseTotal) -> Vector:
        events, at_risk, _ = split_survival(read_counts(moved, by, "weeks × status"), "kaplan-meier")
        return np.asarray((events - at_risk / at_risk.sum(axis=0) * events.sum(axis=0)).sum(axis=1)[:-1])

    events, at_risk, _ = split_survival(read_counts(total, by, "weeks × status"), "kaplan-meier")
    d, Y, covariance = events.sum(axis=0), at_risk.sum(axis=0), 0.0
    for k, share in enumerate((at_risk / Y).T):
        covariance = covariance + (np.diag(share) - np.outer(share, share)) * d[k] * (Y[k] - d[k]) / (Y[k] - 1)
    covariance = np.asarray(covariance)[:-1, :-1] + differentiate(total, deviate)
    w, test = deviate(total), estimate_survival(total, by=by).log_rank
    assert test is not None
    assert test.degrees_of_freedom == len(w)
    assert test.chi_square == pytest.approx(w @ np.linalg.solve(covariance, w), rel=1e-6)


def test_a_standard_deviation_has_the_interval_of_its_fourth_moment_and_of_the_noise() -> None:
    total = draw_total(0.5)
    (entry,) = [entry for entry in describe(total, columns=["score"]).statistics if entry.statistic == "sd"]
    score = np.repeat(np.arange(4), np.rint(read_counts(total, "score", "site").sum(axis=1)).astype(int))

    def vary(moved: PairwiseTotal) -> Sequence[float]:
        number, constant = moved.workload.number("score"), moved.workload.constant
        pairs = ((number, number), (number, constant), (constant, constant))
        squares, mean, n = (moved.estimate(moved.workload.product(*pair)) for pair in pairs)
        return [squares / n - (mean / n) ** 2]

    variance = float(score.var())
    fourth = float(np.mean((score - score.mean()) ** 4))
    half = Z * np.sqrt((fourth - variance**2) / N + differentiate(total, vary)[0, 0])
    assert entry.estimate == pytest.approx(score.std(ddof=1), rel=1e-9)
    assert (entry.low, entry.high) == pytest.approx(np.sqrt([variance - half, variance + half]), rel=1e-6)


def test_counts_that_noise_has_made_negative_are_zero() -> None:
    """And so is the end of an interval that would be below zero."""
    words, counts = tuple("abcde"), np.array([500.0, 3.0, 0.4, -0.6, -50.0])
    workload = make_workload(Schema((Column("kind", "category", categories=words),)))
    rows = [sum_exactly(workload, np.eye(5)[[k]]) for k in range(5)]
    matrix = np.tensordot(counts, [row.matrix for row in rows], axes=1)
    total = replace(rows[0], matrix=matrix, noise_variance=0.5)
    entries = [entry for entry in describe(total).statistics if entry.statistic == "count" and entry.level]
    for entry, count, indicator in zip(entries, counts, list_levels(total, "kind"), strict=True):
        half = Z * np.sqrt(total.covariance([workload.product(indicator, workload.constant)])[0, 0])
        assert 0.6 < half < 10
        expected = np.maximum(0, [count, count - half, count + half])
        assert (entry.estimate, entry.low, entry.high) == pytest.approx(tuple(expected), abs=1e-9)


def test_shares_of_no_rows_are_unknown() -> None:
    assert np.isnan(_project_shares(np.zeros(3))).all()


def test_a_mean_whose_variance_noise_has_made_negative_has_the_interval_of_the_noise() -> None:
    """All of 1,000 rows lie at the middle of the range, and noise has subtracted 50 rows at its ends."""
    workload = make_workload(Schema((Column("dose", "integer", 0, 2),)))
    matrices = [
        sum_exactly(workload, np.repeat(at, n)[:, None]).matrix for at, n in (([0.0], 1_000), ([-1.0, 1.0], 25))
    ]
    total = PairwiseTotal(workload, matrices[0] - matrices[1], noise_variance=2.0)
    mean, sd = (entry for entry in describe(total, columns=["dose"]).statistics if entry.column)
    number, constant = workload.number("dose"), workload.constant
    for end in (mean.low, mean.high):
        matrix = workload.product(number, constant) - end * workload.product(constant, constant)
        assert abs(950 * (1 - end)) == pytest.approx(Z * np.sqrt(total.covariance([matrix])[0, 0]), rel=1e-6)
    assert np.isnan(sd.estimate)
    assert sd.low == 0


def test_the_interval_of_a_standard_deviation_ends_at_zero_and_at_half_the_range() -> None:
    workload = make_workload(Schema((Column("score", "integer", 0, 3),)))
    for places, end, expected in (([-1 / 3], "low", 0.0), ([-1.0, 1.0], "high", 1.5)):
        rows = np.repeat(places, 400)[:, None]
        entries = describe(replace(sum_exactly(workload, rows), noise_variance=1.0)).statistics
        (entry,) = [entry for entry in entries if entry.statistic == "sd"]
        assert getattr(entry, end) == expected
        assert entry.low < entry.high


def test_the_interval_of_a_standard_deviation_between_nodes_has_the_fourth_moment_of_the_rows() -> None:
    """Nodes are 1.2 standard deviations apart, and hat functions add a third to the fourth moment."""
    rng, n = np.random.default_rng(8), 20_000
    x = np.clip(rng.choice([0.15, 0.3], n) * rng.normal(size=n), -1, 1)
    total = sum_exactly(make_workload(Schema((Column("x", "number", -1, 1),))), x[:, None])
    (entry,) = [entry for entry in describe(total).statistics if entry.statistic == "sd"]
    half = Z * np.sqrt((np.mean((x - x.mean()) ** 4) - x.var() ** 2) / n)
    assert (entry.high**2 - entry.low**2) / 2 == pytest.approx(half, rel=0.01)


@pytest.mark.parametrize("by", ["", "site"])
def test_means_and_shares_have_intervals_of_rows_and_of_the_noise(by: str) -> None:
    """Each end is where the deviation from it is 1.96 times its standard error."""
    total = draw_total(1.0)
    groups = {"all": total.workload.constant} | {name: total.workload.indicator("site", name) for name in "xy"}
    number, present = total.workload.number("dose"), total.workload.present("dose")
    for entry in describe(total, by=by, columns=["dose", "arm"]).statistics:
        if entry.statistic not in ("mean", "share"):
            continue
        product, group = total.workload.product, groups[entry.group]
        if entry.statistic == "mean":
            x, y = (total.estimate(product(function, group)) for function in (number, present))
            squares = total.workload.functional("dose", number.values**2)
            sampling = y * (total.estimate(product(squares, group)) / y - (x / y) ** 2)
            function, known, ends = number, present, dict.fromkeys((entry.low, entry.high), sampling)
        else:
            function, known = total.workload.indicator("arm", entry.level), total.workload.constant
            x, y = (total.estimate(product(part, group)) for part in (function, known))
            ends = {end: y * end * (1 - end) for end in (entry.low, entry.high)}
        assert entry.estimate == pytest.approx(x / y)
        for end, sampling in ends.items():
            matrix = product(function, group) - end * product(known, group)
            noise = float(total.covariance([matrix])[0, 0])
            assert abs(x - end * y) == pytest.approx(Z * np.sqrt(noise + sampling), rel=1e-6)
