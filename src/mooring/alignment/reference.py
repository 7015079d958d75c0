"""Alignment to one reference participant (Algorithm 2), which is exact when the anchors carry no noise.

Legend, besides that of `problem`: s the reference; Π(M) the polar factor of M; R_i = Π(B̄_iᵀ B̄_s). The map of i is
T ↦ (T − 1 b_iᵀ) R_i + 1 b_sᵀ, and the map of s is the identity.
"""

from __future__ import annotations

from collections.abc import Sequence

from mooring.alignment.problem import make_problem
from mooring.alignment.result import Alignment, BatchSolution, Termination
from mooring.errors import InputError
from mooring.geometry.backend import identity_like, namespace_of, transpose
from mooring.geometry.orthogonal import svd_polar_factor
from mooring.typing import Array


def align_to_reference(anchor_representations: Sequence[Array] | Array, *, reference: int = 0) -> Alignment:
    """Return maps that bring every upload into the coordinate system of one participant.

    Parameters
    ----------
    anchor_representations : sequence of p arrays of shape (r, d), or one array of shape (p, r, d)
    reference : int, default 0
        Index of the participant whose coordinates are used.

    Returns
    -------
    Alignment
        The common space has the reference participant's coordinates, and that participant's map is the identity.
    """
    problem = make_problem(anchor_representations)
    if not 0 <= reference < problem.n_participants:
        expected = f"a participant's index, 0 to {problem.n_participants - 1}"
        raise InputError("reference", expected=expected, got=str(reference), cure="Count participants from zero.")
    xp = namespace_of(problem.blocks)
    blocks, means = problem.blocks[0], problem.means[0]
    shape = (blocks.shape[0], problem.n_participants, problem.n_components)
    centred = xp.permute_dims(xp.reshape(blocks, shape), (1, 0, 2))
    R = svd_polar_factor(transpose(centred) @ centred[reference])
    here = xp.reshape(xp.arange(problem.n_participants, device=R.device), (-1, 1, 1)) == reference
    R = xp.where(here, identity_like(R), R)
    solution = BatchSolution.in_one_step(R[None, ...], Termination.REFERENCE)
    return solution.alignments(problem, origin=means[reference])[0]
