"""Read and encode the next batch while the last one is worked on: parsing and algebra leave Python's lock free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from queue import Full, Queue
from threading import Event, Thread
from typing import TypeVar

Item = TypeVar("Item")


def read_ahead(items: Iterable[Item], *, at_most: int = 2) -> Iterator[Item]:
    """The same items in the same order, made by another thread, at most so many ahead.

    An error of the other thread is raised here, in its place among the items; leaving early stops the other thread.

    Examples
    --------
    >>> list(read_ahead(range(3)))
    [0, 1, 2]
    """
    waiting: Queue[tuple[Item | None, BaseException | None]] = Queue(at_most)
    stopped = Event()

    def offer(entry: tuple[Item | None, BaseException | None]) -> None:
        while not stopped.is_set():
            try:
                waiting.put(entry, timeout=0.1)
                return
            except Full:
                continue

    def read() -> None:
        problem: BaseException = StopIteration()
        try:
            for item in items:
                offer((item, None))
                if stopped.is_set():
                    return
        except BaseException as raised:  # handed over whole, to be raised where the items are used
            problem = raised
        offer((None, problem))

    thread = Thread(target=read, daemon=True)
    thread.start()
    try:
        while True:
            item, problem = waiting.get()
            if isinstance(problem, StopIteration):
                return
            if problem is not None:
                raise problem
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()
