"""Object stores and other places that fsspec knows: read and written with tries again, and errors in plain words.

A store's own message is never shown: it may quote credentials, and it is written for somebody else.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from mooring.atomic_io import open_atomically
from mooring.errors import InputError, MissingExtraError, StorageError
from mooring.protocol.transport.addresses import is_presigned, read_scheme, redact_address
from mooring.typing import Progress

WAITS: tuple[float, ...] = (0.5, 2.0, 8.0)
"""Seconds between one try and the next; there is one try more than there are waits."""
TOO_LARGE, IN_PART, NOT_GIVEN, NOT_THERE, NOT_DOWNLOADED = (
    "it is larger than any bundle may be",
    "it came only in part",
    "the store refuses to hand it out",
    "it is not there any more",
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
    """The connection to a store broke, or the store asked for patience: worth another try."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.wait = reason, wait


class _StoppedError(Exception):
    """A download that no other try would help; its reason."""


def report_change() -> StorageError:
    """The error of a file that is not any more what was to be sent."""
    return StorageError(
        "the file", reason="it changed while it was sent", cure="Send it again when nobody writes to it."
    )


def is_denied(problem: BaseException) -> bool:
    """Whether a store said no (401, 403)."""
    return any(
        isinstance(one, PermissionError) or getattr(one, "status", None) in (401, 403) for one in _chain(problem)
    )


def is_absent(problem: BaseException) -> bool:
    """Whether a store said that there is nothing (404)."""
    return any(isinstance(one, FileNotFoundError) or getattr(one, "status", None) == 404 for one in _chain(problem))


def lacks_credentials(problem: BaseException) -> bool:
    """Whether the store's client found no credentials."""
    return any(type(one).__name__ in _NO_CREDENTIALS for one in _chain(problem))


def is_transient(problem: BaseException) -> bool:
    """Whether another try may help."""
    return not (lacks_credentials(problem) or is_denied(problem) or is_absent(problem))


def explain_store_error(problem: BaseException, *, what: str, address: str, doing: str = "used") -> StorageError:
    """What a store's error means, and what to do about it."""
    if lacks_credentials(problem):
        reason = "there are no credentials for the store"
        cure = (
            "Set them as its tools expect (for s3:// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile); a "
            "participant needs none with a presigned address, which 'mooring invite' makes."
        )
    elif is_denied(problem):
        reason = "the store refuses access (403)"
        cure = "Check that your credentials are not expired, and may list, read and write there."
    elif is_absent(problem):
        reason = "nothing is there (404)"
        cure = "Check bucket and folder; a store knows no empty folders, so there is none before the first file."
    else:
        reason = "the store could not be reached, or broke off"
        cure = "Check the address and the network, then run the same command again; nothing finished is lost."
    return StorageError(what, reason=f"{redact_address(address)} cannot be {doing}: {reason}", cure=cure)


def retry(attempt: Callable[[], Answer], *, waits: Sequence[float] | None = None) -> tuple[Answer, int]:
    """Try until it works or there are no more waits; the answer, and how many tries it took."""
    waits = WAITS if waits is None else waits
    for tried, wait in enumerate(waits, start=1):
        try:
            return attempt(), tried
        except TransientError as problem:
            time.sleep(min(max(wait, problem.wait), _LONGEST_WAIT))
    return attempt(), len(waits) + 1


def open_file_system(address: str, **options: Any) -> tuple[Any, str]:
    """What fsspec makes of an address: a file system, and a path in it."""
    import fsspec

    scheme = read_scheme(address)
    try:
        system, root = fsspec.core.url_to_fs(address, **options)
    except ImportError:
        if scheme in _EXTRAS:
            package, extra = _EXTRAS[scheme]
            raise MissingExtraError(needed_for=f"an address {scheme}://", package=package, extra=extra) from None
        expected, cure = "of a kind whose package is installed", "Install the package that fsspec names for this kind."
        raise InputError("address", expected=expected, got=f"{scheme}://", cure=cure) from None
    except ValueError:
        expected, cure = "a folder or a URL that fsspec knows", "For example s3://bucket/inbox."
        raise InputError("address", expected=expected, got=f"{scheme}://", cure=cure) from None
    except Exception as problem:
        raise explain_store_error(problem, what="the store", address=address) from None
    return system, str(root).rstrip("/")


def open_folder(address: str) -> tuple[Any, str]:
    """What fsspec makes of the address of a folder; a presigned address is for a single file."""
    if is_presigned(address):
        expected, got = "a folder, or a URL of a store such as s3://bucket/results", "one for a single file"
        cure = "Give a folder; files at such addresses are fetched with any other tool."
        raise InputError("address", expected=expected, got=got, cure=cure)
    return open_file_system(address)


def read_size(system: Any, path: str) -> int | None:
    """How large a file is at the store; None if it does not say, as to somebody who may write but not read."""
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
    """Write a file to a store, from its first byte at every try; how many tries, and whether its size was told.

    Where the store tells how large the file has become, that must be its size here.
    """
    from fsspec.callbacks import Callback

    size = source.stat().st_size

    class Told(Callback):  # type: ignore[misc]
        def call(self, *_: Any, **__: Any) -> None:
            if progress:
                progress(min(self.value, size), size)

    def attempt() -> bool:
        try:
            system.put_file(str(source), target, callback=Told())
            stored = read_size(system, target)
        except Exception as problem:
            if is_transient(problem):
                raise TransientError("the store could not be reached, or broke off") from None
            raise explain_store_error(problem, what=what, address=address, doing="written") from None
        if intact and not intact():
            with suppress(Exception):
                system.rm_file(target)
            raise report_change()
        if stored is not None and stored != size:
            raise TransientError("only a part of it arrived")
        return stored is not None

    try:
        told, tries = retry(attempt, waits=waits)
    except TransientError as problem:
        reason = f"{redact_address(address)} cannot be written: {problem.reason}"
        cure = "Check the address and the network, then run the same command again: it sends the same bytes."
        raise StorageError(what, reason=reason, cure=cure) from None
    return tries, told


def send_folder(place: Path, files: Sequence[str], *, address: str) -> None:
    """Send those of the files that are in a folder, and remove it."""
    system, root = open_folder(address)
    for file in files:
        if (place / file).is_file():
            upload(place / file, system, f"{root}/{file}", address=f"{address}/{file}", what="the result")
    shutil.rmtree(place)


def download(
    system: Any,
    name: str,
    target: Path,
    *,
    size: int | None,
    most_bytes: int,
    what: str,
    waits: Sequence[float] | None = None,
) -> str | None:
    """Fetch a file into `target`. Returns None on success, else the reason; then `target` is as it was."""
    if size is not None and size > most_bytes:
        return TOO_LARGE

    def read(call: Callable[..., Answer], *arguments: Any, otherwise: str) -> Answer:
        try:
            return call(*arguments)
        except Exception as problem:
            if is_denied(problem) or lacks_credentials(problem):
                raise _StoppedError(NOT_GIVEN) from None
            raise (_StoppedError(NOT_THERE) if is_absent(problem) else TransientError(otherwise)) from None

    def attempt() -> None:
        read(system.invalidate_cache, otherwise=NOT_DOWNLOADED)  # a listing from before may tell another size
        with (
            open_atomically(target, what=what) as file,
            read(system.open, name, "rb", otherwise=NOT_DOWNLOADED) as stream,
        ):
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


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while problem is not None and problem not in seen:
        seen.append(problem)
        yield problem
        problem = problem.__cause__ or problem.__context__
