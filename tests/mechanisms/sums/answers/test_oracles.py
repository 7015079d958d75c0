"""Answers keep their contract: without noise they equal pandas, statsmodels, lifelines and scipy; with noise they cover."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from scipy import stats

from mooring.errors import InputError
from mooring.mechanisms.sums.answers.association import associate
from mooring.mechanisms.sums.answers.description import describe
from mooring.mechanisms.sums.answers.regression import regress
from mooring.mechanisms.sums.answers.survival import estimate_survival
from mooring.mechanisms.sums.general.total import sum_exactly
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.tables.schema import Column, Schema
from mooring.testing import answers, check_answer
from mooring.testing.answers import draw_total, measure_false_alarms, population

EDGES = np.arange(0, 49, 6.0)


def draw() -> tuple[Any, Any]:
    """A total without noise, and its rows."""
    return population().draw(np.random.default_rng(0)), population().frame(np.random.default_rng(0))


def describe_with_pandas(rows: Any) -> Mapping[str, float]:
    numbers = {"age": rows.age, "bmi": rows.bmi, "log(crp)": np.log(rows.crp), "children": rows.children}
    shares = {
        f"share of {name} {level} (all)": share
        for name in ("sex", "ward", "ill")
        for level, share in rows[name].value_counts(normalize=True).items()
    }
    means = {f"mean of {name}  (all)": float(column.mean()) for name, column in numbers.items()}
    deviations = {f"sd of {name}  (all)": float(column.std()) for name, column in numbers.items()}
    return shares | means | deviations


def group_with_pandas(rows: Any) -> Mapping[str, float]:
    groups = rows.groupby("ward")
    means = {f"mean of bmi  ({ward})": mean for ward, mean in groups.bmi.mean().items()}
    return means | {f"share of ill yes ({ward})": (part.ill == "yes").mean() for ward, part in groups}


def regress_with_statsmodels(rows: Any) -> Mapping[str, float]:
    fitted = fit_with_statsmodels(rows)
    return dict(zip(("Intercept", "age", "log(crp)", "sex m", "ward b", "ward c"), fitted.params, strict=True))


def fit_with_statsmodels(rows: Any) -> Any:
    from statsmodels.regression.linear_model import OLS

    columns = [np.ones(len(rows)), rows.age, np.log(rows.crp), rows.sex == "m", rows.ward == "b", rows.ward == "c"]
    return OLS(rows.bmi.to_numpy(), np.column_stack(columns).astype(float)).fit()


def discretise(rows: Any) -> tuple[Any, Any]:
    """Times as the ends of their intervals, and whether the event happened; later ends are beyond the last interval."""
    ends = np.append(EDGES[1:], 2 * EDGES[-1])
    times = ends[np.searchsorted(EDGES[1:], rows.months)]
    return times, (rows.status == "dead") & (times <= EDGES[-1])


def fit_with_lifelines(rows: Any) -> Mapping[str, float]:
    from lifelines import KaplanMeierFitter

    curves = {}
    for ward, part in rows.groupby("ward"):
        curve = KaplanMeierFitter().fit(*discretise(part)).survival_function_at_times(EDGES[1:])
        curves |= {f"{ward} at {end:g}": share for end, share in curve.items()}
    return curves


def correlate_with_scipy(rows: Any) -> Mapping[str, float]:
    values = {"age": rows.age, "bmi": rows.bmi, "crp": np.log(rows.crp), "sex": rows.sex == "m"}
    pairs = [("age", "bmi"), ("bmi", "crp"), ("bmi", "sex")]
    return {f"{x} and {y}": float(stats.pearsonr(values[x], values[y])[0]) for x, y in pairs}


@pytest.mark.parametrize(
    ("ask", "oracle"),
    [
        pytest.param(describe, describe_with_pandas, id="table 1"),
        pytest.param(lambda total: describe(total, by="ward"), group_with_pandas, id="table 1 by group"),
        pytest.param(
            lambda total: regress(total, "bmi ~ age + log(crp) + sex + ward"), regress_with_statsmodels, id="regression"
        ),
        pytest.param(lambda total: estimate_survival(total, by="ward"), fit_with_lifelines, id="survival"),
        pytest.param(
            lambda total: associate(total, ["age", "bmi", "crp", "sex"]), correlate_with_scipy, id="associations"
        ),
    ],
)
def test_an_answer_keeps_its_contract(ask: Any, oracle: Any) -> None:
    check_answer(ask, oracle=oracle, n_draws=60)


def test_an_answer_that_noise_always_refuses_is_said_to_show_nothing() -> None:
    def ask(total: Any) -> Any:
        if total.noise_variance:
            raise InputError("answer", problem="There is noise.", cure="Ask without.")
        return describe(total)

    with pytest.raises(AssertionError, match="in any of 3 draws"):
        check_answer(ask, n_draws=3)


@pytest.mark.parametrize(("share", "n_shown", "is_refused"), [(0.8, 50, False), (0.7, 50, True), (0.8, 100, True)])
def test_coverage_is_checked_by_as_many_draws_as_show_the_interval(
    share: float, n_shown: int, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "measure_coverage", lambda *_, **__: {"mean": answers.Coverage(share, n_shown, 1.0)})
    with pytest.raises(AssertionError, match="mean covers") if is_refused else nullcontext():
        answers._check_coverage(describe, 100, 1.0)


def test_the_log_rank_test_rejects_groups_of_the_same_survival_in_seven_percent_of_draws_at_most() -> None:
    """A test of level 5 % rejects more than 28 of 300 draws with probability 0.1 %, and one of level 14 % with 98 %."""
    assert measure_false_alarms(n_draws=300, epsilon=1.0, n_rows=4_000) <= 28 / 300


def test_a_regression_has_the_intervals_of_statsmodels() -> None:
    total, rows = draw()
    fitted, answer = fit_with_statsmodels(rows), regress(total, "bmi ~ age + log(crp) + sex + ward")
    np.testing.assert_allclose([[term.low, term.high] for term in answer.terms], fitted.conf_int(), rtol=1e-8)
    np.testing.assert_allclose([term.p for term in answer.terms], fitted.pvalues, rtol=1e-6, atol=1e-200)
    assert answer.r_squared == pytest.approx(fitted.rsquared, rel=1e-9)
    assert answer.residual_sd == pytest.approx(np.sqrt(fitted.scale), rel=1e-9)


def test_numbers_at_risk_and_the_log_rank_test_are_those_of_lifelines() -> None:
    from lifelines import KaplanMeierFitter
    from lifelines.statistics import multivariate_logrank_test

    total, rows = draw()
    answer = estimate_survival(total, by="ward")
    for ward, part in rows.groupby("ward"):
        events = KaplanMeierFitter().fit(*discretise(part)).event_table.loc[EDGES[1:]]
        points = [point for point in answer.points if point.group == ward]
        for field, column in (("at_risk", "at_risk"), ("events", "observed"), ("censored", "censored")):
            np.testing.assert_allclose([getattr(point, field) for point in points], events[column], rtol=1e-9)
    times, happened = discretise(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lifelines calls pandas in ways that a later version ends
        expected = multivariate_logrank_test(times, rows.ward, happened)
    assert answer.log_rank is not None
    assert answer.log_rank.chi_square == pytest.approx(expected.test_statistic, rel=1e-9)
    assert answer.log_rank.p == pytest.approx(expected.p_value, rel=1e-6)


def test_a_life_table_counts_censored_rows_for_half_an_interval() -> None:
    total, rows = draw()
    times, happened = discretise(rows)
    alive, survival = np.array([(times >= end).sum() for end in EDGES[1:]]), 1.0
    points = estimate_survival(total, estimator="life-table").points
    for point, end, at_risk in zip(points, EDGES[1:], alive, strict=True):
        d, c = happened[times == end].sum(), (~happened)[times == end].sum()
        survival *= 1 - d / (at_risk - c / 2)
        assert point.survival == pytest.approx(survival, rel=1e-9)


def test_chi_square_and_p_of_correlations_are_those_of_scipy() -> None:
    import pandas as pd

    total, rows = draw()
    answer = associate(total, ["ward", "ill", "age", "bmi"])
    expected = stats.chi2_contingency(pd.crosstab(rows.ward, rows.ill))
    (test,) = answer.tests
    assert (test.first, test.second, test.degrees_of_freedom) == ("ward", "ill", expected.dof)
    assert test.chi_square == pytest.approx(expected.statistic, rel=1e-9)
    assert test.p == pytest.approx(expected.pvalue, rel=1e-6)
    oracle = stats.pearsonr(rows.age, rows.bmi)
    (pair,) = [entry for entry in answer.correlations if (entry.first, entry.second) == ("age", "bmi")]
    assert (pair.correlation, pair.p) == (
        pytest.approx(oracle.statistic, rel=1e-9),
        pytest.approx(oracle.pvalue, rel=1e-6),
    )


@pytest.mark.parametrize("r", [0.0, 0.6, -0.95])
def test_a_correlation_of_a_normal_pair_without_noise_has_the_interval_of_fisher(r: float) -> None:
    rng, n = np.random.default_rng(4), 3_000
    x = rng.normal(size=n)
    rows = np.column_stack([x, r * x + np.sqrt(1 - r**2) * rng.normal(size=n)]) / 6
    columns = tuple(Column(name, "number", -6, 6) for name in ("x", "y"))
    (pair,) = associate(sum_exactly(make_workload(Schema(columns)), np.clip(rows, -1, 1))).correlations
    interval = stats.pearsonr(*rows.T).confidence_interval()
    ends = np.arctanh([[pair.low, pair.high], [interval.low, interval.high]])
    np.testing.assert_allclose(*ends, atol=0.15 * (ends[1, 1] - ends[1, 0]) / 2)


def test_the_interval_of_a_correlation_does_not_presume_normal_columns() -> None:
    rng, n = np.random.default_rng(5), 2_000
    size = rng.choice([0.1, 1.0], n, p=[0.8, 0.2])  # both columns vary together
    rows = rng.uniform(-1, 1, (n, 2)) * size[:, None]
    columns = tuple(Column(name, "number", -1, 1) for name in ("x", "y"))
    (pair,) = associate(sum_exactly(make_workload(Schema(columns)), rows)).correlations
    deviations = rows - rows.mean(axis=0)
    a, b = (deviations / rows.std(axis=0)).T
    r = float(np.mean(a * b))
    error = np.sqrt(np.mean((a * b - r * (a**2 + b**2) / 2) ** 2) / n)
    assert error > 2 / np.sqrt(n)
    assert (pair.high - pair.low) / (2 * 1.96) == pytest.approx(error, rel=0.1)


def test_counts_have_intervals_of_the_noise() -> None:
    """95 % of 600 intervals, within four standard errors."""
    inside = []
    for seed in range(100):
        drawn = population().draw_counts(np.random.default_rng([1, seed]))
        wards = np.bincount(population().values["ward"], drawn)
        answer = describe(draw_total(seed, 1.0, 6_000), columns=["ward"], by="sex")
        counts = [e for e in answer.statistics if e.column == "ward" and e.statistic == "count" and e.group == "all"]
        inside += [entry.low <= count <= entry.high for entry, count in zip(counts, wards, strict=True)]
    assert 0.95 - 4 * np.sqrt(0.95 * 0.05 / 100) < np.mean(inside)
