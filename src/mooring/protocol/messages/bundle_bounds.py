"""What an honest upload can be: bounds on the anchor representation and on the rows, from the laws that they are drawn by.

    B = A O + 1 Ψᵀ + v W',        Y = X O + 1 Ψᵀ + σ W.

Legend: A the anchor (r × h, centred, orthonormal columns), O orthogonal, Ψ and W standard normal, X encoded rows (of d
numbers between −1 and 1 each, projected on h orthonormal directions); b the mean row of B; n = r − 1.

An honest participant is beyond an end of one of these bounds with a probability of 1e-9 at most, each:

- b is Ψ + v w̄ with w̄ of variance 1/r: ‖b‖² / (1 + v²/r) is χ² with h degrees of freedom.
- ‖B − 1bᵀ‖² / v² is noncentral χ² with nh degrees of freedom and noncentrality h/v²; its tails are bounded as by Birgé
  (2001, Lemma 8.1).
- The singular values of B − 1bᵀ are those of (I 0)ᵀ + v G with G normal, n × h. Between the edges of their law for large h
  they lie but for fluctuations, and each is v-Lipschitz in G: it is off its mean by v t with probability exp(−t²/2) at most.
- A row of Y − 1bᵀ is an encoded row, no longer than √d, with noise: σ w − v w̄.

Where v is so large that a direction may vanish in noise, a rank-poor anchor representation passes these bounds.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import chdtri

from mooring.protocol.messages.projection import study_projection
from mooring.protocol.messages.study import Study
from mooring.typing import Matrix

FALSE_REFUSAL = 1e-9
"""Probability at which each end of a bound refuses an honest upload, at most."""
_ROUNDING = 1e-3  # float32, and a projection that is orthonormal up to rounding
_GRID = 4001


def explain_anchor(representation: Matrix, study: Study) -> str | None:
    """Why an anchor representation cannot be one of this study's; None where it can."""
    r, h, v = study.n_anchor_rows, study.n_components, study.anchor_noise_scale
    mean = representation.mean(axis=0)
    centred = representation - mean
    found, expected = float((centred**2).sum()), h * (1 + v**2 * (r - 1))
    low, high = bound_norm(r, h, v)
    if not low <= found <= high:
        return f"its anchor representation is {math.sqrt(found / expected):.3g} times as large as the study makes it"
    distance, farthest = float(np.linalg.norm(mean)), math.sqrt((1 + v**2 / r) * float(chdtri(h, FALSE_REFUSAL)))
    if not distance <= farthest:
        return f"its anchor representation lies {distance:.3g} from the origin, where a map moves it {farthest:.3g} at most"
    values = np.sqrt(np.maximum(np.linalg.eigvalsh(centred.T @ centred)[[0, -1]], 0.0))
    least, most = bound_singular_values(r, h, v)
    if not (least <= values[0] and values[1] <= most):
        return (
            f"its anchor representation is {values[0]:.3g} to {values[1]:.3g} long by direction, "
            f"where the study's is {least:.3g} to {most:.3g}"
        )
    return None


def bound_norm(n_rows: int, n_components: int, noise_scale: float) -> tuple[float, float]:
    """Bounds on the squared norm of a centred anchor representation.

    Parameters
    ----------
    n_rows, n_components : int
    noise_scale : float
    """
    r, h, v = n_rows, n_components, noise_scale
    mean, x = h * (1 + v**2 * (r - 1)), -math.log(FALSE_REFUSAL)
    spread = 2 * math.sqrt(((r - 1) * h * v**4 + 2 * h * v**2) * x)
    return (1 - _ROUNDING) * mean - spread, (1 + _ROUNDING) * mean + spread + 2 * v**2 * x


def bound_singular_values(n_rows: int, n_components: int, noise_scale: float) -> tuple[float, float]:
    """Bounds on the singular values of a centred anchor representation.

    Parameters
    ----------
    n_rows, n_components : int
    noise_scale : float

    Notes
    -----
    The edges are the extremes of z(x), the inverse of the Stieltjes transform of the squared singular values' law
    (Dozier and Silverstein, 2007), above zero for the lower edge and between −1 and 0 for the upper.
    """
    n, h, v = n_rows - 1, n_components, noise_scale
    bulk, share = v**2 * (n - h), v**2 * h
    above, below = np.geomspace(1e-7, 1e4, _GRID), -np.geomspace(1e-7, 1 - 1e-7, _GRID)

    def z(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray((1 / (1 + x) + bulk - share / x) / (1 + x))

    slack = v * math.sqrt(-2 * math.log(FALSE_REFUSAL)) + _ROUNDING
    return math.sqrt(max(0.0, float(z(above).max()))) - slack, math.sqrt(float(z(below).min())) + slack


def bound_row(study: Study, n_rows: int) -> float:
    """The longest distance of one of so many rows from the mean row of the anchor representation."""
    reach = math.sqrt(study.n_features)
    if study.projection == "gaussian" and study.format == 1:
        reach = float(np.linalg.norm(np.abs(study_projection(study).matrix).sum(axis=0)))
    h = study.n_components
    noise = study.data_noise_scale * math.sqrt(float(chdtri(h, FALSE_REFUSAL / n_rows)))
    of_mean = study.anchor_noise_scale * math.sqrt(float(chdtri(h, FALSE_REFUSAL)) / study.n_anchor_rows)
    return (1 + _ROUNDING) * reach + noise + of_mean
