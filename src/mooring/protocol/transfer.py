"""`mooring send`: one bundle or anchor file, checked, to a folder, a store or a presigned address; whole, or again.

What is no bundle and no anchor file of mooring's is not sent: a vault or a table given by mistake stays here. Every try
sends the whole file from its first byte, so that what arrives is the same however often the connection breaks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol import anchor_file, bundle
from mooring.protocol.addresses import is_presigned, is_url, local_path, presigned_parts, shown
from mooring.protocol.durable import durable_file, explained
from mooring.protocol.putting import Answer, put
from mooring.protocol.signed import digest_of, opened, verified_header
from mooring.protocol.stores import BrokenOffError, file_system, persistently, upload
from mooring.protocol.tables import Progress

KINDS = {bundle.KIND: bundle.FIELDS, anchor_file.KIND: ("study", "nonce", "bytes")}
_BLOCK = 2**20
_PASSING = (408, 425, 429)
_FRESH = "Ask the analyst for a fresh address ('mooring invite' makes one), and send again: the bundle stays the same."
_AGAIN = "Run the same command again: it sends the same bytes."
_MD5 = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Parcel:
    """A file that may be sent.

    Attributes
    ----------
    path : Path
    kind : str
        "bundle" or "anchor".
    size : int
    digest : str
        SHA-256 of the file.
    checksum : str
        MD5 of the file, which object stores answer with.
    """

    path: Path
    kind: str
    size: int
    digest: str
    checksum: str


@dataclass(frozen=True)
class Sent:
    """What was sent.

    Attributes
    ----------
    to : str
        Where, without anything secret.
    kind : str
    bytes : int
    digest : str
        SHA-256 of the file.
    tries : int
    confirmed : bool
        Whether the other side told what it holds, by size or checksum, and it is the file.
    """

    to: str
    kind: str
    bytes: int
    digest: str
    tries: int
    confirmed: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def checked(path: str | Path) -> Parcel:
    """Read a file that is about to leave, and refuse all but a bundle or an anchor file, whole and as it was signed."""
    path, what = Path(path), "the file"
    with opened(path, what=what) as file:
        found: str | None = None
        for kind, fields in KINDS.items():
            file.seek(0)
            try:
                header, manifest = verified_header(file, kind=kind, fields=fields, what=what)
            except RefusedError:
                continue
            found = kind
            break
        if found is None:
            raise RefusedError(
                what,
                reason="it is no bundle and no anchor file that mooring wrote, and nothing else is sent",
                cure="Send what 'mooring share' or 'mooring deal' wrote; a table or a vault never leaves.",
            )
        whole, data = hashlib.sha256(header.raw), hashlib.sha256()
        checksum, size = hashlib.md5(header.raw, usedforsecurity=False), len(header.raw)
        while block := file.read(_BLOCK):
            whole.update(block)
            data.update(block)
            checksum.update(block)
            size += len(block)
    if data.hexdigest() != manifest["data"]:
        raise RefusedError(
            what,
            reason="it is cut short, or not as it was signed",
            cure="Run 'mooring share' again: it writes the same bytes as before.",
        )
    return Parcel(path, found, size, whole.hexdigest(), checksum.hexdigest())


def send_file(
    path: str | Path,
    to: str | Path,
    *,
    allow_http: bool = False,
    waits: Sequence[float] | None = None,
    progress: Progress | None = None,
) -> Sent:
    """Send a bundle or an anchor file.

    Parameters
    ----------
    path : path
    to : str or path
        A folder or a file's path; a URL that fsspec knows, which names a folder if it ends in a slash or is one; or a
        presigned address (http, https), which names one file.
    allow_http : bool, default False
        Send a bundle even over a connection that is not protected.
    waits : sequence of float, optional
        Seconds between tries; by default there are four tries.
    progress : callable, optional
        Called with bytes sent and bytes in all.
    """
    parcel = checked(path)
    require_address(to, allow_http=allow_http or parcel.kind == anchor_file.KIND)
    if is_presigned(to):
        return _put(parcel, str(to), waits, progress)
    if is_url(to):
        return _uploaded(parcel, str(to), waits, progress)
    return _copied(parcel, to, progress)


def require_address(to: str | Path, *, allow_http: bool = False) -> None:
    """Refuse an address that nothing could be sent to, before anything is begun."""
    if is_presigned(to):
        presigned_parts(str(to), allow_http=allow_http, what="the bundle")
    elif is_url(to):
        file_system(str(to))


def _put(parcel: Parcel, address: str, waits: Sequence[float] | None, progress: Progress | None) -> Sent:
    parts = presigned_parts(address, allow_http=True, what="the file")

    def attempt() -> Answer:
        answer = put(parts, parcel.path, size=parcel.size, digest=parcel.digest, progress=progress)
        if answer.status in _PASSING or answer.status >= 500 or answer.code in ("RequestTimeout", "SlowDown"):
            raise BrokenOffError(f"the store answered {answer.status}", _asked_to_wait(answer))
        if not 200 <= answer.status < 300:
            raise _refused(answer, address)
        if _tells_checksum(answer) and _etag(answer) != parcel.checksum:
            raise BrokenOffError("the store tells another checksum than the file's")
        return answer

    try:
        answer, tries = persistently(attempt, waits=waits)
    except BrokenOffError as problem:
        raise StorageError(
            "the upload", reason=f"{shown(address)} cannot be written: {problem.reason}", cure=_AGAIN
        ) from None
    return Sent(shown(address), parcel.kind, parcel.size, parcel.digest, tries, _tells_checksum(answer))


def _refused(answer: Answer, address: str) -> StorageError:
    said = f"{answer.status}, {answer.code}" if answer.code else str(answer.status)
    match answer:
        case Answer(expired=True):
            reason, cure = f"the address has expired ({said})", _FRESH
        case Answer(status=413) | Answer(code="EntityTooLarge"):
            reason = f"the store takes no file of this size in one piece ({said})"
            cure = "Ask the analyst for another way: s3:// with credentials sends in parts."
        case Answer(status=404):
            reason, cure = f"there is no such place ({said})", _FRESH
        case Answer(status=status) if 300 <= status < 400:
            reason, cure = f"the store sends us elsewhere ({said})", _FRESH
        case _:
            reason, cure = f"the store refuses it ({said})", _FRESH
    return StorageError("the upload", reason=f"{shown(address)} cannot be written: {reason}", cure=cure)


def _asked_to_wait(answer: Answer) -> float:
    seconds = answer.headers.get("retry-after", "")
    return float(seconds) if seconds.isdecimal() and len(seconds) < 9 else 0.0


def _etag(answer: Answer) -> str:
    return answer.headers.get("etag", "").strip('"').lower()


def _tells_checksum(answer: Answer) -> bool:
    """Whether the answer's ETag is the MD5 of what was stored, as it is unless the store keeps it under a customer's key."""
    encrypted = answer.headers.get("x-amz-server-side-encryption", "AES256") != "AES256"
    encrypted |= "x-amz-server-side-encryption-customer-algorithm" in answer.headers
    return not encrypted and _MD5.fullmatch(_etag(answer)) is not None


def _uploaded(parcel: Parcel, address: str, waits: Sequence[float] | None, progress: Progress | None) -> Sent:
    system, root = file_system(address)
    if address.endswith("/") or _is_folder(system, root):
        root, address = f"{root}/{parcel.path.name}", f"{address.rstrip('/')}/{parcel.path.name}"
    tries, confirmed = upload(
        parcel.path, system, root, address=address, what="the upload", waits=waits, progress=progress
    )
    return Sent(shown(address), parcel.kind, parcel.size, parcel.digest, tries, confirmed)


def _is_folder(system: Any, root: str) -> bool:
    try:
        return bool(system.isdir(root))
    except Exception:  # somebody who may write need not be allowed to look
        return False


def _copied(parcel: Parcel, to: str | Path, progress: Progress | None) -> Sent:
    target = local_path(to)
    with explained("the place to send to"):
        if str(to).endswith("/") or target.is_dir():
            target = target / parcel.path.name
        there = target.exists()
    if there and digest_of(target, what="the place to send to") != parcel.digest:
        raise InputError(
            "address",
            expected="a place where no other file is",
            got="one with another file of this name",
            cure="It may be another one's: give the file's name in --to as well, as FOLDER/NAME.bundle.",
        )
    if not there:
        with (
            opened(parcel.path, what="the file") as source,
            durable_file(target, what="the place to send to") as file,
        ):
            done, digest = 0, hashlib.sha256()
            while block := source.read(_BLOCK):
                file.write(block)
                digest.update(block)
                done += len(block)
                if progress:
                    progress(done, parcel.size)
            if digest.hexdigest() != parcel.digest:
                raise StorageError("the file", reason="it changed while it was sent", cure=_AGAIN)
    return Sent(str(target), parcel.kind, parcel.size, parcel.digest, 1, True)
