"""The pages of the documentation are what the committed results give: `make figures` renews them."""

import platform
from pathlib import Path

import pytest
from mooring_studies.figures.study_figures import Figure, draw_study, house_style
from mooring_studies.redraw import read_studies, render_pages

from tests.record import MACHINE

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.mark.skipif(platform.machine() != MACHINE, reason="another kind of processor rounds otherwise")
def test_kept_pages_and_figures_are_those_of_the_committed_results() -> None:
    finished = read_studies(ROOT / "results")
    figures: dict[str, list[Figure]] = {}
    for name, study in finished.items():
        with house_style():
            drawn = draw_study(name, study.results, study.facts, study.pictures)
            figures[name] = [
                Figure(one.name, DOCS / "figures" / name / f"{one.name}.{one.ending}", one.title, one.caption)
                for one in drawn
            ]
    for page, text in render_pages(finished, figures, DOCS).items():
        assert text == (DOCS / page).read_text(encoding="utf-8"), f"{page}: run make figures and read the difference"
    kept = {path for path in (DOCS / "figures").rglob("*") if path.parent.name in finished}
    assert {figure.path for drawn in figures.values() for figure in drawn} == kept
