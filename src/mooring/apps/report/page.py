"""From an audit or a plan to one self-contained HTML page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from plotly.offline import get_plotlyjs

from mooring import METHODS, AuditResult, Plan
from mooring.attacks import REGISTRY
from mooring.audit import PointResult
from mooring.measures import Figure

_MEASURES = {
    "centred_error": ("error", "of the rows' spread; lower leaks more"),
    "relative_error": ("error of ‖X‖", "lower leaks more"),
    "decoded_error": ("error, decoded", "of the raw rows' spread; lower leaks more"),
    "median_r2": ("median R²", "a feature's variance explained"),
    "linkage": ("linkage", "ten look-alikes, one true"),
    "exact_source_linkage": ("linkage by auditor", ""),
    "identity_linkage": ("identity linkage", "another row of the same person"),
    "attribute": ("attribute", "inferred from rebuilt rows"),
    "psnr": ("PSNR", "dB"),
    "ssim": ("SSIM", ""),
}


def render_audit(result: AuditResult, *, command: str) -> str:
    """The page of an audit."""
    return _page("What an upload gives away", result, lead="", figures=result.figures(), best=None, command=command)


def render_plan(plan: Plan, *, command: str) -> str:
    """The page of a plan: the verdict first."""
    tone = "good" if plan.recommended is not None else "warn"
    lead = f'<p class="{tone}"><b>{escape(plan.verdict)}</b></p>'
    return _page(
        "Which operating point, if any",
        plan.audit,
        lead=lead,
        figures=plan.figures(),
        best=plan.recommended,
        command=command,
    )


def _page(
    title: str,
    result: AuditResult,
    *,
    lead: str,
    figures: dict[str, Any],
    best: PointResult | None,
    command: str,
) -> str:
    plots = {
        name: figure.to_html(
            full_html=False, include_plotlyjs=False, config={"displayModeBar": False, "responsive": True}
        )
        for name, figure in figures.items()
    }
    about = result.description
    low, high = about["rows_each"]
    each = f"{low}" if low == high else f"{low} to {high}"
    detailed = best or _least_protected_that_hides_something(result)
    return _PAGE.format(
        plotly=get_plotlyjs(),
        title=escape(title),
        lead=lead,
        headline=escape(("Over everything that was tried: " if lead else "") + result.headline()),
        joining=escape(result.joining()),
        tone="warn",
        data=f"{about['n_participants']} participants with {each} rows of {about['n_features']} features; "
        + escape(
            f"{', '.join(about['colluders']) or 'nobody'} colludes with the analyst against {', '.join(about['targets'])}."
        ),
        frontier=plots.get("frontier", "<p>No utility was measured, so there is no frontier to draw.</p>"),
        points=_points_table(result),
        leakage=plots.get("leakage", ""),
        detail=_detail(detailed, about),
        examples=plots.get("examples", "") or _rows_table(detailed),
        warnings="".join(f"<li>{escape(words)}</li>" for words in result.warnings)
        or "<li>None of the known ones.</li>",
        limitations="".join(f"<li>{words}</li>" for words in LIMITATIONS),
        attacks="".join(
            f"<li><b>{escape(a.name)}</b>{' (the paper’s)' if a.in_paper else ''}: {escape(a.summary)}</li>"
            for a in REGISTRY.values()
        ),
        command=escape(command),
        about=escape(
            ", ".join(
                f"{key} {value}"
                for key, value in about.items()
                if key in ("mooring", "seed", "learner", "device", "machine")
            )
        ),
    )


def _least_protected_that_hides_something(result: AuditResult) -> PointResult | None:
    """The point to show in detail where none is recommended: the least error above zero."""
    known = [(one.worst(), one) for one in result.points]
    hiding = [
        (worst[1].value, k, one) for k, (worst, one) in enumerate(known) if worst is not None and worst[1].value > 1e-6
    ]
    return min(hiding)[2] if hiding else next((one for worst, one in known if worst is not None), None)


def _points_table(result: AuditResult) -> str:
    head = (
        "<tr><th>operating point</th><th class=n>h</th><th class=n>r</th><th>strongest attack</th><th class=n>its error</th>"
        "<th class=n>linkage</th><th class=n>score, as deployed</th><th class=n>with noisy test rows</th></tr>"
    )
    rows = []
    for one in sorted(result.points, key=_error):
        worst, linked = one.worst(), one.worst("linkage")
        rows.append(
            f"<tr><td>{escape(one.point.title)}</td><td class=n>{one.point.n_components}</td>"
            f"<td class=n>{one.point.n_anchor_rows if METHODS[one.point.method].uses_anchor else ''}</td>"
            f"<td>{escape(worst[0]) if worst else 'no attack could be run: not to be trusted'}</td>"
            f"<td class=n>{_with_interval(worst[1]) if worst else ''}</td>"
            f"<td class=n>{_percent(linked[1]) if linked else ''}</td>"
            f"<td class=n>{_score(one.deployed)}</td><td class=n>{_score(one.noisy_test)}</td></tr>"
        )
    for name, score in (("local only", result.references.local_only), ("pooled raw", result.references.pooled_raw)):
        rows.append(f"<tr class=truth><td colspan=6>{name}</td><td class=n>{_score(score)}</td><td></td></tr>")
    return f"<div class=wide><table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table></div>"


def _error(one: PointResult) -> float:
    worst = one.worst()
    return -1.0 if worst is None else worst[1].value


def _detail(one: PointResult | None, about: dict[str, Any]) -> str:
    """All figures of the strongest attack at one point, each beside chance, control and floor."""
    if one is None or one.worst() is None:
        return ""
    lines = []
    for measure, (name, meaning) in _MEASURES.items():
        worst = one.worst(measure)
        if worst is None:
            continue
        attack, figure = worst
        cells = "".join(
            f"<td class=n>{_number(value, figure)}</td>" for value in (figure.chance, figure.control, figure.floor)
        )
        what = f"{escape(name + _about(measure, about))}<br><small>{escape(meaning)}</small>"
        lines.append(
            f"<tr><td>{what}</td><td>{escape(attack)}</td><td class=n>{_with_interval(figure)}</td>{cells}</tr>"
        )
    head = (
        "<tr><th>measure</th><th>strongest attack by it</th><th class=n>value</th><th class=n>chance</th>"
        "<th class=n>without the upload</th><th class=n>projection alone</th></tr>"
    )
    return (
        f"<h3>In detail: {escape(one.point.title)}</h3><div class=wide><table><thead>{head}</thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _about(measure: str, about: dict[str, Any]) -> str:
    return f": {about['attribute']}" if measure == "attribute" and about.get("attribute") else ""


def _rows_table(one: PointResult | None) -> str:
    """Recovered rows of a table beside the originals."""
    if one is None or one.examples is None or one.examples["image_shape"]:
        return ""
    rows = {name: np.asarray(values) for name, values in one.examples["rows"].items()}
    n_columns = min(8, rows["original"].shape[1])
    names = list(one.examples["feature_names"][:n_columns]) or [f"column {k + 1}" for k in range(n_columns)]
    head = "<tr><th></th><th></th>" + "".join(f"<th class=n>{escape(name)}</th>" for name in names) + "</tr>"
    body = []
    for k in range(min(4, rows["original"].shape[0])):
        for name in ("original", "rebuilt", "guessed without the upload"):
            if name in rows:
                cells = "".join(f"<td class=n>{value:.2f}</td>" for value in rows[name][k, :n_columns])
                mark = " class=truth" if name == "original" else ""
                body.append(f"<tr{mark}><td>{k + 1 if name == 'original' else ''}</td><td>{name}</td>{cells}</tr>")
    return (
        f"<p>Rows of the target at {escape(one.point.title)}, rebuilt by '{escape(one.examples['attack'])}'; the first "
        f"{n_columns} columns, as scaled for the study.</p><div class=wide><table><thead>{head}</thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _with_interval(figure: Figure) -> str:
    text = _number(figure.value, figure)
    if figure.interval.known:
        text += f" <small>[{_number(figure.interval.low, figure)}, {_number(figure.interval.high, figure)}]</small>"
    return text


def _number(value: float | None, figure: Figure) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.0%}" if "linkage" in figure.name else f"{value:.1f}" if figure.name == "psnr" else f"{value:.2f}"


def _percent(figure: Figure) -> str:
    return f"{figure.value:.0%} <small>(chance {figure.chance:.0%})</small>"


def _score(score: Any) -> str:
    if score is None:
        return ""
    return f"{score} <small>[{score.written(score.low)}, {score.written(score.high)}]</small>"


LIMITATIONS: Sequence[str] = (
    "Every leakage figure is the strongest attack <em>we</em> know, and so a lower bound. A better attack may exist.",
    "Anchor noise is no privacy guarantee: the uploaded rows carry none of it. Private-data noise can carry a formal "
    "guarantee (<code>mooring.guarantee_for</code>); the figures here are measurements, not that guarantee.",
    "The attacker's accomplice holds rows of the same kind as the target's. Where organisations differ more than the "
    "participants simulated here, attacks by moments get weaker; where they differ less, stronger.",
    "Rows known to the attacker from elsewhere, and the same rows uploaded twice, are not part of these figures unless "
    "asked for: as many known rows as components plus one give everything away where rows carry no noise.",
    "Errors are relative to what the public projection keeps. What it drops is out of the attacker's reach, and out of the "
    "model's.",
)

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>mooring: {title}</title>
<style>
body {{ font: 16px/1.55 system-ui, sans-serif; color: #1f2933; max-width: 64rem; margin: 2.5rem auto; padding: 0 1.2rem; }}
h1 {{ font-size: 1.7rem; margin-bottom: .3rem; }} h2 {{ font-size: 1.2rem; margin-top: 2.2rem; }} h3 {{ font-size: 1rem; }}
p.sub {{ color: #52606d; margin-top: 0; }}
.warn {{ border-left: 4px solid #b03a2e; background: #fdf3f1; padding: .7rem 1rem; }}
.good {{ border-left: 4px solid #2f7d4f; background: #f0f8f3; padding: .7rem 1rem; }}
.wide {{ overflow-x: auto; }} table {{ border-collapse: collapse; width: 100%; font-size: .9rem; }}
th, td {{ text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #e4e7eb; vertical-align: top; }}
.n {{ text-align: right; font-variant-numeric: tabular-nums; }} tr.truth td {{ background: #f5f7fa; font-weight: 600; }}
small {{ color: #7b8794; }} code {{ background: #f5f7fa; padding: .1rem .3rem; }}
footer {{ color: #7b8794; font-size: .85rem; margin-top: 2.5rem; }}
@media print {{ .wide {{ overflow: visible; }} body {{ margin: 0; }} }}
</style><script>{plotly}</script></head><body>
<h1>{title}</h1><p class="sub">{data}</p>
{lead}
<p class="{tone}"><b>{headline}</b></p><p><b>{joining}</b></p>
<h2>What joining buys, and what it costs</h2>
<p>Each mark is an operating point. To the right, the strongest attack recovers less; upwards, the joint model scores
better. Marks below the red line are not worth joining for.</p><div class="wide">{frontier}</div>
{points}
<h2>Attack by attack</h2>
<p>Error of the rebuilt rows relative to the spread of the true ones: 0 is exact recovery, and about 1 is what the mean of
the accomplices' rows would score. The strongest is outlined; empty where an attack does not apply.</p>
<div class="wide">{leakage}</div>
{detail}
<h2>Side by side</h2><div class="wide">{examples}</div>
<h2>What makes these rows easy to break</h2><ul>{warnings}</ul>
<h2>Limitations</h2><ul>{limitations}</ul>
<h2>The attacks</h2><ul>{attacks}</ul>
<footer><p>Made by: <code>{command}</code></p><p>{about}. Numbers in the JSON file beside this page.</p></footer>
</body></html>
"""
