"""The landscape's figures: what pooled raw rows would give stands beside every gain, and σ says its unit."""

from __future__ import annotations

from typing import Any

import numpy as np
from mooring_studies.comparison.results import Results
from mooring_studies.figures.chart import Drawing
from mooring_studies.figures.landscape import error_share
from mooring_studies.figures.study_figures import draw_study, house_style

from tests.studies.support import LANDSCAPE_S, landscape_rows


def cells_noted() -> dict[str, Any]:
    """The facts of a run that noted s."""
    places = [{"deployment": 0, "n_participants": p, "rows_each": size} for size in LANDSCAPE_S for p in (2, 10)]
    return {"cells": [place | {"standard_deviation": LANDSCAPE_S[place["rows_each"]]} for place in places]}


def drawings(rows: list[dict[str, Any]], facts: dict[str, Any] | None = None) -> dict[str, Drawing]:
    """Every figure of the landscape by its name."""
    with house_style():
        figures = draw_study("landscape", Results.from_rows(rows), cells_noted() if facts is None else facts, None)
        return {figure.name: figure for figure in figures}


def titles(drawing: Drawing) -> list[str]:
    """The panels' titles, in order."""
    return [title for axes in drawing.canvas.axes if (title := axes.get_title(loc="left"))]


def test_errors_are_in_units_of_guessing() -> None:
    results = Results.from_rows(landscape_rows())
    attacked = results.only(np.isfinite(results["error:moments"]))
    np.testing.assert_allclose(error_share(attacked), 0.2 / 0.8)  # the smaller of the two errors
    texts = [text.get_text() for axes in drawings(landscape_rows())["leakage-error"].canvas.axes for text in axes.texts]
    assert set(texts) == {"0.25"}
    assert np.isnan(error_share(Results.from_rows([{"method": "m", "error:moments": 0.3}]))).all()


def test_the_line_runs_between_cells_where_joining_pays_and_cells_where_not() -> None:
    rows = landscape_rows()
    for row in rows:
        if row["method"] == "aa-i-gdp-anchor-noise" and (row["rows_each"], row["n_participants"]) == (20, 2):
            row["balanced_accuracy_clean"] = 0.4
    panel = drawings(rows)["gain"].canvas.axes[0]
    edges = {(*line.get_xdata(), *line.get_ydata()) for line in panel.get_lines() if line.get_label() == "joining pays"}
    assert edges == {(1, 1, 0, 1), (0, 1, 1, 1)}  # right of the lowest cell on the left, and above it
