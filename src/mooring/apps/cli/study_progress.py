"""The progress of a long study in a terminal, or line by line where there is none."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from mooring.apps.experiments.storing.progress import StageClock, in_words

_LINE_EVERY = 60.0
_SAVE_EVERY = 60.0


class StudyProgress:
    """Tells stage, steps, time and an estimate of the time left.

    Parameters
    ----------
    clock : StageClock
    save : callable
        Given the seconds of each stage now and then, so that they outlive a run that is ended.

    Attributes
    ----------
    notes : list of str
        What the study told its reader.
    """

    def __init__(self, clock: StageClock, *, save: Callable[[dict[str, float]], None] = lambda seconds: None) -> None:
        self.clock, self.notes = clock, list[str]()
        self._save = save
        self._console = Console(stderr=True)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[steps]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", style="dim"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=1.0, steps="", left="")
        self._saved = self._told = time.monotonic()

    def stage(self, name: str, total: int) -> None:
        """Begin a stage of so many steps."""
        self.clock.stage(name, total)
        self._tell(line=True)

    def advance(self, n: int = 1) -> None:
        """So many steps are done."""
        self.clock.advance(n)
        self._tell(line=time.monotonic() - self._told > _LINE_EVERY)
        if time.monotonic() - self._saved > _SAVE_EVERY:
            self._save(self.clock.seconds())
            self._saved = time.monotonic()

    def note(self, text: str) -> None:
        """Something that a reader of the results should know."""
        if text not in self.notes:
            self.notes.append(text)
            self._bar.console.print(f"note: {text}", style="dim", markup=False, highlight=False)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        self.clock.finish()
        self._save(self.clock.seconds())

    def _tell(self, *, line: bool) -> None:
        seconds = self.clock.seconds_left()
        left = "" if seconds is None else f"about {in_words(seconds)} left"
        steps = f"{self.clock.done}/{self.clock.total}"
        self._bar.update(
            self._task,
            completed=self.clock.share_done(),
            description=escape(self.clock.name),
            steps=steps,
            left=left,
        )
        if line and not self._console.is_terminal:
            words = ", ".join(
                filter(None, (f"{self.clock.name}: {steps}", f"{self.clock.share_done():.0%} in all", left))
            )
            self._console.print(words, style="dim", markup=False, highlight=False, soft_wrap=True)
            self._told = time.monotonic()
