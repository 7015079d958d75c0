"""Charts of audits and studies: frontier, envelope, membership, errors by attack, images, fits and scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from mooring import AuditResult, Plan
from mooring.audit import PointResult
from mooring.audit.point_result import find_strongest
from mooring.learners import Score
from mooring.learners.evaluation import Evaluation
from mooring.metrics import Figure
from mooring.report.plot import (
    ALARM,
    BLUE,
    CALM,
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

if TYPE_CHECKING:
    from mooring.report.summary import NamedScore

_ERROR = "centred_error"
_MOST_ATTACKS, _MOST_BARS, _MOST_LETTERS = 14, 60, 22
_COLOURS = (BLUE, SAND, "#d1615d", "#85b6b2", "#6a9f58", "#e7ca60", "#a87c9f", "#967662", INK, "#b8b0ac")
_OUTLINES = {"none": "square", "reference": "circle", "procrustes": "diamond"}
_LEVELS = (("chance", "chance", DOTTED, QUIET), ("without the upload", "control", DASHED, CALM))
_SCORE_COLOURS = {"joint": BLUE, "local only": "#d1615d", "pooled raw": QUIET}


def draw_audit(audit: AuditResult | Plan) -> dict[str, Chart]:
    """Charts by name, which a notebook shows; those that have nothing to show are left out.

    `frontier`, `envelope` and `membership`. Of a plan, frontier and envelope are of the points tried; the limit is marked,
    and the best point, where it is on the rows that were not searched.
    """
    result, tried = (audit.audit, audit.tried) if isinstance(audit, Plan) else (audit, audit)
    made = {
        "frontier": _frontier(audit),
        "envelope": _draw_envelope(tried),
        "membership": _membership(result),
    }
    return {name: chart for name, chart in made.items() if chart is not None}


def _draw_envelope(result: AuditResult) -> Chart | None:
    points = result.row_points
    return _envelope_at_one_point(points[0]) if len(points) == 1 else _envelope(result)


def order_points(result: AuditResult) -> list[PointResult]:
    """Operating points as tables and charts number them: where the strongest attack recovers most, first."""
    return sorted(result.row_points, key=lambda one: -1.0 if (worst := one.worst()) is None else worst[1].value)


def _whiskers(area: Area, one: Figure | Score, at: float, *, upright: bool = False) -> list[Shape]:
    """A thin line over an interval, at a place of the other axis; none where it is not known."""
    ends = one.interval if isinstance(one, Figure) else one
    if math.isnan(ends.low):
        return []
    return [area.line([(at, end) if upright else (end, at) for end in (ends.low, ends.high)], QUIET, width=1.2)]


def _frontier(audit: AuditResult | Plan) -> Chart | None:
    """Utility as deployed against what the strongest attack leaves unrecovered, a mark a point."""
    result, plan = (audit.tried, audit) if isinstance(audit, Plan) else (audit, None)
    limit = plan.limit if plan is not None and plan.limit.at_least else None
    measure = _ERROR if limit is None else limit.measure
    shown = [
        (one, one.deployed, *worst)
        for one in result.row_points
        if one.deployed is not None and not math.isnan(one.deployed.value) and (worst := one.worst(measure)) is not None
        if not math.isnan(worst[1].value)
    ]
    if not shown:
        return None
    references = {"local only": result.references.local_only, "pooled raw": result.references.pooled_raw}
    scores = [score for _, score, *_ in shown]
    best = None if plan is None else plan.recommended
    scores += [] if best is None or best.deployed is None else [best.deployed]
    known = [one for one in references.values() if one is not None and not math.isnan(one.value)]
    whose = "error of the most exposed tenth of rows" if measure == "exposed_tenth" else "error"
    far = max([1.0, *(min(error.value, 2.0) for *_, error in shown), *([] if limit is None else [limit.bound])])
    area = Area(
        Axis.even(f"strongest attack's {whose} (0 is exact recovery)", 0.0, 1.05 * far, ".1f"),
        _score_axis([*scores, *known], f"{scores[0].metric}, as deployed", room=0.03),
    )
    shapes: list[Shape] = []
    for (name, score), colour in zip(references.items(), (ALARM, QUIET), strict=True):
        if score in known and score is not None:
            shapes.append(area.line([(0.0, score.value), (area.x.high, score.value)], colour, dash=DOTTED))
            shapes.append(area.text(area.x.high, score.value, f"{name} {score}", colour, before=True))
    if limit is not None:
        shapes.append(area.line([(limit.bound, area.y.low), (limit.bound, area.y.high)], CALM, dash=DASHED))
        shapes.append(area.text(limit.bound, 0.95 * area.y.low + 0.05 * area.y.high, "limit", CALM))
    legend = _place_points(area, shown, shapes)
    if best is not None and best.deployed is not None and (worst := best.worst(measure)) is not None:
        shapes.append(area.mark(worst[1].value, best.deployed.value, CALM, "ring"))
        legend.append(("recommended" if plan.answer in ("pays", None) else "best within the limit", shapes[-1]))  # type: ignore[union-attr]
    return Chart("Score of the joint model against the strongest attack's error", area, tuple(shapes), tuple(legend))


def _place_points(
    area: Area, shown: Sequence[tuple[PointResult, Score, str, Figure]], shapes: list[Shape]
) -> list[tuple[str, Shape]]:
    """Add the line of the points that no other beats in score and in protection, then a mark a point; return a legend."""
    places, legend = {(error.value, score.value) for _, score, _, error in shown}, []
    best = sorted(one for one in places if not any(a >= one[0] and b >= one[1] and (a, b) != one for a, b in places))
    if len(best) > 1:
        steps = [step for one, other in pairwise(best) for step in (one, (one[0], other[1]))]
        shapes.append(area.line([*steps, best[-1]], INK, dash=DASHED, width=1.5))
        legend.append(("frontier", shapes[-1]))
    for colour, name in zip(_COLOURS, dict.fromkeys(one.point.family for one, *_ in shown), strict=False):
        for one, score, attack, error in (entry for entry in shown if entry[0].point.family == name):
            said = f"{one.title}: error {error.value:.2f} by {attack}, score {score}"
            shapes += _whiskers(area, error, score.value) + _whiskers(area, score, error.value, upright=True)
            shapes.append(area.mark(error.value, score.value, colour, _OUTLINES[one.point.alignment], said))
        legend.append((name, shapes[-1]))
    return legend


def _errors(one: PointResult) -> list[tuple[float, str]]:
    """Every attack's error at a point, with its name."""
    found = ((outcome.figures.get(_ERROR), outcome.attack) for outcome in one.outcomes)
    return [(figure.value, attack) for figure, attack in found if figure is not None and not math.isnan(figure.value)]


def _envelope(result: AuditResult) -> Chart | None:
    """The strongest attack at each point as a line, every other attack as a mark above it."""
    numbered = [(k, one) for k, one in enumerate(order_points(result), start=1) if one.worst() is not None]
    if not numbered:
        return None
    worst = [(k, *found) for k, one in numbered if (found := one.worst()) is not None]
    others = [(k, value, attack) for k, one in numbered for value, attack in _errors(one)]
    step = 1 + len(numbered) // 15
    ticks = tuple((float(k), str(k)) for k, _ in numbered[::step])
    area = Area(
        Axis("operating point, by its number", numbered[0][0] - 0.5, numbered[-1][0] + 0.5, ticks),
        Axis.even("error of the rebuilt rows", -0.03, max([1.1, *(min(value, 1.6) for _, value, _ in others)]), ".1f"),
    )
    shapes = [area.mark(k, value, PALE, "dot", f"{attack}: {value:.2f}") for k, value, attack in others]
    legend = [("each attack", shapes[-1])]
    for name, level, dash, colour in _LEVELS:
        known = [(k, value) for k, _, one in worst if (value := getattr(one, level)) is not None]
        if known:
            shapes.append(area.line(known, colour, dash=dash))
            legend.append((name, shapes[-1]))
    shapes.append(area.line([(k, one.value) for k, _, one in worst], ALARM, width=3))
    legend.append(("envelope: the strongest attack", shapes[-1]))
    for k, attack, one in worst:
        shapes += _whiskers(area, one, k, upright=True)
        shapes.append(area.mark(k, one.value, ALARM, "dot", f"strongest: {attack}, {one.value:.2f}"))
    label = "Error of every attack at every operating point, the strongest joined by a line"
    return Chart(label, area, tuple(shapes), tuple(legend))


def _envelope_at_one_point(one: PointResult) -> Chart | None:
    """A bar an attack, the strongest in red, beside chance and what is guessed without the upload."""
    worst = one.worst()
    if worst is None:
        return None
    known = sorted(_errors(one))[:_MOST_ATTACKS]
    area = Area(
        Axis.even("error (0 is exact recovery)", 0.0, 1.6, ".1f"),
        Axis.names([shorten(attack, _MOST_LETTERS) for _, attack in known]),
    )
    shapes = [
        area.bar(k, value, ALARM if name == worst[0] else PALE, f"{name}: {value:.3f}")
        for k, (value, name) in enumerate(known)
    ]
    legend = []
    for name, level, dash, colour in _LEVELS:
        if (value := getattr(worst[1], level)) is not None:
            shapes.append(area.line([(value, area.y.low), (value, area.y.high)], colour, dash=dash))
            legend.append((f"{name}: {value:.2f}", shapes[-1]))
    shapes += [area.text(0.0, k, f"{value:.2f}") for k, (value, _) in enumerate(known)]
    return Chart("Error of every attack", area, tuple(shapes), tuple(legend), 28 * len(known))


def _membership(result: AuditResult) -> Chart | None:
    """The ROC of the strongest attack on membership at up to four points, both rates on a log scale."""
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
    chosen = sorted({round(x) for x in np.linspace(0, len(having) - 1, min(4, len(having)))})
    for colour, k in zip(_COLOURS, chosen, strict=False):
        title, outcome = having[k]
        name = f"{title}: {outcome.attack}" if len(chosen) > 1 else outcome.attack
        shapes.append(area.line(outcome.curve, colour, title=name))
        legend.append((name, shapes[-1]))
    label = "True positive rate against false positive rate, on logarithmic scales"
    return Chart(label, area, tuple(shapes), tuple(legend))


@dataclass(frozen=True)
class ErrorCell:
    """One attack's error at one point."""

    error: float
    is_strongest: bool

    @property
    def percent(self) -> int:
        """How pale the cell is."""
        return round(100 * min(self.error, 1.0))


@dataclass(frozen=True)
class ErrorTable:
    """Every attack's error at every point; None where an attack does not apply."""

    points: tuple[tuple[int, str], ...]
    """Number and title of each point."""
    lines: dict[str, tuple[ErrorCell | None, ...]]
    """Cells by attack."""


@dataclass(frozen=True)
class ImageStrip:
    """Images beside each other."""

    title: str
    source: str
    """A PNG as a data URL."""


def tabulate_errors(result: AuditResult) -> ErrorTable | None:
    """Every attack's error at every point, points by their number; None where no attack could be run."""
    points = [(k, point, worst) for k, point in enumerate(order_points(result), start=1) if (worst := point.worst())]
    by_point = [{attack: value for value, attack in _errors(point)} for _, point, _ in points]
    lines = {
        name: tuple(
            ErrorCell(errors[name], name == worst[0]) if name in errors else None
            for errors, (_, _, worst) in zip(by_point, points, strict=True)
        )
        for name in dict.fromkeys(attack for errors in by_point for attack in errors)
    }
    return ErrorTable(tuple((k, point.title) for k, point, _ in points), lines) if points else None


def list_images(result: AuditResult) -> list[ImageStrip]:
    """Strips of images, at up to four points from the least to the best protected; none for tables."""
    having = [
        (worst[1].value, worst[0], point.title, point.examples)
        for point in result.row_points
        if point.examples is not None and point.examples.image_shape and (worst := point.worst()) is not None
    ]
    if not having:
        return []
    having.sort(key=lambda entry: entry[0])
    chosen = [having[k] for k in sorted({round(x) for x in np.linspace(0, len(having) - 1, min(4, len(having)))})]
    first = chosen[0][3]
    strips = [(name, first.rows[name]) for name in ("original", "projection only")]
    strips += [(f"{title}: {attack}", examples.rows["rebuilt"]) for _, attack, title, examples in chosen]
    strips += [(name, first.rows[name]) for name in ("guessed without the upload",) if name in first.rows]
    found = []
    for title, rows in strips:
        strip = np.concatenate([np.asarray(row).reshape(first.image_shape or ()) for row in rows], axis=1)
        if strip.ndim == 3:
            strip = strip[..., :3] if strip.shape[2] >= 3 else strip.repeat(3, axis=2)
        found.append(ImageStrip(title, encode_png(strip)))
    return found


def draw_scores(entries: Sequence[NamedScore]) -> Chart | None:
    """A bar a score that is known: joint, local only, pooled raw; None if none is, or one alone."""
    known = [(entry.group, entry.name, entry.score) for entry in entries if entry.group in _SCORE_COLOURS]
    known = [entry for entry in known if entry[2].metric == known[0][2].metric]  # others stand in the table
    if len(known) < 2:
        return None
    axis = _score_axis([score for *_, score in known], known[0][2].metric, from_zero=True)
    area = Area(axis, Axis.names([shorten(name, _MOST_LETTERS + 4) for _, name, _ in known]))
    shapes: list[Shape] = []
    for k, (group, name, score) in enumerate(known):
        shapes.append(area.bar(k, score.value, _SCORE_COLOURS[group], f"{name}: {score.with_interval()}"))
        shapes += [*_whiskers(area, score, k), area.text(0.0, k, str(score))]
    label = "Scores of the joint model, of participants alone and of pooled raw rows"
    return Chart(label, area, tuple(shapes), (), 34 * len(known))


def draw_scores_by_participant(entries: Sequence[NamedScore]) -> Chart | None:
    """What models of the others score at each participant beside that of its own upload alone; None if neither is known."""
    groups = {
        group: {entry.name: entry.score for entry in entries if entry.group == group}
        for group in ("joint by participant", "alone")
    }
    names = list(dict.fromkeys(name for own in groups.values() for name in own))[:_MOST_BARS]
    if not names:
        return None
    scores = [score for own in groups.values() for score in own.values()]
    area = Area(_score_axis(scores, scores[0].metric), Axis.names([shorten(name, _MOST_LETTERS) for name in names]))
    looks = (("models of the others' uploads", BLUE, "circle", -0.14), ("its upload alone", SAND, "diamond", 0.14))
    shapes: list[Shape] = []
    legend = []
    for (title, colour, outline, shift), own in zip(looks, groups.values(), strict=True):
        for k, name in enumerate(names):
            if name in own:
                shapes += _whiskers(area, own[name], k + shift)
                shapes.append(area.mark(own[name].value, k + shift, colour, outline, f"{name}: {own[name]}"))
        legend += [(title, shapes[-1])] if own else []
    return Chart("Scores by participant, joint and alone", area, tuple(shapes), tuple(legend), 34 * len(names))


def draw_calibration(evaluation: Evaluation | None) -> Chart | None:
    """The share that came true by the probability that the joint model gave; None where there are no probabilities."""
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


def _score_axis(known: Sequence[Score], title: str, *, from_zero: bool = False, room: float = 0.05) -> Axis:
    """An axis over scores and their intervals; from zero where lengths are compared."""
    percent = known[0].is_percent
    lows = [one.value if math.isnan(one.low) else one.low for one in known]
    highs = [one.value if math.isnan(one.high) else one.high for one in known]
    low = min(0.0, *lows) if from_zero else min(lows) - room
    ends = (max(low, -1.0 if known[0].metric == "R²" else 0.0), min(max(highs) + room, 1.02) if not from_zero else 1.02)
    return Axis.even(title, *ends, ".0%" if percent else ".2f")
