"""The result of an attack, or the error by which it says that it does not apply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mooring.attacks.class_moments import ClassMoments
from mooring.attacks.view import CollusionView
from mooring.errors import InputError, MooringError
from mooring.geometry.backend import device_of, namespace_of, transpose
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.typing import Array


class DoesNotApply(MooringError):
    """An attack that has nothing to work with in this view. The audit goes on without it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.reason,)


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """An attacker's estimate of the target's map and rows."""

    rows: Array
    """Of shape (n_i, h): the target's rows, rebuilt, after the public projection; in the order of the upload."""
    rigid_map: RigidMap
    """The estimated map. For the one attack that does not keep to orthogonal matrices, the nearest rigid map."""
    row_error: Array | None = None
    """Of shape (h, h): covariance of the rows' error as far as the attacker can tell, without private-data noise: what a
    denoiser needs."""
    population: ClassMoments | None = None
    """What the attacker learnt of the population on the way, with private-data noise in it; None if no more than the
    colluders' rows say."""
    data_noise_scale: float | None = None
    """Private-data noise left in the rows, where the attack averaged some of it out; None for what the upload
    carries."""
    notes: tuple[str, ...] = field(default=())
    """What a reader should know, such as which start won."""
    records: Array | None = None
    """Of shape (n_i, n_features): the target's records, each cell the likeliest value of its column, where a denoiser knows
    the columns."""
    evidence: Array | None = None
    """Of shape (n_i,): log density of the rebuilt rows, before they were denoised, in the population as the denoiser models
    it, up to a constant."""


def reconstruct(
    view: CollusionView,
    estimate: RigidMap,
    *,
    row_error: Array | None = None,
    population: ClassMoments | None = None,
    notes: tuple[str, ...] = (),
) -> Reconstruction:
    """Undo an estimated map on the target's upload: X̂ = (Y − 1 Ψ̂ᵀ) Ôᵀ.

    Parameters
    ----------
    view : CollusionView
        Holds the target's upload Y.
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
    """The anchor and the target's representation of it."""
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
    """Targets' rows and anchor representations of D views with one anchor, stacked for the closed-form attacks."""

    anchor: Array
    """Of shape (r, h): A, which is centred by construction."""
    centred: Array
    """Of shape (D, r, h): B̄."""
    means: Array
    """Of shape (D, h): b."""
    rows: Array
    """Y, of shape (n, h) or (D, n, h): one matrix where all views show the same."""

    @classmethod
    def of(cls, views: Sequence[CollusionView]) -> AnchorDraws:
        """Stack the views, which must share the anchor and have rows of one shape."""
        pairs = [anchor_pair(view) for view in views]
        A = pairs[0][0]
        xp = namespace_of(A, *(B for _, B in pairs))
        for index, (other, _) in enumerate(pairs):
            if other is not A and (other.shape != A.shape or not bool(xp.all(other == A))):
                expected = "with the anchor of view 0"
                raise InputError(f"view {index}", expected=expected, got="another one", cure="Attack it by itself.")
        B = xp.stack([B for _, B in pairs])
        means = [view.anchor_mean for view in views]
        b = xp.mean(B, axis=1) if any(mean is None for mean in means) else xp.stack(means)
        rows = [view.target_upload.representation for view in views]
        return cls(A, B - b[:, None, :], b, rows[0] if all(one is rows[0] for one in rows) else xp.stack(rows))

    def undo(self, ways_back: Array) -> Array:
        """(Y − 1 bᵀ) M of every draw, for M of shape (D, h, h)."""
        return (self.rows - self.means[:, None, :]) @ ways_back

    def reconstructions(
        self, rows: Array, orthogonals: Array, row_errors: Sequence[Array | None]
    ) -> tuple[Reconstruction, ...]:
        """Rebuilt rows of shape (D, n, h) and orthogonal parts of shape (D, h, h), draw by draw."""
        return tuple(
            Reconstruction(rows[k, ...], RigidMap(orthogonals[k, ...], self.means[k, ...]), error)
            for k, error in enumerate(row_errors)
        )


def anchor_row_error(view: CollusionView, variance: float) -> Array:
    """Covariance of the rows' error where every entry of the map is off by the same variance.

    A small turn Ω with independent entries of that variance moves a row x by x Ω, so that each coordinate is off by the
    variance times ‖x‖², here the mean over the uploaded rows about the uploaded anchor's mean.
    """
    Y, B = view.target_upload.representation, view.target_upload.anchor_representation
    xp = namespace_of(Y)
    centred = Y - xp.mean(Y if B is None else B, axis=0)
    spread = xp.sum(centred * centred) / Y.shape[0]
    return variance * spread * xp.eye(view.n_components, dtype=Y.dtype, device=device_of(Y))
