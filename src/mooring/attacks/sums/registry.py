"""Every attack on sums by name, and how to run one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mooring.attacks.sums.class_of_one import class_of_one
from mooring.attacks.sums.column_space import column_space
from mooring.attacks.sums.leverage import leverage, measure_leverage
from mooring.attacks.sums.register import register
from mooring.attacks.sums.view import LabelledFeatures, SumView
from mooring.attacks.sums.whitened_difference import whitened_difference
from mooring.errors import require_choice
from mooring.typing import Matrix


@dataclass(frozen=True)
class SumAttack:
    """One attack on sums, described."""

    name: str
    summary: str
    """What it uses, in a few words."""
    function: Callable[[SumView, LabelledFeatures], Matrix]
    """Takes a `SumView` and the candidates' `LabelledFeatures`; returns one score a candidate, higher for those taken for
    members and NaN for those it says nothing about, or raises `DoesNotApply`."""


SUM_ATTACKS: Mapping[str, SumAttack] = MappingProxyType(
    {
        attack.name: attack
        for attack in (
            SumAttack("whitened-difference", "the sums against the colluders' rows", whitened_difference),
            SumAttack("leverage", "how well the sums fit a candidate", leverage),
            SumAttack("column-space", "the span of the sums, where features exceed rows", column_space),
            SumAttack("class-of-one", "a label that a single row carries", class_of_one),
            SumAttack("register", "a register of everybody who may be in it, solved for", register),
        )
    }
)
"""Every attack on sums. The strongest of them bounds leakage from below, never from above."""


def score_membership(name: str, view: SumView, candidates: LabelledFeatures) -> Matrix:
    """Run one attack on sums.

    Parameters
    ----------
    name : str
        A name in `SUM_ATTACKS`.
    candidates : LabelledFeatures
        Rows whose membership is asked for; from some attacks, all that could be members.

    Raises
    ------
    DoesNotApply
        If the view gives this attack nothing to work with.
    """
    require_choice("attack", name, SUM_ATTACKS)
    return SUM_ATTACKS[name].function(view, candidates)


def score_without_sums(view: SumView, candidates: LabelledFeatures) -> Matrix:
    """Score by how usual a candidate is among the colluders' rows: what an attacker does without the total."""
    known = view.joint_features(view.require_population())
    return -measure_leverage(known.T @ known, view.joint_features(candidates), noise_scale=1.0)
