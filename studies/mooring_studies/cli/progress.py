"""The progress of a long study in a terminal, or line by line where there is none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from mooring_studies.storage.progress import StageClock, in_words

_LINE_EVERY = 60.0
_LOOK_EVERY = 5.0
_SAVE_EVERY = 60.0


class StudyProgress:
    """Tells stage, steps, time, and an estimate of the time that is left of the stage."""

    def __init__(
        self, clock: StageClock, *, save: Callable[[dict[str, float]], None] = lambda seconds: None, takes: str = ""
    ) -> None:
        self.clock, self.notes = clock, list[str]()
        self._save, self._takes = save, f"the whole takes {takes}" if takes else ""
        self._one_at_a_time = threading.RLock()  # the study's threads, and the one below
        self._over = threading.Event()
        self._sign_of_life = threading.Thread(target=self._repeat, name="progress", daemon=True)
        self._console = Console(stderr=True)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn(self._takes, style="dim"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None)
        self._began = self._saved = self._told = time.monotonic()

    def stage(self, name: str, total: int) -> None:
        """Begin a stage of so many steps."""
        with self._one_at_a_time:
            self.clock.stage(name, total)
            self._bar.reset(self._task, total=total, description=escape(name))
            self._tell(line=True)

    def advance(self, n: int = 1) -> None:
        """So many steps are done."""
        with self._one_at_a_time:
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
        self._sign_of_life.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._over.set()
        self._sign_of_life.join()
        self._bar.stop()
        self.clock.stage("", 0)
        self._save(self.clock.seconds())

    def _repeat(self) -> None:
        """While one step takes long, tell again where the run is: it has not come to a stop."""
        while not self._over.wait(_LOOK_EVERY):
            with self._one_at_a_time:
                if self.clock.name and time.monotonic() - self._told > _LINE_EVERY:
                    self._tell(line=True, elapsed=True)

    def _tell(self, *, line: bool, elapsed: bool = False) -> None:
        self._bar.update(self._task, completed=self.clock.done)
        if line and not self._console.is_terminal:
            since = f"{in_words(time.monotonic() - self._began)} so far" if elapsed else ""
            parts = (f"{self.clock.name}: {self.clock.done}/{self.clock.total}", since, self._takes)
            self._console.print(
                ", ".join(filter(None, parts)), style="dim", markup=False, highlight=False, soft_wrap=True
            )
            self._told = time.monotonic()
