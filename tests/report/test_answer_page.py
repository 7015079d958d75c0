"""Pages of answers: pictures show the estimates, and names from a study are text."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mooring.errors import InputError
from mooring.mechanisms.sums.answers import (
    Answer,
    AskedAnswer,
    Description,
    OddsRatio,
    OddsRatios,
    Source,
    Statistic,
    SurvivalCurves,
    SurvivalPoint,
)
from mooring.protocol.sums.analyst.asked import FOLDER, keep_answer
from mooring.report.answer_page import draw_answer, list_at_risk, render_answer
from mooring.report.records import collect_records
from mooring.report.study_page import render_report
from mooring.report.summary import summarise
from tests.protocol.sums.support import make_sum_study
from tests.raising import raising

SOURCE = Source(1000.0, 10.0, 1.0, 1e-5, "row", "")
CURVES = SurvivalCurves(
    SOURCE,
    (),
    "Intervals are 95 %.",
    "arm",
    "kaplan-meier",
    (
        SurvivalPoint("a", 0.0, 6.0, 600.0, 60.0, 0.0, 0.9, 0.85, 0.95),
        SurvivalPoint("a", 6.0, 12.0, 540.0, 54.0, 10.0, 0.8, 0.75, 0.85),
        SurvivalPoint("b<i>", 0.0, 6.0, 400.0, 80.0, 0.0, 0.75, 0.7, 0.8),
    ),
    (),
    None,
)
RATIOS = OddsRatios(
    SOURCE, (), "Intervals are 95 %.", "y ~ x", "y = yes", (OddsRatio("x", "", "", 2.0, 1.5, 3.0, 0.001, 0.1),)
)


def test_curves_are_steps_with_both_ends_of_their_intervals() -> None:
    (chart,) = draw_answer(CURVES)
    assert [name for name, _ in chart.legend] == ["a", "b<i>"]
    lines = {shape["title"]: shape["path"] for shape in chart.shapes}
    assert len(lines) == 6
    assert lines["a: survival"].startswith("M0 0L")  # everybody is alive at first
    assert lines["a: survival"].endswith(" 20")  # and 80 % at the end
    assert lines["a: low"].endswith(" 25")


def test_numbers_at_risk_are_a_line_per_group() -> None:
    assert list_at_risk(CURVES) == [("group", "at 0", "at 6"), ("a", "600", "540"), ("b<i>", "400", "")]


def test_ratios_are_drawn_on_a_logarithmic_axis_around_one() -> None:
    (chart,) = draw_answer(RATIOS)
    assert chart.area.x.log
    assert chart.area.x.is_inside(1.0)
    assert chart.area.x.low < 1.0 < 3.0 < chart.area.x.high  # the interval is not cut
    assert chart.area.x.place(2.0) - chart.area.x.place(1.0) == pytest.approx(
        chart.area.x.place(3.0) - chart.area.x.place(1.5), abs=0.1
    )


@pytest.mark.parametrize("answer", [CURVES, RATIOS], ids=["survival", "odds ratios"])
def test_a_page_names_the_guarantee_and_escapes_words(answer: Answer) -> None:
    page = render_answer(replace(answer, notes=("<script>",)), question="mooring <b>")
    assert "ε = 1, δ = 1e-05 for one row" in page
    assert "<script>" not in page
    assert "<b>mooring" not in page
    assert "b<i>" not in page


SHARES = Description(
    SOURCE,
    (),
    "Intervals are 95 %.",
    "arm",
    ("all", "a", "b"),
    tuple(
        Statistic(column, level, group, statistic, share, share - 0.1, share + 0.1)
        for column, levels in {"sex": ("female", "male"), "stage": ("i", "ii", "iii")}.items()
        for share, level in enumerate(levels, start=1)
        for statistic in ("count", "share")
        for group, share in (("all", 0.2 * share), ("a", 0.1 * share), ("b", 0.3 * share))
    ),
)


def test_a_group_without_shares_has_no_mark_in_the_legend() -> None:
    unknown = tuple(
        replace(entry, estimate=math.nan, low=math.nan, high=math.nan) if entry.group == "b" else entry
        for entry in SHARES.statistics
    )
    (chart,) = draw_answer(replace(SHARES, statistics=unknown))
    assert [name for name, _ in chart.legend] == ["arm = a"]


def test_shares_are_drawn_by_group_and_of_two_levels_the_second() -> None:
    (chart,) = draw_answer(SHARES)
    assert [words for _, words in chart.area.y.ticks] == ["sex: male", "stage: i", "stage: ii", "stage: iii"]
    assert [name for name, _ in chart.legend] == ["arm = a", "arm = b"]
    assert sum(shape["kind"] == "mark" for shape in chart.shapes) == 8


def test_the_report_has_what_was_asked_of_its_study_and_opens_with_a_picture_of_it(tmp_path: Path) -> None:
    """An answer that is asked for again is kept once; one about another study is left out."""
    (tmp_path / "study").mkdir()
    study = make_sum_study(tmp_path / "study", 4, epsilon=1.0).study
    for answer, command in (
        (CURVES, "mooring survival"),
        (SHARES, "mooring describe --page x"),
        (SHARES, "mooring describe"),
    ):
        keep_answer(study, tmp_path, answer, command)
    keep_answer(replace(study, nonce="0" * 32), tmp_path, RATIOS, "mooring regress")
    records = collect_records(tmp_path, study)
    assert sorted(asked.command for asked in records.answers) == ["mooring describe", "mooring survival"]
    assert {asked.answer.answer: asked.answer for asked in records.answers} == {"survival": CURVES, "table-1": SHARES}
    page = render_report(summarise(study, records))
    assert (
        page.index("<h2>What the answers say</h2>")
        < page.index("Survival curves by arm")
        < page.index("Table 1, by arm")
    )
    assert page.count('aria-label="Survival curves') == 1  # one picture, not two
    assert "odds ratio" not in page


@pytest.mark.parametrize("damage", [{"ratios": 3}, {"answer": "none"}, {"answer": "table-1"}, {"more": 1}])
def test_a_damaged_answer_is_an_error_that_names_its_file(damage: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    study = make_sum_study(tmp_path / "study", 4, epsilon=1.0).study
    keep_answer(study, tmp_path, RATIOS, "mooring regress")
    (file,) = (tmp_path / FOLDER).iterdir()
    plain = json.loads(file.read_text())
    plain["answer"] |= damage
    file.write_text(json.dumps(plain))
    with raising(InputError, f"the answer {file.name}"):
        collect_records(tmp_path, study)


def test_an_answer_that_could_not_be_shown_is_refused() -> None:
    with raising(InputError, "the answer"):
        AskedAnswer("mooring describe", "", replace(SHARES, statistics=SHARES.statistics[1:2]))
