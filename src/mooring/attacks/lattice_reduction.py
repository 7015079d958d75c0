"""Lattices from rows: a basis of what differences of rows generate, and the orthogonal parts it falls into.

Rows whose columns take values on grids have differences Z diag(u) with whole numbers Z, and a rigid map turns that lattice
without deforming it. LLL finds a basis of short vectors; a lattice splits into mutually orthogonal parts in one way only
(Eichler, Kneser), so the parts of the turned lattice are the turned parts: one direction for each free column, and a
simplex for each one-hot group.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components

from mooring.attacks.reconstruction import DoesNotApply
from mooring.typing import Matrix

_FINEST = 1e-4  # the smallest step that counts as a grid, as a share of the widest difference
_PRECISION = 1e-7
_SCALE = 2.0**30
_MOST_ROUNDS = 12
_MOST_SHUFFLES = 6


def lattice_basis(rows: Matrix, *, rng: np.random.Generator) -> Matrix:
    """A reduced basis (q, h) of the lattice that the differences of rows (n, h) of rank q generate.

    `rng` picks the few dozen differences to start from; the others are only checked, and added where they are missing.
    Raises DoesNotApply if the differences generate no lattice that can be told from a continuum.
    """
    differences = (rows - rows[0])[rng.permutation(rows.shape[0])]
    widest = float(np.abs(differences).max(initial=0.0))
    if widest == 0:
        raise DoesNotApply("All uploaded rows are the same.")
    tolerance = _PRECISION * widest
    differences = differences[np.abs(differences).max(axis=1) > tolerance]
    at_once = 3 * rows.shape[1] + 8
    basis = np.empty((0, rows.shape[1]))
    for _ in range(_MOST_ROUNDS):
        missing = differences[~_belongs(differences, basis, tolerance)]
        if missing.shape[0] == 0:
            return basis
        basis = _generated(np.vstack([basis, missing[:at_once]]), tolerance)
        basis = _refined(basis, differences, tolerance)
    raise DoesNotApply("The upload lies on no lattice: some columns take values off any grid.")


def orthogonal_parts(basis: Matrix, *, rng: np.random.Generator) -> list[Matrix]:
    """Bases of the parts that a lattice falls into, each orthogonal to the others, as far as the reduction shows them."""
    best = _parts(_shortened(basis))
    for _ in range(_MOST_SHUFFLES):
        if all(part.shape[0] == 1 for part in best):
            break
        mixed = np.vstack(best)[rng.permutation(basis.shape[0])]
        parts = _parts(_shortened(_reduced(mixed) @ mixed))
        if len(parts) > len(best):
            best = parts
    return best


def _flint() -> ModuleType:
    try:
        import flint
    except ImportError:
        raise DoesNotApply("Lattice reduction needs python-flint: pip install 'mooring[lattice]'.") from None
    return flint


def _reduced(vectors: Matrix) -> Matrix:
    """Whole-number combinations that LLL finds: relations first, a short basis after them."""
    flint = _flint()
    m = vectors.shape[0]
    scaled = np.rint(_SCALE / np.abs(vectors).max() * vectors).astype(np.int64)
    beside = np.hstack([scaled, np.eye(m, dtype=np.int64)])
    reduced = flint.fmpz_mat(beside.tolist()).lll(delta=0.999, eta=0.501)
    return np.array([[float(int(entry)) for entry in row[-m:]] for row in reduced.tolist()])


def _generated(vectors: Matrix, tolerance: float) -> Matrix:
    """A basis of the lattice that some vectors generate."""
    short = _reduced(vectors) @ vectors
    lengths = np.linalg.norm(short, axis=1)
    basis = short[lengths > tolerance]
    rank = np.linalg.matrix_rank(vectors, tol=tolerance)
    if basis.shape[0] != rank or lengths[lengths > tolerance].min(initial=np.inf) < _FINEST / _PRECISION * tolerance:
        raise DoesNotApply("The upload lies on no lattice: some columns take values off any grid.")
    return _refined(basis, vectors, tolerance)


def _coordinates(vectors: Matrix, basis: Matrix) -> Matrix:
    return np.asarray(np.rint(vectors @ np.linalg.pinv(basis)))


def _belongs(vectors: Matrix, basis: Matrix, tolerance: float) -> npt.NDArray[np.bool_]:
    """Which vectors are whole-number combinations of the basis."""
    if basis.shape[0] == 0:
        return np.zeros(vectors.shape[0], dtype=np.bool_)
    off = vectors - _coordinates(vectors, basis) @ basis
    return np.asarray(np.linalg.norm(off, axis=1) < 100 * tolerance)


def _refined(basis: Matrix, vectors: Matrix, tolerance: float) -> Matrix:
    """The basis once more, by least squares from the vectors it generates: the reduction's rounding does not add up."""
    own = vectors[_belongs(vectors, basis, tolerance)]
    coordinates = _coordinates(own, basis)
    if own.shape[0] == 0 or np.linalg.matrix_rank(coordinates) < basis.shape[0]:
        return basis
    return np.asarray(np.linalg.lstsq(coordinates, own, rcond=None)[0])


def _shortened(basis: Matrix) -> Matrix:
    """Lagrange's step for pairs, until no vector gets shorter by taking another from it."""
    basis = basis.copy()
    for _ in range(10 * basis.shape[0]):
        gram = basis @ basis.T
        steps = np.rint(gram / np.diagonal(gram))
        np.fill_diagonal(steps, 0)
        gains = 2 * steps * gram - steps**2 * np.diagonal(gram)
        i, j = np.unravel_index(int(gains.argmax()), gains.shape)
        if gains[i, j] <= 1e-9 * gram[i, i]:
            break
        basis[i] -= steps[i, j] * basis[j]
    return basis


def _parts(basis: Matrix) -> list[Matrix]:
    gram = basis @ basis.T
    lengths = np.sqrt(np.diagonal(gram))
    count, part_of = connected_components(np.abs(gram) > 1e-6 * np.outer(lengths, lengths), directed=False)
    return [basis[part_of == part] for part in range(count)]
