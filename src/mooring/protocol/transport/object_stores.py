"""Reading from and writing to object stores and other fsspec file systems, with retries and plain error messages.

The message of a store is never shown, because it may quote credentials.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from mooring.atomic_io import open_atomically
from mooring.errors import InputError, MissingExtraError, StorageError
from mooring.protocol.transport.addresses import is_presigned, read_scheme, redact_address
from mooring.typing import Progress

WAITS: tuple[float, ...] = (0.5, 2.0, 8.0)
"""Seconds between attempts; there is one attempt more than there are waits."""
TOO_LARGE, IN_PART, NOT_GIVEN, NOT_THERE, NOT_DOWNLOADED = (
    "it is larger than such a file may be",
    "only a part of it could be downloaded",
    "the store refuses access to it",
    "it is not at the store (404)",
    "it could not be downloaded",
)
_BLOCK = 2**22
_LONGEST_WAIT = 60.0
_EXTRAS = {"s3": ("s3fs", "s3"), "s3a": ("s3fs", "s3")}
_NO_CREDENTIALS = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "ProfileNotFound",
    "TokenRetrievalError",
)
Answer = TypeVar("Answer")


class TransientError(Exception):
    """Raised when another attempt may succeed, for instance because a connection broke or the store asked to wait."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.wait = reason, wait


class _StoppedError(Exception):
    """Raised when another attempt at a download would not help; the message is the reason."""


def report_change() -> StorageError:
    """Return the error for a file that changed while it was sent."""
    return StorageError(
        "the file", reason="it changed while it was sent", cure="Send it again when no program writes to it."
    )


def is_denied(problem: BaseException) -> bool:
    """Return whether a store denied access (401, 403)."""
    return any(
        isinstance(error, PermissionError) or getattr(error, "status", None) in (401, 403) for error in _chain(problem)
    )


def is_absent(problem: BaseException) -> bool:
    """Return whether a store reported that the object does not exist (404)."""
    return any(
        isinstance(error, FileNotFoundError) or getattr(error, "status", None) == 404 for error in _chain(problem)
    )


def lacks_credentials(problem: BaseException) -> bool:
    """Return whether the store's client has no credentials."""
    return any(type(error).__name__ in _NO_CREDENTIALS for error in _chain(problem))


def is_transient(problem: BaseException) -> bool:
    """Return whether another attempt may succeed."""
    return not (lacks_credentials(problem) or is_denied(problem) or is_absent(problem))


def explain_store_error(problem: BaseException, *, what: str, address: str, doing: str = "used") -> StorageError:
    """Return an error that explains a store's exception, and says that the address cannot be `doing`, such as 'listed'."""
    if lacks_credentials(problem):
        reason = "there are no credentials for the store"
        cure = (
            "Set them as the store's tools expect (for s3:// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile). "
            "Participants need none with a presigned address, which 'mooring invite' makes."
        )
    elif is_denied(problem):
        reason = "the store refuses access (401 or 403)"
        cure = "Check that your credentials have not expired and allow listing, reading and writing there."
    elif is_absent(problem):
        reason = "it does not exist (404)"
        cure = "Check bucket and folder. Stores have no empty folders: a folder exists once it holds a file."
    else:
        reason = "the store could not be reached, or the connection broke"
        cure = "Check the address and the network, then run the same command again."
    return StorageError(what, reason=f"{redact_address(address)} cannot be {doing}: {reason}", cure=cure)


def retry(attempt: Callable[[], Answer], *, waits: Sequence[float] | None = None) -> tuple[Answer, int]:
    """Call `attempt`, and again after each `TransientError` while waits are left; return its result and the number of calls.

    Any other error is raised at once, and the `TransientError` of the last call is raised, too.
    """
    waits = WAITS if waits is None else waits
    for tried, wait in enumerate(waits, start=1):
        try:
            return attempt(), tried
        except TransientError as problem:
            time.sleep(min(max(wait, problem.wait), _LONGEST_WAIT))
    return attempt(), len(waits) + 1


def open_file_system(address: str, **options: Any) -> tuple[Any, str]:
    """Return the fsspec file system of an address, and the path in it."""
    import fsspec

    scheme = read_scheme(address)
    try:
        system, root = fsspec.core.url_to_fs(address, **options)
    except ImportError:
        if scheme in _EXTRAS:
            package, extra = _EXTRAS[scheme]
            raise MissingExtraError(needed_for=f"an address {scheme}://", package=package, extra=extra) from None
        expected, cure = "of a scheme whose package is installed", "Install the fsspec package for this scheme."
        raise InputError("address", expected=expected, got=f"{scheme}://", cure=cure) from None
    except ValueError:
        expected, cure = "a folder or a URL that fsspec knows", "For example s3://bucket/inbox."
        raise InputError("address", expected=expected, got=f"{scheme}://", cure=cure) from None
    except Exception as problem:
        raise explain_store_error(problem, what="the store", address=address) from None
    return system, str(root).rstrip("/")


def open_folder(address: str) -> tuple[Any, str]:
    """Return the fsspec file system of a folder, and the path in it; an http(s) address, of one file, is an error."""
    if is_presigned(address):
        expected, got = "a folder, or a URL of a store such as s3://bucket/results", "a presigned address of one file"
        cure = "Give a folder. Files at presigned addresses can be fetched with any other tool."
        raise InputError("address", expected=expected, got=got, cure=cure)
    return open_file_system(address)


def read_size(system: Any, path: str) -> int | None:
    """Return the size of a file at the store; None if the store does not tell, for instance without permission to read."""
    try:
        system.invalidate_cache()
        size = system.info(path).get("size")
    except Exception:
        return None
    return size if isinstance(size, int) else None


def upload(
    source: Path,
    system: Any,
    target: str,
    *,
    address: str,
    what: str,
    intact: Callable[[], bool] | None = None,
    waits: Sequence[float] | None = None,
    progress: Progress | None = None,
) -> tuple[int, bool]:
    """Write a file to a store, and return the number of attempts and whether the store confirmed its size.

    Every attempt sends the whole file. After a file was sent, `intact` returns whether the source is unchanged. If the
    source has changed, the uploaded file is removed, where the store allows it, and an error is raised.
    """
    from fsspec.callbacks import Callback

    size = source.stat().st_size

    class ProgressCallback(Callback):  # type: ignore[misc]
        def call(self, *_: Any, **__: Any) -> None:
            if progress:
                progress(min(self.value, size), size)

    def attempt() -> bool:
        try:
            system.put_file(str(source), target, callback=ProgressCallback())
            stored = read_size(system, target)
        except Exception as problem:
            if is_transient(problem):
                raise TransientError("the store could not be reached, or the connection broke") from None
            raise explain_store_error(problem, what=what, address=address, doing="written") from None
        if intact and not intact():
            with suppress(Exception):
                system.rm_file(target)
            raise report_change()
        if stored is not None and stored != size:
            raise TransientError("only a part of it arrived")
        return stored is not None

    try:
        is_confirmed, tries = retry(attempt, waits=waits)
    except TransientError as problem:
        reason = f"{redact_address(address)} cannot be written: {problem.reason}"
        cure = "Check the address and the network, then run the same command again: it sends the same bytes."
        raise StorageError(what, reason=reason, cure=cure) from None
    return tries, is_confirmed


def send_folder(place: Path, files: Sequence[str], *, address: str) -> None:
    """Send those of `files` that exist in the folder `place`, in the order of `files`, then remove the folder."""
    system, root = open_folder(address)
    for file in files:
        if (place / file).is_file():
            upload(place / file, system, f"{root}/{file}", address=f"{address}/{file}", what="the result")
    shutil.rmtree(place)


Part = Sequence[tuple[int, int]]
"""The stretches of a file that are downloaded, each as its start and length, in ascending order."""


def download(
    system: Any,
    name: str,
    target: Path,
    *,
    size: int | None,
    most_bytes: int,
    what: str,
    part: Part | None = None,
    waits: Sequence[float] | None = None,
) -> str | None:
    """Download a file, or part of it, to `target`, and return None; after a failure, return the reason.

    A failure leaves `target` unchanged. If `target` cannot be written, for instance on a full disk, an error is raised.
    """
    if size is not None and size > most_bytes:
        return TOO_LARGE

    def read(call: Callable[..., Answer], *arguments: Any, otherwise: str) -> Answer:
        try:
            return call(*arguments)
        except Exception as problem:
            if is_denied(problem) or lacks_credentials(problem):
                raise _StoppedError(NOT_GIVEN) from None
            raise (_StoppedError(NOT_THERE) if is_absent(problem) else TransientError(otherwise)) from None

    options = {} if part is None else {"cache_type": "none"}  # fetch the bytes that are read, and none ahead
    open_stream = partial(system.open, name, "rb", **options)

    def attempt() -> None:
        read(system.invalidate_cache, otherwise=NOT_DOWNLOADED)  # an old listing may have a different size
        with open_atomically(target, what=what) as file, read(open_stream, otherwise=NOT_DOWNLOADED) as stream:
            if part is not None:
                read(_copy_part, stream, file, part, otherwise=IN_PART)
                return
            copied = 0
            while block := bytes(read(stream.read, _BLOCK, otherwise=IN_PART)):
                copied += len(block)
                if copied > most_bytes:
                    raise _StoppedError(TOO_LARGE)
                file.write(block)
            if size is not None and copied < size:
                raise TransientError(IN_PART)

    try:
        retry(attempt, waits=waits)
    except (_StoppedError, TransientError) as problem:
        return str(problem)
    return None


def _copy_part(stream: BinaryIO, file: BinaryIO, part: Part) -> None:
    position = 0
    for start, length in part:
        try:
            if start > position:
                stream.seek(start)
        except (ValueError, NotImplementedError):  # a server that hands out whole files only
            while position < start and (block := stream.read(min(_BLOCK, start - position))):
                position += len(block)
        file.write(bytes(stream.read(length)))
        position = start + length


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while problem is not None and problem not in seen:
        seen.append(problem)
        yield problem
        problem = problem.__cause__ or problem.__context__
