"""Work on many things at once, and on fewer where memory does not hold so many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from mooring.errors import InputError
from mooring.geometry import is_out_of_memory

Items = TypeVar("Items")
Found = TypeVar("Found")


def pieces_that_fit(
    work: Callable[[Items], Found],
    items: Items,
    at_once: int,
    *,
    make_room: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Items, Found]]:
    """Do work on so many items at a time, and on half as many from the moment on that memory does not suffice.

    Parameters
    ----------
    work : callable
        Given a piece of `items`. What it found before memory ran out is found again, in smaller pieces.
    items : array or sequence
    at_once : int
    make_room : callable
        Called before work is tried again: here memory is freed that something else holds. One item is tried once more.

    Yields
    ------
    tuple
        Each piece and what was found for it, as soon as it is.

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
        found = _unless_out_of_memory(work, piece)
        if found is None:
            make_room()
            if len(piece) > 1:
                at_once = len(piece) // 2
                continue
            found = _unless_out_of_memory(work, piece)
            if found is None:
                raise InputError(
                    "memory",
                    expected="room for one draw at a time",
                    got="less, on this device",
                    cure="Use a device with more memory, or --quick. What is done is kept, and "
                    "the same command goes on from it.",
                )
        rest = rest[len(piece) :]
        yield piece, found[0]
        del found  # the next piece may need its memory


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
