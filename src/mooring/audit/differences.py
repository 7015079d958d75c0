"""Gaps between rebuilt rows and the truth, as numbers and as figures."""

from __future__ import annotations

import numpy as np

from mooring.metrics import Figure, Interval, bootstrap_ratio
from mooring.typing import Matrix

RESAMPLES = 400


def centred(rows: Matrix) -> Matrix:
    """Rows less their mean; exact zeros where they are all alike but for rounding."""
    moved = rows - rows.mean(axis=0)
    alike = np.linalg.norm(moved) <= 1e-12 * np.linalg.norm(rows)
    return np.zeros_like(rows) if alike else moved


def error_figure(name: str, numerators: Matrix, denominators: Matrix, rng: np.random.Generator) -> Figure:
    """An error from each row's squared gap and squared length, with an interval over rows where there are two or more."""
    total = float(denominators.sum())
    value = float(np.sqrt(numerators.sum() / total)) if total > 0 else float("nan")
    interval = Interval.unknown()
    if numerators.size > 1 and total > 0:
        interval = bootstrap_ratio(numerators, denominators, rng=rng, n_resamples=RESAMPLES)
    return Figure(name, value, interval, None, None, None, int(numerators.size), False)


def squares(gap: Matrix) -> float:
    """The sum of squares."""
    return float((gap**2).sum())


def ratio(gap: Matrix, scale: Matrix) -> float | None:
    """The size of a gap relative to a scale; None where the scale is zero."""
    total = squares(scale)
    return float(np.sqrt(squares(gap) / total)) if total > 0 else None


def median(values: Matrix) -> float:
    """The median of what is finite; NaN where nothing is."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else float("nan")
