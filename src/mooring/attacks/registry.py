"""The attacks by name, and how to run one. The registry is open: `register_attack` adds an attack from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

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
from mooring.attacks.refine import refine
from mooring.attacks.repeated_upload import repeated_upload
from mooring.attacks.sums.class_of_one import class_of_one
from mooring.attacks.sums.column_space import column_space
from mooring.attacks.sums.empty_cells import empty_cells
from mooring.attacks.sums.level_of_one import level_of_one
from mooring.attacks.sums.leverage import leverage
from mooring.attacks.sums.pairwise_difference import pairwise_difference
from mooring.attacks.sums.pairwise_register import pairwise_register
from mooring.attacks.sums.pairwise_view import PairwiseView
from mooring.attacks.sums.register import register
from mooring.attacks.sums.synthetic_rows import synthetic_rows
from mooring.attacks.sums.value_of_one import value_of_one
from mooring.attacks.sums.view import MembershipScores, SumView
from mooring.attacks.sums.whitened_difference import whitened_difference
from mooring.attacks.view import CollusionView
from mooring.errors import InputError, require_choice
from mooring.randomness import require_generator

Finding = Reconstruction | MembershipScores
"""What an attack returns: rebuilt rows, or scores of candidates for membership."""


@dataclass(frozen=True)
class Attack:
    """An attack and its description.

    Examples
    --------
    >>> from mooring.attacks import reconstruct_rows

    An attack that guesses the mean of the colluders' rows, without looking at the upload:

    >>> def guess_the_mean(view, *, rng):
    ...     mean = view.reference_rows.mean(axis=0)
    ...     return reconstruct_rows(view, np.tile(mean, (len(view.target_upload.representation), 1)))
    >>> Attack("mean", "the mean of the colluders' rows", guess_the_mean).name
    'mean'
    """

    name: str
    summary: str
    """What the attack uses, in a few words."""
    function: Callable[..., Any]
    """Takes a view and, by keyword, a `numpy.random.Generator`. Returns a `Reconstruction` or `MembershipScores`, or
    raises `DoesNotApply`."""
    in_paper: bool = False
    """Whether the paper describes it."""
    batch: Callable[..., tuple[Reconstruction, ...]] | None = None
    """The same attack on many views at once: takes the views and returns one `Reconstruction` per view. None if the attack
    has no such form. Each attack states what its views must have in common."""
    view: type = CollusionView
    """The kind of view that the attack takes: `CollusionView` for uploads of rows, `SumView` for a total of sums, and
    `PairwiseView` for the general total."""

    @property
    def is_own(self) -> bool:
        """Whether the attack is mooring's own, so that its results can be cached under its name."""
        return ATTACKS.get(self.name) is self and self.function.__module__.startswith("mooring.")

    def __call__(self, view: Any, *, rng: np.random.Generator) -> Finding:
        """Run the attack."""
        finding: Finding = self.function(view, rng=rng)
        return finding


ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (
        Attack("known-secret", "the colluder's map, where all participants share it", known_secret, True),
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
        Attack("joint-moments", "the moments of everybody's rebuilt rows, and the anchor", joint_moments),
        Attack("refine", "rows denoised and aligned with the upload, repeatedly", refine),
        Attack("principal-axes", "the upload's covariance", principal_axes),
        Attack("independent-components", "independence of the columns", independent_components),
        Attack("lattice", "columns of whole numbers or yes/no, by lattice reduction", lattice),
        Attack("known-rows", "some of the target's rows, known from elsewhere", known_rows),
        Attack("repeated-upload", "several uploads of the same rows", repeated_upload),
        Attack("whitened-difference", "the sums against the colluders' rows", whitened_difference, view=SumView),
        Attack("leverage", "how well the sums fit a candidate", leverage, view=SumView),
        Attack("column-space", "the span of the sums, where features exceed rows", column_space, view=SumView),
        Attack("class-of-one", "a label that a single row carries", class_of_one, view=SumView),
        Attack("value-of-one", "a feature that a single row carries", value_of_one, view=SumView),
        Attack("register", "a register of everybody who may be in the data", register, view=SumView),
        Attack(
            "pairwise-difference",
            "the sums of pairs against the colluders' rows",
            pairwise_difference,
            view=PairwiseView,
        ),
        Attack("empty-cells", "pairs of values that no honest row has", empty_cells, view=PairwiseView),
        Attack("synthetic-rows", "synthetic rows drawn from the total", synthetic_rows, view=PairwiseView),
        Attack("level-of-one", "a level that a single row has", level_of_one, view=PairwiseView),
        Attack(
            "pairwise-register", "a register of everybody who may be in the data", pairwise_register, view=PairwiseView
        ),
    )
}
"""Every attack by name: the paper's, then mooring's others, then registered ones. The strongest of them bounds leakage from
below, never from above."""


def register_attack(attack: Attack) -> Attack:
    """Add an attack to the registry, from which audits take their attacks; a name that is taken is refused."""
    if attack.name in ATTACKS:
        raise InputError("attack", expected="a name that is not taken", got=repr(attack.name), cure="Rename it.")
    ATTACKS[attack.name] = attack
    return attack


def resolve_attack(attack: str | Attack | Callable[..., Any]) -> Attack:
    """Return the attack with this name, or the attack itself; a function becomes an attack on uploads of rows."""
    if isinstance(attack, Attack):
        return attack
    if isinstance(attack, str):
        require_choice("attack", attack, ATTACKS)
        return ATTACKS[attack]
    if not callable(attack):
        cure = "Pass a name in `mooring.attacks.ATTACKS`, an `Attack`, or a function of a view."
        raise InputError("attack", expected="a name, an Attack or a function", got=type(attack).__name__, cure=cure)
    name = getattr(attack, "__name__", type(attack).__name__).replace("_", "-")
    return Attack(name, (attack.__doc__ or name).strip().partition("\n")[0], attack)


def attacks_on(view: type, attacks: Iterable[str | Attack | Callable[..., Any]] | None = None) -> tuple[Attack, ...]:
    """Return the attacks that take this kind of view, chosen from `attacks` or, by default, from the whole registry."""
    known = ATTACKS.values() if attacks is None else map(resolve_attack, attacks)
    return tuple(attack for attack in known if issubclass(view, attack.view))


def run(
    attack: str | Attack | Callable[..., Any],
    view: CollusionView | SumView | PairwiseView,
    *,
    rng: np.random.Generator,
    denoiser: str | None = None,
) -> Finding:
    """Run one attack.

    Parameters
    ----------
    attack : str, Attack or callable
        A name in `ATTACKS`, an attack, or a function that takes a view and, by keyword, `rng`.
    view : CollusionView, SumView or PairwiseView
        What the attacker knows; of the kind that the attack takes.
    denoiser : str, optional
        A name in `DENOISERS`. Rebuilt rows are replaced by their posterior mean under the model of the population that the
        denoiser fits.

    Raises
    ------
    DoesNotApply
        If the attack or the denoiser cannot be run on the view.
    """
    require_generator(rng)
    if denoiser is not None:
        require_choice("denoiser", denoiser, DENOISERS)
    attack = resolve_attack(attack)
    if not isinstance(view, attack.view):
        cure = "Attacks on rows take a CollusionView, attacks on sums a SumView or a PairwiseView."
        got = f"a {type(view).__name__} for {attack.name!r}"
        raise InputError("view", expected=f"a {attack.view.__name__}", got=got, cure=cure)
    if denoiser is not None and not isinstance(view, CollusionView):
        cure = "Leave the denoiser out."
        raise InputError("denoiser", problem="Only rows are denoised, and this attack is on sums.", cure=cure)
    finding = attack(view, rng=rng)
    return finding if denoiser is None else DENOISERS[denoiser](finding, view, rng=rng)


def run_batch(
    attack: str | Attack | Callable[..., Any], views: Sequence[CollusionView], *, rng: np.random.Generator
) -> tuple[Reconstruction, ...]:
    """Run an attack on rows on many views: at once if it has a batched form, otherwise one after the other.

    Up to rounding, the results are those of `run`. Batched forms need the same anchor and the same colluders in all views;
    `moments` also needs the same uploaded rows of the target and the same labels. If the attack cannot be run on one of the
    views, `DoesNotApply` is raised.
    """
    require_generator(rng)
    attack = resolve_attack(attack)
    if not views:
        raise InputError("views", expected="one or more", got="none", cure="Pass at least one view.")
    if attack.batch is None:
        return tuple(attack.function(view, rng=rng) for view in views)
    return attack.batch(views, rng=rng)
