"""From a finished study's files to what people look at: figures, the comparison with the paper, the page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mooring_studies.comparison.results import to_plain
from mooring_studies.figures.study_figures import Figure
from mooring_studies.storage.finished import Finished, read_finished

PAGE, CLAIMS = "index.html", "claims.json"


def present(folder: Path) -> list[Figure]:
    """Draw a finished study's figures, compare it with the paper, and write its page.

    Parameters
    ----------
    folder : Path
        The study's output folder; gets figures/, claims.json and index.html.
    """
    from mooring.atomic_io import write_atomically
    from mooring_studies.comparison.claims_page import as_dicts
    from mooring_studies.page import render_study

    finished = read_finished(folder)
    figures = draw_figures(finished, folder / "figures")
    comparisons = compare_with_paper({finished.study: finished}, only=finished.study)
    rows = to_plain(as_dicts(comparisons))
    content = json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomically(folder / CLAIMS, content.encode(), what="the comparison with the paper")
    page = render_study(finished, figures, rows)
    write_atomically(folder / PAGE, page.encode(), what="the page")
    return figures


def draw_figures(finished: Finished, folder: Path) -> list[Figure]:
    """Draw every figure of a study into a folder."""
    from mooring_studies.figures import study_figures

    return study_figures.draw_figures(finished.study, finished.results, finished.facts, finished.pictures, folder)


def compare_with_paper(studies: Mapping[str, Finished], *, only: str | None = None) -> list[Any]:
    """The paper's numbers beside those of some studies; `only` leaves out what belongs to others."""
    from mooring_studies.comparison.claims import compare

    found = compare({name: (one.results, one.facts) for name, one in studies.items()})
    return [one for one in found if only is None or one.number.study == only]
