"""What attackers learn from a simulated total: membership by every attack on sums, and the ε measured with canaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from mooring.attacks import DoesNotApply, LabelledFeatures, PairwiseView, SumView, attacks_on
from mooring.attacks.registry import Attack
from mooring.attacks.sums.leverage import score_without_sums
from mooring.attacks.sums.register import MOST_CANDIDATES
from mooring.attacks.sums.view import MembershipScores
from mooring.audit.results.point_result import AttackOutcome, Leakage
from mooring.audit.specification import AuditSettings
from mooring.audit.sums.canaries import audit_epsilon, audit_pairwise_epsilon
from mooring.audit.sums.general_simulation import PairwiseSimulation
from mooring.audit.sums.simulation import SumSimulation
from mooring.metrics import Membership
from mooring.tables import Partition
from mooring.typing import Indices, Matrix

AnySimulation = SumSimulation | PairwiseSimulation
_REGISTERS = ("register", "pairwise-register")
Views: TypeAlias = Sequence[tuple[Indices, SumView | PairwiseView]]
_LEAST_OTHERS = 1000  # minimum number of non-members for a false positive rate of 0.1 %


def measure_total(simulation: AnySimulation, partition: Partition, settings: AuditSettings) -> Leakage:
    """Return the leakage of the total to the assumed colluders and, if these are fewer, to all participants but one."""
    target = (settings.targets or (1,))[0]
    others = tuple(i for i in range(partition.n_participants) if i != target)
    measured = None
    if simulation.privacy is not None:
        rng = np.random.default_rng([settings.seed, 13])
        if isinstance(simulation, PairwiseSimulation):
            measured = audit_pairwise_epsilon(simulation.privacy, rng=rng, n_runs=settings.n_canary_runs)
        else:
            measured = audit_epsilon(simulation.layout, simulation.privacy, rng=rng, n_runs=settings.n_canary_runs)
    beyond = attack_total(simulation, partition, settings, others) if len(others) > len(settings.colluders) else ()
    outcomes = attack_total(simulation, partition, settings, settings.colluders)
    return Leakage(outcomes=outcomes, beyond=beyond, epsilon=measured)


def attack_total(
    simulation: AnySimulation,
    partition: Partition,
    settings: AuditSettings,
    colluders: Sequence[int],
    *,
    most_candidates: int = MOST_CANDIDATES,
    least_others: int = _LEAST_OTHERS,
) -> tuple[AttackOutcome, ...]:
    """Return how well each attack distinguishes the honest participants' rows from test rows.

    The test rows of `settings.colluders` are left out. If there are more than `most_candidates` rows, a sample is drawn. The
    sample has at least `least_others` test rows, or all test rows if there are fewer.
    """
    participants = range(partition.n_participants)
    honest = simulation.members([i for i in participants if i not in colluders])
    asked = [i for i in participants if i not in settings.colluders]
    labels: Sequence[Any] = partition.test_labels or [None] * partition.n_participants
    others = simulation.encode([partition.test[i] for i in asked], [labels[i] for i in asked])
    rng = np.random.default_rng([settings.seed, 14])
    members = _sample(honest, most_candidates - min(least_others, len(others.features)), rng)
    outside = _sample(others, most_candidates - len(members.features), rng)
    is_register = len(members.features) == len(honest.features)
    pairs = zip(*((rows.features, rows.outcomes) for rows in (members, outside)), strict=True)
    candidates, n = LabelledFeatures(*(np.concatenate(pair) for pair in pairs)), len(members.features)
    views = simulation.views(colluders, candidates)
    control = None
    if colluders:
        guessed, _ = _score(score_without_sums, views)
        control = Membership(*_split(guessed, n))
    return tuple(
        _attack(attack, views, n, control, settings.seed)
        if is_register or attack.name not in _REGISTERS
        else AttackOutcome(attack.name, reason="There are too many rows to solve for the members of a register.")
        for attack in attacks_on(type(views[0][1]), settings.attacks)
    )


def _sample(rows: LabelledFeatures, most: int, rng: np.random.Generator) -> LabelledFeatures:
    chosen = np.sort(rng.permutation(len(rows.features))[:most])
    return replace(rows, features=rows.features[chosen], outcomes=rows.outcomes[chosen])


def _attack(attack: Attack, views: Views, n_members: int, control: Membership | None, seed: int) -> AttackOutcome:
    try:
        scores, n_rows = _score(lambda view: attack.function(view, rng=np.random.default_rng([seed, 3])), views)
    except DoesNotApply as why:
        return AttackOutcome(attack.name, reason=why.reason)
    notes = () if n_rows is None else (f"rows read off exactly, with their labels: {n_rows}",)
    members, others = _split(scores, n_members)
    if min(members.size, others.size) == 0:
        return AttackOutcome(
            attack.name, reason="The attack scores no members, or no other candidates, so they cannot be compared."
        )
    return AttackOutcome(attack.name, Membership(members, others).figures(control), notes=notes)


def _score(score: Callable[[Any], MembershipScores], views: Views) -> tuple[Matrix, int | None]:
    """Return the score of each candidate, and the number of rows read off exactly (None if the attack does not try this).

    Candidates of a class to which the attack does not apply have the score NaN. If the attack applies to no class,
    `DoesNotApply` is raised.
    """
    scores, n_rows, reason = np.full(sum(len(places) for places, _ in views), np.nan), None, None
    for places, view in views:
        try:
            finding = score(view)
        except DoesNotApply as why:
            reason = why
            continue
        scores[places] = finding.scores
        if finding.rows is not None:
            n_rows = (n_rows or 0) + len(finding.rows.features)
    if reason is not None and np.isnan(scores).all():
        raise reason
    return scores, n_rows


def _split(scores: Matrix, n_members: int) -> tuple[Matrix, Matrix]:
    """Return the finite scores of the members, which come first in `scores`, and those of the other candidates."""
    members, others = (part[np.isfinite(part)] for part in (scores[:n_members], scores[n_members:]))
    return members, others
