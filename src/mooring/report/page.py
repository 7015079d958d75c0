"""From an audit or a plan to one self-contained HTML page."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any

from mooring import AuditResult, Plan
from mooring.audit import PointResult
from mooring.report.envelope import envelope, with_frontier, with_numbers
from mooring.report.frame import chart, items, page
from mooring.report.leakage import (
    attacks_list,
    detail,
    drawable,
    least_protected_that_hides_something,
    limitations_list,
    points_table,
    rows_side_by_side,
)


def render_audit(result: AuditResult, *, command: str) -> str:
    """The page of an audit."""
    figures = drawable(result).figures()
    return _page("What an upload gives away", result, lead="", figures=figures, best=None, command=command)


def render_plan(plan: Plan, *, command: str) -> str:
    """The page of a plan: the verdict first."""
    tone = "good" if plan.recommended is not None else "warn"
    lead = f'<p class="{tone}"><b>{escape(plan.verdict)}</b></p>'
    figures = replace(plan, audit=drawable(plan.audit)).figures()
    title = "Which operating point, if any"
    return _page(title, plan.audit, lead=lead, figures=figures, best=plan.recommended, command=command)


def who_against_whom(about: dict[str, Any]) -> str:
    """Who took part in the simulation, and who attacked whom; plain text."""
    low, high = about["rows_each"]
    each = f"{low}" if low == high else f"{low} to {high}"
    return (
        f"{about['n_participants']} participants with {each} rows of {about['n_features']} features; "
        f"{', '.join(map(str, about['colluders'])) or 'nobody'} colludes with the analyst against "
        f"{', '.join(map(str, about['targets']))}."
    )


def audit_sections(
    result: AuditResult,
    figures: dict[str, Any],
    *,
    best: PointResult | None = None,
    level: int = 2,
    hazards: bool = True,
) -> str:
    """What an audit found, from the frontier to the hazards, under headings of a level: shared with the report."""

    def heading(words: str) -> str:
        return f"<h{level}>{words}</h{level}>"

    detailed = best or least_protected_that_hides_something(result)
    parts = [heading("What joining buys, and what it costs")]
    if "frontier" in figures:
        with_frontier(figures["frontier"], result).update_layout(
            legend={"yanchor": "top", "y": -0.2, "x": 0}, margin={"t": 20}
        )
        parts += [
            "<p>Each mark is an operating point; σ is in units of s, the root mean square of the projected rows. To the "
            "right, the strongest attack recovers less; upwards, the joint model "
            "scores better. Marks below the red line are not worth joining for.</p>",
            chart(figures["frontier"], "Score of the joint model against the strongest attack's error"),
        ]
    else:
        parts.append("<p>No utility was measured, so there is no frontier to draw.</p>")
    parts += [points_table(result), heading("Attack by attack")]
    parts.append(
        "<p>Error of the rebuilt rows relative to the spread of the true ones: 0 is exact recovery, and about 1 is what the "
        "mean of the colluders' rows would score. The lowest error at each point is the envelope: what to reckon with, "
        "at the least.</p>"
    )
    line = envelope(result)
    if line is not None:
        parts.append(chart(line, "Error of every attack at every operating point, the strongest joined by a line"))
    if "leakage" in figures and len(result.points) > 1:
        parts.append(
            "<p>The same by name. Numbers are those of the table; the strongest is outlined; empty where an attack does not "
            "apply.</p>"
        )
        parts.append(
            '<div class="wide"><div class="broad">'
            + chart(with_numbers(figures["leakage"], result), "Errors by attack")
            + "</div></div>"
        )
    parts.append(detail(detailed, result.description, level=level + 1))
    shown = chart(figures["examples"], "Original and rebuilt images") if "examples" in figures else ""
    parts += [heading("Side by side"), shown or rows_side_by_side(detailed) or "<p>No rows are shown.</p>"]
    if hazards:
        parts += [heading("What makes these rows easy to break"), items(result.warnings, "None of the known ones.")]
    return "".join(parts)


def _page(
    title: str,
    result: AuditResult,
    *,
    lead: str,
    figures: dict[str, Any],
    best: PointResult | None,
    command: str,
) -> str:
    about = result.description
    headline = escape(("Over everything that was tried: " if lead else "") + result.headline())
    body = (
        f'<h1>{escape(title)}</h1><p class="sub">{escape(who_against_whom(about))}</p>{lead}'
        f'<p class="warn"><b>{headline}</b></p><p><b>{escape(result.joining())}</b></p>'
        f"{audit_sections(result, figures, best=best)}"
        f"<h2>Limitations</h2>{limitations_list()}<h2>The attacks</h2>{attacks_list()}"
    )
    made = ", ".join(f"{key} {value}" for key, value in about.items() if key in _VERSIONS)
    footer = f"<p>Made by: <code>{escape(command)}</code></p><p>{escape(made)}. Numbers in the JSON file beside it.</p>"
    return page(title, body, footer=footer)


_VERSIONS = ("mooring", "seed", "learner", "device", "machine")
