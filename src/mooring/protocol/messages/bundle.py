"""What every mechanism's bundle has: its signer, its file, the file's digest and, if it states it, its number of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from mooring.protocol.messages.card import Member

SUFFIX = ".bundle"


class Bundle(Protocol):
    """A participant's upload that was verified."""

    @property
    def member(self) -> Member:
        """The participant that signed the bundle."""

    @property
    def digest(self) -> str:
        """SHA-256 of the bundle's file."""

    @property
    def path(self) -> Path:
        """The bundle's file."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None if the bundle does not state it."""
