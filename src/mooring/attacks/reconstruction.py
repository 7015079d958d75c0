"""The result of an attack, and the error of an attack that does not apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mooring.attacks.class_moments import ClassMoments
from mooring.attacks.view import CollusionView
from mooring.errors import InputError, MooringError
from mooring.geometry.backend import identity_like, namespace_of, transpose
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.typing import Array


class DoesNotApply(MooringError):
    """Raised by an attack that cannot be run on a view. The audit continues without it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """An attacker's estimate of the target's map and rows."""

    rows: Array
    """The target's rebuilt rows after the public projection, in the order of the upload; of shape (n_i, h)."""
    rigid_map: RigidMap
    """The estimated map; for an estimate that is not orthogonal, the nearest rigid map."""
    row_error: Array | None = None
    """The attacker's estimate of the covariance of the rows' error, without private-data noise, of shape (h, h). Denoisers
    use it. None if the attack gives no estimate."""
    population: ClassMoments | None = None
    """Moments of the population that the attack learnt from other uploads, including private-data noise; None if it learnt
    nothing from them."""
    data_noise_scale: float | None = None
    """Scale of the private-data noise left in the rows, if the attack averaged some of it out; None if the rows carry the
    upload's noise."""
    others: Mapping[int, Array] = field(default_factory=dict)
    """Rows of other participants that the attack rebuilt as well, by participant, from which the denoiser `grid` learns."""
    notes: tuple[str, ...] = field(default=())
    """Remarks for the reader, such as which start was best."""
    records: Array | None = None
    """The target's records with the likeliest value of each cell, of shape (n_i, n_features), if a denoiser knows the
    columns."""
    evidence: Array | None = None
    """Log density of the rebuilt rows before denoising, under the denoiser's model of the population and up to a constant;
    of shape (n_i,)."""


def reconstruct(
    view: CollusionView,
    estimate: RigidMap,
    *,
    row_error: Array | None = None,
    population: ClassMoments | None = None,
    notes: tuple[str, ...] = (),
) -> Reconstruction:
    """Return the target's rows rebuilt with an estimated map: X̂ = (Y − 1 Ψ̂ᵀ) Ôᵀ.

    Parameters
    ----------
    view : CollusionView
        The attacker's view, with the target's upload Y.
    estimate : RigidMap
        (Ô, Ψ̂).
    row_error, population, notes
        Fields of `Reconstruction`.
    """
    rows = estimate.invert(view.target_upload.representation)
    return Reconstruction(rows, estimate, row_error, population, notes=notes)


def reconstruct_rows(view: CollusionView, rows: Array) -> Reconstruction:
    """Return rows that were rebuilt in any way, with the rigid map that takes them nearest to the upload."""
    Y = view.target_upload.representation
    xp = namespace_of(rows, Y)
    x, y = xp.mean(rows, axis=0), xp.mean(Y, axis=0)
    return Reconstruction(rows, RigidMap.from_centre(polar_factor(transpose(rows - x) @ (Y - y)), x, y))


def anchor_pair(view: CollusionView) -> tuple[Array, Array]:
    """Return the anchor and the target's representation of it, or raise `DoesNotApply`."""
    A, B = view.anchor, view.target_upload.anchor_representation
    if B is None:
        raise DoesNotApply(f"{view.method.title} uploads no anchor representation.")
    if A is None:
        raise DoesNotApply("The anchor is known only to participants, and none colludes.")
    return A, B


def centred_anchor_pair(view: CollusionView) -> tuple[Array, Array, Array, Array]:
    """Return Ā, a, B̄, b of the target (eqs. pdp_collusion_anchor_centering, pdp_collusion_uploaded_anchor_centering)."""
    A, B = anchor_pair(view)
    xp = namespace_of(A, B)
    a, b = xp.mean(A, axis=0), xp.mean(B, axis=0)
    return A - a, a, B - b, b


@dataclass(frozen=True, eq=False)
class AnchorDraws:
    """The targets' uploads in D views that have the same anchor, stacked for closed-form attacks."""

    anchor: Array
    """A, which is centred by construction, of shape (r, h)."""
    centred: Array
    """B̄, of shape (D, r, h)."""
    means: Array
    """b, of shape (D, h)."""
    rows: Array
    """Y, of shape (n, h) if all views have the same rows, else (D, n, h)."""

    @classmethod
    def of(cls, views: Sequence[CollusionView]) -> AnchorDraws:
        """Return the stacked views, which must have the same anchor and rows of one shape."""
        pairs = [anchor_pair(view) for view in views]
        A = pairs[0][0]
        xp = namespace_of(A, *(B for _, B in pairs))
        for index, (other, _) in enumerate(pairs):
            if other is not A and (other.shape != A.shape or not bool(xp.all(other == A))):
                problem = f"View {index} has a different anchor than view 0."
                raise InputError(
                    f"view {index}", problem=problem, cure="Attack views with different anchors separately."
                )
        B = xp.stack([B for _, B in pairs])
        means = [view.anchor_mean for view in views]
        b = xp.mean(B, axis=1) if any(mean is None for mean in means) else xp.stack(means)
        rows = [view.target_upload.representation for view in views]
        is_same = all(part is rows[0] for part in rows)
        return cls(A, B - b[:, None, :], b, rows[0] if is_same else xp.stack(rows))

    def undo(self, inverses: Array) -> Array:
        """Return (Y − 1 bᵀ) M of every draw, for M of shape (D, h, h)."""
        return (self.rows - self.means[:, None, :]) @ inverses

    def reconstructions(
        self, rows: Array, orthogonals: Array, row_errors: Sequence[Array | None]
    ) -> tuple[Reconstruction, ...]:
        """Return one reconstruction per draw, from rows of shape (D, n, h) and orthogonal parts of shape (D, h, h)."""
        return tuple(
            Reconstruction(rows[k, ...], RigidMap(orthogonals[k, ...], self.means[k, ...]), error)
            for k, error in enumerate(row_errors)
        )


def anchor_row_error(view: CollusionView, variance: float) -> Array:
    """Return the covariance of the rows' error if every entry of the map has an error of this variance.

    A small turn Ω with independent entries of this variance moves a row x by x Ω, so each coordinate moves with this
    variance times ‖x‖². Here ‖x‖² is averaged over the uploaded rows, measured from the uploaded anchor's mean.
    """
    Y, B = view.target_upload.representation, view.target_upload.anchor_representation
    xp = namespace_of(Y)
    centred = Y - xp.mean(Y if B is None else B, axis=0)
    spread = xp.sum(centred * centred) / Y.shape[0]
    return variance * spread * identity_like(Y)
