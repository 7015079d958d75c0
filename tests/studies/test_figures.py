"""Figures are drawn from tables alone, the same each time, and show what the numbers are worth.

They are drawn from the committed results; where a test needs what these do not have, it changes some of their rows.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mooring_studies.comparison.results import Results, decode_rows
from mooring_studies.figures.fits import Fits
from mooring_studies.figures.frontier import find_frontier
from mooring_studies.figures.readings import average_by_setting, match_levels
from mooring_studies.figures.study_figures import draw_figures, draw_study, house_style, locate_paper
from mooring_studies.redraw import read_studies

from tests.studies.support import landscape_rows

RESULTS = Path(__file__).parents[2] / "results"
FEW_RESAMPLES = 20
Rows = list[dict[str, Any]]
Drawings = dict[str, Any]


def rows_of(study: str) -> Rows:
    """The committed rows of a study's first two deployments."""
    return [row for row in decode_rows((RESULTS / study / "results.parquet").read_bytes()) if row["deployment"] < 2]


def draw(study: str, rows: Rows, facts: dict[str, Any] | None = None) -> Drawings:
    """Every drawing of a study by its name, unwritten."""
    kept = read_studies(RESULTS)[study].facts if facts is None else facts
    with house_style():
        figures = draw_study(study, Results.from_rows(rows), kept, None, n_resamples=FEW_RESAMPLES)
        return {figure.name: figure for figure in figures}


@cache
def drawn(study: str) -> tuple[Results, Drawings]:
    """The committed results of a study, and its drawings."""
    rows = rows_of(study)
    return Results.from_rows(rows), draw(study, rows)


def of_panel(axes: Any, label: str) -> list[Any]:
    """A panel's lines whose label begins so."""
    return [line for line in axes.get_lines() if str(line.get_label()).startswith(label)]


def lines(drawing: Any, label: str) -> list[Any]:
    """The lines with this label, in all panels."""
    return [line for axes in drawing.canvas.axes for line in of_panel(axes, label) if line.get_label() == label]


def heights(figures: list[Any]) -> set[float]:
    return {round(float(np.asarray(line.get_ydata())[0]), 6) for line in figures}


def with_control(rows: Rows, method: str, **values: float) -> Rows:
    """The same rows, those of one method without noise with other values."""
    return [row | values if row["method"] == method else row for row in rows]


def test_figures_are_written_with_the_same_bytes_whatever_others_set(tmp_path: Path) -> None:
    import matplotlib

    results = Results.from_rows(landscape_rows())
    first = draw_figures("landscape", results, {}, None, tmp_path / "ours", n_resamples=FEW_RESAMPLES)
    with matplotlib.rc_context({"font.size": 23.0, "axes.linewidth": 5.0}):
        before = dict(matplotlib.rcParams)
        again = draw_figures("landscape", results, {}, None, tmp_path / "theirs", n_resamples=FEW_RESAMPLES)
        assert dict(matplotlib.rcParams) == before
    assert [figure_file.path.read_bytes() for figure_file in first] == [site.path.read_bytes() for site in again]


@pytest.mark.parametrize("study", ["mnist", "participants", "hospitals", "landscape"])
def test_an_unfinished_study_is_drawn_as_far_as_it_goes(study: str) -> None:
    controls = [row for row in rows_of(study) if not row["method"].endswith("-noise")]
    assert set(draw(study, controls, {})) <= {path.stem for path in (RESULTS.parent / "docs/figures" / study).iterdir()}
    draw(study, [], {})


@pytest.mark.parametrize("name", ["utility", "tradeoff", "tradeoff-as-deployed", "both-noises"])
def test_training_alone_and_pooling_are_on_every_utility_and_tradeoff(name: str) -> None:
    results, figures = drawn("mnist")
    for words, method in (("local only", "local-only"), ("pooled raw", "pooled-raw")):
        score = 100 * results.where(method=method, deployment=0)["balanced_accuracy"]
        assert heights(lines(figures[name], words)) == {round(float(score.mean()), 6)}


@pytest.mark.parametrize("study", ["hospitals", "census"])
def test_joining_is_compared_with_each_participants_model_on_its_rows(study: str) -> None:
    results, figures = drawn(study)
    sizes = np.unique(results["rows_each"]) if study == "census" else [None]
    for name, column in (("utility", "balanced_accuracy_clean"), ("utility-auc", "auc_own_clean")):
        parts = [results if size is None else results.where(rows_each=size) for size in sizes]
        wanted = {round(100 * float(part.where(method="local-own")[column].mean()), 6) for part in parts}
        assert heights(lines(figures[name], "training alone, own rows")) == wanted


def test_nothing_beats_the_frontier_of_images() -> None:
    """Points without noise are on the frontier, too: here I-GDP is the safest and AA-I-GDP the most accurate."""
    safe = {"linkage:moments": 0.01, "match:moments": 0.02, "balanced_accuracy": 0.7, "balanced_accuracy_clean": 0.7}
    best = {"balanced_accuracy": 0.99, "balanced_accuracy_clean": 0.99}
    figures = draw("mnist", with_control(with_control(rows_of("mnist"), "i-gdp", **safe), "aa-i-gdp", **best))
    panels = [axes for name in ("tradeoff-as-deployed", "both-noises") for axes in figures[name].canvas.axes]
    panels = [axes for axes in panels if of_panel(axes, "frontier")]
    assert len(panels) > 2
    for axes in panels:
        (front,) = of_panel(axes, "frontier")
        shown = [line for line in axes.get_lines() if line.get_marker() not in ("None", "", None)]
        points = np.concatenate([np.asarray(line.get_xydata(), dtype=float) for line in shown])
        corners = front.get_xydata()[:-1]
        assert not ((points[:, None, 0] <= corners[None, :, 0]) & (points[:, None, 1] > corners[None, :, 1])).any()
        assert corners[-1][1] == pytest.approx(99.0)


@pytest.mark.parametrize("study", ["hospitals", "census"])
def test_nothing_beats_the_frontier_of_tables(study: str) -> None:
    rows = rows_of(study)
    measured = {name for row in rows for name in row if name.startswith(("match:", "error:"))} - {"error:guessing"}
    safe = {name: 0.05 if name.startswith("match:") else 1.5 for name in measured}
    safe |= {"balanced_accuracy": 0.99, "balanced_accuracy_clean": 0.99}
    for place, axes in enumerate(draw(study, with_control(rows, "i-gdp", **safe))["tradeoff"].canvas.axes):
        (front,) = of_panel(axes, "frontier")
        # I-GDP beats everything here: its level runs from its own leakage to the greatest.
        assert np.asarray(front.get_ydata()) == pytest.approx([99.0, 99.0])
        assert front.get_xdata()[0] == pytest.approx(5.0 if place % 2 == 0 else 1.5)


def test_no_attack_is_drawn_above_what_it_finds_without_noise() -> None:
    results, figures = drawn("celeba")
    control = results.where(method=["c-gdp", "aa-i-gdp"], deployment=0)
    most = 100 * np.nanmax(control.envelope("linkage")) + 1e-9
    for name in ("linkage", "linkage-strongest"):
        curves = [line for line in figures[name].canvas.axes[1].get_lines() if line.get_linestyle() != "None"]
        assert len(curves) >= 3
        for line in curves:
            assert line.get_label() == "strongest, matched directly" or np.nanmax(line.get_ydata()) <= most
    for label in ("anchor noise, Procrustes (paper)", "anchor noise, strongest attack we know"):
        (track,) = lines(figures["tradeoff"], label)
        assert np.nanmax(track.get_xdata()) <= most


@pytest.mark.parametrize(
    ("name", "words"), [("linkage", "strongest attack we know"), ("linkage-strongest", "strongest, by the auditor")]
)
def test_the_strongest_attack_is_nowhere_below_one_that_is_shown(name: str, words: str) -> None:
    axes = drawn("celeba")[1][name].canvas.axes[1]
    (strong,) = of_panel(axes, words)
    others = [line for line in axes.get_lines() if "OP)" in str(line.get_label()) or "MP)" in str(line.get_label())]
    assert others
    for other in others:
        assert np.all(strong.get_ydata() >= np.interp(strong.get_xdata(), *other.get_data()) - 1e-9)


def test_bands_end_where_draws_are_few() -> None:
    rng = np.random.default_rng(6)
    x = np.concatenate([rng.uniform(0, 0.2, 20), [0.4, 0.55, 0.7, 0.85, 1.0]])
    line = Fits(200).line(x, 80 - 60 * x + rng.normal(0, 2, len(x)))
    assert (line.x[0], line.x[-1]) == (x.min(), x.max())  # the curve goes as far as its draws
    assert np.isfinite(line.y).all()
    near = np.array([(np.abs(x - place) <= 0.1 * np.ptp(x)).sum() for place in line.x])
    last = np.flatnonzero(near >= 5)[-1]
    assert 0 < last < len(line.x) - 1
    assert np.array_equal(np.isfinite(line.lower), np.arange(len(line.x)) <= last)
    assert np.array_equal(np.isfinite(line.upper), np.arange(len(line.x)) <= last)


def test_the_frontier_is_what_no_other_point_beats() -> None:
    rng = np.random.default_rng(0)
    leakage, utility = rng.integers(0, 12, 60).astype(float), rng.integers(0, 12, 60).astype(float)
    utility[7] = np.nan
    points = {(leakage[k], utility[k]) for k in range(60) if k != 7}
    wanted = {p for p in points if not any(q != p and q[0] <= p[0] and q[1] >= p[1] for q in points)}
    assert sorted((leakage[k], utility[k]) for k in find_frontier(leakage, utility)) == sorted(wanted)


def test_levels_of_noise_are_matched_between_deployments_by_their_order() -> None:
    rows = [
        {"deployment": d, "method": "m", "draw": k, "data_noise_scale": level * (1 + 0.01 * d), "accuracy": level}
        for d in range(3)
        for k, level in enumerate((0.1, 0.3, 0.5))
    ]
    x, y = match_levels(Results.from_rows(rows), "data_noise_scale", "accuracy")
    np.testing.assert_allclose(x, 1.01 * np.array([0.1, 0.3, 0.5]))
    assert y.shape == (3, 3)


def test_the_frontier_of_tables_is_one_of_means_not_of_lucky_runs() -> None:
    rows = [
        {"deployment": d, "method": "m", "anchor_noise_scale": v, "data_noise_scale": sigma * (1 + 0.1 * d)}
        for d in (0, 1)
        for v, sigma in ((0.1, 1.0), (0.1, 2.0), (0.2, 1.0))
    ]
    leakage, utility = np.array([1.0, 2, 3, 3, 4, np.nan]), np.array([10.0, 20, 30, 30, 40, 90])
    averages = average_by_setting(Results.from_rows(rows), leakage, utility)
    np.testing.assert_allclose(averages, [[2, 3, 3], [20, 30, 30]])


def test_the_papers_numbers_are_marked_on_its_figures() -> None:
    marked = {
        (study, name): locate_paper(study, name)
        for study in ("mnist", "celeba", "participants")
        for name in ("linkage", "utility", "tradeoff", "solver", "utility-by-noise")
    }
    assert (1, 0.1, 74.7281) in marked["mnist", "utility"]
    assert (0, 20, 14.39) in marked["mnist", "linkage"]
    assert (-1, pytest.approx(12.4), 59.2) in marked["mnist", "tradeoff"]
    assert (1, 0.059, pytest.approx(10)) in marked["celeba", "linkage"]
    assert (-1, 11.4, pytest.approx(75)) in marked["celeba", "tradeoff"]
    assert (0, 0.0395, 500) in marked["celeba", "solver"]
    assert len(marked["participants", "tradeoff"]) == 10
    assert sum(map(bool, marked.values())) == 10
