"""The files that analyst and combiners exchange about bundles: receipts, the closing list, and combined shares.

In a receipt, a combiner states for each bundle whether its share passed the test. In the closing list, the analyst names
the bundles that make up the total, one per participant, by the digests of their headers. A combined share is the sum of one
combiner's shares of all bundles on the list.
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

RECEIPT, LIST, SHARE = "receipt", "closing list", "share"
SUFFIXES = {RECEIPT: ".receipt", LIST: ".list", SHARE: ".share"}
LIST_FILE = "closing.list"
FIELDS = {RECEIPT: ("study", "combiner", "count"), LIST: ("study", "count"), SHARE: ("study", "combiner", "list")}
_DIGEST_BYTES = 32
_BUNDLES_A_SENDER = 4  # most bundles per participant in a receipt: there may be versions of one bundle


@dataclass(frozen=True)
class ClosingList:
    """The contributions of which a total is made."""

    digests: dict[str, str]
    """SHA-256 of the header of each participant's bundle, by the participant's signing key."""
    digest: str
    """SHA-256 of the list's file."""


@dataclass(frozen=True)
class Receipt:
    """A combiner's statement which of its shares in the bundles passed the test."""

    member: Member
    combiner: int
    passed: dict[str, bool]
    """Whether the combiner's share in each bundle passed the test, by the digest of the bundle's header."""


@dataclass(frozen=True, eq=False)
class CombinedShare:
    """One combiner's share of the total of a list."""

    member: Member
    combiner: int
    list_digest: str
    elements: Elements


def write_closing_list(path: Path, study: Study, digests: Mapping[str, str], signer: SigningKey) -> str:
    """Write a list of bundles (see `ClosingList.digests`), and return the file's SHA-256. Equal lists give equal files."""
    rows = sorted(digests.items())
    entries = np.frombuffer(b"".join(bytes.fromhex(key + digest) for key, digest in rows), dtype=np.uint8)
    fields: Fields = {"study": study.digest, "count": len(rows)}
    arrays = {"entries": entries.reshape(len(rows), 2 * _DIGEST_BYTES)}
    return write_signed(path, kind=LIST, fields=fields, arrays=arrays, signer=signer)


def read_closing_list(path: Path, study: Study) -> ClosingList:
    """Read the analyst's list, or refuse one that could open anything but the total of a quorum.

    The analyst must have signed the list. The list must name participants on the roster, each once and each with a different
    bundle, and at least as many as the quorum.
    """
    shape = _counted("entries", 2 * _DIGEST_BYTES, most=len(study.participants))
    signed = read_signed(path, kind=LIST, signed_by={study.analysts_key}, fields=FIELDS[LIST], tensors=shape)
    study.require_same(signed.fields, what="the closing list")
    rows = [bytes(row) for row in signed.arrays["entries"]]
    keys, digests = ([row[part].hex() for row in rows] for part in (slice(32), slice(32, None)))
    if any(study.member_with_key(key) is None for key in keys):
        raise _refuse("the closing list", "it names somebody who is not in the study's roster")
    if len(set(keys)) < len(keys) or len(set(digests)) < len(digests):
        raise _refuse("the closing list", "it counts a participant or a bundle twice")
    if len(keys) < sum_scheme(study).quorum:
        raise _refuse("the closing list", f"it has fewer contributions than the quorum, {sum_scheme(study).quorum}")
    return ClosingList(dict(zip(keys, digests, strict=True)), signed.digest)


def write_receipt(path: Path, study: Study, passed: Mapping[str, bool], *, combiner: int, signer: SigningKey) -> None:
    """Write a combiner's receipt; see `Receipt.passed`."""
    rows = sorted(passed.items())
    text = b"".join(bytes.fromhex(digest) + bytes([is_good]) for digest, is_good in rows)
    entries = np.frombuffer(text, dtype=np.uint8).reshape(len(rows), _DIGEST_BYTES + 1)
    fields: Fields = {"study": study.digest, "combiner": combiner, "count": len(rows)}
    write_signed(path, kind=RECEIPT, fields=fields, arrays={"entries": entries}, signer=signer)


def read_receipt(path: Path, study: Study) -> Receipt:
    """Read a combiner's receipt, or refuse it with a reason."""
    shape = _counted("entries", _DIGEST_BYTES + 1, most=_BUNDLES_A_SENDER * len(study.participants))
    member, point, signed = _read_answer(path, study, RECEIPT, shape)
    rows = [bytes(row) for row in signed.arrays["entries"]]
    passed = {row[:-1].hex(): row[-1] == 1 for row in rows}
    if len(passed) < len(rows) or any(row[-1] > 1 for row in rows):
        raise _refuse("the receipt", "it mentions one bundle twice, or says neither yes nor no")
    return Receipt(member, point, passed)


def write_combined_share(
    path: Path, study: Study, elements: Elements, *, combiner: int, list_digest: str, signer: SigningKey
) -> str:
    """Write a combiner's share of the total; the same list gives the same bytes. Return the file's SHA-256."""
    fields: Fields = {"study": study.digest, "combiner": combiner, "list": list_digest}
    arrays = {"share": np.frombuffer(elements.astype("<u8").tobytes(), dtype=np.uint8)}
    return write_signed(path, kind=SHARE, fields=fields, arrays=arrays, signer=signer, mode=0o600)


def read_combined_share(path: Path, study: Study) -> CombinedShare:
    """Read a combiner's share of the total, or refuse it with a reason."""
    specs = {"share": TensorSpec("U8", (8 * sum_scheme(study).layout.size,))}
    member, point, signed = _read_answer(path, study, SHARE, lambda _: specs)
    elements = signed.arrays["share"].view("<u8").astype(np.uint64)
    if elements.size and int(elements.max()) >= PRIME:
        raise _refuse("the share", "it holds numbers that no share has")
    return CombinedShare(member, point, str(signed.fields["list"]), elements)


def most_answer_bytes(study: Study, kind: str) -> int:
    """Return the largest possible size, in bytes, of a file of this kind in a study."""
    p = len(study.participants)
    sizes = {
        RECEIPT: _BUNDLES_A_SENDER * p * (_DIGEST_BYTES + 1),
        LIST: p * 2 * _DIGEST_BYTES,
        SHARE: 8 * sum_scheme(study).layout.size,
    }
    return sizes[kind] + MOST_HEADER_BYTES + 8


def combiner_point(study: Study, name: str) -> int | None:
    """Return the point (1 to k) at which a combiner holds its shares; None for a member that is no combiner."""
    combiners: Sequence[str] = sum_scheme(study).combiners
    return combiners.index(name) + 1 if name in combiners else None


def _read_answer(
    path: Path, study: Study, kind: str, tensors: Callable[[Fields], Tensors]
) -> tuple[Member, int, SignedFile]:
    """Return the combiner that signed a file, the combiner's point, and the file."""
    points = {study.member(name).signing_key: point for point, name in enumerate(sum_scheme(study).combiners, start=1)}
    signed = read_signed(path, kind=kind, signed_by=points.keys(), fields=FIELDS[kind], tensors=tensors)
    study.require_same(signed.fields, what=f"the {kind}")
    point = points[str(signed.fields["signer"])]
    if signed.fields["combiner"] != point:
        raise _refuse(f"the {kind}", "whoever signed it is not the combiner that it speaks for")
    return study.member(sum_scheme(study).combiners[point - 1]), point, signed


def _counted(name: str, width: int, *, most: int) -> Callable[[Fields], Tensors]:
    def tensors(fields: Fields) -> dict[str, TensorSpec]:
        count = fields["count"]
        if not isinstance(count, int) or not 1 <= count <= most:
            raise _refuse("the file", "it claims more entries than there can be, or none")
        return {name: TensorSpec("U8", (count, width))}

    return tensors


def _refuse(what: str, reason: str) -> RefusedError:
    return RefusedError(what, reason=reason, cure="Ask its sender again.")
