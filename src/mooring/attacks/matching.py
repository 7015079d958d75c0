"""Matching: the rebuilt rows and a register's candidates are assigned to each other one to one, for membership.

Legend: ℓ(j, c) the log-likelihood ratio of rebuilt row j being candidate c against being somebody else's; C the number of
candidates, ρ the share of rows whose records are in the register.

A single candidate is scored by how well it fits any row. With a register, candidates also compete for rows: a row that one
candidate explains is not evidence for other candidates. With probability ρ a row is one of the candidates, all equally
likely, and no two rows are the same candidate. Belief propagation approximates the sum over all such assignments. Let a be
the messages from rows to candidates, b those from candidates to rows, and u = C (1 − ρ)/ρ the weight of a row whose record
is not in the register. The messages are updated until they no longer change:

    a(j, c) = e^ℓ(j, c) / (u + Σ_{c' ≠ c} e^ℓ(j, c') b(j, c')),        b(j, c) = 1 / (1 + Σ_{j' ≠ j} a(j', c)).

The odds that a candidate is one of the rows are then Σ_j a(j, c).
"""

from __future__ import annotations

import numpy as np

from mooring.typing import Matrix

_N_ROUNDS = 60
COVERED = 0.95
"""ρ: a register is meant to list everybody who may be in the data, and misses few."""
_DAMPING = 0.5  # share of a message that is kept from the round before
_SETTLED = 1e-4  # messages have converged if no log odds change by more than this
_LARGEST = 600.0  # largest ℓ that is used, so that its exponential is finite
_TINY = 1e-300


def match_candidates(log_ratios: Matrix) -> Matrix:
    """Return the log odds that each candidate is one of the rows, of shape (C,), from ℓ of shape (n_rows, C).

    Examples
    --------
    Two candidates fit the first row equally well, and the second of them also fits the second row:

    >>> match_candidates(np.array([[9.0, 9.0], [-9.0, 9.0]])).round(1).tolist()
    [10.6, 11.3]
    """
    if log_ratios.size == 0:
        return np.full(log_ratios.shape[1], -np.inf)
    weights = np.exp(np.minimum(log_ratios, _LARGEST))
    unknown = weights.shape[1] * (1 - COVERED) / COVERED
    backward, odds = np.ones_like(weights), np.zeros(weights.shape[1])
    for _ in range(_N_ROUNDS):
        forward = weights / (unknown + _sum_others(weights * backward, axis=1))
        before, odds = odds, np.log(np.maximum(forward.sum(axis=0), _TINY))
        if np.abs(odds - before).max(initial=0.0) < _SETTLED:
            break
        backward = _DAMPING * backward + (1 - _DAMPING) / (1 + _sum_others(forward, axis=0))
    return odds


def _sum_others(values: Matrix, *, axis: int) -> Matrix:
    """Return, for each entry, the sum of all other entries along an axis, without subtracting large numbers."""
    chosen, each = values.argmax(axis=axis), np.arange(values.shape[1 - axis])
    largest = (each, chosen) if axis == 1 else (chosen, each)
    top, others = values[largest], values.copy()
    others[largest] = 0.0
    rest = others.sum(axis=axis)
    sums = np.maximum(np.expand_dims(top + rest, axis) - values, 0.0)
    sums[largest] = rest
    return sums
