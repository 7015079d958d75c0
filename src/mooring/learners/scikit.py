"""Learners by name, from scikit-learn. Those offered by default do not care how the coordinates are turned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from mooring.errors import InputError
from mooring.typing import Matrix

Kind = Literal["classes", "number"]
_ROWS_FOR_KERNEL = 12_000
_LANDMARKS = 600
_WAVES = 800
_MOST_LEAVES, _DEEPEST = 2000, 40  # of a tree: a forest of many rows must still be a model that can be sent

LEARNERS: dict[str, str] = {
    "auto": "a support vector machine with a Gaussian kernel; from 12,000 rows, its approximation by landmarks",
    "svm": "a support vector machine with a Gaussian kernel",
    "waves": "the same kernel by random waves, and logistic or ridge regression: a model that holds nobody's rows",
    "linear": "logistic or ridge regression",
    "forest": "a random forest",
}
"""Every learner by name, in words."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained learner: what it is, and the one centre and scale that its rows are brought to.

    Attributes
    ----------
    kind : {"classes", "number"}
    centre : array of shape (h,)
    scale : float
    model : a scikit-learn estimator
        Trained on (rows − centre) / scale.
    """

    kind: Kind
    centre: Matrix
    scale: float
    model: Any

    def predict(self, rows: Matrix) -> npt.NDArray[Any]:
        """Predict the labels of rows of shape (n, h)."""
        return np.asarray(self.model.predict((rows - self.centre) / self.scale))


def fit(
    name: str, rows: Matrix, labels: npt.NDArray[Any], *, kind: Kind, seed: int
) -> Callable[[Matrix], npt.NDArray[Any]]:
    """Train a learner and return its prediction function.

    Parameters
    ----------
    name : str
        A name in `LEARNERS`.
    rows : array of shape (n, h)
    labels : array of shape (n,)
    kind : {"classes", "number"}
    seed : int

    Notes
    -----
    Rows are centred and divided by one scale for all columns: scaling each column by itself would make the result depend
    on how the coordinates are turned. With one class only, that class is what is predicted.

    Examples
    --------
    >>> rows = np.array([[0.0], [0.1], [1.0], [1.1]])
    >>> fit("svm", rows, np.array([0, 0, 1, 1]), kind="classes", seed=0)(rows).tolist()
    [0, 0, 1, 1]
    """
    return train_learner(name, rows, labels, kind=kind, seed=seed).predict


def train_learner(name: str, rows: Matrix, labels: npt.NDArray[Any], *, kind: Kind, seed: int) -> Fitted:
    """Train a learner and return it whole, for those who want to look inside; the parameters are those of `fit`."""
    if name not in LEARNERS:
        raise InputError(
            "learner", expected=f"one of {', '.join(LEARNERS)}", got=repr(name), cure="'auto' is the default."
        )
    centre = rows.mean(axis=0)
    scale = float(np.sqrt(np.mean((rows - centre) ** 2))) or 1.0
    model = _model(name, labels, kind, seed, n_rows=rows.shape[0])
    model.fit((rows - centre) / scale, labels)
    return Fitted(kind, centre, scale, model)


def _model(name: str, labels: npt.NDArray[Any], kind: Kind, seed: int, *, n_rows: int) -> Any:
    if kind == "classes":
        if np.unique(labels).size < 2:
            return DummyClassifier(strategy="most_frequent")
        match name:
            case "linear":
                return LogisticRegression(max_iter=2000)
            case "waves":
                return make_pipeline(_waves(seed), LogisticRegression(C=30.0, max_iter=400))
            case "forest":
                return RandomForestClassifier(n_estimators=200, random_state=seed, **_bounds(n_rows))
            case "auto" if n_rows > _ROWS_FOR_KERNEL:
                return make_pipeline(_landmarks(seed), LogisticRegression(C=30.0, max_iter=400))
            case _:
                return SVC(C=10.0, gamma="scale")
    if labels.size < 2 or np.ptp(labels) == 0:
        return DummyRegressor()
    match name:
        case "linear":
            inner: Any = Ridge()
        case "waves":
            inner = make_pipeline(_waves(seed), Ridge(alpha=0.1))
        case "forest":
            inner = RandomForestRegressor(n_estimators=200, random_state=seed, **_bounds(n_rows))
        case "auto" if n_rows > _ROWS_FOR_KERNEL:
            inner = make_pipeline(_landmarks(seed), Ridge(alpha=0.1))
        case _:
            inner = SVR(C=3.0, gamma="scale")
    return TransformedTargetRegressor(inner, transformer=StandardScaler())


def _bounds(n_rows: int) -> dict[str, int]:
    # A limit on leaves makes scikit-learn grow trees best first, which is another forest: only where there is need.
    return {"max_leaf_nodes": _MOST_LEAVES, "max_depth": _DEEPEST} if n_rows > _MOST_LEAVES else {"max_depth": _DEEPEST}


def _waves(seed: int) -> RBFSampler:
    return RBFSampler(gamma="scale", n_components=_WAVES, random_state=seed)


def _landmarks(seed: int) -> Nystroem:
    # Rows come with unit mean variance; "scale" of the exact kernel is then 1/h, which None stands for here.
    return Nystroem(n_components=_LANDMARKS, random_state=seed)
