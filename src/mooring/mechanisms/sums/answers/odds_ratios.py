"""Odds ratios by logistic regression. Sums that the total lacks come from a mixture that is fitted to the total.

Legend: z the row of terms, y the outcome of zeros and ones, β the coefficients, η = zᵀβ, p the logistic function; G = Σ zzᵀ
and b = Σ zy from the total; n the number of rows; e₁ the unit vector of the intercept; E_m the mean over rows of the
mixture; Λ the precision of a normal prior of standard deviation 2.5 on all coefficients but the intercept, in units of half
a declared range.

Maximum likelihood solves Σ z (y − p(η)) = 0. Let p(η) = a + cη + r(η), where a and c are fitted to rows of the mixture. Then
only r needs sums over rows of the mixture. The penalised equation and its Hessian are

    b − G(a e₁ + cβ) − n E_m[z r(η)] − Λβ = 0
    H = n E_m[p(1 − p)zzᵀ] + c (G − n E_m[zzᵀ]) + Λ,        Cov β = H⁻¹ (H + N) H⁻¹,

where N is the covariance of the noise of b − G(a e₁ + cβ). Intervals are as in `regression`. A mixture preserves only the
relations of pairs of columns, so that β has a bias. To measure it, the same estimate is made from the sums of rows drawn
from the mixture, and compared with the solution for these rows themselves. If the bias exceeds half a standard error, the
answer is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import expit

from mooring.errors import InputError
from mooring.mechanisms.sums.answers.answer import Answer, name_source, state_intervals, write_number, write_p
from mooring.mechanisms.sums.answers.mixture import Mixture, fit_mixture
from mooring.mechanisms.sums.answers.readings import Z
from mooring.mechanisms.sums.answers.regression import (
    MOST_NOISE,
    Design,
    DesignColumn,
    NormalEquations,
    Spread,
    make_design,
    measure_noise,
    measure_spread,
    product_weights,
    read_normal_equations,
    refuse_regression,
    residual_weights,
)
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.mechanisms.sums.general.workload import Functional
from mooring.serialization import FloatOrNaN, Record, Rows
from mooring.typing import Matrix, Vector

_N_ROWS = 20_000  # rows of the mixture over which means are taken
_PRIOR_SCALE = 2.5
_MOST_BIAS = 0.5  # in standard errors
_N_STEPS = 50
_SEED = 0


@dataclass(frozen=True)
class OddsRatio(Record):
    """One odds ratio."""

    term: str
    """Name of the column, or log(name) where its scale is logarithmic."""
    level: str
    """The level of a category, or the level of missing values; empty for a number, whose odds ratio is per unit."""
    reference: str
    """The level with which a category's level is compared; otherwise empty."""
    odds_ratio: FloatOrNaN
    low: FloatOrNaN
    high: FloatOrNaN
    p: FloatOrNaN
    bias: FloatOrNaN
    """Bias of the coefficient, the logarithm of the odds ratio, in standard errors, as measured on the mixture."""


@dataclass(frozen=True)
class OddsRatios(Answer):
    """A logistic regression."""

    answer: ClassVar[str] = "odds-ratios"
    lines_field: ClassVar[str] = "ratios"

    formula: str
    outcome: str
    ratios: tuple[OddsRatio, ...]

    def list_estimates(self) -> dict[str, tuple[float, float, float]]:
        """Return (estimate, low, high) of the odds ratios, by term and level."""
        return {
            f"{entry.term} {entry.level}".strip(): (entry.odds_ratio, entry.low, entry.high) for entry in self.ratios
        }

    def list_tables(self) -> dict[str, Rows]:
        """Return one table of the odds ratios with intervals and p-values."""
        lines = []
        for entry in self.ratios:
            name = f"{entry.term}: {entry.level}" if entry.level else f"{entry.term}, per unit"
            name += f" (against {entry.reference})" if entry.reference else ""
            interval = f"{write_number(entry.low, 4)} to {write_number(entry.high, 4)}"
            lines.append((name, write_number(entry.odds_ratio, 4), interval, write_p(entry.p)))
        return {f"{self.outcome}: odds ratios": [("term", "odds ratio", "95 % interval", "p"), *lines]}


def estimate_odds_ratios(total: PairwiseTotal, formula: str) -> OddsRatios:
    """Return the odds ratios of a logistic regression of an outcome with two levels.

    A normal prior, which this module states, shrinks the coefficients a little towards zero. The answer is refused if its
    bias, which is measured on a mixture that is fitted to the total, exceeds half a standard error.

    Parameters
    ----------
    total : PairwiseTotal
        The opened total, from `Analyst.open_total`.
    formula : str
        As for `regress`; the outcome must have two levels.

    Returns
    -------
    OddsRatios

    Raises
    ------
    InputError
        As for `regress`, or if the outcome is a number, if no term has a level to compare, or if the bias exceeds half a
        standard error.
    """
    design, source = make_design(total, formula), name_source(total)
    if not design.outcome.level:
        problem = f"The outcome {design.outcome.term!r} is a number; odds ratios need an outcome with two levels."
        raise InputError("formula", problem=problem, cure="Choose such an outcome, or a linear regression.")
    if len(design.columns) == 1:
        problem = (
            "There is nothing to compare: in each term, only the reference has rows that stand out from the noise."
        )
        if not total.noise_variance:
            problem = "There is nothing to compare: in each term, only the reference has rows."
        raise InputError("formula", problem=problem, cure="Use other terms.")
    equations = read_normal_equations(total, design)
    if measure_noise(equations) > MOST_NOISE:
        raise refuse_regression(equations)
    total, design = _select_columns(total, design)
    mixture = fit_mixture(total)
    z = _find_terms(mixture, design, mixture.draw_places(_N_ROWS, np.random.default_rng(_SEED)))
    solution = _solve(equations, z)
    beta, spreads = solution.coefficients, [solution.find_spread(equations, k) for k in range(equations.n_terms)]
    errors = np.sqrt([spread.constant for spread in spreads])
    if errors[1:].max() > _PRIOR_SCALE:  # only noise makes errors larger than the prior's standard deviation
        raise refuse_regression(equations)
    bias = _measure_bias(mixture, design, equations.n_rows) / errors
    worst = int(np.argmax(np.abs(bias[1:]))) + 1
    if abs(bias[worst]) > _MOST_BIAS:
        term = design.columns[worst]
        name = f"{term.term}: {term.level}" if term.level else term.term
        problem = (
            f"Sums of pairs of columns do not determine these odds ratios well enough: the bias of {name} is about "
            f"{abs(bias[worst]):.1f} standard errors, and intervals allow for {_MOST_BIAS:g} at most."
        )
        cure = "Use fewer terms, or the linear regression, whose coefficients are differences of probability."
        raise InputError("formula", problem=problem, cure=cure)
    ratios = tuple(
        _state_ratio(*values) for values in zip(design.columns[1:], beta[1:], spreads[1:], bias[1:], strict=True)
    )
    if not all(math.isfinite(entry.low) for entry in ratios):
        raise refuse_regression(equations)
    caveat = (
        "The part of the logistic function that is not linear was taken from a model of pairs of columns. Its bias, "
        f"measured on that model, is at most {abs(bias[worst]):.2f} standard errors; where the model does not hold, it may "
        "be larger."
    )
    outcome = f"{design.outcome.term} = {design.outcome.level}"
    return OddsRatios(source, (*design.notes, caveat), state_intervals(total), formula, outcome, ratios)


def _select_columns(total: PairwiseTotal, design: Design) -> tuple[PairwiseTotal, Design]:
    """Return the total of only those columns that a design uses, so that a mixture is fitted faster, and its design."""
    selected = total.select({column.function.column for column in (design.outcome, *design.columns)})

    def move(column: DesignColumn) -> DesignColumn:
        name, workload = column.function.column, selected.workload
        return replace(
            column, function=workload.functional(name, column.function.values) if name else workload.constant
        )

    return selected, replace(design, outcome=move(design.outcome), columns=tuple(map(move, design.columns)))


def _state_ratio(column: DesignColumn, coefficient: float, spread: Spread, bias: float) -> OddsRatio:
    """Return the odds ratio per unit of a number, or of a level compared with the reference."""
    ends = (coefficient, *spread.find_interval(coefficient, Z))
    ratio, low, high = (math.exp(min(end / column.scale, 700.0)) for end in ends)
    p = spread.find_p(coefficient, math.inf)
    return OddsRatio(column.term, column.level, column.reference, ratio, low, high, p, float(bias))


def _find_terms(mixture: Mixture, design: Design, places: Matrix) -> Matrix:
    """Return the terms of rows of a mixture at these places (`Mixture.draw_places`)."""
    index = {column.name: k for k, column in enumerate(mixture.workload.columns)}

    def evaluate(function: Functional) -> Vector:
        if not function.column:
            return np.ones(len(places))
        return np.interp(places[:, index[function.column]], np.arange(len(function.values)), function.values)

    return np.column_stack([evaluate(column.function) for column in design.columns])


@dataclass(frozen=True, eq=False)
class _Solution:
    """A solution of the module's equations."""

    coefficients: Vector
    linear: Vector
    """a e₁ + cβ."""
    slope: float
    """c."""
    hessian: Matrix
    inverse: Matrix
    """H⁻¹."""

    def find_spread(self, equations: NormalEquations, index: int) -> Spread:
        """Return the spread of a coefficient."""
        noise, row = equations.readings.noise, self.inverse[index]
        weights = residual_weights(self.linear)
        together = self.inverse @ (self.hessian @ row + weights @ (noise @ (row @ weights)))
        change = -self.slope * row @ product_weights(together / together[index])
        return measure_spread(noise, float(row @ self.hessian @ row), row @ weights, change)


def _solve(equations: NormalEquations, z: Matrix) -> _Solution:
    """Return the solution of the module's equations by Newton's method; z has the terms of rows of the mixture."""
    G, b, n, p = equations.matrix, equations.vector, equations.n_rows, equations.n_terms
    prior = np.diag([0.0, *[_PRIOR_SCALE**-2] * (p - 1)])
    second = z.T @ z / len(z)
    beta = np.zeros(p)
    beta[0] = math.log(max(b[0], 0.5) / max(n - b[0], 0.5))
    first = np.eye(1, p)[0]
    for _ in range(_N_STEPS):
        eta = z @ beta
        mean = expit(eta)
        variance = mean * (1 - mean)
        slope = float(np.cov(eta, mean)[0, 1] / np.var(eta, ddof=1)) if np.ptp(eta) > 1e-9 else float(variance.mean())
        level = float((mean - slope * eta).mean())
        linear = level * first + slope * beta
        rest = z.T @ (mean - level - slope * eta) / len(z)
        score = b - G @ linear - n * rest - prior @ beta
        H = n * (z.T @ (variance[:, None] * z)) / len(z) + slope * (G - n * second) + prior
        eigenvalues, vectors = np.linalg.eigh((H + H.T) / 2)
        inverse = (vectors / np.maximum(eigenvalues, 1e-6 * eigenvalues[-1])) @ vectors.T
        step = inverse @ score
        beta = beta + step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-9:
            break
    return _Solution(beta, linear, slope, H, inverse)


def _measure_bias(mixture: Mixture, design: Design, n_rows: float) -> Vector:
    """Return the bias: the estimate from a total of rows of the mixture, minus the solution for these rows themselves."""
    places = mixture.draw_places(_N_ROWS, np.random.default_rng(_SEED + 1))
    total = mixture.sum_places(places, n_rows)
    equations, again = read_normal_equations(total, design), fit_mixture(total)
    drawn = again.draw_places(_N_ROWS, np.random.default_rng(_SEED))
    estimate = _solve(equations, _find_terms(again, design, drawn))
    truth = _solve(equations, _find_terms(mixture, design, places))
    return np.asarray(estimate.coefficients - truth.coefficients)
