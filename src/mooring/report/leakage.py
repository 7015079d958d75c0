"""The parts of a page that show what attacks recovered: shared by the pages of an audit, a plan and a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from mooring import METHODS, AuditResult
from mooring.attacks import REGISTRY
from mooring.audit import PointResult
from mooring.report.frame import in_chart, table
from mooring.report.numbers import number, scored, with_chance, with_interval

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

LIMITATIONS: Sequence[str] = (
    "Every leakage figure is the strongest attack <em>we</em> know, and so a lower bound. A better attack may exist.",
    "Anchor noise is no privacy guarantee: the uploaded rows carry none of it. Private-data noise can carry a formal "
    "guarantee (<code>mooring.calibrate_gaussian</code>); the figures here are measurements, not that guarantee.",
    "The attacker's colluder holds rows of the same kind as the target's. Where organisations differ more than the "
    "participants simulated here, attacks by moments get weaker; where they differ less, stronger.",
    "Rows known to the attacker from elsewhere, and the same rows uploaded twice, are not part of these figures unless "
    "asked for: as many known rows as components plus one give everything away where rows carry no noise.",
    "Errors are relative to what the public projection keeps. What it drops is not out of reach: the attacker learns from "
    "the colluder's records to tell it from what is kept. Decoded figures are by that decoder or by the projection's "
    "pseudoinverse, whichever serves the attacker; a better decoder may exist.",
)


def in_order(result: AuditResult) -> list[PointResult]:
    """Operating points as tables and charts number them: where the strongest attack recovers most, first."""
    return sorted(result.points, key=lambda one: -1.0 if (worst := one.worst()) is None else worst[1].value)


def drawable(result: AuditResult) -> AuditResult:
    """The same result for use inside charts: names of attacks and metrics, which a file may forge, without markup."""

    def cleaned(one: PointResult) -> PointResult:
        outcomes = tuple(replace(outcome, attack=in_chart(outcome.attack)) for outcome in one.outcomes)
        deployed = None if one.deployed is None else replace(one.deployed, metric=in_chart(one.deployed.metric))
        return replace(one, outcomes=outcomes, deployed=deployed)

    return replace(result, points=tuple(cleaned(one) for one in result.points))


def least_protected_that_hides_something(result: AuditResult) -> PointResult | None:
    """The point to show in detail where none is recommended: the least error above zero."""
    known = [one for one in in_order(result) if one.worst() is not None]
    hiding = [one for one in known if (worst := one.worst()) is not None and worst[1].value > 1e-6]
    return next(iter(hiding or known), None)


def points_table(result: AuditResult) -> str:
    """One line a point, the worst first, and the two scores that every other is read against."""
    head = ["#", "operating point", "h", "r", "strongest attack", "its error", "linkage", "score, as deployed"]
    rows = []
    for k, one in enumerate(in_order(result), start=1):
        worst, linked = one.worst(), one.worst("linkage")
        rows.append(
            [
                str(k),
                escape(one.point.title),
                str(one.point.n_components),
                str(one.point.n_anchor_rows) if METHODS[one.point.method].uses_anchor else "",
                escape(worst[0]) if worst else "no attack could be run: not to be trusted",
                with_interval(worst[1]) if worst else "",
                with_chance(linked[1]) if linked else "",
                scored(one.deployed),
                scored(one.noisy_test),
            ]
        )
    for name, score in (("local only", result.references.local_only), ("pooled raw", result.references.pooled_raw)):
        rows.append(["", name, "", "", "", "", "", scored(score), ""])
    return table([*head, "with noisy test rows"], rows, numbers=(0, 2, 3, 5, 6, 7, 8), marked=2)


def detail(one: PointResult | None, about: dict[str, Any], *, level: int = 3) -> str:
    """All figures of the strongest attack at one point, each beside chance, control and floor."""
    if one is None or one.worst() is None:
        return ""
    lines = []
    for measure, (name, meaning) in _MEASURES.items():
        worst = one.worst(measure)
        if worst is None:
            continue
        attack, figure = worst
        which = f": {about['attribute']}" if measure == "attribute" and about.get("attribute") else ""
        levels = [number(value, figure) for value in (figure.chance, figure.control, figure.floor)]
        what = f"{escape(name + which)}<br><small>{escape(meaning)}</small>"
        lines.append([what, escape(attack), with_interval(figure), *levels])
    head = ["measure", "strongest attack by it", "value", "chance", "without the upload", "projection alone"]
    return f"<h{level}>In detail: {escape(one.point.title)}</h{level}>" + table(head, lines, numbers=(2, 3, 4, 5))


def rows_side_by_side(one: PointResult | None) -> str:
    """Recovered rows of a table beside the originals."""
    if one is None or one.examples is None or one.examples["image_shape"]:
        return ""
    rows = {name: np.asarray(values, dtype=np.float64) for name, values in one.examples["rows"].items()}
    n_columns = min(8, rows["original"].shape[1])
    names = list(one.examples["feature_names"][:n_columns]) or [f"column {k + 1}" for k in range(n_columns)]
    lines = []
    for k in range(min(4, rows["original"].shape[0])):
        for name in ("original", "rebuilt", "guessed without the upload"):
            if name in rows:
                cells = [f"{value:.2f}" for value in rows[name][k, :n_columns]]
                if name == "original":
                    cells = [f"<b>{cell}</b>" for cell in cells]
                lines.append([str(k + 1) if name == "original" else "", name, *cells])
    words = (
        f"<p>Rows of the target at {escape(one.point.title)}, rebuilt by '{escape(str(one.examples['attack']))}'; the "
        f"first {n_columns} columns, as scaled for the study.</p>"
    )
    numbers = (0, *range(2, 2 + n_columns))
    return words + table(["", "", *(escape(str(name)) for name in names)], lines, numbers=numbers)


def attacks_list() -> str:
    """Every attack that mooring knows, with what it uses."""
    lines = (
        f"<li><b>{escape(one.name)}</b>{' (the paper’s)' if one.in_paper else ''}: {escape(one.summary)}</li>"
        for one in REGISTRY.values()
    )
    return f"<ul>{''.join(lines)}</ul>"


def limitations_list(further: Sequence[str] = ()) -> str:
    """What the figures do not say, as HTML."""
    return f"<ul>{''.join(f'<li>{words}</li>' for words in (*LIMITATIONS, *further))}</ul>"
