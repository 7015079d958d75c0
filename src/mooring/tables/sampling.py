"""Some rows of a table of any size, drawn at random while all of them are checked and counted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mooring.tables.encoder import EncodedRows, encoded_batches
from mooring.tables.reader import read_ahead
from mooring.tables.schema import Schema

_MOST_ROWS, _FEWEST_ROWS, _MOST_NUMBERS = 20_000, 2_000, 2**24


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows drawn from a table, in the table's order.

    Attributes
    ----------
    encoded : EncodedRows
        All rows of a table that is small enough, else as many as memory should hold.
    n_rows : int
        How many the table has.
    class_counts : dict of int, or None
        Rows a class, of the whole table.
    """

    encoded: EncodedRows
    n_rows: int
    class_counts: dict[str, int] | None


def sample_rows(
    schema: Schema, path: Path, *, ignore: Collection[str] = (), seed: int = 0, at_most: int | None = None
) -> Sample:
    """Read a whole table, check every row of it, and keep a uniform sample.

    Each row draws a number, and those with the lowest numbers stay.
    """
    if at_most is None:
        at_most = max(_FEWEST_ROWS, min(_MOST_ROWS, _MOST_NUMBERS // schema.n_features))
    rng = np.random.default_rng([seed, 13])
    counts = np.zeros(len(schema.label.classes), dtype=np.int64)
    kept: EncodedRows | None = None
    draws: npt.NDArray[np.float64] = np.zeros(0)
    n_rows = 0
    for block in read_ahead(encoded_batches(schema, path, ignore=tuple(ignore))):
        if schema.label.kind == "classes" and block.labels is not None:
            counts += np.bincount(block.labels, minlength=counts.size)
        drawn = np.asarray(rng.random(block.rows.shape[0]))
        n_rows += drawn.size
        highest = float(draws.max()) if draws.size == at_most else 1.0
        chosen = np.flatnonzero(drawn < highest)
        kept = _joined(kept, block, chosen)
        draws = np.concatenate([draws, drawn[chosen]])
        if draws.size > at_most:
            stay = np.sort(np.argpartition(draws, at_most - 1)[:at_most])
            kept, draws = _taken(kept, stay), draws[stay]
    assert kept is not None  # a table without rows is refused by the reader
    by_class = dict(zip(schema.label.classes, counts.tolist(), strict=True)) if counts.size else None
    return Sample(kept, n_rows, by_class)


def _taken(some: EncodedRows, chosen: npt.NDArray[np.int64]) -> EncodedRows:
    labels = None if some.labels is None else some.labels[chosen]
    return EncodedRows(some.rows[chosen], labels, some.values[chosen], some.first_row)


def _joined(before: EncodedRows | None, block: EncodedRows, chosen: npt.NDArray[np.int64]) -> EncodedRows:
    new = _taken(block, chosen)
    if before is None:
        return new
    return EncodedRows(
        np.concatenate([before.rows, new.rows]),
        None if before.labels is None or new.labels is None else np.concatenate([before.labels, new.labels]),
        np.concatenate([before.values, new.values]),
        before.first_row,
    )
