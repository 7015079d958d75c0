"""Output of `mooring audit` and `mooring plan`: a page with its numbers, the main findings, and a table of points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from mooring import AuditResult
from mooring.atomic_io import write_atomically
from mooring.audit import PointResult
from mooring.audit.results.statements import list_exposed, state_strongest
from mooring.cli.execution import make_table, quote_command

_CAPTION = (
    "data, anchor, both: AA-I-GDP with noise on private data (σ), on the anchor (v), on both. {unit} "
    "its error: 0 is exact recovery, 1 the rows' spread, with a 95 % interval; a lower bound on leakage. "
    "guess: the error of guessing without the upload. "
    "links: rows picked out of ten look-alikes. at 1 %: members recognised at 1 % false positives. "
    "score: AUC for classes, R² for numbers, as deployed; (noisy): with noise on test rows too, as in the paper."
)
_OF_TOTALS = (
    "AUC: how often a member scores above a non-member, 0.5 by chance. at 1 %, at 0.1 %: members recognised at these "
    "false positive rates. Both are lower bounds on leakage. ε ≥: measured by canaries, artificial rows that change the "
    "sums most; more than the stated ε would be a fault."
)
_ASKED = ("exact_source_linkage", "identity_linkage", "attribute")


def write_page(folder: Path, render: Callable[..., str], result: Any, name: str) -> str:
    """Write report.html and, to the file `name`, the numbers behind it; return the line that says where they are."""
    page, numbers = folder / "report.html", folder / name
    for path, text in ((page, render(result, command=quote_command())), (numbers, result.to_json())):
        write_atomically(path, text.encode(), mode=0o600, what="the audit")
    return f"Open [bold]{escape(str(page))}[/bold] in a browser; numbers are in {escape(str(numbers))}."


def print_findings(console: Console, result: AuditResult, *, notes: Sequence[str] = ()) -> None:
    """Print what a reader must know first: hazards, who attacks whom, and the strongest attack at the chosen setting."""
    for note in notes:
        console.print(f"note: {note}", style="dim", markup=False)
    for words in result.warnings:
        console.print(f"hazard: {words}", style="yellow", markup=False)
    about = result.description
    console.print(
        f"{', '.join(about.colluders) or 'nobody'} colludes with the analyst against {', '.join(about.targets)}."
    )
    point = result.headline_point
    for words in result.sentences[:2]:
        console.print(words, style="bold red", markup=False)
    for clause in () if point is None else (state_strongest(point, measure) for measure in _ASKED):
        if clause:
            console.print(f"{clause}.", markup=False)
    if result.release is not None:
        console.print(f"The model: {result.release}", markup=False)
    for clause in () if point is None else list_exposed(point):
        console.print(f"Most exposed: {clause}.", markup=False)


def print_points(
    console: Console, result: AuditResult, points: Sequence[PointResult], *, title: str = "Every operating point"
) -> None:
    """Print a line for each point: the strongest attack, what it recovers, and what the joint model scores.

    Points that share rows and points that share totals have different columns, and so a table each.
    """
    rows = [measured for measured in points if measured.point.shares_rows]
    totals = [measured for measured in points if not measured.point.shares_rows]
    if rows:
        caption = _CAPTION.format(unit=result.noise_unit.words)
        console.print(make_table(result.list_points(rows), title=title, caption=caption, n_left=2, n_rows=len(rows)))
    if totals:
        lines = result.list_points(totals)
        console.print(make_table(lines, title="Totals", caption=_OF_TOTALS, n_left=2, n_rows=len(totals)))
