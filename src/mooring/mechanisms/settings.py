"""The settings of a study's mechanism: one frozen value, which the table [mechanism] of the study's file holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from mooring.errors import InputError
from mooring.serialization import OpenRecord, read_entries
from mooring.tables.schema import Schema

TABLE_CURE = "Correct [mechanism] in the study's file."


class RosterEntry(Protocol):
    """What settings need to know of a member, who is a participant or a helper."""

    @property
    def name(self) -> str:
        """The member's name in the roster."""

    @property
    def holds_combining_key(self) -> bool:
        """Whether the member has a combining key that is signed with the member's signing key."""


class MechanismSettings(OpenRecord):
    """The settings of a mechanism.

    A mechanism of another package derives a frozen dataclass from this class and sets `name` to the mechanism's name. The
    fields of the dataclass are the entries of [mechanism].
    """

    kind_key: ClassVar[str] = "name"
    name: ClassVar[str] = ""
    remark: ClassVar[str] = ""
    """A comment above the entries in a study's file, each line beginning with '#'."""
    shows_labels: ClassVar[bool] = True
    """Whether the analyst sees the label of every row."""
    seals_anchor: ClassVar[bool] = False
    """Whether each participant needs a key to which the dealer seals the anchor."""
    takes_helpers: ClassVar[bool] = False
    """Whether a study may have helpers, who are members that combine and contribute no rows."""

    @classmethod
    def complete(cls, entries: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
        """Return the entries and those that follow from a study's columns; by default none do. Nothing is validated yet."""
        return dict(entries)

    def require_fit(self, schema: Schema, image_shape: Sequence[int]) -> None:
        """Raise an `InputError` for settings that do not fit a study's columns."""

    def require_limits(self, uploads: Sequence[str]) -> None:
        """Raise an `InputError` for limits on uploads that a study with these settings cannot have."""

    def list_combiners(self, roster: Sequence[str], helpers: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the names of the participants and helpers whose combining keys the study uses; by default none."""
        return ()

    def require_roster(
        self,
        schema: Schema,
        image_shape: Sequence[int],
        roster: Sequence[RosterEntry],
        helpers: Sequence[RosterEntry] = (),
    ) -> None:
        """Raise an `InputError` for settings that do not fit the participants and helpers of a complete study."""

    @classmethod
    def get_kind(cls, name: object) -> type[MechanismSettings]:
        """Return the settings class of the mechanism with this name, or raise an `InputError`."""
        kind = cls._kinds.get(name) if isinstance(name, str) else None
        if kind is None or not issubclass(kind, MechanismSettings):
            expected, got = f"one of {', '.join(sorted(cls._kinds))}", "nothing" if name is None else "none of these"
            cure = "Correct [mechanism] in the study's file, or import the package that defines it."
            raise InputError("mechanism", expected=expected, got=got, cure=cure)
        return kind

    @classmethod
    def read(cls, entries: Mapping[str, Any], schema: Schema) -> MechanismSettings:
        """Return the entries of [mechanism] as settings of the mechanism that is named in the entries."""
        kind = cls.get_kind(entries.get("name"))
        settings = {key: value for key, value in entries.items() if key != "name"}
        return read_entries(kind, kind.complete(settings, schema), what="mechanism", cure=TABLE_CURE)
