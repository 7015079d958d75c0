"""What `mooring audit` and `mooring plan` give: a page and its numbers, findings to read first, a table of points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mooring import METHODS, AuditResult
from mooring.audit import PointResult
from mooring.audit.hazards import state_exposure, state_membership
from mooring.cli.execution import quote_command
from mooring.metrics import Figure
from mooring.metrics.membership import FALSE_POSITIVE_RATES

_CAPTION = (
    "data, anchor, both: AA-I-GDP with noise on private data (σ), on the anchor (v), on both. {unit} "
    "its error: 0 is exact recovery, 1 the rows' spread, with a 95 % interval; a lower bound on leakage. "
    "guess: the error of guessing without the upload. "
    "links: rows told from nine look-alikes. told: rows told to be in, at 1 % false alarms. "
    "score: as deployed; (noisy): with noise on test rows too, as in the paper."
)
_SUMS_CAPTION = (
    "AUC: how often a row behind the sums scores above another, 0.5 by chance; told: such rows found at so many false "
    "alarms; lower bounds on leakage. ε at least: measured by canaries; more than the ε stated would be a fault."
)
_SHORT = {
    "c-gdp": "C-GDP",
    "c-gdp-data-noise": "C-GDP",
    "i-gdp": "I-GDP",
    "aa-i-gdp": "AA-I-GDP",
    "aa-i-gdp-data-noise": "data",
    "aa-i-gdp-anchor-noise": "anchor",
    "aa-i-gdp-both-noise": "both",
}
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
    page.write_text(render(result, command=quote_command()), encoding="utf-8")
    numbers.write_text(result.to_json(), encoding="utf-8")
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
    for words in (*(() if told is None else (told,)), result.headline()):
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
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("operating point")
    table.add_column("strongest attack")
    for heading in ("its error", "guess", "links", "told", "score", "(noisy)"):
        table.add_column(heading, justify="right", no_wrap=True)
    shown = list(result.points if only is None else only)
    widths = {one.point.n_components for one in shown}
    for one in shown:
        worst, linked, told = one.worst(), one.worst("linkage"), one.worst("membership_at_1_percent")
        table.add_row(
            _short_title(one, with_components=len(widths) > 1),
            "none could be run: do not trust" if worst is None else worst[0],
            "" if worst is None else _with_interval(worst[1]),
            "" if worst is None or worst[1].control is None else f"{worst[1].control:.2f}",
            "" if linked is None else f"{linked[1].value:.0%}",
            "" if told is None else f"{told[1].value:.0%}",
            "" if one.deployed is None else str(one.deployed),
            "" if one.noisy_test is None else str(one.noisy_test),
        )
    table.add_section()
    for name, score in (("local only", result.references.local_only), ("pooled raw", result.references.pooled_raw)):
        if score is not None:
            table.add_row(name, "", "", "", "", "", str(score), "", style="bold")
    return table


def sums_table(result: AuditResult) -> Table:
    """One line an ε: what the strongest attack tells of members, the ε measured, and what the joint model scores."""
    assert result.sums is not None
    table = Table(title="Secure sums", caption=_SUMS_CAPTION, box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("secure sums", "strongest attack"):
        table.add_column(heading)
    for heading in ("AUC", "told at 1 %", "at 0.1 %", "ε at least", "score"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in result.sums.results:
        figures = [one.worst(measure) for measure in ("membership_auc", *FALSE_POSITIVE_RATES)]
        table.add_row(
            one.title + ("" if one.usable else ", refused"),
            "none could be run: do not trust" if figures[0] is None else figures[0][0],
            "" if figures[0] is None else _with_interval(figures[0][1]),
            *("" if found is None else f"{found[1].value:.1%}" for found in figures[1:]),
            "" if one.epsilon is None else f"{one.epsilon.measured.gaussian:.2g}",
            "" if one.deployed is None else str(one.deployed),
        )
    if result.sums.alone is not None:
        table.add_section()
        table.add_row("local only, same features", "", "", "", "", "", str(result.sums.alone), style="bold")
    return table


def _short_title(one: PointResult, *, with_components: bool) -> str:
    point, method = one.point, METHODS[one.point.method]
    parts = [_SHORT.get(point.method, point.method)]
    parts += [f"σ={one.data_noise_scale:.3g}"] if method.data_noise else []
    parts += [f"v={point.anchor_noise_scale:.3g}"] if method.anchor_noise else []
    parts += (
        [f"r={point.n_anchor_rows}"] if method.uses_anchor and point.n_anchor_rows != 4 * point.n_components else []
    )
    parts += [f"h={point.n_components}"] if with_components else []
    return " ".join(parts)


def _with_interval(figure: Figure) -> str:
    if not figure.interval.known:
        return f"{figure.value:.2f}"
    return f"{figure.value:.2f} {figure.interval.low:.2f}–{figure.interval.high:.2f}"
