"""A study: one readable, public file that every member holds and from which everything else follows."""

from __future__ import annotations

import hashlib
import json
import math
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from mooring.atomic_io import write_atomically
from mooring.errors import InputError, RefusedError, require_choice
from mooring.mechanisms.rotation import settings as _rotation  # noqa: F401  (studies may name this mechanism)
from mooring.mechanisms.settings import MechanismSettings
from mooring.mechanisms.sums import settings as _sums  # noqa: F401  (and this one)
from mooring.protocol.messages.card import CARD_CURE, Member, require_name, shorten_digest
from mooring.protocol.messages.study_file import FORMAT, RangeSource, read_plain, require_size, study_entries
from mooring.protocol.messages.study_text import render_study
from mooring.tables.schema import Column, Label, Schema, find_repeated

_DECLARED = RangeSource()


@dataclass(frozen=True)
class Study:
    """What everybody agrees on before anything is shared.

    Attributes
    ----------
    name, nonce : str
        The nonce makes two studies of one name different.
    mechanism : MechanismSettings
        What leaves, and how: `RotationSettings`, `SumSettings`, or those of a mechanism from outside.
    participants, helpers : tuple of Member
        Who contributes rows, and who combines secure sums without contributing any.
    missing_words : tuple of str
        What stands for a missing value besides "?", "NA", "NaN", "null" and an empty cell.
    ids : tuple of str
        Columns that name rows. They are never uploaded and never features; they are written beside predictions.
    smallest_class : int
        A participant that has some rows of a class, but fewer than this number, does not share: such rows stand out.
    image_shape : tuple of int
        Shape of the image in every row; empty if rows are not images.
    upload_limits : tuple of str
        What attacks on an upload may find, such as "linkage at most 20 %". `mooring check` tests this, and
        `mooring share` enforces it.
    model_limit : str
        What an attacker may learn about the rows behind the model, such as "membership at most 5 %". `mooring deliver`
        enforces it.
    range_source : RangeSource
        Which ranges and categories come from sites' rows, and who confirms that they are public.
    """

    name: str
    nonce: str
    columns: tuple[Column, ...]
    label: Label
    mechanism: MechanismSettings
    missing_words: tuple[str, ...] = ()
    smallest_class: int = 3
    image_shape: tuple[int, ...] = ()
    participants: tuple[Member, ...] = ()
    helpers: tuple[Member, ...] = ()
    analyst: Member | None = None
    ids: tuple[str, ...] = ()
    upload_limits: tuple[str, ...] = ()
    model_limit: str = ""
    range_source: RangeSource = _DECLARED
    folder: Path | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_name("name of the study", self.name)
        if not re.fullmatch(r"[0-9a-f]{32}", self.nonce):
            raise InputError(
                "nonce",
                expected="32 hexadecimal digits",
                got=f"{len(self.nonce)} characters",
                cure="'mooring study init' draws one.",
            )
        self._check_columns()
        self.mechanism.require_fit(self.schema, self.image_shape)
        self.mechanism.require_limits(self.upload_limits)
        self._check_roster()

    @property
    def schema(self) -> Schema:
        """The columns, label and missing words of the rows, which determine their encoding."""
        return Schema(self.columns, self.label, self.missing_words, self.ids)

    @cached_property
    def n_features(self) -> int:
        """Width of the encoded rows."""
        return self.schema.n_features

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of the encoded matrix."""
        return self.schema.feature_names

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything the study declares, including the roster, but not of comments and layout."""
        plain = json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(b"mooring study\n" + plain.encode()).hexdigest()

    @property
    def fingerprint(self) -> str:
        """The digest in short, to be compared by telephone: seven groups of four letters and digits."""
        return shorten_digest(self.digest)

    @property
    def folder_name(self) -> str:
        """Name of the study's folder in a vault. It changes with the roster."""
        return f"{self.name}-{self.digest[:16]}"

    def member(self, name: str) -> Member:
        """Return the participant or helper called `name`; refuse other names."""
        known = self._by_name or ("the roster, which is empty",)
        require_choice("participant", name, known, cure="Enrol its card with 'mooring study enrol'.")
        return self._by_name[name]

    def member_with_key(self, signing_key: str) -> Member | None:
        """Return the participant that signs with this key; None if there is none."""
        return self._by_key.get(signing_key)

    def helper_with_key(self, signing_key: str) -> Member | None:
        """Return the helper that signs with this key; None if there is none."""
        return next((helper for helper in self.helpers if helper.signing_key == signing_key), None)

    @property
    def analysts_key(self) -> str:
        """The analyst's signing key; a study without a complete roster is refused."""
        self.require_roster()
        return self.analyst.signing_key if self.analyst else ""

    def require_signer(self, fields: Mapping[str, object], *, what: str) -> Member:
        """Return the participant that signed a file of this study; refuse other signers and files of other studies."""
        member = self.member_with_key(str(fields["signer"]))
        if member is None:
            reason = "its signer is not in the study's roster"
            raise RefusedError(what, reason=reason, cure="Only enrolled participants count.")
        self.require_same(fields, what=what)
        return member

    @cached_property
    def _by_name(self) -> dict[str, Member]:
        return {member.name: member for member in (*self.participants, *self.helpers)}

    @property
    def members(self) -> tuple[Member, ...]:
        """Participants, helpers and the analyst, if there is one."""
        return (*self.participants, *self.helpers, *([self.analyst] if self.analyst else []))

    @cached_property
    def _by_key(self) -> dict[str, Member]:
        return {member.signing_key: member for member in self.participants}

    @property
    def is_complete(self) -> bool:
        """Whether there are two participants or more, and an analyst."""
        return len(self.participants) >= 2 and self.analyst is not None

    def require_roster(self) -> None:
        """Raise an `InputError` unless the roster has two participants or more and an analyst."""
        if not self.is_complete:
            raise InputError(
                "study",
                expected="one with two participants or more and an analyst",
                got=f"participants: {len(self.participants)}, analyst: {'none' if self.analyst is None else 'one'}",
                cure="Collect the cards that 'mooring join' writes and run 'mooring study enrol'.",
            )

    def require_same(self, fields: Mapping[str, object], *, what: str) -> None:
        """Raise a `RefusedError` unless a file's fields have this study's digest and, if they have a nonce, its nonce."""
        if fields.get("study") != self.digest or fields.get("nonce", self.nonce) != self.nonce:
            raise RefusedError(
                what,
                reason="it was made for another study, or for this study with another roster or other settings",
                cure="Compare fingerprints with the others: 'mooring study show' prints them.",
            )

    def with_members(
        self, participants: Sequence[Member] = (), analyst: Member | None = None, helpers: Sequence[Member] = ()
    ) -> Study:
        """Return the study with further members; refuse a second analyst, and a different card of an enrolled member."""
        known, helping = _by_names(self.participants, participants), _by_names(self.helpers, helpers)
        if analyst is not None and self.analyst not in (None, analyst):
            problem = "The roster already has an analyst, and a study has only one."
            raise InputError("roster", problem=problem, cure="Take one of the two out.")
        return replace(self, participants=known, helpers=helping, analyst=analyst or self.analyst)

    def as_dict(self) -> dict[str, Any]:
        """Return everything the study declares, as plain values in a fixed order."""
        rows: dict[str, Any] = {"missing_words": list(self.missing_words), "smallest_class": self.smallest_class}
        rows |= {"ids": list(self.ids)} if self.ids else {}
        rows |= {"image_shape": list(self.image_shape)} if self.image_shape else {}
        plain = {
            "format": FORMAT,
            "name": self.name,
            "nonce": self.nonce,
            "mechanism": self.mechanism.as_dict(),
            "rows": rows,
            "label": self.label.as_dict(),
            "columns": [column.as_dict() for column in self.columns],
            "participants": [member.as_dict() for member in self.participants],
        }
        if self.helpers:
            plain["helpers"] = [member.as_dict() for member in self.helpers]
        if self.upload_limits or self.model_limit:
            plain["limits"] = {"uploads": list(self.upload_limits), "model": self.model_limit}
        if self.range_source.from_rows:
            plain["ranges"] = {"from_rows": list(self.range_source.from_rows), "confirmed": self.range_source.confirmed}
        if self.analyst is not None:
            plain["analyst"] = self.analyst.as_dict()
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], *, folder: Path | None = None) -> Study:
        """Return the study with these values, which `as_dict` returned or a study's file holds."""
        return cls(**study_entries(plain), folder=folder)

    @classmethod
    def read(cls, path: str | Path) -> Study:
        """Read and validate a study's file. An unknown entry is an error, because it may be misspelt."""
        return cls.from_dict(read_plain(Path(path)), folder=Path(path).parent)

    def write(self, path: str | Path) -> None:
        """Write the study as a commented TOML file, atomically; a study that could not be read back is refused."""
        text = render_study(self.as_dict())
        require_size(text)
        write_atomically(Path(path), text.encode(), what="the study's file")

    def _check_columns(self) -> None:
        self.schema.require_declared()
        if self.image_shape and math.prod(self.image_shape) != self.n_features:
            expected, got = f"of {self.n_features} pixels, as many as columns", "x".join(map(str, self.image_shape))
            raise InputError("image_shape", expected=expected, got=got, cure="Correct it, or leave it out.")
        unknown = {*self.range_source.from_rows} - {self.label.column, *(column.name for column in self.columns)}
        if unknown:
            problem = f"[ranges] names columns that the study does not have: {', '.join(sorted(unknown)[:10])}."
            raise InputError("ranges", problem=problem, cure="Take them out of from_rows.")
        if self.smallest_class < 1:
            raise InputError("smallest_class", expected="1 or more", got=str(self.smallest_class), cure="3 is usual.")

    def _check_roster(self) -> None:
        for what, values in (
            ("names", [member.name for member in self.members]),
            ("signing keys", [member.signing_key for member in self.members]),
            ("sealing keys", [member.sealing_key for member in self.members]),
            ("combining keys", [member.combining_key for member in self.members]),
        ):
            if twice := find_repeated([value for value in values if value]):
                names = " and ".join(
                    repr(member.name) for member, value in zip(self.members, values, strict=True) if value == twice
                )
                cure = "Take one of them out. Whoever joins in two roles needs a folder and a vault for each."
                raise InputError("roster", problem=f"The {what} of {names} in the roster are the same.", cure=cure)
        for member in self.members:
            needs_key = self.mechanism.seals_anchor and member in self.participants
            if (needs_key or member.sealing_key) and not member.holds_sealing_key:
                problem = f"The member {member.name!r} has no sealing key that is signed with its signing key."
                raise InputError("roster", problem=problem, cure=CARD_CURE)
        if self.helpers and not self.mechanism.takes_helpers:
            problem = f"Studies of {self.mechanism.name} have no helpers, and the roster has {len(self.helpers)}."
            raise InputError("roster", problem=problem, cure="Take them out: helpers combine secure sums.")
        if self.is_complete:
            self.mechanism.require_roster(self.schema, self.image_shape, self.participants, self.helpers)


def _by_names(members: Sequence[Member], further: Sequence[Member]) -> tuple[Member, ...]:
    """Return the members of a role together with further members, each name once."""
    known = {member.name: member for member in members}
    for member in further:
        if known.setdefault(member.name, member) != member:
            got = f"two different cards of {member.name!r}"
            raise InputError("roster", expected="one card per name", got=got, cure="Ask which is the right one.")
    return tuple(known.values())


def draw_nonce() -> str:
    """Draw a study's nonce from the system's entropy."""
    return secrets.token_hex(16)
