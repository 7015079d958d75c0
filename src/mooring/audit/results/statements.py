"""Sentences about one operating point: what the strongest attack achieves by a measure, and what a total discloses."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mooring.audit.results.point_result import PointResult
from mooring.learners import Score
from mooring.mechanisms.sums.guarantee import bound_share, round_up
from mooring.metrics.measures import state_figure

LOWER_BOUND = "These figures are lower bounds, since a better attack may exist."
_DISSIMILAR = 1.2
FAR_ABOVE_CHANCE = 2.0
"""The multiple of chance from which a share is far above it."""


def state_strongest(point: PointResult, measure: str) -> str:
    """Return a clause on the strongest attack by a measure, beside chance and control; empty if it was not measured."""
    worst = point.worst(measure)
    if worst is None or math.isnan(worst[1].value):
        return ""
    attack, figure = worst
    text = figure.describe()
    level = "without the sums" if not point.point.shares_rows else "without the upload"
    is_relative = measure in (
        "exposed_row",
        "exposed_percent",
        "exposed_tenth",
        "exposed_half",
    )  # relative to guessing, which is the control
    beside = [f"{text.chance} by chance"] if text.chance and (figure.higher_is_worse or is_relative) else []
    beside += [f"{text.control} {level}"] if text.control and not is_relative else []
    return state_figure(measure, attack, figure) + (f" ({', '.join(beside)})" if beside else "")


def list_exposed(point: PointResult) -> list[str]:
    """Return clauses on the most exposed value, column and row; the row only if its error is below the error by chance."""
    row = point.worst("exposed_row")
    is_exposed = row is not None and row[1].value < (row[1].chance or 0.0)
    measures = ("exposed_value", "exposed_column", *(["exposed_row"] if is_exposed else []))
    return [clause for measure in measures if (clause := state_strongest(point, measure))]


def state_only_class(point: PointResult) -> str:
    """Return a sentence if the joint model predicts one class for every row; empty if it does not."""
    if not point.predicts_one_of:
        return ""
    return (
        f"The joint model predicts the same class for every row, although there are {point.predicts_one_of} classes. "
        f"Guessing does the same, with a balanced accuracy of {1 / point.predicts_one_of:.1%}."
    )


def state_total(point: PointResult) -> str:
    """Return sentences on a total, as far as measured: the model, the members that an attacker recognises, and ε."""
    sentences = []
    if point.deployed is not None:
        score = point.deployed
        sentences.append(f"The joint model has {score.article} {score.metric} of {score.with_interval()}.")
    if point.predicts_one_of:
        sentences.append(state_only_class(point))
    if point.gain is not None:
        sentences.append(point.gain.sentence())
    worst = point.worst("membership_at_1_percent")
    if worst is not None:
        allowed = ""
        if point.point.promise is not None:
            false_alarms = max(0.01, worst[1].chance or 0.0)  # more than 1 % if there are few non-members
            most = bound_share(*point.point.promise, false_alarms)
            above = worst[1].value > most
            allowed = f"; the guarantee allows at most {round_up(100 * most)}%"
            allowed += ", so the excess is chance or a fault in the noise" if above else ""
        sentences.append(f"{state_strongest(point, 'membership_at_1_percent')}{allowed}.")
    if point.epsilon is not None:
        least = point.epsilon.measured.gaussian
        sentences.append(f"Canaries, artificial rows that change the sums most, show that ε is at least {least:.2g}.")
    return " ".join(sentences)


def state_alone(score: Score) -> str:
    """Return a sentence on the score of a participant's model of its own rows, before it joins."""
    figure = f"{score.metric} of {score.with_interval()}"
    return (
        f"A model of this participant's raw rows alone has a cross-validated {figure}. Joining has to improve on that."
    )


def warn_of_dissimilar_colluder(results: Sequence[PointResult]) -> tuple[str, ...]:
    """Return a warning if the colluder's rows hardly resemble the target's, so that attacks that use them say little.

    The control guesses the mean of the colluder's rows of the same class. Its error is at most about 1 if the rows of the
    colluder and of the target are similar. The result is empty if there is nothing to warn of.
    """
    for result in results:
        worst = result.worst()
        if worst is not None and worst[1].control is not None and worst[1].control > _DISSIMILAR:
            return (
                f"The colluder's rows hardly resemble the target's (the error of guessing from them alone is "
                f"{worst[1].control:.2f} times the spread): these figures say little about attackers with similar rows.",
            )
    return ()


def warn_of_linked_rows(recommended: PointResult | None) -> str | None:
    """Return a warning if the rows of a recommended point are linked far more often than by chance, else None."""
    linked = None if recommended is None else recommended.worst("linkage")
    return None if linked is None else warn_of_linkage(linked[1].value, linked[1].chance or 0.0)


def warn_of_linkage(share: float, chance: float) -> str | None:
    """Return a warning if rows are linked far more often than by chance, although their error is large enough; else None."""
    if not chance > 0 or share < FAR_ABOVE_CHANCE * chance:
        return None
    return (
        f"This setting does not hide which row is whose: {share:.0%} of the rows are linked, {share / chance:.1f} times "
        f"chance ({chance:.0%}). The error says only how far rebuilt rows are from the true rows."
    )
