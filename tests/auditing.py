"""An audit and a plan with all settings side by side, for tests that change one of them at a time."""

from dataclasses import fields
from typing import Any

import numpy as np

from mooring import METHODS
from mooring.audit import AuditResult, AuditSettings, Plan, PointGrid, plan_study, run_audit
from mooring.audit.results.decision import Finding, weigh_point
from mooring.audit.results.point_result import PointResult, find_strongest


def _take(kind: type, options: dict[str, Any]) -> dict[str, Any]:
    return {field.name: options.pop(field.name) for field in fields(kind) if field.name in options}


def audited(*data: Any, **options: Any) -> AuditResult:
    """`run_audit` with the fields of `PointGrid` and `AuditSettings` as keywords."""
    settings = AuditSettings(**_take(AuditSettings, options))
    grid = PointGrid(**_take(PointGrid, options))
    return run_audit(*data, **{"points": grid, **options}, settings=settings)


def planned(*data: Any, **options: Any) -> Plan:
    """`plan_study` with the fields of `AuditSettings` as keywords."""
    settings = AuditSettings(**_take(AuditSettings, options))
    return plan_study(*data, **options, settings=settings)


def class_rows(n_participants: int, n_rows: int, width: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Rows of three skewed classes with means and covariances of their own, the same for all participants; and labels."""
    rng = np.random.default_rng(0)
    means = 2 * rng.standard_normal((3, width))
    mixing = rng.standard_normal((3, width, width)) / 2 + np.diag(np.linspace(0.5, 2.0, width))
    rows, labels = [], []
    for _ in range(n_participants):
        codes = rng.integers(0, 3, n_rows)
        noise = rng.gamma(2.0, 1.0, (n_rows, width)) - 2
        rows.append(means[codes] + np.einsum("nij,nj->ni", mixing[codes], noise))
        labels.append(codes)
    return rows, labels


UNSTABLE = ("independent-components",)  # FastICA does not converge on small tables: rounding decides
BY_MOMENTS = ("moments", "known-rows", "repeated-upload")  # few class means and no anchor: rounding decides, too


def figures_of_audit(result: AuditResult) -> dict[str, Any]:
    """The numbers of an audit: every figure's value, and all that stands beside the strongest attack's."""

    def of(point: PointResult) -> dict[str, Any]:
        aside = UNSTABLE if METHODS[point.point.method].uses_anchor else UNSTABLE + BY_MOMENTS
        outcomes = [outcome for outcome in point.outcomes if not outcome.attack.startswith(aside)]
        values = {
            outcome.attack: [figure.value for figure in outcome.figures.values()]
            for outcome in outcomes
            if outcome.figures
        }
        strongest = {}
        for measure in dict.fromkeys(measure for outcome in outcomes for measure in outcome.figures):
            strongest_outcome = find_strongest(outcomes, measure)
            if strongest_outcome is not None:
                figure = strongest_outcome.figures[measure]
                beside = [figure.interval.low, figure.interval.high, figure.chance, figure.control, figure.floor]
                strongest[measure] = [strongest_outcome.attack, *beside, figure.n, figure.higher_is_worse]
        return {"sigma": point.data_noise_scale, "values": values, "strongest": strongest, "learner": point.learner}

    return {str(tuple(vars(point.point).values())): of(point) for point in result.points}


def scores_of_audit(result: AuditResult) -> dict[str, Any]:
    """The scores of an audit, alone, pooled and joint, with intervals and answers."""

    def of(score: Any) -> Any:
        return score and [score.value, score.low, score.high]

    points = [[of(point.deployed), of(point.noisy_test), point.gain and point.gain.answer] for point in result.points]
    return {"alone": of(result.references.local_only), "pooled": of(result.references.pooled_raw), "points": points}


def how_much(point: PointResult) -> str:
    """Return how much leaks by the figures that decide: much speaks against sharing, something leaves it open."""
    answers = {reason.answer for reason in weigh_point(point) if isinstance(reason, Finding)}
    return "much" if "do not share" in answers else "something" if "cannot tell" in answers else "little"
