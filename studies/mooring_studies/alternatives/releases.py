"""Rows drawn from a Gaussian copula, and summary statistics: what both tell of the rows behind them.

Synthetic rows are attacked by the nearest of them and by the ratio of two densities, that of the target's synthetic rows and
that of others' (van Breugel et al. 2023). Statistics are the counts and means of classes and one covariance within them, all
that linear discriminant analysis needs. They are attacked by how likely a candidate is under them rather than under the
others' (Homer et al. 2008), with the covariance as it is and shrunk, since members alone lie in its span where rows are
fewer than columns; and by a register of all candidates, solved for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp, ndtr, ndtri
from scipy.stats import rankdata

from mooring.typing import Matrix
from mooring_studies.alternatives.updates import EXACT, Codes, RowShape, solve_register

Labelled = tuple[Matrix, Codes]
"""Rows and their classes."""
_SHRINKAGE = {"likelihood in the span": 1e-6, "likelihood": 0.3}
_RIDGE = 1e-3  # of the mean variance: for columns that never vary


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """Counts, means and one covariance within classes, which count from 0."""

    counts: Matrix
    means: Matrix
    covariance: Matrix

    @classmethod
    def of(cls, rows: Matrix, codes: Codes, n_classes: int) -> ClassStatistics:
        """Compute them; the mean of a class without rows is that of all."""
        counts = np.bincount(codes, minlength=n_classes).astype(np.float64)
        means = np.stack([rows[codes == k].mean(axis=0) if counts[k] else rows.mean(axis=0) for k in range(n_classes)])
        gap = rows - means[codes]
        return cls(counts, means, gap.T @ gap / len(rows))

    @classmethod
    def pool(cls, parts: Sequence[ClassStatistics]) -> ClassStatistics:
        """Everybody's together; how the parts' means differ is part of the covariance."""
        counts = np.sum([part.counts for part in parts], axis=0)
        means = np.sum([part.counts[:, None] * part.means for part in parts], axis=0) / np.maximum(counts, 1)[:, None]
        scatter = np.zeros_like(parts[0].covariance)
        for part in parts:
            scatter += part.counts.sum() * part.covariance
            scatter += (part.counts[:, None] * (part.means - means)).T @ (part.means - means)
        return cls(counts, means, scatter / counts.sum())

    def discriminate(self, rows: Matrix) -> Matrix:
        """Linear discriminant scores of rows, by class."""
        solved = np.linalg.solve(_ridged(self.covariance), self.means.T)
        offsets = np.log(np.maximum(self.counts, 1)) - (self.means * solved.T).sum(axis=1) / 2
        return np.asarray(rows @ solved + offsets)

    def score_members(self, others: ClassStatistics, asked: Labelled) -> dict[str, Matrix]:
        """Scores of candidates by these statistics against the others', by attack."""
        rows, codes = asked
        usual, scores = _log_density(rows - others.means[codes], _ridged(others.covariance)), {}
        for name, share in _SHRINKAGE.items():
            covariance = (1 - share) * self.covariance + share * _ridged(others.covariance)
            scores[name] = _log_density(rows - self.means[codes], covariance) - usual
        # Counts, Σx by class and Σxxᵀ are sums over the rows, and follow from what is shared.
        totals = self.counts[:, None] * self.means
        squares = self.counts.sum() * self.covariance + totals.T @ self.means
        likeness = rows @ rows.T
        products = likeness**2 + (likeness + 1) * (codes[:, None] == codes)
        seen = (rows * (rows @ squares + totals[codes])).sum(axis=1) + self.counts[codes]
        return scores | {"register": solve_register(products, seen, self.counts.sum() / len(rows), EXACT)}


def draw_synthetic(labelled: Labelled, shape: RowShape, rng: np.random.Generator) -> Matrix:
    """Return as many rows of each class, drawn from a Gaussian copula with the class's own marginals.

    Among the columns of a category, the one whose normal score is farthest above its share's quantile is 1.
    """
    rows, codes = labelled
    drawn = np.empty_like(rows)
    for k in np.unique(codes):
        some, n = rows[codes == k], int((codes == k).sum())
        scores = ndtri((rankdata(some, axis=0) - 0.5) / n)
        scores -= scores.mean(axis=0)
        length = np.linalg.norm(scores, axis=0)
        normal = rng.standard_normal((n, n)) @ np.divide(scores, length, out=np.zeros_like(scores), where=length > 0)
        of_class = np.column_stack([np.quantile(x, u) for x, u in zip(some.T, ndtr(normal).T, strict=True)])
        for group in shape.groups:
            share = np.clip(some[:, group].mean(axis=0), EXACT, 1 - EXACT)
            chosen = (normal[:, group] + ndtri(share)).argmax(axis=1)
            of_class[:, group] = np.eye(share.size)[chosen]
        drawn[codes == k] = of_class
    return drawn


def score_by_synthetic(labelled: Labelled, others: Labelled, asked: Labelled) -> dict[str, Matrix]:
    """Scores of candidates by the target's own synthetic rows against others', by attack."""
    (rows, codes), width = asked, len(labelled[0]) ** (-1 / (labelled[0].shape[1] + 4))  # Scott's, of a kernel
    pooled = ClassStatistics.of(*others, int(max(part.max() for part in (others[1], codes))) + 1)
    whitening = np.linalg.inv(np.linalg.cholesky(_ridged(pooled.covariance))).T
    scores = np.empty((3, len(rows)))
    for k in np.unique(codes):
        some = rows[codes == k]
        mine, theirs = (part[known == k] if (known == k).any() else part for part, known in (labelled, others))
        near, far = (cdist(some @ whitening, part @ whitening) for part in (mine, theirs))
        densities = [logsumexp(-((gaps / width) ** 2) / 2, axis=1) - np.log(gaps.shape[1]) for gaps in (near, far)]
        scores[:, codes == k] = (
            -cdist(some, mine).min(axis=1),
            far.min(axis=1) - near.min(axis=1),
            densities[0] - densities[1],
        )
    return dict(zip(("nearest row", "nearest row, against others", "density ratio"), scores, strict=True))


def _ridged(covariance: Matrix) -> Matrix:
    return np.asarray(covariance + _RIDGE * np.trace(covariance) / len(covariance) * np.eye(len(covariance)))


def _log_density(gaps: Matrix, covariance: Matrix) -> Matrix:
    factor = np.linalg.cholesky(covariance)
    return np.asarray(-(np.linalg.solve(factor, gaps.T) ** 2).sum(axis=0) / 2 - np.log(np.diag(factor)).sum())
