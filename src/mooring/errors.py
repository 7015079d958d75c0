"""All exceptions that mooring raises on purpose.

A message says what was wrong, what was expected and what to do. It names shapes, columns and counts, and never quotes
a value of a private record.
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


_LONGEST_QUOTE = 120


class MooringError(Exception):
    """Base class of all errors that mooring raises on purpose."""

    def __reduce__(self) -> str | tuple[Any, ...]:  # errors are pickled when a worker process returns them
        fields = {name: value for name, value in vars(self).items() if name != "__notes__"}
        return (partial(type(self), **fields), ()) if fields else super().__reduce__()


class InputError(MooringError, ValueError):
    """Raised when an argument, an option or an entry of a file cannot be used.

    Pass `expected` and `got`. Where a sentence of its own reads better, pass that as `problem`, alone or in addition.

    Parameters
    ----------
    what : str
        Name of the argument, as the caller knows it.
    cure : str
        What the caller can do about it, as a sentence.
    expected : str, optional
        What the argument must be.
    got : str, optional
        What the argument was: a shape, a type, a count; never a private value.
    problem : str, optional
        What is wrong, as a sentence. By default, the sentence is made from `what`, `expected` and `got`.

    Examples
    --------
    >>> print(InputError("n_components", expected="at least 1", got="0", cure="Ask for one component or more."))
    n_components must be at least 1, got 0. Ask for one component or more.
    >>> print(InputError("passphrase", problem="The two passphrases do not match.", cure="Type the same one twice."))
    The two passphrases do not match. Type the same one twice.
    """

    def __init__(self, what: str, *, cure: str, expected: str = "", got: str = "", problem: str = "") -> None:
        self.what, self.expected, self.got, self.cure = what, expected, got, cure
        self.problem = problem or f"{what} must be {expected}, got {got}."
        super().__init__(f"{self.problem} {cure}")


def require_choice(
    what: str, value: object, choices: Iterable[str], *, cure: str = "Names are lower-case, with hyphens."
) -> None:
    """Raise an `InputError` unless the value is one of the choices."""
    known = tuple(choices)
    if value not in known:
        got = repr(value)
        got = got if len(got) <= _LONGEST_QUOTE else f"{got[:_LONGEST_QUOTE]}…"
        raise InputError(what, expected=f"one of {', '.join(known)}", got=got, cure=cure)


class MissingExtraError(MooringError, ImportError):
    """Raised when an optional dependency that a call needs is not installed."""

    def __init__(self, *, needed_for: str, package: str, extra: str) -> None:
        self.needed_for, self.package, self.extra = needed_for, package, extra
        super().__init__(
            f"{needed_for} needs {package}, which is not installed. Install it with: pip install 'mooring[{extra}]'"
        )


class RefusedError(MooringError):
    """Raised when mooring refuses a file or a step, mostly to protect the people in the records.

    Parameters
    ----------
    what : str
        What is refused, for instance a bundle, a map or a second upload.
    reason : str
        Why it is refused, without any private value.
    cure : str
        What to do, as a sentence.

    Examples
    --------
    >>> print(RefusedError("the anchor", reason="its signature is not the dealer's", cure="Ask for it again."))
    the anchor is refused: its signature is not the dealer's. Ask for it again.
    """

    def __init__(self, what: str, *, reason: str, cure: str) -> None:
        self.what, self.reason, self.cure = what, reason, cure
        super().__init__(f"{what} is refused: {reason}. {cure}")


class StorageError(MooringError):
    """Raised when a file or folder cannot be read or written, for instance because the disk is full or a file is missing."""

    def __init__(self, what: str, *, reason: str, cure: str) -> None:
        self.what, self.reason, self.cure = what, reason, cure
        super().__init__(f"{what}: {reason}. {cure}")


class UnforeseenError(MooringError):
    """Raised for an exception that mooring did not expect, which is a fault of mooring."""


def explain_error(problem: Exception, *, is_out_of_memory: bool = False) -> MooringError:
    """Return the error to show for an exception.

    Errors of mooring are returned unchanged. For an OSError, the result states the system's reason; with `is_out_of_memory`,
    it says that memory is short. For any other exception, it states only the type and the place, because the exception's
    message may quote a record.
    """
    if isinstance(problem, MooringError):
        return problem
    if isinstance(problem, OSError):
        return StorageError("a file", reason=problem.strerror or "the disk failed", cure="Finished parts are kept.")
    if is_out_of_memory:
        return InputError(
            "memory",
            problem="This device does not have enough memory for this step.",
            cure="Use a device with more memory, or less data ('mooring reproduce' has --quick). Finished parts are kept: "
            "run the same step again to continue.",
        )
    place = traceback.extract_tb(problem.__traceback__)[-1]
    return UnforeseenError(
        f"Unexpected {type(problem).__name__} in {Path(place.filename).name}, line {place.lineno}. This is a fault of "
        "mooring: please report it. Its message is hidden because it may quote a record; MOORING_TRACEBACK=1 shows it. "
        "Finished parts are kept."
    )
