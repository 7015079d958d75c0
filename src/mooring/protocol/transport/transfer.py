"""Sending one signed file, such as a bundle, to a folder, a store or a presigned address (`mooring send`).

`send_file` sends only signed files of mooring, so that a vault or a table given by mistake does not leave. Every attempt
sends the whole file, so that the same bytes arrive however often the connection breaks. The file is opened once: the bytes
that were checked are the bytes that are sent, even if the file is replaced meanwhile. A different file that is already
there is replaced in three cases: with `overwrite`; if it is the beginning of the new file, as after an interrupted copy; and
where the receiver does not show what it holds, as at a presigned address.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from mooring.atomic_io import explain_os_errors, hash_file, open_atomically, open_plain_file
from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.exchange_types import SendableFile
from mooring.protocol.messages import envelope
from mooring.protocol.messages.signed_file import Fields, read_signed_header
from mooring.protocol.registry import list_sendable_files
from mooring.protocol.transport.addresses import (
    is_presigned,
    is_this_machine,
    is_url,
    local_path,
    parse_presigned,
    read_scheme,
    redact_address,
    refuse_unprotected,
)
from mooring.protocol.transport.object_stores import (
    WAITS,
    TransientError,
    is_absent,
    is_transient,
    open_file_system,
    report_change,
    retry,
    upload,
)
from mooring.protocol.transport.presigned_upload import MD5, Answer, put_file
from mooring.serialization import Record
from mooring.typing import Progress

_UNPROTECTED = ("ftp", "hdfs", "arrow_hdfs", "webhdfs", "jupyter", "jlab", "smb")
ENVELOPE = SendableFile(envelope.KIND, envelope.FIELDS, envelope.SUFFIX, is_sealed=True)
_BLOCK = 2**20
_AGAIN = "Run the same command again: it sends the same bytes."


@dataclass(frozen=True)
class Parcel:
    """A file that was checked and may be sent."""

    path: Path
    file: BinaryIO
    """The open file that was checked."""
    form: SendableFile
    size: int
    digest: str
    """SHA-256 of the file."""
    checksum: str
    """MD5 of the file, which object stores report."""
    data_digest: str
    """SHA-256 of the file's arrays."""
    manifest: Fields
    """The manifest of a signed file; empty for a card, a study or a public file."""

    @property
    def name(self) -> str:
        """The file's name in a folder, with the suffix of its kind."""
        suffix = self.form.suffix
        return self.path.name if self.path.name.endswith(suffix) else f"{self.path.name}{suffix}"

    def is_named_by(self, address: str) -> bool:
        """Return whether an address names a file of this kind; all other addresses are folders, existing or not."""
        suffix = self.form.suffix
        return address.endswith(suffix) and address.rsplit("/", 1)[-1] != suffix

    @property
    def description(self) -> tuple[str, int, str]:
        """Kind, size and digest, for a result."""
        return self.form.kind, self.size, self.digest


@dataclass(frozen=True)
class SendResult(Record):
    """The result of sending a file."""

    to: str
    """The address, without secrets."""
    kind: str
    bytes: int
    digest: str
    """SHA-256 of the file."""
    tries: int
    """Number of attempts; 0 if nothing was sent."""
    confirmed: bool
    """Whether the receiver confirmed the file by its size or checksum."""
    there_before: bool = False
    """Whether the file was there already, so that nothing was sent."""


def check_parcel(path: Path, file: BinaryIO) -> Parcel:
    """Return an open file as a parcel; refuse it unless it is an intact signed file of a kind that may leave."""
    what, parcel_form = "the file", None
    for form in (*list_sendable_files(), ENVELOPE):
        file.seek(0)
        try:
            header, manifest = read_signed_header(file, kind=form.kind, fields=form.fields, what=what)
        except RefusedError:
            continue
        parcel_form = form
        break
    if parcel_form is None:
        raise _refuse_other_files()
    parcel = measure_parcel(path, file, parcel_form, manifest, data_start=header.data_start)
    if parcel.data_digest != manifest["data"]:
        reason = "it is incomplete, or its content was changed after signing"
        raise RefusedError(what, reason=reason, cure="Run the command that wrote it again.")
    return parcel


def measure_parcel(
    path: Path, file: BinaryIO, form: SendableFile, manifest: Fields | None = None, *, data_start: int = 0
) -> Parcel:
    """Return an open file as a parcel, with its size and digests; `data_start` is the position of its arrays."""
    file.seek(0)
    header = file.read(data_start)
    whole, data = hashlib.sha256(header), hashlib.sha256()
    checksum, size = hashlib.md5(header, usedforsecurity=False), len(header)
    while block := file.read(_BLOCK):
        whole.update(block)
        data.update(block)
        checksum.update(block)
        size += len(block)
    return Parcel(path, file, form, size, whole.hexdigest(), checksum.hexdigest(), data.hexdigest(), manifest or {})


def _refuse_other_files() -> RefusedError:
    return RefusedError(
        "the file",
        reason="only bundles, anchor files, receipts, closing lists, shares of a total and envelopes are sent",
        cure="Send the file that 'mooring share', 'deal', 'combine' or 'align' wrote. Never send a table or a vault.",
    )


def send_file(
    path: str | Path,
    to: str | Path,
    *,
    allow_http: bool = False,
    digest: str | None = None,
    overwrite: bool = False,
    waits: Sequence[float] | None = None,
    progress: Progress | None = None,
) -> SendResult:
    """Send a signed file.

    `to` is a folder, a file's path, an fsspec URL or a presigned address. Paths and URLs that do not end in the suffix of
    the file's kind are folders. If `digest` is given, only a file with that SHA-256 digest is sent. With `overwrite`, a
    different file of this name is replaced.
    """
    path = Path(path)
    with explain_os_errors("the file"):
        if path.is_dir():
            raise _refuse_other_files()
    with open_plain_file(path, what="the file") as file:
        parcel = check_parcel(path, file)
        if digest is not None and parcel.digest != digest:
            raise StorageError("the file", reason="it changed before it was sent", cure="Run the same command again.")
        return send_parcel(parcel, to, allow_http=allow_http, overwrite=overwrite, waits=waits, progress=progress)


def send_parcel(
    parcel: Parcel,
    to: str | Path,
    *,
    allow_http: bool = False,
    overwrite: bool = False,
    waits: Sequence[float] | None = None,
    progress: Progress | None = None,
) -> SendResult:
    """Send a file that was checked. The arguments are those of `send_file`; a sealed file may always go over http."""
    from fsspec.implementations.local import LocalFileSystem

    allow_http = allow_http or parcel.form.is_sealed
    if is_presigned(to):
        return _put(parcel, str(to), allow_http, waits, progress)
    if not is_url(to):
        return _copy(parcel, local_path(to), str(to).endswith("/"), overwrite, progress)
    system, root = open_store(str(to), allow_http=allow_http)
    if isinstance(system, LocalFileSystem):  # as local:// does
        return _copy(parcel, Path(root or "/"), str(to).endswith("/"), overwrite, progress)
    return _upload(parcel, str(to), system, root, overwrite, waits, progress)


def require_address(to: str | Path, *, allow_http: bool = False) -> None:
    """Raise an error for a URL that is malformed, unknown or unprotected, before any work; a path is not checked."""
    if is_presigned(to):
        parse_presigned(str(to), allow_http=allow_http, what="the bundle")
    elif is_url(to):
        open_store(str(to), allow_http=allow_http)


def _put(
    parcel: Parcel, address: str, allow_http: bool, waits: Sequence[float] | None, progress: Progress | None
) -> SendResult:
    parts = parse_presigned(address, allow_http=allow_http, what="the bundle")

    def attempt() -> Answer:
        answer = put_file(
            parts, parcel.file, size=parcel.size, digest=parcel.digest, allow_http=allow_http, progress=progress
        )
        if answer.is_transient:
            raise TransientError(f"the store answered {answer.status}", answer.retry_after)
        if not 200 <= answer.status < 300:
            raise answer.explain()
        if answer.checksum and answer.checksum != parcel.checksum:
            raise TransientError("the store reports a different checksum")
        return answer

    try:
        answer, tries = retry(attempt, waits=waits)
    except TransientError as problem:
        reason = f"{redact_address(address)} cannot be written: {problem.reason}"
        raise StorageError("the upload", reason=reason, cure=_AGAIN) from None
    return SendResult(answer.where, *parcel.description, tries, bool(answer.checksum))


def _upload(
    parcel: Parcel,
    address: str,
    system: Any,
    root: str,
    overwrite: bool,
    waits: Sequence[float] | None,
    progress: Progress | None,
) -> SendResult:
    try:
        is_folder = not parcel.is_named_by(address) or bool(system.isdir(root))
    except Exception:  # permission to write need not include permission to list
        is_folder = False
    if is_folder:
        root, address = f"{root}/{parcel.name}", f"{address.rstrip('/')}/{parcel.name}"
    if not overwrite and _is_stored(system, root, parcel):
        return SendResult(redact_address(address), *parcel.description, 0, True, there_before=True)
    again = Path(f"/proc/self/fd/{parcel.file.fileno()}")  # the open file itself, on systems that have a path for it
    source = again if again.exists() else parcel.path

    def intact() -> bool:
        parcel.file.seek(0)
        same = os.path.samestat(source.stat(), os.fstat(parcel.file.fileno()))
        return same and hashlib.file_digest(cast(Any, parcel.file), "sha256").hexdigest() == parcel.digest

    tries, confirmed = upload(
        source, system, root, address=address, what="the upload", intact=intact, waits=waits, progress=progress
    )
    return SendResult(redact_address(address), *parcel.description, tries, confirmed)


def _copy(parcel: Parcel, target: Path, is_folder: bool, overwrite: bool, progress: Progress | None) -> SendResult:
    with explain_os_errors("the place to send to"):
        if is_folder or not parcel.is_named_by(str(target)) or target.is_dir():
            target = target / parcel.name
        there = target.exists()
    if there and hash_file(target, what="the place to send to") != parcel.digest:
        with open_plain_file(target, what="the place to send to") as stored:
            if not (overwrite or _is_beginning(stored, parcel.file)):  # an interrupted copy is a beginning of the file
                raise _refuse_overwrite()
        there = False
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
                raise report_change()
    return SendResult(str(target), *parcel.description, 0 if there else 1, True, there_before=there)


def open_store(address: str, *, allow_http: bool) -> tuple[Any, str]:
    """Return a receiver's fsspec file system, and the path in it; refuse addresses that are chained or unprotected."""
    if "::" in address:
        reason = "it chains several file systems with ::, so that it is not known which connections a file takes"
        raise RefusedError("the address", reason=reason, cure="Give only the address of the store.")
    if read_scheme(address) in _UNPROTECTED and not allow_http:
        raise refuse_unprotected(
            "the bundle", f"the address begins with {read_scheme(address)}://, which is not encrypted"
        )
    system, root = open_file_system(address)
    endpoint = "" if allow_http else _find_endpoint(system)
    if endpoint.lower().startswith("http://") and not is_this_machine(urlsplit(endpoint).hostname or ""):
        raise refuse_unprotected(
            "the bundle", "the store's own address (AWS_ENDPOINT_URL, or a profile's) begins with http://"
        )
    return system, root


def _find_endpoint(system: Any) -> str:
    """Return the endpoint of an S3 client; empty if there is none."""
    try:
        return str(system.s3.meta.endpoint_url)
    except Exception:  # not an S3 store; problems with credentials are reported when they are used
        return ""


class OccupiedError(InputError):
    """Raised when a different file already has the name at the address."""


def _refuse_overwrite() -> OccupiedError:
    """Return the error for a file that would be overwritten."""
    return OccupiedError(
        "address",
        problem="A different file with this name is already at the address.",
        cure="It may belong to another participant. Give a file name in --to, such as FOLDER/NAME.bundle.",
    )


def _is_stored(system: Any, target: str, parcel: Parcel) -> bool:
    """Return whether the file is already at the store. A different file of this name is an error.

    The result is False if the store holds no file of this name or only the beginning of the file, as after an interrupted
    upload. It is also False if the store does not tell, for instance without permission to read.
    """

    def look() -> tuple[int, str]:
        try:
            system.invalidate_cache()
            info = system.info(target)
            return int(info["size"]), str(info.get("ETag", "")).strip('"').lower()
        except Exception as problem:
            raise (TransientError("") if is_transient(problem) else LookupError) from None

    try:
        (there, tag), _ = retry(look, waits=WAITS[:1])
    except (TransientError, LookupError):
        return False
    if there > parcel.size:
        raise _refuse_overwrite()
    if there == parcel.size and tag == parcel.checksum:
        return True
    try:
        with system.open(target, "rb") as stream:
            same = _is_beginning(stream, parcel.file)
    except Exception as problem:
        if is_absent(problem):  # removed meanwhile
            return False
        if there == parcel.size and not MD5.fullmatch(tag):  # the store does not tell whether it differs
            return False
        raise _refuse_overwrite() from None
    if not same:
        raise _refuse_overwrite()
    return there == parcel.size


def _is_beginning(stored: BinaryIO, file: BinaryIO) -> bool:
    """Return whether the stored bytes are the file or its beginning."""
    file.seek(0)
    while block := stored.read(_BLOCK):
        if file.read(len(block)) != block:
            return False
    return True
