"""A finished study as it lies on disk: its table, its facts, its pictures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mooring import StorageError
from mooring_studies.comparison.results import Results, read_results


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
    facts = _facts(folder / "facts.json")
    path = folder / "pictures.npz"
    if not path.exists():
        return Finished(results, facts, None)
    try:
        with np.load(path, allow_pickle=False) as opened:
            return Finished(results, facts, {name: opened[name] for name in opened.files})
    except MemoryError:
        raise
    except Exception:  # whatever a broken file makes its reader say
        raise _unusable(path) from None


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(facts, dict) or not isinstance(facts.get("study"), str):
            raise ValueError("no facts of a study")
    except FileNotFoundError:
        raise StorageError(path.name, reason=f"it is not in {path.parent}", cure="Run the study first.") from None
    except OSError as problem:
        reason = problem.strerror or "the disk failed"
        raise StorageError(path.name, reason=reason, cure="Check the folder's permissions.") from None
    except ValueError:
        raise _unusable(path) from None
    return facts


def _unusable(path: Path) -> StorageError:
    return StorageError(
        path.name, reason="it cannot be read", cure="Run the study again; what it has finished is used again."
    )
