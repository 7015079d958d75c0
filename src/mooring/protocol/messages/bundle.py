"""What every mechanism's bundle has: who signed it, its digest, and its file."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from mooring.protocol.messages.card import Member

SUFFIX = ".bundle"


class Bundle(Protocol):
    """A participant's upload that was verified."""

    @property
    def member(self) -> Member:
        """Who signed it."""

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None if the upload does not state it."""
