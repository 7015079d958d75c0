"""A study: one readable, public file that everybody who takes part holds, and that everything else follows from."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from mooring.atomic_io import write_atomically
from mooring.errors import InputError, RefusedError, require_choice
from mooring.mechanisms.rotation.methods import Method, get_method
from mooring.mechanisms.sums.settings import (
    SECURE_SUM,
    SumScheme,
    SumSettings,
    make_features,
    make_layout,
    make_scheme,
)
from mooring.protocol.messages.card import CARD_CURE, HEX_KEY, Member, require_name
from mooring.protocol.messages.study_file import FORMAT, read_plain, render_study, require_size, study_entries
from mooring.tables.schema import Column, Label, Schema, find_repeated

_MOST_COMPONENTS = 10_000
_MOST_ANCHOR_ROWS = 200_000
_MOST_NUMBERS = 2**28  # in the projection or the anchor: 2 GB

ProjectionName = Literal["none", "gaussian", "public-svd"]


@dataclass(frozen=True)
class Study:
    """What everybody agrees on before anything is shared.

    Attributes
    ----------
    name, nonce : str
        The nonce makes two studies of one name different.
    method : str
        An anchor-aligned method of `mooring.METHODS`, or "secure-sum".
    n_components, n_anchor_rows : int
        Of secure sums, the width of the encoded rows and 0.
    data_noise_scale, anchor_noise_scale : float
        σ and v; σ is the noise of an encoded number, which lies between −1 and 1, once map and projection are undone.
    projection : {"none", "gaussian", "public-svd"}
        A Gaussian one follows from the nonce; a public SVD lies in a file beside the study. Both have orthonormal columns.
    projection_digest : str
        SHA-256 of that file.
    missing_words : tuple of str
        What stands for a missing value besides "?", "NA", "NaN", "null" and nothing at all.
    ids : tuple of str
        Columns that name rows: they stay at home, are never features, and come back beside predictions.
    smallest_class : int
        A participant with fewer rows of a class (but some) does not share: such rows stand out.
    image_shape : tuple of int
        If rows are images, for pictures; else empty.
    sums : SumSettings or None
        Of secure sums.
    upload_limits : tuple of str
        What attacks on an upload may find, such as "linkage at most 20 %": `mooring check` holds to them.
    model_limit : str
        What may be told of the rows behind the model, such as "membership at most 5 %": `mooring deliver` holds to it.
    dealer : str
        The participant that deals the anchor; the first of the roster where left out.
    format : {1, 2}
        In format 1 noise has too few bits and its scale depends on the projection: bundles that were made are still
        aligned, delivered and used, and no more are made.
    """

    name: str
    nonce: str
    columns: tuple[Column, ...]
    label: Label
    method: str
    n_components: int
    n_anchor_rows: int
    data_noise_scale: float = 0.0
    anchor_noise_scale: float = 0.0
    projection: ProjectionName = "none"
    projection_digest: str = ""
    missing_words: tuple[str, ...] = ()
    smallest_class: int = 3
    image_shape: tuple[int, ...] = ()
    participants: tuple[Member, ...] = ()
    analyst: Member | None = None
    dealer: str = ""
    sums: SumSettings | None = None
    ids: tuple[str, ...] = ()
    upload_limits: tuple[str, ...] = ()
    model_limit: str = ""
    format: int = FORMAT
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
        self._check_method()
        self._check_roster()

    @property
    def schema(self) -> Schema:
        """What every row holds: all that encoding it needs."""
        return Schema(self.columns, self.label, self.missing_words, self.ids)

    @cached_property
    def n_features(self) -> int:
        """Width of the encoded rows."""
        return self.schema.n_features

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of the encoded matrix."""
        return self.schema.feature_names

    @property
    def method_described(self) -> Method:
        """The method as data; not of secure sums, which have neither map nor anchor."""
        return get_method(self.method)

    @property
    def mechanism_name(self) -> str:
        """The name of the mechanism."""
        return "rotation" if self.sums is None else SECURE_SUM

    @property
    def sum_settings(self) -> SumSettings:
        """The settings of secure sums; a study of another mechanism is refused."""
        if self.sums is None:
            got = f"one of the method {self.method}"
            raise InputError("study", expected="one of secure sums", got=got, cure="Check --study.")
        return self.sums

    @cached_property
    def sum_scheme(self) -> SumScheme:
        """What the settings of secure sums mean for these columns and this roster."""
        settings = self.sum_settings
        self.require_roster()
        features = make_features(settings, self.schema, self.image_shape)
        layout = make_layout(settings, self.schema, features)
        return make_scheme(settings, layout, features, [member.name for member in self.participants])

    def require_rows(self) -> None:
        """Refuse a study of secure sums, where a step needs everybody's rows."""
        if self.sums is not None:
            raise InputError(
                "study",
                expected="one that shares rows",
                got="one of secure sums, in which there is no anchor, no map and no matrix of rows",
                cure="Its steps are share, align, combine, train, deliver and predict.",
            )

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything the study says, roster included; comments and layout do not matter."""
        plain = json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(b"mooring study\n" + plain.encode()).hexdigest()

    @property
    def fingerprint(self) -> str:
        """The digest in short, to be compared by telephone: seven groups of four letters and digits."""
        short = base64.b32encode(bytes.fromhex(self.digest))[:28].decode().lower()
        return "-".join(short[k : k + 4] for k in range(0, 28, 4))

    @property
    def folder_name(self) -> str:
        """What a vault calls its folder for this study; another roster is another study."""
        return f"{self.name}-{self.digest[:16]}"

    def member(self, name: str) -> Member:
        """The participant called `name`."""
        known = self._by_name or ("the roster, which is empty",)
        require_choice("participant", name, known, cure="Enrol its card with 'mooring study enrol'.")
        return self._by_name[name]

    def member_with_key(self, signing_key: str) -> Member | None:
        """The participant that signs with this key, if there is one."""
        return self._by_key.get(signing_key)

    @property
    def analysts_key(self) -> str:
        """The analyst's signing key; a study without a roster is refused."""
        self.require_roster()
        return self.analyst.signing_key if self.analyst else ""

    def require_signer(self, fields: Mapping[str, object], *, what: str) -> Member:
        """The participant that signed something of this study; what is anybody else's, or of another study, is refused."""
        member = self.member_with_key(str(fields["signer"]))
        if member is None:
            reason = "whoever signed it is not in the study's roster"
            raise RefusedError(what, reason=reason, cure="Only enrolled participants count.")
        self.require_same(fields, what=what)
        return member

    @cached_property
    def _by_name(self) -> dict[str, Member]:
        return {member.name: member for member in self.participants}

    @cached_property
    def _by_key(self) -> dict[str, Member]:
        return {member.signing_key: member for member in self.participants}

    @property
    def dealing_member(self) -> Member:
        """Who deals the anchor."""
        self.require_roster()
        return self.member(self.dealer) if self.dealer else self.participants[0]

    @property
    def is_complete(self) -> bool:
        """Whether there are two participants or more, and an analyst."""
        return len(self.participants) >= 2 and self.analyst is not None

    def require_roster(self) -> None:
        """Refuse a draft: nobody can share in a study that nobody takes part in."""
        if not self.is_complete:
            raise InputError(
                "study",
                expected="one with two participants or more and an analyst",
                got=f"participants: {len(self.participants)}, analyst: {'none' if self.analyst is None else 'one'}",
                cure="Collect the cards that 'mooring join' writes and run 'mooring study enrol'.",
            )

    def require_same(self, fields: Mapping[str, object], *, what: str) -> None:
        """Refuse something whose fields name another study, by its digest and, where there is one, its nonce."""
        if fields.get("study") != self.digest or fields.get("nonce", self.nonce) != self.nonce:
            raise RefusedError(
                what,
                reason="it was made for another study, another roster, or another version of this one",
                cure="Compare fingerprints with the others: 'mooring study show' prints them.",
            )

    def with_members(self, participants: Sequence[Member] = (), analyst: Member | None = None) -> Study:
        """The same study with further members; a member that is enrolled already is left as it is."""
        known = {member.name: member for member in self.participants}
        for member in participants:
            if known.setdefault(member.name, member) != member:
                got = f"two different cards of {member.name!r}"
                raise InputError("roster", expected="one card a name", got=got, cure="Ask which is the right one.")
        if analyst is not None and self.analyst not in (None, analyst):
            raise InputError("roster", expected="one analyst", got="two", cure="Take one out of the study.")
        return replace(self, participants=tuple(known.values()), analyst=analyst or self.analyst)

    def as_dict(self) -> dict[str, Any]:
        """Everything the study says, in plain values and a fixed order."""
        method: dict[str, Any] = (
            self.sums.as_dict()
            if self.sums is not None
            else {
                "name": self.method,
                "components": self.n_components,
                "anchor_rows": self.n_anchor_rows,
                "data_noise_scale": float(self.data_noise_scale),
                "anchor_noise_scale": float(self.anchor_noise_scale),
                "projection": self.projection,
            }
        )
        if self.projection_digest:
            method["projection_digest"] = self.projection_digest
        rows: dict[str, Any] = {"missing_words": list(self.missing_words), "smallest_class": self.smallest_class}
        rows |= {"ids": list(self.ids)} if self.ids else {}
        rows |= {"image_shape": list(self.image_shape)} if self.image_shape else {}
        plain = {
            "format": self.format,
            "name": self.name,
            "nonce": self.nonce,
            "method": method,
            "rows": rows,
            "label": self.label.as_dict(),
            "columns": [column.as_dict() for column in self.columns],
            "participants": [member.as_dict() for member in self.participants],
        }
        if self.upload_limits or self.model_limit:
            plain["limits"] = {"uploads": list(self.upload_limits), "model": self.model_limit}
        if self.dealer:
            plain["dealer"] = self.dealer
        if self.analyst is not None:
            plain["analyst"] = self.analyst.as_dict()
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], *, folder: Path | None = None) -> Study:
        """Read what `as_dict` gave, or the tables of a study's file."""
        return cls(**study_entries(plain), folder=folder)

    @classmethod
    def read(cls, path: str | Path) -> Study:
        """Read a study's file.

        Everything is checked; an entry that has no meaning is an error, since it may be a misspelt one that has.
        """
        return cls.from_dict(read_plain(Path(path)), folder=Path(path).parent)

    def write(self, path: str | Path) -> None:
        """Write the study as a commented TOML file, atomically; one that could not be read back is refused."""
        text = render_study(self.as_dict())
        require_size(text)
        write_atomically(Path(path), text.encode(), what="the study's file")

    def _check_columns(self) -> None:
        self.schema.require_declared()
        if self.image_shape and math.prod(self.image_shape) != self.n_features:
            expected, got = f"of {self.n_features} pixels, as many as columns", "x".join(map(str, self.image_shape))
            raise InputError("image_shape", expected=expected, got=got, cure="Correct it, or leave it out.")
        if self.smallest_class < 1:
            raise InputError("smallest_class", expected="1 or more", got=str(self.smallest_class), cure="3 is usual.")

    def _check_sums(self, settings: SumSettings) -> None:
        if self.format == 1 or self.n_anchor_rows or self.projection != "none" or self.dealer:
            problem = "Secure sums use no anchor, projection or dealer, and need a study of the current format."
            raise InputError("method", problem=problem, cure="Remove these settings from the study.")
        make_layout(settings, self.schema, make_features(settings, self.schema, self.image_shape))
        if len(self.participants) > 1:  # one by one they are enrolled
            scheme = self.sum_scheme if self.analyst is not None else None
            lacking = [name for name in scheme.combiners if not self.member(name).holds_combining_key] if scheme else []
            if lacking:
                problem = f"The combiner {lacking[0]!r} has no combining key that it signed."
                raise InputError("roster", problem=problem, cure=CARD_CURE)

    def _check_method(self) -> None:
        if (self.method == SECURE_SUM) != (self.sums is not None):
            problem = "[method] of secure-sum lacks its settings."
            if self.sums is not None:
                problem = f"[method] has settings of secure-sum, and its name is {self.method!r}."
            raise InputError("method", problem=problem, cure="Correct [method].")
        if self.sums is not None:
            self._check_sums(self.sums)
            return
        method = self.method_described
        if not method.uses_anchor:
            raise InputError(
                "method",
                expected="one that aligns by an anchor",
                got=repr(self.method),
                cure="With a common transform every participant could undo every other's; without an anchor nothing can "
                "be aligned. Choose among the aa-i-gdp methods.",
            )
        for name, scale, used in (
            ("data_noise_scale", self.data_noise_scale, method.data_noise),
            ("anchor_noise_scale", self.anchor_noise_scale, method.anchor_noise),
        ):
            method.require_scale(name, scale, used=used)
            if used and scale == 0:
                cure = "The methods' names say which noise each has."
                raise InputError(name, expected=f"above 0 for {self.method}", got=str(scale), cure=cure)
        m = self.n_features
        if not 1 <= self.n_components <= min(m, _MOST_COMPONENTS):
            expected, got = f"1 to {min(m, _MOST_COMPONENTS)}, the width of the encoded rows", str(self.n_components)
            raise InputError("components", expected=expected, got=got, cure="A projection cannot add directions.")
        if not self.n_components + 1 <= self.n_anchor_rows <= _MOST_ANCHOR_ROWS:
            expected, got = f"{self.n_components + 1} to {_MOST_ANCHOR_ROWS}", str(self.n_anchor_rows)
            raise InputError("anchor_rows", expected=expected, got=got, cure="Four times the components is customary.")
        if self.n_components * max(self.n_anchor_rows, m) > _MOST_NUMBERS:
            raise InputError(
                "components",
                expected=f"at most {_MOST_NUMBERS // max(self.n_anchor_rows, m)} with so many anchor rows or columns",
                got=str(self.n_components),
                cure="Share fewer components, or deal a shorter anchor.",
            )
        self._check_projection()

    def _check_projection(self) -> None:
        m = self.n_features
        require_choice("projection", self.projection, ("none", "gaussian", "public-svd"), cure="Correct it.")
        if self.projection == "none" and self.n_components != m:
            raise InputError(
                "components", expected=f"{m} without a projection", got=str(self.n_components), cure="Or choose one."
            )
        has_digest = bool(HEX_KEY.fullmatch(self.projection_digest))
        if has_digest != (self.projection == "public-svd") or bool(self.projection_digest) != has_digest:
            raise InputError(
                "projection_digest",
                expected="given with a public-svd projection, and only then",
                got="given" if self.projection_digest else "none",
                cure="'mooring study project' makes the projection and writes its digest.",
            )

    def _check_roster(self) -> None:
        everybody = [*self.participants, *([self.analyst] if self.analyst else [])]
        for what, values in (
            ("names", [member.name for member in everybody]),
            ("signing keys", [member.signing_key for member in everybody]),
            ("sealing keys", [member.sealing_key for member in everybody]),
            ("combining keys", [member.combining_key for member in everybody]),
        ):
            if twice := find_repeated([value for value in values if value]):
                names = " and ".join(
                    repr(one.name) for one, value in zip(everybody, values, strict=True) if value == twice
                )
                cure = "Take one out; who joins in two roles needs a folder and a vault for each."
                raise InputError("roster", expected=f"different {what}", got=f"those of {names} alike", cure=cure)
        if any(not member.sealing_key for member in self.participants):
            raise InputError("roster", expected="a sealing key a participant", got="one without", cure=CARD_CURE)
        if self.format > 1 and (other := [one.name for one in self.participants if not one.holds_sealing_key]):
            expected = "sealing keys that are the other form of their signing keys"
            raise InputError("roster", expected=expected, got=f"another key for {other[0]}", cure=CARD_CURE)
        if self.dealer and self.participants:
            self.member(self.dealer)


def draw_nonce() -> str:
    """Draw a study's nonce from the system's entropy."""
    return secrets.token_hex(16)
