"""`mooring send`: one bundle or anchor file, checked, to a folder, a store or a presigned address; whole, or again.

What is no bundle and no anchor file of mooring's is not sent: a vault or a table given by mistake stays here. Every try
sends the whole file from its first byte, so that what arrives is the same however often the connection breaks. The file is
opened once: what was checked is what is sent, whatever takes its name meanwhile.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from mooring.atomic_io import explain_os_errors, hash_file, open_atomically, open_plain_file
from mooring.errors import RefusedError, StorageError
from mooring.protocol.messages import anchor as anchor_file
from mooring.protocol.messages import bundle
from mooring.protocol.messages.signed_file import read_signed_header
from mooring.protocol.transport.addresses import is_presigned, is_url, local_path, parse_presigned, redact_address
from mooring.protocol.transport.destination import (
    MD5,
    choose_file_name,
    is_file_name,
    is_local,
    is_stored,
    open_store,
    refuse_overwrite,
)
from mooring.protocol.transport.object_stores import CHANGED, TransientError, retry, upload
from mooring.protocol.transport.presigned_upload import Answer, put_file
from mooring.typing import Progress

KINDS = {bundle.KIND: bundle.FIELDS, anchor_file.KIND: ("study", "nonce", "bytes")}
_BLOCK = 2**20
_PASSING = (408, 425, 429)
_FRESH = "Ask the analyst for a fresh address ('mooring invite' makes one), and send again: the bundle stays the same."
_AGAIN = "Run the same command again: it sends the same bytes."


@dataclass(frozen=True)
class Parcel:
    """A file that may be sent.

    Attributes
    ----------
    path : Path
    file : binary file
        The one that was checked, open.
    kind : str
        "bundle" or "anchor".
    size : int
    digest : str
        SHA-256 of the file.
    checksum : str
        MD5 of the file, which object stores answer with.
    """

    path: Path
    file: BinaryIO
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
    there_before : bool
        Whether it was there already, so that nothing was sent.
    """

    to: str
    kind: str
    bytes: int
    digest: str
    tries: int
    confirmed: bool
    there_before: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def check_parcel(path: Path, file: BinaryIO) -> Parcel:
    """Read a file that is about to leave, and refuse all but a bundle or an anchor file, whole and as it was signed."""
    what, found = "the file", None
    for kind, fields in KINDS.items():
        file.seek(0)
        try:
            header, manifest = read_signed_header(file, kind=kind, fields=fields, what=what)
        except RefusedError:
            continue
        found = kind
        break
    if found is None:
        raise _nothing_else()
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
    return Parcel(path, file, found, size, whole.hexdigest(), checksum.hexdigest())


def _nothing_else() -> RefusedError:
    return RefusedError(
        "the file",
        reason="it is no bundle and no anchor file that mooring wrote, and nothing else is sent",
        cure="Send what 'mooring share' or 'mooring deal' wrote; a table or a vault never leaves.",
    )


def send_file(
    path: str | Path,
    to: str | Path,
    *,
    allow_http: bool = False,
    digest: str | None = None,
    waits: Sequence[float] | None = None,
    progress: Progress | None = None,
) -> Sent:
    """Send a bundle or an anchor file.

    Parameters
    ----------
    path : path
    to : str or path
        A folder, or a file's path; a URL that fsspec knows; or a presigned address (http, https), which names one file. Of
        the others, one that does not end in .bundle (or .anchor, for an anchor file) is a folder, there or not yet.
    allow_http : bool, default False
        Send a bundle even over a connection that is not protected.
    digest : str, optional
        SHA-256 of the only file that may be sent.
    waits : sequence of float, optional
        Seconds between tries; by default there are four tries.
    progress : callable, optional
        Called with bytes sent and bytes in all.
    """
    path = Path(path)
    with explain_os_errors("the file"):
        if path.is_dir():
            raise _nothing_else()
    with open_plain_file(path, what="the file") as file:
        parcel = check_parcel(path, file)
        if digest is not None and parcel.digest != digest:
            raise StorageError("the file", reason="it changed before it was sent", cure="Run the same command again.")
        allow_http = allow_http or parcel.kind == anchor_file.KIND
        if is_presigned(to):
            return _put(parcel, str(to), allow_http, waits, progress)
        if not is_url(to):
            return _copied(parcel, local_path(to), str(to).endswith("/"), progress)
        system, root = open_store(str(to), allow_http=allow_http)
        if is_local(system):
            return _copied(parcel, Path(root or "/"), str(to).endswith("/"), progress)
        return _uploaded(parcel, str(to), system, root, waits, progress)


def require_address(to: str | Path, *, allow_http: bool = False) -> None:
    """Refuse an address that nothing could be sent to, before anything is begun."""
    if is_presigned(to):
        parse_presigned(str(to), allow_http=allow_http, what="the bundle")
    elif is_url(to):
        open_store(str(to), allow_http=allow_http)


def _put(
    parcel: Parcel, address: str, allow_http: bool, waits: Sequence[float] | None, progress: Progress | None
) -> Sent:
    parts = parse_presigned(address, allow_http=allow_http, what="the bundle")

    def attempt() -> Answer:
        answer = put_file(
            parts, parcel.file, size=parcel.size, digest=parcel.digest, allow_http=allow_http, progress=progress
        )
        if answer.status in _PASSING or answer.status >= 500 or answer.code in ("RequestTimeout", "SlowDown"):
            raise TransientError(f"the store answered {answer.status}", _asked_to_wait(answer))
        if not 200 <= answer.status < 300:
            raise _refused(answer)
        if _tells_checksum(answer) and _etag(answer) != parcel.checksum:
            raise TransientError("the store tells another checksum than the file's")
        return answer

    try:
        answer, tries = retry(attempt, waits=waits)
    except TransientError as problem:
        raise StorageError(
            "the upload", reason=f"{redact_address(address)} cannot be written: {problem.reason}", cure=_AGAIN
        ) from None
    return Sent(answer.where, parcel.kind, parcel.size, parcel.digest, tries, _tells_checksum(answer))


def _refused(answer: Answer) -> StorageError:
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
    return StorageError("the upload", reason=f"{answer.where} cannot be written: {reason}", cure=cure)


def _asked_to_wait(answer: Answer) -> float:
    seconds = answer.headers.get("retry-after", "")
    return float(seconds) if seconds.isdecimal() and len(seconds) < 9 else 0.0


def _etag(answer: Answer) -> str:
    return answer.headers.get("etag", "").strip('"').lower()


def _tells_checksum(answer: Answer) -> bool:
    """Whether the answer's ETag is the MD5 of what was stored, as it is unless the store keeps it under a customer's key."""
    encrypted = answer.headers.get("x-amz-server-side-encryption", "AES256") != "AES256"
    encrypted |= "x-amz-server-side-encryption-customer-algorithm" in answer.headers
    return not encrypted and MD5.fullmatch(_etag(answer)) is not None


def _uploaded(
    parcel: Parcel, address: str, system: Any, root: str, waits: Sequence[float] | None, progress: Progress | None
) -> Sent:
    if not is_file_name(address, parcel.kind) or _is_folder(system, root):
        name = choose_file_name(parcel.path, parcel.kind)
        root, address = f"{root}/{name}", f"{address.rstrip('/')}/{name}"
    if is_stored(system, root, parcel.file, size=parcel.size, checksum=parcel.checksum):
        return Sent(redact_address(address), parcel.kind, parcel.size, parcel.digest, 0, True, there_before=True)
    again = Path(f"/proc/self/fd/{parcel.file.fileno()}")  # the open file itself, where the system has a name for it
    source = again if again.exists() else parcel.path

    def intact() -> bool:
        same = os.path.samestat(source.stat(), os.fstat(parcel.file.fileno()))
        return same and _digest(parcel.file) == parcel.digest

    tries, confirmed = upload(
        source, system, root, address=address, what="the upload", intact=intact, waits=waits, progress=progress
    )
    return Sent(redact_address(address), parcel.kind, parcel.size, parcel.digest, tries, confirmed)


def _is_folder(system: Any, root: str) -> bool:
    try:
        return bool(system.isdir(root))
    except Exception:  # somebody who may write need not be allowed to look
        return False


def _digest(file: BinaryIO) -> str:
    whole = hashlib.sha256()
    file.seek(0)
    while block := file.read(_BLOCK):
        whole.update(block)
    return whole.hexdigest()


def _copied(parcel: Parcel, target: Path, is_folder: bool, progress: Progress | None) -> Sent:
    with explain_os_errors("the place to send to"):
        if is_folder or not is_file_name(str(target), parcel.kind) or target.is_dir():
            target = target / choose_file_name(parcel.path, parcel.kind)
        there = target.exists()
    if there and hash_file(target, what="the place to send to") != parcel.digest:
        raise refuse_overwrite()
    if not there:
        parcel.file.seek(0)
        with open_atomically(target, what="the place to send to") as file:
            done, digest = 0, hashlib.sha256()
            while block := parcel.file.read(_BLOCK):
                file.write(block)
                digest.update(block)
                done += len(block)
                if progress:
                    progress(done, parcel.size)
            if digest.hexdigest() != parcel.digest:
                raise StorageError("the file", reason=CHANGED, cure=_AGAIN)
    return Sent(str(target), parcel.kind, parcel.size, parcel.digest, 0 if there else 1, True, there_before=there)
