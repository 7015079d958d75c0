"""The features of secure sums that a study of a table would have, for tables whose columns were inferred."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np

from mooring.mechanisms.sums.features.columns import TableFeatures
from mooring.tables.schema import Column, Schema
from mooring.typing import Matrix


@dataclass(frozen=True)
class InferredTableFeatures:
    """`TableFeatures` of rows whose numbers were standardised: each is first scaled to [−1, 1] by the range of its column.

    A study declares these ranges. In a simulation, they are those of the rows.
    """

    columns: tuple[Column, ...]
    ranges: tuple[tuple[float, float], ...]
    """The lowest and highest value of the first entry of each column."""
    is_dense: ClassVar[bool] = False

    @classmethod
    def of(cls, columns: Sequence[Column], parts: Sequence[Matrix]) -> InferredTableFeatures:
        """Return the features of a table with these columns, with ranges from all of its rows."""
        starts = np.cumsum([0, *(column.width for column in columns)])[:-1]
        lows = np.min([part.min(axis=0) for part in parts if len(part)], axis=0)
        highs = np.max([part.max(axis=0) for part in parts if len(part)], axis=0)
        return cls(tuple(columns), tuple((float(lows[k]), float(highs[k])) for k in starts))

    @cached_property
    def declared(self) -> TableFeatures:
        """The features of the declared columns, whose numbers lie between −1 and 1."""
        columns = (
            column
            if column.kind == "category"
            else replace(column, kind="number", low=-1.0, high=1.0, inferred=False, fill=None)
            for column in self.columns
        )
        return TableFeatures(Schema(tuple(columns)))

    @property
    def n_inputs(self) -> int:
        """The number of entries of a row."""
        return self.declared.n_inputs

    @property
    def n_features(self) -> int:
        """The length of φ, the features of a row."""
        return self.declared.n_features

    @property
    def constant_share(self) -> float:
        """c₀, the square of the constant feature."""
        return self.declared.constant_share

    @property
    def unit_length(self) -> bool:
        """Whether φ has length one."""
        return self.declared.unit_length

    def apply(self, rows: Matrix) -> Matrix:
        """Return φ of rows."""
        encoded = np.array(rows, dtype=np.float64)
        ends = np.cumsum([0, *(column.width for column in self.columns)])
        for column, (low, high), (start, _) in zip(self.columns, self.ranges, pairwise(ends), strict=True):
            if column.kind != "category":
                width = high - low
                scaled = 2 * (encoded[:, start] - low) / width - 1 if width > 0 else np.zeros(len(rows))
                encoded[:, start] = np.clip(scaled, -1.0, 1.0)
        return self.declared.apply(encoded)
