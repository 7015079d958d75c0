"""The landscape's figures: what pooled raw rows would give stands beside every gain, and σ says its unit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mooring_studies.comparison.findings import find
from mooring_studies.comparison.results import Results
from mooring_studies.figures.chart import Drawing
from mooring_studies.figures.landscape import compare_deployments, compare_with_pooled
from mooring_studies.figures.study_figures import draw_study, house_style
from mooring_studies.summary import joining_pays, summarised

S = {20: 2.0, 200: 3.0}
SCORES = {"local-only": 0.50, "pooled-raw": 0.80, "aa-i-gdp": 0.79}
NOISES = [
    ("aa-i-gdp-anchor-noise", 0.05, 0.0, 0.70),
    ("aa-i-gdp-anchor-noise", 0.2, 0.0, 0.45),
    ("aa-i-gdp-data-noise", 0.0, 0.3, 0.60),
]


def made_rows(*, deployments: int = 1) -> list[dict[str, Any]]:
    """Two sizes by two numbers of participants; more rows and participants are worth more to all but noise."""
    rows = []
    for deployment, size, p in ((d, n, p) for d in range(deployments) for n in S for p in (2, 10)):
        cell = {"deployment": deployment, "n_participants": p, "rows_each": size}
        more = 0.001 * p * (deployment + 1)
        noiseless = [(method, 0.0, 0.0, score) for method, score in SCORES.items()]
        for draw, (method, v, level, score) in enumerate(noiseless + NOISES):
            better = score + more * (method != "local-only")
            noise = {"anchor_noise_scale": v, "data_noise_scale": level * S[size]}
            told = {"balanced_accuracy": better, "balanced_accuracy_clean": better}
            attacked = {} if method in ("local-only", "pooled-raw") else {"match:moments": 0.5, "error:moments": 0.2}
            rows.append(cell | {"method": method, "draw": draw} | noise | told | attacked)
    return rows


def cells_noted() -> dict[str, Any]:
    """The facts of a run that noted s."""
    places = [{"deployment": 0, "n_participants": p, "rows_each": size} for size in S for p in (2, 10)]
    return {"cells": [place | {"standard_deviation": S[place["rows_each"]]} for place in places]}


def drawings(rows: list[dict[str, Any]], facts: dict[str, Any] | None = None) -> dict[str, Drawing]:
    """Every figure of the landscape by its name."""
    with house_style():
        found = draw_study("landscape", Results.from_rows(rows), cells_noted() if facts is None else facts, None)
        return {one.name: one for one in found}


def titles(drawing: Drawing) -> list[str]:
    """The panels' titles, in order."""
    return [title for axes in drawing.canvas.axes if (title := axes.get_title(loc="left"))]


def test_the_map_of_gains_has_a_panel_of_pooled_raw_over_local_only() -> None:
    found = drawings(made_rows())
    assert titles(found["gain"])[-1] == "pooled raw, no protection"
    assert len(titles(found["gain"])) == len(NOISES) + 1
    panel = found["gain"].canvas.axes[len(NOISES)]
    assert [text.get_text() for text in panel.texts] == ["+30", "+31", "+30", "+31"]
    assert "pooled raw, one model trained in the same way" in found["gain"].caption


def test_the_colours_of_the_map_of_gains_reach_as_far_as_pooled_raw() -> None:
    panel = drawings(made_rows())["gain"].canvas.axes[0]
    assert panel.collections[0].get_clim() == (-35.0, 35.0)  # joining gains 21 at most, pooled raw 31


def test_maps_of_leakage_have_no_panel_of_pooled_raw() -> None:
    found = drawings(made_rows())
    for name in ("leakage", "leakage-error"):
        assert len(titles(found[name])) == len(NOISES)
        assert "pooled" not in found[name].caption


def test_the_caption_says_how_near_joining_without_noise_comes() -> None:
    rows = made_rows()
    np.testing.assert_allclose(compare_with_pooled(Results.from_rows(rows)), [-1.0] * 4)
    next(row for row in rows if row["method"] == "aa-i-gdp")["balanced_accuracy_clean"] += 0.05  # now 4 above
    words = (
        "Joining without noise, which turns these rows and no more, is 1.8 points from it on average and 4.0 at most, "
        "either way."
    )
    assert words in drawings(rows)["gain"].caption
    without = drawings([row for row in rows if row["method"] != "aa-i-gdp"])["gain"]
    assert titles(without)[-1] == "pooled raw, no protection"
    assert "Joining without noise" not in without.caption


def test_cells_are_compared_with_pooled_raw_of_the_same_deployment() -> None:
    rows = [row for row in made_rows(deployments=2) if (row["method"], row["deployment"]) != ("pooled-raw", 1)]
    assert len(compare_with_pooled(Results.from_rows(rows))) == 4


def test_a_table_without_pooled_raw_is_drawn_as_before() -> None:
    found = drawings([row for row in made_rows() if row["method"] != "pooled-raw"])["gain"]
    assert len(titles(found)) == len(NOISES)
    assert "pooled" not in found.caption


def test_sigma_is_a_multiple_of_s_and_every_figure_says_what_s_is() -> None:
    for one in drawings(made_rows()).values():
        assert titles(one)[2] == "private-data noise σ = 0.3 s"
        unit = "the standard deviation of the projected rows, columns centred (2.00 to 3.00 here)"
        assert f"as a multiple of s, {unit}" in one.caption
        assert one.canvas.get_supxlabel() == f"participants\nσ in units of s, {unit}"
    assert "here)" not in drawings(made_rows(), facts={})["gain"].caption


def test_where_no_panel_has_sigma_the_axis_has_no_word_of_s() -> None:
    found = drawings([row for row in made_rows() if row["method"] != "aa-i-gdp-data-noise"])
    assert {one.canvas.get_supxlabel() for one in found.values()} == {"participants"}


def test_gains_between_deployments_are_apart_cell_by_cell() -> None:
    results = Results.from_rows(made_rows(deployments=2)).where(method="pooled-raw")
    apart = compare_deployments(results, 100 * results["balanced_accuracy_clean"])
    np.testing.assert_allclose(sorted(apart), [0.2, 0.2, 1.0, 1.0])
    assert not len(compare_deployments(results.where(deployment=0), np.ones(4)))


def test_the_line_runs_between_cells_where_joining_pays_and_cells_where_not() -> None:
    rows = made_rows()
    for row in rows:
        if row["method"] == "aa-i-gdp-anchor-noise" and (row["rows_each"], row["n_participants"]) == (20, 2):
            row["balanced_accuracy_clean"] = 0.4
    panel = drawings(rows)["gain"].canvas.axes[0]
    edges = {(*line.get_xdata(), *line.get_ydata()) for line in panel.get_lines() if line.get_label() == "joining pays"}
    assert edges == {(1, 1, 0, 1), (0, 1, 1, 1)}  # right of the lowest cell on the left, and above it


def test_others_who_read_the_table_are_not_misled_by_pooled_raw() -> None:
    rows = made_rows()
    with_it, without = (
        Results.from_rows(part) for part in (rows, [row for row in rows if row["method"] != "pooled-raw"])
    )
    assert joining_pays(with_it) == joining_pays(without) == (8, 12)
    told, bare = (find({"landscape": part})["landscape"] for part in (with_it, without))
    assert told["pooled_gain"] == pytest.approx(30, abs=2)
    assert bare == told | {"pooled_gain": None}
    sizes = summarised(with_it)
    assert [size["pooled_raw"] for size in sizes] == pytest.approx([80.2, 80.2, 81.0, 81.0])
    assert {round(size["local_only"], 6) for size in sizes} == {50.0}
