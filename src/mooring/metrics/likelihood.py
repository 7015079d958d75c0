"""What rebuilt rows say of candidate records by likelihood: who is in, whose row is whose, and how sure an attacker may be.

Legend: x̂_j = x_j + e_j a rebuilt row with error e ~ N(0, E); x_c a candidate; in its class k, rows with their error have the
density f_k. The ratio

    ℓ(j, c) = log N(x̂_j; x_c, E) − log f_k(x̂_j)

says how many times likelier x̂_j is as the candidate's than as another row's. If the candidate is in, at any place, the
upload is mean_j exp ℓ(j, c) times as likely as if it is not: no score tells members better (Neyman and Pearson), as far
as E and f are right.
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
_MOST_IN_ROSTER = 1000  # of a class: assignments take the cube


@dataclass(frozen=True, eq=False)
class Densities:
    """Gaussian densities f_k of rows with their error."""

    means: Matrix
    """Of shape (K, h)."""
    covariances: Matrix
    """Of shape (K, h, h)."""

    def log_density(self, rows: Matrix, codes: Integers) -> Matrix:
        """The logarithm of f_k at each row under its class, up to the constant (h/2) log 2π."""
        found = np.empty(len(rows))
        factors = np.linalg.cholesky(self.covariances)
        for k in np.unique(codes):
            own, factor = codes == k, factors[k]
            scaled = np.linalg.solve(factor, (rows[own] - self.means[k]).T)
            found[own] = -(scaled**2).sum(axis=0) / 2 - np.log(np.diag(factor)).sum()
        return found


@dataclass(frozen=True, eq=False)
class RebuiltRows:
    """An upload as an attacker rebuilt it, ready to be compared with candidates."""

    whitened: Matrix
    """Of shape (n, h): the rows, in units of their error."""
    whitening: Matrix
    """Of shape (h, h): W with W Wᵀ = E⁻¹."""
    codes: Integers
    """Of shape (n,): the class of each row."""
    surplus: Matrix
    """Of shape (n,): what ℓ(j, c) is where the candidate is the rebuilt row itself."""

    @classmethod
    def of(cls, rows: Matrix, codes: Integers, *, error: Matrix, densities: Densities) -> RebuiltRows:
        """Prepare rebuilt rows."""
        whitening = np.linalg.inv(np.linalg.cholesky(error)).T
        surplus = np.log(np.diag(whitening)).sum() - densities.log_density(rows, codes)
        return cls(rows @ whitening, whitening, codes, surplus)

    def score_members(self, candidates: Matrix, codes: Integers) -> Matrix:
        """The logarithm of mean_j exp ℓ(j, c) over the rebuilt rows of each candidate's class; −∞ where there are none."""
        scores = np.full(len(candidates), -np.inf)
        for own, places in self._classes(codes):
            for part in _blocks(places, own.size):
                ratios = self._ratios(own, candidates[part])
                scores[part] = _log_sum_exp(ratios, axis=0) - np.log(own.size)
        return scores

    def search_register(self, register: Matrix, codes: Integers, answers: Integers) -> RegisterSearch:
        """Look every rebuilt row up among the records of its class."""
        n = len(self.codes)
        found = RegisterSearch(np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n, dtype=bool))
        for own, places in self._classes(codes):
            for rows in _blocks(own, places.size):
                ratios, wanted = self._ratios(rows, register[places]), answers[rows]
                place = np.minimum(np.searchsorted(places, wanted), places.size - 1)
                is_there = places[place] == wanted
                right = np.where(is_there, ratios[np.arange(rows.size), place], -np.inf)[:, None]
                slack = np.where(is_there, _TIE * (1 + np.abs(right[:, 0])), 0.0)[:, None]
                found.n_better[rows] = (ratios > right + slack).sum(axis=1)
                found.n_tied[rows] = (np.abs(ratios - right) <= slack).sum(axis=1) - is_there
                found.n_others[rows] = places.size - is_there
                evidence = np.logaddexp(_log_sum_exp(ratios, axis=1), np.log(places.size))  # or in none of these places
                found.posterior[rows] = np.exp(ratios.max(axis=1) - evidence)
                found.is_right[rows] = is_there & (ratios.argmax(axis=1) == place)
        return found

    def assign_roster(self, roster: Matrix) -> tuple[Integers, Integers]:
        """Assign rebuilt rows one to one to a roster of exactly their records, in their order; rows, and where each goes.

        Of a class of more than 1,000 rows, the first so many.
        """
        rows, chosen = [], []
        for k in np.unique(self.codes):
            rows.append(np.flatnonzero(self.codes == k)[:_MOST_IN_ROSTER])
            chosen.append(rows[-1][linear_sum_assignment(self._ratios(rows[-1], roster[rows[-1]]), maximize=True)[1]])
        return np.concatenate(rows), np.concatenate(chosen)

    def _ratios(self, rows: Integers, candidates: Matrix) -> Matrix:
        """ℓ(j, c) of some rebuilt rows and candidates, of shape (n, c)."""
        near, far = self.whitened[rows], candidates @ self.whitening
        squares = (near**2).sum(axis=1)[:, None] + (far**2).sum(axis=1) - 2 * near @ far.T
        return np.asarray(self.surplus[rows, None] - np.maximum(squares, 0.0) / 2)

    def _classes(self, codes: Integers) -> Iterator[tuple[Integers, Integers]]:
        """Places of the rebuilt rows and of the candidates of each class that has both."""
        for k in np.intersect1d(self.codes, codes):
            yield np.flatnonzero(self.codes == k), np.flatnonzero(codes == k)


@dataclass(frozen=True, eq=False)
class RegisterSearch:
    """What was found for each rebuilt row in a register."""

    n_better: Matrix
    n_tied: Matrix
    n_others: Matrix
    """Of shape (n,): records that are likelier than the true one, others that are as likely, and all but the true
    one."""
    posterior: Matrix
    """Of shape (n,): of the likeliest record, where the register holds the row's with a probability of one half, every one
    being as likely."""
    is_right: NDArray[np.bool_]
    """Of shape (n,): whether that is the true one."""

    def first_ranks(self, size: int | None = None) -> Matrix:
        """How probably the true record comes first among so many drawn at random, or among all; ties share the place."""
        if size is None:
            return np.asarray((self.n_better == 0) / (1 + self.n_tied))
        drawn = np.minimum(size - 1, self.n_others)
        log_none = gammaln(self.n_others - self.n_better + 1) - gammaln(self.n_others + 1)
        log_none += gammaln(self.n_others - drawn + 1)
        log_none -= gammaln(np.maximum(self.n_others - self.n_better - drawn, 0) + 1)
        none_better = np.where(self.n_better + drawn <= self.n_others, np.exp(log_none), 0.0)
        return np.asarray(none_better / (1 + self.n_tied * drawn / np.maximum(self.n_others, 1)))


def name_holders(uploads: Sequence[RebuiltRows], records: Matrix, codes: Integers) -> Integers:
    """Which of several uploads holds each record, at most one of them doing so: where the record is likeliest a row."""
    scores = np.empty((len(uploads), len(records)))
    for k, upload in enumerate(uploads):
        counts = np.bincount(upload.codes, minlength=int(codes.max(initial=0)) + 1)[codes]
        scores[k] = upload.score_members(records, codes) + np.log(np.maximum(counts, 1))  # as many places as rows
    return np.asarray(scores.argmax(axis=0), dtype=np.int64)


def _blocks(places: Integers, width: int) -> Iterator[Integers]:
    """The places, so many at once that they fit beside `width` others."""
    size = max(1, BLOCK_NUMBERS // max(1, width))
    return (places[start : start + size] for start in range(0, places.size, size))


def _log_sum_exp(finite: Matrix, axis: int) -> Matrix:
    """The logarithm of the sum of exponentials; SciPy's takes ten times as long for a hundred numbers."""
    largest = finite.max(axis=axis)
    return np.asarray(largest + np.log(np.exp(finite - np.expand_dims(largest, axis)).sum(axis=axis)))
