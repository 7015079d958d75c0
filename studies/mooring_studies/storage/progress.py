"""What a study tells its progress to, and the seconds that its stages took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    """What a study tells its progress to."""

    def stage(self, name: str, total: int) -> None:
        """Begin a stage of so many steps."""

    def advance(self, n: int = 1) -> None:
        """So many steps of it are done."""

    def note(self, text: str) -> None:
        """Something that a reader of the results should know."""


class StageClock:
    """Counts the steps of a stage, and keeps the seconds of all stages.

    Examples
    --------
    >>> ticks = iter([0.0, 10.0, 15.0])
    >>> clock = StageClock(now=lambda: next(ticks))
    >>> clock.stage("train", 4)
    >>> clock.stage("attack", 1)
    >>> clock.seconds()
    {'train': 10.0, 'attack': 5.0}
    """

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._began = now, 0.0
        self._seconds: dict[str, float] = {}
        self.name, self.total, self.done = "", 0, 0

    def stage(self, name: str, total: int) -> None:
        """Begin a stage; the one before, or all of them where `name` is empty, is over."""
        now = self._now()
        self._seconds = self._until(now)
        self.name, self.total, self.done, self._began = name, max(total, 0), 0, now

    def advance(self, n: int = 1) -> None:
        """Some steps are done."""
        self.done = min(self.total, self.done + n)

    def seconds(self) -> dict[str, float]:
        """What each stage took in this run, the current one until now; a stage that came again is summed."""
        return self._until(self._now())

    def _until(self, now: float) -> dict[str, float]:
        current = {self.name: self._seconds.get(self.name, 0.0) + now - self._began} if self.name else {}
        return self._seconds | current


def in_words(seconds: float) -> str:
    """A time as people say it.

    Examples
    --------
    >>> in_words(42), in_words(60), in_words(1500), in_words(9000)
    ('42 s', '1 min', '25 min', '2 h 30 min')
    """
    minutes = round(seconds / 60)
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
