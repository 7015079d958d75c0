"""A finished study as it lies on disk: its table, its facts, its pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mooring import StorageError
from mooring_studies.comparison.results import Results, read_results
from mooring_studies.storage.store import decode_arrays, decode_table


@dataclass(frozen=True, eq=False)
class Finished:
    """A finished study as it lies on disk.

    Attributes
    ----------
    results : Results
    facts : dict
    pictures : dict of arrays, or None
        None where the study has none, or where they were not kept with it.
    """

    results: Results
    facts: dict[str, Any]
    pictures: dict[str, Any] | None

    @property
    def study(self) -> str:
        """Its name."""
        return str(self.facts["study"])


def read_finished(folder: Path) -> Finished:
    """Read results.parquet, facts.json and, where it is there, pictures.npz."""
    results = read_results(folder / "results.parquet")
    facts = _read(folder / "facts.json", decode_table)
    if not isinstance(facts.get("study"), str):
        raise _unusable("facts.json")
    pictures = folder / "pictures.npz"
    return Finished(results, facts, _read(pictures, decode_arrays) if pictures.exists() else None)


def _read(path: Path, decode: Callable[[bytes], dict[str, Any]]) -> dict[str, Any]:
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
