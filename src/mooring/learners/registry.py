"""The registry of learners: what each one trains on, whether its model is delivered, and which engines can train it.

`auto` is not a learner. It stands for the candidate that best predicts participants left out of training (`choose_learner`)
or, without rows to decide, for the first candidate. Commands, audits, plans and engines all use this registry, so that a
name has the same meaning everywhere; Python functions also take a learner object. scikit-learn, which takes a second to
load, is loaded when a learner is trained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from mooring.errors import InputError
from mooring.learners.boosted_trees import XGBoostLearner
from mooring.learners.class_sums import ClassSums, QuadraticModel, fit_quadratic
from mooring.learners.fitted import Fitted, FittedEstimator, find_class_shares, find_scale, require_labelled_rows
from mooring.learners.models import Kind
from mooring.learners.sums import SumModel, Sums, fit_discriminant, fit_least_squares
from mooring.typing import Labels, Matrix

AUTO = "auto"
_N_FOURIER, _N_NYSTROEM = 800, 600
_MOST_LEAVES, _DEEPEST = 2000, 40  # limits of a tree, so that a forest of many rows is still small enough to send
_LEAST_IN_LEAF = 5  # rows; with 1, a forest stores the label of every row, and attacks recognise twice as many rows


@runtime_checkable
class Learner(Protocol):
    """A learner trains a model on rows. An object with these attributes can be used wherever the name of a learner can."""

    @property
    def name(self) -> str:
        """The name of the learner in records and reports."""

    @property
    def description(self) -> str:
        """A description in a few words."""

    @property
    def delivers(self) -> bool:
        """Whether its model may be delivered to participants. A model that holds rows of its training data may not be.

        A participant can use its own secret map to convert the common space back to raw rows, so such a model would give
        every participant the rows of the others.
        """

    @property
    def automatic(self) -> bool:
        """Whether `auto` may choose it."""

    @property
    def distributed(self) -> bool:
        """Whether `mooring train --engine dask` can train it on rows in pieces."""

    def fit(self, rows: Matrix, labels: Labels, *, kind: Kind, seed: int) -> Fitted:
        """Train on rows of shape (n, h) and their labels: classes from 0, or numbers."""


@dataclass(frozen=True)
class SumLearner:
    """A learner that trains a model on the sums of a study of secure sums."""

    name: str
    description: str
    kinds: tuple[Kind, ...]
    """The kinds of labels that it can predict."""
    fit: Callable[..., SumModel | QuadraticModel]
    """Takes `mooring.learners.sums.Sums` and whether to `shrink` correlations, or `mooring.learners.class_sums.ClassSums`,
    and returns a model."""
    by_class: bool = False
    """Whether the learner needs sums by class. Other learners accept sums by class, too, and add them up over classes."""

    def train(self, sums: Sums | ClassSums, *, shrink: bool) -> SumModel | QuadraticModel:
        """Train on a total; `shrink` is whether features are sparse, so that noise hides most of their correlations."""
        if self.by_class:
            return self.fit(sums)
        return self.fit(sums.pooled if isinstance(sums, ClassSums) else sums, shrink=shrink)


def _centre_rows(n_components: int, seed: int) -> Any:
    """Return a transformer that centres rows, so that solvers converge. It does not change the best model (`conversion`)."""
    from sklearn.preprocessing import StandardScaler

    return StandardScaler(with_std=False)


@dataclass(frozen=True)
class LinearSettings:
    """Logistic regression for classes and ridge regression for numbers, on rows or on features of them."""

    C: float = 1.0
    """Inverse strength of the logistic regression's penalty."""
    alpha: float = 1.0
    """Strength of the ridge regression's penalty, for numbers of unit variance."""
    max_iter: int = 2000
    """Maximum number of iterations of the logistic regression."""
    features: Callable[[int, int], Any] = _centre_rows
    """Takes h and a seed, and returns a scikit-learn transformer. The transformer is fitted to rows with a mean variance of
    one, for which γ = 1/h suits a Gaussian kernel."""

    def make(self, kind: Kind, *, shape: tuple[int, int], seed: int) -> Any:
        """Return an untrained scikit-learn estimator for rows of this shape."""
        from sklearn.linear_model import LogisticRegression, Ridge
        from sklearn.pipeline import make_pipeline

        last = LogisticRegression(C=self.C, max_iter=self.max_iter) if kind == "classes" else Ridge(alpha=self.alpha)
        return make_pipeline(self.features(shape[1], seed), last)


@dataclass(frozen=True)
class EstimatorLearner:
    """A learner that is an estimator of scikit-learn."""

    name: str
    description: str
    make: Callable[..., Any]
    """Takes the kind of label, the `shape` of the rows and `seed`, and returns an untrained scikit-learn estimator."""
    delivers: bool = True
    automatic: bool = False
    linear: LinearSettings | None = None
    """Settings with which `mooring.engines.dask` can train it on rows in pieces; None if it cannot."""

    @property
    def distributed(self) -> bool:
        """Whether `mooring train --engine dask` can train it."""
        return self.linear is not None

    def fit(self, rows: Matrix, labels: Labels, *, kind: Kind, seed: int) -> Fitted:
        """Return a trained estimator; if all labels are equal, it predicts that label.

        Rows are divided by one scale for all columns, because a scale for each column would make the result depend on the
        rotation of the coordinates. They are not centred here, because their mean would then be part of the model, and
        because the registered learners depend on the origin only through rounding and the random features drawn.
        """
        require_labelled_rows(rows, labels, kind)
        scale = find_scale(rows)
        estimator = self._estimator((len(rows), rows.shape[1]), labels, kind, seed)
        estimator.fit(rows / scale, labels)
        return FittedEstimator(self.name, kind, rows.shape[1], scale, estimator, find_class_shares(labels, kind))

    def _estimator(self, shape: tuple[int, int], labels: Labels, kind: Kind, seed: int) -> Any:
        from sklearn.compose import TransformedTargetRegressor
        from sklearn.dummy import DummyClassifier, DummyRegressor
        from sklearn.preprocessing import StandardScaler

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
    # With a limit on leaves, scikit-learn grows trees in a different order, so it is set only if it is needed.
    most_leaves = _MOST_LEAVES if shape[0] > _MOST_LEAVES else None
    settings = {"max_depth": _DEEPEST, "max_leaf_nodes": most_leaves, "min_samples_leaf": _LEAST_IN_LEAF}
    return forest(n_estimators=200, random_state=seed, **settings)


def _gradient_boosting(kind: Kind, *, shape: tuple[int, int], seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    boosting = HistGradientBoostingClassifier if kind == "classes" else HistGradientBoostingRegressor
    return boosting(early_stopping=False, random_state=seed)


def _random_fourier(n_components: int, seed: int) -> Any:
    from sklearn.kernel_approximation import RBFSampler

    return RBFSampler(gamma=1 / n_components, n_components=_N_FOURIER, random_state=seed)


def _nystroem(n_components: int, seed: int) -> Any:
    from sklearn.kernel_approximation import Nystroem

    return Nystroem(gamma=1 / n_components, n_components=_N_NYSTROEM, random_state=seed)


def _linear(name: str, description: str, settings: LinearSettings) -> EstimatorLearner:
    return EstimatorLearner(name, description, settings.make, automatic=True, linear=settings)


# Candidates of `auto` are learners that every engine can train and whose predictions do not depend on the rotation of the
# coordinates, so that they are the same on raw rows and in the common space.
_ROW_LEARNERS: tuple[Learner, ...] = (
    _linear("linear", "logistic or ridge regression", LinearSettings()),
    _linear(
        "random-fourier",
        "logistic or ridge regression on 800 random Fourier features of a Gaussian kernel",
        LinearSettings(C=30.0, alpha=0.1, max_iter=400, features=_random_fourier),
    ),
    EstimatorLearner(
        "nystroem",
        "logistic or ridge regression on the Gaussian kernel with 600 of the rows (Nyström)",
        LinearSettings(C=30.0, alpha=0.1, max_iter=400, features=_nystroem).make,
        delivers=False,
    ),
    EstimatorLearner("svm", "a support vector machine with a Gaussian kernel", _svm, delivers=False),
    EstimatorLearner("forest", "a random forest of 200 trees with at least five rows per leaf", _forest),
    EstimatorLearner("gradient-boosting", "boosted trees, by scikit-learn", _gradient_boosting),
    XGBoostLearner(),
)
_SUM_LEARNERS = (
    SumLearner("quadratic", "regularised discriminant analysis", ("classes",), fit_quadratic, by_class=True),
    SumLearner("discriminant", "linear discriminant analysis", ("classes",), fit_discriminant),
    SumLearner("least-squares", "ridge regression", ("classes", "number"), fit_least_squares),
)
LEARNERS: dict[str, Learner] = {learner.name: learner for learner in _ROW_LEARNERS}
"""Every learner of rows by name."""
SUM_LEARNERS: dict[str, SumLearner] = {learner.name: learner for learner in _SUM_LEARNERS}
"""Every learner of sums by name, in the order in which `auto` prefers them."""
CANDIDATES = tuple(name for name, learner in LEARNERS.items() if learner.automatic)
"""The learners that `auto` chooses from, the simplest first."""
LearnerLike: TypeAlias = str | Learner
"""The name of a learner, or a learner itself."""


def require_learner(learner: object, *, engine: Literal["local", "dask"] = "local", to_deliver: bool = False) -> None:
    """Raise an `InputError`, before any work, for anything that is neither `auto` nor a learner of this engine.

    The engine is "local" for one process, or "dask" for a cluster with rows in pieces. With `to_deliver`, learners whose
    models hold rows are refused as well.
    """
    if learner != AUTO:
        resolve_learner(learner, engine=engine, to_deliver=to_deliver)


def resolve_learner(
    learner: object, *, engine: Literal["local", "dask"] = "local", to_deliver: bool = False
) -> Learner:
    """Return the learner with this name, or the learner itself, or raise an `InputError` if this step cannot use it.

    Parameters are as for `require_learner`, except that "auto" is refused, since it depends on rows (`choose_learner`).

    Examples
    --------
    >>> resolve_learner("linear").description
    'logistic or ridge regression'
    """
    if learner == AUTO:
        cure = "choose_learner chooses one by score."
        raise InputError("learner", expected="the name of one learner", got=repr(AUTO), cure=cure)
    resolved = LEARNERS.get(learner) if isinstance(learner, str) else learner
    usable = [
        name
        for name, known in LEARNERS.items()
        if (engine == "local" or known.distributed) and (known.delivers or not to_deliver)
    ]
    cure = "'auto' chooses by score."
    if isinstance(resolved, Learner):
        if engine == "dask" and not resolved.distributed:
            cure = "It needs all rows at once: leave --engine out to train it on a share of the rows."
        elif to_deliver and not resolved.delivers:
            cure = "Its model would hold rows that every participant could convert back to raw ones. Only audits may use it."
        else:
            return resolved
    got = repr(learner if isinstance(learner, str) else getattr(learner, "name", learner))[:80]
    raise InputError("learner", expected=f"one of {', '.join((AUTO, *usable))}", got=got, cure=cure)


def list_sum_learners(kind: Kind, *, by_class: bool = False) -> dict[str, SumLearner]:
    """Return the learners of sums that predict this kind of label, by name; with `by_class`, also those of sums by class."""
    return {
        name: known for name, known in SUM_LEARNERS.items() if kind in known.kinds and (by_class or not known.by_class)
    }


def resolve_sum_learner(learner: object, kind: Kind, *, by_class: bool = False) -> SumLearner:
    """Return the learner of sums with this name; "auto" is the first of `list_sum_learners`."""
    usable = list_sum_learners(kind, by_class=by_class)
    if learner == AUTO:
        return next(iter(usable.values()))
    if not isinstance(learner, str) or learner not in usable:
        expected, got = f"one of {', '.join((AUTO, *usable))}", repr(learner)[:80]
        raise InputError(
            "learner", expected=expected, got=got, cure="These can be trained on the study's sums; 'auto' is the first."
        )
    return usable[learner]
