"""Register: solve for the membership of all candidates at once, from the equations that training has solved for the model.

Legend: w_i is 1 if candidate i was trained on, else 0; p_i and y_i the model's prediction and the label; φ_i the features.

A trained model fulfils equations that are sums over its rows. They are linear in w, with coefficients that everybody who has
the model and a register of candidates can compute:

- logistic and ridge regression with weights W and penalty λ: Σ w_i φ_i (y_i − p_i) = λ W, and Σ w_i (y_i − p_i) = 0;
- a leaf with value v of boosted trees with rate η and penalty λ, from the gradients y − p and second derivatives h that the
  trees before it leave: Σ w_i (η (y_i − p_i) − v h_i) = λ v over the candidates in the leaf;
- a leaf with shares v of a random forest: Σ w_i b_i (y_i − v) = 0, where b_i is how often its bootstrap sample drew row i.
  The expectation of b_i is 1; the rest is noise with the variance Σ w_i (y_i − v)².

The number n of members is known, too: Σ w_i = n. If there are as many independent equations as candidates, their only
solution is the members. This is `mooring.attacks.sums.register` for models, with scores that state how certain each
candidate's membership is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import helmert, lapack, solve_triangular
from scipy.sparse import csr_matrix
from scipy.special import softmax

from mooring.attacks.reconstruction import DoesNotApply
from mooring.errors import InputError
from mooring.learners import LEARNERS, Fitted, LearnerLike
from mooring.learners.fitted import find_scale
from mooring.learners.models import FourierFunction, LinearFunction, Model, TreeFunction
from mooring.typing import Labels, Matrix, Vector

FOREST = "forest"
BOOSTING = {"gradient-boosting": (0.1, 0.0, 1.0), "xgboost": (0.1, 1.0, 2.0)}
"""The rate, the penalty, and the factor of the second derivatives p (1 − p) if there are more than two classes."""
_NOISE_SCALES = tuple(np.geomspace(1e-4, 1.0, 9).tolist())  # multiples of `coefficient_scale`
# The noise variance of a forest's equation with coefficients of length one, if half of the candidates are members.
_BOOTSTRAP_VARIANCE = 0.5
_COUNT_WEIGHT = 10.0  # weight of the equation Σ w = n, as a multiple of `coefficient_scale`
_LEAST_VARIANCE, _LEAST_LENGTH = 1e-3, 1e-6
_NUMBERS_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class Equations:
    """Equations A w = b for the membership w of N candidates.

    They are given by their coefficients A and b, or by the normal equations AᵀA and Aᵀb, which are smaller if there are more
    equations than candidates. Equations of trees are always given as the normal equations.
    """

    n: int
    """The number of equations."""
    right: Vector
    """b, of shape (n,), or Aᵀb, of shape (N,)."""
    square_length: float
    """‖b‖²."""
    coefficients: Matrix | None = None
    """Aᵀ, of shape (N, n)."""
    gram: Matrix | None = None
    """AᵀA, of shape (N, N)."""
    noise_variance: float | None = None
    """The variance of an equation's noise, if it is known."""

    @property
    def coefficient_scale(self) -> float:
        """The root mean square, over equations, of the length of an equation's coefficients."""
        if self.coefficients is not None:
            total = float((self.coefficients**2).sum())
        else:
            assert self.gram is not None
            total = float(np.trace(self.gram))
        return float(np.sqrt(total / self.n))

    def with_count(self, n_members: int, weight: float) -> Equations:
        """Return these equations and the equation Σ w_i = `n_members`, both sides of which are multiplied by a weight."""
        n, side = self.n + 1, weight * n_members
        square_length = self.square_length + side**2
        if self.coefficients is not None:
            coefficients = np.column_stack([self.coefficients, np.full(len(self.coefficients), weight)])
            right = np.append(self.right, side)
            return replace(self, n=n, right=right, square_length=square_length, coefficients=coefficients)
        assert self.gram is not None
        return replace(
            self,
            n=n,
            right=self.right + weight * side,
            square_length=square_length,
            gram=self.gram + weight**2,
        )


class ModelRegister:
    """Scores of the candidates of a register by models of one learner.

    The equations hold only approximately where the records of candidates differ from the rows that were trained on. The
    scale of this error is estimated once, for the first model that is scored, as the most likely value in `_NOISE_SCALES`;
    later models are assumed to have the same scale. For a forest, the scale is known instead.
    """

    def __init__(self, learner: LearnerLike, candidates: Matrix, outcomes: Labels) -> None:
        """Raise `DoesNotApply` for a learner whose equations are not known.

        `candidates` are rows of shape (N, h), and `outcomes` their class indices or numbers.
        """
        known = LEARNERS.get(learner) if isinstance(learner, str) else learner
        self._linear = getattr(known, "linear", None)
        self._name = getattr(known, "name", "")
        self._candidates, self._outcomes = candidates, outcomes
        self._noise_scale: float | None = None
        if self._linear is None and self._name not in (FOREST, *BOOSTING):
            raise DoesNotApply("The equations that this learner solves are not known.")

    def score(self, fitted: Fitted, n_members: int) -> Vector:
        """Return the log-likelihood ratio of membership in a model of `n_members` candidates, of shape (N,).

        The ratios are zero if the model fulfils no equation that depends on membership. A model that cannot be written as
        arrays raises `DoesNotApply`.
        """
        share = n_members / len(self._candidates)
        try:
            equations = self._write(fitted.to_model())
        except InputError:
            raise DoesNotApply("The model cannot be written as arrays.") from None
        if equations.n == 0 or equations.coefficient_scale == 0:
            return np.zeros(len(self._candidates))
        scale = equations.coefficient_scale
        equations = equations.with_count(n_members, _COUNT_WEIGHT * scale)
        if equations.noise_variance is not None:
            return solve_equations(equations, share, equations.noise_variance).scores
        if self._noise_scale is None:
            likelihoods = {k: solve_equations(equations, share, (k * scale) ** 2).likelihood for k in _NOISE_SCALES}
            self._noise_scale = max(likelihoods, key=likelihoods.__getitem__)
        return solve_equations(equations, share, (self._noise_scale * scale) ** 2).scores

    def _write(self, model: Model) -> Equations:
        """Return the equations of a model."""
        function, outcomes = model.function, self._outcomes
        targets = outcomes[:, None] == model.classes if model.spec.kind == "classes" else outcomes[:, None]
        targets = targets.astype(np.float64)
        if isinstance(function, TreeFunction):
            blocks = np.array_split(self._candidates, -(-function.n_trees * len(outcomes) // _NUMBERS_AT_ONCE))
            leaves = np.concatenate([function.find_leaves(block) for block in blocks])
            if self._name == FOREST:
                return _write_forest(function, leaves, targets)
            return _write_boosting(model, leaves, targets, BOOSTING[self._name])
        if self._linear is None or not isinstance(function, LinearFunction | FourierFunction):
            return Equations(0, np.zeros(len(outcomes)), 0.0)  # a constant: all labels were the same
        penalty = 1 / self._linear.C if model.spec.kind == "classes" else self._linear.alpha
        return _write_linear(model, self._candidates, targets, penalty)


@dataclass(frozen=True, eq=False)
class Solution:
    """The linear estimate of w with the least mean square error."""

    estimate: Vector
    """The estimate of w, of shape (N,)."""
    variance: Vector
    """The variance of each entry's error, of shape (N,)."""
    share: float
    likelihood: float
    """The logarithm of the equations' likelihood if w and noise were Gaussian, up to a constant."""

    @property
    def scores(self) -> Vector:
        """The log-likelihood ratio of w_i = 1 against w_i = 0, for each entry.

        It is the difference of the log odds with and without the equations, where w_i has a Gaussian distribution in both
        cases.
        """
        before = self.share * (1 - self.share)
        after = np.clip(self.variance, _LEAST_VARIANCE, before)
        return np.asarray(self.estimate / after - self.share / before - (1 / after - 1 / before) / 2)


def solve_equations(equations: Equations, share: float, noise_variance: float) -> Solution:
    """Return the solution if the entries of w are uncorrelated with mean π, the `share`, and noise has this variance τ².

    The estimate is π + v Aᵀ(v A Aᵀ + τ² I)⁻¹(b − π A 1) with v = π (1 − π). From the normal equations, the same estimate is
    computed by the matrix inversion lemma.
    """
    variance, n = share * (1 - share), equations.n
    if equations.coefficients is not None:
        A = equations.coefficients.T
        left = equations.right - share * A.sum(axis=1)
        covariance = variance * (A @ A.T)
        covariance[np.diag_indices(n)] += noise_variance
        factor = np.linalg.cholesky(covariance)
        whitened = solve_triangular(factor, np.column_stack([left, A]), lower=True)
        solution, explained = whitened[:, 0], whitened[:, 1:]
        likelihood = -float(solution @ solution) / 2 - float(np.log(np.diag(factor)).sum())
        after = variance - variance**2 * (explained**2).sum(axis=0)
        return Solution(share + variance * (solution @ explained), after, share, likelihood)
    assert equations.gram is not None
    sums = equations.gram.sum(axis=1)
    left = (equations.right - share * sums) / noise_variance
    precision = equations.gram / noise_variance
    precision[np.diag_indices_from(precision)] += 1 / variance
    factor = np.linalg.cholesky(precision)
    inverse = lapack.dtrtri(factor, lower=1)[0]
    solution = inverse.T @ (inverse @ left)
    square = equations.square_length - 2 * share * equations.right.sum() + share**2 * sums.sum()
    log_determinant = 2 * np.log(np.diag(factor)).sum() + len(sums) * np.log(variance) + n * np.log(noise_variance)
    likelihood = -float(square / noise_variance - left @ solution + log_determinant) / 2
    return Solution(share + solution, (inverse**2).sum(axis=0), share, likelihood)


def _write_linear(model: Model, rows: Matrix, targets: Matrix, penalty: float) -> Equations:
    """Return the equations of a model that is linear in features.

    The mean of the rows, which solvers subtract, makes no difference, because residuals add up to zero. The scale of the
    rows is estimated from the candidates.
    """
    function = model.function
    assert isinstance(function, LinearFunction | FourierFunction)
    scores = function.evaluate(rows)
    residuals = targets - (softmax(scores, axis=1) if model.spec.kind == "classes" else scores)
    if isinstance(function, LinearFunction):
        scale = find_scale(rows)
        features, weights = rows / scale, function.weights * scale
    else:
        unit = np.sqrt(2 / function.offsets.size)
        features, weights = unit * np.cos(rows @ function.frequencies + function.offsets), function.weights / unit
    features = np.column_stack([features, np.ones(len(rows))])
    if residuals.shape[1] == 2:  # the residuals of two classes are opposite numbers, and one class has all weights
        residuals, weights = residuals[:, 1:], weights[:, 1:]
    elif residuals.shape[1] > 2:  # those of more classes add up to zero, so that one in K equations is redundant
        contrasts = helmert(residuals.shape[1]).T
        residuals, weights = residuals @ contrasts, weights @ contrasts
    right = penalty * np.vstack([weights, np.zeros(weights.shape[1])])
    n, square_length = right.size, float((right**2).sum())
    if n <= len(rows):
        coefficients = (features[:, :, None] * residuals[:, None, :]).reshape(len(rows), n)
        return Equations(n, right.ravel(), square_length, coefficients=coefficients)
    gram = (residuals @ residuals.T) * (features @ features.T)
    return Equations(n, ((features @ right) * residuals).sum(axis=1), square_length, gram=gram)


def _write_boosting(model: Model, leaves: Any, targets: Matrix, settings: tuple[float, float, float]) -> Equations:
    """Return the equations of the leaves of boosted trees; `leaves` holds the leaf of each candidate in each tree."""
    function, (rate, penalty, factor) = model.function, settings
    assert isinstance(function, TreeFunction)
    values = function.values[:, 0] / float(function.divisor)
    scores = np.tile(function.intercepts, (len(targets), 1))
    is_number, outputs = model.spec.kind == "number", function.first_output
    factor = factor if np.unique(outputs).size > 1 else 1.0
    coefficients = np.empty(leaves.shape)
    for round_of_trees in _split_rounds(outputs):
        shares = scores.copy() if is_number else softmax(scores, axis=1)
        for tree in round_of_trees:
            output, added = outputs[tree], values[leaves[:, tree]]
            share = shares[:, output]
            second = 1.0 if is_number else factor * share * (1 - share)
            coefficients[:, tree] = rate * (targets[:, output] - share) - added * second
            scores[:, output] += added
    return _write_leaves([(coefficients, penalty * values)], leaves)


def _split_rounds(outputs: Any) -> list[Any]:
    """Return the trees of each round, which has one tree for each output."""
    return list(np.arange(outputs.size).reshape(-1, np.unique(outputs).size))


def _write_forest(function: TreeFunction, leaves: Any, targets: Matrix) -> Equations:
    """Return the equations of the leaves of a forest, divided by the length of their coefficients."""
    values = function.values * (function.n_trees / float(function.divisor))
    if values.shape[1] == 1:  # a number; leaves are written without the mean
        values = values + function.intercepts
    outputs = range(1 if values.shape[1] == 2 else values.shape[1])  # the equations of two classes are the same

    def write_parts() -> Iterator[tuple[Matrix, Vector]]:
        for output in outputs:
            coefficients = targets[:, [output]] - values[leaves, output]
            lengths = np.sqrt(np.bincount(leaves.ravel(), (coefficients**2).ravel(), minlength=len(values)))
            yield coefficients / np.maximum(lengths, _LEAST_LENGTH)[leaves], np.zeros(len(values))

    return _write_leaves(write_parts(), leaves, noise_variance=_BOOTSTRAP_VARIANCE)


def _write_leaves(
    parts: Iterable[tuple[Matrix, Vector]], leaves: Any, noise_variance: float | None = None
) -> Equations:
    """Return the equations of leaves.

    Each part has the coefficient of every candidate in every tree, in the equation of the candidate's leaf, and the right
    side of every leaf's equation.
    """
    n_rows, n_trees = leaves.shape
    gram, right, n, square_length = np.zeros((n_rows, n_rows)), np.zeros(n_rows), 0, 0.0
    starts = np.arange(0, leaves.size + 1, n_trees)
    for coefficients, sides in parts:
        sparse = csr_matrix((coefficients.ravel(), leaves.ravel(), starts), shape=(n_rows, sides.size))
        is_used = np.asarray(abs(sparse).sum(axis=0)).ravel() > 0
        gram += (sparse @ sparse.T).toarray()
        right += sparse @ sides
        n += int(is_used.sum())
        square_length += float((sides[is_used] ** 2).sum())
    return Equations(n, right, square_length, gram=gram, noise_variance=noise_variance)
