"""What a study of rotation declares: its method, noise, anchor and projection, and who makes the anchor."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from mooring.errors import InputError
from mooring.mechanisms.rotation.methods import Method, get_method
from mooring.mechanisms.settings import MechanismSettings, RosterEntry
from mooring.serialization import Count
from mooring.tables.schema import Schema

MOST_COMPONENTS = 10_000
MOST_ANCHOR_ROWS = 200_000
MOST_WEIGHT = 1e6
_MOST_NUMBERS = 2**28  # in the projection or the anchor: 2 GB
_DIGEST = re.compile(r"[0-9a-f]{64}")

ProjectionName = Literal["none", "gaussian", "public-svd"]


@dataclass(frozen=True)
class RotationSettings(MechanismSettings):
    """The entries of [mechanism] in the file of a study of rotation."""

    name: ClassVar[str] = "rotation"
    seals_anchor: ClassVar[bool] = True
    remark: ClassVar[str] = (
        "# data_noise_scale is the noise on each encoded number (-1 to 1) after map and projection have been undone.\n"
    )

    method: str
    """An anchor-aligned method of `mooring.METHODS`."""
    n_components: Count
    """h, the width of the rows that are shared."""
    n_anchor_rows: Count
    """r."""
    data_noise_scale: float = 0.0
    """σ: the noise that an encoded number (−1 to 1) carries once map and projection are undone."""
    anchor_noise_scale: float = 0.0
    """v."""
    projection: ProjectionName = "none"
    """The kind of projection. "gaussian" follows from the study's nonce; "public-svd" is in a file beside the study. The
    columns of each are orthonormal."""
    projection_digest: str = ""
    """SHA-256 digest of the file with the public SVD; empty for the other projections."""
    dealer: str = ""
    """Name of the participant that makes the anchor; if it is empty, the first participant of the roster does."""
    weight_limit: float = 3.0
    """Maximum number of rows of one participant that training uses, as a multiple of the median number of rows over all
    participants. From a participant with more rows, this maximum is drawn at random, so that nobody can dominate a model by
    uploading many rows."""

    def __post_init__(self) -> None:
        method = self.described
        if not method.uses_anchor:
            raise InputError(
                "method",
                expected="one that aligns by an anchor",
                got=repr(self.method),
                cure="Choose one of the aa-i-gdp methods. With a common map, every participant could undo the map of every "
                "other participant. Without an anchor, uploads cannot be aligned.",
            )
        for name, scale, used in (
            ("data_noise_scale", self.data_noise_scale, method.data_noise),
            ("anchor_noise_scale", self.anchor_noise_scale, method.anchor_noise),
        ):
            method.require_scale(name, scale, used=used)
            if used and scale == 0:
                cure = "The methods' names say which noise each has."
                raise InputError(name, expected=f"above 0 for {self.method}", got=str(scale), cure=cure)
        if not 1 <= self.weight_limit <= MOST_WEIGHT:
            expected, cure = (
                f"1 to {MOST_WEIGHT:g}",
                "3 is the default. With 1, training uses no more rows of a participant than the median.",
            )
            raise InputError("weight_limit", expected=expected, got=str(self.weight_limit), cure=cure)
        if not self.n_components + 1 <= self.n_anchor_rows <= MOST_ANCHOR_ROWS:
            expected, got = f"{self.n_components + 1} to {MOST_ANCHOR_ROWS}", str(self.n_anchor_rows)
            cure = "Four times the components is customary."
            raise InputError("n_anchor_rows", expected=expected, got=got, cure=cure)
        has_digest = _DIGEST.fullmatch(self.projection_digest) is not None
        if has_digest != (self.projection == "public-svd") or bool(self.projection_digest) != has_digest:
            raise InputError(
                "projection_digest",
                expected="given with a public-svd projection, and only then",
                got="given" if self.projection_digest else "none",
                cure="'mooring study project' makes the projection and writes its digest.",
            )

    @property
    def described(self) -> Method:
        """The method as data."""
        return get_method(self.method)

    @property
    def anchor_shape(self) -> tuple[int, int]:
        """The shape of the anchor, (r, h)."""
        return self.n_anchor_rows, self.n_components

    def as_dict(self) -> dict[str, Any]:
        """Return the entries in a fixed order, without an empty projection_digest or dealer."""
        return {key: value for key, value in super().as_dict().items() if value != ""}

    @classmethod
    def complete(cls, entries: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
        """Return the entries, with defaults for n_components and n_anchor_rows where these are left out.

        Without a projection, the default is one component per column of encoded rows. With a projection, n_components has no
        default. The default number of anchor rows is four per component.
        """
        filled = dict(entries)
        if filled.get("projection", "none") == "none":
            filled.setdefault("n_components", schema.n_features)
        if type(filled.get("n_components")) is int:
            filled.setdefault("n_anchor_rows", 4 * filled["n_components"])
        return filled

    def require_fit(self, schema: Schema, image_shape: Sequence[int]) -> None:
        """Raise an `InputError` for a number of components that does not fit the columns, or not into memory."""
        m, h = schema.n_features, self.n_components
        if not 1 <= h <= min(m, MOST_COMPONENTS):
            width = "the width of the encoded rows" if m <= MOST_COMPONENTS else "the maximum"
            expected, cure = f"1 to {min(m, MOST_COMPONENTS)}, {width}", "Correct n_components."
            raise InputError("n_components", expected=expected, got=str(h), cure=cure)
        if h * max(self.n_anchor_rows, m) > _MOST_NUMBERS:
            expected = f"at most {_MOST_NUMBERS // max(self.n_anchor_rows, m)} with so many anchor rows or columns"
            cure = "Lower n_components, together with n_anchor_rows."
            raise InputError("n_components", expected=expected, got=str(h), cure=cure)
        if self.projection == "none" and h != m:
            expected, cure = f"{m} without a projection", "Leave n_components out, or choose a projection."
            raise InputError("n_components", expected=expected, got=str(h), cure=cure)

    def require_roster(
        self,
        schema: Schema,
        image_shape: Sequence[int],
        roster: Sequence[RosterEntry],
        helpers: Sequence[RosterEntry] = (),
    ) -> None:
        """Raise an `InputError` if the dealer is not a participant of the roster."""
        if self.dealer and self.dealer not in {member.name for member in roster}:
            expected, cure = (
                "a participant of the roster",
                "Enrol the dealer's card with 'mooring study enrol', or name another dealer.",
            )
            raise InputError("dealer", expected=expected, got=repr(self.dealer), cure=cure)
