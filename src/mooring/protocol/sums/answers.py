"""What goes between analyst and combiners once bundles are there: confirmations, the closing list, combined shares.

A confirmation is a combiner's: of each bundle that it saw, one value, by which the analyst tells whether its shares fit.
The closing list is the analyst's: which bundles make up the total, one a participant. A share is a combiner's: the sum of
its shares of all bundles on the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mooring.errors import RefusedError
from mooring.mechanisms.sums.prime_field import PRIME, Elements
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.signed_file import (
    MOST_HEADER_BYTES,
    Fields,
    SignedFile,
    Tensors,
    TensorSpec,
    read_signed,
    write_signed,
)
from mooring.protocol.messages.study import Study
from mooring.protocol.sums.scheme import sum_scheme

CONFIRMATION, LIST, SHARE = "confirmation", "closing list", "share"
SUFFIXES = {CONFIRMATION: ".confirmation", LIST: ".list", SHARE: ".share"}
LIST_FILE = "closing.list"
_FIELDS = {CONFIRMATION: ("study", "combiner", "count"), LIST: ("study", "count"), SHARE: ("study", "combiner", "list")}
_DIGEST_BYTES = 32
_BUNDLES_A_SENDER = 4  # that a confirmation may speak of: whoever carries bundles may have several of one sender


@dataclass(frozen=True)
class ClosingList:
    """The contributions of which a total is made."""

    digests: dict[str, str]
    """From participants' signing keys to the SHA-256 of their bundles."""
    digest: str
    """SHA-256 of the list's file."""


@dataclass(frozen=True)
class Confirmation:
    """One combiner's values, by the bundle's digest; None for a bundle that it could not open."""

    member: Member
    combiner: int
    values: dict[str, int | None]


@dataclass(frozen=True, eq=False)
class CombinedShare:
    """One combiner's share of the total of a list."""

    member: Member
    combiner: int
    list_digest: str
    elements: Elements


def write_closing_list(path: Path, study: Study, digests: Mapping[str, str], signer: SigningKey) -> str:
    """Write a list of bundles and return its SHA-256; the same bundles give the same bytes.

    Parameters
    ----------
    digests : mapping from signing key to the bundle's SHA-256
    """
    rows = sorted(digests.items())
    entries = np.frombuffer(b"".join(bytes.fromhex(key + digest) for key, digest in rows), dtype=np.uint8)
    fields: Fields = {"study": study.digest, "count": len(rows)}
    arrays = {"entries": entries.reshape(len(rows), 2 * _DIGEST_BYTES)}
    return write_signed(path, kind=LIST, fields=fields, arrays=arrays, signer=signer)


def read_closing_list(path: Path, study: Study) -> ClosingList:
    """Read the analyst's list, or refuse one that could open something else than the total of a quorum.

    It must be the analyst's and name members of the roster, each once and with its own bundle; no fewer than the quorum.
    """
    shape = _counted("entries", 2 * _DIGEST_BYTES, most=len(study.participants))
    found = read_signed(path, kind=LIST, signed_by={study.analysts_key}, fields=_FIELDS[LIST], tensors=shape)
    study.require_same(found.fields, what="the closing list")
    rows = [bytes(row) for row in found.arrays["entries"]]
    keys, digests = ([row[part].hex() for row in rows] for part in (slice(32), slice(32, None)))
    if any(study.member_with_key(key) is None for key in keys):
        raise _refuse("the closing list", "it names somebody who is not in the study's roster")
    if len(set(keys)) < len(keys) or len(set(digests)) < len(digests):
        raise _refuse("the closing list", "it counts a participant or a bundle twice")
    if len(keys) < sum_scheme(study).quorum:
        raise _refuse("the closing list", f"it has fewer contributions than the quorum, {sum_scheme(study).quorum}")
    return ClosingList(dict(zip(keys, digests, strict=True)), found.digest)


def write_confirmation(
    path: Path, study: Study, values: Mapping[str, int | None], *, combiner: int, signer: SigningKey
) -> None:
    """Write a combiner's values.

    Parameters
    ----------
    values : mapping from the bundle's SHA-256 to the value, or None where the box does not open
    combiner : int
        Its point, 1 to k.
    """
    rows = sorted(values.items())
    text = b"".join(bytes.fromhex(key) + _encode_value(value) for key, value in rows)
    entries = np.frombuffer(text, dtype=np.uint8).reshape(len(rows), _DIGEST_BYTES + 8)
    fields: Fields = {"study": study.digest, "combiner": combiner, "count": len(rows)}
    write_signed(path, kind=CONFIRMATION, fields=fields, arrays={"entries": entries}, signer=signer)


def read_confirmation(path: Path, study: Study) -> Confirmation:
    """Read a combiner's values, or refuse them with a reason."""
    shape = _counted("entries", _DIGEST_BYTES + 8, most=_BUNDLES_A_SENDER * len(study.participants))
    member, point, found = _read_answer(path, study, CONFIRMATION, shape)
    rows = [bytes(row) for row in found.arrays["entries"]]
    values = {row[:32].hex(): _decode_value(row[32:]) for row in rows}
    if len(values) < len(rows):
        raise _refuse("the confirmation", "it speaks of one bundle twice")
    return Confirmation(member, point, values)


def write_combined_share(
    path: Path, study: Study, elements: Elements, *, combiner: int, list_digest: str, signer: SigningKey
) -> str:
    """Write a combiner's share of the total; the same list gives the same bytes. Returns the file's SHA-256.

    Parameters
    ----------
    elements : array of elements
    combiner : int
        Its point, 1 to k.
    list_digest : str
        SHA-256 of the closing list.
    """
    fields: Fields = {"study": study.digest, "combiner": combiner, "list": list_digest}
    arrays = {"share": np.frombuffer(elements.astype("<u8").tobytes(), dtype=np.uint8)}
    return write_signed(path, kind=SHARE, fields=fields, arrays=arrays, signer=signer, mode=0o600)


def read_combined_share(path: Path, study: Study) -> CombinedShare:
    """Read a combiner's share of the total, or refuse it with a reason."""
    specs = {"share": TensorSpec("U8", (8 * sum_scheme(study).layout.size,))}
    member, point, found = _read_answer(path, study, SHARE, lambda _: specs)
    elements = found.arrays["share"].view("<u8").astype(np.uint64)
    if elements.size and int(elements.max()) >= PRIME:
        raise _refuse("the share", "it holds numbers that no share has")
    return CombinedShare(member, point, str(found.fields["list"]), elements)


def most_answer_bytes(study: Study, kind: str) -> int:
    """How large a study's file of a kind can be."""
    p = len(study.participants)
    sizes = {
        CONFIRMATION: _BUNDLES_A_SENDER * p * (_DIGEST_BYTES + 8),
        LIST: p * 2 * _DIGEST_BYTES,
        SHARE: 8 * sum_scheme(study).layout.size,
    }
    return sizes[kind] + MOST_HEADER_BYTES + 8


def combiner_point(study: Study, name: str) -> int | None:
    """The point of a participant, 1 to k; None if it is no combiner."""
    combiners: Sequence[str] = sum_scheme(study).combiners
    return combiners.index(name) + 1 if name in combiners else None


def _read_answer(
    path: Path, study: Study, kind: str, tensors: Callable[[Fields], Tensors]
) -> tuple[Member, int, SignedFile]:
    """What a combiner signed, who that is, and its point."""
    known = {study.member(name).signing_key for name in sum_scheme(study).combiners}
    found = read_signed(path, kind=kind, signed_by=known, fields=_FIELDS[kind], tensors=tensors)
    member = study.require_signer(found.fields, what=f"the {kind}")
    point = combiner_point(study, member.name)
    if point is None or found.fields["combiner"] != point:
        raise _refuse(f"the {kind}", "whoever signed it is not the combiner that it speaks for")
    return member, point, found


def _counted(name: str, width: int, *, most: int) -> Callable[[Fields], Tensors]:
    def tensors(fields: Fields) -> dict[str, TensorSpec]:
        count = fields["count"]
        if not isinstance(count, int) or not 1 <= count <= most:
            raise _refuse("the file", "it claims more entries than there can be, or none")
        return {name: TensorSpec("U8", (count, width))}

    return tensors


def _encode_value(value: int | None) -> bytes:
    return (PRIME if value is None else value).to_bytes(8, "little")


def _decode_value(data: bytes) -> int | None:
    value = int.from_bytes(data, "little")
    if value > PRIME:
        raise _refuse("the confirmation", "it holds numbers that no share has")
    return None if value == PRIME else value


def _refuse(what: str, reason: str) -> RefusedError:
    return RefusedError(what, reason=reason, cure="Ask its sender again.")
