"""Pages of answers: pictures show the estimates, and names from a study are text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mooring.mechanisms.sums.answers import Answer, OddsRatio, OddsRatios, Source, SurvivalCurves, SurvivalPoint
from mooring.report.answer_page import draw_answer, list_at_risk, render_answer

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
    assert chart.area.x.place(2.0) == pytest.approx(63.1, abs=0.1)


@pytest.mark.parametrize("answer", [CURVES, RATIOS], ids=["survival", "odds ratios"])
def test_a_page_names_the_guarantee_and_escapes_words(answer: Answer) -> None:
    page = render_answer(replace(answer, notes=("<script>",)), title="mooring <b>")
    assert "ε = 1, δ = 1e-05 for one row" in page
    assert "<script>" not in page
    assert "<b>mooring" not in page
    assert "b<i>" not in page
