"""Redraw the figures of committed results, the page that sets the paper's numbers beside ours, and the page of findings.

    python -m mooring.apps.experiments.redraw results docs

reads results/<study>/ and writes docs/figures/<study>/, docs/paper-against-mooring.md and docs/findings.md. Figures that
show faces are not drawn here, even where pictures are at hand: people's faces do not belong into a repository.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mooring.apps.experiments.presenting import compared, draw_figures
from mooring.apps.experiments.settings.spec import STUDIES
from mooring.apps.experiments.storing.finished import Finished, read_finished
from mooring.errors import InputError, MooringError

COMPARISON, FINDINGS = "paper-against-mooring.md", "findings.md"
_FACES = ("celeba", "participants")


def redraw(results: Path, docs: Path, *, say: Callable[[str], None] = lambda words: None) -> list[Path]:
    """Redraw every study that is there; returns what was written.

    Parameters
    ----------
    results : Path
        A folder with one folder a study.
    docs : Path
        Gets figures/<study>/ and the comparison with the paper.
    say : callable
        Told what is drawn.
    """
    there = [name for name in STUDIES if (results / name / "results.parquet").is_file()]
    if not there:
        raise InputError(
            "results",
            expected="a folder with results.parquet and facts.json of a study, in a folder of its name",
            got=f"none of {', '.join(STUDIES)} in {results}",
            cure="'mooring reproduce STUDY --output results' makes one.",
        )
    from mooring.apps.experiments.comparison.claims_page import markdown
    from mooring.apps.experiments.comparison.findings import findings
    from mooring.protocol.durable import make_folder, write_durably

    finished: dict[str, Finished] = {}
    written: list[Path] = []
    for name in there:
        finished[name] = read_finished(results / name)
        if name in _FACES:
            finished[name] = replace(finished[name], pictures=None)
        figures = draw_figures(finished[name], docs / "figures" / name)
        written += [figure.path for figure in figures]
        say(f"{name}: {len(figures)} figures")
    path = docs / COMPARISON
    make_folder(docs, what="the folder of documents")
    comparisons = compared(finished)
    text = markdown(comparisons, {name: one.facts for name, one in finished.items()})
    write_durably(path, text.encode(), what="the comparison with the paper")
    say(f"{path}")
    findings_path = docs / FINDINGS
    told = findings({name: one.results for name, one in finished.items()}, comparisons)
    write_durably(findings_path, told.encode(), what="the page of findings")
    say(f"{findings_path}")
    return [*written, path, findings_path]


def main(words: list[str]) -> int:
    """Run with the command line's words; returns an exit code."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if len(words) != 2:
        console.print("Give two folders: python -m mooring.apps.experiments.redraw RESULTS DOCS")
        return 2
    try:
        redraw(Path(words[0]), Path(words[1]), say=lambda text: console.print(text, markup=False))
    except MooringError as problem:
        console.print(f"mooring: {problem}", markup=False, soft_wrap=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
