"""What an audit looks at besides the rows themselves: images, identities, an attribute, an auditor that compares rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mooring.metrics import Embedding


@dataclass(frozen=True, eq=False)
class Lens:
    """How to look at rebuilt rows.

    Attributes
    ----------
    image_shape : tuple of int, optional
        Rows are images of this shape; peak signal-to-noise ratio and structural similarity are measured, and
        reconstructions are drawn.
    pixel_range : pair of float, default (0, 1)
        Black and white, where rows are images.
    embedding : Embedding, optional
        An auditor for exact-source linkage on decoded rows, such as a digit network or a face model.
    groups : array of int, optional
        Whose row each record is (one value a record that was dealt). Linkage across rows of one person is measured where
        groups have both training and test rows.
    attribute, attribute_name, attribute_kind : optional
        A column that is not shared, to be inferred from the rebuilt rows (one value a record that was dealt).
    n_candidates : int, default 10
        Size of a gallery.
    n_queries : int, default 1000
        At most so many galleries.
    n_examples : int, default 6
        Rows to keep for pictures, original beside rebuilt; 0 keeps none.
    feature_names : tuple of str
        Columns, for tables of examples.
    """

    image_shape: tuple[int, ...] | None = None
    embedding: Embedding | None = None
    groups: npt.NDArray[Any] | None = None
    attribute: npt.NDArray[Any] | None = None
    attribute_name: str = "attribute"
    attribute_kind: Literal["category", "number"] = "category"
    n_candidates: int = 10
    n_queries: int = 1000
    n_examples: int = 6
    feature_names: tuple[str, ...] = ()
    pixel_range: tuple[float, float] = (0.0, 1.0)

    @property
    def data_range(self) -> float | None:
        """Range of pixel values, for images."""
        return None if self.image_shape is None else self.pixel_range[1] - self.pixel_range[0]

    def clean(self, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Clamp decoded images to where pixels can be; other rows are left alone."""
        return rows if self.image_shape is None else np.clip(rows, *self.pixel_range)

    def shown(self, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Decoded rows as they are drawn: images from black, 0, to white, 1; other rows as they are."""
        if self.image_shape is None:
            return rows
        return (self.clean(rows) - self.pixel_range[0]) / (self.pixel_range[1] - self.pixel_range[0])
