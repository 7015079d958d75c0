"""Files that are written atomically and read with bounds.

A write goes to a temporary file beside the target, then fsync, rename, fsync of the folder: a crash leaves the old file.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from mooring.errors import InputError, RefusedError, StorageError

__all__ = [
    "PARTIAL",
    "LockHeldError",
    "clear_partial_copies",
    "clear_partial_files",
    "copy_atomically",
    "explain_os_errors",
    "hash_file",
    "hold_lock",
    "make_folder",
    "open_atomically",
    "open_plain_file",
    "open_scratch",
    "read_bounded",
    "require_writable",
    "sync_folder",
    "write_atomically",
]

PARTIAL = ".partial"
_WORTH_LINKING = 2**24
_REASONS = {
    errno.ENOSPC: ("the disk is full", "Make room and run the same command again; nothing finished is lost."),
    errno.EDQUOT: ("the quota is used up", "Make room and run the same command again; nothing finished is lost."),
    errno.EROFS: ("the folder is read-only", "Choose another folder, or make this one writable."),
    errno.EACCES: ("it may not be written", "Choose another folder, or change its permissions."),
    errno.EPERM: ("it may not be written", "Choose another folder, or change its permissions."),
    errno.ENOENT: ("its folder is not there", "Check the path."),
    errno.EISDIR: ("a folder is in its place", "Choose another name."),
    errno.ENOTDIR: ("a part of its path is no folder", "Check the path."),
}


@contextmanager
def open_atomically(path: Path, *, mode: int = 0o644, what: str = "a file") -> Iterator[BinaryIO]:
    """Open a new file for reading and writing; it replaces `path` when the block ends without an error."""
    beside = _partial_path(path)
    with explain_os_errors(what):
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise
        sync_folder(path.parent)


@contextmanager
def open_scratch(folder: Path, *, what: str = "a file") -> Iterator[BinaryIO]:
    """Open a nameless file on the disk of `folder` that only its owner can read, and that is gone with the block."""
    path = _partial_path(folder / "scratch")
    with explain_os_errors(what):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w+b") as file:
                if os.name != "nt":  # Windows removes no file that is open
                    path.unlink()
                yield file
        finally:
            path.unlink(missing_ok=True)


def require_writable(path: Path, *, what: str, inputs: Iterable[object] = ()) -> None:
    """Refuse a `path` that could not be written, or that is one of the command's own inputs."""
    with explain_os_errors(what):
        if not path.parent.is_dir():
            raise OSError(errno.ENOENT, "")
        if path.is_dir():
            raise OSError(errno.EISDIR, "")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, "")
        taken = path.exists() and any(
            path.samefile(each) for each in inputs if isinstance(each, str | Path) and Path(each).exists()
        )
    if taken:
        raise InputError(
            "output",
            expected="another file than those that are read",
            got="one of them",
            cure=f"It would be overwritten by {what}: choose another --output.",
        )


def write_atomically(path: Path, data: bytes, *, mode: int = 0o644, what: str = "a file") -> None:
    """Replace the content of `path`."""
    with open_atomically(path, mode=mode, what=what) as file:
        file.write(data)


def copy_atomically(source: Path, target: Path, *, mode: int = 0o644, what: str = "a file") -> None:
    """Replace `target` with a copy of `source`; a large file is hard-linked where the disk allows."""
    with explain_os_errors(what):
        if source.stat().st_size < _WORTH_LINKING:
            write_atomically(target, source.read_bytes(), mode=mode, what=what)
            return
        beside = _partial_path(target)
        try:
            os.link(source, beside)
        except OSError:  # another disk, or one that knows no links
            with source.open("rb") as old, open_atomically(target, mode=mode, what=what) as new:
                shutil.copyfileobj(old, new, 2**20)
            return
        try:
            os.replace(beside, target)
        finally:
            with suppress(OSError):  # where the target is a link to the same file already, renaming leaves both
                os.unlink(beside)
        sync_folder(target.parent)


def make_folder(path: Path, *, mode: int = 0o755, what: str = "the folder", tighten: bool = False) -> None:
    """Make a folder and those above it."""
    with explain_os_errors(what):
        path.mkdir(mode, parents=True, exist_ok=True)  # with its permissions from the first moment
        if tighten:
            path.chmod(mode)


def sync_folder(path: Path) -> None:
    """Make the renames in a folder durable."""
    if os.name == "nt":
        return  # Windows cannot open folders, and writes renames through
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LockHeldError(StorageError):
    """Another process holds a lock."""


@contextmanager
def hold_lock(path: Path, *, what: str, wait_seconds: float = 0.0, shared: bool = False) -> Iterator[None]:
    """Hold a lock file while the block runs; a process that dies lets go. SQLite locks it, on every system alike.

    Raises
    ------
    LockHeldError
        If another process still holds the lock after that time.
    """
    with explain_os_errors(what), suppress(FileExistsError):  # closing a lock that another holds would let go of it
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with ExitStack() as stack:
        try:
            lock = sqlite3.connect(path, timeout=wait_seconds, isolation_level=None, check_same_thread=False)
            stack.enter_context(closing(lock))
            lock.execute("BEGIN" if shared else "BEGIN EXCLUSIVE")
            lock.execute("SELECT * FROM sqlite_master").fetchall()  # a shared lock begins with the first reading
        except sqlite3.Error as problem:
            if getattr(problem, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise LockHeldError(what, reason="another process is at work in it", cure="Try again later.") from None
            cure = "Check that its folder can be written."
            raise StorageError(what, reason="it cannot be locked", cure=cure) from None
        yield


def clear_partial_files(folder: Path) -> None:
    """Remove what interrupted writers left; call it only while nobody else writes there."""
    _unlink_all(folder.glob(f".*{PARTIAL}"))


def clear_partial_copies(path: Path) -> None:
    """Remove what interrupted writers of one file left; call it only while nobody else writes that file."""
    _unlink_all(path.parent.glob(f"{glob.escape(_partial_prefix(path))}*{PARTIAL}"))


def _unlink_all(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()


def _partial_path(path: Path) -> Path:
    """A new name beside a file, of which an interrupted writer's rest is known to be that file's."""
    return path.parent / f"{_partial_prefix(path)}{secrets.token_hex(8)}{PARTIAL}"


def _partial_prefix(path: Path) -> str:
    return f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}-"


@contextmanager
def explain_os_errors(what: str) -> Iterator[None]:
    """Turn an OSError into a StorageError that says what to do and does not name a file."""
    try:
        yield
    except OSError as problem:
        reason, cure = _REASONS.get(
            problem.errno or 0, (problem.strerror or "the disk failed", "Try again; nothing finished is lost.")
        )
        raise StorageError(what, reason=reason, cure=cure) from None


def open_plain_file(path: Path, *, what: str) -> BinaryIO:
    """Open a file for reading; a folder, a pipe or a device is an error, since somebody else may have named it."""
    try:
        if not path.is_file():
            raise StorageError(what, reason="it is not there, or it is no plain file", cure="Check the path.")
        return path.open("rb")
    except OSError:
        raise StorageError(what, reason="it cannot be read", cure="Check its permissions.") from None


def read_bounded(path: Path, most_bytes: int, *, what: str) -> bytes:
    """Read a whole file, or refuse one that is larger than it may be."""
    with explain_os_errors(what), open_plain_file(path, what=what) as file:
        data = file.read(min(os.fstat(file.fileno()).st_size, most_bytes) + 1)  # a buffer of this size is made
    if len(data) > most_bytes:
        size = f"{most_bytes // 2**20} MB" if most_bytes >= 2**20 else f"{most_bytes} bytes"
        raise RefusedError(what, reason=f"it is larger than {size}", cure="Check the path, or ask its sender again.")
    return data


def hash_file(path: Path, *, what: str) -> str:
    """SHA-256 of a file."""
    with open_plain_file(path, what=what) as file:
        return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()
