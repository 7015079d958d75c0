"""Answers as tables of text and as data frames, from values that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mooring.mechanisms.sums.answers.answer import Source
from mooring.mechanisms.sums.answers.association import Associations, Correlation, Independence
from mooring.mechanisms.sums.answers.description import Description, Statistic
from mooring.mechanisms.sums.answers.odds_ratios import OddsRatio, OddsRatios
from mooring.mechanisms.sums.answers.regression import Regression, RegressionTerm
from mooring.mechanisms.sums.answers.survival import LogRank, MedianSurvival, SurvivalCurves, SurvivalPoint

SOURCE = Source(1000.0, 5.0, 1.0, 1e-5, "row", "")


def test_a_table_of_odds_ratios_has_four_digits() -> None:
    ratios = (
        OddsRatio("age", "", "", 1.031549, 1.027144, 1.0359, 0.0004, 0.1),
        OddsRatio("ward", "b", "a", 12.34567, 0.9876543, 123.4567, 0.0321, -0.2),
    )
    answer = OddsRatios(SOURCE, (), "all", "ill ~ age + ward", "ill = yes", ratios)
    (table,) = answer.list_tables().values()
    assert table[1:] == [
        ("age, per unit", "1.032", "1.027 to 1.036", "<0.001"),
        ("ward: b (against a)", "12.35", "0.9877 to 123.5", "0.032"),
    ]
    assert answer.list_estimates() == {"age": (1.031549, 1.027144, 1.0359), "ward b": (12.34567, 0.9876543, 123.4567)}


def test_a_table_of_coefficients_has_three_digits() -> None:
    terms = (
        RegressionTerm("Intercept", "", "", 22.5669, 0.254711, 0.0123456, 22.0676, 23.0663, 0.0),
        RegressionTerm("ward", "missing", "a", -0.143611, 0.0364689, 0.0, -0.215103, -0.072119, 0.12),
    )
    answer = Regression(SOURCE, (), "all", "bmi ~ ward", "bmi", terms, 4.0, 0.1)
    (table,) = answer.list_tables().values()
    assert table[1:] == [
        ("Intercept", "22.6", "22.1 to 23.1", "<0.001", "0.255", "0.0123"),
        ("ward: missing (against a)", "-0.144", "-0.215 to -0.0721", "0.12", "0.0365", "0"),
    ]
    assert list(answer.list_estimates()) == ["Intercept", "ward missing"]


def test_a_table_of_associations_has_correlations_and_tests_where_there_are_some() -> None:
    correlation = Correlation("age", "bmi", 0.177407, 0.152704, -0.0016715, 0.000141764)
    test = Independence("ward", "ill", 12.3456, 2, 0.0321)
    both = Associations(SOURCE, (), "all", (correlation,), (test,)).list_tables()
    assert [table[1] for table in both.values()] == [
        ("age", "bmi", "0.177", "0.153 to -0.002", "<0.001"),
        ("ward", "ill", "12.35", "2", "0.032"),
    ]
    assert len(Associations(SOURCE, (), "all", (correlation,), ()).list_tables()) == 1
    assert len(Associations(SOURCE, (), "all", (), (test,)).list_tables()) == 1
    assert Associations(SOURCE, (), "all", (), ()).list_tables() == {}


def test_a_survival_table_has_a_line_an_interval_and_says_why_a_median_is_absent() -> None:
    points = (SurvivalPoint("a", 0.0, 2.5, 1234.4, 99.6, 0.4, 0.123456, 0.0987654, 0.15),)
    medians = (MedianSurvival("a", 2.5, math.nan, 5.0, True), MedianSurvival("b", math.nan, 2.5, math.nan, False))
    answer = SurvivalCurves(SOURCE, (), "all", "arm", "kaplan-meier", points, medians, LogRank(3.14159, 1, 0.0763))
    survival, median, test = answer.list_tables().values()
    assert survival[1] == ("a", "0 to 2.5", "1,234", "100", "0", "0.123", "0.099 to 0.150")
    assert median[1:] == [("a", "2.5", "unknown", "5"), ("b", "not reached", "2.5", "not reached")]
    assert test[1] == ("3.14", "1", "0.076")
    assert answer.list_estimates() == {"a at 2.5": (0.123456, 0.0987654, 0.15)}


def make_description() -> Description:
    def of(column: str, level: str, group: str, statistic: str, *values: float) -> Statistic:
        return Statistic(column, level, group, statistic, *values)  # type: ignore[arg-type]

    statistics = (
        *(of("", "", group, "count", n, n - 2.4, n + 2.4) for group, n in (("all", 1234.0), ("x", 600.4))),
        of("age", "", "all", "mean", 54.5358, 54.1902, 54.8815),
        of("age", "", "all", "sd", 13.6624, 13.4, 13.9),
        of("age", "", "x", "mean", math.nan, math.nan, math.nan),
        of("age", "", "x", "sd", math.nan, math.nan, math.nan),
        *(of("sex", "f", group, "count", 700.0, 690.0, 710.0) for group in ("all", "x")),
        of("sex", "f", "all", "share", 0.56723, 0.5512, 0.58),
        of("sex", "f", "x", "share", math.nan, 0.0, 1.0),
        *(of("sex", "missing", group, "count", 3.0, 0.0, 7.0) for group in ("all", "x")),
    )
    return Description(SOURCE, (), "all", "arm", ("all", "x"), statistics)


def test_a_table_1_has_counts_with_percentages_and_means_with_standard_deviations() -> None:
    answer = make_description()
    (table,) = answer.list_tables().values()
    assert table == [
        ("", "all", "arm = x"),
        ("rows", "1,234 [1,232, 1,236]", "600 [598, 603]"),
        ("age", "54.5 (13.7) [54.2, 54.9]", "– (–)"),
        ("sex: f", "700 (56.7) [55.1, 58.0]", "700 (–)"),
        ("sex: missing", "3 [0, 7]", "3 [0, 7]"),
    ]
    estimates = answer.list_estimates()
    assert list(estimates) == ["mean of age  (all)", "sd of age  (all)", "share of sex f (all)", "share of sex f (x)"]
    assert np.isnan(estimates["share of sex f (x)"][0])


@pytest.mark.parametrize("n_lines", [0, 1, 2])
def test_a_data_frame_has_a_line_an_estimate(n_lines: int) -> None:
    lines = (Correlation("age", "bmi", 0.1, 0.0, 0.2, 0.5), Correlation("age", "crp", 0.3, 0.2, 0.4, 0.01))[:n_lines]
    frame = Associations(SOURCE, (), "all", lines, ()).to_frame()
    assert len(frame) == n_lines
    assert list(frame.columns) == (["first", "second", "correlation", "low", "high", "p"] if lines else [])
    assert not lines or frame.iloc[-1].tolist() == [getattr(lines[-1], name) for name in frame.columns]
