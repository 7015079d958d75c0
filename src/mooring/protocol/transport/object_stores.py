"""Object stores and other places that fsspec knows: listed, read and written, with tries again and errors in plain words.

A store's own message is never shown: it may quote credentials, and it is written for somebody else.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from mooring.atomic_io import open_atomically
from mooring.errors import InputError, MissingExtraError, StorageError
from mooring.protocol.transport.addresses import is_presigned, read_scheme, redact_address
from mooring.protocol.transport.store_errors import explain_store_error as explain_store_error
from mooring.protocol.transport.store_errors import is_absent, is_denied, is_transient, lacks_credentials
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
CHANGED = "it changed while it was sent"
_BLOCK = 2**22
_LONGEST_WAIT = 60.0
_EXTRAS = {"s3": ("s3fs", "s3"), "s3a": ("s3fs", "s3")}
Answer = TypeVar("Answer")


class TransientError(Exception):
    """Something between here and the store broke: worth another try.

    Parameters
    ----------
    reason : str
        In plain words.
    wait : float
        Seconds that the store asked to wait.
    """

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.wait = reason, wait


class _StoppedError(Exception):
    """A download that no other try would help; its reason."""


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
        raise InputError(
            "address",
            expected="of a kind whose package is installed",
            got=f"{scheme}://",
            cure="Install the package that fsspec names for this kind of address.",
        ) from None
    except ValueError:
        raise InputError(
            "address",
            expected="a folder or a URL that fsspec knows",
            got=f"{scheme}://",
            cure="For example s3://bucket/inbox.",
        ) from None
    except Exception as problem:
        raise explain_store_error(problem, what="the store", address=address) from None
    return system, str(root).rstrip("/")


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
    """Write a file to a store, whole, from its first byte at every try; how many tries, and whether its size was told.

    Where the store tells how large the file has become, that must be its size here. `intact` is asked after every try if
    the file is still the one that was to be sent; if not, what arrived is removed, where the store allows it.
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
            raise StorageError("the file", reason=CHANGED, cure="Send it again when nobody writes to it.")
        if stored is not None and stored != size:
            raise TransientError("only a part of it arrived")
        return stored is not None

    try:
        told, tries = retry(attempt, waits=waits)
        return tries, told
    except TransientError as problem:
        raise StorageError(
            what,
            reason=f"{redact_address(address)} cannot be written: {problem.reason}",
            cure="Check the address and the network, then run the same command again: it sends the same bytes.",
        ) from None


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
    """Fetch a file, bounded, into `target`, which is there whole or as before; why it could not be, or None.

    Parameters
    ----------
    system, name
        The file system, and the path in it.
    target : Path
    size : int or None
        As listed: a shorter file came only in part.
    most_bytes : int
    what : str
        What an error of the disk calls it.
    waits : sequence of float, optional
        Seconds between tries.
    """
    if size is not None and size > most_bytes:
        return TOO_LARGE

    def attempt() -> None:
        with open_atomically(target, what=what) as file, _opened(system, name) as stream:
            copied = 0
            while block := _read(stream):
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


def send_folder(place: Path, files: Sequence[str], *, address: str) -> None:
    """Send those of the files that are in a folder, in this order, and remove it."""
    system, root = open_folder(address)
    for file in files:
        if (place / file).is_file():
            upload(place / file, system, f"{root}/{file}", address=f"{address}/{file}", what="the result")
    shutil.rmtree(place)


def open_folder(address: str) -> tuple[Any, str]:
    """What fsspec makes of the address of a folder; a presigned address is for a single file."""
    if is_presigned(address):
        raise InputError(
            "address",
            expected="a folder, or a URL of a store such as s3://bucket/results",
            got="one for a single file",
            cure="Give a folder; files at such addresses are fetched with any other tool.",
        )
    return open_file_system(address)


def read_size(system: Any, path: str) -> int | None:
    """How large a file is at the store; None if it does not say, as to somebody who may write but not read."""
    try:
        system.invalidate_cache()
        size = system.info(path).get("size")
    except Exception:
        return None
    return size if isinstance(size, int) else None


def _opened(system: Any, name: str) -> Any:
    try:
        system.invalidate_cache()  # a listing from before may tell another size than the file has now
        return system.open(name, "rb")
    except Exception as problem:
        raise _unread(problem, NOT_DOWNLOADED) from None


def _read(stream: Any) -> bytes:
    try:
        return bytes(stream.read(_BLOCK))
    except Exception as problem:
        raise _unread(problem, IN_PART) from None


def _unread(problem: Exception, otherwise: str) -> Exception:
    if is_denied(problem) or lacks_credentials(problem):
        return _StoppedError(NOT_GIVEN)
    return _StoppedError(NOT_THERE) if is_absent(problem) else TransientError(otherwise)
