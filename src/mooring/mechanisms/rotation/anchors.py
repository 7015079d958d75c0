"""The anchor: a secret matrix that all participants share and the analyst does not have.

Legend: A the anchor (r × h) with 1ᵀA = 0 and AᵀA = I (eq. paigdp_centered_orthonormal_anchor); v the anchor noise scale.

The first condition puts the anchor's centroid at the origin. The second fixes the anchor's scale, so that v has the same
meaning for every anchor.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.geometry.backend import as_float64, identity_like, namespace_of, require_finite
from mooring.geometry.orthogonal import orthogonal_from_gaussian
from mooring.randomness import require_generator
from mooring.theory import require_anchor_shape
from mooring.typing import Array

ANCHOR_TOLERANCE = 1e-10


def make_anchor(n_anchor_rows: int, n_components: int, *, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return a random anchor: a Gaussian matrix, centred and orthonormalised by a sign-corrected thin QR.

    Parameters
    ----------
    n_anchor_rows : int
        r, at least n_components + 1. Four times n_components is a usual choice.
    n_components : int
        h, the width of the data after projection.

    Returns
    -------
    numpy.ndarray of shape (n_anchor_rows, n_components)

    Examples
    --------
    >>> A = make_anchor(8, 2, rng=np.random.default_rng(0))
    >>> bool(np.allclose(A.T @ A, np.eye(2))), bool(np.allclose(A.sum(axis=0), 0))
    (True, True)
    """
    require_generator(rng)
    require_anchor_shape(n_anchor_rows, n_components)
    return anchor_from_gaussian(rng.standard_normal((n_anchor_rows, n_components)))


def anchor_from_gaussian(gaussian: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the anchor that results if the columns of a standard normal matrix (r × h) are centred and orthonormalised."""
    require_anchor_shape(*gaussian.shape)
    anchor = orthogonal_from_gaussian(gaussian - gaussian.mean(axis=0))
    check_anchor(anchor)
    return anchor


def check_anchor(anchor: Array) -> None:
    """Raise an `InputError` for an anchor that is not centred, not orthonormal, too short, or not finite.

    Participants check every anchor that they receive. If an anchor is scaled up, the same noise hides the map less well. If
    an anchor does not have full rank, uploads cannot be aligned.
    """
    A = as_float64(anchor)
    xp = namespace_of(A)
    if len(A.shape) != 2:
        expected = "a matrix of rows by components"
        raise InputError("anchor", expected=expected, got=f"shape {tuple(A.shape)}", cure="Use mooring.make_anchor.")
    require_anchor_shape(A.shape[0], A.shape[1])
    require_finite("anchor", A, cure="Request the anchor from the dealer again.")
    off_centre = float(xp.max(xp.abs(xp.sum(A, axis=0))))
    if off_centre > ANCHOR_TOLERANCE:
        raise InputError(
            "anchor",
            expected=f"centred, with column sums below {ANCHOR_TOLERANCE:g}",
            got=f"a column sum of {off_centre:.2g}",
            cure="Subtract the column means and orthonormalise, or use mooring.make_anchor.",
        )
    gram = A.T @ A
    defect = float(xp.max(xp.abs(gram - identity_like(gram))))
    if defect > ANCHOR_TOLERANCE:
        raise InputError(
            "anchor",
            expected=f"made of orthonormal columns, |AᵀA − I| below {ANCHOR_TOLERANCE:g}",
            got=f"a deviation of {defect:.2g}",
            cure="Use mooring.make_anchor. With another anchor the noise scale has a different meaning.",
        )
