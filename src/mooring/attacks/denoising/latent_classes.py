"""A latent-class model of a table: label → component → independent columns, each a distribution over its atoms.

Fitted by expectation maximisation to rows of which each column's atom is known, or known up to noise: all that enters is the
likelihood of every atom. A component's distribution is drawn to that of all rows, and along a grid it is smoothed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.special import logsumexp

from mooring.attacks.denoising.atoms import AtomGroup
from mooring.attacks.view import Codes
from mooring.typing import Matrix

N_COMPONENTS = 16
_ROUNDS = 20
_WEIGHT = 4.0  # rows that the distribution over all rows counts for in a component's
_LABEL_WEIGHT = 1.0
_SMOOTHED = 0.5  # of a distribution over a grid
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class LatentClasses:
    """The model."""

    groups: tuple[AtomGroup, ...]
    mixing: Matrix
    """Of shape (n_classes, n_components): probabilities of the components in each class."""
    tables: tuple[Matrix, ...]
    """Each of shape (n_components, n_atoms): probabilities of a column's atoms in each component."""

    def components(self, likelihoods: Sequence[Matrix], codes: Codes) -> tuple[Matrix, list[Matrix]]:
        """Probabilities of each row's components; and of each column's atoms in a component, times their likelihoods."""
        marginals = [np.maximum(own @ table.T, _TINY) for own, table in zip(likelihoods, self.tables, strict=True)]
        logs = np.log(self.mixing[codes]) + sum(np.log(one) for one in marginals)
        logs -= logs.max(axis=1, keepdims=True)
        weights = np.exp(logs)
        return weights / weights.sum(axis=1, keepdims=True), marginals

    def log_evidence(self, logs: Sequence[Matrix], codes: Codes) -> Matrix:
        """Log probability of each row, by log likelihoods of each column's atoms."""
        columns = [
            np.log(np.maximum(np.exp(own - own.max(axis=1, keepdims=True)) @ table.T, _TINY)) + own.max(axis=1)[:, None]
            for own, table in zip(logs, self.tables, strict=True)
        ]
        return np.asarray(logsumexp(np.log(self.mixing[codes]) + sum(columns), axis=1))

    def posterior(self, likelihoods: Sequence[Matrix], codes: Codes) -> list[Matrix]:
        """Probabilities of each column's atoms, of shape (n, n_atoms), given likelihoods of the same shape."""
        weights, marginals = self.components(likelihoods, codes)
        return [
            own * ((weights / marginal) @ table)
            for own, table, marginal in zip(likelihoods, self.tables, marginals, strict=True)
        ]


def fit_latent_classes(
    groups: Sequence[AtomGroup],
    likelihoods: Sequence[Matrix],
    codes: Codes,
    *,
    n_classes: int,
    spread: float,
    rng: np.random.Generator,
) -> LatentClasses:
    """Fit the model to rows.

    Parameters
    ----------
    likelihoods : sequence of arrays of shape (n, n_atoms)
        For each column; at most 1.
    codes : numpy.ndarray of shape (n,)
        Labels.
    n_classes : int
        Of which some may have no row here.
    spread : float
        How far along a grid values are smoothed, in encoded units.
    """
    n = codes.size
    k = max(1, min(N_COMPONENTS, n // 8))
    overall = [
        _smoothed(group, (own / own.sum(axis=1, keepdims=True)).sum(axis=0), spread)
        for group, own in zip(groups, likelihoods, strict=True)
    ]
    overall = [one / one.sum() for one in overall]
    seeds = rng.choice(n, k, replace=False)
    tables = tuple(
        (own[seeds] / own[seeds].sum(axis=1, keepdims=True) + one) / 2
        for own, one in zip(likelihoods, overall, strict=True)
    )
    model = LatentClasses(tuple(groups), np.full((n_classes, k), 1 / k), tables)
    members = (codes[:, None] == np.arange(n_classes)).astype(np.float64)
    for _ in range(_ROUNDS):
        weights, marginals = model.components(likelihoods, codes)
        mixing = members.T @ weights + _LABEL_WEIGHT * weights.mean(axis=0)
        counts = [
            table * ((weights / marginal).T @ own)
            for own, table, marginal in zip(likelihoods, model.tables, marginals, strict=True)
        ]
        totals = [_smoothed(group, one.sum(axis=0), spread) for group, one in zip(groups, counts, strict=True)]
        tables = tuple(
            _smoothed(group, one, spread) + _WEIGHT * (total + 1e-3 / total.size) / (total.sum() + 1e-3)
            for group, one, total in zip(groups, counts, totals, strict=True)
        )
        model = LatentClasses(
            tuple(groups),
            mixing / mixing.sum(axis=1, keepdims=True),
            tuple(table / table.sum(axis=1, keepdims=True) for table in tables),
        )
    return model


def _smoothed(group: AtomGroup, counts: Matrix, spread: float) -> Matrix:
    """Counts, a share of them spread along the grid."""
    if group.grid.stop == 0:
        return counts
    smooth = counts.copy()
    smooth[..., group.grid] = gaussian_filter1d(counts[..., group.grid], spread / group.step, axis=-1, mode="nearest")
    return (1 - _SMOOTHED) * counts + _SMOOTHED * smooth
