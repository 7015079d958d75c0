"""Rows, which are dicts that need not have the same keys, as the bytes of a Parquet file, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mooring.errors import InputError


def encoded(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows as a Parquet file; what a row does not have is null there."""
    import pyarrow
    import pyarrow.parquet

    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        try:
            columns[name] = pyarrow.array([row.get(name) for row in rows])
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError):
            kinds = sorted({type(row[name]).__name__ for row in rows if name in row})
            raise InputError(
                f"column {name!r}", expected="of one kind", got=" and ".join(kinds), cure="Numbers or texts, not both."
            ) from None
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue())


def rows_from(content: bytes) -> list[dict[str, Any]]:
    """The rows of such a file, without their nulls; fails where the content is not one."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(pyarrow.BufferReader(content), page_checksum_verification=True)
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]


def plain(value: Any) -> Any:
    """A value as JSON and Parquet know it: NumPy's numbers and arrays become Python's, NaN becomes None.

    Examples
    --------
    >>> plain({"share": np.float64(0.5), "draws": np.arange(2), "seconds": float("nan")})
    {'share': 0.5, 'draws': [0, 1], 'seconds': None}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
