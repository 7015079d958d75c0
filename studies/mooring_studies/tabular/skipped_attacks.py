"""Attacks that gave nothing at a point, and why: so that nobody takes them for attacks that were run and found nothing.

A row of the results names them in one column and has the reasons, as JSON, in another; a row where all ran has neither. A
denoised attack is named only where the plain one ran. Facts and notes are counted from the rows, and so are the same for a
run that was stopped and went on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NAMES, REASONS = "attacks_not_run", "attacks_not_run_because"
GUESSING = "error:guessing"
"""The column that every point has at which attacks were tried, and no other."""

LEFT_OUT = "did not run"
"""Begins the reason of an attack that was not even tried."""

_OUTCOMES = ("did not apply", "failed", LEFT_OUT)
_SHOWN_REASONS = 3


def skipped_columns(reasons: Mapping[str, str]) -> dict[str, Any]:
    """The columns of a row; none where all ran."""
    if not reasons:
        return {}
    return {NAMES: ",".join(reasons), REASONS: json.dumps(dict(reasons), ensure_ascii=False)}


def counted(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """By attack and reason, the number of points."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        for attack, reason in json.loads(row.get(REASONS) or "{}").items():
            reasons = counts.setdefault(attack, {})
            reasons[reason] = reasons.get(reason, 0) + 1
    return counts


def facts_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For the facts: at how many points attacks were tried; which were not run, why, and at how many points."""
    return {"n_attacked": sum(GUESSING in row for row in rows), NAMES: counted(rows)}


def notes_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same in sentences; attacks with the same reason and count are named together.

    Examples
    --------
    >>> skipped = skipped_columns({"moments": "did not run: Nobody asked for it."})
    >>> notes_of([{GUESSING: 1.0} | skipped, {GUESSING: 1.0}])
    ['moments did not run at 1 of 2 points: Nobody asked for it']
    """
    n_attacked = facts_of(rows)["n_attacked"]
    alike: dict[tuple[str, tuple[tuple[str, int], ...]], list[str]] = {}
    for attack, reasons in counted(rows).items():
        for kind in _OUTCOMES:
            matching = [
                (why.removesuffix("."), n)
                for text, n in reasons.items()
                for k, _, why in [text.partition(": ")]
                if k == kind
            ]
            if matching:
                ordered = tuple(sorted(matching, key=lambda pair: (-pair[1], pair[0])))
                alike.setdefault((kind, ordered), []).append(attack)
    return [
        f"{_listed(attacks)} {kind} at {sum(n for _, n in reason)} of {n_attacked} points: {_reasons_in_words(reason)}"
        for (kind, reason), attacks in alike.items()
    ]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _reasons_in_words(reasons: Sequence[tuple[str, int]]) -> str:
    if len(reasons) == 1:
        return reasons[0][0]
    words = [f"{why} ({n})" for why, n in reasons[:_SHOWN_REASONS]]
    more = reasons[_SHOWN_REASONS:]
    return "; ".join([*words, *([f"for other reasons ({sum(n for _, n in more)})"] if more else [])])
