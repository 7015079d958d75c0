"""The landscape's figures: what pooled raw rows would give stands beside every gain, and σ says its unit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mooring_studies.comparison.findings import find
from mooring_studies.comparison.results import Results
from mooring_studies.figures.chart import Drawing
from mooring_studies.figures.landscape import compare_deployments, compare_with_pooled, error_share
from mooring_studies.figures.study_figures import draw_study, house_style
from mooring_studies.summary import joining_pays, summarised

from tests.studies.support import LANDSCAPE_S, landscape_rows

N_NOISES = 3


def cells_noted() -> dict[str, Any]:
    """The facts of a run that noted s."""
    places = [{"deployment": 0, "n_participants": p, "rows_each": size} for size in LANDSCAPE_S for p in (2, 10)]
    return {"cells": [place | {"standard_deviation": LANDSCAPE_S[place["rows_each"]]} for place in places]}


def drawings(rows: list[dict[str, Any]], facts: dict[str, Any] | None = None) -> dict[str, Drawing]:
    """Every figure of the landscape by its name."""
    with house_style():
        found = draw_study("landscape", Results.from_rows(rows), cells_noted() if facts is None else facts, None)
        return {one.name: one for one in found}


def titles(drawing: Drawing) -> list[str]:
    """The panels' titles, in order."""
    return [title for axes in drawing.canvas.axes if (title := axes.get_title(loc="left"))]


def test_secure_sums_have_panels_over_the_better_way_of_training_alone() -> None:
    rows = landscape_rows()
    cells = [{name: row[name] for name in ("deployment", "n_participants", "rows_each")} for row in rows]
    for cell in [dict(pairs) for pairs in dict.fromkeys(tuple(cell.items()) for cell in cells)]:
        score = {"balanced_accuracy_clean": 0.62, "balanced_accuracy_clean:svm": 0.65}
        rows.append(cell | {"method": "local-only-features", "draw": 0} | score)
        for draw, (epsilon, reached) in enumerate([(None, 0.85), (1.0, 0.55)]):
            row = cell | {"method": "secure-sum", "draw": draw, "balanced_accuracy_clean": reached, "n_features": 201}
            rows.append(row | {"membership_tpr": 0.5 - 0.4 * draw} | ({} if epsilon is None else {"epsilon": epsilon}))
    found = drawings(rows)
    assert titles(found["gain"])[-2:] == ["sums, no noise", "sums, ε = 1"]
    panels = found["gain"].canvas.axes[N_NOISES + 1 : N_NOISES + 3]
    assert [text.get_text() for panel in panels for text in panel.texts] == ["+20"] * 4 + ["-10"] * 4
    assert titles(found["membership"]) == ["sums, no noise", "sums, ε = 1"]
    told = find({"landscape": Results.from_rows(rows)})["landscape"]
    assert {name: len(own) for name, own in told["sums"].items()} == {"none": 4, "one": 0}


def test_cells_are_compared_with_pooled_raw_of_the_same_deployment() -> None:
    rows = [row for row in landscape_rows(deployments=2) if (row["method"], row["deployment"]) != ("pooled-raw", 1)]
    assert len(compare_with_pooled(Results.from_rows(rows))) == 4


def test_errors_are_in_units_of_guessing() -> None:
    results = Results.from_rows(landscape_rows())
    attacked = results.only(np.isfinite(results["error:moments"]))
    np.testing.assert_allclose(error_share(attacked), 0.2 / 0.8)  # the smaller of the two errors
    texts = [text.get_text() for axes in drawings(landscape_rows())["leakage-error"].canvas.axes for text in axes.texts]
    assert set(texts) == {"0.25"}
    assert np.isnan(error_share(Results.from_rows([{"method": "m", "error:moments": 0.3}]))).all()


def test_gains_between_deployments_are_apart_cell_by_cell() -> None:
    results = Results.from_rows(landscape_rows(deployments=2)).where(method="pooled-raw")
    apart = compare_deployments(results, 100 * results["balanced_accuracy_clean"])
    np.testing.assert_allclose(sorted(apart), [0.2, 0.2, 1.0, 1.0])
    assert not len(compare_deployments(results.where(deployment=0), np.ones(4)))


def test_the_line_runs_between_cells_where_joining_pays_and_cells_where_not() -> None:
    rows = landscape_rows()
    for row in rows:
        if row["method"] == "aa-i-gdp-anchor-noise" and (row["rows_each"], row["n_participants"]) == (20, 2):
            row["balanced_accuracy_clean"] = 0.4
    panel = drawings(rows)["gain"].canvas.axes[0]
    edges = {(*line.get_xdata(), *line.get_ydata()) for line in panel.get_lines() if line.get_label() == "joining pays"}
    assert edges == {(1, 1, 0, 1), (0, 1, 1, 1)}  # right of the lowest cell on the left, and above it


def test_others_who_read_the_table_are_not_misled_by_pooled_raw() -> None:
    rows = landscape_rows()
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
