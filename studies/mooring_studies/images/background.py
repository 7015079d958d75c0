"""One thing at a time behind the main thread: an auditor works while the next draws are computed."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self


class InBackground:
    """Runs functions one after the other in the order given; what fails, fails where the next one is given.

    Attributes
    ----------
    waited : float
        Seconds in which whoever gave the functions waited for them.

    Examples
    --------
    >>> done = []
    >>> with InBackground() as background:
    ...     for k in range(3):
    ...         background.run(lambda k=k: done.append(k))
    >>> done
    [0, 1, 2]
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None
        self.waited = 0.0

    def run(self, function: Callable[[], None]) -> None:
        """Wait for the function before, then have this one run."""
        self.wait()
        self._last = self._pool.submit(function)

    def wait(self) -> None:
        """Wait until nothing runs."""
        if self._last is not None:
            last, self._last = self._last, None
            began = time.perf_counter()
            try:
                last.result()
            finally:
                self.waited += time.perf_counter() - began

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.wait()  # also after an error or Ctrl-C: what is finished is to be kept
        finally:
            self._pool.shutdown()
