"""Atomic writing and bounded reading of files.

Data are written to a temporary file beside the target. The temporary file is synced and renamed to the target, and then the
folder is synced. After a crash, the target has either its old content or all of the new content.
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
    errno.ENOSPC: ("the disk is full", "Make room and run the same command again. Finished parts are kept."),
    errno.EDQUOT: ("the quota is used up", "Make room and run the same command again. Finished parts are kept."),
    errno.EROFS: ("the folder is read-only", "Choose another folder, or make this one writable."),
    errno.EACCES: ("permission to write it is denied", "Choose another folder, or change its permissions."),
    errno.EPERM: ("permission to write it is denied", "Choose another folder, or change its permissions."),
    errno.ENOENT: ("its folder does not exist", "Check the path."),
    errno.EISDIR: ("a folder has this name", "Choose another name."),
    errno.ENOTDIR: ("a part of its path is not a folder", "Check the path."),
}


@contextmanager
def open_atomically(path: Path, *, mode: int = 0o644, what: str = "a file") -> Iterator[BinaryIO]:
    """Open a new file for reading and writing that replaces `path` when the block ends without an error."""
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
    """Open an unnamed temporary file on the disk of `folder`, readable by its owner only, for the length of the block."""
    path = _partial_path(folder / "scratch")
    with explain_os_errors(what):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w+b") as file:
                if os.name != "nt":  # Windows does not remove open files
                    path.unlink()
                yield file
        finally:
            path.unlink(missing_ok=True)


def require_writable(path: Path, *, what: str, inputs: Iterable[object] = ()) -> None:
    """Raise an error if `path` cannot be written, or if it is one of the command's input files."""
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
            problem=f"The output is one of the input files, which {what} would overwrite.",
            cure="Choose another --output.",
        )


def require_absent(output: Path, *, force: bool) -> None:
    """Raise an `InputError` if the output already exists, unless `force` is set."""
    if output.exists() and not force:
        cure = "Overwrite it (--force), or write to another file (--output)."
        raise InputError("output", problem=f"{output.name} already exists.", cure=cure)


def write_atomically(path: Path, data: bytes, *, mode: int = 0o644, what: str = "a file") -> None:
    """Replace the content of `path`; `what` names the file in errors."""
    with open_atomically(path, mode=mode, what=what) as file:
        file.write(data)


def copy_atomically(source: Path, target: Path, *, mode: int = 0o644, what: str = "a file") -> None:
    """Replace `target` with a copy of `source`; a large file is hard-linked if the file system allows it."""
    with explain_os_errors(what):
        if source.stat().st_size < _WORTH_LINKING:
            write_atomically(target, source.read_bytes(), mode=mode, what=what)
            return
        beside = _partial_path(target)
        try:
            os.link(source, beside)
        except OSError:  # another disk, or a file system without hard links
            with source.open("rb") as old, open_atomically(target, mode=mode, what=what) as new:
                shutil.copyfileobj(old, new, 2**20)
            return
        try:
            os.replace(beside, target)
        finally:
            with suppress(OSError):  # renaming keeps both names if the target already links to this file
                os.unlink(beside)
        sync_folder(target.parent)


def make_folder(path: Path, *, mode: int = 0o755, what: str = "the folder", tighten: bool = False) -> None:
    """Create a folder and its parents; with `tighten`, an existing folder gets the permissions too."""
    with explain_os_errors(what):
        path.mkdir(mode, parents=True, exist_ok=True)  # permissions are set at creation
        if tighten:
            path.chmod(mode)


def sync_folder(path: Path) -> None:
    """Make the renames in a folder durable."""
    if os.name == "nt":
        return  # Windows cannot open folders, and writes renames to disk at once
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LockHeldError(StorageError):
    """Raised when another process holds a lock."""


@contextmanager
def hold_lock(path: Path, *, what: str, wait_seconds: float = 0.0, shared: bool = False) -> Iterator[None]:
    """Hold a lock file, which is created if missing, while the block runs. A process that dies releases its lock.

    SQLite locks the file in the same way on every system. Several processes can hold a `shared` lock at once. If another
    process still holds the lock after `wait_seconds`, a `LockHeldError` is raised.
    """
    with (
        explain_os_errors(what),
        suppress(FileExistsError),
    ):  # opening and closing an existing lock file would release this process's lock
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with ExitStack() as stack:
        try:
            lock = sqlite3.connect(path, timeout=wait_seconds, isolation_level=None, check_same_thread=False)
            stack.enter_context(closing(lock))
            lock.execute("BEGIN" if shared else "BEGIN EXCLUSIVE")
            lock.execute("SELECT * FROM sqlite_master").fetchall()  # a shared lock starts with the first read
        except sqlite3.Error as problem:
            if getattr(problem, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise LockHeldError(what, reason="another process is using it", cure="Try again later.") from None
            cure = "Check that its folder is writable."
            raise StorageError(what, reason="it cannot be locked", cure=cure) from None
        yield


def clear_partial_files(folder: Path) -> None:
    """Remove the temporary files of interrupted writers. Call it only while nobody else writes to the folder."""
    _unlink_all(folder.glob(f".*{PARTIAL}"))


def clear_partial_copies(path: Path) -> None:
    """Remove the temporary files of interrupted writers of one file. Call it only while nobody else writes that file."""
    _unlink_all(path.parent.glob(f"{glob.escape(_partial_prefix(path))}*{PARTIAL}"))


def _unlink_all(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()


def _partial_path(path: Path) -> Path:
    """Return a new temporary path beside a file. The name shows to which file the temporary one belongs."""
    return path.parent / f"{_partial_prefix(path)}{secrets.token_hex(8)}{PARTIAL}"


def _partial_prefix(path: Path) -> str:
    return f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}-"


@contextmanager
def explain_os_errors(what: str) -> Iterator[None]:
    """Turn an OSError into a StorageError that says what to do and does not reveal a path."""
    try:
        yield
    except OSError as problem:
        reason, cure = _REASONS.get(
            problem.errno or 0, (problem.strerror or "the disk failed", "Try again. Finished parts are kept.")
        )
        raise StorageError(what, reason=reason, cure=cure) from None


def open_plain_file(path: Path, *, what: str) -> BinaryIO:
    """Open a regular file for reading. A folder, a pipe or a device is an error, since other people may choose the path."""
    try:
        if not path.is_file():
            raise StorageError(what, reason="it does not exist or is not a regular file", cure="Check the path.")
        return path.open("rb")
    except OSError:
        raise StorageError(what, reason="it cannot be read", cure="Check its permissions.") from None


def read_bounded(path: Path, most_bytes: int, *, what: str) -> bytes:
    """Return the content of a file, or raise a `RefusedError` if it is larger than `most_bytes`."""
    with explain_os_errors(what), open_plain_file(path, what=what) as file:
        data = file.read(min(os.fstat(file.fileno()).st_size, most_bytes) + 1)  # read() allocates a buffer of this size
    if len(data) > most_bytes:
        size = f"{most_bytes // 2**20} MB" if most_bytes >= 2**20 else f"{most_bytes} bytes"
        raise RefusedError(
            what, reason=f"it is larger than {size}", cure="Check the path, or ask the sender for it again."
        )
    return data


def hash_file(path: Path, *, what: str) -> str:
    """Return the SHA-256 digest of a file in hexadecimal."""
    with open_plain_file(path, what=what) as file:
        return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()
