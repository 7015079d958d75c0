"""Results of finished points on disk, from which an interrupted audit continues."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mooring.atomic_io import write_atomically
from mooring.audit.operating_points import OperatingPoint
from mooring.audit.results.point_result import PointResult
from mooring.errors import InputError, StorageError


class PointStore:
    """A folder with one JSON file per point, named by a digest of data, settings, code version and point.

    `key` is a digest of everything that the results depend on, except the point. Unless `keep_examples` is set, examples of
    rows are removed from every file in the folder.
    """

    def __init__(self, folder: Path, key: str, *, keep_examples: bool) -> None:
        self.folder, self.key = folder, key
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise InputError(
                "folder",
                expected="a folder that can be made and written to",
                got=str(problem.strerror),
                cure="Choose another place for the audit's files.",
            ) from None
        for path in () if keep_examples else folder.glob("point-*.json"):
            _take_examples_out(path)

    def load(self, point: OperatingPoint) -> PointResult | None:
        """Return the stored result of a point, or None if there is no readable file."""
        try:
            return PointResult.from_json(self._path(point).read_bytes())
        except (OSError, InputError):
            return None

    def save(self, result: PointResult) -> None:
        """Store a result."""
        write_atomically(self._path(result.point), result.to_json().encode(), mode=0o600)

    def _path(self, point: OperatingPoint) -> Path:
        text = self.key + json.dumps(point.as_dict(), sort_keys=True)
        return self.folder / f"point-{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"


def _take_examples_out(path: Path) -> None:
    """Rewrite the file of a point without its examples, or remove the file if it cannot be read or rewritten."""
    try:
        result = PointResult.from_json(path.read_bytes())
        if result.examples is not None:
            write_atomically(path, replace(result, examples=None).to_json().encode(), mode=0o600)
    except (OSError, InputError, StorageError):
        path.unlink(missing_ok=True)


@cache
def code_digest() -> str:
    """Return a digest of mooring's source, so that results of other versions are not reused.

    Commands, the demonstration and reports do not count, because no result depends on them.
    """
    sha = hashlib.sha256()
    root = Path(__file__).parents[2]
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] not in ("cli", "demo.py", "report"):
            sha.update(path.read_bytes())
    return sha.hexdigest()


def digest(arrays: Sequence[Any], settings: dict[str, Any]) -> str:
    """Return a digest of arrays and settings."""
    sha = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for array in arrays:
        if array is None:
            sha.update(b"none")
            continue
        plain = np.ascontiguousarray(array)
        sha.update(f"{plain.dtype}{plain.shape}".encode())
        sha.update(plain.tobytes() if plain.dtype != object else repr(plain.tolist()).encode())
    return sha.hexdigest()
