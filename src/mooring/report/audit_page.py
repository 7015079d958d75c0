"""From an audit or a plan to a plain dict of what its page shows, and to the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mooring import AuditResult, Plan
from mooring.attacks import CollusionView, SumView, attacks_on
from mooring.audit import PointResult, RotationPoint, SumPoint
from mooring.audit.decision import decide_audit, state_leakage
from mooring.audit.result import state_total
from mooring.mechanisms.sums.guarantee import bound_odds
from mooring.metrics.membership import FALSE_POSITIVE_RATES
from mooring.report.charts import describe_images, draw_audit, order_points, tabulate_errors
from mooring.report.frame import render_page, render_sentence
from mooring.report.numbers import describe_score

_MEMBERSHIP = ("membership_at_1_percent", "membership_at_0.1_percent")
RISKS = {
    "Membership": (*_MEMBERSHIP, *(f"outlying_{one}" for one in _MEMBERSHIP), "membership_auc", "empirical_epsilon"),
    "Singling out": ("register_class", "register_1000", "claims", "claims_right", "exposed_value", "exposed_row"),
    "Linkability": ("linkage", "exact_source_linkage", "identity_linkage", "holder", "roster"),
    "Inference": (
        *("exposed_percent", "exposed_tenth", "exposed_half", "exposed_share", "read_column", "column_accuracy"),
        *("exposed_column", "attribute"),
    ),
    "Reconstruction on the whole": ("centred_error", "relative_error", "decoded_error", "median_r2", "psnr", "ssim"),
}
"""Measures by the risks that regulators name: singling out, linkability, inference (opinion 05/2014 on anonymisation)."""
_VERSIONS = ("mooring", "seed", "learner", "device", "machine")
_MOST_COLUMNS, _MOST_ROWS, _MOST_CELLS = 8, 4, 20


def render_audit(result: AuditResult, *, command: str) -> str:
    """The page of an audit."""
    return _render(result, result, None, command)


def render_plan(plan: Plan, *, command: str) -> str:
    """The page of a plan: the verdict first."""
    return _render(plan.audit, plan, plan.recommended, command)


def _render(result: AuditResult, drawn: AuditResult | Plan, best: PointResult | None, command: str) -> str:
    values = {
        "title": "Which operating point, if any" if isinstance(drawn, Plan) else "What an upload gives away",
        "decision": decide_audit(drawn),
        "plan": {"verdict": drawn.verdict, "lines": drawn.method_lines()} if isinstance(drawn, Plan) else None,
        "audit": describe_audit(result, drawn=drawn, best=best),
        "attacks": list_attacks(),
        "command": command,
        "made": {key: value for key, value in result.description.items() if key in _VERSIONS},
    }
    return render_page("audit.html.jinja", values)


def list_attacks() -> list[dict[str, Any]]:
    """Every attack that mooring knows, with what it uses."""
    return [{"name": one.name, "in_paper": one.in_paper, "summary": one.summary} for one in attacks_on(CollusionView)]


def state_setting(result: AuditResult) -> str:
    """Who took part in the simulation, and who attacked whom."""
    return render_sentence("verdict.txt.jinja", "setting", result.description)


def describe_audit(
    result: AuditResult, *, drawn: AuditResult | Plan | None = None, best: PointResult | None = None
) -> dict[str, Any]:
    """Everything that a page shows of an audit, in plain values and charts.

    Parameters
    ----------
    drawn : AuditResult, Plan or None
        What the charts are of; `result`, if None.
    best : PointResult or None
        The point to show in detail; if None, the chosen one, else the one that hides least, but something.
    """
    chosen = None if result.chosen is None else result.headline_point
    chosen = chosen if chosen is None or chosen.point.shares_rows else None
    detailed = best or chosen or _least_protected_that_hides_something(result)
    drawn = result if drawn is None else drawn
    tried, headline = drawn.tried if isinstance(drawn, Plan) else result, result.headline_point
    is_total = headline is not None and not headline.point.shares_rows
    guarded = [] if is_total else [one for one in result.totals if one.point.promise is not None]
    instead = [f"{one.title}, in place of rows: {state_total(one)}" for one in guarded[:1]]
    return {
        "setting": state_setting(result),
        "sentences": [*state_leakage(result), result.joining(), *instead],
        "contrast": is_total,
        "release": None if result.release is None else str(result.release),
        "noise_unit": result.noise_unit.words,
        "charts": draw_audit(drawn),
        "errors": tabulate_errors(tried),
        "images": describe_images(tried),
        "points": [describe_point(one) for one in order_points(tried)],
        "percent": not any(one.gain is not None and one.gain.metric == "R²" for one in tried.points),
        "searched": tried is not result,
        "references": {
            "local only": describe_score(tried.references.local_only),
            "pooled raw": describe_score(tried.references.pooled_raw),
        },
        "attribute": result.description.get("attribute"),
        "detailed": None if detailed is None or detailed.worst() is None else _detail(detailed),
        "rows": describe_rows(detailed),
        "sums": describe_sums(tried),
        "has_examples": any(one.examples is not None for one in tried.points),
        "warnings": list(result.warnings),
    }


def describe_point(one: PointResult) -> dict[str, Any]:
    """One line of the table of operating points."""
    point = one.point if isinstance(one.point, RotationPoint) else None
    return {
        "title": one.title,
        "n_components": None if point is None else point.n_components,
        "n_anchor_rows": point.n_anchor_rows if point is not None and point.described.uses_anchor else None,
        "strongest": _strongest(one, "centred_error"),
        "linkage": _strongest(one, "linkage"),
        "told": _strongest(one, "membership_at_1_percent"),
        "deployed": describe_score(one.deployed),
        "gain": describe_score(one.gain),
        "noisy_test": describe_score(one.noisy_test),
    }


def describe_sums(result: AuditResult) -> dict[str, Any] | None:
    """The table of totals: what attackers learn at every ε, the ε measured, and the scores; None without any."""
    totals = result.totals
    if not totals:
        return None
    measures = ("membership_auc", *FALSE_POSITIVE_RATES)
    guarded = [one.point for one in totals if isinstance(one.point, SumPoint) and one.point.promise is not None]
    guesses = [_strongest(totals[0], measure) for measure in measures]
    return {
        "n_features": result.description["n_sum_features"],
        "n_rows": result.description["n_rows"],
        "scope": guarded[0].state_scope() if guarded else None,
        "alone": describe_score(next((one.alone for one in totals if one.alone is not None), None)),
        "guesses": ["" if one is None else one["control"] or "" for one in guesses],
        "attacks": [{"name": one.name, "in_paper": False, "summary": one.summary} for one in attacks_on(SumView)],
        "lines": [
            {
                "title": one.title,
                "usable": one.usable,
                "odds": None if one.point.promise is None else _write_odds(*one.point.promise),
                "figures": {measure: _strongest(one, measure) for measure in measures},
                "one_honest": _strongest(replace(one, outcomes=one.beyond), "membership_auc"),
                "measured": None
                if one.epsilon is None
                else {"value": f"{one.epsilon.measured.gaussian:.2g}", "holds": one.epsilon.holds},
                "deployed": describe_score(one.deployed),
                "gain": describe_score(one.gain),
            }
            for one in totals
        ],
    }


def _write_odds(epsilon: float, delta: float) -> str:
    odds = bound_odds(epsilon, delta)
    return f"{odds:,.0f}" if odds >= 100 else f"{odds:.3g}"


def describe_rows(one: PointResult | None) -> dict[str, Any] | None:
    """Rebuilt rows of a table beside the originals; None for images, and where no rows are kept.

    In words where the columns are known (`persons`); else as numbers (`lines`).
    """
    if one is None or one.examples is None or one.examples["image_shape"]:
        return None
    found = {"point": one.title, "attack": str(one.examples["attack"]), "persons": [], "columns": [], "lines": []}
    if one.examples.get("columns"):
        return found | {"persons": _describe_persons(one.examples)}
    rows = {name: np.asarray(values, dtype=np.float64) for name, values in one.examples["rows"].items()}
    n_columns = min(_MOST_COLUMNS, rows["original"].shape[1])
    names = [str(name) for name in one.examples["feature_names"][:n_columns]]
    shown = [name for name in ("original", "rebuilt", "guessed without the upload") if name in rows]
    return found | {
        "columns": names or [f"column {k + 1}" for k in range(n_columns)],
        "lines": [
            {"number": k + 1, "name": name, "values": [f"{value:.2f}" for value in rows[name][k, :n_columns]]}
            for k in range(min(_MOST_ROWS, rows["original"].shape[0]))
            for name in shown
        ],
    }


def _describe_persons(examples: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each row column by column: what it is, what was rebuilt, and whether a guess would have found it, too."""
    columns, words = [str(name) for name in examples["columns"]], examples["words"]
    guesses = words.get("guessed without the upload") or [[None] * len(columns)] * len(words["original"])
    numbers = examples.get("row_numbers") or [None] * len(words["original"])
    persons = []
    for number, *row in zip(numbers, words["original"], words["rebuilt"], guesses, strict=True):
        cells = [
            {
                "name": name,
                "original": str(own),
                "rebuilt": str(rebuilt),
                "found": own == rebuilt,
                "guessed": own == guess,
            }
            for name, own, rebuilt, guess in zip(columns, *row, strict=True)
        ]
        telling = sorted(cells, key=lambda cell: cell["guessed"] - cell["found"])[:_MOST_CELLS]
        cells = [cell for cell in cells if cell in telling]
        persons.append({"number": number, "cells": cells, "more": len(columns) - len(cells)})
    return persons


def _strongest(one: PointResult, measure: str) -> dict[str, Any] | None:
    worst = one.worst(measure)
    return None if worst is None else {"attack": worst[0], "name": worst[1].name, **worst[1].describe()}


def _detail(one: PointResult) -> dict[str, Any]:
    """All figures at one point by risk, each by its strongest attack and beside chance, control and floor."""
    risks = {}
    for risk, measures in RISKS.items():
        found = {measure: _strongest(one, measure) for measure in measures}
        risks[risk] = {measure: figure for measure, figure in found.items() if figure is not None}
    noise = one.epsilon and {
        "claimed": f"{one.epsilon.claimed:.2f}",
        "measured": f"{one.epsilon.measured.gaussian:.2f}",
        "holds": one.epsilon.holds,
    }
    return {"title": one.title, "risks": {risk: found for risk, found in risks.items() if found}, "noise": noise}


def _least_protected_that_hides_something(result: AuditResult) -> PointResult | None:
    """The least error above zero; else the least."""
    known = [(one, worst[1].value) for one in order_points(result) if (worst := one.worst()) is not None]
    hiding = [(one, value) for one, value in known if value > 1e-6]
    return next((one for one, _ in hiding or known), None)
