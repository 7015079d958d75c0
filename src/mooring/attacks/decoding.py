"""Decoders from rebuilt rows to records, learned from the attacker's records.

Legend: X records, F the public projection, F† its pseudoinverse, X̃ = X F; for known records, z̄ is the mean of X̃ and m̄
the mean of X − X̃ F†.

X̃ F† is the shortest record that projects to X̃, and lacks everything that F drops. Columns are correlated, so what F
drops can be predicted from what F keeps. The attacker learns this from the colluders' and the public records: X̂ = X̃ F†
+ m̄ + (X̃ − z̄) W, where W holds the coefficients of a ridge regression of X − X̃ F† on X̃, with a penalty chosen by
leave-one-out cross-validation. What a projection drops is therefore not safe from an attack. Audits also decode the exact
projected rows, and report the result as the `floor` of a figure on records; a better decoder may recover more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mooring.attacks.view import CollusionView
from mooring.errors import InputError
from mooring.geometry.backend import like, to_numpy
from mooring.mechanisms.rotation.projection import Projection
from mooring.typing import Array, Matrix

_PENALTIES = np.geomspace(1e-8, 1e4, 13)  # in units of the mean variance of X̃
_MOST_OWN_WEIGHT = 1 - 1e-6
_ALIKE = 1e-24  # squared relative difference below which rows differ only by rounding
_FOLDS = 3
_MOST_TOGETHER = 8


@dataclass(frozen=True, eq=False)
class LearnedDecoder:
    """An affine map from projected rows to records."""

    matrix: Matrix = field(repr=False)
    """The linear part, of shape (n_components, n_features)."""
    offset: Matrix = field(repr=False)
    """The constant part, of shape (n_features,)."""
    penalty: float
    """The penalty chosen by leave-one-out, in units of the mean variance of the projected rows; infinite if all projected
    rows are equal."""

    def decode(self, projected: Array) -> Matrix:
        """Return the records predicted from rows of shape (…, n_components)."""
        return np.asarray(to_numpy(projected) @ self.matrix + self.offset)


def learn_decoder(projection: Projection, records: Array, *, most_numbers: int = 2**22) -> LearnedDecoder:
    """Return a decoder learned from the records that the attacker has, of all colluders and public ones.

    Parameters
    ----------
    records : array of shape (n, n_features)
        Records before the projection, at least two.
    most_numbers : int
        Penalties are compared on at most about this many numbers of the records; beyond that, some columns are skipped.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> from mooring.mechanisms.rotation.projection import gaussian_projection
    >>> records = rng.standard_normal((200, 5)) @ rng.standard_normal((5, 30))
    >>> projection = gaussian_projection(30, 6, rng=rng)
    >>> back = learn_decoder(projection, records[:100]).decode(projection.encode(records[100:]))
    >>> bool(np.allclose(back, records[100:], atol=1e-4))
    True
    """
    X = np.asarray(to_numpy(records), dtype=np.float64)
    if X.ndim != 2 or X.shape[0] < 2:
        cure = "Pass the records of a colluder, or public ones."
        raise InputError("records", expected="a matrix of at least two rows", got=f"shape {X.shape}", cure=cure)
    X = np.unique(X, axis=0)  # duplicates would spoil leave-one-out
    F, F_back = (np.asarray(to_numpy(part), dtype=np.float64) for part in (projection.matrix, projection.decoder))
    Z = X @ F
    left_out = X - Z @ F_back
    z_mean, m_mean = Z.mean(axis=0), left_out.mean(axis=0)
    U, s, Vt = np.linalg.svd(Z - z_mean, full_matrices=False)
    along = U.T @ (left_out - m_mean)
    unit = float(np.mean(s * s))
    if unit <= _ALIKE * float(np.sum(Z * Z)):
        return LearnedDecoder(F_back, m_mean, float("inf"))
    penalty = _by_leaving_one_out(U, s, along, left_out - m_mean, unit, most_numbers)
    W = Vt.T @ ((s / (s * s + penalty * unit))[:, None] * along)
    return LearnedDecoder(F_back + W, m_mean - z_mean @ W, penalty)


def _by_leaving_one_out(U: Matrix, s: Matrix, along: Matrix, wanted: Matrix, unit: float, most_numbers: int) -> float:
    """Return the penalty with the smallest leave-one-out error. One decomposition serves all penalties."""
    thin = max(1, -(-wanted.size // most_numbers))
    along, wanted = along[:, ::thin], wanted[:, ::thin]
    errors = []
    for penalty in _PENALTIES:
        kept = s * s / (s * s + penalty * unit)
        own_weight = 1 / U.shape[0] + (U * U) @ kept
        if own_weight.max() > _MOST_OWN_WEIGHT:  # the fit interpolates, so its leave-one-out error is undefined
            errors.append(np.inf)
            continue
        gap = (wanted - U @ (kept[:, None] * along)) / (1 - own_weight)[:, None]
        errors.append(float(np.mean(gap * gap)))
    return float(_PENALTIES[int(np.argmin(errors))])


@dataclass(frozen=True, eq=False)
class RecordDecoder:
    """The attacker's decoders from projected rows to records: the pseudoinverse and, if possible, a learned one."""

    projection: Projection
    """The public projection, whose pseudoinverse is a decoder that needs no records."""
    learned: LearnedDecoder | None = None
    """The learned decoder; None if the projection loses nothing or the attacker has fewer than two records."""
    trusts_learned: bool = False
    """Whether the attacker would choose the learned decoder, because it was closer in cross-validation on the attacker's
    records."""

    def decode_all(self, rows: Matrix) -> tuple[Matrix, ...]:
        """Return rows decoded by the pseudoinverse and, if there is one, by the learned decoder."""
        by_pseudoinverse = np.asarray(to_numpy(self.projection.decode(like(rows, self.projection.matrix))))
        return (by_pseudoinverse,) if self.learned is None else (by_pseudoinverse, self.learned.decode(rows))

    def decode_preferred(self, rows: Matrix) -> Matrix:
        """Return rows decoded by the decoder that the attacker would choose without knowing the truth."""
        return self.decode_all(rows)[-1 if self.trusts_learned else 0]


def fit_decoder(view: CollusionView) -> RecordDecoder:
    """Return the attacker's decoders, learned only from the colluders' and the public records."""
    projection = view.projection
    records = [np.asarray(to_numpy(part), dtype=np.float64) for part in view.reference_records]
    loses = projection.kind != "none" and projection.n_components < projection.n_features
    if not loses or sum(part.shape[0] for part in records) < 2:
        return RecordDecoder(projection)
    known = np.concatenate(records)
    return RecordDecoder(projection, learn_decoder(projection, known), _comes_nearer(projection, known))


def _comes_nearer(projection: Projection, records: Matrix, *, most_records: int = 1000) -> bool:
    """Return whether a learned decoder is closer than the pseudoinverse on unseen records.

    The result is False if there are too few records to tell. Some are skipped if there are more than `most_records`.
    """
    records = records[np.sort(np.unique(records, axis=0, return_index=True)[1])]  # duplicates would not be unseen
    if records.shape[0] < _FOLDS:
        return False
    some = records[:: -(-records.shape[0] // most_records)]
    # Neighbouring rows may belong to one person and stay together; blocks are small, since tables may be sorted by class.
    block = min(_MOST_TOGETHER, max(1, some.shape[0] // (4 * _FOLDS)))
    fold = np.arange(some.shape[0]) // block % _FOLDS
    missed = np.zeros(2)
    for k in range(_FOLDS):
        unseen = some[fold == k]
        decoders = RecordDecoder(projection, learn_decoder(projection, some[fold != k]))
        decoded = decoders.decode_all(unseen @ to_numpy(projection.matrix))
        missed += [float(((records - unseen) ** 2).sum()) for records in decoded]
    return bool(missed[1] < missed[0])
