"""The settings of a study's mechanism, as one frozen value that the table [mechanism] of its file holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from mooring.errors import InputError
from mooring.serialization import OpenRecord, read_entries
from mooring.tables.schema import Schema

TABLE_CURE = "Correct [mechanism] in the study's file."


class RosterEntry(Protocol):
    """What settings need to know of a participant."""

    @property
    def name(self) -> str:
        """Its name in the roster."""

    @property
    def holds_combining_key(self) -> bool:
        """Whether it has a combining key that its signing key has signed."""


class MechanismSettings(OpenRecord):
    """The settings of a mechanism.

    A mechanism from outside derives a frozen dataclass from this class and names itself in `name`; its fields are the
    entries of [mechanism].
    """

    kind_key: ClassVar[str] = "name"
    name: ClassVar[str] = ""
    remark: ClassVar[str] = ""
    """A comment above the entries in a study's file, each line beginning with '#'."""
    shows_labels: ClassVar[bool] = True
    """Whether the analyst sees the label of every row."""
    seals_anchor: ClassVar[bool] = False
    """Whether participants need a key to which an anchor is sealed."""
    takes_helpers: ClassVar[bool] = False
    """Whether a study may have helpers, members who combine and contribute no rows."""

    @classmethod
    def complete(cls, entries: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
        """Return the entries, completed by those that follow from a study's columns. Nothing is validated yet."""
        return dict(entries)

    def require_fit(self, schema: Schema, image_shape: Sequence[int]) -> None:
        """Raise an `InputError` for settings that do not fit a study's columns."""

    def require_limits(self, uploads: Sequence[str]) -> None:
        """Raise an `InputError` for limits on uploads that a study with these settings cannot have."""

    def list_combiners(self, roster: Sequence[str], helpers: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the names of participants and helpers whose combining keys the study uses."""
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
        """The settings class of a mechanism, by its name."""
        kind = cls._kinds.get(name) if isinstance(name, str) else None
        if kind is None or not issubclass(kind, MechanismSettings):
            expected, got = f"one of {', '.join(sorted(cls._kinds))}", "nothing" if name is None else "none of these"
            cure = "Correct [mechanism] in the study's file, or import the package that defines it."
            raise InputError("mechanism", expected=expected, got=got, cure=cure)
        return kind

    @classmethod
    def read(cls, entries: Mapping[str, Any], schema: Schema) -> MechanismSettings:
        """Read the entries of [mechanism] as the settings of the mechanism that they name."""
        kind = cls.get_kind(entries.get("name"))
        settings = {key: value for key, value in entries.items() if key != "name"}
        return read_entries(kind, kind.complete(settings, schema), what="mechanism", cure=TABLE_CURE)
