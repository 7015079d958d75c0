"""What `mooring audit` and `mooring plan` give: a page and its numbers, findings to read first, a table of points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mooring import AuditResult
from mooring.atomic_io import write_atomically
from mooring.audit import PointResult
from mooring.audit.hazards import state_exposure, state_membership
from mooring.cli.execution import make_table, quote_command

_CAPTION = (
    "data, anchor, both: AA-I-GDP with noise on private data (σ), on the anchor (v), on both. {unit} "
    "its error: 0 is exact recovery, 1 the rows' spread, with a 95 % interval; a lower bound on leakage. "
    "guess: the error of guessing without the upload. "
    "links: rows told from nine look-alikes. told: rows told to be in, at 1 % false alarms. "
    "score: as deployed; (noisy): with noise on test rows too, as in the paper."
)
_SUMS_CAPTION = (
    "AUC: how often a row behind the sums scores above another, 0.5 by chance; told: such rows found at so many false "
    "alarms; lower bounds on leakage. ε at least: measured by canaries, made-up rows that move the sums most; more than the "
    "ε stated would be a fault."
)
_ASKED = {
    "exact_source_linkage": "Linkage by the auditor",
    "identity_linkage": "Identity linkage",
    "attribute": "Attribute inference",
}


def write_page(folder: Path, render: Callable[..., str], result: Any, name: str) -> str:
    """Write report.html and the numbers behind it; return the line that says where they are.

    Parameters
    ----------
    render : callable
        From a result, and the command that it came from, to a page.
    name : str
        Of the file with the numbers.
    """
    page, numbers = folder / "report.html", folder / name
    for path, text in ((page, render(result, command=quote_command())), (numbers, result.to_json())):
        write_atomically(path, text.encode(), mode=0o600, what="the audit")
    return f"Open [bold]{escape(str(page))}[/bold] in a browser; numbers are in {escape(str(numbers))}."


def print_findings(console: Console, result: AuditResult, *, notes: Sequence[str] = ()) -> None:
    """What a reader must know first: hazards, who attacks whom, and the strongest attack at the chosen setting.

    Parameters
    ----------
    console : Console
    result : AuditResult
    notes : sequence of str, optional
        Printed first, dimmed.
    """
    for note in notes:
        console.print(f"note: {note}", style="dim", markup=False)
    for words in result.warnings:
        console.print(f"hazard: {words}", style="yellow", markup=False)
    about = result.description
    console.print(
        f"{', '.join(about['colluders']) or 'nobody'} colludes with the analyst against {', '.join(about['targets'])}."
    )
    told = None if result.headline_point is None else state_membership(result.headline_point)
    order = [*([] if told is None else [told]), result.headline()]
    for words in reversed(order) if about.get("contrast") else order:  # 'for contrast' before what it is of
        console.print(words, style="bold red", markup=False)
    for measure, words in _ASKED.items():
        found = result.measured(measure)
        if found is not None:
            console.print(f"{words}: {found}", markup=False)
    if result.release is not None:
        console.print(f"The model: {result.release}", markup=False)
    for words in () if result.headline_point is None else state_exposure(result.headline_point):
        console.print(f"Most exposed: {words}.", markup=False)


def points_table(
    result: AuditResult, *, only: Sequence[PointResult] | None = None, title: str = "Every operating point"
) -> Table:
    """One line a point: the strongest attack, what it recovers, and what the joint model scores.

    Parameters
    ----------
    result : AuditResult
    only : sequence of PointResult, optional
        Points to list; None is all of them.
    title : str, default "Every operating point"
        Of the table.
    """
    caption = _CAPTION.format(unit=result.noise_unit.words)
    n_points = len(result.points if only is None else only)
    return make_table(result.list_points(only), title=title, caption=caption, n_left=2, n_rows=n_points)


def sums_table(result: AuditResult) -> Table:
    """One line an ε: what the strongest attack tells of members, the ε measured, and what the joint model scores."""
    assert result.sums is not None
    sums = result.sums
    lines, n_rows = sums.list_results(), len(sums.results)
    return make_table(lines, title="Secure sums", caption=_SUMS_CAPTION, n_left=2, n_rows=n_rows)
