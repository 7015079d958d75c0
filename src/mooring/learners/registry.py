"""The learners by name: what each one is, whether its model may be delivered, and which engines train it.

`auto` is no learner: it chooses one of `CANDIDATES` by its score across participants (`choose_learner`). Commands, audits,
plans and engines all look names up here, so that each means the same everywhere. `mooring.learners.onnx_export` writes the
models of all of them. scikit-learn, which takes a second to load, is loaded when an estimator is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError

Kind = Literal["classes", "number"]
AUTO = "auto"
_N_FOURIER, _N_NYSTROEM = 800, 600
_MOST_LEAVES, _DEEPEST = 2000, 40  # of a tree: a forest of many rows must still be a model that can be sent
_LEAST_IN_LEAF = 5  # rows: with one, a model that predicts a number holds that of every row, and tells twice as many


def _centred(n_components: int, seed: int) -> Any:
    """The rows, around their mean: a solver converges there. The best model does not depend on it (`onnx_export`)."""
    from sklearn.preprocessing import StandardScaler

    return StandardScaler(with_std=False)


@dataclass(frozen=True)
class LinearModel:
    """Logistic regression for classes and ridge regression for numbers, on rows or on features of them."""

    C: float = 1.0
    """Inverse strength of the logistic regression's penalty."""
    alpha: float = 1.0
    """Strength of the ridge regression's penalty, for numbers of unit variance."""
    max_iter: int = 2000
    """Of the logistic regression."""
    features: Callable[[int, int], Any] = _centred
    """From h and a seed to a scikit-learn transformer. Rows come to it with unit mean variance, of which the width of a
    Gaussian kernel is γ = 1/h."""

    def estimator(self, kind: Kind, *, shape: tuple[int, int], seed: int) -> Any:
        """An untrained scikit-learn estimator.

        Parameters
        ----------
        kind : Kind
            Logistic for "classes", ridge for "number".
        shape : (int, int)
            Of the rows.
        seed : int
            For random features.
        """
        from sklearn.linear_model import LogisticRegression, Ridge
        from sklearn.pipeline import make_pipeline

        last = LogisticRegression(C=self.C, max_iter=self.max_iter) if kind == "classes" else Ridge(alpha=self.alpha)
        return make_pipeline(self.features(shape[1], seed), last)


@dataclass(frozen=True)
class Learner:
    """One learner."""

    name: str
    description: str
    make: Callable[..., Any] | None
    """From the kind of label, the `shape` of the rows and `seed` to an untrained scikit-learn estimator; None where only
    another engine trains it."""
    stores_rows: bool = False
    """Whether its model holds rows that it was trained on. Whoever has its own secret and map can turn the common space
    back, so such a model would hand every participant the others' rows: `deliver` refuses it unless told otherwise."""
    linear: LinearModel | None = None
    """What `mooring.engines.dask` needs to train it in pieces."""
    automatic: bool = False
    """Whether `auto` may choose it."""

    @property
    def in_pieces(self) -> bool:
        """Whether `mooring train --engine dask` trains it."""
        return self.linear is not None or self.make is None

    def estimator(self, shape: tuple[int, ...], labels: npt.NDArray[Any], kind: Kind, *, seed: int) -> Any:
        """An untrained estimator for these labels; where they are all the same, it predicts that one.

        Parameters
        ----------
        shape : tuple of int
            (n, h) of the training rows.
        labels : array of shape (n,)
            Theirs.
        kind : Kind
            "classes" or "number".
        seed : int
            For what is random in it.
        """
        from sklearn.compose import TransformedTargetRegressor
        from sklearn.dummy import DummyClassifier, DummyRegressor
        from sklearn.preprocessing import StandardScaler

        assert self.make is not None
        if kind == "classes":
            return self.make(kind, shape=shape, seed=seed) if np.unique(labels).size > 1 else DummyClassifier()
        if labels.size < 2 or np.ptp(labels) == 0:
            return DummyRegressor()
        return TransformedTargetRegressor(self.make(kind, shape=shape, seed=seed), transformer=StandardScaler())


def _svm(kind: Kind, *, shape: tuple[int, int], seed: int) -> Any:
    from sklearn.svm import SVC, SVR

    return SVC(C=10.0, gamma="auto") if kind == "classes" else SVR(C=3.0, gamma="auto")  # γ = 1/h


def _forest(kind: Kind, *, shape: tuple[int, int], seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    forest = RandomForestClassifier if kind == "classes" else RandomForestRegressor
    # A limit on leaves makes scikit-learn grow trees best first, which is another forest: only where there is need.
    most_leaves = _MOST_LEAVES if shape[0] > _MOST_LEAVES else None
    settings = {"max_depth": _DEEPEST, "max_leaf_nodes": most_leaves, "min_samples_leaf": _LEAST_IN_LEAF}
    return forest(n_estimators=200, random_state=seed, **settings)


def _random_fourier(n_components: int, seed: int) -> Any:
    from sklearn.kernel_approximation import RBFSampler

    return RBFSampler(gamma=1 / n_components, n_components=_N_FOURIER, random_state=seed)


def _nystroem(n_components: int, seed: int) -> Any:
    from sklearn.kernel_approximation import Nystroem

    return Nystroem(gamma=1 / n_components, n_components=_N_NYSTROEM, random_state=seed)


def _linear(name: str, description: str, model: LinearModel, *, automatic: bool) -> Learner:
    return Learner(name, description, model.estimator, linear=model, automatic=automatic)


# Candidates of `auto` are learners whose predictions do not depend on how the coordinates are turned, so that they mean the
# same on raw rows and in the common space, and which every engine can train.
_ALL = (
    _linear("linear", "logistic or ridge regression", LinearModel(), automatic=True),
    _linear(
        "random-fourier",
        "logistic or ridge regression on 800 random Fourier features of a Gaussian kernel",
        LinearModel(C=30.0, alpha=0.1, max_iter=400, features=_random_fourier),
        automatic=True,
    ),
    Learner(
        "nystroem",
        "logistic or ridge regression on the Gaussian kernel with 600 of the rows (Nyström)",
        LinearModel(C=30.0, alpha=0.1, max_iter=400, features=_nystroem).estimator,
        stores_rows=True,
    ),
    Learner("svm", "a support vector machine with a Gaussian kernel", _svm, stores_rows=True),
    Learner("forest", "a random forest of 200 trees, five rows a leaf at least", _forest),
    Learner("xgboost", "boosted trees, by XGBoost on a Dask cluster", None),
)
LEARNERS: dict[str, Learner] = {one.name: one for one in _ALL}
"""Every learner by name."""
CANDIDATES = tuple(name for name, one in LEARNERS.items() if one.automatic)
"""The learners that `auto` chooses from, the simplest first."""


def require_learner(name: object, *, engine: Literal["local", "dask"] = "local", to_deliver: bool = False) -> None:
    """Refuse a name that is neither `auto` nor a learner of this engine, before any work.

    Parameters
    ----------
    engine : {"local", "dask"}, default "local"
        One process, or a cluster that takes the rows in pieces.
    to_deliver : bool, default False
        Whether to refuse learners whose models `deliver` refuses, too.
    """
    known = [
        one.name
        for one in LEARNERS.values()
        if (one.in_pieces if engine == "dask" else one.make is not None) and not (to_deliver and one.stores_rows)
    ]
    if name == AUTO or name in known:
        return
    cure = "'auto' chooses by score."
    if engine == "dask" and name in LEARNERS:
        cure = "It needs all rows at once: leave --engine out to train it on a share of the rows."
    elif name == "xgboost":
        cure = "Boosted trees are trained with --engine dask."
    raise InputError("learner", expected=f"one of {', '.join((AUTO, *known))}", got=repr(name)[:80], cure=cure)
