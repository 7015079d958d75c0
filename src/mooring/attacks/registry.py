"""Every attack by name, and how to run one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from mooring.attacks.alignment_map import alignment_map, alignment_map_batch
from mooring.attacks.denoising import DENOISERS
from mooring.attacks.independent_components import independent_components
from mooring.attacks.joint_moments import joint_moments
from mooring.attacks.known_anchor import known_anchor
from mooring.attacks.known_rows import known_rows
from mooring.attacks.known_secret import known_secret
from mooring.attacks.lattice import lattice
from mooring.attacks.moments import moments, moments_batch
from mooring.attacks.principal_axes import principal_axes
from mooring.attacks.procrustes import procrustes, procrustes_batch
from mooring.attacks.pseudoinverse import pseudoinverse, pseudoinverse_batch
from mooring.attacks.reconstruction import Reconstruction
from mooring.attacks.repeated_upload import repeated_upload
from mooring.attacks.view import CollusionView
from mooring.errors import InputError, require_choice
from mooring.randomness import require_generator


@dataclass(frozen=True)
class Attack:
    """One attack, described."""

    name: str
    summary: str
    """What it uses, in a few words."""
    function: Callable[..., Reconstruction]
    """Takes a `CollusionView` and, by keyword, a `numpy.random.Generator`; returns a `Reconstruction` or raises
    `DoesNotApply`."""
    in_paper: bool = False
    """Whether the paper has it."""
    batch: Callable[..., tuple[Reconstruction, ...]] | None = None
    """The same for many views at once, where the attack has such a form: takes the views, returns one `Reconstruction` a
    view. What the views must share is the attack's to say."""

    def __call__(self, view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
        """Run the attack."""
        return self.function(view, rng=rng)


REGISTRY: Mapping[str, Attack] = MappingProxyType(
    {
        attack.name: attack
        for attack in (
            Attack("known-secret", "the colluder's map, where all share one", known_secret, True),
            Attack("known-anchor", "the anchor and its noiseless representation", known_anchor, True),
            Attack("pseudoinverse", "the noisy anchor, by least squares", pseudoinverse, True, pseudoinverse_batch),
            Attack("procrustes", "the noisy anchor, by an orthogonal map", procrustes, True, procrustes_batch),
            Attack(
                "alignment-map",
                "the analyst's own maps and the colluder's secret",
                alignment_map,
                True,
                alignment_map_batch,
            ),
            Attack(
                "moments",
                "class means and covariances of the colluders' rows, and the anchor",
                moments,
                batch=moments_batch,
            ),
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


def run(name: str, view: CollusionView, *, rng: np.random.Generator, denoiser: str | None = None) -> Reconstruction:
    """Run one attack.

    Parameters
    ----------
    name : str
        A name in `REGISTRY`.
    denoiser : str, optional
        A name in `DENOISERS`: the rebuilt rows are replaced by their posterior mean under the population that it fits.

    Raises
    ------
    DoesNotApply
        If the view gives this attack, or the denoiser, nothing to work with.
    """
    require_generator(rng)
    if denoiser is not None:
        require_choice("denoiser", denoiser, DENOISERS)
    require_choice("attack", name, REGISTRY)
    reconstruction = REGISTRY[name](view, rng=rng)
    return reconstruction if denoiser is None else DENOISERS[denoiser](reconstruction, view, rng=rng)


def run_batch(name: str, views: Sequence[CollusionView], *, rng: np.random.Generator) -> tuple[Reconstruction, ...]:
    """Run one attack on many views: at once where it has a batched form, one after the other where not.

    Parameters
    ----------
    name : str
        A name in `REGISTRY`.
    views : sequence of CollusionView
        Draws of one deployment. The batched forms need one anchor and the same colluders in all of them; moments also
        the same rows of the target and the same labels.

    Returns
    -------
    tuple of Reconstruction
        One a view, up to rounding what `run` gives for it.

    Raises
    ------
    DoesNotApply
        If one of the views gives this attack nothing to work with.
    """
    require_generator(rng)
    require_choice("attack", name, REGISTRY)
    attack = REGISTRY[name]
    if not views:
        raise InputError("views", expected="one or more", got="none", cure="Pass at least one view.")
    if attack.batch is None:
        return tuple(attack(view, rng=rng) for view in views)
    return attack.batch(views, rng=rng)
