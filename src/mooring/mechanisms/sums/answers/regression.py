"""Linear regression of any column on any columns, with intervals that include the noise.

Legend: z the row of terms, y the outcome; G = Σ zzᵀ with noise E, b = Σ zy with noise e, and Σ y²; β = G⁻¹b; N the
covariance of e − Eβ, the noise of b − Gβ; s² the variance of residuals; n rows, p terms; t Student's quantile.

    Cov β = G⁻¹ (s²G + N) G⁻¹        s² = (Σy² − bᵀβ + tr G⁻¹N)/(n − p)

In the second equation, tr G⁻¹N makes up for what fitting to noise removes from the residuals. Where noise is large, β over
its standard error is far from normal, since the noise on G moves both β and the error. But at the true β, b − Gβ is normal
with mean zero, whatever the noise on G. Intervals are therefore those of Fieller: the value that lies x above the estimate
belongs to the interval if

    x² ≤ t² V(x).

Here V, quadratic in x, is the variance of the estimate if this value is the true one and the other coefficients move with it
by their covariance. The expansion holds while the scaled noise G^-½ E G^-½ is small; beyond `MOST_NOISE`, the regression is
refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from mooring.errors import InputError
from mooring.mechanisms.sums.answers.answer import Answer, name_source, state_intervals, write_number, write_p
from mooring.mechanisms.sums.answers.formula import FormulaTerm, parse_formula
from mooring.mechanisms.sums.answers.readings import LEAST_SIGNAL, Readings, find_p_value, read_products
from mooring.mechanisms.sums.general.levels import Levels
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.mechanisms.sums.general.workload import Functional
from mooring.metrics.intervals import LEVEL
from mooring.serialization import FloatOrNaN, Record, Rows
from mooring.typing import Matrix, Vector

MOST_NOISE = 0.5
"""Maximum of `measure_noise`, the scale of the noise on G relative to G, up to which intervals keep their level."""
INTERCEPT = "Intercept"
_MOST_GAP = 4.0  # standard errors by which the means of terms may differ where the outcome is missing
_MOST_CONTRADICTION = 3.0  # standard errors of the noise by which a residual variance may be negative
_MOST_NOISE_ALONE = (
    6.0  # as above, if outcomes are always known: only noise or invented sums can then make the variance negative
)


@dataclass(frozen=True)
class RegressionTerm(Record):
    """One coefficient."""

    term: str
    """Name of the column, log(name) where its scale is logarithmic, or "Intercept"."""
    level: str
    """The level of a category, or the level of missing values; empty for a number and the intercept."""
    reference: str
    """The level with which a category's level is compared; otherwise empty."""
    estimate: FloatOrNaN
    standard_error: FloatOrNaN
    """The standard error over repeated samples of rows and of noise."""
    noise_error: FloatOrNaN
    """The part of the standard error that comes from the noise."""
    low: FloatOrNaN
    high: FloatOrNaN
    p: FloatOrNaN


@dataclass(frozen=True)
class Regression(Answer):
    """A linear regression."""

    answer: ClassVar[str] = "regression"
    lines_field: ClassVar[str] = "terms"

    formula: str
    outcome: str
    """The outcome with its scale; for a category, the level whose probability is modelled."""
    terms: tuple[RegressionTerm, ...]
    residual_sd: FloatOrNaN
    r_squared: FloatOrNaN

    def list_estimates(self) -> dict[str, tuple[float, float, float]]:
        """Return (estimate, low, high) of the coefficients, by term and level."""
        return {f"{term.term} {term.level}".strip(): (term.estimate, term.low, term.high) for term in self.terms}

    def list_tables(self) -> dict[str, Rows]:
        """Return one table of the coefficients with intervals, p-values and errors."""
        headings = ("term", "coefficient", "95 % interval", "p", "standard error", "error by noise alone")
        return {f"{self.outcome}: linear regression": [headings, *map(_write_term, self.terms)]}


def _write_term(term: RegressionTerm) -> tuple[str, ...]:
    name = f"{term.term}: {term.level}" if term.level else term.term
    name += f" (against {term.reference})" if term.reference else ""
    interval = f"{write_number(term.low)} to {write_number(term.high)}"
    errors = (write_number(term.standard_error), write_number(term.noise_error))
    return name, write_number(term.estimate), interval, write_p(term.p), *errors


@dataclass(frozen=True, eq=False)
class DesignColumn:
    """One column of a design matrix: a function of a column of the study, in units in which its values are of order one."""

    term: str
    level: str
    reference: str
    function: Functional
    scale: float = 1.0
    """By how much the number changes when the function changes by one."""
    centre: float = 0.0
    """The number where the function is zero."""


@dataclass(frozen=True, eq=False)
class Design:
    """The terms and the outcome of a formula, as functions of columns."""

    outcome: DesignColumn
    columns: tuple[DesignColumn, ...]
    """The terms, of which the first is the intercept."""
    notes: tuple[str, ...]


def regress(total: PairwiseTotal, formula: str) -> Regression:
    """Return the coefficients of least squares for a formula such as "y ~ a + b".

    Each level of a category is compared with the first declared level. A missing number is set to the middle of its range,
    and an additional term marks missing numbers. If outcomes are missing, the sums of the terms are scaled to the share of
    known outcomes. This is right if outcomes are missing independently of the terms. If the sums show a dependence, the
    regression is refused.

    Parameters
    ----------
    total : PairwiseTotal
        The opened total, from `Analyst.open_total`.
    formula : str
        As in R and statsmodels, with main effects only. A column that is declared on a logarithmic scale is written log(x).

    Returns
    -------
    Regression

    Raises
    ------
    InputError
        If the formula names what is not declared or needs more than pairs of columns, if the outcome is missing more often
        for some values of a term, if there are too few rows, if terms follow from others, if the sums contradict each other,
        or if the noise is too large.
    """
    design, source = make_design(total, formula), name_source(total)
    equations = read_normal_equations(total, design)
    fit = solve_normal_equations(equations)
    scales = np.array([design.outcome.scale / column.scale for column in design.columns])
    back = np.diag(scales)  # from coefficients of scaled functions to those of numbers; the intercept also shifts
    back[0] = [-scale * column.centre for scale, column in zip(scales, design.columns, strict=True)]
    back[0, 0] = scales[0]
    values = back @ fit.coefficients + np.eye(1, len(scales))[0] * design.outcome.centre
    noise = back @ fit.noise_covariance @ back.T
    spreads = [_find_spread(equations, fit, row) for row in back]
    terms = tuple(
        _state_term(column, float(value), spread, math.sqrt(max(part, 0.0)), fit.degrees_of_freedom)
        for column, value, spread, part in zip(design.columns, values, spreads, np.diag(noise), strict=True)
    )
    if not all(math.isfinite(term.low) for term in terms):
        raise refuse_regression(equations)
    outcome = f"{design.outcome.term} = {design.outcome.level}" if design.outcome.level else design.outcome.term
    notes = list(design.notes)
    if design.outcome.level:
        notes.append(f"Coefficients are differences of the probability that {outcome}.")
    deviation = math.sqrt(fit.residual_variance) * design.outcome.scale
    return Regression(source, tuple(notes), state_intervals(total), formula, outcome, terms, deviation, fit.r_squared)


def _state_term(
    column: DesignColumn, value: float, spread: Spread, noise_error: float, degrees: float
) -> RegressionTerm:
    low, high = spread.find_interval(value, float(stdtrit(degrees, (1 + LEVEL) / 2)))
    error, p = math.sqrt(spread.constant), spread.find_p(value, degrees)
    return RegressionTerm(column.term, column.level, column.reference, value, error, noise_error, low, high, p)


@dataclass(frozen=True)
class Spread:
    """The variance of an estimate if the true value lies x above the estimate: constant + linear x + square x²."""

    constant: float
    linear: float
    square: float

    def find_interval(self, estimate: float, quantile: float) -> tuple[float, float]:
        """Return the ends of the interval of values within `quantile` standard errors; NaN if the interval is unbounded."""
        rest = 1 - quantile**2 * self.square
        if not rest > 0:
            return math.nan, math.nan
        middle = quantile**2 * self.linear / (2 * rest)
        half = math.sqrt(middle**2 + quantile**2 * self.constant / rest)
        return estimate + middle - half, estimate + middle + half

    def find_p(self, estimate: float, degrees: float) -> float:
        """Return the two-sided p-value of the hypothesis that the true value is 0."""
        variance = self.constant - self.linear * estimate + self.square * estimate**2
        return find_p_value(estimate, math.sqrt(max(variance, 0.0)), degrees)


def measure_spread(noise: Matrix, sampling: float, weights: Vector, change: Vector) -> Spread:
    """Return the spread of an estimate, given its sampling variance and the covariance `noise` of the readings.

    If the true value lies x above the estimate, the error by noise is the sum of the readings' noise with the weights
    `weights` + x `change`.
    """
    crossed = noise @ change
    constant = sampling + float(weights @ noise @ weights)
    return Spread(constant, 2 * float(weights @ crossed), float(change @ crossed))


def _find_spread(equations: NormalEquations, fit: Fit, combination: Vector) -> Spread:
    """Return the spread of a linear combination of coefficients."""
    pulled = np.linalg.solve(equations.matrix, combination)
    together = fit.covariance @ combination
    direction = together / max(float(combination @ together), 1e-300)
    sampling = fit.residual_variance * float(combination @ pulled)
    weights, change = pulled @ residual_weights(fit.coefficients), -pulled @ product_weights(direction)
    return measure_spread(equations.readings.noise, sampling, weights, change)


def make_design(total: PairwiseTotal, formula: str) -> Design:
    """Return the outcome and the terms of a formula as functions, or raise an `InputError` if it cannot be computed.

    Levels that may have no rows, under the noise, have no term: they are counted with the reference, or as if the number
    were not missing.
    """
    workload = total.workload
    known = [levels for levels in workload.columns if levels.kind != "survival"]
    names, log_scaled = [levels.name for levels in known], [levels.name for levels in known if levels.is_log]
    parsed = parse_formula(formula, names, log_scaled)
    outcome = _make_outcome(total, parsed.outcome)
    columns, notes = [DesignColumn(INTERCEPT, "", "", workload.constant)], []
    if workload.column(parsed.outcome.column).has_missing:
        notes.append(
            f"{parsed.outcome.column} may be missing. Coefficients and intervals are right only if missing outcomes do not "
            "depend on the terms. The sums show no sign of such a dependence."
        )
    for term in parsed.terms:
        levels = workload.column(term.column)
        is_category = not levels.nodes or term.form == "category"
        made = _make_levels(total, levels) if is_category else [_make_number(total, levels, term)]
        if levels.has_missing and not is_category:
            made.append(
                DesignColumn(term.column, levels.names[-1], "", workload.indicator(term.column, levels.names[-1]))
            )
        if is_category and not levels.is_exact:
            problem = f"{term.column!r} has too many values to be a category."
            raise InputError("formula", problem=problem, cure=f"Write {term.column} instead of C({term.column}).")
        for column in made:
            if column.level and not _has_rows(total, column.function):
                where = f"with {column.reference}" if column.reference else "as if they were not missing"
                has = "may have no rows, under the noise" if total.noise_variance else "has no rows"
                notes.append(f"{term.column} = {column.level} {has}; it is counted {where}.")
            else:
                columns.append(column)
    return Design(outcome, tuple(columns), tuple(notes))


def _make_outcome(total: PairwiseTotal, term: FormulaTerm) -> DesignColumn:
    levels = total.workload.column(term.column)
    if levels.nodes:
        return _make_number(total, levels, term)
    known = levels.names[: levels.n_levels - levels.has_missing]
    if len(known) != 2:
        problem = f"The outcome {term.column!r} has {len(known)} levels; a regression needs a number or two levels."
        raise InputError("formula", problem=problem, cure="Choose such an outcome.")
    return DesignColumn(term.column, known[1], known[0], total.workload.indicator(term.column, known[1]))


def _make_number(total: PairwiseTotal, levels: Levels, term: FormulaTerm) -> DesignColumn:
    if levels.is_log != (term.form == "log") or (levels.is_log and levels.low <= 0):
        name = term.column
        if not levels.is_log:
            problem, cure = f"The study does not declare {name!r} on a logarithmic scale.", f"Write {name}."
        elif levels.low > 0:
            problem, cure = f"The study declares {name!r} on a logarithmic scale.", f"Write log({name})."
        else:
            problem = f"{name!r} is on a logarithmic scale whose range includes zero, so that it has no linear term."
            cure = "Declare a range above zero, or a linear scale, in a new study."
        raise InputError("formula", problem=problem, cure=cure)
    nodes = np.array(levels.nodes)
    centre, scale = (nodes[0] + nodes[-1]) / 2, (nodes[-1] - nodes[0]) / 2
    values = np.append((nodes - centre) / scale, [0.0] * levels.has_missing)
    name = f"log({levels.name})" if levels.is_log else levels.name
    return DesignColumn(name, "", "", total.workload.functional(levels.name, values), float(scale), float(centre))


def _make_levels(total: PairwiseTotal, levels: Levels) -> list[DesignColumn]:
    reference, *others = levels.names
    return [
        DesignColumn(levels.name, level, reference, total.workload.indicator(levels.name, level)) for level in others
    ]


def _has_rows(total: PairwiseTotal, function: Functional) -> bool:
    count = read_products(total, [(function, total.workload.constant)])
    return bool(count.values[0] > max(LEAST_SIGNAL * count.errors[0], 0.5))


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """G, b and Σy² over the rows whose outcome is known, with the covariance of their noise."""

    readings: Readings
    """The upper triangle of G row by row, then b, then Σy²."""
    n_rows: float
    """Number of rows whose outcome is known."""
    is_scaled: bool
    """Whether G was summed over all rows and scaled to the number of rows whose outcome is known."""

    @property
    def n_terms(self) -> int:
        """p, the number of terms, including the intercept."""
        return int(math.isqrt(2 * len(self.readings.values)) - 1)

    @property
    def matrix(self) -> Matrix:
        """G."""
        p = self.n_terms
        G = np.zeros((p, p))
        G[np.triu_indices(p)] = self.readings.values[: -p - 1]
        return np.asarray(G + np.triu(G, 1).T)

    @property
    def vector(self) -> Vector:
        """The vector b."""
        return np.asarray(self.readings.values[-self.n_terms - 1 : -1])


def read_normal_equations(total: PairwiseTotal, design: Design) -> NormalEquations:
    """Return the normal equations of a design; raise an `InputError` if missing outcomes clearly depend on a term."""
    workload, functions, y = total.workload, [column.function for column in design.columns], design.outcome.function
    p = len(functions)
    pairs = [(functions[l], functions[m]) for l, m in zip(*np.triu_indices(p), strict=True)]
    readings = read_products(total, [*pairs, *((function, y) for function in functions), (y, y)])
    present = workload.present(y.column)
    n, known = read_products(total, [(workload.constant, workload.constant), (present, workload.constant)]).values
    is_scaled = workload.column(y.column).has_missing
    if is_scaled:
        _require_missing_at_random(total, design)
        weights = np.eye(len(readings.values))
        weights[: len(pairs)] *= known / n
        readings = readings.combine(weights)
    return NormalEquations(readings, float(known), is_scaled)


def _require_missing_at_random(total: PairwiseTotal, design: Design) -> None:
    """Raise an `InputError` if a term's mean over rows with a known outcome clearly differs from its mean over all rows.

    If outcomes are missing independently of the terms, Σ_known z − (n_known/n) Σ z has mean zero and covariance
    n_known (1 − n_known/n) Cov z. The covariance of the noise is added.
    """
    workload, functions = total.workload, [column.function for column in design.columns]
    present, p = workload.present(design.outcome.function.column), len(functions)
    others = ([(factor, function) for function in functions] for factor in (present, workload.constant))
    readings = read_products(
        total, [*(pair for pairs in others for pair in pairs), *zip(functions, functions, strict=True)]
    )
    known, sums, squares = readings.values.reshape(3, p)
    n, share, means = sums[0], known[0] / sums[0], sums / sums[0]
    weights = np.hstack([np.eye(p), -share * np.eye(p), np.zeros((p, p))])
    weights[:, 0] -= means
    weights[:, p] += share * means
    gaps = readings.combine(weights)
    sampling = max(known[0] * (1 - share), 0.0) * np.maximum(squares / n - means**2, 0.0)
    errors = np.sqrt(sampling + gaps.errors**2)
    scores = np.abs(gaps.values) / np.maximum(errors, 1e-9 * n)  # the score of the intercept is zero
    worst = int(np.argmax(scores))
    if scores[worst] > _MOST_GAP:
        column, outcome = design.columns[worst], design.outcome.term
        name = f"{column.term}: {column.level}" if column.level else column.term
        problem = (
            f"Whether {outcome} is missing depends on {name}: the mean of {name} over rows where {outcome} is known differs "
            f"from the mean over all rows by {scores[worst]:.1f} standard errors. Coefficients and intervals would be wrong."
        )
        raise InputError(
            "formula", problem=problem, cure="Leave that term out, or regress a column that is always known."
        )


@dataclass(frozen=True, eq=False)
class Fit:
    """The solution of normal equations, in the units of the design."""

    coefficients: Vector
    covariance: Matrix
    """The covariance of the coefficients over repeated samples of rows and of noise."""
    noise_covariance: Matrix
    """The part of `covariance` that comes from the noise."""
    residual_variance: float
    r_squared: float
    degrees_of_freedom: float


def solve_normal_equations(equations: NormalEquations) -> Fit:
    """Return the solution of the normal equations.

    An `InputError` is raised if there are too few rows, if one term follows from the others, if the noise is too large, or
    if the sums contradict each other.
    """
    p, n = equations.n_terms, equations.n_rows
    G, b, noise = equations.matrix, equations.vector, equations.readings.noise
    if not n > p + 1:
        raise refuse_regression(equations)
    if measure_noise(equations) > MOST_NOISE:
        raise refuse_regression(equations)
    inverse: Matrix = np.asarray(np.linalg.inv(G), dtype=np.float64)
    beta = inverse @ b
    residual = residual_weights(beta)
    N = residual @ noise @ residual.T
    squares = float(equations.readings.values[-1])
    left = squares - float(b @ inverse @ b) + float(np.sum(inverse * N))
    error = math.sqrt(_find_residual_noise(beta, noise))
    most = _MOST_CONTRADICTION if equations.is_scaled else _MOST_NOISE_ALONE
    if left < -max(most * error, 1e-9 * squares):
        raise _refuse_contradiction(equations)
    left = max(left, error, 1e-12 * squares)
    variance = left / (n - p)
    spread = squares - b[0] ** 2 / n
    noisy = inverse @ N @ inverse
    r_squared = max(0.0, 1 - left / spread) if spread > 0 else np.nan
    return Fit(beta, variance * inverse + noisy, noisy, variance, r_squared, n - p)


def _refuse_contradiction(equations: NormalEquations) -> InputError:
    """Return the error for terms that explain more than the whole variance of the outcome."""
    has_noise = equations.readings.noise.any()
    or_noise, hardly = (", noise", ", since noise alone hardly ever has this effect") if has_noise else ("", "")
    problem = "The terms explain more than the whole variance of the outcome, which no rows can do. "
    if equations.is_scaled:
        problem += f"The cause is chance{or_noise}, or a dependence of missing outcomes on the terms."
        cure = "Use other terms, or regress a column that is always known."
    else:
        problem += f"The sums of a participant may be invented{hardly}."
        cure = "Ask participants about their tables."
    return InputError("formula", problem=problem, cure=cure)


def _find_residual_noise(beta: Vector, noise: Matrix) -> float:
    """Return the variance of the noise on Σy² − 2bᵀβ + βᵀGβ, the sum of squared residuals."""
    p = len(beta)
    twice = 2 - np.eye(p)
    weights = np.concatenate([(twice * np.outer(beta, beta))[np.triu_indices(p)], -2 * beta, [1.0]])
    return max(float(weights @ noise @ weights), 0.0)


def _pair_index(p: int) -> npt.NDArray[np.int64]:
    """Return a matrix that holds, at (l, m), the index of G_lm among the readings."""
    index = np.zeros((p, p), dtype=np.int64)
    upper = np.triu_indices(p)
    index[upper] = index.T[upper] = np.arange(len(upper[0]))
    return index


def product_weights(beta: Vector) -> Matrix:
    """Return the weights with which Gβ is a sum of readings, of shape (p, readings)."""
    p = len(beta)
    weights = np.zeros((p, p * (p + 1) // 2 + p + 1))
    weights[np.arange(p)[:, None], _pair_index(p)] = beta
    return weights


def residual_weights(beta: Vector) -> Matrix:
    """Return the weights with which b − Gβ is a sum of readings, of shape (p, readings)."""
    p, weights = len(beta), -product_weights(beta)
    weights[np.arange(p), p * (p + 1) // 2 + np.arange(p)] = 1.0
    return weights


def measure_noise(equations: NormalEquations) -> float:
    """Return the scale of the noise on G relative to G; infinite if G is not positive definite.

    This is the root of the largest eigenvalue of the expectation of W², where W = G^-½ E G^-½.
    """
    p, noise = equations.n_terms, equations.readings.noise
    eigenvalues, vectors = np.linalg.eigh(equations.matrix)
    if eigenvalues[0] <= 1e-10 * eigenvalues[-1]:
        return math.inf
    index = _pair_index(p).ravel()
    turn = np.kron(vectors / np.sqrt(eigenvalues), vectors / np.sqrt(eigenvalues))  # vec W = turnᵀ vec E
    covariance = (turn.T @ noise[np.ix_(index, index)] @ turn).reshape(p, p, p, p)
    return math.sqrt(max(0.0, float(np.linalg.eigvalsh(np.einsum("abbd->ad", covariance))[-1])))


def refuse_regression(equations: NormalEquations) -> InputError:
    """Return the error for normal equations without a solution, or with noise that makes their solution useless."""
    p, cure = equations.n_terms, "Use fewer terms, or a study with more rows."
    if not equations.n_rows > p + 1:
        problem = f"There are too few rows for a regression with {p} coefficients."
    elif not equations.readings.noise.any():
        problem = f"The {p} coefficients are not determined: one term follows from the others."
        cure = "Leave that term out."
    else:
        problem = f"The noise is too large for a regression with {p} coefficients: its intervals would say nothing."
        cure = "Use fewer terms, or a study with more rows, fewer columns or a larger epsilon."
    return InputError("formula", problem=problem, cure=cure)
