"""How far a study is, and how long it will take still, over stages of very different length.

The rest of a stage is told from its latest steps. What later stages will take is told from their weights (relative times,
in the study's file) and from what a unit of weight took so far. Steps that a resumed run only finds done again take no time
and do not count.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from mooring_studies.settings.sections import IMAGE_KINDS

if TYPE_CHECKING:
    from mooring_studies.settings.spec import Spec

_LATEST = 20  # steps that the pace is told from
_REAL_SECONDS = 0.5  # a stage that took less was only found done


class Progress(Protocol):
    """What a study tells its progress to."""

    def stage(self, name: str, total: int) -> None:
        """Begin a stage of so many steps."""

    def advance(self, n: int = 1) -> None:
        """So many steps of it are done."""

    def note(self, text: str) -> None:
        """Something that a reader of the results should know."""


def expected_stages(spec: Spec) -> dict[str, float]:
    """The stages of an image study in their order, as it names them, with their weights.

    A weight is the study's own weight of a step (1 unless its file says otherwise), times steps, times participants, since
    rows and alignment grow with them. Other studies have one stage, and need no weights.
    """
    weights: dict[str, float] = {}
    sizes = [p for _, _, fitting in spec.data.allocations() for p in fitting] or list(spec.data.n_participants)
    for deployment in range(spec.deployments if spec.kind in IMAGE_KINDS else 0):
        noise = spec.in_deployment(deployment).noise
        steps = {
            "without noise": 1,
            "without an anchor": 1,
            "pooled raw": 1,
            "training alone": 1,  # each trains on its share of the rows
            "private-data noise": sum(one.count for one in noise.data),
            "anchor noise": sum(one.count for one in noise.anchor),
            "both noises": sum(one.count for one in noise.both),
        }
        for p in sizes:
            for what, count in steps.items():
                if count:
                    name = f"deployment {deployment}, {p} participants: {what}"
                    weights[name] = weights.get(name, 0.0) + spec.stages.get(what, 1.0) * count * p
    return weights


class StageClock:
    """Counts steps, keeps times, and estimates.

    Parameters
    ----------
    weights : mapping of str to float
        Relative times of the stages that are expected, in their order. A stage that is not among them weighs nothing, and
        expected ones that were passed over are not waited for.
    now : callable
        A clock, in seconds.

    Examples
    --------
    >>> ticks = iter([0.0, 10.0, 10.0, 10.0])
    >>> clock = StageClock({"train": 1.0, "attack": 3.0}, now=lambda: next(ticks))
    >>> clock.stage("train", 2)
    >>> clock.advance()
    >>> clock.seconds_left()  # ten for the other step, three times twenty for the next stage
    70.0
    """

    def __init__(self, weights: Mapping[str, float], *, now: Callable[[], float] = time.monotonic) -> None:
        self._weights, self._now = dict(weights), now
        self._seconds: dict[str, float] = {}
        self._full: dict[str, float] = {}
        self._steps: deque[tuple[float, int]] = deque(maxlen=_LATEST + 1)
        self.name, self.total, self.done = "", 0, 0
        self._began = 0.0

    def stage(self, name: str, total: int) -> None:
        """Begin a stage; the one before is over."""
        now = self._now()
        self._close(now)
        self.name, self.total, self.done = name, max(total, 0), 0
        self._began = now
        self._steps.clear()
        self._steps.append((now, 0))

    def advance(self, n: int = 1) -> None:
        """Some steps are done."""
        self.done = min(self.total, self.done + n)
        self._steps.append((self._now(), self.done))

    def finish(self) -> None:
        """The last stage is over."""
        self._close(self._now())
        self.name = ""

    def seconds(self) -> dict[str, float]:
        """What each stage took in this run, the current one until now; a stage that came again is summed."""
        taken = dict(self._seconds)
        if self.name:
            taken[self.name] = taken.get(self.name, 0.0) + self._now() - self._began
        return taken

    def seconds_left(self) -> float | None:
        """An estimate; None where there is nothing to tell it from yet."""
        if not self.name:
            return None
        now, pace = self._now(), self._pace()
        if pace is None:
            rest = None if self.done < self.total or not self.total else 0.0
        else:
            since = now - self._steps[-1][0]
            rest = max(0.0, pace * (self.total - self.done) - since)
        ahead = sum(self._weights[name] for name in self._ahead())
        if rest is None or (ahead > 0 and self._unit(pace) is None):
            return None
        return rest + ahead * (self._unit(pace) or 0.0)

    def share_done(self) -> float:
        """How much of the whole is done, between 0 and 1, by weight."""
        if not self._weights:
            return self.done / self.total if self.total else 0.0
        ahead = sum(self._weights[name] for name in self._ahead())
        own = self._weights.get(self.name, 0.0)
        left = own * (1 - self.done / self.total) if self.total else 0.0
        return 1.0 - (ahead + left) / sum(self._weights.values())

    def _ahead(self) -> list[str]:
        names = list(self._weights)
        begun = [k for k, name in enumerate(names) if name in self._seconds or name == self.name]
        return names[begun[-1] + 1 :] if begun else names

    def _pace(self) -> float | None:
        """Seconds a step, from the latest ones."""
        (begun, before), (ended, after) = self._steps[0], self._steps[-1]
        return (ended - begun) / (after - before) if after > before and ended > begun else None

    def _unit(self, pace: float | None) -> float | None:
        """Seconds a unit of weight, from stages that really ran and from the current one."""
        full = {name: seconds for name, seconds in self._full.items() if seconds >= _REAL_SECONDS}
        if pace is not None and pace * self.total >= _REAL_SECONDS:
            full[self.name] = pace * self.total
        weight = sum(self._weights.get(name, 0.0) for name in full)
        known = sum(seconds for name, seconds in full.items() if name in self._weights)
        return known / weight if weight else None

    def _close(self, now: float) -> None:
        if not self.name:
            return
        pace = self._pace()
        self._seconds[self.name] = self._seconds.get(self.name, 0.0) + now - self._began
        self._full[self.name] = pace * self.total if pace is not None else now - self._began


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
