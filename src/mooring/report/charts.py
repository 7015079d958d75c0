"""Charts of audits and studies: frontier, envelope, membership, errors by attack, images, scores and calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from typing import TypeGuard, TypeVar

import numpy as np

from mooring import AuditResult, Plan
from mooring.audit import PointResult
from mooring.audit.results.point_result import find_strongest
from mooring.learners import Score
from mooring.learners.evaluation import Evaluation
from mooring.metrics import Figure
from mooring.report.plot import (
    ALARM,
    BLUE,
    CALM,
    COLOURS,
    DASHED,
    DOTTED,
    INK,
    PALE,
    QUIET,
    SAND,
    Area,
    Axis,
    Chart,
    Shape,
    encode_png,
    shorten,
)

_T = TypeVar("_T")
_Measured = TypeVar("_Measured", Score, Figure)
_ERROR = "centred_error"
_MEMBERSHIP = "membership_at_1_percent"
_MOST_ATTACKS, _MOST_BARS, _MOST_LETTERS = 14, 60, 22
_LABELLED = 3  # up to so many comparisons, each score is written beside its mark
_OUTLINES = {"none": "square", "reference": "circle", "procrustes": "diamond"}
_LEVELS = (("chance", "chance", DOTTED, QUIET), ("without the upload", "control", DASHED, CALM))


def draw_audit(audit: AuditResult | Plan) -> dict[str, Chart]:
    """Return the charts `frontier`, `envelope` and `membership` by name, for a notebook; empty charts are left out.

    The frontier and the envelope of a plan show the points that were tried; the membership chart shows the report. The
    frontier also marks the plan's limit, if the limit bounds an error, and the recommended point. The figures of the
    recommended point come from the rows that the search did not use.
    """
    result, tried = (audit.audit, audit.tried) if isinstance(audit, Plan) else (audit, audit)
    charts = {"frontier": _frontier(audit), "envelope": _envelope(tried), "membership": _membership(result)}
    return {name: chart for name, chart in charts.items() if chart is not None}


def order_points(result: AuditResult) -> list[PointResult]:
    """Return the points at which rows are shared, in the order in which tables and charts number them.

    Points at which no attack could be run come first; then come the others, the least protected first.
    """
    return sorted(result.row_points, key=lambda point: -1.0 if (worst := point.worst()) is None else worst[1].value)


def _is_known(measured: _Measured | None) -> TypeGuard[_Measured]:
    """Return whether a score or figure is given and is not NaN."""
    return measured is not None and not math.isnan(measured.value)


def _whiskers(area: Area, measured: Figure | Score, at: float, *, upright: bool = False) -> list[Shape]:
    """Return a thin line over an interval, at the value `at` of the other axis; empty if the interval is not known."""
    ends = measured.interval if isinstance(measured, Figure) else measured
    if math.isnan(ends.low):
        return []
    return [area.line([(at, end) if upright else (end, at) for end in (ends.low, ends.high)], QUIET, width=1.2)]


def _frontier(audit: AuditResult | Plan) -> Chart | None:
    """Return the chart of score against the strongest attack's error, one mark per point; None if no point has both."""
    result, plan = (audit.tried, audit) if isinstance(audit, Plan) else (audit, None)
    limit = plan.limit if plan is not None and plan.limit.at_least else None
    measure = _ERROR if limit is None else limit.measure
    shown = [
        (point, point.deployed, *worst)
        for point in result.row_points
        if point.deployed is not None
        and not math.isnan(point.deployed.value)
        and (worst := point.worst(measure)) is not None
        and not math.isnan(worst[1].value)
    ]
    if not shown:
        return None
    references = {"alone": result.references.local_only, "all raw rows pooled": result.references.pooled_raw}
    known = {name: score for name, score in references.items() if score is not None and not math.isnan(score.value)}
    scores = [score for _, score, *_ in shown]
    best = None if plan is None else plan.recommended
    scores += [] if best is None or best.deployed is None else [best.deployed]
    whose = "error of the most exposed tenth of rows" if measure == "exposed_tenth" else "error"
    far = max([1.0, *(min(error.value, 2.0) for *_, error in shown), *([] if limit is None else [limit.bound])])
    area = Area(
        Axis.even(f"strongest attack's {whose} (0 is exact recovery)", 0.0, 1.05 * far, ".1f"),
        _score_axis([*scores, *known.values()], f"{scores[0].metric}, as deployed", room=0.03),
    )
    shapes: list[Shape] = []
    for name, score in known.items():
        colour = ALARM if name == "alone" else QUIET
        shapes.append(area.line([(0.0, score.value), (area.x.high, score.value)], colour, dash=DOTTED))
        shapes.append(area.text(area.x.high, score.value, f"{name} {score}", colour, before=True))
    if limit is not None:
        shapes.append(area.line([(limit.bound, area.y.low), (limit.bound, area.y.high)], CALM, dash=DASHED))
        shapes.append(area.text(limit.bound, 0.95 * area.y.low + 0.05 * area.y.high, "limit", CALM))
    legend = _place_points(area, shown, shapes)
    if (
        plan is not None
        and best is not None
        and best.deployed is not None
        and (worst := best.worst(measure)) is not None
    ):
        shapes.append(area.mark(worst[1].value, best.deployed.value, CALM, "ring"))
        is_recommended = plan.answer in ("pays", None) and plan.decision.answer != "do not share"
        legend.append(("recommended" if is_recommended else "best within the limit", shapes[-1]))
    for point, score, _, error in shown:
        if plan is None and result.chosen is not None and point == result.points[result.chosen]:
            shapes.append(area.mark(error.value, score.value, CALM, "ring", f"this study: {point.title}"))
            legend.append(("this study", shapes[-1]))
    return Chart("Score of the joint model against the strongest attack's error", area, tuple(shapes), tuple(legend))


def _place_points(
    area: Area, shown: Sequence[tuple[PointResult, Score, str, Figure]], shapes: list[Shape]
) -> list[tuple[str, Shape]]:
    """Add a line through the Pareto-optimal points, by score and error, and a mark for each point; return the legend."""
    places, legend = {(error.value, score.value) for _, score, _, error in shown}, []
    best = sorted((x, y) for x, y in places if not any(a >= x and b >= y and (a, b) != (x, y) for a, b in places))
    if len(best) > 1:
        steps = [step for (x, y), (_, lower) in pairwise(best) for step in ((x, y), (x, lower))]
        shapes.append(area.line([*steps, best[-1]], INK, dash=DASHED, width=1.5))
        legend.append(("frontier", shapes[-1]))
    for colour, family in zip(cycle(COLOURS), dict.fromkeys(point.point.family for point, *_ in shown), strict=False):
        for point, score, attack, error in (entry for entry in shown if entry[0].point.family == family):
            title = f"{point.title}: error {error.value:.2f} by {attack}, score {score}"
            shapes += _whiskers(area, error, score.value) + _whiskers(area, score, error.value, upright=True)
            shapes.append(area.mark(error.value, score.value, colour, _OUTLINES[point.point.alignment], title))
        legend.append((family, shapes[-1]))
    return legend


def _errors(point: PointResult) -> list[tuple[float, str]]:
    """Return the errors at a point, each with the name of its attack; attacks without an error are left out."""
    figures = ((outcome.figures.get(_ERROR), outcome.attack) for outcome in point.outcomes)
    return [(figure.value, attack) for figure, attack in figures if figure is not None and not math.isnan(figure.value)]


def _envelope(result: AuditResult) -> Chart | None:
    """Return the chart of every attack's error at each point, with a line through the strongest; None without errors.

    A single point has a bar for each attack instead.
    """
    numbered = [
        (k, point, *worst)
        for k, point in enumerate(order_points(result), start=1)
        if (worst := point.worst()) is not None
    ]
    if len(result.row_points) == 1 and numbered:
        return _envelope_at_one_point(*numbered[0][1:])
    if not numbered:
        return None
    errors = [(k, value, attack) for k, point, *_ in numbered for value, attack in _errors(point)]
    ticks = tuple((float(k), str(k)) for k, *_ in numbered[:: 1 + len(numbered) // 15])
    area = Area(
        Axis("operating point, by its number", numbered[0][0] - 0.5, numbered[-1][0] + 0.5, ticks),
        Axis.even("error of the rebuilt rows", -0.03, max([1.1, *(min(value, 1.6) for _, value, _ in errors)]), ".1f"),
    )
    shapes = [area.mark(k, value, PALE, "dot", f"{attack}: {value:.2f}") for k, value, attack in errors]
    legend = [("each attack", shapes[-1])]
    for name, level, dash, colour in _LEVELS:
        known = [(k, value) for k, _, _, figure in numbered if (value := getattr(figure, level)) is not None]
        if known:
            shapes.append(area.line(known, colour, dash=dash))
            legend.append((name, shapes[-1]))
    shapes.append(area.line([(k, figure.value) for k, _, _, figure in numbered], ALARM, width=3))
    legend.append(("envelope: the strongest attack", shapes[-1]))
    for k, _, attack, figure in numbered:
        shapes += _whiskers(area, figure, k, upright=True)
        shapes.append(area.mark(k, figure.value, ALARM, "dot", f"strongest: {attack}, {figure.value:.2f}"))
    label = "Error of every attack at every operating point, the strongest joined by a line"
    return Chart(label, area, tuple(shapes), tuple(legend))


def _envelope_at_one_point(point: PointResult, strongest: str, figure: Figure) -> Chart:
    """Return a bar for each of the strongest attacks, the first in red, with lines for chance and for the control."""
    known = sorted(_errors(point))[:_MOST_ATTACKS]
    area = Area(
        Axis.even("error (0 is exact recovery)", 0.0, 1.6, ".1f"),
        Axis.names([shorten(attack, _MOST_LETTERS) for _, attack in known]),
    )
    shapes = [
        area.bar(k, value, ALARM if name == strongest else PALE, f"{name}: {value:.3f}")
        for k, (value, name) in enumerate(known)
    ]
    legend = []
    for name, level, dash, colour in _LEVELS:
        if (value := getattr(figure, level)) is not None:
            shapes.append(area.line([(value, area.y.low), (value, area.y.high)], colour, dash=dash))
            legend.append((f"{name}: {value:.2f}", shapes[-1]))
    shapes += [area.text(0.0, k, f"{value:.2f}") for k, (value, _) in enumerate(known)]
    return Chart("Error of every attack", area, tuple(shapes), tuple(legend), 28 * len(known))


def _membership(result: AuditResult) -> Chart | None:
    """Return the ROC curve of the strongest membership attack at up to four points, on log scales; None without curves."""
    strongest = [
        (point.title, find_strongest(point.outcomes, "membership_at_1_percent")) for point in order_points(result)
    ]
    having = [(title, outcome) for title, outcome in strongest if outcome is not None and outcome.curve]
    if not having:
        return None
    least = min(outcome.curve[0][0] for _, outcome in having)
    area = Area(Axis.shares("false positive rate", least), Axis.shares("true positive rate: members recognised", least))
    shapes = [area.line([(least, least), (1.0, 1.0)], QUIET, dash=DOTTED)]
    legend = [("chance", shapes[-1])]
    chosen = _spread(having)
    for colour, (title, outcome) in zip(COLOURS, chosen, strict=False):
        name = f"{title}: {outcome.attack}" if len(chosen) > 1 else outcome.attack
        shapes.append(area.line(outcome.curve, colour, title=name))
        legend.append((name, shapes[-1]))
    label = "True positive rate against false positive rate, on logarithmic scales"
    return Chart(label, area, tuple(shapes), tuple(legend))


def _spread(entries: Sequence[_T]) -> list[_T]:
    """Return up to four entries at equal distances, from the first to the last."""
    return [entries[k] for k in sorted({round(x) for x in np.linspace(0, len(entries) - 1, min(4, len(entries)))})]


@dataclass(frozen=True)
class ErrorTable:
    """Every attack's error at every point at which rows are shared and an attack could be run."""

    points: tuple[tuple[int, str], ...]
    """Number and title of each point."""
    lines: dict[str, tuple[tuple[float, bool] | None, ...]]
    """By attack and point: the error, and whether this attack is the strongest there; None if the attack has no error."""


def tabulate_errors(result: AuditResult) -> ErrorTable | None:
    """Return the table of errors, with points by the numbers of `order_points`; None if no attack could be run."""
    points = [(k, point, worst) for k, point in enumerate(order_points(result), start=1) if (worst := point.worst())]
    by_point = [{attack: value for value, attack in _errors(point)} for _, point, _ in points]
    lines = {
        name: tuple(
            (errors[name], name == worst[0]) if name in errors else None
            for errors, (_, _, worst) in zip(by_point, points, strict=True)
        )
        for name in dict.fromkeys(attack for errors in by_point for attack in errors)
    }
    return ErrorTable(tuple((k, point.title) for k, point, _ in points), lines) if points else None


def list_images(result: AuditResult) -> list[tuple[str, str]]:
    """Return strips of images as pairs of a title and a PNG in a data URL; empty if the audit keeps no images.

    The strips show the original images, their projections, what was rebuilt at up to four points (the least protected
    first) and, if there is one, the guess without the upload.
    """
    having = [
        (worst[1].value, worst[0], point.title, point.examples)
        for point in result.row_points
        if point.examples is not None and point.examples.image_shape and (worst := point.worst()) is not None
    ]
    if not having:
        return []
    having.sort(key=lambda entry: entry[0])
    chosen = _spread(having)
    first = chosen[0][3]
    strips = [(name, first.rows[name]) for name in ("original", "projection only")]
    strips += [(f"{title}: {attack}", examples.rows["rebuilt"]) for _, attack, title, examples in chosen]
    strips += [(name, first.rows[name]) for name in ("guessed without the upload",) if name in first.rows]
    images = []
    for title, rows in strips:
        strip = np.concatenate([np.asarray(row).reshape(first.image_shape or ()) for row in rows], axis=1)
        if strip.ndim == 3:
            strip = strip[..., :3] if strip.shape[2] >= 3 else strip.repeat(3, axis=2)
        images.append((title, encode_png(strip)))
    return images


@dataclass(frozen=True)
class Comparison:
    """The scores of one site or one simulation: trained alone, trained together, and trained on everybody's raw rows."""

    name: str
    alone: Score | None
    together: Score | None
    pooled: Score | None = None


def draw_comparisons(entries: Sequence[Comparison]) -> Chart | None:
    """Return the chart of each site's scores alone and together, with intervals; None if no joint score is known."""
    shown = [entry for entry in entries if _is_known(entry.together)][:_MOST_BARS]
    scores = [score for entry in shown for score in (entry.together, entry.alone, entry.pooled) if _is_known(score)]
    if not shown:
        return None
    metric = scores[0].metric  # scores of other metrics are in the table
    area = Area(
        _score_axis([score for score in scores if score.metric == metric], metric, room=0.03),
        Axis.names([shorten(entry.name, _MOST_LETTERS) for entry in shown]),
    )
    shapes: list[Shape] = []
    legend: dict[str, Shape] = {}
    for k, entry in enumerate(shown):
        if _is_known(entry.alone) and _is_known(entry.together):
            ends = [(entry.alone.value, k), (entry.together.value, k)]
            shapes.append(area.line(ends, PALE, dash=DOTTED, width=1.5))
        for title, score, colour, outline, shift in (
            ("alone", entry.alone, SAND, "diamond", -0.16),
            ("all raw rows pooled", entry.pooled, QUIET, "square", 0.0),
            ("together", entry.together, BLUE, "circle", 0.16),
        ):
            if _is_known(score) and score.metric == metric:
                shapes += _whiskers(area, score, k + shift)
                words = f"{entry.name}, {title}: {score.with_interval()}"
                shapes.append(area.mark(score.value, k + shift, colour, outline, words))
                if len(shown) <= _LABELLED:
                    shapes.append(area.text(score.value, k + shift, str(score), colour, over=shift <= 0))
                legend.setdefault(title, shapes[-1 - (len(shown) <= _LABELLED)])
    height = (96 if len(shown) <= _LABELLED else 34) * len(shown)
    return Chart("Scores alone and together, with 95 % intervals", area, tuple(shapes), tuple(legend.items()), height)


def _name_kind(point: PointResult) -> str:
    """Return a point's name in a legend: its family if rows are shared, otherwise its title, since totals are few."""
    return point.point.family if point.point.shares_rows else point.title


def draw_mechanisms(result: AuditResult, chosen: PointResult | None = None) -> Chart | None:
    """Return the chart of score against members recognised, with a ring around `chosen`; None if no point has both."""
    shown = [
        (point, point.deployed, worst[1])
        for point in result.points
        if _is_known(point.deployed) and (worst := point.worst(_MEMBERSHIP)) is not None and _is_known(worst[1])
    ]
    if not shown:
        return None
    guess = min(figure.chance or 0.0 for *_, figure in shown)
    ends = [
        ("alone", result.find_alone(chosen or shown[0][0]), guess, SAND, "diamond"),
        ("all raw rows pooled", result.references.pooled_raw, 1.0, QUIET, "square"),
    ]
    scores = [
        score for score in (*(score for _, score, _ in shown), *(score for _, score, *_ in ends)) if _is_known(score)
    ]
    area = Area(
        Axis.even("share of members recognised", -0.04, 1.04, ".0%"),
        _score_axis(scores, scores[0].metric, room=0.03),
    )
    shapes: list[Shape] = []
    legend: list[tuple[str, Shape]] = []
    for name, score, x, colour, outline in ends:
        if _is_known(score):
            shapes += _whiskers(area, score, x, upright=True)
            shapes.append(area.mark(x, score.value, colour, outline, f"{name}: score {score}"))
            legend.append((name, shapes[-1]))
    names = dict.fromkeys(_name_kind(point) for point, *_ in shown)
    looks = zip(cycle((BLUE, *COLOURS[2:])), cycle(("circle", "dot", "square", "diamond")), strict=False)
    for (colour, outline), name in zip(looks, names, strict=False):
        for point, score, figure in (entry for entry in shown if _name_kind(entry[0]) == name):
            title = f"{point.title}: {figure.describe().value} recognised, score {score}"
            shapes += _whiskers(area, figure, score.value) + _whiskers(area, score, figure.value, upright=True)
            shapes.append(area.mark(figure.value, score.value, colour, outline, title))
        legend.append((name, shapes[-1]))
    for point, score, figure in shown:
        if point == chosen:
            shapes.append(area.mark(figure.value, score.value, CALM, "ring", f"this study: {point.title}"))
            legend.append(("this study", shapes[-1]))
    return Chart("Score against the members that an attacker recognises", area, tuple(shapes), tuple(legend), 300)


def draw_calibration(evaluation: Evaluation | None) -> Chart | None:
    """Return the chart of how often predictions came true against their probability; None without probabilities."""
    bins = () if evaluation is None else evaluation.joint.calibration
    if not bins:
        return None
    area = Area(Axis.even("probability", 0.0, 1.0, ".1f"), Axis.even("share that came true", 0.0, 1.0, ".1f"))
    shapes = [area.line([(0.0, 0.0), (1.0, 1.0)], PALE)]
    for part in bins:
        title = f"{part.predicted:.2f}: {part.observed:.2f} of {part.n} rows"
        shapes.append(area.line([(part.predicted, part.low), (part.predicted, part.high)], QUIET, width=1.2))
        shapes.append(area.mark(part.predicted, part.observed, BLUE, "circle", title))
    return Chart("Share that came true by probability", area, tuple(shapes), (), 240)


def _score_axis(scores: Sequence[Score], title: str, *, room: float = 0.05) -> Axis:
    """Return an axis over scores and their intervals."""
    lows = [score.value if math.isnan(score.low) else score.low for score in scores]
    highs = [score.value if math.isnan(score.high) else score.high for score in scores]
    low = min(lows) - room
    high = min(max(highs) + room, 1.005)
    least = -1.0 if scores[0].metric == "R²" else 0.0
    return Axis.even(title, max(low, least), high, ".0%" if scores[0].is_percent else ".2f")
