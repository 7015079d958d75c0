"""Expect an error of mooring by its fields; its prose may change."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mooring.errors import MissingExtraError, MooringError


@contextmanager
def raising(kind: type[MooringError], what: str = "", **fields: str) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect an error of this class that is about `what`, and whose fields hold the words that identify the case.

    Parameters
    ----------
    kind : type of MooringError
    what : str
        What the error is about, exactly.
    **fields : str
        Words within `reason`, `expected`, `got`, `cure` or `extra`.
    """
    with pytest.raises(kind) as caught:
        yield caught
    error: Any = caught.value
    assert what in ("", getattr(error, "what", None)), error
    assert isinstance(error, MissingExtraError) or error.cure.endswith("."), error.cure
    for name, words in fields.items():
        assert words in getattr(error, name), f"{name}: {getattr(error, name)}"
