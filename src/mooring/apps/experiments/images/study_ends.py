"""What an image study is given to work with: where rows go, and how it tells where it is."""

from __future__ import annotations

from typing import Any, Protocol

Row = dict[str, Any]
"""One row of the result table."""


class Progress(Protocol):
    """How a study tells where it is."""

    def stage(self, name: str, total: int) -> None:
        """A stage begins; it has so many steps."""

    def advance(self, n: int = 1) -> None:
        """So many steps of the stage are done."""


class Store(Protocol):
    """Where a study's rows go, and which of them are there."""

    def append(self, rows: list[Row]) -> None:
        """Keep rows for good."""

    def done(self, **identity: Any) -> set[int]:
        """Draws that are there."""

    def keep(self, name: str, value: Any) -> None:
        """Keep a named artefact."""
