"""Answers under noise and with missing values: tests keep their level, and what says nothing is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from mooring.errors import InputError
from mooring.mechanisms.sums.answers.answer import Answer
from mooring.mechanisms.sums.answers.association import associate
from mooring.mechanisms.sums.answers.correlation import Moments, read_moments
from mooring.mechanisms.sums.answers.description import describe
from mooring.mechanisms.sums.answers.odds_ratios import estimate_odds_ratios
from mooring.mechanisms.sums.answers.readings import Readings, find_ratio_interval, read_products
from mooring.mechanisms.sums.answers.regression import RegressionTerm, regress
from mooring.mechanisms.sums.answers.survival import estimate_survival
from mooring.mechanisms.sums.general.survival import Survival
from mooring.mechanisms.sums.general.total import PairwiseTotal, sum_exactly
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.tables.schema import Column, Schema
from mooring.testing.answers import draw_total, measure_coverage, population
from mooring.typing import Matrix
from tests.mechanisms.sums.answers.support import differentiate
from tests.mechanisms.sums.test_workload import LOGS, SCHEMA, draw_rows

N = 4_000
N_TESTS = 150
MOST_REJECTIONS = 18  # of 150 at a level of 7 %, but for one series in 1,600
NULL = make_workload(
    Schema(
        (
            Column("arm", "category", categories=("a", "b")),
            Column("site", "category", categories=("x", "y", "z")),
            Column("weeks", "integer", 0, 100),
            Column("status", "category", categories=("alive", "dead")),
        )
    ),
    survival=Survival("weeks", "status", "dead", (0.0, 10.0, 20.0, 40.0, 60.0)),
)


def draw_null(rng: np.random.Generator) -> PairwiseTotal:
    """Arms, sites and times that have nothing to do with each other, with noise like that of ε = 0.2."""
    weeks, dead = rng.integers(0, 101, N), rng.integers(2, size=N)
    rows = [
        np.eye(2)[rng.integers(2, size=N)],
        np.eye(3)[rng.integers(3, size=N)],
        weeks[:, None] / 50 - 1,
        np.eye(2)[dead],
    ]
    return sum_exactly(NULL, np.hstack(rows)).with_noise(rng, 400.0)


def test_tests_of_no_difference_keep_their_level() -> None:
    rng = np.random.default_rng(0)
    totals = [draw_null(rng) for _ in range(N_TESTS)]
    log_ranks = [estimate_survival(total, by="arm").log_rank for total in totals]
    chi_squares = [associate(total, ["arm", "site"]).tests[0] for total in totals]
    for tests in (log_ranks, chi_squares):
        rejected = sum(test is not None and test.p < 0.05 for test in tests)
        assert 0 < rejected <= MOST_REJECTIONS
    ignored = [estimate_survival(replace(total, noise_variance=0.0), by="arm").log_rank for total in totals]
    assert sum(test is not None and test.p < 0.05 for test in ignored) > 2 * MOST_REJECTIONS


def sum_counts(counts: dict[str, dict[tuple[int, int], int]]) -> PairwiseTotal:
    """The total of rows of two arms: how many end in which week, and whether by the event."""
    rows = [
        np.repeat([[*np.eye(2)["ab".index(arm)], 1, 0, 0, week / 50 - 1, *np.eye(2)[dead]]], n, axis=0)
        for arm, cells in counts.items()
        for (week, dead), n in cells.items()
    ]
    return sum_exactly(NULL, np.concatenate(rows))


def test_a_log_rank_test_of_a_life_table_ignores_that_groups_are_censored_at_different_rates() -> None:
    """Rows that are censored halfway through an interval have the event half as often as the others."""
    arms = {
        "a": {(5, 1): 400, (15, 1): 120, (90, 0): 480},
        "b": {(5, 1): 300, (5, 0): 500, (15, 1): 40, (90, 0): 160},
    }
    total = sum_counts(arms)
    biased, answer = estimate_survival(total, by="arm"), estimate_survival(total, by="arm", estimator="life-table")
    assert biased.log_rank is not None
    assert answer.log_rank is not None
    assert biased.log_rank.p < 1e-3
    assert answer.log_rank.chi_square == pytest.approx(0, abs=1e-9)
    assert len(biased.notes) == 1
    assert not answer.notes


@pytest.mark.parametrize(
    ("variance", "last_end", "ended_by_noise"), [(0.0, 60.0, False), (50.0, 40.0, True), (100.0, 20.0, True)]
)
def test_a_median_is_unknown_where_noise_ended_the_curve(
    variance: float, last_end: float, ended_by_noise: bool
) -> None:
    """The number at risk after week 20 is 100, and its error is 48 and 68 with these variances."""
    total = sum_counts({"a": {(5, 1): 100, (15, 0): 800, (30, 1): 20, (90, 0): 80}})
    answer = estimate_survival(replace(total, noise_variance=variance))
    (median,) = answer.medians
    assert answer.points[-1].end == last_end
    assert np.isnan(median.median)
    assert median.ended_by_noise is ended_by_noise
    assert len(answer.notes) == ended_by_noise


@pytest.mark.parametrize("variance", [0.0, 0.2])
def test_of_a_group_that_all_have_the_event_nobody_survives(variance: float) -> None:
    total = replace(sum_counts({"a": {(5, 1): 100, (15, 1): 300}}), noise_variance=variance)
    points = estimate_survival(total).points
    assert [point.survival for point in points] == pytest.approx([0.75, 0.0], abs=1e-6)
    assert points[1].low == pytest.approx(0, abs=1e-9)
    assert 0.005 < points[1].high < 0.1


def test_a_curve_without_noise_ends_where_nobody_is_at_risk() -> None:
    answer = estimate_survival(sum_counts({"a": {(5, 1): 100, (15, 0): 800}}))
    assert answer.points[-1].end == 20.0
    assert not answer.medians[0].ended_by_noise
    assert len(answer.notes) == 1


MISSING = make_workload(
    Schema(
        (
            Column("weight", "number", 30, 150, missing="indicate"),
            Column("stage", "category", categories=("I", "II", "III"), missing="indicate"),
            Column("score", "number", 0, 10),
        )
    )
)


def draw_missing(n: int = 3_000, *, by_score: bool = False) -> tuple[PairwiseTotal, Matrix]:
    """A total of rows of which a fifth has no weight and a tenth no stage; weight, stage (3 is missing) and score.

    With `by_score`, weights are missing where the score is high.
    """
    rng = np.random.default_rng(4)
    weight, stage = rng.uniform(40, 140, n), rng.choice(4, n, p=[0.5, 0.3, 0.1, 0.1])
    score = 2 + 0.02 * weight + 0.5 * (stage == 1) + rng.uniform(-1, 1, n)
    weight = np.where(score > 5 if by_score else rng.random(n) < 0.2, np.nan, weight)
    gone = np.isnan(weight)
    columns = [np.where(gone, 0, (weight - 90) / 60), gone, *np.eye(4)[stage].T, score / 5 - 1]
    return sum_exactly(MISSING, np.column_stack(columns)), np.column_stack([weight, stage, score])


def test_missing_values_are_counted_and_left_out_of_means() -> None:
    total, rows = draw_missing()
    statistics = {(e.column, e.level, e.statistic): e.estimate for e in describe(total).statistics}
    assert statistics["weight", "", "mean"] == pytest.approx(np.nanmean(rows[:, 0]), rel=1e-9)
    assert statistics["weight", "", "sd"] == pytest.approx(np.nanstd(rows[:, 0], ddof=1), rel=1e-9)
    assert statistics["weight", "missing", "count"] == pytest.approx(np.isnan(rows[:, 0]).sum(), rel=1e-9)
    known = rows[rows[:, 1] < 3, 1]
    assert statistics["stage", "II", "share"] == pytest.approx((known == 1).mean(), rel=1e-9)


def test_a_missing_number_has_a_term_of_its_own() -> None:
    total, rows = draw_missing()
    gone = np.isnan(rows[:, 0])
    design = [np.ones(len(rows)), np.where(gone, 90, rows[:, 0]), gone, *(rows[:, 1] == k for k in (1, 2, 3))]
    expected = np.linalg.lstsq(np.column_stack(design).astype(float), rows[:, 2], rcond=None)[0]
    answer = regress(total, "score ~ weight + stage")
    assert [term.level for term in answer.terms] == ["", "", "missing", "II", "III", "missing"]
    np.testing.assert_allclose([term.estimate for term in answer.terms], expected, rtol=1e-8)


def test_an_outcome_that_is_missing_at_random_keeps_its_slope() -> None:
    total, rows = draw_missing(200_000)
    known = ~np.isnan(rows[:, 0])
    expected = np.polyfit(rows[known, 2], rows[known, 0], 1)[0]
    assert regress(total, "weight ~ score").terms[1].estimate == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("variance", [0.0, 25.0])
def test_a_regression_is_refused_where_outcomes_are_missing_depending_on_a_term(variance: float) -> None:
    """The slope would be 17.8 instead of 23.8 for each point of the score, with a standard error of 0.5."""
    total = draw_missing(by_score=True)[0].with_noise(np.random.default_rng(0), variance)
    with pytest.raises(InputError) as caught:
        regress(total, "weight ~ score")
    assert caught.value.what == "formula"
    assert "score" in caught.value.problem


def test_outcomes_that_are_missing_at_random_are_not_refused_under_noise() -> None:
    total, rng = draw_missing()[0], np.random.default_rng(0)
    answers = [regress(total.with_noise(rng, 4.0), "weight ~ score") for _ in range(40)]
    assert all(len(answer.terms) == 2 for answer in answers)


def test_a_residual_variance_is_not_smaller_than_its_noise() -> None:
    """A score that is a line of the weight has residuals of zero, and the noise hides how small they are."""
    weight = np.linspace(-1, 1, 3_000)
    rows = np.column_stack([weight, np.zeros(3_000), *np.eye(4)[np.zeros(3_000, dtype=int)].T, 0.5 * weight])
    total, rng = sum_exactly(MISSING, rows), np.random.default_rng(0)
    assert regress(total, "score ~ weight").residual_sd < 1e-4
    deviations = [regress(total.with_noise(rng, 1.0), "score ~ weight").residual_sd for _ in range(20)]
    assert min(deviations) > 0.05


def test_sums_that_contradict_each_other_are_refused() -> None:
    total, _ = draw_missing()
    matrix = total.matrix.copy()
    bubble = MISSING.bubbles[2]
    matrix[0, bubble] = matrix[bubble, 0] = (
        30 * matrix[0, bubble]
    )  # takes more from the squares of the score than there is
    with pytest.raises(InputError) as caught:
        regress(replace(total, matrix=matrix), "score ~ weight")
    assert caught.value.what == "formula"


def test_shares_that_are_shown_add_up_to_all_where_noise_makes_rare_levels_negative() -> None:
    rng, words = np.random.default_rng(0), tuple("abcdefgh")
    workload = make_workload(Schema((Column("kind", "category", categories=words),)))
    total = sum_exactly(workload, np.eye(8)[np.repeat([0, 1], [700, 300])])
    for _ in range(5):
        shares = [entry for entry in describe(total.with_noise(rng, 100.0)).statistics if entry.statistic == "share"]
        assert any(entry.low == 0 == entry.estimate for entry in shares)
        assert sum(entry.estimate for entry in shares) == pytest.approx(1)
        assert all(entry.low <= entry.estimate <= entry.high for entry in shares)


def test_an_empty_group_is_left_out_and_an_empty_level_is_counted_with_the_reference() -> None:
    rows = np.column_stack(
        [np.linspace(-1, 1, 500), np.zeros(500), *np.eye(4)[np.arange(500) % 2].T, np.linspace(-1, 1, 500)]
    )
    total = sum_exactly(MISSING, rows)
    answer = describe(total, by="stage")
    assert answer.groups == ("all", "I", "II")
    assert len([note for note in answer.notes if "stage = III" in note]) == 1
    fitted = regress(total, "score ~ stage")
    assert [term.level for term in fitted.terms] == ["", "II"]
    assert len(fitted.notes) == 2


@pytest.mark.parametrize(
    "ask",
    [
        lambda total: describe(total, by="height"),
        lambda total: describe(total, by="bmi"),
        lambda total: describe(total, by="months × status"),
        lambda total: describe(total, columns=["height"]),
        lambda total: regress(total, "bmi ~ crp"),
        lambda total: regress(total, "bmi ~ log(age)"),
        lambda total: regress(total, "bmi ~ C(age)"),
        lambda total: regress(total, "ward ~ age"),
        lambda total: regress(total, "bmi ~ months"),
        lambda total: estimate_survival(total, by="bmi"),
        lambda total: associate(total, ["age", "height"]),
    ],
)
def test_what_the_study_has_not_declared_is_refused(ask: object) -> None:
    with pytest.raises(InputError):
        ask(draw_total(0, 1.0, 6_000))  # type: ignore[operator]


def test_a_logarithm_that_begins_at_zero_has_no_linear_term() -> None:
    rows, _ = draw_rows(np.random.default_rng(4))
    total = sum_exactly(make_workload(SCHEMA, log_scaled=LOGS), rows[:, :-1], rows[:, -1])

    def refuse(term: str) -> InputError:
        with pytest.raises(InputError) as caught:
            regress(total, f"children ~ {term}")
        return caught.value

    assert "log(marker)" in refuse("marker").cure
    assert refuse("log(age)").cure == "Write age."
    assert refuse("income").cure == refuse("log(income)").cure
    assert "log(income)" not in refuse("income").cure


def draw_smokers(n: int = 600) -> tuple[PairwiseTotal, Matrix]:
    """Rows of whom a fifth may smoke or not; smoker (2 is missing), score, and a ward that is always the first."""
    rng = np.random.default_rng(6)
    score = rng.integers(0, 4, n)
    smoker = np.where(rng.random(n) < 0.2, 2, rng.random(n) < 0.2 + 0.15 * score)
    columns = (
        Column("smoker", "category", categories=("no", "yes"), missing="indicate"),
        Column("score", "integer", 0, 3),
        Column("ward", "category", categories=("a", "b")),
    )
    rows = np.hstack([np.eye(3)[smoker], score[:, None] / 1.5 - 1, np.tile([1.0, 0.0], (n, 1))])
    return sum_exactly(make_workload(Schema(columns)), rows), np.column_stack([smoker, score]).astype(float)


def test_two_levels_of_which_some_are_missing_are_an_outcome_and_have_correlations() -> None:
    total, rows = draw_smokers()
    known = rows[:, 0] < 2
    y, z = rows[known, 0], np.column_stack([np.ones(len(rows)), rows[:, 1]])
    answer = regress(total, "smoker ~ score")
    assert answer.outcome == "smoker = yes"
    expected = np.linalg.solve(z.T @ z * known.mean(), z[known].T @ y)
    np.testing.assert_allclose([term.estimate for term in answer.terms], expected, rtol=1e-9)
    (pair,) = associate(total, ["smoker", "score"]).correlations
    covariance = np.mean(y * rows[known, 1]) - y.mean() * rows[known, 1].mean()
    assert pair.correlation == pytest.approx(covariance / (y.std() * rows[:, 1].std()), rel=1e-9)


def test_where_all_levels_are_counted_with_the_reference_a_regression_has_its_intercept_alone() -> None:
    total, rows = draw_smokers()
    (term,) = regress(total, "smoker ~ ward").terms
    assert term.estimate == pytest.approx(rows[rows[:, 0] < 2, 0].mean(), rel=1e-9)
    with pytest.raises(InputError) as caught:
        estimate_odds_ratios(total, "smoker ~ ward")
    assert caught.value.what == "formula"


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_correlation_that_noise_makes_larger_than_one_is_shown_as_one(sign: float) -> None:
    x = np.random.default_rng(1).integers(-1, 2, 900)
    workload = make_workload(Schema(tuple(Column(name, "integer", 0, 2) for name in "xy")))
    exact = sum_exactly(workload, np.column_stack([x, sign * x]))
    matrix, (first, second) = exact.matrix.copy(), workload.starts
    matrix[first, second] = matrix[second, first] = 1.01 * matrix[first, second]
    total = replace(exact, matrix=matrix, noise_variance=1.0)
    moments = read_moments(total, *workload.columns)
    assert isinstance(moments, Moments)
    assert 1.005 < sign * moments.correlation < 1.02
    (pair,) = associate(total).correlations
    assert pair.correlation == sign
    assert (pair.high if sign > 0 else pair.low) == sign
    assert 0 < sign * (pair.low if sign > 0 else pair.high) < 1


def test_a_study_without_times_has_no_survival() -> None:
    with pytest.raises(InputError) as caught:
        estimate_survival(sum_exactly(MISSING, np.zeros((1, 7))))
    assert caught.value.what == "survival"


def test_too_many_terms_for_the_noise_are_refused() -> None:
    total = draw_total(0, 1.0, 300)
    with pytest.raises(InputError) as caught:
        regress(total, "bmi ~ age + log(crp) + sex + ward + ill + children")
    assert caught.value.what == "formula"


def draw_narrow(rng: np.random.Generator) -> PairwiseTotal:
    """A dose, and a weight on a range ten times as wide as it varies; their correlation is 0.6."""
    n = 2_000
    dose = rng.integers(0, 4, n)
    narrow = np.clip(2 * dose + rng.normal(0, 3, n), -10, 60)
    columns = (Column("dose", "integer", 0, 3), Column("weight", "number", -10, 60))
    others = tuple(Column(name, "category", categories=tuple("abcdef")) for name in "uvwxyz")
    blank = np.hstack([np.eye(6)[rng.integers(6, size=n)] for _ in others])
    workload = make_workload(Schema((*columns, *others)))
    return sum_exactly(workload, np.hstack([dose[:, None] / 1.5 - 1, (narrow[:, None] - 25) / 35, blank]))


@pytest.mark.parametrize(("variance", "least_shown", "most_shown"), [(4.0, 0, 12), (0.4, 50, 110)])
def test_a_correlation_is_shown_where_the_noise_does_not_hide_a_variance_and_its_interval_covers(
    variance: float, least_shown: int, most_shown: int
) -> None:
    """The standard deviation of the noise on the weight's variance is that variance, and a third of it."""
    rng = np.random.default_rng(3)
    total = draw_narrow(rng)
    (truth,) = associate(total, ["dose", "weight"]).correlations
    answers = [associate(total.with_noise(rng, variance), ["dose", "weight"]) for _ in range(150)]
    covered = [shown.low <= truth.correlation <= shown.high for answer in answers for shown in answer.correlations]
    assert least_shown <= len(covered) <= most_shown
    assert all(len(answer.correlations) + len(answer.notes) == 1 for answer in answers)
    assert not least_shown or sum(covered) > 0.9 * len(covered)


def test_the_interval_of_a_slope_covers_where_the_noise_moves_the_slope_and_its_standard_error_alike() -> None:
    """Noise on the weight's squares, a quarter of them, makes a slope and its standard error small together."""
    total, rng = draw_narrow(np.random.default_rng(3)), np.random.default_rng(0)
    truth = regress(total, "dose ~ weight").terms[1].estimate
    slopes = list[RegressionTerm]()
    for _ in range(200):
        with suppress(InputError):  # where the noise on the squares is larger still
            slopes.append(regress(total.with_noise(rng, 0.2), "dose ~ weight").terms[1])
    assert len(slopes) > 190
    assert 85 < sum(slope.estimate > truth for slope in slopes) < 115
    assert 0.92 < np.mean([slope.low <= truth <= slope.high for slope in slopes]) < 0.99
    assert np.mean([slope.low > truth for slope in slopes]) < 0.05


def test_intervals_of_a_regression_are_not_too_wide_where_most_of_them_is_noise() -> None:
    coverage = measure_coverage(
        lambda total: regress(total, "log(crp) ~ bmi + age + ill"), n_draws=200, epsilon=1.0, n_rows=2_300
    )
    assert all(entry.n_shown > 120 for entry in coverage.values())
    assert 0.93 < np.mean([entry.share for entry in coverage.values()]) < 0.972


def ask_of_few(total: PairwiseTotal, arms: PairwiseTotal) -> Iterator[str]:
    """Sentences of answers, and of refusals, where groups and levels are empty or terms follow from each other."""
    answers: list[Callable[[], Answer]] = [
        lambda: describe(total, by="stage"),
        lambda: associate(total),
        lambda: regress(total, "score ~ stage"),
        lambda: regress(total, "score ~ weight + stage"),
        lambda: estimate_survival(arms, by="arm"),
        lambda: describe(replace(total, matrix=0 * total.matrix)),
        lambda: describe(replace(total, matrix=0 * total.matrix), by="stage"),
        lambda: regress(replace(total, matrix=total.matrix / 400), "score ~ weight"),
        lambda: estimate_survival(replace(arms, matrix=0 * arms.matrix)),
    ]
    for ask in answers:
        try:
            answer = ask()
        except InputError as error:
            yield str(error)
        else:
            yield from (answer.included, *answer.notes)


def test_a_table_has_a_note_for_each_limit_that_it_has() -> None:
    """Notes state approximate deviations in groups, counts that the noise protects, and what is not shown."""
    exact, noisy = population().draw(np.random.default_rng(0)), draw_total(0, 1.0, 6_000)

    def count_notes(total: PairwiseTotal) -> list[int]:
        asked = (("", "bmi"), ("sex", "children"), ("sex", "bmi"))
        return [len(describe(total, by=by, columns=[column]).notes) for by, column in asked]

    assert count_notes(exact) == [0, 0, 1]
    assert count_notes(noisy) == [1, 1, 2]
    few = replace(exact, matrix=exact.matrix / exact.n_rows)
    (note,) = describe(few, columns=["bmi", "ward"]).notes
    assert "bmi" in note
    assert "ward" in note


def test_a_table_by_groups_needs_a_group_that_is_not_empty() -> None:
    stages = np.eye(4)[np.zeros(800, dtype=int)]
    total = sum_exactly(MISSING, np.column_stack([np.zeros(800), np.zeros(800), stages, np.linspace(-1, 1, 800)]))
    assert describe(total, by="stage").groups == ("all", "I")
    with pytest.raises(InputError) as caught:
        describe(replace(total, matrix=0 * total.matrix), by="stage")
    assert caught.value.what == "by"


MANY = {(5, 1): 1_000, (15, 0): 8_000, (90, 0): 900}


def test_a_note_says_whether_a_group_is_empty_or_small() -> None:
    def note(rows_of_b: dict[tuple[int, int], int], variance: float) -> str:
        total = replace(sum_counts({"a": MANY, "b": rows_of_b}), noise_variance=variance)
        (note,) = estimate_survival(total, by="arm", estimator="life-table").notes
        return note

    censored_early = {(5, 0): 1}
    assert note({}, 0.0) != note(censored_early, 0.0)
    assert note({}, 9.0) == note(censored_early, 9.0)
    assert note({}, 9.0) not in (note({}, 0.0), note(censored_early, 0.0))


def test_a_note_says_why_a_curve_ends_and_whether_that_leaves_the_median_unknown() -> None:
    def note(cells: dict[tuple[int, int], int], variance: float = 0.0) -> str:
        total = replace(sum_counts({"a": cells}), noise_variance=variance)
        answer = estimate_survival(total, estimator="life-table")
        assert answer.points[-1].end == 20.0
        (note,) = answer.notes
        return note

    most_live, most_die = {(5, 1): 100, (15, 0): 800}, {(5, 1): 600, (15, 0): 300}
    assert note(most_live) == note(most_die)
    assert note(most_live) != note(most_live | {(30, 1): 1, (30, 0): 1})
    assert note(most_live, 9.0) != note(most_die, 9.0)
    assert note(most_live, 9.0).startswith(note(most_die, 9.0).rstrip("."))


def test_negative_counts_of_events_do_not_let_survival_rise() -> None:
    """All of 1,000 rows survive; noise makes the first interval's events −10 and the second's censored rows −20."""
    matrices = [sum_counts({"a": cells}) for cells in ({(90, 0): 1_000, (15, 1): 50}, {(5, 1): 10, (15, 0): 20})]
    total = replace(matrices[0], matrix=matrices[0].matrix - matrices[1].matrix, noise_variance=1.0)
    points = estimate_survival(total).points
    assert [point.at_risk for point in points] == pytest.approx([1_020, 1_030, 1_000, 1_000])
    assert [point.events for point in points] == pytest.approx([0, 50, 0, 0], abs=1e-9)
    assert [point.censored for point in points] == pytest.approx([0, 0, 0, 0], abs=1e-9)
    raw = (1 + 10 / 1_020) * (1 - 50 / 1_030)
    assert [point.survival for point in points] == pytest.approx([1, raw, raw, raw])

    def survive(moved: PairwiseTotal) -> list[float]:
        levels = [moved.workload.indicator("weeks × status", name) for name in moved.workload.columns[-1].names]
        d_1, c_1, d_2, *later = read_products(moved, [(level, moved.workload.constant) for level in levels]).values
        at_risk = d_2 + sum(later)
        return [(1 - d_1 / (d_1 + c_1 + at_risk)) * (1 - d_2 / at_risk)]

    noise = differentiate(total, survive)[0, 0]
    read = Readings(np.array([raw, 1.0]), np.diag([noise, 0.0]))  # as if of the 1,030 at risk in the second interval
    interval = find_ratio_interval(read, (0.0, 1 / 1_030, -1 / 1_030), (0.0, 1.0))
    assert (points[1].low, points[1].high) == pytest.approx(interval, rel=1e-6)


def test_a_log_rank_test_of_few_rows_is_that_of_scipy() -> None:
    """The last two at risk are one row of each arm, and one of them has the event."""
    arms = {"a": {(5, 1): 6, (15, 1): 4, (30, 1): 1}, "b": {(5, 1): 3, (15, 0): 2, (15, 1): 3, (30, 0): 1}}
    samples = [
        stats.CensoredData(
            [week for (week, dead), n in cells.items() for _ in range(n) if dead],
            right=[week + 1 for (week, dead), n in cells.items() for _ in range(n) if not dead],
        )
        for cells in arms.values()
    ]
    test = estimate_survival(sum_counts(arms), by="arm").log_rank
    assert test is not None
    assert test.chi_square == pytest.approx(stats.logrank(*samples).statistic ** 2, rel=1e-9)


def test_answers_speak_of_noise_where_there_is_some() -> None:
    stages = np.eye(4)[np.zeros(800, dtype=int)]
    rows = np.column_stack([np.zeros(800), np.zeros(800), stages, np.linspace(-1, 1, 800)])
    total, arms = sum_exactly(MISSING, rows), sum_counts({"a": {(5, 1): 100, (15, 0): 800}})
    quiet = list(ask_of_few(total, arms))
    loud = list(ask_of_few(replace(total, noise_variance=9.0), replace(arms, noise_variance=9.0)))
    assert len(quiet) > 12
    assert not [sentence for sentence in quiet if "noise" in sentence]
    assert len([sentence for sentence in loud if "noise" in sentence]) > 12
