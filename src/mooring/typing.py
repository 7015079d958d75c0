"""Types that signatures share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame

__all__ = ["Array", "Indices", "Labels", "Matrix", "Progress", "TableSource", "Vector"]

Array: TypeAlias = Any
"""An array of any library that follows the array API standard."""

Matrix: TypeAlias = npt.NDArray[np.float64]
"""A NumPy array of float64, two-dimensional unless said otherwise."""

Vector: TypeAlias = npt.NDArray[np.float64]
"""A NumPy array of float64 with one dimension."""

Indices: TypeAlias = npt.NDArray[np.int64]
"""Positions in another array."""

Labels: TypeAlias = npt.NDArray[Any]
"""One label per row, of shape (n,): floats are numbers to predict, everything else names a class."""

TableSource: TypeAlias = "str | Path | IntoDataFrame | MappedSource"
"""A table: the path of a CSV or Parquet file, or a data frame of pandas, polars or another library that narwhals reads;
either may come with the mapping by which a site's own table is read (`mooring.tables.MappedTable`).

The index of a pandas data frame is ignored."""


class MappedSource(Protocol):
    """A table with the mapping by which it is read."""

    @property
    def data(self) -> Any:
        """Return the path or the data frame."""

    @property
    def mapping(self) -> Any:
        """Return the `TableMapping`."""


class Progress(Protocol):
    """Receives how much of a long step is done."""

    def __call__(self, done: float, total: float, what: str = "", /) -> None:
        """Report that `done` of `total` units are finished; `what` names the present part of the work."""
