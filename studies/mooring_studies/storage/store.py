"""Results of a study on disk, so that a run that was stopped, however it was, goes on where it was.

    <folder>/results.parquet, facts.json, pictures.npz     what a finished run leaves
    <folder>/store/<key>/rows-000001.parquet …             rows as they were finished, one file a chunk
    <folder>/store/<key>/kept/                             named tables and arrays: facts, pictures, trained networks
    <folder>/store/<key>/made.json, lock

The key is a digest of settings and code. A chunk is written beside its place, made to last, and renamed: it is there whole
or not at all. A file that cannot be read is renamed to *.unreadable and noted, and its rows count as not done.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from mooring import InputError, StorageError
from mooring.atomic_io import PARTIAL, LockHeldError, explain_os_errors, hold_lock, make_folder, write_atomically
from mooring_studies.comparison.results import Results, decode_rows, encode_rows, read_results, to_plain, write_results

FACTS, PICTURES = "facts", "pictures"
_CHUNK = "rows-{:06d}.parquet"
_CHUNK_NAME = re.compile(r"rows-(\d{6})\.parquet")
_CHECKSUM = re.compile(r"[0-9a-f]{64}")
_UNREADABLE = ".unreadable"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
Decoded = TypeVar("Decoded")


class ResultStore:
    """Rows and artefacts of one study with one key; one process at a time.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with ResultStore(Path(folder), "abc", {"mooring": "1.0", "date": "today"}) as store:
    ...         store.append([{"method": "i-gdp", "draw": 0, "balanced_accuracy": 0.5}])
    ...     with ResultStore(Path(folder), "abc", {}) as store:
    ...         print(store.done(method="i-gdp"), store.rows())
    {0} [{'method': 'i-gdp', 'draw': 0, 'balanced_accuracy': 0.5}]
    """

    def __init__(self, folder: Path, key: str, facts: Mapping[str, Any]) -> None:
        self.folder, self.key = folder, key
        self.place = folder / "store" / key
        self.notes: list[str] = []
        make_folder(self.place / "kept", what="the folder of results")
        self._lock = ExitStack()
        self._lock.enter_context(lock_folder(self.place))
        try:
            with explain_os_errors("the folder of results"):
                for left in sorted([*self.place.glob(f".*{PARTIAL}"), *self.place.glob(f"kept/.*{PARTIAL}")]):
                    self._set_aside(left, "was being written when a run was ended")
                chunks = _chunks_in(self.place)
            self._next = 1 + max(chunks, default=0)
            again = "cannot be read; its rows are computed again"
            read = [self._read(chunks[number], decode_rows, again) for number in sorted(chunks)]
            self._rows = [row for rows in read for row in rows or ()]
            if self._read(self.place / "made.json", decode_table) is None:
                self._write(self.place / "made.json", encode_table(facts))
        except BaseException:
            self.close()
            raise

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Keep finished rows, all of them or none; values that are None are left out."""
        kept = [{name: to_plain(value) for name, value in row.items()} for row in rows]
        kept = [{name: value for name, value in row.items() if value is not None} for row in kept]
        if not kept:
            return
        self._write(self.place / _CHUNK.format(self._next), encode_rows(kept))
        self._next += 1
        self._rows += kept

    def rows(self) -> list[dict[str, Any]]:
        """All rows that are kept, in the order in which they were finished."""
        return [dict(row) for row in self._rows]

    def done(self, **identity: Any) -> set[int]:
        """The draws of all rows that have these values; None stands for a value that a row does not have."""
        return {
            int(row["draw"])
            for row in self._rows
            if "draw" in row and all(row.get(name) == value for name, value in identity.items())
        }

    def keep(self, name: str, value: Mapping[str, Any]) -> None:
        """Keep a named table of plain values, or of NumPy arrays, in place of what had that name."""
        path = self._kept_path(name)
        arrays = [isinstance(array, np.ndarray) for array in value.values()]
        if any(arrays) and not all(arrays):
            raise InputError(
                f"what is kept as {name!r}", expected="all arrays or none", got="some of each", cure="Keep them apart."
            )
        if not any(arrays):
            self._write(path.with_name(f"{name}.json"), encode_table(value))
            path.with_name(f"{name}.npz").unlink(missing_ok=True)
            return
        if any(array.dtype == object for array in value.values()):
            raise InputError(
                f"what is kept as {name!r}", expected="arrays of numbers or text", got="objects", cure="Convert them."
            )
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **value)
        self._write(path.with_name(f"{name}.npz"), content.getvalue())
        path.with_name(f"{name}.json").unlink(missing_ok=True)

    def kept(self, name: str) -> dict[str, Any] | None:
        """What was kept under a name; None where nothing was, or where it cannot be read any more."""
        path = self._kept_path(name)
        table = self._read(path.with_name(f"{name}.json"), decode_table)
        return self._read(path.with_name(f"{name}.npz"), decode_arrays) if table is None else table

    def bind(self, name: str, value: str) -> None:
        """Hold the store to one input, such as a data file's checksum: rows of two different ones must not mix."""
        bound = self.kept("inputs") or {}
        if bound.get(name, value) != value:
            raise _made_from_another(name, bound[name], value)
        if name not in bound:
            self.keep("inputs", bound | {name: value})

    def others(self) -> list[str]:
        """Stores of other settings or versions in the same folder, in words; those without a row are not worth any."""
        words = []
        for place in sorted((self.folder / "store").iterdir()):
            if place == self.place or not place.is_dir() or not _chunks_in(place):
                continue
            try:
                made = json.loads((place / "made.json").read_text(encoding="utf-8"))
                version, date = made.get("mooring", "of unknown version"), made.get("date", "at an unknown time")
            except (OSError, ValueError, AttributeError):
                version, date = "of unknown version", "at an unknown time"
            words.append(
                f"results of another spec or version (mooring {version}, made {date}) are in {place}; they are kept; this "
                "run starts its own"
            )
        return words

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write the final outputs: results.parquet, facts.json, and pictures.npz where pictures were kept."""
        write_results(self._rows, self.folder / "results.parquet")
        self._write(self.folder / "facts.json", encode_table(facts))
        pictures = self._read(self.place / "kept" / f"{PICTURES}.npz", bytes)
        if pictures is not None:
            self._write(self.folder / "pictures.npz", pictures)
        else:  # those of an earlier run would not belong to these results
            (self.folder / "pictures.npz").unlink(missing_ok=True)

    def close(self) -> None:
        """Let another process have the store."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def _kept_path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise InputError("name", expected="lower-case letters, digits, . _ -", got=repr(name), cure="Rename it.")
        return self.place / "kept" / name

    def _read(self, path: Path, decode: Callable[[bytes], Decoded], trouble: str = "cannot be read") -> Decoded | None:
        """What a file holds; None where it is missing, or where its content is broken: then it is set aside.

        A disk that cannot be read, unlike a file with wrong content, ends the run.
        """
        try:
            with explain_os_errors(path.name):
                content = path.read_bytes() if path.exists() else None
            return None if content is None else decode(content)
        except (MemoryError, StorageError):  # the content may be intact
            raise
        except Exception:  # whatever a broken file makes its reader say
            self._set_aside(path, trouble)
            return None

    def _set_aside(self, path: Path, why: str) -> None:
        aside, k = path.with_name(path.name + _UNREADABLE), 1
        while aside.exists():
            aside, k = path.with_name(f"{path.name}{_UNREADABLE}.{k}"), k + 1
        path.rename(aside)
        self.notes.append(f"{path.name} {why}; it is set aside as {aside.relative_to(self.folder)}")

    def _write(self, path: Path, content: bytes) -> None:
        write_atomically(path, content, what="the results")


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder while the block runs. Its file stays: removing it could let two processes in."""
    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(folder / "lock", what="the folder of results"))
        except LockHeldError:
            raise StorageError(
                f"the results in {folder}",
                reason="another run is working on them",
                cure="Wait until it ends, end it, or name another --output.",
            ) from None
        yield


@contextmanager
def one_run_at_a_time(folder: Path, *, make: bool) -> Iterator[None]:
    """Lock a study's folder, whatever settings a run has: all of them write the same table, figures and page."""
    if make:
        make_folder(folder / "store", what="the folder of results")
    if not (folder / "store").is_dir():
        yield
        return
    with lock_folder(folder / "store"):
        yield


@dataclass(frozen=True, eq=False)
class Finished:
    """A finished study as it lies on disk."""

    results: Results
    facts: dict[str, Any]
    pictures: dict[str, Any] | None
    """None where the study has none, or where they were not kept with it."""

    @property
    def study(self) -> str:
        """Its name."""
        return str(self.facts["study"])


def read_finished(folder: Path) -> Finished:
    """Read results.parquet, facts.json and, where it is there, pictures.npz."""
    results = read_results(folder / "results.parquet")
    facts = _read_finished_file(folder / "facts.json", decode_table)
    if not isinstance(facts.get("study"), str):
        raise _unusable("facts.json")
    pictures = folder / "pictures.npz"
    return Finished(results, facts, _read_finished_file(pictures, decode_arrays) if pictures.exists() else None)


def _read_finished_file(path: Path, decode: Callable[[bytes], dict[str, Any]]) -> dict[str, Any]:
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        raise StorageError(path.name, reason=f"it is not in {path.parent}", cure="Run the study first.") from None
    except OSError as problem:
        reason = problem.strerror or "the disk failed"
        raise StorageError(path.name, reason=reason, cure="Check the folder's permissions.") from None
    except MemoryError:
        raise
    except Exception:  # whatever a broken file makes its reader say
        raise _unusable(path.name) from None


def _unusable(name: str) -> StorageError:
    return StorageError(
        name, reason="it cannot be read", cure="Run the study again; what it has finished is used again."
    )


def decode_table(content: bytes) -> dict[str, Any]:
    """A table of plain values, from JSON."""
    plain = json.loads(content)
    if not isinstance(plain, dict):
        raise ValueError("no table")
    return plain


def decode_arrays(content: bytes) -> dict[str, Any]:
    """Named arrays, from NumPy's archive."""
    with np.load(io.BytesIO(content), allow_pickle=False) as opened:
        return {name: opened[name] for name in opened.files}


def _chunks_in(place: Path) -> dict[int, Path]:
    """The chunks of a store by their numbers; copies and other files that lie beside them are none."""
    matches = ((path, _CHUNK_NAME.fullmatch(path.name)) for path in place.glob("rows-*.parquet"))
    return {int(match[1]): path for path, match in matches if match}


def _made_from_another(name: str, before: str, now: str) -> InputError:
    """The error for rows of two inputs in one folder; an input is a file by its checksum, or a data set by its name."""
    if _CHECKSUM.fullmatch(now):
        return InputError(
            name,
            expected=f"the one that the kept results were made from ({before[:16]}…)",
            got=f"another ({now[:16]}…)",
            cure="Use the same file again, or name another --output.",
        )
    return InputError(
        "the data set that this run takes its rows from",
        expected=f"the one that the kept results were made from, {before}",
        got=now,
        cure="Name another --output, or the --data-dir that the kept results had.",
    )


def encode_table(value: Mapping[str, Any]) -> bytes:
    """A table of plain values as JSON, as `decode_table` reads it."""
    return (json.dumps(to_plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
