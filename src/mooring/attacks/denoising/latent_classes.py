"""A latent-class model of a table: stratum → component → independent columns, each a distribution over its atoms.

A stratum is the rows of one participant with one label. The model is fitted by expectation maximisation to rows of which
each column's atom is known, or known up to noise: all that enters is the likelihood of every atom. A component's
distribution is drawn to that of all rows, and along a grid it is smoothed. A stratum's probabilities of components are drawn
to those of its label by a Dirichlet prior, whose weight is fitted, too (Minka 2000): large where participants are alike,
small where they differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.special import logsumexp, psi

from mooring.attacks.denoising.atoms import AtomGroup
from mooring.attacks.view import Codes
from mooring.typing import Matrix

N_COMPONENTS = 16
_ROUNDS = 20
_WEIGHT = 4.0  # rows that the distribution over all rows counts for in a component's
_LABEL_WEIGHT = 1.0
_FIRST_PRIOR_WEIGHT, _PRIOR_WEIGHTS, _PRIOR_ROUNDS = 20.0, (0.5, 1e4), 3
_SMOOTHED = 0.5  # of a distribution over a grid
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class LatentClasses:
    """The model."""

    groups: tuple[AtomGroup, ...]
    mixing: Matrix
    """Of shape (n_strata, n_components): probabilities of the components in each stratum."""
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
    labels: Codes,
    spread: float,
    rng: np.random.Generator,
) -> LatentClasses:
    """Fit the model to rows."""
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
    model = LatentClasses(tuple(groups), np.full((labels.size, k), 1 / k), tables)
    prior_weight = _FIRST_PRIOR_WEIGHT
    for _ in range(_ROUNDS):
        weights, marginals = model.components(likelihoods, codes)
        mixing, prior_weight = _mix(weights, codes, labels, prior_weight, rng)
        counts = [
            table * ((weights / marginal).T @ own)
            for own, table, marginal in zip(likelihoods, model.tables, marginals, strict=True)
        ]
        totals = [_smoothed(group, one.sum(axis=0), spread) for group, one in zip(groups, counts, strict=True)]
        tables = tuple(
            _smoothed(group, one, spread) + _WEIGHT * (total + 1e-3 / total.size) / (total.sum() + 1e-3)
            for group, one, total in zip(groups, counts, totals, strict=True)
        )
        tables = tuple(table / table.sum(axis=1, keepdims=True) for table in tables)
        model = LatentClasses(tuple(groups), mixing, tables)
    return model


def _mix(
    weights: Matrix, codes: Codes, labels: Codes, prior_weight: float, rng: np.random.Generator
) -> tuple[Matrix, float]:
    """Probabilities of the components in each stratum, by those of its rows; and how much the prior weighs.

    The weight is fitted to components that are drawn: probabilities under noise are alike in all strata, whatever these are.
    """
    counts, drawn = np.zeros((2, labels.size, weights.shape[1]))
    np.add.at(counts, codes, weights)
    by_label = np.tile(_LABEL_WEIGHT * weights.mean(axis=0), (int(labels.max()) + 1, 1))
    np.add.at(by_label, labels, counts)
    prior = np.maximum(by_label / by_label.sum(axis=1, keepdims=True), _TINY)[labels]
    below = weights.cumsum(axis=1)[:, :-1] < rng.random((weights.shape[0], 1))
    np.add.at(drawn, (codes, below.sum(axis=1)), 1.0)
    sizes = drawn.sum(axis=1)
    seen, least, most = sizes > 0, *_PRIOR_WEIGHTS
    for _ in range(_PRIOR_ROUNDS):
        start = prior_weight * prior[seen]
        gain = (prior[seen] * (psi(drawn[seen] + start) - psi(start))).sum()
        prior_weight *= float(gain / (psi(sizes[seen] + prior_weight) - psi(prior_weight)).sum())
        prior_weight = min(max(prior_weight, least), most)
    mixing = counts + prior_weight * prior
    return mixing / mixing.sum(axis=1, keepdims=True), prior_weight


def _smoothed(group: AtomGroup, counts: Matrix, spread: float) -> Matrix:
    """Counts, a share of them spread along the grid."""
    if group.grid.stop == 0:
        return counts
    smooth = counts.copy()
    smooth[..., group.grid] = gaussian_filter1d(counts[..., group.grid], spread / group.step, axis=-1, mode="nearest")
    return (1 - _SMOOTHED) * counts + _SMOOTHED * smooth
