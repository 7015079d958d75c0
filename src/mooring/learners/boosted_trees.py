"""Boosted trees that XGBoost trained, as a learner that predicts and can be written as ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from mooring.errors import MissingExtraError
from mooring.learners.fitting import Fitted
from mooring.learners.trees import Trees, boosted_trees
from mooring.typing import Matrix


def to_float32(rows: Matrix, scale: float) -> npt.NDArray[np.float32]:
    """Rows as a boosted tree sees them, in training and in the ONNX model: the same steps, to the last bit."""
    return np.asarray((rows * np.float64(1 / scale)).astype(np.float32))


def xgboost_here() -> Any:
    """The package, or how to get it."""
    try:
        import xgboost
    except ImportError:
        raise MissingExtraError(needed_for="--learner xgboost", package="xgboost", extra="dask,xgboost") from None
    return xgboost


class Boosted:
    """Boosted trees.

    Parameters
    ----------
    raw : bytes
        The model, as XGBoost saves it; empty for one that no row was there for, which says 0 or the first class.
    classes : array, optional
        The classes it tells apart, by number; None where it predicts a number.
    centre, scale : float
        The number that it predicts is what its trees say, times `scale`, plus `centre`. To XGBoost a gain below 10⁻⁶ is
        none, and squares above 10³⁸ do not fit into its numbers, so labels come to it with mean 0 and variance 1.
    """

    def __init__(
        self, raw: bytes, classes: npt.NDArray[np.int64] | None, *, centre: float = 0.0, scale: float = 1.0
    ) -> None:
        self.raw, self.classes_ = raw, classes
        self.centre, self.scale = centre, scale
        self._opened: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}  # each process opens it for itself

    def trees(self) -> tuple[Trees, Matrix]:
        """The trees, and the scores that they are added to."""
        return boosted_trees(bytes(self._booster().save_raw("json")))

    def margins(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The sums over trees for rows in single precision, by XGBoost itself: of shape (n,), or (n, classes)."""
        matrix = xgboost_here().DMatrix(rows, nthread=1)
        return np.asarray(self._booster().predict(matrix, output_margin=True))

    def predict(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The class or number of rows that are scaled."""
        if not self.raw:
            return np.zeros(len(rows)) if self.classes_ is None else np.full(len(rows), self.classes_[0])
        found = self.margins(rows.astype(np.float32))
        if self.classes_ is None:
            return np.asarray(found.astype(np.float64) * self.scale + self.centre)
        best = found.argmax(axis=1) if found.ndim > 1 else (found > 0).astype(np.int64)
        return np.asarray(self.classes_[best])

    def predict_proba(self, rows: npt.NDArray[Any]) -> Matrix:
        """The probability of each class of rows that are scaled."""
        assert self.classes_ is not None
        if not self.raw:
            return np.eye(self.classes_.size)[np.zeros(len(rows), dtype=np.int64)]
        found = self.margins(rows.astype(np.float32)).astype(np.float64)
        return np.asarray(softmax(found if found.ndim > 1 else np.column_stack([0 * found, found]), axis=1))

    def _booster(self) -> Any:
        if self._opened is None:
            self._opened = xgboost_here().Booster({"nthread": 1, "verbosity": 0}, model_file=bytearray(self.raw))
        return self._opened


class FittedBoosted(Fitted):
    """Boosted trees with the scale of their rows, which come to them in single precision."""

    def scaled(self, rows: Matrix) -> npt.NDArray[Any]:
        """Rows as the model takes them."""
        return to_float32(rows, self.scale)
