"""How a study computes: as many draws at once as memory holds, and the auditor behind the main thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from mooring import InputError
from mooring.geometry import is_out_of_memory

Items = TypeVar("Items")
Found = TypeVar("Found")


def pieces_that_fit(
    work: Callable[[Items], Found], items: Items, at_once: int, *, make_room: Callable[[], None] = lambda: None
) -> Iterator[tuple[Items, Found]]:
    """Do work on so many items at a time, and on half as many from the moment on that memory does not suffice.

    Each piece is given with its result as soon as it is there. `make_room` is called before work is tried again, and a
    single item is tried once more.

    Examples
    --------
    >>> def at_most_two(piece):
    ...     if len(piece) > 2:
    ...         raise MemoryError
    ...     return sum(piece)
    >>> list(pieces_that_fit(at_most_two, [1, 2, 3, 4, 5], 5))
    [([1, 2], 3), ([3, 4], 7), ([5], 5)]
    """
    rest: Any = items
    while len(rest):
        piece = rest[:at_once]
        result = _unless_out_of_memory(work, piece)
        if result is None:
            make_room()
            if len(piece) > 1:
                at_once = len(piece) // 2
                continue
            result = _unless_out_of_memory(work, piece)
            if result is None:
                raise InputError(
                    "memory",
                    expected="room for one draw at a time",
                    got="less, on this device",
                    cure="Use a device with more memory, or --quick. What is done is kept, and "
                    "the same command goes on from it.",
                )
        rest = rest[len(piece) :]
        yield piece, result[0]
        del result  # the next piece may need its memory


def _unless_out_of_memory(work: Callable[[Any], Found], piece: Any) -> tuple[Found] | None:
    """What was found; None where memory did not suffice, and then what the attempt held is free again."""
    import torch

    try:
        return (work(piece),)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    # Outside the handler: the error keeps the attempt's tensors alive until it is gone.
    torch.cuda.empty_cache()
    return None


class BackgroundTask:
    """Runs functions one after the other in the order given; what fails, fails where the next one is given.

    Examples
    --------
    >>> done = []
    >>> with BackgroundTask() as background:
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
