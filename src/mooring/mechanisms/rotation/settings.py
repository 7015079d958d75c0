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
    """The entries of [mechanism] in a study of rotation."""

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
    """A Gaussian projection follows from the study's nonce; a public SVD is in a file beside the study. Both have
    orthonormal columns."""
    projection_digest: str = ""
    """SHA-256 of that file."""
    dealer: str = ""
    """The participant that makes the anchor; the first of the roster where left out."""
    weight_limit: float = 3.0
    """Maximum number of rows of one participant that training uses, as a multiple of the median number over participants. If
    a participant has more, that many are drawn at random, so that nobody can dominate a model by uploading many rows."""

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
                "3 is the default; with 1, nobody has more than the median.",
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
        """(r, h)."""
        return self.n_anchor_rows, self.n_components

    def as_dict(self) -> dict[str, Any]:
        """The entries in a fixed order, without a digest or dealer that is empty."""
        return {key: value for key, value in super().as_dict().items() if value != ""}

    @classmethod
    def complete(cls, entries: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
        """Return the entries with defaults.

        Without a projection, there is one component per column of encoded rows. There are four anchor rows per component.
        """
        filled = dict(entries)
        if filled.get("projection", "none") == "none":
            filled.setdefault("n_components", schema.n_features)
        if type(filled.get("n_components")) is int:
            filled.setdefault("n_anchor_rows", 4 * filled["n_components"])
        return filled

    def require_fit(self, schema: Schema, image_shape: Sequence[int]) -> None:
        """Raise an `InputError` where there are more components than columns, or more than fit into memory."""
        m, h = schema.n_features, self.n_components
        if not 1 <= h <= min(m, MOST_COMPONENTS):
            expected = f"1 to {min(m, MOST_COMPONENTS)}, the width of the encoded rows"
            raise InputError("n_components", expected=expected, got=str(h), cure="A projection cannot add directions.")
        if h * max(self.n_anchor_rows, m) > _MOST_NUMBERS:
            expected = f"at most {_MOST_NUMBERS // max(self.n_anchor_rows, m)} with so many anchor rows or columns"
            cure = "Share fewer components, or make a shorter anchor."
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
        """Raise an `InputError` where the dealer is no participant."""
        if self.dealer and self.dealer not in {member.name for member in roster}:
            expected, cure = (
                "a participant of the roster",
                "Enrol its card with 'mooring study enrol', or name another.",
            )
            raise InputError("dealer", expected=expected, got=repr(self.dealer), cure=cure)
