"""Sentences about one operating point: membership, the most exposed part, totals, and how much leaks by each measure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from mooring.audit.point_result import PointResult
from mooring.mechanisms.sums.guarantee import bound_odds, round_up
from mooring.metrics import Figure
from mooring.metrics.membership import state_alarms

_STRANGE = 1.2
_AMOUNTS = ((0.5, "much"), (0.8, "something"), (math.inf, "little"))
MEASURES = {
    "centred_error": "the error over all rows",
    "linkage": "the share of rows linked",
    "exposed_value": "the most exposed value",
    "exposed_column": "the most exposed column",
    "exposed_row": "the most exposed row",
    "exposed_tenth": "the most exposed tenth of rows",
    "membership_at_1_percent": "the share of rows recognised as uploaded",
}
_FAR_ABOVE_CHANCE = 2.0


def state_total(result: PointResult) -> str:
    """What the joint model from a total scores, how many members the strongest attack recognises, and the ε measured."""
    words = []
    if result.deployed is not None:
        words.append(f"the joint model scores {result.deployed.with_interval()} ({result.deployed.metric}).")
    if result.gain is not None:
        words.append(f"{result.gain.sentence()}")
    if (recognised := result.worst("membership_at_1_percent")) is not None:
        attack, figure = recognised
        allowed = ""
        if result.point.promise is not None:
            most = min(1.0, bound_odds(*result.point.promise) / 100)
            above = " (the excess is chance, or a fault in the noise)" if figure.value > most else ""
            allowed = f"; the guarantee allows at most {round_up(100 * most)}%{above}"
        words.append(
            f"Of the rows behind the total, '{attack}' recognises {figure.value:.1%}{figure.interval.written('.1%')} at "
            f"{state_alarms(figure)}{allowed}."
        )
    if result.epsilon is not None:
        least = result.epsilon.measured.gaussian
        words.append(f"Canaries (artificial rows that change the sums most) show that ε is at least {least:.2g}.")
    return " ".join(words)


def warn_of_dissimilar_colluder(results: Sequence[PointResult]) -> tuple[str, ...]:
    """Return a warning if the colluder's rows hardly resemble the target's, so that attacks that compare them say little.

    The control guesses the mean of the colluder's rows of the same class. Its error is at most about 1 if they are similar.
    """
    for result in results:
        worst = result.worst()
        if worst is not None and worst[1].control is not None and worst[1].control > _STRANGE:
            return (
                f"The colluder's rows hardly resemble the target's (guessing from them alone is off by "
                f"{worst[1].control:.2f}, where 1 is the spread): these figures say little about an attacker whose rows do.",
            )
    return ()


def state_exposure(point: PointResult) -> tuple[str, ...]:
    """Return clauses on the most exposed value, column and row by the strongest attacks, with chance and control."""
    clauses = []
    if (value := point.worst("exposed_value")) is not None:
        attack, figure, n = *value, round(value[1].value * value[1].n)
        clauses.append(
            f"{n} of {figure.n} {figure.name} {'is' if n == 1 else 'are'} among as many rows that '{attack}' "
            f"ranks first (chance {figure.chance:.2%}, without the upload {figure.control:.2%})"
        )
    if (column := point.worst("exposed_column")) is not None:
        attack, figure = column
        clauses.append(
            f"{figure.name} is rebuilt by '{attack}' with an error of {figure.value:.2f} of its spread (without the upload "
            f"{figure.control:.2f})"
        )
    row = point.worst("exposed_row")
    if row is not None and row[1].value < (row[1].chance or 0.0):
        attack, figure = row
        clauses.append(
            f"one row is rebuilt by '{attack}' with {figure.value:.2f} of the error of guessing it (by chance "
            f"{figure.chance:.2f})"
        )
    return tuple(clauses)


def state_membership(point: PointResult) -> str | None:
    """Return a sentence on whether an attacker recognises uploaded rows, or None if this was not measured."""
    if (worst := point.worst("membership_at_1_percent")) is None:
        return None
    attack, figure = worst
    beside = "" if figure.control is None else f"; with an upload of other rows {figure.control:.1%}"
    few = "" if (figure.chance or 0) <= 0.01 else ", the lowest rate that so few non-members allow"
    words = (
        f"Can an attacker tell that a row is in the upload? '{attack}' recognises "
        f"{figure.value:.0%}{figure.interval.written('.0%')} of the uploaded rows at {state_alarms(figure)}{few} (chance "
        f"{100 * (figure.chance or 0):.2g} %{beside})"
    )
    outlying = point.worst("outlying_membership_at_1_percent")
    words += "" if outlying is None else f", and {outlying[1].value:.0%} of the most outlying tenth"
    return words + "."


def judge_leakage(point: PointResult) -> tuple[str, str, str]:
    """Return how much leaks ('much', 'something' or 'little'), the rule behind this, and the decisive measure.

    Every measure is converted to the share of the error of guessing that the attack leaves, or the share of what guessing
    misses, where guessing is the better of chance and control. Less than 0.5 is much, less than 0.8 is something. The
    smallest share decides, so that no mean over rows and no single measure makes a point look safe.
    """
    left = _left_by_measure(point, MEASURES)
    decisive = min(left, key=lambda measure: left[measure])
    amount = _name_amount(left[decisive])
    rule = (
        f"by {MEASURES[decisive]}; 'much' is more than half of what guessing leaves open, 'something' more than a fifth"
    )
    return amount, rule if "linkage" in left else f"{rule}; whether rows can be picked out was not measured", decisive


def grade_measures(point: PointResult, measures: Iterable[str]) -> dict[str, str]:
    """Return how much leaks by each measure that has a figure, by the rule of `judge_leakage`, the largest leak first."""
    left = _left_by_measure(point, measures)
    return {measure: _name_amount(left[measure]) for measure in sorted(left, key=lambda name: left[name])}


def _left_by_measure(point: PointResult, measures: Iterable[str]) -> dict[str, float]:
    taken = {measure: point.worst(measure) for measure in measures}
    return {
        measure: _left_open(measure, worst[1])
        for measure, worst in taken.items()
        if worst is not None and not math.isnan(worst[1].value)
    }


def _name_amount(left: float) -> str:
    return next(word for limit, word in _AMOUNTS if left < limit)


def _left_open(measure: str, figure: Figure) -> float:
    """Return the share of the error of guessing, or of what guessing misses, that an attack leaves."""
    levels = [level for level in (figure.chance, figure.control) if level is not None]
    if measure in (
        "exposed_row",
        "exposed_tenth",
    ):  # already relative to guessing; chance is the smallest error by chance
        return 1.0 if figure.value >= (figure.chance or 0.0) else figure.value
    if figure.higher_is_worse:
        without = max(levels, default=0.0)
        return 1 - (figure.value - without) / (1 - without) if without < 1 else 1.0
    without = min(levels, default=1.0)
    return figure.value / without if without > 0 else 1.0


def warn_of_linked_rows(recommended: PointResult | None) -> str | None:
    """Return a warning to show with a recommended point if its rows are linked far above chance, else None."""
    linked = None if recommended is None else recommended.worst("linkage")
    return None if linked is None else warn_of_linkage(linked[1].value, linked[1].chance or 0.0)


def warn_of_linkage(share: float, chance: float) -> str | None:
    """Return a warning to show with an error within the limit if rows are linked far above chance, else None."""
    if not chance > 0 or share < _FAR_ABOVE_CHANCE * chance:
        return None
    return (
        f"This does not hide whose row is whose: {share:.0%} of the rows are linked, {share / chance:.1f} times chance "
        f"({chance:.0%}). The error only says how far rebuilt rows are from the true ones."
    )
