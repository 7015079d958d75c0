"""The public projection F from encoded features to the components that are shared.

Legend: X encoded rows; F the projection (n_features × h) and F† its pseudoinverse; Q, T the factors of a QR decomposition.

Every projection made here has orthonormal columns, FᵀF = I. A noise scale then has the same meaning with every projection as
without one: it is the noise of an encoded number in each shared direction. (The columns of the paper's Gaussian F are about
√n_features long, so that noise of the same scale is weaker by this factor. In the QR decomposition F = QT, T is public and
invertible, so X Q carries the same information as X F.)

F is public, so an attacker knows it. Whoever has the exact X F can decode it to X F F†. An attack may recover more than
this: whoever has similar records can learn what F leaves out (`mooring.attacks.decoding`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.geometry.backend import as_float64, like, namespace_of, require_finite, to_numpy
from mooring.randomness import require_generator
from mooring.typing import Array, Matrix

_BLOCK_NUMBERS = 2**24


@dataclass(frozen=True, eq=False)
class Projection:
    """A public linear projection and its pseudoinverse."""

    matrix: Array
    """F, of shape (n_features, n_components)."""
    decoder: Array
    """F†, of shape (n_components, n_features)."""
    kind: str
    """One of "none", "gaussian" and "public-svd"."""

    @property
    def n_features(self) -> int:
        """The number of columns of encoded rows."""
        return int(self.matrix.shape[0])

    @property
    def n_components(self) -> int:
        """The number of columns of projected rows, h."""
        return int(self.matrix.shape[1])

    def require_orthonormal(self) -> None:
        """Raise an `InputError` unless the columns are orthonormal: otherwise noise scales would have a different unit."""
        F = to_numpy(self.matrix)
        off = float(np.abs(F.T @ F - np.eye(self.n_components)).max())
        if not off <= 1e-8:
            raise InputError(
                "projection",
                expected="a matrix with orthonormal columns, so that noise scales are in units of encoded numbers",
                got=f"inner products off by {off:.3g}",
                cure="Take the Q of the matrix's QR decomposition.",
            )

    def encode(self, rows: Array) -> Array:
        """Return X F."""
        return self._checked(rows, self.matrix) @ self.matrix

    def decode(self, projected: Array) -> Array:
        """Return X̃ F†, the least-squares reconstruction."""
        return self._checked(projected, self.decoder) @ self.decoder

    def moved_to(self, reference: Array) -> Projection:
        """Return this projection as float64 arrays of the array library and on the device of `reference`."""
        xp = namespace_of(reference)
        target = xp.astype(reference, xp.float64)
        return Projection(like(self.matrix, target), like(self.decoder, target), self.kind)

    @staticmethod
    def _checked(rows: Array, matrix: Array) -> Array:
        rows = as_float64(rows)
        namespace_of(rows, matrix)
        if len(rows.shape) < 2 or rows.shape[-1] != matrix.shape[0]:
            expected, got = f"of shape (..., m, {matrix.shape[0]}) for m rows", f"shape {tuple(rows.shape)}"
            raise InputError("rows", expected=expected, got=got, cure="Check the order of encode and decode.")
        return rows


def no_projection(n_features: int) -> Projection:
    """Return the identity projection F = I, with which all features are shared."""
    _require_width(n_features, n_features)
    return Projection(np.eye(n_features), np.eye(n_features), "none")


def gaussian_projection(n_features: int, n_components: int, *, rng: np.random.Generator) -> Projection:
    """Return the projection onto a uniformly random subspace, spanned by independent standard normal directions.

    Parameters
    ----------
    rng : numpy.random.Generator
        The projection is public, so this generator must not be used for anything secret.
    """
    require_generator(rng)
    _require_width(n_features, n_components)
    F = np.linalg.qr(rng.standard_normal((n_features, n_components)))[0]
    return Projection(F, F.T.copy(), "gaussian")


def public_svd_projection(
    public_rows: npt.ArrayLike | Callable[[], Iterable[npt.ArrayLike]],
    n_components: int,
    *,
    rng: np.random.Generator,
    n_passes: int = 4,
    n_oversamples: int = 16,
) -> Projection:
    """Return the projection onto the top right singular vectors of public data, without centring.

    Parameters
    ----------
    public_rows : array of shape (n, n_features), or a function that returns an iterator over blocks of rows
        Public data, never those of a participant. An array may be a `numpy.memmap`. A function is called twice to check the
        data and once for every pass; it may read its blocks from anywhere, so that the data can be larger than memory.
    n_passes : int
        How often the data are read after the check. More passes make the last components more accurate.
    n_oversamples : int
        Number of additional directions, which are dropped at the end.

    Notes
    -----
    The method is randomised subspace iteration on XᵀX, one block of rows at a time. The last pass does not square the data:
    X Q, where Q is the current basis, is reduced block by block to a triangular matrix by QR, and the SVD of that matrix is
    computed.
    """
    require_generator(rng)
    blocks = _block_reader(public_rows)
    n_rows, n_features = _counted(blocks)
    if next(blocks(), None) is None:
        raise InputError(
            "public_rows",
            expected="a function that starts from the beginning at every call",
            got="a function whose blocks can be read only once",
            cure="Open the file, or make the generator, inside the function.",
        )
    _require_width(n_features, n_components)
    if n_rows < n_components:
        got, cure = f"{n_rows} rows", "Use more public data, or ask for fewer components."
        raise InputError("public_rows", expected=f"at least n_components = {n_components} rows", got=got, cure=cure)
    width = min(n_components + n_oversamples, n_features)
    Q = np.linalg.qr(rng.standard_normal((n_features, width)))[0]
    for _ in range(n_passes - 1):
        image = np.zeros((n_features, width))
        for block in blocks():
            image += block.T @ (block @ Q)
        Q = np.linalg.qr(image)[0]
    triangle = np.zeros((0, width))
    for block in blocks():
        triangle = np.asarray(np.linalg.qr(np.concatenate([triangle, block @ Q]), mode="r"))
    _, singular_values, Vt = np.linalg.svd(triangle, full_matrices=False)
    if singular_values.size < n_components or singular_values[n_components - 1] <= 1e-10 * singular_values[0]:
        rank = int(np.count_nonzero(singular_values > 1e-10 * singular_values[0]))
        cure = "Use more varied public data, or ask for fewer components."
        raise InputError("public_rows", expected=f"of rank {n_components} or more", got=f"rank {rank}", cure=cure)
    F = np.linalg.qr(Q @ Vt[:n_components].T)[0]  # orthonormal to rounding
    return Projection(F, F.T.copy(), "public-svd")


def _block_reader(source: npt.ArrayLike | Callable[[], Iterable[npt.ArrayLike]]) -> Callable[[], Iterator[Matrix]]:
    if callable(source):
        return lambda: (np.atleast_2d(np.asarray(block, dtype=np.float64)) for block in source())
    rows = source if isinstance(source, np.ndarray) else np.asarray(source)
    if rows.ndim != 2:
        cure = "Flatten images to rows first."
        raise InputError("public_rows", expected="a matrix of rows by features", got=f"shape {rows.shape}", cure=cure)
    step = max(1, _BLOCK_NUMBERS // max(1, rows.shape[1]))
    return lambda: (np.asarray(rows[start : start + step], dtype=np.float64) for start in range(0, rows.shape[0], step))


def _counted(blocks: Callable[[], Iterator[Matrix]]) -> tuple[int, int]:
    n_rows, widths = 0, set()
    for block in blocks():
        if block.ndim != 2:
            expected, got = "blocks that are matrices of rows by features", f"a block of shape {block.shape}"
            raise InputError("public_rows", expected=expected, got=got, cure="Flatten images to rows first.")
        require_finite("public_rows", block, cure="Fill or drop missing values first.")
        n_rows += block.shape[0]
        widths.add(block.shape[1])
    if len(widths) != 1:
        got, cure = f"widths {sorted(widths)}" if widths else "no blocks", "Every block must have the same features."
        raise InputError("public_rows", expected="at least one block, and all blocks of one width", got=got, cure=cure)
    return n_rows, widths.pop()


def _require_width(n_features: int, n_components: int) -> None:
    if n_features < 1:
        raise InputError("n_features", expected="at least 1", got=str(n_features), cure="Check the table's width.")
    if not 1 <= n_components <= n_features:
        expected, got = f"between 1 and n_features = {n_features}", str(n_components)
        raise InputError(
            "n_components", expected=expected, got=got, cure="A projection cannot have more components than features."
        )
