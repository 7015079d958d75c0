"""Members of a study by name and public keys, and the card that each member sends to the study's designer."""

from __future__ import annotations

import base64
import hashlib
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from mooring.atomic_io import read_bounded, write_atomically
from mooring.errors import InputError, RefusedError
from mooring.protocol.crypto.keys import SigningKey, is_sealing_key, verify
from mooring.serialization import Count, Record, read_entries

CARD_CURE = "Use the card that 'mooring join' wrote."
Role = Literal["participant", "helper", "analyst"]
Purpose = Literal["sealing", "combining"]
MEMBER_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
RESERVED_NAME = "everybody"
"""Stands for all members where files are exchanged; no member has this name."""
_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", *(f"{port}{k}" for port in ("com", "lpt") for k in range(10))}
)  # Windows
HEX_KEY = re.compile(r"[0-9a-f]{64}")
_MOST_BYTES = 2**16
_FORMAT = 1
_SIGNATURE = re.compile(r"[0-9a-f]{128}")


@dataclass(frozen=True)
class Member(Record):
    """A member of a study, by its public keys."""

    name: str
    signing_key: str
    """Ed25519, in hexadecimal."""
    sealing_key: str = ""
    """The key that files for this member are sealed to (HPKE), in base64; helpers need none."""
    sealing_proof: str = ""
    """The signing key's signature of the sealing key, in hexadecimal. The study's roster has it, so that the designer cannot
    enter a different sealing key and open what is sealed to others."""
    combining_key: str = ""
    """The key that shares of secure sums are sealed to in one study (HPKE), in base64; empty without one. Its private half
    is destroyed once the shares are combined."""
    combining_proof: str = ""
    """The signing key's signature of the combining key, in hexadecimal."""

    def __post_init__(self) -> None:
        require_name("name of a member", self.name)
        if not HEX_KEY.fullmatch(self.signing_key):
            problem = f"The signing key of {self.name!r} does not have 64 hexadecimal digits."
            raise _not_on_a_card(f"signing key of {self.name!r}", problem)
        keys = {
            "sealing": (self.sealing_key, self.sealing_proof),
            "combining": (self.combining_key, self.combining_proof),
        }
        for purpose, (key, proof) in keys.items():
            if key and not is_sealing_key(key):
                problem = f"The {purpose} key of {self.name!r} is not a key that something can be sealed to."
                raise _not_on_a_card(f"{purpose} key of {self.name!r}", problem)
            if proof and not _SIGNATURE.fullmatch(proof):
                problem = f"The proof of the {purpose} key of {self.name!r} does not have 128 hexadecimal digits."
                raise _not_on_a_card(f"proof of the {purpose} key of {self.name!r}", problem)

    @property
    def holds_sealing_key(self) -> bool:
        """Whether there is a sealing key that the signing key has signed."""
        return self._signed("sealing", self.sealing_key, self.sealing_proof)

    @property
    def holds_combining_key(self) -> bool:
        """Whether there is a combining key that the signing key has signed."""
        return self._signed("combining", self.combining_key, self.combining_proof)

    def _signed(self, purpose: Purpose, key: str, proof: str) -> bool:
        return bool(key) and verify(self.signing_key, bytes.fromhex(proof), proof_text(purpose, key))

    def as_dict(self) -> dict[str, Any]:
        """Return the fields in a fixed order; empty fields are left out."""
        return {name: value for name, value in super().as_dict().items() if value}


@dataclass(frozen=True)
class _Card(Record):
    """A card's file."""

    format: Count
    role: Role
    name: str
    signing_key: str
    proof: str
    sealing_key: str = ""
    sealing_proof: str = ""
    combining_keys: tuple[tuple[str, str], ...] = ()
    """Combining keys that no study has used yet, each with its proof."""

    @property
    def member(self) -> Member:
        """The owner of the card, with its first combining key."""
        first = self.combining_keys[0] if self.combining_keys else ("", "")
        return Member(self.name, self.signing_key, self.sealing_key, self.sealing_proof, *first)

    def write(self, path: Path) -> None:
        """Write the card's file; no value has a character that TOML escapes."""
        keys = ("name", "signing_key", *(["sealing_key", "sealing_proof"] if self.sealing_key else []), "proof")
        lines = [
            "# A card of mooring: public keys. The proofs are signatures by the signing key.",
            "# A study of secure sums uses one of the combining keys, which is then taken out.",
            f"format = {self.format}",
            f'role = "{self.role}"',
            *(f'{key} = "{getattr(self, key)}"' for key in keys),
            "combining_keys = [",
            *(f'    ["{key}", "{proof}"],' for key, proof in self.combining_keys),
            "]",
        ]
        write_atomically(path, ("\n".join(lines) + "\n").encode(), what="the card")


def proof_text(purpose: Purpose, key: str) -> bytes:
    """Return the bytes that are signed as the proof of a sealing or combining key."""
    return f"mooring {purpose} key\n{key}".encode()


def require_name(what: str, name: str) -> None:
    """Raise an `InputError` for a name that is reserved, or that may not be a valid file name on every system."""
    if name == RESERVED_NAME or (isinstance(name, str) and name.partition(".")[0] in _DEVICES):
        problem = f"The name {name!r} is reserved: files that are exchanged cannot have it."
        raise InputError(what, problem=problem, cure="Use a name such as 'st-mary-hospital'.")
    if not (isinstance(name, str) and MEMBER_NAME.fullmatch(name) and not name.endswith(".")):
        expected = "up to 64 lower-case letters, digits, dots, hyphens and underscores, a letter or digit first"
        got = f"a name of {len(name)} characters" if isinstance(name, str) else type(name).__name__
        raise InputError(what, expected=expected, got=got, cure="Use a name such as 'st-mary-hospital'.")


def write_card(
    path: str | Path, *, role: Role, member: Member, signer: SigningKey, further_keys: Sequence[tuple[str, str]] = ()
) -> None:
    """Write a member's card; it holds no secret.

    The card's proof is the signing key's signature of the role, the name, the signing key and the sealing key. The sealing
    key and each combining key also have proofs of their own. `signer` is the private half of `member.signing_key`.
    `further_keys` are combining keys for later studies, each with its proof.
    """
    _require_role(role, member)
    _require_own_sealing_key(member)
    proof = signer.sign(_signed_text(role, member))
    if not verify(member.signing_key, proof, _signed_text(role, member)):
        problem = "The signing key of this vault is not the one on the card."
        raise InputError("signer", problem=problem, cure="Use the vault of the card's owner.")
    first = [(member.combining_key, member.combining_proof)] if member.combining_key else []
    keys = (*first, *further_keys)
    sealing = member.sealing_key, member.sealing_proof
    _Card(_FORMAT, role, member.name, member.signing_key, proof.hex(), *sealing, keys).write(Path(path))


def spend_combining_key(path: str | Path) -> None:
    """Remove the first combining key from a card's file, so that the next study uses the following key."""
    card = _read(path)
    replace(card, combining_keys=card.combining_keys[1:]).write(Path(path))


def read_card(path: str | Path) -> tuple[Role, Member]:
    """Read a card; refuse it if one of its proofs was not made with the signing key on it."""
    card = _read(path)
    return card.role, card.member


def card_fingerprint(role: Role, member: Member) -> str:
    """Return the fingerprint that people compare by telephone: a digest of role, name, signing key and sealing key."""
    return shorten_digest(hashlib.sha256(_signed_text(role, member)).hexdigest())


def shorten_digest(digest: str) -> str:
    """Return a SHA-256 digest in short, for people to compare: seven groups of four letters and digits."""
    short = base64.b32encode(bytes.fromhex(digest))[:28].decode().lower()
    return "-".join(short[k : k + 4] for k in range(0, 28, 4))


def _read(path: str | Path) -> _Card:
    return _parse(read_bounded(Path(path), _MOST_BYTES, what=f"the card {Path(path).name!r}"), Path(path).name)


@lru_cache(maxsize=1024)
def _parse(content: bytes, file_name: str) -> _Card:
    """Return the card that a file holds. It is cached: a run reads the same few cards at every step, and keys are long."""
    try:
        plain = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        plain = {}
    card = read_entries(_Card, plain, what=f"card {file_name!r}", cure=CARD_CURE)
    if card.format != _FORMAT:
        raise _not_on_a_card("format", f"The card has the format {card.format}, and this mooring reads {_FORMAT}.")
    role, member = card.role, card.member
    _require_role(role, member)
    is_well_formed = _SIGNATURE.fullmatch(card.proof) is not None
    if not (is_well_formed and verify(member.signing_key, bytes.fromhex(card.proof), _signed_text(role, member))):
        raise RefusedError(
            f"the card of {member.name!r}",
            reason="its proof was not made with the signing key on it, so the card was changed or forged",
            cure="Ask for the card again, by a way you trust.",
        )
    _require_own_sealing_key(member)
    for key, key_proof in card.combining_keys:
        if not Member(member.name, member.signing_key, "", "", key, key_proof).holds_combining_key:
            raise RefusedError(
                f"the card of {member.name!r}",
                reason="the proof of a combining key was not made with the signing key on it, so the card was changed",
                cure="Ask for the card again, by a way you trust.",
            )
    return card


def _require_own_sealing_key(member: Member) -> None:
    if member.sealing_key and not member.holds_sealing_key:
        raise RefusedError(
            f"the card of {member.name!r}",
            reason="the proof of its sealing key was not made with the signing key on it, so the card was changed",
            cure="Ask for the card again, by a way you trust.",
        )


def _not_on_a_card(what: str, problem: str) -> InputError:
    return InputError(what, problem=problem, cure=CARD_CURE)


def _require_role(role: Role, member: Member) -> None:
    fits = {
        "participant": bool(member.sealing_key),
        "helper": not member.sealing_key,
        "analyst": bool(member.sealing_key) and not member.combining_key,
    }
    if not fits.get(role, False):
        problem = (
            "The card's keys do not fit its role: participants and the analyst have a sealing key, helpers have none, and "
            "the analyst has no combining keys."
        )
        raise _not_on_a_card("card", problem)


def _signed_text(role: Role, member: Member) -> bytes:
    """Return the bytes that are signed as the card's proof; none of the values can contain a line break."""
    lines = ["mooring card", str(_FORMAT), role, member.name, member.signing_key, member.sealing_key]
    return "\n".join(lines).encode()
