"""Finished points on disk, so that an interrupted audit goes on where it stopped."""

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
from mooring.audit.result import PointResult
from mooring.errors import InputError, StorageError


class PointStore:
    """A folder with one JSON file a point, named by a digest of data, settings, code version and point.

    Parameters
    ----------
    key : str
        Digest of everything that the results depend on, but for the point.
    keep_examples : bool
        Whether files may hold examples of rows; if not, they are taken out of every file that is there.
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
        """The point's result, if it was finished before; a file that cannot be read counts as not there."""
        try:
            return PointResult.from_json(self._path(point).read_bytes())
        except (OSError, InputError):
            return None

    def save(self, result: PointResult) -> None:
        """Keep a result."""
        write_atomically(self._path(result.point), result.to_json().encode(), mode=0o600)

    def _path(self, point: OperatingPoint) -> Path:
        text = self.key + json.dumps(point.as_dict(), sort_keys=True)
        return self.folder / f"point-{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"


def _take_examples_out(path: Path) -> None:
    """Rewrite a point's file without its examples; a file that cannot be read as one is removed."""
    try:
        result = PointResult.from_json(path.read_bytes())
        if result.examples is not None:
            write_atomically(path, replace(result, examples=None).to_json().encode(), mode=0o600)
    except (OSError, InputError, StorageError):
        path.unlink(missing_ok=True)


@cache
def code_digest() -> str:
    """A digest of mooring's own source: results of other code are not mistaken for this code's."""
    sha = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] not in ("cli", "demo.py", "report"):
            sha.update(path.read_bytes())
    return sha.hexdigest()


def digest(arrays: Sequence[Any], settings: dict[str, Any]) -> str:
    """A digest of arrays and settings."""
    sha = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for array in arrays:
        if array is None:
            sha.update(b"none")
            continue
        plain = np.ascontiguousarray(array)
        sha.update(f"{plain.dtype}{plain.shape}".encode())
        sha.update(plain.tobytes() if plain.dtype != object else repr(plain.tolist()).encode())
    return sha.hexdigest()
