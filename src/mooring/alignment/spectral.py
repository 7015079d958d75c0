"""The spectral start: top d eigenvectors of G, each block projected onto O(d).

The eigenvectors of G = DᵀD are the right singular vectors of D. Up to a positive scale a column, which the blocks share,
they are Dᵀ U with U the top d eigenvectors of the small r × r matrix D Dᵀ, whatever the number of participants.
"""

from __future__ import annotations

from mooring.alignment.problem import ProcrustesProblem
from mooring.geometry.backend import Array, namespace_of, transposed
from mooring.geometry.orthogonal import polar_factor


def spectral_maps(problem: ProcrustesProblem) -> Array:
    """Return orthogonal blocks of shape (n_problems, p, d, d), in the precision of `problem`."""
    xp = namespace_of(problem.blocks)
    eigenvalues, eigenvectors = xp.linalg.eigh(problem.blocks @ transposed(problem.blocks))
    d = problem.n_components
    scale = xp.sqrt(xp.clip(eigenvalues[..., -d:], min=float(xp.finfo(eigenvalues.dtype).tiny)))
    return polar_factor(problem.pulled_back(eigenvectors[..., -d:] / scale[..., None, :]))
