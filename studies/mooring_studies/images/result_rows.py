"""What an image study is given to work with: the rows of the result and where they go."""

from __future__ import annotations

from typing import Any, Protocol

Row = dict[str, Any]
"""One row of the result table."""


class Store(Protocol):
    """Where a study's rows go, and which of them are there."""

    def append(self, rows: list[Row]) -> None:
        """Keep rows for good."""

    def done(self, **identity: Any) -> set[int]:
        """Draws that are there."""

    def keep(self, name: str, value: Any) -> None:
        """Keep a named artefact."""
