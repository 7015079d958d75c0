"""Bounds and distributions of section 4.3 of the paper.

Legend: p participants, d components, r anchor rows, v the anchor noise scale; for participant i, O_i the secret orthogonal
matrix, R̂_i the one that aligns the upload, and η_i the mean anchor noise; 𝓔 the rotational alignment error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mooring.errors import InputError
from mooring.geometry.orthogonal import require_components

__all__ = ["ResidualTranslation", "rotation_error_bound", "sufficient_scale", "transition_scale"]

_EMPIRICAL_CONSTANT = 1.89  # location of the transition in the cited experiments (eq. paigdp_ling_empirical_scale)
_CONDITION_CONSTANT = 14336.0  # traced from the cited proofs (eq. paigdp_ling_theoretical_condition)
_BOUND_CONSTANT = 6.0 / (1.0 - 1.0 / 1024.0)  # eq. paigdp_ling_rotation_bound


def transition_scale(n_participants: int, n_components: int, n_anchor_rows: int) -> float:
    """Return v_PT, the anchor noise scale near which the power method stops finding certifiably global solutions.

    This is an empirical reference, not a theorem (eq. paigdp_ling_empirical_scale).

    Parameters
    ----------
    n_participants, n_components, n_anchor_rows : int
        p, d and r.

    Examples
    --------
    >>> round(transition_scale(10, 100, 400), 4)
    0.0977
    """
    _require_study(n_participants, n_components, n_anchor_rows)
    p, d, r = n_participants, n_components, n_anchor_rows
    return _EMPIRICAL_CONSTANT * math.sqrt(p) / (math.sqrt(p * d) + math.sqrt(r - 1) + 2 * math.sqrt(p * math.log(p)))


def sufficient_scale(n_participants: int, n_components: int, n_anchor_rows: int, *, gamma: float = 3.0) -> float:
    """Return the largest v for which power steps are proved to converge linearly to the global optimum.

    See equation paigdp_ling_theoretical_condition of the paper. The guarantee holds with probability at least
    1 − O(p^(2−γ)), γ > 2. It is conservative: alignment succeeds in practice at scales about five orders of magnitude
    larger.

    Parameters
    ----------
    n_participants, n_components, n_anchor_rows : int
        p, d and r.
    gamma : float, default 3
        γ, above 2.
    """
    _require_study(n_participants, n_components, n_anchor_rows)
    return math.sqrt(n_participants) / (
        _CONDITION_CONSTANT * math.sqrt(n_components) * _noise_norm(n_participants, n_components, n_anchor_rows, gamma)
    )


def rotation_error_bound(
    n_participants: int, n_components: int, n_anchor_rows: int, anchor_noise_scale: float, *, gamma: float = 3.0
) -> float:
    """Return a bound on 𝓔, the distance of the effective maps O_i R̂_i from one common orthogonal matrix.

    See equation paigdp_ling_rotation_bound of the paper. The bound is proved only for scales up to `sufficient_scale`.

    Parameters
    ----------
    n_participants, n_components, n_anchor_rows : int
        p, d and r.
    anchor_noise_scale : float
        v.
    gamma : float, default 3
        γ, above 2.
    """
    _require_study(n_participants, n_components, n_anchor_rows)
    require_scale("anchor_noise_scale", anchor_noise_scale)
    norm = _noise_norm(n_participants, n_components, n_anchor_rows, gamma)
    return _BOUND_CONSTANT * anchor_noise_scale * math.sqrt(n_components) * norm / math.sqrt(n_participants)


@dataclass(frozen=True)
class ResidualTranslation:
    """The distribution of the translation that anchor noise leaves between participants, whatever the solver.

    Each R̂_iᵀ η_i is N(0, v²/r I); the difference between two participants is N(0, 2v²/r I).

    Attributes
    ----------
    n_components, n_anchor_rows : int
    anchor_noise_scale : float
    """

    n_components: int
    n_anchor_rows: int
    anchor_noise_scale: float

    def __post_init__(self) -> None:
        _require_study(2, self.n_components, self.n_anchor_rows)
        require_scale("anchor_noise_scale", self.anchor_noise_scale)

    @property
    def variance(self) -> float:
        """The variance v²/r of each coordinate of one participant's residual translation."""
        return self.anchor_noise_scale**2 / self.n_anchor_rows

    @property
    def pairwise_variance(self) -> float:
        """The variance 2v²/r of each coordinate of the disagreement between two participants."""
        return 2 * self.variance

    @property
    def pairwise_mean_square(self) -> float:
        """The expected squared length 2dv²/r of the disagreement (eq. paigdp_pairwise_translation_mse)."""
        return self.n_components * self.pairwise_variance

    def pairwise_bound(self, failure_probability: float) -> float:
        """Return a length that the disagreement exceeds with at most the failure probability.

        See equation paigdp_pairwise_translation_tail of the paper.
        """
        if not 0 < failure_probability < 1:
            raise InputError(
                "failure_probability",
                expected="between 0 and 1",
                got=str(failure_probability),
                cure="0.05 is a usual choice.",
            )
        return math.sqrt(self.pairwise_variance) * (
            math.sqrt(self.n_components) + math.sqrt(2 * math.log(1 / failure_probability))
        )


def _noise_norm(p: int, d: int, r: int, gamma: float) -> float:
    """Return √(pd) + √(r−1) + √(2γ p log p), a high-probability bound on the norm of the stacked, centred noise."""
    if not gamma > 2:
        raise InputError("gamma", expected="greater than 2", got=str(gamma), cure="3 is the default.")
    return math.sqrt(p * d) + math.sqrt(r - 1) + math.sqrt(2 * gamma * p * math.log(p))


def _require_study(n_participants: int, n_components: int, n_anchor_rows: int) -> None:
    if n_participants < 2:
        raise InputError(
            "n_participants",
            expected="at least 2",
            got=str(n_participants),
            cure="Alignment needs at least two participants.",
        )
    require_anchor_shape(n_anchor_rows, n_components)


def require_anchor_shape(n_anchor_rows: int, n_components: int) -> None:
    """Raise an `InputError` for an anchor without columns, or with too few rows to determine a map."""
    require_components(n_components)
    if n_anchor_rows < n_components + 1:
        raise InputError(
            "n_anchor_rows",
            expected=f"at least n_components + 1 = {n_components + 1}",
            got=str(n_anchor_rows),
            cure="Centring reduces the rank by one; four times n_components is a usual choice.",
        )


def require_scale(name: str, scale: float) -> None:
    """Raise an `InputError` for a noise scale that is negative or not finite."""
    if not (math.isfinite(scale) and scale >= 0):
        raise InputError(name, expected="zero or more, and finite", got=str(scale), cure="Use 0 for no noise.")
