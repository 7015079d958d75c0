"""From rebuilt rows back to records: a decoder that the attacker learns from the records it has.

Legend: F the public projection, F† its pseudoinverse, X̃ = X F; z̄ the mean of known X̃, m̄ that of known X − X̃ F†.

X̃ F† is the shortest record that projects to X̃, and leaves out all that F drops. Pixels, measurements and answers are
correlated, so what F drops can be predicted from what it keeps. The attacker's records (the colluders' and public ones)
teach how: X̂ = X̃ F† + m̄ + (X̃ − z̄) W, where W is a ridge regression of what F† leaves out, its penalty chosen by leaving
one record out. So the projection is no limit of what an attack recovers: the floor beside figures is the exact projected
rows decoded by these, and a better decoder may get below it.
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
_ALIKE = 1e-24  # rows that differ by less, squared and relative, differ by rounding
_MOST_JUDGED = 2**22  # numbers by which penalties are compared: columns are thinned out beyond
_FOLDS = 3
_MOST_TRIED = 1000
_MOST_TOGETHER = 8


@dataclass(frozen=True, eq=False)
class LearnedDecoder:
    """An affine way back from projected rows to records."""

    matrix: Matrix = field(repr=False)
    """Of shape (n_components, n_features)."""
    offset: Matrix = field(repr=False)
    """Of shape (n_features,)."""
    penalty: float
    """The penalty that leaving one record out chose, in units of the mean variance of the projected rows."""

    def decode(self, projected: Array) -> Matrix:
        """The likeliest records of rows of shape (…, n_components), as far as a linear rule can tell."""
        return np.asarray(to_numpy(projected) @ self.matrix + self.offset)


def learn_decoder(projection: Projection, records: Array) -> LearnedDecoder:
    """Learn the way back from the colluder's records.

    Parameters
    ----------
    records : array of shape (n, n_features)
        Raw, two of them at least.

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
        cure = "A decoder is learnt from a colluder's records."
        raise InputError("records", expected="two rows at least", got=f"shape {X.shape}", cure=cure)
    X = np.unique(X, axis=0)  # a record left out must not be there a second time
    F, F_back = (np.asarray(to_numpy(part), dtype=np.float64) for part in (projection.matrix, projection.decoder))
    Z = X @ F
    left_out = X - Z @ F_back
    z_mean, m_mean = Z.mean(axis=0), left_out.mean(axis=0)
    U, s, Vt = np.linalg.svd(Z - z_mean, full_matrices=False)
    along = U.T @ (left_out - m_mean)
    unit = float(np.mean(s * s))
    if X.shape[0] < 2 or unit <= _ALIKE * float(np.sum(Z * Z)):
        return LearnedDecoder(F_back, m_mean, float("inf"))
    penalty = _by_leaving_one_out(U, s, along, left_out - m_mean, unit)
    W = Vt.T @ ((s / (s * s + penalty * unit))[:, None] * along)
    return LearnedDecoder(F_back + W, m_mean - z_mean @ W, penalty)


def _by_leaving_one_out(U: Matrix, s: Matrix, along: Matrix, wanted: Matrix, unit: float) -> float:
    """The penalty whose regressions, each without one record, are nearest to that record; all from one decomposition."""
    thin = max(1, -(-wanted.size // _MOST_JUDGED))
    along, wanted = along[:, ::thin], wanted[:, ::thin]
    errors = []
    for penalty in _PENALTIES:
        kept = s * s / (s * s + penalty * unit)
        own_weight = 1 / U.shape[0] + (U * U) @ kept
        if own_weight.max() > _MOST_OWN_WEIGHT:  # goes through the record itself: what it would say without it is lost
            errors.append(np.inf)
            continue
        gap = (wanted - U @ (kept[:, None] * along)) / (1 - own_weight)[:, None]
        errors.append(float(np.mean(gap * gap)))
    return float(_PENALTIES[int(np.argmin(errors))])


@dataclass(frozen=True, eq=False)
class RecordDecoder:
    """The attacker's one or two decoders from projected rows to records: the pseudoinverse, and a learned one."""

    projection: Projection
    """Its pseudoinverse is a decoder that needs no records."""
    learned: LearnedDecoder | None = None
    """None where the projection loses nothing, or the attacker has fewer than two records."""
    trusts_learned: bool = False
    """Whether the attacker would choose the learned one: learnt from two thirds of the attacker's records, it came nearer
    to the other third."""

    def decode_all(self, rows: Matrix) -> tuple[Matrix, ...]:
        """Rows decoded in every way: by the pseudoinverse, then by the learned decoder where there is one."""
        own = np.asarray(to_numpy(self.projection.decode(like(rows, self.projection.matrix))))
        return (own,) if self.learned is None else (own, self.learned.decode(rows))

    def decode_preferred(self, rows: Matrix) -> Matrix:
        """Rows decoded in the way that the attacker would choose, which it can without the truth."""
        return self.decode_all(rows)[-1 if self.trusts_learned else 0]


def fit_decoder(view: CollusionView) -> RecordDecoder:
    """Learn what can be learnt from the colluders' records and the public ones, and from nobody else's."""
    projection = view.projection
    records = [np.asarray(to_numpy(part), dtype=np.float64) for part in view.reference_records]
    loses = projection.kind != "none" and projection.n_components < projection.n_features
    if not loses or sum(part.shape[0] for part in records) < 2:
        return RecordDecoder(projection)
    known = np.concatenate(records)
    return RecordDecoder(projection, learn_decoder(projection, known), _comes_nearer(projection, known))


def _comes_nearer(projection: Projection, records: Matrix) -> bool:
    """Whether a learned decoder is nearer than the pseudoinverse to records that it has not seen; too few say no."""
    records = records[np.sort(np.unique(records, axis=0, return_index=True)[1])]  # a copy would be seen, not unseen
    if records.shape[0] < _FOLDS:
        return False
    some = records[:: -(-records.shape[0] // _MOST_TRIED)]
    # Neighbours may be one person's rows and are kept together, a few at a time: a table may also be sorted by class.
    block = min(_MOST_TOGETHER, max(1, some.shape[0] // (4 * _FOLDS)))
    fold = np.arange(some.shape[0]) // block % _FOLDS
    missed = np.zeros(2)
    for k in range(_FOLDS):
        unseen = some[fold == k]
        ways = RecordDecoder(projection, learn_decoder(projection, some[fold != k]))
        missed += [
            float(((found - unseen) ** 2).sum()) for found in ways.decode_all(unseen @ to_numpy(projection.matrix))
        ]
    return bool(missed[1] < missed[0])
