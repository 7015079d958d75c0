"""Redraw the figures of committed results, the page that sets the paper's numbers beside ours, and the page of findings.

    python -m mooring_studies.redraw results docs

reads results/<study>/ and writes docs/figures/<study>/, docs/figures.md, docs/paper-against-mooring.md and the same as CSV,
docs/findings.md, docs/alternatives.md and docs/paper/paper.md. Figures that show faces are not drawn here, even where
pictures are at hand: people's faces do not belong into a repository.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mooring import InputError, MooringError
from mooring.atomic_io import make_folder, write_atomically
from mooring_studies.alternatives.table import describe_alternatives
from mooring_studies.comparison.claims_page import render_comparison, write_comparison
from mooring_studies.comparison.findings import render_findings, render_paper
from mooring_studies.figures.study_figures import Figure
from mooring_studies.markdown import render_gallery, render_markdown, write_line
from mooring_studies.page import compare_with_paper, draw_figures
from mooring_studies.settings.spec import STUDIES, read_spec
from mooring_studies.storage.store import Finished, read_finished

COMPARISON, NUMBERS = "paper-against-mooring.md", "paper-against-mooring.csv"
FINDINGS, GALLERY = "findings.md", "figures.md"
ALTERNATIVES, PAPER = "alternatives.md", "paper/paper.md"
_FACES = ("celeba", "participants")


def redraw(results: Path, docs: Path, *, say: Callable[[str], None] = lambda words: None) -> list[Path]:
    """Redraw every study in the folder `results` into the folder `docs`; returns what was written."""
    finished = read_studies(results)
    figures: dict[str, list[Figure]] = {}
    for name, study in finished.items():
        figures[name] = draw_figures(study, docs / "figures" / name)
        say(f"{name}: {len(figures[name])} figures")
    make_folder(docs, what="the folder of documents")
    pages = render_pages(finished, figures, docs)
    for name, text in pages.items():
        make_folder((docs / name).parent, what="a folder of documents")
        write_atomically(docs / name, text.encode(), what=f"the page {name}")
        say(f"{docs / name}")
    return [*(figure.path for drawn in figures.values() for figure in drawn), *(docs / name for name in pages)]


def read_studies(results: Path) -> dict[str, Finished]:
    """The studies in a folder with one folder per study, without pictures of faces."""
    finished = {
        name: read_finished(results / name) for name in STUDIES if (results / name / "results.parquet").is_file()
    }
    if not finished:
        raise InputError(
            "results",
            expected="a folder with results.parquet and facts.json of a study, in a folder of its name",
            got=f"none of {', '.join(STUDIES)} in {results}",
            cure="'mooring reproduce STUDY --output results' makes one.",
        )
    return {name: replace(study, pictures=None) if name in _FACES else study for name, study in finished.items()}


def render_pages(
    finished: Mapping[str, Finished], figures: Mapping[str, Sequence[Figure]], docs: Path
) -> dict[str, str]:
    """The text of every page, by its name in the folder `docs`."""
    comparisons = compare_with_paper(finished)
    titles = {name: read_spec(name).title for name in finished}
    tables = {name: study.results for name, study in finished.items()}
    pages = {
        COMPARISON: render_comparison(comparisons, tables),
        NUMBERS: write_comparison(comparisons),
        FINDINGS: render_findings(tables, comparisons),
        GALLERY: render_gallery(
            {name: drawn for name, drawn in figures.items() if drawn and name != "alternatives"}, titles, under=docs
        ),
    }
    if "alternatives" in finished:
        study = finished["alternatives"]
        values = describe_alternatives(study.results, study.facts["spec"]["options"]["updates"])
        pages[ALTERNATIVES] = render_markdown("alternatives.md.jinja", values | {"write_line": write_line})
    if {"mnist", "sums"} <= set(tables):
        pages[PAPER] = render_paper(tables)
    return pages


def main(words: list[str]) -> int:
    """Run with the command line's words; returns an exit code."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if len(words) != 2:
        console.print("Give two folders: python -m mooring_studies.redraw RESULTS DOCS")
        return 2
    try:
        redraw(Path(words[0]), Path(words[1]), say=lambda text: console.print(text, markup=False))
    except MooringError as problem:
        console.print(f"mooring: {problem}", markup=False, soft_wrap=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
