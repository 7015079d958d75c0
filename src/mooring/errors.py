"""Every exception mooring raises on purpose.

A message says what was wrong, what was expected, what came instead, and what to do about it. It never quotes values of
private records: shapes, names and counts only.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

__all__ = [
    "InputError",
    "MissingExtraError",
    "MooringError",
    "RefusedError",
    "StorageError",
    "UnforeseenError",
    "explain_error",
    "require_choice",
]


class MooringError(Exception):
    """Root of all errors that mooring raises on purpose."""

    def __reduce__(self) -> str | tuple[Any, ...]:  # errors must survive the way back from a worker process
        fields = {name: value for name, value in vars(self).items() if name != "__notes__"}
        return (partial(type(self), **fields), ()) if fields else super().__reduce__()


class InputError(MooringError, ValueError):
    """An argument that cannot be used.

    Parameters
    ----------
    what : str
        The argument, in the caller's words.
    expected : str
        What it must be.
    got : str
        What it was: a shape, a type, a count; never a private value.
    cure : str
        What the caller can do about it.

    Examples
    --------
    >>> print(InputError("n_components", expected="at least 1", got="0", cure="Ask for one component or more."))
    n_components must be at least 1, got 0 instead. Ask for one component or more.
    """

    def __init__(self, what: str, *, expected: str, got: str, cure: str) -> None:
        self.what, self.expected, self.got, self.cure = what, expected, got, cure
        super().__init__(f"{what} must be {expected}, got {got} instead. {cure}")


def require_choice(
    what: str, value: object, choices: Iterable[str], *, cure: str = "Names are lower-case, with hyphens."
) -> None:
    """Refuse a value that is none of the choices.

    Parameters
    ----------
    what : str
        Its name in the error.
    value : object
        What was given.
    choices : iterable of str
        What is accepted, in the order of the error.
    cure : str, default "Names are lower-case, with hyphens."
        What to do, in the error.
    """
    known = tuple(choices)
    if value not in known:
        raise InputError(what, expected=f"one of {', '.join(known)}", got=repr(value), cure=cure)


class MissingExtraError(MooringError, ImportError):
    """An optional dependency that this call needs and that is not installed."""

    def __init__(self, *, needed_for: str, package: str, extra: str) -> None:
        self.needed_for, self.package, self.extra = needed_for, package, extra
        super().__init__(
            f"{needed_for} needs {package}, which is not installed. Install it with: pip install 'mooring[{extra}]'"
        )


class RefusedError(MooringError):
    """Something that mooring will not do or take, because it would harm the people in the records.

    Parameters
    ----------
    what : str
        What is refused: a bundle, a map, a second upload.
    reason : str
        Why; never a private value.
    cure : str
        What can be done instead.

    Examples
    --------
    >>> print(RefusedError("the anchor", reason="its signature is not the dealer's", cure="Ask for it again."))
    the anchor is refused: its signature is not the dealer's. Ask for it again.
    """

    def __init__(self, what: str, *, reason: str, cure: str) -> None:
        self.what, self.reason, self.cure = what, reason, cure
        super().__init__(f"{what} is refused: {reason}. {cure}")


class StorageError(MooringError):
    """A file or folder that cannot be read or written: a full disk, a read-only folder, a file that is not there."""

    def __init__(self, what: str, *, reason: str, cure: str) -> None:
        self.what, self.reason, self.cure = what, reason, cure
        super().__init__(f"{what}: {reason}. {cure}")


class UnforeseenError(MooringError):
    """A fault of mooring's own."""


def explain_error(problem: Exception, *, is_out_of_memory: bool = False) -> MooringError:
    """What may be shown of an exception: kind and place alone of a foreign one, whose message may quote a record."""
    if isinstance(problem, MooringError):
        return problem
    if isinstance(problem, OSError):
        return StorageError("a file", reason=problem.strerror or "the disk failed", cure="Nothing finished is lost.")
    if is_out_of_memory:
        return InputError(
            "memory",
            expected="enough for this step",
            got="less, on this device",
            cure="Use a device with more memory, or less data; 'mooring reproduce' has --quick. What is done is kept, and "
            "the same step goes on from it.",
        )
    place = traceback.extract_tb(problem.__traceback__)[-1]
    return UnforeseenError(
        f"{type(problem).__name__} in {Path(place.filename).name}, line {place.lineno}, which nobody foresaw: please "
        "report it. What it says is not shown, since it may quote a record; with MOORING_TRACEBACK=1 it is. Nothing "
        "finished is lost."
    )
