"""Expect an error of mooring by its fields; its prose may change."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mooring.errors import MissingExtraError, MooringError


@contextmanager
def raising(kind: type[MooringError], what: str = "", **fields: str) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect an error of this class that is about `what`, and whose fields hold the words that identify the case.

    `what` is matched exactly; each field (`reason`, `expected`, `got`, `cure`, `extra`) must contain the words given for it.
    """
    with pytest.raises(kind) as caught:
        yield caught
    error: Any = caught.value
    assert what in ("", getattr(error, "what", None)), error
    assert isinstance(error, MissingExtraError) or error.cure.endswith("."), error.cure
    for name, words in fields.items():
        assert words in getattr(error, name), f"{name}: {getattr(error, name)}"


def numbers_in(text: str) -> set[float]:
    """Return the numbers that a sentence states, without its prose."""
    return {float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?", text)}
