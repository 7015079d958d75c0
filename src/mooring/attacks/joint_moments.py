"""Joint moments: the uploads of all participants are used against one target.

One colluder has few rows, but the analyst holds all uploads. Once these are roughly mapped back, their rows are a much
larger sample of the population. First, the attack estimates the maps of all other participants from the colluders' rows.
Then, in rounds, it estimates each of these maps again, from the colluders' rows and the rebuilt rows of the remaining
participants. Last, it estimates the target's map. The attack gains most from many small participants, who also gain most
from joining.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from mooring.attacks.class_moments import ClassMoments
from mooring.attacks.moment_matching import AnchorEvidence, MomentMatch
from mooring.attacks.moment_search import minimise, minimise_each, plain_starts
from mooring.attacks.moments import anchor_evidence, moments
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, reconstruct
from mooring.attacks.view import Codes, CollusionView
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.typing import Array

_SMOOTHING = 0.3


def joint_moments(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Match the target's moments to those of the colluders' rows and all other participants' rebuilt rows."""
    if not view.colluders:
        raise DoesNotApply("Without a colluder the common coordinates cannot be related to the original ones.")
    if view.anchor is None:
        raise DoesNotApply(f"{view.method.title} has no anchor to align the other uploads with; see moments.")
    others = _others(view, rng)
    if not others:
        raise DoesNotApply("There is no participant other than the target and the colluders.")
    codes = _codes(view, others)
    n_classes = 1 + max(int(part.max()) for part in codes.values())
    known = ClassMoments.of(view.reference_rows, codes[-1], n_classes).with_noise(view.data_noise_scale**2)
    seen = {i: ClassMoments.of(view.uploads[i].representation, codes[i], n_classes) for i in (*others, view.target)}
    evidence = {i: part for i in seen if (part := anchor_evidence([view], i)) is not None}
    maps = {i: RigidMap(polar_factor(e.cross[0, ...]), e.mean[0, ...]) for i, e in evidence.items()}
    if view.anchor_noise_scale == 0:
        population = reduce(ClassMoments.merged, [_mapped_back(seen[i], maps[i]) for i in others], known)
        return reconstruct(
            view, maps[view.target], population=population, notes=("the anchor alone gives the map exactly",)
        )
    effort = view.effort
    first, last = (effort.first_iterations,) * 2, (effort.first_iterations, effort.last_iterations)
    maps = {i: _matched(known, seen[i], evidence[i], None, first)[0] for i in others}
    for _ in range(effort.joint_rounds):
        back = {i: _mapped_back(seen[i], maps[i]) for i in others}
        for i in others:
            rest = reduce(ClassMoments.merged, [back[j] for j in others if j != i], known)
            maps[i], _error = _matched(rest, seen[i], evidence[i], maps[i], first)
    population = reduce(ClassMoments.merged, [_mapped_back(seen[i], maps[i]) for i in others], known)
    first_guess = moments(view, rng=rng).rigid_map
    estimate, row_error = _matched(population, seen[view.target], evidence[view.target], None, last, also=first_guess)
    note = f"population: the colluders' rows, and rebuilt rows of other participants ({len(others)})"
    return reconstruct(view, estimate, row_error=row_error, population=population, notes=(note,))


def _others(view: CollusionView, rng: np.random.Generator) -> list[int]:
    out = {view.target, *(colluder.index for colluder in view.colluders)}
    labelled = all(view.labels[i] is not None for i in out)
    others = [i for i in range(len(view.uploads)) if i not in out and (view.labels[i] is not None or not labelled)]
    most = view.effort.joint_participants
    if view.anchor_noise_scale > 0 and len(others) > most:  # each map takes a search; without noise it is known
        others = sorted(int(i) for i in rng.choice(others, most, replace=False))
    return others


def _codes(view: CollusionView, others: list[int]) -> dict[int, Codes]:
    """Return the class codes of every participant involved, and under −1 those of the rows that the attacker knows.

    All codes are zero if the target and the known rows have no class in common.
    """
    codes = {i: view.codes_of([i]) for i in (*others, view.target)}
    codes[-1] = view.reference_codes()
    if np.intersect1d(codes[-1], codes[view.target]).size == 0:
        codes = {i: np.zeros_like(part) for i, part in codes.items()}
    return codes


def _mapped_back(seen: ClassMoments, map: RigidMap) -> ClassMoments:
    return seen.seen_from(map.translation, map.orthogonal.T)


def _matched(
    population: ClassMoments,
    seen: ClassMoments,
    evidence: AnchorEvidence,
    start: RigidMap | None,
    n_iterations: tuple[int, int],
    *,
    also: RigidMap | None = None,
) -> tuple[RigidMap, Array]:
    """Return the map that matches a participant's moments and anchor to a population, and the rows' error covariance.

    Without a start, several starts, including `also` if it is given, are first tried on a smoothed objective. `n_iterations`
    are the maximum numbers of steps from each of these starts, and from the best start.
    """
    shared = np.flatnonzero((population.counts > 0) & (seen.counts > 0))
    population, seen = population.only(shared), seen.only(shared)
    match = MomentMatch(population, seen, evidence)
    if start is not None:
        O, shift = match.from_orthogonal(start.orthogonal), match.anchor_shift
    else:
        smooth = MomentMatch(population, seen, evidence, smoothing=_SMOOTHING)
        starts = list(plain_starts(smooth).values())
        starts += [] if also is None else [smooth.from_orthogonal(also.orthogonal)]
        looks = minimise_each(smooth, starts, n_iterations[0])
        best = min(looks, key=lambda look: float(look.value[0]))
        O, shift = best.orthogonal, best.shift
    minimum = minimise(match, O, shift, n_iterations[1])
    estimate = match.to_map(minimum.orthogonal[0, ...], minimum.shift[0, ...])
    return estimate, match.row_error(minimum.orthogonal)[0, ...]
