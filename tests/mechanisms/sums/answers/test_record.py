"""The figures of every answer on record (see tests/record.py): of a total without noise, with little and with much."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.errors import InputError
from mooring.mechanisms.sums.answers.association import associate
from mooring.mechanisms.sums.answers.description import describe
from mooring.mechanisms.sums.answers.forecast import forecast_answers, forecast_total
from mooring.mechanisms.sums.answers.mixture import Mixture, _find_margin
from mooring.mechanisms.sums.answers.odds_ratios import estimate_odds_ratios
from mooring.mechanisms.sums.answers.regression import regress
from mooring.mechanisms.sums.answers.survival import estimate_survival
from mooring.mechanisms.sums.answers.synthesis import synthesize
from mooring.mechanisms.sums.general.survival import Survival
from mooring.mechanisms.sums.general.total import PairwiseTotal, sum_exactly
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.testing.answers import draw_total, population
from tests.mechanisms.sums.answers.test_refusals import draw_missing
from tests.mechanisms.sums.test_workload import LOGS, SCHEMA, draw_rows
from tests.record import check_record

RECORD = Path(__file__).parent / "record.json"
TOTALS: dict[str, Callable[[], PairwiseTotal]] = {
    "exact": cache(lambda: population().draw(np.random.default_rng(0))),
    "little noise": cache(lambda: draw_total(1, 2.0, 6_000)),
    "much noise": cache(lambda: draw_total(2, 0.3, 3_000)),
    "missing": cache(lambda: draw_missing(800)[0]),
    "kinds": cache(lambda: draw_kinds()),
    "kinds, noise": cache(lambda: draw_kinds().with_noise(np.random.default_rng(1), 2.0)),
}


def draw_kinds() -> PairwiseTotal:
    """Every kind of column: logarithms that begin at zero and above, whole numbers, missing values, times and events."""
    rows, _ = draw_rows(np.random.default_rng(4))
    survival = Survival("age", "ill", "yes", (0.0, 30.0, 50.0, 90.0))
    workload = make_workload(SCHEMA, log_scaled=LOGS, survival=survival, impossible=["sex=m, children=4"])
    return sum_exactly(workload, rows[:, :-1], rows[:, -1])


MIXTURES = ("odds_ratios", "synthesis")  # modules that fit one: 250 steps of a fit amplify rounding


def invent_mixture(total: PairwiseTotal) -> Mixture:
    """Three components about the margins, in place of those that are fitted."""
    rng, columns = np.random.default_rng(3), total.workload.columns
    margins = [_find_margin(total, levels) for levels in columns]
    tables = [margin * np.exp(0.3 * rng.standard_normal((3, len(margin)))) for margin in margins]
    tables = [table / table.sum(axis=1, keepdims=True) for table in tables]
    spreads = tuple(0.6 * (not levels.is_exact) for levels in columns)
    return Mixture(total.workload, np.array([0.5, 0.3, 0.2]), tuple(tables), spreads)


def synthetic_figures(total: PairwiseTotal, impossible: Sequence[dict[str, str]]) -> list[list[float]]:
    rows = synthesize(total, 400, seed=1, impossible=impossible).to_frame()
    numbers, words = rows.select_dtypes("number"), rows.select_dtypes(exclude="number")
    shares = [float((words[name] == value).mean()) for name in words for value in sorted(set(words[name].dropna()))]
    return [list(numbers.mean()), list(numbers.std()), list(numbers.corr().to_numpy()[0]), shares]


QUESTIONS: dict[str, Callable[[PairwiseTotal], Any]] = {
    "described": describe,
    "described by ward": lambda total: describe(total, by="ward"),
    "regressed": lambda total: regress(total, "bmi ~ age + log(crp) + sex + ward"),
    "regressed shares": lambda total: regress(total, "ill ~ bmi + children + ward"),
    "associated": associate,
    "survival": lambda total: estimate_survival(total, by="sex"),
    "life table": lambda total: estimate_survival(total, estimator="life-table"),
    "odds": lambda total: estimate_odds_ratios(total, "ill ~ age + sex"),
    "forecast": forecast_total,
    "synthetic": lambda total: synthetic_figures(total, [{"sex": "m", "ward": "c"}]),
}
OF_MISSING: dict[str, Callable[[PairwiseTotal], Any]] = {
    "described": describe,
    "associated": associate,
    "regressed": lambda total: regress(total, "score ~ weight + stage"),
}
OF_KINDS: dict[str, Callable[[PairwiseTotal], Any]] = {
    "described": describe,
    "described by stage": lambda total: describe(total, by="stage", columns=["weight", "income", "children", "sex"]),
    "regressed": lambda total: regress(total, "log(marker) ~ weight + stage + children"),
    "regressed shares": lambda total: regress(total, "sex ~ C(children) + weight"),
    "associated": lambda total: associate(total, ["weight", "income", "marker", "stage", "sex"]),
    "survival": estimate_survival,
    "forecast": forecast_total,
    "synthetic": lambda total: synthetic_figures(total, []),
}


def questions_of(drawn: str) -> dict[str, Callable[[PairwiseTotal], Any]]:
    return OF_MISSING if drawn == "missing" else OF_KINDS if drawn.startswith("kinds") else QUESTIONS


def figures_in(plain: Any) -> Iterator[Any]:
    """The numbers in an answer, without its words."""
    if isinstance(plain, dict):
        plain = list(plain.values())
    if isinstance(plain, list | tuple):
        for value in plain:
            yield from figures_in(value)
    elif not isinstance(plain, str):
        yield plain


@pytest.mark.parametrize(
    ("drawn", "asked"),
    [(drawn, asked) for drawn in TOTALS for asked in questions_of(drawn)],
)
def test_what_a_total_answers_is_as_on_record(drawn: str, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in MIXTURES:
        monkeypatch.setattr(f"mooring.mechanisms.sums.answers.{module}.fit_mixture", invent_mixture)
    ask = questions_of(drawn)[asked]
    try:
        answer = ask(TOTALS[drawn]())
    except InputError as refused:
        answer = [refused.what]
    plain = answer if isinstance(answer, list) else answer.as_dict()
    check_record(RECORD, f"{asked}, {drawn}", [*figures_in(plain)] or plain, rel=1e-4)


@pytest.mark.parametrize(("variance", "n_rows"), [(0.0, 1), (0.0, 200), (30.0, 5_000), (3_000.0, 20_000)])
def test_what_is_forecast_of_answers_is_as_on_record(variance: float, n_rows: int) -> None:
    forecast = forecast_answers(population().workload, variance, n_rows)
    check_record(RECORD, f"forecast, {variance:g}, {n_rows}", [*figures_in(forecast.as_dict())], rel=1e-4)


def test_estimates_are_named_after_columns_levels_and_groups() -> None:
    """A logarithm that begins at zero is one of 1 + 9999 times the place in the range."""
    total = TOTALS["kinds"]()
    described = describe(total, by="stage", columns=["weight", "income", "marker", "sex"])
    assert described.groups == ("all", "I", "II", "III", "missing")
    lines = {(entry.column, entry.level, entry.statistic) for entry in described.statistics}
    income = "log(1 + 0.09999 (income − 0))"
    assert lines == {
        ("", "", "count"),
        *((name, "", statistic) for name in ("weight", income, "log(marker)") for statistic in ("mean", "sd")),
        ("weight", "missing", "count"),
        *(("sex", level, statistic) for level in "fm" for statistic in ("count", "share")),
    }
    terms = regress(total, "log(marker) ~ weight + stage + children").terms
    assert [(term.term, term.level, term.reference) for term in terms] == [
        ("Intercept", "", ""), ("weight", "", ""), ("weight", "missing", ""),
        *(("stage", level, "I") for level in ("II", "III", "missing")), ("children", "", ""),
    ]  # fmt: skip
    pairs = associate(total, ["weight", "stage", "sex", "children"])
    assert [(entry.first, entry.second) for entry in pairs.correlations] == [
        ("weight", "sex"), ("weight", "children"), ("sex", "children")
    ]  # fmt: skip
    assert [(entry.first, entry.second) for entry in pairs.tests] == [("stage", "sex")]
    assert list(pairs.list_estimates()) == ["weight and sex", "weight and children", "sex and children"]
