"""The pictures that a page opens with: what joining gives, what an attacker gets, and the trade-off between the two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING

from mooring import AuditResult, Plan
from mooring.audit import PointResult
from mooring.mechanisms.sums.guarantee import bound_share
from mooring.metrics import Figure
from mooring.metrics.intervals import round_number
from mooring.report.charts import Comparison, draw_audit, draw_comparisons, draw_mechanisms
from mooring.report.plot import ALARM, CALM, QUIET, SAND, Chart

_STRONG = 0.2  # a bound up to which a guarantee counts as strong, as in decisions
_RATE = 0.01  # false alarms that the attacker accepts
_ABOVE_BY_CHANCE = "The attack's figure is above the bound, as can happen by chance: the interval contains the bound."
_ABOVE = "The attack's whole interval is above the bound: the noise is at fault, or an assumption does not hold."
_MEMBERSHIP, _LINKAGE = "membership_at_1_percent", "linkage"


@dataclass(frozen=True)
class People:
    """A hundred people, some of whom are marked: one panel of a picture of what an attacker gets."""

    heading: str
    """What the panel shows."""
    count: str
    """How many of a hundred, in words."""
    interval: str
    """The interval of the count; empty if it is not known or the count is a bound."""
    share: float
    """The share of the hundred that is marked; parts of a person are rounded up."""
    colour: str
    note: str = ""
    """What guessing reaches, for comparison."""

    @property
    def n_marked(self) -> int:
        """The number of marked people."""
        return min(100, math.ceil(round(100 * self.share, 6)))

    @property
    def label(self) -> str:
        """The panel in words, for readers who cannot see it."""
        counted = f"{self.count} {self.interval}".rstrip()
        return f"{self.heading}: {counted}{self.note and ', '}{self.note}."

    def list_lines(self, n: int) -> str:
        """Return the path through the first `n` people, in lines of ten."""
        lines = [f"M5 {10 * k + 5}h{10 * (min(10, n - 10 * k) - 1) + 0.01:g}" for k in range(math.ceil(n / 10))]
        return "".join(lines)


@dataclass(frozen=True)
class Picture:
    """A picture with its heading and a sentence that says what it shows."""

    title: str
    words: str
    chart: Chart | None = None
    people: tuple[People, ...] = ()


def picture_joining(comparisons: Sequence[Comparison], words: str) -> list[Picture]:
    """Return the picture of what joining gives each site; an empty list if no score of a joint model is known."""
    chart = draw_comparisons(comparisons)
    return [] if chart is None else [Picture("What joining gives", words, chart)]


def picture_attackers(
    point: PointResult | None, promise: tuple[float, float] | None, *, unit: str = "row", caveat: str = ""
) -> list[Picture]:
    """Return the picture of what an attacker gets of a hundred members, beside chance and the guarantee.

    `point` has the attacks that were run, if any were. `promise` is the ε and δ of the guarantee for one `unit`, which is
    a row or a person. The list is empty if there is neither an attack's figure nor a guarantee.
    """
    member = _find(point, _MEMBERSHIP)
    linked = _find(point, _LINKAGE) if point is not None and point.point.shares_rows else None
    if member is None and linked is None and promise is None:
        return []
    shown = _RATE if member is None else max(_RATE, member.chance or 0.0)
    panels, notes = list[People](), list[str]()
    if member is not None or promise is not None:
        notes.append(
            "Each filled circle stands for 1 in 100. 'Recognised' means that an attacker who accepts 1 false alarm in 100 "
            "finds out that the row or person is in the data."
        )
    if member is not None:
        panels.append(_show_figure("Rows recognised by the strongest attack found", member))
        if round(1 / shown) < round(1 / _RATE):
            notes.append(f"With so few rows, the attack could be measured only at 1 false alarm in {round(1 / shown)}.")
    if promise is not None:
        heading, bound = f"{unit.capitalize()}s recognised by any attack, at most", bound_share(*promise, _RATE)
        colour, guess = CALM if bound <= _STRONG else SAND, f"by guessing {_count(_RATE)}"
        panels.append(People(heading, f"{_round_up(bound)} of 100", "", bound, colour, guess))
        notes.append("The guarantee bounds every attack, if its assumptions hold.")
        most = bound_share(*promise, shown)  # at the false alarms of the figure
        if member is not None and member.value > most:
            notes.append(_ABOVE if member.interval.low > most else _ABOVE_BY_CHANCE)
    elif member is not None or linked is not None:
        notes.append("A better attack may exist.")
    if linked is None and len(panels) == 1:
        panels.insert(0, People("Recognised by guessing", f"{_count(shown)} of 100", "", shown, QUIET))
    if linked is not None:
        panels.append(_show_figure("Rows picked out of ten look-alikes by the strongest attack found", linked))
    return [Picture("What an attacker gets", " ".join(filter(None, [*notes, caveat])), people=tuple(panels))]


def picture_trade_off(audit: AuditResult | Plan, point: PointResult | None) -> list[Picture]:
    """Return the picture of score against leakage, with the study's own point marked; an empty list without scores."""
    result = audit.tried if isinstance(audit, Plan) else audit
    charts = draw_audit(audit)
    if result.totals and (chart := draw_mechanisms(result, point)) is not None:
        words = "Upwards, the joint model scores better. To the right, an attacker recognises more members."
        return [Picture("What it costs", words, chart)]
    if "frontier" not in charts:
        return []
    words = "Upwards, the joint model scores better. To the left, an attacker rebuilds rows more exactly."
    return [Picture("What it costs", words, charts["frontier"])]


def _find(point: PointResult | None, measure: str) -> Figure | None:
    worst = None if point is None else point.worst(measure)
    return None if worst is None or math.isnan(worst[1].value) else worst[1]


def _show_figure(heading: str, figure: Figure) -> People:
    interval = figure.interval
    ends = f"[{_count(interval.low)}, {_count(interval.high)}]" if interval.known else ""
    guess = "" if figure.chance is None else f"by guessing {_count(figure.chance)}"
    return People(heading, f"{_count(figure.value)} of 100", ends, figure.value, ALARM, guess)


def _round_up(share: float) -> str:
    """Return a bound as a number out of 100, rounded up to one decimal, as decisions show it."""
    return f"{round_number(100 * share, 1, ROUND_CEILING):g}"


def _count(share: float) -> str:
    """Return a share as a number out of 100, with one decimal if it is below ten."""
    return f"{100 * share:.0f}" if share >= 0.0995 or share == 0 else f"{100 * share:.1f}".removesuffix(".0")
