"""The pages of the documentation are what the committed results give: `make figures` renews them."""

import platform
from pathlib import Path

import pytest
from mooring_studies.figures.study_figures import Figure, draw_study, house_style
from mooring_studies.redraw import read_studies, render_pages

from benchmarks import render, render_leakage, render_statistics
from tests.record import MACHINE

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FEW_RESAMPLES = 2  # figures' bands, which no page states, would take half of the time


@pytest.mark.skipif(platform.machine() != MACHINE, reason="another kind of processor rounds otherwise")
def test_kept_pages_and_figures_are_those_of_the_committed_results() -> None:
    finished = read_studies(ROOT / "results")
    figures: dict[str, list[Figure]] = {}
    for name, study in finished.items():
        with house_style():
            drawn = draw_study(name, study.results, study.facts, study.pictures, n_resamples=FEW_RESAMPLES)
            figures[name] = [
                Figure(draw.name, DOCS / "figures" / name / f"{draw.name}.{draw.ending}", draw.title, draw.caption)
                for draw in drawn
            ]
    for page, text in render_pages(finished, figures, DOCS).items():
        kept = (DOCS / page).read_text(encoding="utf-8")
        assert text == kept, f"{page}: run make figures and read the difference"
    on_disk = {path for path in (DOCS / "figures").rglob("*") if path.parent.name in finished}
    assert {figure.path for drawn in figures.values() for figure in drawn} == on_disk


def test_kept_pages_of_benchmarks_are_those_of_the_committed_results() -> None:
    statistics = render_statistics.render_page((DOCS / "statistics.md").read_text(encoding="utf-8"))
    pages = {"leakage.md": render_leakage.render(), "benchmarks.md": render.render_page(), "statistics.md": statistics}
    for page, text in pages.items():
        assert text == (DOCS / page).read_text(encoding="utf-8"), f"{page}: run make docs and read the difference"
