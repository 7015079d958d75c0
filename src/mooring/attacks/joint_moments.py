"""Joint moments: everybody's uploads help against one target.

One colluder's rows are few; but the analyst holds all uploads, and once it can map them back roughly, their rows are a
sample of the population many times larger. So the maps of all other participants are estimated first, each against the
colluders' rows; then, in rounds, each against everybody else's rebuilt rows; the target's last. This is the strongest
attack on many small participants, where joining pays most.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from mooring.attacks.class_moments import ClassMoments
from mooring.attacks.moment_matching import AnchorEvidence, MomentMatch
from mooring.attacks.moment_search import minimise, plain_starts
from mooring.attacks.moments import anchor_evidence, moments
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, reconstruct
from mooring.attacks.view import Codes, CollusionView
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.typing import Array

_MAX_OTHERS = 30
_ROUNDS = 2
_SMOOTHING = 0.3
_ITERATIONS = 25
_LAST_ITERATIONS = 200


def joint_moments(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Match the target's moments to those of all other participants' rebuilt rows and the colluders' own."""
    if not view.colluders:
        raise DoesNotApply("Without a colluder nothing tells the common coordinates from the original ones.")
    if view.anchor is None:
        raise DoesNotApply(f"{view.method.title} has no anchor to bring the other uploads together; see moments.")
    others = _others(view, rng)
    if not others:
        raise DoesNotApply("There is no participant besides the target and the colluders.")
    codes = _codes(view, others)
    n_classes = 1 + max(int(part.max()) for part in codes.values())
    own = ClassMoments.of(view.reference_rows, codes[-1], n_classes).with_noise(view.data_noise_scale**2)
    seen = {i: ClassMoments.of(view.uploads[i].representation, codes[i], n_classes) for i in (*others, view.target)}
    evidence = {i: found for i in seen if (found := anchor_evidence([view], i)) is not None}
    maps = {i: RigidMap(polar_factor(e.cross[0, ...]), e.mean[0, ...]) for i, e in evidence.items()}
    if view.anchor_noise_scale == 0:
        population = reduce(ClassMoments.merged, [_mapped_back(seen[i], maps[i]) for i in others], own)
        return reconstruct(
            view, maps[view.target], population=population, notes=("the anchor alone gives the map exactly",)
        )
    maps = {i: _matched(own, seen[i], evidence[i], None, _ITERATIONS)[0] for i in others}
    for _ in range(_ROUNDS):
        back = {i: _mapped_back(seen[i], maps[i]) for i in others}
        for i in others:
            rest = reduce(ClassMoments.merged, [back[j] for j in others if j != i], own)
            maps[i], _error = _matched(rest, seen[i], evidence[i], maps[i], _ITERATIONS)
    population = reduce(ClassMoments.merged, [_mapped_back(seen[i], maps[i]) for i in others], own)
    first_guess = moments(view, rng=rng).rigid_map
    estimate, row_error = _matched(
        population, seen[view.target], evidence[view.target], None, _LAST_ITERATIONS, also=first_guess
    )
    note = f"population: colluders and others, {len(others)}"
    return reconstruct(view, estimate, row_error=row_error, population=population, notes=(note,))


def _others(view: CollusionView, rng: np.random.Generator) -> list[int]:
    out = {view.target, *(colluder.index for colluder in view.colluders)}
    labelled = all(view.labels[i] is not None for i in out)
    others = [i for i in range(len(view.uploads)) if i not in out and (view.labels[i] is not None or not labelled)]
    if view.anchor_noise_scale > 0 and len(others) > _MAX_OTHERS:  # each map is searched for; else it is known
        others = sorted(int(i) for i in rng.choice(others, _MAX_OTHERS, replace=False))
    return others


def _codes(view: CollusionView, others: list[int]) -> dict[int, Codes]:
    """Codes of every participant in play, and under −1 those of the rows that the attacker knows."""
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
    max_iterations: int,
    *,
    also: RigidMap | None = None,
) -> tuple[RigidMap, Array]:
    """The map that matches a participant's moments and anchor to a population, and its rows' error.

    Without a start, several are tried in a smoothed landscape first, among them `also`.
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
        looks = [minimise(smooth, O, smooth.anchor_shift, _ITERATIONS) for O in starts]
        best = min(looks, key=lambda look: float(look.value[0]))
        O, shift = best.orthogonal, best.shift
    found = minimise(match, O, shift, max_iterations)
    return match.to_map(found.orthogonal[0, ...], found.shift[0, ...]), match.row_error(found.orthogonal)[0, ...]
