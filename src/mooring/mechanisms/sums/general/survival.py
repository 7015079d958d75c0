"""Times to an event as one column of levels: the interval in which a row's time ends, and whether it ends with the event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.mechanisms.sums.general.levels import MISSING, Levels, write_weights
from mooring.typing import Labels, Matrix


@dataclass(frozen=True)
class Survival:
    """The declared columns and intervals of times to an event."""

    time: str
    """Name of the column with the time from entry to the event or to the end of observation."""
    event: str
    """Name of the column that says whether the event happened. It may be the label."""
    occurred: str
    """The word in the column of events for an event that happened."""
    edges: tuple[float, ...]
    """The start of the first interval and the ends of all intervals, in increasing order. Times before the first edge count
    to the first interval. Times after the last edge have a level of their own."""

    @property
    def name(self) -> str:
        """Name of the column of levels."""
        return f"{self.time} × {self.event}"

    @property
    def n_intervals(self) -> int:
        """The number of intervals."""
        return len(self.edges) - 1


def find_survival_columns(survival: Survival, columns: Sequence[Levels]) -> list[int]:
    """Return the indices of the columns of time and event, or raise an `InputError` for columns or edges that do not fit."""
    names = [levels.name for levels in columns]
    for name in (survival.time, survival.event):
        if name not in names:
            problem = f"Survival names the column {name[:60]!r}, which the study does not declare."
            raise InputError("survival", problem=problem, cure="Declare the column.")
    time, event = (columns[names.index(name)] for name in (survival.time, survival.event))
    if not time.nodes or time.name == event.name or time.is_log:
        problem = f"The column {survival.time!r} of times must be a number that is not on a logarithmic scale."
        cure = "Declare it as a number of days or months."
        if time.name == event.name:
            problem = f"Survival names {time.name!r} both as the column of times and as that of events."
            cure = "Name two columns."
        raise InputError("survival", problem=problem, cure=cure)
    words = event.names[: event.n_levels - event.has_missing]
    if len(words) != 2 or survival.occurred not in words:
        problem = (
            f"The column {survival.event!r} of events must have two values, one of them {survival.occurred[:60]!r}."
        )
        raise InputError(
            "survival", problem=problem, cure="Declare it as a category of two words, and name the word for an event."
        )
    edges = np.asarray(survival.edges)
    if len(edges) < 2 or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any() or edges[0] < 0:
        problem = "The edges of intervals must be two or more increasing numbers, the first of them 0 or more."
        raise InputError("survival", problem=problem, cure="Give them in increasing order, in the unit of the times.")
    if edges[-1] > time.high:
        problem = f"The last edge, {edges[-1]:g}, is beyond the declared range of {survival.time!r}, {time.high:g}."
        raise InputError("survival", problem=problem, cure="End the intervals within the range.")
    return [names.index(survival.time), names.index(survival.event)]


def make_survival_levels(survival: Survival, has_missing: bool) -> Levels:
    """Return the levels: two per interval (event and censored), one beyond the last interval, and one for missing values."""
    names = [
        f"{low:g}–{high:g}: {what}"
        for low, high in zip(survival.edges, survival.edges[1:], strict=False)
        for what in ("event", "censored")
    ]
    names += ["beyond the last", *([MISSING] if has_missing else [])]
    return Levels(survival.name, "survival", tuple(names), has_missing=has_missing)


def write_survival_weights(
    survival: Survival,
    sources: Sequence[Levels],
    places: Sequence[int],
    rows: Matrix,
    labels: Labels | None,
    target: npt.NDArray[Any],
) -> None:
    """Write the weights of encoded rows on the levels of survival into an array of zeros.

    The weights of a row stay zero if its event is not known and survival has no level of missing values. `sources` are the
    levels of the columns of time and event, and `places` are the indices of their first entries in an encoded row.
    """
    (_, event), (at_time, at_event) = sources, places
    events = np.zeros((len(rows), event.n_levels))
    write_weights(event, at_event, rows, labels, events)
    events_of_rows = np.where(events.any(axis=1), events.argmax(axis=1), -1)
    level = locate_survival(survival, sources, rows[:, at_time:], events_of_rows)
    target[np.flatnonzero(level >= 0), level[level >= 0]] = 1.0


def locate_survival(
    survival: Survival, sources: Sequence[Levels], times: Matrix, events: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """Return the level of survival of each row, or −1 if its event is not known and there is no level of missing values.

    `times` has each row's entries of the column of times. `events` has the level of each row's event, or −1 without a level.
    """
    time, event = sources
    n_intervals = survival.n_intervals
    values = time.low + (time.high - time.low) * (times[:, 0] + 1) / 2
    interval = np.searchsorted(np.asarray(survival.edges), values, side="left") - 1
    interval = np.maximum(interval, 0)  # times up to the first edge count to the first interval
    occurred = events == event.names.index(survival.occurred)
    level = np.where(interval < n_intervals, 2 * interval + ~occurred, 2 * n_intervals)
    absent = (events < 0) | (event.has_missing & (events == event.n_levels - 1))
    if time.has_missing:
        absent |= times[:, 1] > 0
    can_be_missing = time.has_missing or event.has_missing
    return np.where(absent, 2 * n_intervals + 1 if can_be_missing else -1, level)
