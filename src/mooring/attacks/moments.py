"""Moments: uploaded rows carry no anchor noise, so their means and covariances reveal the map.

The attacker knows the rows of colluders, or public ones, and usually all labels. It assumes that rows of one class have
nearly the same distribution at two organisations. Maximum likelihood finds the map that makes the target's class means and
covariances agree with those of the known rows, and the target's anchor representation agree with the anchor
(`moment_matching`). The attack also works without an anchor, without labels, and with a single colluder; the scale of the
anchor noise hardly matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from mooring.attacks.class_moments import ClassMoments
from mooring.attacks.moment_matching import AnchorEvidence
from mooring.attacks.moment_search import MomentRows, best_matches
from mooring.attacks.procrustes import procrustes
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, reconstruct
from mooring.attacks.view import Codes, CollusionView
from mooring.errors import InputError
from mooring.geometry.backend import namespace_of
from mooring.typing import Array

_matched: WeakKeyDictionary[CollusionView, Reconstruction] = WeakKeyDictionary()


def moments(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Match the target's class moments to those of known rows, and its anchor representation to the anchor.

    Other attacks start from the result, which is computed once for each view.
    """
    if (known := _matched.get(view)) is None:
        known = _matched[view] = moments_batch([view], rng=rng)[0]
    return known


def moments_batch(views: Sequence[CollusionView], *, rng: np.random.Generator) -> tuple[Reconstruction, ...]:
    """Run the attack on several draws of the anchor noise at once.

    The views may differ in anchor representations and the scale of anchor noise, and in nothing else. Each result equals
    that of `moments` for its view, up to rounding.
    """
    _require_one_target(views)
    first = views[0]
    if first.reference_rows is None:
        raise DoesNotApply("Without rows of a colluder or public rows, the target's moments cannot be compared.")
    if first.anchor is not None and any(view.anchor_noise_scale == 0 for view in views):
        exact = [view.anchor_noise_scale == 0 for view in views]
        noisy = [view for view, known in zip(views, exact, strict=True) if not known]
        others = iter(moments_batch(noisy, rng=rng) if noisy else ())
        return tuple(
            replace(procrustes(view, rng=rng), notes=("the anchor alone gives the map exactly",))
            if known
            else next(others)
            for view, known in zip(views, exact, strict=True)
        )
    population, target = both_sides(first, noise_variance=first.data_noise_scale**2)
    match, minima, starts = best_matches(population, target, anchor_evidence(views), first.effort)
    errors = match.row_error(minima.orthogonal)
    draws = range(len(views)) if _has_anchor(first) else [0] * len(views)
    return tuple(
        reconstruct(
            view,
            match.to_map(minima.orthogonal[draw, ...], minima.shift[draw, ...]),
            row_error=errors[draw, ...],
            notes=(f"start: {starts[draw]}",),
        )
        for view, draw in zip(views, draws, strict=True)
    )


def _require_one_target(views: Sequence[CollusionView]) -> None:
    """Raise an `InputError` for views that differ in more than anchor representations and the scale of anchor noise."""
    if not views:
        raise InputError("views", expected="one or more", got="none", cure="Pass at least one view.")
    for index, view in enumerate(views):
        if not _alike(views[0], view):
            problem = f"View {index} differs from view 0 in more than its anchor representations and their noise."
            raise InputError(f"view {index}", problem=problem, cure="Attack it separately, with moments.")


def _alike(first: CollusionView, second: CollusionView) -> bool:
    """Return whether two views differ at most in their anchor evidence. Arrays are compared unless they are one object."""
    if first is second:
        return True
    if (
        first.target != second.target
        or [a.index for a in first.colluders] != [b.index for b in second.colluders]
        or len(first.uploads) != len(second.uploads)
        or first.data_noise_scale != second.data_noise_scale
        or _has_anchor(first) != _has_anchor(second)
    ):
        return False
    pairs = [(first.target_upload.representation, second.target_upload.representation), (first.anchor, second.anchor)]
    pairs += [(a.rows, b.rows) for a, b in zip(first.colluders, second.colluders, strict=True)]
    pairs += [] if first.public_rows is second.public_rows else [(first.reference_rows, second.reference_rows)]
    same_labels = all(a is b for a, b in zip(first.labels, second.labels, strict=True))
    pairs += [] if same_labels else list(zip(first.class_codes(), second.class_codes(), strict=True))
    return all(_equal(a, b) for a, b in pairs)


def _has_anchor(view: CollusionView) -> bool:
    return view.anchor is not None and view.target_upload.anchor_representation is not None


def _equal(first: Array, second: Array) -> bool:
    if first is second:
        return True
    if first is None or second is None or first.shape != second.shape:
        return False
    return bool(namespace_of(first, second).all(first == second))


def both_sides(view: CollusionView, *, noise_variance: float) -> tuple[MomentRows, MomentRows]:
    """Return the reference rows, pooled, and the target's upload, both restricted to common classes.

    Without common classes, all rows are compared as one class. The target's upload carries private-data noise; moments of
    reference rows are computed as if these rows carried the same noise.
    """
    rows, Y = view.reference_rows, view.target_upload.representation
    codes_c = view.reference_codes()
    codes_t = view.codes_of([view.target])
    if rows is None or rows.shape[0] < 2 or Y.shape[0] < 2:
        raise DoesNotApply("A covariance needs at least two rows on both sides.")
    shared = np.intersect1d(codes_c, codes_t)
    if shared.size == 0:  # without common classes, all rows are compared as one class
        codes_c, codes_t, shared = np.zeros_like(codes_c), np.zeros_like(codes_t), np.zeros(1, dtype=np.intp)
    return side_of(rows, codes_c, shared, noise_variance=noise_variance), side_of(Y, codes_t, shared)


def anchor_evidence(views: Sequence[CollusionView], participant: int | None = None) -> AnchorEvidence | None:
    """Return the evidence of noisy anchor representations, by default the target's.

    The result is None if the attacker does not know the anchor, or if the participant uploaded no representation of it.
    """
    chosen = views[0].target if participant is None else participant
    A, representations = views[0].anchor, [view.uploads[chosen].anchor_representation for view in views]
    if A is None or representations[0] is None:
        return None
    xp = namespace_of(A, *representations)
    means = [xp.mean(B, axis=0) for B in representations]
    crosses = [A.T @ (B - mean) for B, mean in zip(representations, means, strict=True)]
    scales = np.array([view.anchor_noise_scale for view in views], dtype=np.float64)
    return AnchorEvidence(xp.stack(crosses), xp.stack(means), scales, representations[0].shape[0])


def side_of(rows: Array, codes: Codes, shared: Codes, *, noise_variance: float = 0.0) -> MomentRows:
    """Return the rows of the shared classes, recoded 0, 1, …, with moments that include noise of this variance."""
    kept = np.flatnonzero(np.isin(codes, shared))
    if kept.size < codes.size:
        rows = rows[namespace_of(rows).asarray(kept, device=rows.device), :]
    recoded = np.searchsorted(shared, codes[kept])
    return MomentRows(rows, recoded, ClassMoments.of(rows, recoded, shared.size).with_noise(noise_variance))
