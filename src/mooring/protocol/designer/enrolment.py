"""Cards: what a member hands to whoever keeps the study's file, to be entered in the roster."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Literal, Protocol

from mooring.atomic_io import write_atomically
from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.crypto.keys import is_sealing_key, verify
from mooring.protocol.messages.members import CARD_CURE, Member
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import member_text, parsed, read_text

Role = Literal["participant", "analyst"]
_MOST_BYTES = 4096
_FORMAT = 1
_ENTRIES = {"format", "role", "name", "signing_key", "sealing_key", "proof"}


class Signer(Protocol):
    """Whoever holds the private half of the card's signing key."""

    def sign(self, message: bytes, /) -> bytes:
        """64 bytes."""
        ...


def write_card(path: str | Path, *, role: Role, member: Member, signer: Signer) -> None:
    """Write a member's card, whole or not at all; it holds no secret.

    The proof is a signature over the rest of the card by its own signing key: nobody can enter a key that he does not
    hold, or put his own sealing key beside another's signing key.

    Parameters
    ----------
    path : path
    role : {"participant", "analyst"}
    member : Member
        A participant has a sealing key, the analyst has none.
    signer : SigningKey
        The private half of `member.signing_key`.
    """
    _require_role(role, member)
    proof = signer.sign(_signed_text(role, member))
    if not verify(member.signing_key, proof, _signed_text(role, member)):
        raise InputError("signer", expected="the holder of the card's key", got="another", cure="Use your own vault.")
    lines = [
        "# A card of mooring: public keys, and a proof that whoever wrote it holds their private halves.",
        f"format = {_FORMAT}",
        f'role = "{role}"',
        *(f'{key} = "{value}"' for key, value in member.as_dict().items()),  # all of plain letters and digits
        f'proof = "{proof.hex()}"',
    ]
    write_atomically(Path(path), ("\n".join(lines) + "\n").encode(), what="the card")


def read_card(path: str | Path) -> tuple[Role, Member]:
    """Read a card and check its proof.

    Raises
    ------
    RefusedError
        If whoever wrote the card does not hold its signing key, or it has been changed since.
    """
    try:
        if not Path(path).is_file():  # a pipe would be waited for
            raise FileNotFoundError
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError:
        raise StorageError(
            f"the card {Path(path).name!r}", reason="it cannot be read", cure="Check the path."
        ) from None
    try:
        plain = tomllib.loads(content.decode()) if len(content) <= _MOST_BYTES else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        plain = {}
    words = {key: value for key, value in plain.items() if isinstance(value, str)}
    if plain.get("format") != _FORMAT or not set(plain) <= _ENTRIES or len(words) != len(plain) - 1:
        raise InputError(
            f"card {Path(path).name!r}", expected="one that 'mooring join' wrote", got="something else", cure=CARD_CURE
        )
    member = Member(words.get("name", ""), words.get("signing_key", ""), words.get("sealing_key", ""))
    role: Role = "analyst" if words.get("role") == "analyst" else "participant"
    if words.get("role") != role:
        raise InputError("role of the card", expected="participant or analyst", got="something else", cure=CARD_CURE)
    _require_role(role, member)
    if member.sealing_key and not is_sealing_key(member.sealing_key):  # the dealer could seal to nobody
        raise InputError(
            f"sealing key of {member.name!r}", expected="an age recipient", got="something else", cure=CARD_CURE
        )
    proof = words.get("proof", "")
    good = re.fullmatch(r"[0-9a-f]{128}", proof) is not None
    if not (good and verify(member.signing_key, bytes.fromhex(proof), _signed_text(role, member))):
        raise RefusedError(
            f"the card of {member.name!r}",
            reason="its proof is not by the key that it names, so it was changed or is not its writer's",
            cure="Ask for the card again, by a way you trust.",
        )
    return role, member


def _require_role(role: Role, member: Member) -> None:
    if role not in ("participant", "analyst") or (role == "participant") != bool(member.sealing_key):
        raise InputError(
            "card",
            expected="a participant's with a sealing key or an analyst's without",
            got="another",
            cure=CARD_CURE,
        )


def _signed_text(role: Role, member: Member) -> bytes:
    """What the proof is over; none of the parts can hold a line break."""
    lines = ("mooring card", str(_FORMAT), role, member.name, member.signing_key, member.sealing_key)
    return "\n".join(lines).encode()


def write_enrolled(study: Study, path: Path) -> None:
    """Write a study that has further members; the file's own comments and layout are kept where that can be."""
    text = read_text(path)
    known = Study.from_dict(parsed(text))
    new = [member for member in study.participants if known.member_with_key(member.signing_key) is None]
    text = text.rstrip("\n") + "\n" + "".join(member_text("[[participants]]", member.as_dict()) for member in new)
    if study.analyst is not None and known.analyst is None:
        text += member_text("[analyst]", study.analyst.as_dict())
    try:
        same = Study.from_dict(parsed(text)) == study
    except InputError:
        same = False
    if same:
        write_atomically(path, text.encode(), what="the study's file")
    else:
        study.write(path)
