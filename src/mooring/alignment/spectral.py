"""The spectral start: top d eigenvectors of G, each block projected onto O(d).

The eigenvectors of G = DᵀD are the right singular vectors of D. Up to a positive scale a column, which the blocks share,
they are Dᵀ U with U the top d eigenvectors of the r × r matrix D Dᵀ, whatever the number of participants. Where few
participants have a long anchor G itself is the smaller of the two, and is decomposed instead.

Iterations on a space would be quicker at low noise only. Past the phase transition hardly a gap sets the top d
eigenvalues apart from the next, and they would take thousands of products to settle on the same space.
"""

from __future__ import annotations

from mooring.alignment.problem import ProcrustesProblem
from mooring.geometry.backend import namespace_of, transposed
from mooring.geometry.orthogonal import polar_factor
from mooring.typing import Array


def spectral_maps(problem: ProcrustesProblem) -> Array:
    """Return orthogonal blocks of shape (n_problems, p, d, d), in the precision of `problem`."""
    xp = namespace_of(problem.blocks)
    n, n_rows, width = problem.blocks.shape
    d = problem.n_components
    if width < n_rows:
        eigenvectors = xp.linalg.eigh(transposed(problem.blocks) @ problem.blocks)[1]
        return polar_factor(xp.reshape(eigenvectors[..., -d:], (n, problem.n_participants, d, d)))
    eigenvalues, eigenvectors = xp.linalg.eigh(problem.blocks @ transposed(problem.blocks))
    scale = xp.sqrt(xp.clip(eigenvalues[..., -d:], min=float(xp.finfo(eigenvalues.dtype).tiny)))
    return polar_factor(problem.pulled_back(eigenvectors[..., -d:] / scale[..., None, :]))
