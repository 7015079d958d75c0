"""Trained models as data: arrays that NumPy evaluates, and no code.

A model consists of a function from a row of numbers to one score per output, and of the meaning of these scores. There are
four kinds of functions: linear functions, linear functions of random Fourier features, quadratic functions, and sums over
decision trees. A model of secure sums is a linear or a quadratic function of the study's public features, which its
specification names.

Legend: x a row; W, b weights and intercepts; F, f frequencies and offsets; A_k, a_k axes and offsets of output k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from mooring.errors import InputError, RefusedError
from mooring.geometry.backend import require_finite
from mooring.typing import Matrix, Vector

MOST_TREES = 10_000
"""Maximum number of trees of a model; with more, a prediction would take too long."""
MOST_LEVELS = 64
"""Maximum number of levels of a tree, without the level of its root."""
MOST_COMPARISONS, COMPARISONS_A_CLASS = 20_000, 3_000
"""Maximum of trees times levels: the larger of the first number and the second times the number of classes. A forest of 200
trees with 40 levels needs 8,000; gradient boosting of 100 rounds, with up to 30 levels, needs 3,000 per class."""
_NUMBERS_AT_ONCE = 2**22  # maximum size of the intermediate arrays of a block of rows
_MOST_ROWS_AT_ONCE = 8192
_ROUNDING = 1e-6  # tolerance for probabilities

Kind = Literal["classes", "number"]
Link = Literal["softmax", "shares", "none"]
"""How scores become probabilities: by the softmax, without change, or not at all."""
Integers: TypeAlias = npt.NDArray[np.int32]
Predicted: TypeAlias = tuple[npt.NDArray[Any], Matrix | None]
"""The predictions of a model: classes or numbers, and the probability of each class if the model has probabilities."""


class FeatureMap(Protocol):
    """A public map from encoded rows to features φ."""

    @property
    def n_inputs(self) -> int:
        """The number of entries of an encoded row."""

    @property
    def n_features(self) -> int:
        """The number of features, with the constant, which comes last."""

    @property
    def constant_share(self) -> float:
        """c₀, the square of the constant."""

    @property
    def unit_length(self) -> bool:
        """Whether every row of φ has length one, except rows without any known value."""

    @property
    def is_dense(self) -> bool:
        """Whether most features of a row are not zero and hardly correlated, so that correlations need no shrinkage."""

    def apply(self, rows: Matrix) -> Matrix:
        """Return φ of encoded rows, of shape (n, n_features); no row is longer than one."""


@dataclass(frozen=True, eq=False)
class ModelSpec:
    """The inputs and outputs of the models of a study."""

    n_inputs: int
    """The number of entries of a row."""
    n_classes: int
    """The number of classes of the study; 0 if a number is predicted."""
    features: FeatureMap | None = None
    """The public features that the function is applied to, if it is not applied to the row itself."""
    bounds: tuple[float, float] | None = None
    """The range of a predicted number, to which predictions are clipped."""
    outcome: str = ""
    """Name of the column that is predicted; empty for the study's label."""

    @property
    def kind(self) -> Kind:
        """Whether classes or a number are predicted."""
        return "classes" if self.n_classes else "number"

    @property
    def n_arguments(self) -> int:
        """The number of arguments of the function: the entries of the row or of its features without the constant."""
        return self.n_inputs if self.features is None else self.features.n_features - 1


Specify: TypeAlias = Callable[[str], ModelSpec]
"""Returns the specification of a study's models of an outcome, whose name is empty for the label."""


@dataclass(frozen=True, eq=False)
class LinearFunction:
    """The linear function x W + b."""

    name: ClassVar[str] = "linear"
    ARRAYS: ClassVar = {"weights": ("F64", ("inputs", "outputs")), "intercepts": ("F64", ("outputs",))}

    weights: Matrix
    """W, of shape (inputs, outputs)."""
    intercepts: Vector
    """b, of shape (outputs,)."""

    @property
    def numbers_a_row(self) -> int:
        """Numbers that the evaluation of a row needs at once."""
        return int(max(self.weights.shape))

    def require_valid(self) -> None:
        """Do nothing: only shapes and finite numbers matter, and they are checked elsewhere."""

    def evaluate(self, rows: Matrix) -> Matrix:
        """Return the scores of rows of shape (n, inputs), an array of shape (n, outputs)."""
        return np.asarray(rows @ self.weights + self.intercepts)


@dataclass(frozen=True, eq=False)
class FourierFunction:
    """The function cos(x F + f) W + b, which is linear in random Fourier features."""

    name: ClassVar[str] = "fourier"
    ARRAYS: ClassVar = {
        "frequencies": ("F64", ("inputs", "width")),
        "offsets": ("F64", ("width",)),
        "weights": ("F64", ("width", "outputs")),
        "intercepts": ("F64", ("outputs",)),
    }

    frequencies: Matrix
    """F, of shape (inputs, width)."""
    offsets: Vector
    """f, of shape (width,)."""
    weights: Matrix
    """W, of shape (width, outputs)."""
    intercepts: Vector
    """b, of shape (outputs,)."""

    @property
    def numbers_a_row(self) -> int:
        """Numbers that the evaluation of a row needs at once."""
        return int(max(*self.frequencies.shape, *self.weights.shape))

    def require_valid(self) -> None:
        """Do nothing: only shapes and finite numbers matter, and they are checked elsewhere."""

    def evaluate(self, rows: Matrix) -> Matrix:
        """Return the scores of rows of shape (n, inputs), an array of shape (n, outputs)."""
        return np.asarray(np.cos(rows @ self.frequencies + self.offsets) @ self.weights + self.intercepts)


@dataclass(frozen=True, eq=False)
class QuadraticFunction:
    """The function b_k − ½ ‖x A_k + a_k‖² of each output, with a square A_k: the logarithm of a normal density."""

    name: ClassVar[str] = "quadratic"
    ARRAYS: ClassVar = {
        "axes": ("F64", ("inputs", "width")),
        "offsets": ("F64", ("width",)),
        "intercepts": ("F64", ("outputs",)),
    }

    axes: Matrix
    """A_k of all outputs side by side, of shape (inputs, inputs · outputs)."""
    offsets: Vector
    """a_k of all outputs, of shape (inputs · outputs,)."""
    intercepts: Vector
    """b_k, of shape (outputs,)."""

    @property
    def numbers_a_row(self) -> int:
        """Numbers that the evaluation of a row needs at once."""
        return int(self.offsets.size)

    def require_valid(self) -> None:
        """Raise a `RefusedError` for axes that are not a square matrix for each output."""
        if self.axes.shape[1] != self.axes.shape[0] * self.intercepts.size:
            raise refuse_model("its axes are not a square matrix for each output")

    def evaluate(self, rows: Matrix) -> Matrix:
        """Return the scores of rows of shape (n, inputs), an array of shape (n, outputs)."""
        places = (rows @ self.axes + self.offsets).reshape(len(rows), self.intercepts.size, -1)
        return np.asarray(self.intercepts - np.einsum("nkj,nkj->nk", places, places) / 2)


@dataclass(frozen=True, eq=False)
class TreeFunction:
    """The sum of decision trees, divided by a number, plus an intercept for each output.

    Nodes are in the order of their levels: first the roots of all trees, then the children of the first inner node, left and
    right, then those of the second, and so on. So children are not stored: the k-th inner node has the children
    `n_trees + 2 k` and `n_trees + 2 k + 1`, which always come after it.
    """

    name: ClassVar[str] = "trees"
    ARRAYS: ClassVar = {
        "feature": ("I32", ("nodes",)),
        "limit": ("F64", ("nodes",)),
        "values": ("F64", ("leaves", "width")),
        "first_output": ("I32", ("trees",)),
        "divisor": ("F64", ()),
        "intercepts": ("F64", ("outputs",)),
    }

    feature: Integers
    """The column that each node compares, of shape (nodes,); -1 for a leaf."""
    limit: Vector
    """The threshold of each node, of shape (nodes,); 0 for a leaf. A row with at most this number goes to the left child."""
    values: Matrix
    """The numbers that leaves add to the outputs, of shape (leaves, width), in the order of the leaves."""
    first_output: Integers
    """The first output that each tree adds its values to, of shape (trees,); further values go to the outputs after it."""
    divisor: Matrix
    """The number that the sum over trees is divided by, of shape ()."""
    intercepts: Vector
    """Intercepts, of shape (outputs,)."""

    @property
    def n_trees(self) -> int:
        """The number of trees."""
        return int(self.first_output.size)

    @property
    def numbers_a_row(self) -> int:
        """Numbers that the evaluation of a row needs at once."""
        return self.n_trees * int(self.values.shape[1])

    @cached_property
    def children(self) -> npt.NDArray[np.int64]:
        """The left child of each node; a leaf is its own child."""
        inner = self.feature >= 0
        nodes: npt.NDArray[np.int64] = np.arange(inner.size)
        nodes[inner] = self.n_trees + 2 * np.arange(inner.sum())
        return nodes

    @cached_property
    def leaves(self) -> npt.NDArray[np.int64]:
        """The index of each leaf in `values`. The entries of inner nodes mean nothing."""
        return np.asarray(np.maximum(np.cumsum(self.feature < 0) - 1, 0))

    @cached_property
    def n_levels(self) -> int:
        """The number of steps from a root to the deepest leaf."""
        return len(self._level_sizes) - 1

    @cached_property
    def _level_sizes(self) -> list[int]:
        """The number of nodes of each level, for at most `MOST_LEVELS` + 2 levels."""
        inner = np.concatenate([[0], np.cumsum(self.feature >= 0)])
        sizes: list[int] = []
        start, size = 0, self.n_trees
        while size and start + size <= self.feature.size and len(sizes) < MOST_LEVELS + 2:
            sizes.append(size)
            start, size = start + size, 2 * int(inner[start + size] - inner[start])
        return sizes

    def require_valid(self) -> None:
        """Raise a `RefusedError` unless the arrays are complete trees in level order with existing outputs and a divisor."""
        n_outputs, width = self.intercepts.size, self.values.shape[1]
        n_nodes = self.n_trees + 2 * int((self.feature >= 0).sum())
        if not sum(self._level_sizes) == self.feature.size == n_nodes or len(self._level_sizes) > MOST_LEVELS + 1:
            raise refuse_model(f"its nodes are not those of trees with at most {MOST_LEVELS} levels")
        if int(self.feature.min()) < -1:
            raise refuse_model("its trees compare columns with negative numbers")
        if int((self.feature < 0).sum()) != self.values.shape[0]:
            raise refuse_model("its trees do not have one row of values for each leaf")
        first, last = int(self.first_output.min()), int(self.first_output.max())  # 32-bit sums could wrap around
        if not 1 <= width <= n_outputs or first < 0 or last > n_outputs - width:
            raise refuse_model("its trees add to outputs that it does not have")
        if float(self.divisor) == 0:
            raise refuse_model("its trees are divided by zero")

    def evaluate(self, rows: Matrix) -> Matrix:
        """Return the scores of rows of shape (n, inputs), an array of shape (n, outputs)."""
        values, n_outputs = self.values[self.find_leaves(rows)], self.intercepts.size
        if values.shape[2] == n_outputs:
            sums = values.sum(axis=1)
        else:
            sums = np.zeros((len(rows), n_outputs))
            for first in np.unique(self.first_output):
                sums[:, first : first + values.shape[2]] += values[:, self.first_output == first].sum(axis=1)
        return np.asarray(sums / self.divisor + self.intercepts)

    def find_leaves(self, rows: Matrix) -> npt.NDArray[np.int64]:
        """Return the leaf of each row in each tree, an array of shape (n, trees), level by level for all trees."""
        places = np.arange(len(rows))[:, None]
        feature = np.maximum(self.feature, 0)
        limit = np.where(self.feature < 0, np.inf, self.limit)
        node = np.broadcast_to(np.arange(self.n_trees), (len(rows), self.n_trees))
        for _ in range(self.n_levels):
            node = self.children[node] + (rows[places, feature[node]] > limit[node])
        return np.asarray(self.leaves[node])


ModelFunction: TypeAlias = LinearFunction | FourierFunction | QuadraticFunction | TreeFunction
FUNCTIONS: dict[str, type[ModelFunction]] = {
    kind.name: kind for kind in (LinearFunction, FourierFunction, QuadraticFunction, TreeFunction)
}
"""Every kind of function by the name that it has in a file."""


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model, ready to predict.

    Examples
    --------
    >>> function = LinearFunction(np.array([[0.0, 2.0]]), np.array([0.0, -1.0]))
    >>> model = Model(ModelSpec(1, 2), function, "softmax", np.array([0, 1], dtype=np.int32), np.array([0.5, 0.5]))
    >>> model.predict(np.array([[0.0], [1.0]]))
    array([0, 1])
    """

    spec: ModelSpec
    function: ModelFunction
    link: Link
    classes: Integers
    """The class of each output, of shape (outputs,); 0 if a number is predicted."""
    class_shares: Vector
    """The share of each output's class among the training rows, of shape (outputs,); 1 if a number is predicted. A class is
    predicted by `choose_classes`."""

    def __post_init__(self) -> None:
        if isinstance(self.function, TreeFunction) and self.function.feature.max(initial=-1) >= self.spec.n_arguments:
            raise refuse_model("its trees compare columns that rows do not have")
        self.function.require_valid()
        if isinstance(self.function, TreeFunction):
            most = max(MOST_COMPARISONS, COMPARISONS_A_CLASS * self.spec.n_classes)
            if self.function.n_trees * self.function.n_levels > most:
                raise refuse_model(f"its trees would need more than {most:,} comparisons for each row")
        codes = self.classes.astype(np.int64)
        if self.spec.kind == "number":
            fits = codes.tolist() == [0] and self.link == "none"
        else:
            fits = codes[0] >= 0 and codes[-1] < self.spec.n_classes and bool((np.diff(codes) > 0).all())
            fits = fits and (codes.size > 1 or self.link != "none")
        if not fits:
            raise refuse_model("its outputs are not those that the study asks for")
        if not ((self.class_shares > 0) & (self.class_shares <= 1)).all():
            raise refuse_model("its shares of classes are not between zero and one")

    @property
    def has_probabilities(self) -> bool:
        """Whether the model gives a probability for each class."""
        return self.link != "none"

    def with_classes(self, n_classes: int) -> Model:
        """Return the same model for a study of this many classes."""
        return replace(self, spec=replace(self.spec, n_classes=n_classes))

    def decision(self, rows: npt.NDArray[np.floating[Any]]) -> Matrix:
        """Return the scores of rows, of shape (n, outputs)."""
        if rows.ndim != 2 or rows.shape[1] != self.spec.n_inputs:
            got, cure = f"shape {rows.shape}", "Give the model rows of the study that it belongs to."
            raise InputError("rows", expected=f"of shape (n, {self.spec.n_inputs})", got=got, cure=cure)
        require_finite("rows", rows)
        needed = max(self.spec.n_inputs, self.spec.n_arguments, self.function.numbers_a_row)
        size = min(_MOST_ROWS_AT_ONCE, max(1, _NUMBERS_AT_ONCE // needed))
        scores = np.empty((len(rows), self.classes.size))
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(rows), size):
                block = rows[start : start + size].astype(np.float64, copy=False)
                block = block if self.spec.features is None else self.spec.features.apply(block)[:, :-1]
                scores[start : start + size] = self.function.evaluate(block)
        if not np.isfinite(scores).all():
            raise refuse_model("it predicts numbers that are not finite")
        return scores

    def predict(self, rows: npt.NDArray[np.floating[Any]]) -> npt.NDArray[Any]:
        """Return the predictions for rows of shape (n, inputs): class codes (int64), or numbers (float64)."""
        return self.predict_with_probabilities(rows)[0]

    def predict_with_probabilities(self, rows: npt.NDArray[np.floating[Any]]) -> Predicted:
        """Return predictions, and the probabilities of classes, of shape (n, classes), or None if the model has none."""
        scores = self.decision(rows)
        if self.spec.kind == "number":
            numbers = scores[:, 0]
            return (numbers if self.spec.bounds is None else np.clip(numbers, *self.spec.bounds)), None
        if not self.has_probabilities:
            return self._choose(scores), None
        shares = self._to_shares(scores)
        probabilities = np.zeros((len(scores), self.spec.n_classes))
        probabilities[:, self.classes] = shares
        return self._choose(shares), probabilities

    def _choose(self, scores: Matrix) -> npt.NDArray[np.int64]:
        places = choose_classes(scores, self.class_shares, are_probabilities=self.has_probabilities)
        return self.classes.astype(np.int64)[places]

    def _to_shares(self, scores: Matrix) -> Matrix:
        """Return the probability of each output's class, of shape (n, outputs)."""
        shares = softmax(scores, axis=1) if self.link == "softmax" else scores
        if shares.size and (shares.min() < -_ROUNDING or np.abs(shares.sum(axis=1) - 1).max() > _ROUNDING):
            raise refuse_model("its probabilities are below zero, or do not add up to one")
        return np.clip(shares, 0, 1)


def choose_classes(scores: Matrix, class_shares: Vector, *, are_probabilities: bool) -> npt.NDArray[np.int64]:
    """Return the index of the predicted class of each row, from scores of shape (n, classes).

    It is the class whose probability, divided by the class's share among the training rows, is largest. Of two classes, a
    rare one is thus predicted as soon as its probability exceeds its share, and not only above one half. With correct
    probabilities, this rule has the highest balanced accuracy. From scores that are no probabilities, the shares are
    subtracted instead; for probabilities of two classes, subtracting and dividing choose the same class.

    Examples
    --------
    >>> choose_classes(np.array([[0.97, 0.03], [0.8, 0.2]]), np.array([0.9, 0.1]), are_probabilities=True)
    array([0, 1])
    """
    return np.asarray((scores / class_shares if are_probabilities else scores - class_shares).argmax(axis=1))


def refuse_model(reason: str) -> RefusedError:
    """Return the error for a model that cannot be used."""
    return RefusedError("the model", reason=reason, cure="Ask the analyst for your result again.")
