"""Coefficients of a linear model from sums, with standard errors and the part of these that comes from noise.

Legend: C, c the centred sums of products of features and of features with the outcome; λ the ridge; A = (C + λI)⁻¹; β = Ac;
s² the variance of the residuals; σ_S, σ_T the noise on the total.

    Cov β = s² A C A   (other rows)   +   A diag(σ_T² + ½ σ_S² (‖β‖² + β_i²)) A   (other noise, to first order)

Only features that are the columns themselves, without hat functions, have coefficients that can be interpreted. Σy² is not
shared. For two classes it follows from the number of rows; for a number it is bounded by the declared range, so that the
standard errors are upper bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mooring.errors import InputError
from mooring.learners.sums import Sums, centre_sums, find_ridge, solve_ridge
from mooring.mechanisms.sums.feature_map import TableFeatures
from mooring.serialization import FloatOrNaN, Record
from mooring.tables.schema import Column
from mooring.typing import Matrix


@dataclass(frozen=True)
class Coefficient(Record):
    """The change of the prediction for a given change of one feature."""

    name: str
    """Name of the feature."""
    per: str
    """The change of the feature, in words."""
    value: FloatOrNaN
    """Change of the label, or of the probability of the second class."""
    standard_error: FloatOrNaN
    """Standard error over rows and noise."""
    noise_error: FloatOrNaN
    """The part of the standard error that comes from the study's noise."""


def fit_coefficients(sums: Sums, features: TableFeatures, *, spread: float = 1.0) -> tuple[Coefficient, ...]:
    """Return the coefficients of least squares for two classes or for a number.

    `sums` are the sums of `features`, which must have no hat functions. `spread` is the length of a number's declared range.
    """
    if features.n_hats or features.log_scaled or sums.n_classes > 2:
        raise InputError(
            "features",
            expected="the columns themselves, and an outcome of two classes or a number",
            got="hats, a logarithmic scale, or more classes",
            cure="Draft the study with --hats 0.",
        )
    C, c, _, y_mean = centre_sums(sums, shrink=False)
    n, (noise_S, noise_T) = sums.n_rows, sums.noise_scales
    ridge = find_ridge(sums, C, c)
    A = solve_ridge(C, ridge, np.eye(len(C)))
    beta = (A @ c)[:, 0]
    explained = float(beta @ c[:, 0] + ridge * beta @ beta)  # 2 βᵀc − βᵀCβ, since Cβ = c − λβ
    left = max(n * (1 - float(y_mean[0]) ** 2) - explained, 0.0)
    s2 = left / max(n - len(beta) - 1, 1.0)
    sampled = s2 * np.maximum(np.diag(A) - ridge * (A**2).sum(axis=1), 0.0)  # ACA = A − λA²
    of_entries = noise_T**2 + noise_S**2 / 2 * (beta @ beta + beta**2)
    noisy = np.einsum("ij,j,ij->i", A, of_entries, A)
    units, words = _units(features)
    units = units * (spread / 2)  # from [−1, 1] to the range of the label, or to a probability for classes
    return tuple(
        Coefficient(name, per, float(b * u), float(abs(u) * math.sqrt(v + w)), float(abs(u) * math.sqrt(w)))
        for name, per, b, u, v, w in zip(features.names[:-1], words, beta, units, sampled, noisy, strict=True)
    )


def _units(features: TableFeatures) -> tuple[Matrix, list[str]]:
    """Return the change of φ for a change of each column by one of its units, and that unit in words."""
    scale = math.sqrt(1 - features.constant_share) / features.largest_norm
    pairs = [pair for column in features.schema.columns for pair in _units_of(column, scale)]
    return np.array([unit for unit, _ in pairs]), [words for _, words in pairs]


def _units_of(column: Column, scale: float) -> list[tuple[float, str]]:
    if column.kind != "category":
        units = [(scale / column.spread, "one more")]
    elif len(column.categories) == 2:
        units = [(scale, f"instead of {column.categories[0]}")]
    else:
        units = [(scale, "against the mean of all")] * len(column.categories)
    return units + ([(scale, "if missing")] if column.missing == "indicate" else [])
