"""The pictures, the tables and the page of an answer that was read off a total."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mooring.mechanisms.sums.answers import (
    Answer,
    AskedAnswer,
    Associations,
    Description,
    OddsRatios,
    Regression,
    Statistic,
    SurvivalCurves,
)
from mooring.mechanisms.sums.answers.description import ALL_ROWS
from mooring.report.frame import render_page
from mooring.report.plot import BLUE, COLOURS, DASHED, QUIET, Area, Axis, Chart, Shape, shorten
from mooring.serialization import Rows

_ORDER = ("table-1", "regression", "odds-ratios", "survival", "associations")
_MOST_LETTERS = 32
_MOST_LINES = 24
_MARKS = ("circle", "diamond", "square", "dot", "ring")
_LINE_HEIGHT = 26
_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100)


@dataclass(frozen=True)
class AnswerSection:
    """What a page shows of an answer."""

    question: str
    """The command that asked for the answer."""
    answer: Answer

    @property
    def sentences(self) -> list[str]:
        """Sentences on the rows and the guarantee, on what intervals include, and notes."""
        return self.answer.list_sentences()

    @cached_property
    def charts(self) -> list[Chart]:
        """The pictures of the answer."""
        return draw_answer(self.answer)

    @property
    def tables(self) -> dict[str, Rows]:
        """Tables by title. Survival curves begin with the numbers at risk."""
        tables = dict(self.answer.list_tables())
        if isinstance(self.answer, SurvivalCurves):
            return {"Numbers at risk": list_at_risk(self.answer), **tables}
        return tables

    @property
    def title(self) -> str:
        """What was asked, as a heading."""
        return next(iter(self.answer.list_tables()))


def list_sections(answers: Sequence[AskedAnswer]) -> list[AnswerSection]:
    """Return the answers in the order in which readers expect them, a Table 1 first."""
    known = {kind: k for k, kind in enumerate(_ORDER)}
    ordered = sorted(answers, key=lambda asked: known.get(asked.answer.answer, len(known)))
    return [AnswerSection(asked.command, asked.answer) for asked in ordered]


def find_leading(sections: Sequence[AnswerSection]) -> AnswerSection | None:
    """Return the answer whose picture opens a report: the last answer with a picture; None if no answer has one.

    Associations open a report only if no other answer has a picture.
    """
    drawn = [section for section in sections if section.charts]
    leading = [section for section in drawn if not isinstance(section.answer, Associations)]
    return next(reversed(leading or drawn), None)


def render_answer(answer: Answer, *, question: str) -> str:
    """The page of an answer to a command, as HTML: what it is about, its pictures and its tables."""
    section = AnswerSection(question, answer)
    return render_page("answer.html.jinja", {"title": section.title, "section": section})


def draw_answer(answer: Answer) -> list[Chart]:
    """Return the pictures of an answer: survival curves, shares by group, or estimates with intervals; empty for others."""
    if isinstance(answer, SurvivalCurves):
        return [_draw_curves(answer)]
    if isinstance(answer, Description):
        return _draw_shares(answer)
    if isinstance(answer, Regression):
        terms = [(_name(term.term, term.level), term.estimate, term.low, term.high) for term in answer.terms[1:]]
        return [_draw_intervals(terms, "coefficient", 0.0)]
    if isinstance(answer, OddsRatios):
        ratios = [(_name(ratio.term, ratio.level), ratio.odds_ratio, ratio.low, ratio.high) for ratio in answer.ratios]
        return [_draw_intervals(ratios, "odds ratio", 1.0)]
    if isinstance(answer, Associations) and answer.correlations:
        pairs = [
            (f"{pair.first}, {pair.second}", pair.correlation, pair.low, pair.high) for pair in answer.correlations
        ]
        return [_draw_intervals(pairs, "correlation", 0.0)]
    return []


def list_at_risk(answer: SurvivalCurves) -> Rows:
    """Return the numbers at risk, a line per group and a column per time at which an interval starts."""
    groups = dict.fromkeys(point.group for point in answer.points)
    starts = sorted({point.start for point in answer.points})
    at_risk = {(point.group, point.start): f"{point.at_risk:,.0f}" for point in answer.points}
    lines = [(group, *(at_risk.get((group, start), "") for start in starts)) for group in groups]
    return [("group", *(f"at {start:g}" for start in starts)), *lines]


def _name(term: str, level: str) -> str:
    return shorten(f"{term}: {level}" if level else term, _MOST_LETTERS)


def _draw_curves(answer: SurvivalCurves) -> Chart:
    """Return step curves, one per group, with the ends of their intervals as dashed lines."""
    first, last = answer.points[0].start, max(point.end for point in answer.points)
    end = last + 0.03 * (last - first)  # so that the last step is seen
    area = Area(Axis.even("time", first, end), Axis.even("share that survives", 0.0, 1.0, ".1f"))
    shapes: list[Shape] = []
    legend: list[tuple[str, Shape]] = []
    for k, group in enumerate(dict.fromkeys(point.group for point in answer.points)):
        points, colour = [point for point in answer.points if point.group == group], COLOURS[k % len(COLOURS)]
        for field, dash, width in (("low", DASHED, 1.0), ("high", DASHED, 1.0), ("survival", "", 2.5)):
            values = [getattr(point, field) for point in points]
            steps = [(first, 1.0)]
            for point, value in zip(points, values, strict=True):
                steps += [(point.end, steps[-1][1]), (point.end, value)]
            steps.append((points[-1].end + end - last, values[-1]))
            shapes.append(area.line(steps, colour, dash=dash, width=width, title=f"{group}: {field}"))
        legend.append((shorten(group, _MOST_LETTERS), shapes[-1]))
    label = f"Survival curves{f' by {answer.by}' if answer.by else ''}, with 95 % intervals"
    return Chart(label, area, tuple(shapes), tuple(legend))


def _draw_shares(answer: Description) -> list[Chart]:
    """Return the chart of the shares of categories' levels, one mark per group; an empty list without categories.

    If a category has two levels, only the second one is drawn.
    """
    shares = [entry for entry in answer.statistics if entry.statistic == "share" and not math.isnan(entry.estimate)]
    levels = {column: [entry.level for entry in shares if entry.column == column] for column in _columns(shares)}
    lines = [
        (column, level)
        for column, names in levels.items()
        for level in (dict.fromkeys(names) if len(dict.fromkeys(names)) != 2 else names[-1:])
    ][:_MOST_LINES]
    if not lines:
        return []
    groups = [group for group in answer.groups if len(answer.groups) == 1 or group != ALL_ROWS][: len(_MARKS)]
    area = Area(Axis.even("share", 0.0, 1.0, ".0%"), Axis.names([_name(column, level) for column, level in lines]))
    shapes: list[Shape] = []
    legend: list[tuple[str, Shape]] = []
    for g, (group, colour, outline) in enumerate(zip(groups, COLOURS, _MARKS, strict=False)):
        marks: list[Shape] = []
        for entry in (entry for entry in shares if entry.group == group and (entry.column, entry.level) in lines):
            k = lines.index((entry.column, entry.level)) + 0.5 * ((g + 0.5) / len(groups) - 0.5)
            words = (
                f"{_name(entry.column, entry.level)}, {group}: {entry.estimate:.1%} [{entry.low:.1%}, {entry.high:.1%}]"
            )
            shapes.append(area.line([(entry.low, k), (entry.high, k)], colour))
            marks.append(area.mark(entry.estimate, k, colour, outline, words))
        shapes += marks
        legend += [(f"{answer.by} = {shorten(group, _MOST_LETTERS)}", marks[-1])] if answer.by and marks else []
    height = (16 + 12 * len(groups)) * len(lines)
    return [Chart("Shares, with 95 % intervals", area, tuple(shapes), tuple(legend), height)]


def _columns(entries: Sequence[Statistic]) -> Iterable[str]:
    return dict.fromkeys(entry.column for entry in entries)


def _draw_intervals(entries: Sequence[tuple[str, float, float, float]], title: str, neutral: float) -> Chart:
    """Return estimates as marks on their intervals, one line each; a dashed line stands at the value of no effect."""
    lows, highs = [low for _, _, low, _ in entries], [high for _, _, _, high in entries]
    low, high = min(*lows, neutral), max(*highs, neutral)
    room = 0.04 * (high - low)
    names = Axis.names([name for name, *_ in entries])
    if neutral == 1.0:  # ratios: half and double are equally far from 1
        ticks = [(float(tick), f"{tick:g}") for tick in _RATIOS if low <= tick <= high]
        area = Area(Axis(title, low / 1.05, 1.05 * high, tuple(ticks), log=True), names)
    else:
        area = Area(Axis.even(title, low - room, high + room), names)
    shapes = [area.line([(neutral, -0.6), (neutral, len(entries) - 0.4)], QUIET, dash=DASHED, width=1.0)]
    for k, (name, value, start, end) in enumerate(entries):
        shapes.append(area.line([(start, k), (end, k)], BLUE, title=f"{name}: {start:.3g} to {end:.3g}"))
        shapes.append(area.mark(float(np.clip(value, low, high)), k, BLUE, "square", f"{name}: {value:.3g}"))
    return Chart(
        f"{title.capitalize()}s with 95 % intervals", area, tuple(shapes), height=40 + _LINE_HEIGHT * len(entries)
    )
