"""The generalized orthogonal Procrustes problem (GOPP) in max-trace form, for a batch of problems of one shape.

Legend, for one problem: B_i the anchor representation of participant i (r × d), b_i its mean row, B̄_i = B_i − 1 b_iᵀ;
R_i ∈ O(d); S = Σ B̄_i R_i; G the block Gram matrix with G_ij = B̄_iᵀ B̄_j.

The objective is tr(Rᵀ G R) = ‖S‖² (Proposition: reduction to max-trace form). G is pd × pd and never
formed: with the centred blocks side by side in one r × pd matrix D, G R = Dᵀ (D R) is two matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.geometry.backend import (
    are_positive_definite,
    as_float64,
    has_fast_float64,
    identity_like,
    namespace_of,
    transpose,
    vector_norms,
)
from mooring.geometry.orthogonal import polar_factor
from mooring.typing import Array

_SMALLEST_RELATIVE_VARIANCE = 1e-12
_LARGEST_SPREAD_IN_FLOAT32 = 1e3


@dataclass(frozen=True)
class ProcrustesProblem:
    """A batch of centred Procrustes problems of one shape."""

    blocks: Array
    """D, of shape (n_problems, r, p·d): the centred anchor representations, side by side, divided by the problem's
    unit."""
    unit: Array
    """Root mean square norm of a centred column, of shape (n_problems,). Dividing by it keeps every product within
    the range of float32. The maps do not depend on it, and reported objectives are multiplied by its square."""
    means: Array
    """Mean rows b_i, of shape (n_problems, p, d), which the alignment maps subtract."""
    n_participants: int
    """p."""
    n_components: int
    """d."""

    @property
    def n_problems(self) -> int:
        """The number of problems in the batch."""
        return int(self.blocks.shape[0])

    def working_precision(self) -> object:
        """Return the floating-point type for all but the last iterations.

        It is float32, unless participants' scales differ so much that rounding of the largest block would hide the smallest
        one, or the GPU is as fast in float64.
        """
        xp = namespace_of(self.blocks)
        if has_fast_float64(self.blocks):
            return xp.float64
        blocks = xp.reshape(self.blocks, (*self.blocks.shape[:2], self.n_participants, self.n_components))
        squares = xp.sum(xp.linalg.vecdot(blocks, blocks), axis=1)
        spread = xp.max(squares, axis=1) / xp.min(squares, axis=1)
        return xp.float32 if bool(xp.all(spread <= _LARGEST_SPREAD_IN_FLOAT32**2)) else xp.float64

    def weighted_sum(self, maps: Array) -> Array:
        """Return S = Σ B̄_i R_i, of shape (n_problems, r, d)."""
        xp = namespace_of(maps)
        stacked = xp.reshape(maps, (self.n_problems, self.n_participants * self.n_components, maps.shape[-1]))
        return self.blocks @ stacked

    def pulled_back(self, weighted_sum: Array) -> Array:
        """Return (G R)_i = B̄_iᵀ S, of shape (n_problems, p, d, d)."""
        xp = namespace_of(weighted_sum)
        shape = (self.n_problems, self.n_participants, self.n_components, weighted_sum.shape[-1])
        return xp.reshape(transpose(self.blocks) @ weighted_sum, shape)

    def objective(self, maps: Array) -> Array:
        """Return tr(Rᵀ G R) of each problem, in squares of its unit."""
        xp = namespace_of(maps)
        S = self.weighted_sum(maps)
        return xp.sum(S * S, axis=(-2, -1))

    def fixed_point_gap(self, maps: Array) -> Array:
        """Return ‖Π(G R) − R‖_F of each problem, which is zero exactly at the fixed points of the power method."""
        xp = namespace_of(maps)
        gap = polar_factor(self.pulled_back(self.weighted_sum(maps))) - maps
        return xp.sqrt(xp.sum(gap * gap, axis=(-3, -2, -1)))

    def select(self, indices: Array) -> ProcrustesProblem:
        """Return the sub-batch at `indices`."""
        return replace(self, blocks=self.blocks[indices], unit=self.unit[indices], means=self.means[indices])

    def in_precision(self, dtype: object) -> ProcrustesProblem:
        """Return the same batch with its blocks in the given floating-point type."""
        xp = namespace_of(self.blocks)
        if self.blocks.dtype == dtype:
            return self
        return replace(self, blocks=xp.astype(self.blocks, dtype))


def make_problem(anchor_representations: Sequence[Array] | Array) -> ProcrustesProblem:
    """Check and centre one problem's anchor representations, p of shape (r, d), and return a batch of one."""
    arrays = [as_float64(array) for array in anchor_representations]
    if len(arrays) < 2:
        got, cure = f"those of {len(arrays)}", "Alignment needs at least two uploads: wait for the others."
        raise InputError("anchor_representations", expected="those of at least two participants", got=got, cure=cure)
    for index, array in enumerate(arrays):
        if len(array.shape) != 2:
            raise InputError(
                f"anchor representation {index}",
                expected="a matrix of anchor rows by components",
                got=f"shape {tuple(array.shape)}",
                cure="Pass one r × d matrix per participant; use align_batch for several problems at once.",
            )
        if array.shape != arrays[0].shape:
            raise InputError(
                f"anchor representation {index}",
                expected=f"of shape {tuple(arrays[0].shape)} like that of participant 0",
                got=f"shape {tuple(array.shape)}",
                cure="All participants must use the same anchor and the same projection.",
            )
    xp = namespace_of(*arrays)
    return _centred(xp.stack(arrays, axis=1)[None, ...])


def require_batch(anchor_representations: Array) -> None:
    """Raise an `InputError` unless the argument is one array of shape (n_problems, p, r, d)."""
    shape = tuple(getattr(anchor_representations, "shape", ()))
    if len(shape) != 4 or shape[0] < 1 or shape[1] < 2:
        raise InputError(
            "anchor_representations",
            expected="one array of shape (n_problems, n_participants, n_anchor_rows, n_components) "
            "with two participants or more",
            got=f"shape {shape}" if shape else type(anchor_representations).__name__,
            cure="Stack problems of one shape along the first axis; use align for a single problem.",
        )


def make_batch(anchor_representations: Array) -> ProcrustesProblem:
    """Check and centre a batch of problems given as one array of shape (n_problems, p, r, d)."""
    require_batch(anchor_representations)
    array = as_float64(anchor_representations)
    xp = namespace_of(array)
    return _centred(xp.asarray(xp.permute_dims(array, (0, 2, 1, 3)), copy=True))


def _centred(stacked: Array) -> ProcrustesProblem:
    """Centre representations of shape (n_problems, r, p, d) in place, and return the batch."""
    xp = namespace_of(stacked)
    n_problems, n_rows, n_participants, n_components = stacked.shape
    if n_components < 1:
        expected = "at least one column wide"
        raise InputError("anchor_representations", expected=expected, got="no columns", cure="Check the projection.")
    if n_rows < n_components + 1:
        raise InputError(
            "anchor_representations",
            expected=f"at least n_components + 1 = {n_components + 1} rows long",
            got=f"{n_rows} rows",
            cure="Make a longer anchor: centring reduces the rank by one, and d directions must remain.",
        )
    _require_finite(stacked)
    means = xp.mean(stacked, axis=1)
    stacked -= means[:, None, :, :]
    _require_full_rank(stacked)
    unit = vector_norms(xp.reshape(stacked, (n_problems, -1))) / (n_participants * n_components) ** 0.5
    stacked /= unit[:, None, None, None]
    blocks = xp.reshape(stacked, (n_problems, n_rows, n_participants * n_components))
    return ProcrustesProblem(blocks, unit, means, n_participants, n_components)


def _require_finite(stacked: Array) -> None:
    xp = namespace_of(stacked)
    if bool(xp.all(xp.isfinite(xp.sum(stacked, axis=(1, 3))))):  # one NaN or Inf anywhere shows in the sum
        return
    broken = xp.any(~xp.isfinite(stacked), axis=(0, 1, 3))
    names = [str(index) for index in range(broken.shape[0]) if bool(broken[index])]
    raise InputError(
        "anchor_representations",
        expected="finite, and small enough to square",
        got=f"NaN or Inf from participant {', '.join(names)}" if names else "numbers too large to add up",
        cure="Request that upload again, or leave it out.",
    )


def _require_full_rank(stacked: Array) -> None:
    """Raise an `InputError` if the columns of a centred block do not span d directions, which a map needs."""
    xp = namespace_of(stacked)
    full = have_full_rank(xp.permute_dims(stacked, (0, 2, 1, 3)))
    if full.all():
        return
    names = [str(index) for index in range(full.shape[1]) if not full[:, index].all()]
    expected, got = f"of rank {stacked.shape[-1]} after centring", f"a lower rank from participant {', '.join(names)}"
    cure = "The anchor does not have full rank: make one with mooring.make_anchor, which checks this."
    raise InputError("anchor_representations", expected=expected, got=got, cure=cure)


def have_full_rank(centred: Array) -> npt.NDArray[np.bool_]:
    """Return, for each centred anchor representation of a batch (..., r, d), whether its columns span d directions."""
    xp = namespace_of(centred)
    gram = transpose(centred) @ centred
    typical = xp.sum(xp.linalg.diagonal(gram), axis=-1)[..., None, None] / gram.shape[-1]
    return are_positive_definite(gram - _SMALLEST_RELATIVE_VARIANCE * typical * identity_like(gram))
