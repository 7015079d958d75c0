"""The function with which contract suites check a requirement and say in a sentence what is wrong."""

from __future__ import annotations


def require(is_met: object, problem: str) -> None:
    """Raise AssertionError with this sentence unless the requirement is met, even if Python skips assert statements."""
    if not is_met:
        raise AssertionError(problem)
