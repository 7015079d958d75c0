"""Every attack by name, and how to run one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from mooring.attacks import denoising
from mooring.attacks.alignment_map import alignment_map
from mooring.attacks.independent_components import independent_components
from mooring.attacks.joint_moments import joint_moments
from mooring.attacks.known_anchor import known_anchor
from mooring.attacks.known_rows import known_rows
from mooring.attacks.known_secret import known_secret
from mooring.attacks.lattice import lattice
from mooring.attacks.moments import moments
from mooring.attacks.principal_axes import principal_axes
from mooring.attacks.procrustes import procrustes
from mooring.attacks.pseudoinverse import pseudoinverse
from mooring.attacks.reconstruction import Reconstruction
from mooring.attacks.repeated_upload import repeated_upload
from mooring.attacks.view import CollusionView
from mooring.errors import InputError


@dataclass(frozen=True)
class Attack:
    """One attack, described.

    Attributes
    ----------
    name : str
        How code and commands call it.
    summary : str
        What it uses, in a few words.
    function : callable
        Takes a `CollusionView` and, by keyword, a `numpy.random.Generator`; returns a `Reconstruction` or raises
        `DoesNotApply`.
    in_paper : bool
        Whether the paper has it.
    """

    name: str
    summary: str
    function: Callable[..., Reconstruction]
    in_paper: bool = False

    def __call__(self, view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
        """Run the attack."""
        return self.function(view, rng=rng)


REGISTRY: Mapping[str, Attack] = MappingProxyType(
    {
        attack.name: attack
        for attack in (
            Attack("known-secret", "the colluder's map, where all share one", known_secret, True),
            Attack("known-anchor", "the anchor and its noiseless representation", known_anchor, True),
            Attack("pseudoinverse", "the noisy anchor, by least squares", pseudoinverse, True),
            Attack("procrustes", "the noisy anchor, by an orthogonal map", procrustes, True),
            Attack("alignment-map", "the analyst's own maps and the colluder's secret", alignment_map, True),
            Attack("moments", "class means and covariances of the colluders' rows, and the anchor", moments),
            Attack("joint-moments", "the same, with everybody's rebuilt rows", joint_moments),
            Attack("principal-axes", "the upload's covariance", principal_axes),
            Attack("independent-components", "independence of the columns", independent_components),
            Attack("lattice", "columns of whole numbers or yes/no, by lattice reduction", lattice),
            Attack("known-rows", "some of the target's rows, known from elsewhere", known_rows),
            Attack("repeated-upload", "several uploads of the same rows", repeated_upload),
        )
    }
)
"""Every attack mooring knows, the paper's first. The strongest of them bounds leakage from below, never from above."""


def run(name: str, view: CollusionView, *, rng: np.random.Generator, denoise: bool = False) -> Reconstruction:
    """Run one attack.

    Parameters
    ----------
    name : str
        A name in `REGISTRY`.
    view : CollusionView
    rng : numpy.random.Generator
    denoise : bool, default False
        Whether to replace the rebuilt rows by their posterior mean under the population the attacker knows.

    Raises
    ------
    DoesNotApply
        If the view gives this attack nothing to work with.
    """
    if name not in REGISTRY:
        raise InputError(
            "attack",
            expected=f"one of {', '.join(REGISTRY)}",
            got=repr(name),
            cure="Names are lower-case, with hyphens.",
        )
    reconstruction = REGISTRY[name](view, rng=rng)
    return denoising.denoise(reconstruction, view) if denoise else reconstruction
