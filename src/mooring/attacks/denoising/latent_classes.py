"""A latent-class model of a table: stratum → component → independent columns, each a distribution over its atoms.

The atoms of a column are the points that it can take (`atoms`). A stratum holds the rows of one participant with one label.
The model is fitted by expectation maximisation to the likelihoods of every column's atoms, so that known and noisy rows can
be used together. A component's distribution is shrunk to that of all rows, and smoothed along a grid. A stratum's
probabilities of components are shrunk to those of its label by a Dirichlet prior, whose weight is also fitted (Minka 2000):
the weight is large if participants are alike, and small if they differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.special import psi

from mooring.attacks.denoising.atoms import AtomGroup
from mooring.attacks.view import Codes
from mooring.typing import Matrix

_WEIGHT = 4.0  # weight, in rows, of the distribution over all rows in the distribution of a component
_LABEL_WEIGHT = 1.0
_FIRST_PRIOR_WEIGHT, _PRIOR_WEIGHTS, _PRIOR_ROUNDS = 20.0, (0.5, 1e4), 3
_SMOOTHED = 0.5  # smoothed share of a distribution over a grid
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class LatentClasses:
    """A fitted latent-class model."""

    groups: tuple[AtomGroup, ...]
    mixing: Matrix
    """Probabilities of the components in each stratum, of shape (n_strata, n_components)."""
    tables: tuple[Matrix, ...]
    """Probabilities of a column's atoms in each component, each of shape (n_components, n_atoms)."""

    def components(self, likelihoods: Sequence[Matrix], codes: Codes) -> tuple[Matrix, list[Matrix], Matrix]:
        """Return the probabilities of each row's components, each column's likelihood in them, and log-likelihoods."""
        marginals = [np.maximum(part @ table.T, _TINY) for part, table in zip(likelihoods, self.tables, strict=True)]
        logs = np.log(self.mixing[codes]) + sum(np.log(marginal) for marginal in marginals)
        top = logs.max(axis=1, keepdims=True)
        weights = np.exp(logs - top)
        total = weights.sum(axis=1, keepdims=True)
        return weights / total, marginals, (top + np.log(total))[:, 0]

    def posterior(self, logs: Sequence[Matrix], codes: Codes) -> tuple[list[Matrix], Matrix]:
        """Return the probabilities of each column's atoms, and the log probability of each row.

        Both follow from the log-likelihoods of each column's atoms, of shape (n, n_atoms) like the probabilities.
        """
        tops = [part.max(axis=1, keepdims=True) for part in logs]
        likelihoods = [np.exp(part - top) for part, top in zip(logs, tops, strict=True)]
        weights, marginals, evidence = self.components(likelihoods, codes)
        probabilities = [
            part * ((weights / marginal) @ table)
            for part, table, marginal in zip(likelihoods, self.tables, marginals, strict=True)
        ]
        return probabilities, np.asarray(evidence + sum(top[:, 0] for top in tops))


def fit_latent_classes(
    groups: Sequence[AtomGroup],
    likelihoods: Sequence[Matrix],
    codes: Codes,
    *,
    labels: Codes,
    spread: float,
    rng: np.random.Generator,
    n_classes: int,
    n_rounds: int,
) -> LatentClasses:
    """Return the model fitted to rows, with at most `n_classes` components and at most one component per eight rows.

    `likelihoods` holds the likelihood of every atom, of shape (n, n_atoms), for each column; `codes` holds strata, `labels`
    the label of each stratum, and `spread` the smoothing along a grid in encoded units.
    """
    n = codes.size
    k = max(1, min(n_classes, n // 8))
    overall = [
        _smoothed(group, (part / part.sum(axis=1, keepdims=True)).sum(axis=0), spread)
        for group, part in zip(groups, likelihoods, strict=True)
    ]
    overall = [counts / counts.sum() for counts in overall]
    seeds = rng.choice(n, k, replace=False)
    tables = tuple(
        (part[seeds] / part[seeds].sum(axis=1, keepdims=True) + mean) / 2
        for part, mean in zip(likelihoods, overall, strict=True)
    )
    model = LatentClasses(tuple(groups), np.full((labels.size, k), 1 / k), tables)
    prior_weight = _FIRST_PRIOR_WEIGHT
    for _ in range(n_rounds):
        weights, marginals, _ = model.components(likelihoods, codes)
        mixing, prior_weight = _mix(weights, codes, labels, prior_weight, rng)
        counts = [
            table * ((weights / marginal).T @ part)
            for part, table, marginal in zip(likelihoods, model.tables, marginals, strict=True)
        ]
        totals = [_smoothed(group, count.sum(axis=0), spread) for group, count in zip(groups, counts, strict=True)]
        tables = tuple(
            _smoothed(group, count, spread) + _WEIGHT * (total + 1e-3 / total.size) / (total.sum() + 1e-3)
            for group, count, total in zip(groups, counts, totals, strict=True)
        )
        tables = tuple(table / table.sum(axis=1, keepdims=True) for table in tables)
        model = LatentClasses(tuple(groups), mixing, tables)
    return model


def _mix(
    weights: Matrix, codes: Codes, labels: Codes, prior_weight: float, rng: np.random.Generator
) -> tuple[Matrix, float]:
    """Return the probabilities of the components in each stratum, and the weight of the prior.

    The weight is fitted to randomly drawn components, because probabilities under noise are similar in all strata.
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
    """Return counts, of which a share is smoothed along the grid."""
    if group.grid.stop == 0:
        return counts
    smooth = counts.copy()
    smooth[..., group.grid] = gaussian_filter1d(counts[..., group.grid], spread / group.step, axis=-1, mode="nearest")
    return (1 - _SMOOTHED) * counts + _SMOOTHED * smooth
