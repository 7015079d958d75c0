"""Likelihood-based inference about candidate records from rebuilt rows: membership, identity and the attacker's confidence.

Legend: x̂_j = x_j + e_j a rebuilt row with error e ~ N(0, E); x_c a candidate of class k; f_k the density of rebuilt rows
of class k. The ratio

    ℓ(j, c) = log N(x̂_j; x_c, E) − log f_k(x̂_j)

is the log-likelihood ratio of x̂_j being the candidate against being another row. If the candidate is a member, at any
position, the upload is mean_j exp ℓ(j, c) times as likely as if it is not. By the Neyman–Pearson lemma no score separates
members better, provided that E and f are right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln

from mooring.metrics.validation import BLOCK_NUMBERS, Integers
from mooring.typing import Matrix

_TIE = 1e-9
_MOST_IN_ROSTER = 1000  # rows per class: the cost of an assignment is cubic


@dataclass(frozen=True, eq=False)
class Densities:
    """Gaussian densities f_k of rebuilt rows."""

    means: Matrix
    """Mean of each class, of shape (K, h)."""
    covariances: Matrix
    """Covariance of each class, of shape (K, h, h)."""

    def log_density(self, rows: Matrix, codes: Integers) -> Matrix:
        """Return log f_k of each row under its class, up to the constant (h/2) log 2π."""
        log_densities = np.empty(len(rows))
        factors = np.linalg.cholesky(self.covariances)
        for k in np.unique(codes):
            in_class, factor = codes == k, factors[k]
            scaled = np.linalg.solve(factor, (rows[in_class] - self.means[k]).T)
            log_densities[in_class] = -(scaled**2).sum(axis=0) / 2 - np.log(np.diag(factor)).sum()
        return log_densities


@dataclass(frozen=True, eq=False)
class RebuiltRows:
    """An attacker's rebuilt rows of one upload, prepared for comparison with candidates."""

    whitened: Matrix
    """The rows in units of their error, of shape (n, h)."""
    whitening: Matrix
    """W with W Wᵀ = E⁻¹, of shape (h, h)."""
    codes: Integers
    """The class of each row, of shape (n,)."""
    surplus: Matrix
    """ℓ(j, c) if the candidate equals the rebuilt row, of shape (n,)."""

    @classmethod
    def of(cls, rows: Matrix, codes: Integers, *, error: Matrix, densities: Densities) -> RebuiltRows:
        """Prepare rebuilt rows of shape (n, h) with the error covariance E, which must be positive definite."""
        whitening = np.linalg.inv(np.linalg.cholesky(error)).T
        surplus = np.log(np.diag(whitening)).sum() - densities.log_density(rows, codes)
        return cls(rows @ whitening, whitening, codes, surplus)

    def score_members(self, candidates: Matrix, codes: Integers) -> Matrix:
        """Return log mean_j exp ℓ(j, c) over the rebuilt rows of each candidate's class; −∞ if the class has none."""
        scores = np.full(len(candidates), -np.inf)
        for class_rows, places in self._classes(codes):
            for part in _blocks(places, class_rows.size):
                ratios = self._ratios(class_rows, candidates[part])
                scores[part] = _log_sum_exp(ratios, axis=0) - np.log(class_rows.size)
        return scores

    def compare(self, candidates: Matrix, codes: Integers) -> Iterator[tuple[Integers, Matrix]]:
        """Yield, for each class that has rows and candidates, the candidates' places and ℓ(j, c), as rows by candidates."""
        for class_rows, places in self._classes(codes):
            yield places, self._ratios(class_rows, candidates[places])

    def search_register(self, register: Matrix, codes: Integers, answers: Integers) -> RegisterSearch:
        """Return the result of looking up every rebuilt row among the register's records of its class.

        `answers` holds the position of each row's record in the register, or −1 if it is not there.
        """
        n = len(self.codes)
        search = RegisterSearch(np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n, dtype=bool))
        for class_rows, places in self._classes(codes):
            for rows in _blocks(class_rows, places.size):
                ratios, wanted = self._ratios(rows, register[places]), answers[rows]
                place = np.minimum(np.searchsorted(places, wanted), places.size - 1)
                is_there = places[place] == wanted
                right = np.where(is_there, ratios[np.arange(rows.size), place], -np.inf)[:, None]
                slack = np.where(is_there, _TIE * (1 + np.abs(right[:, 0])), 0.0)[:, None]
                search.n_better[rows] = (ratios > right + slack).sum(axis=1)
                search.n_tied[rows] = (np.abs(ratios - right) <= slack).sum(axis=1) - is_there
                search.n_others[rows] = places.size - is_there
                evidence = np.logaddexp(
                    _log_sum_exp(ratios, axis=1), np.log(places.size)
                )  # includes 'not in the register'
                search.posterior[rows] = np.exp(ratios.max(axis=1) - evidence)
                search.is_right[rows] = is_there & (ratios.argmax(axis=1) == place)
        return search

    def assign_roster(self, roster: Matrix) -> tuple[Integers, Integers]:
        """Assign rebuilt rows one to one to a roster that holds exactly their records, in the same order.

        Returns the indices of the rows, and of the record assigned to each row. Only the first 1,000 rows of a class are
        assigned.
        """
        rows, chosen = [], []
        for k in np.unique(self.codes):
            rows.append(np.flatnonzero(self.codes == k)[:_MOST_IN_ROSTER])
            chosen.append(rows[-1][linear_sum_assignment(self._ratios(rows[-1], roster[rows[-1]]), maximize=True)[1]])
        return np.concatenate(rows), np.concatenate(chosen)

    def _ratios(self, rows: Integers, candidates: Matrix) -> Matrix:
        """Return ℓ(j, c) of some rebuilt rows and candidates, of shape (n, c)."""
        near, far = self.whitened[rows], candidates @ self.whitening
        squares = (near**2).sum(axis=1)[:, None] + (far**2).sum(axis=1) - 2 * near @ far.T
        return np.asarray(self.surplus[rows, None] - np.maximum(squares, 0.0) / 2)

    def _classes(self, codes: Integers) -> Iterator[tuple[Integers, Integers]]:
        """Yield the indices of rebuilt rows and of candidates, for each class that has both."""
        for k in np.intersect1d(self.codes, codes):
            yield np.flatnonzero(self.codes == k), np.flatnonzero(codes == k)


@dataclass(frozen=True, eq=False)
class RegisterSearch:
    """The result of searching a register for each rebuilt row; all arrays are of shape (n,)."""

    n_better: Matrix
    """Number of records that are likelier than the true one; all records if the true one is not in the register."""
    n_tied: Matrix
    """Number of other records that are as likely as the true one."""
    n_others: Matrix
    """Number of records other than the true one."""
    posterior: Matrix
    """Posterior probability of the likeliest record. A priori the register holds the row's record with probability one
    half, and all records are equally likely."""
    is_right: NDArray[np.bool_]
    """Whether the likeliest record is the true one."""

    def first_ranks(self, size: int | None = None) -> Matrix:
        """Return the probability that the true record ranks first among `size` random records, or among all."""
        if size is None:
            return np.asarray((self.n_better == 0) / (1 + self.n_tied))
        drawn = np.minimum(size - 1, self.n_others)
        log_none = gammaln(self.n_others - self.n_better + 1) - gammaln(self.n_others + 1)
        log_none += gammaln(self.n_others - drawn + 1)
        log_none -= gammaln(np.maximum(self.n_others - self.n_better - drawn, 0) + 1)
        none_better = np.where(self.n_better + drawn <= self.n_others, np.exp(log_none), 0.0)
        return np.asarray(none_better / (1 + self.n_tied * drawn / np.maximum(self.n_others, 1)))


def name_holders(uploads: Sequence[RebuiltRows], records: Matrix, codes: Integers) -> Integers:
    """Return the index of the upload that most likely holds each record, if at most one upload holds it."""
    scores = np.empty((len(uploads), len(records)))
    for k, upload in enumerate(uploads):
        counts = np.bincount(upload.codes, minlength=int(codes.max(initial=0)) + 1)[codes]
        scores[k] = upload.score_members(records, codes) + np.log(
            np.maximum(counts, 1)
        )  # a record may be at any of the rows' positions
    return np.asarray(scores.argmax(axis=0), dtype=np.int64)


def _blocks(places: Integers, width: int) -> Iterator[Integers]:
    """Return blocks of places, small enough that a table of a block by `width` fits into memory."""
    size = max(1, BLOCK_NUMBERS // max(1, width))
    return (places[start : start + size] for start in range(0, places.size, size))


def _log_sum_exp(finite: Matrix, axis: int) -> Matrix:
    """Return the logarithm of the sum of exponentials, ten times as fast as SciPy's for a hundred numbers."""
    largest = finite.max(axis=axis)
    return np.asarray(largest + np.log(np.exp(finite - np.expand_dims(largest, axis)).sum(axis=axis)))
