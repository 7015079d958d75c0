"""Moments: the uploaded rows carry no anchor noise, so their means and covariances give the map away.

The attacker knows the colluders' rows and every label. Rows of one class at two organisations come from nearly the same
distribution; the map that makes the target's class means and covariances agree with the colluders', and its noisy
anchor with the anchor, is found by maximum likelihood (`moment_matching`). It works without an anchor, without labels,
and with any number of colluders; how strong the anchor noise is hardly matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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


def moments(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Match the target's class moments to the colluders', and its anchor representation to the anchor."""
    return moments_batch([view], rng=rng)[0]


def moments_batch(views: Sequence[CollusionView], *, rng: np.random.Generator) -> tuple[Reconstruction, ...]:
    """Run the attack on several draws of the anchor noise at once, where everything else is the same.

    The views share the target's rows, the colluders, the anchor and all labels; anchor representations and the scale of
    their noise are their own. Each result is, up to rounding, what `moments` gives for its view.
    """
    _require_one_target(views)
    first = views[0]
    if first.reference_rows is None:
        raise DoesNotApply("Without a colluder's or public rows there is nothing to compare the target's moments with.")
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
    match, found, starts = best_matches(population, target, anchor_evidence(views))
    errors = match.row_error(found.orthogonal)
    draws = range(len(views)) if _has_anchor(first) else [0] * len(views)
    return tuple(
        reconstruct(
            view,
            match.to_map(found.orthogonal[draw, ...], found.shift[draw, ...]),
            row_error=errors[draw, ...],
            notes=(f"start: {starts[draw]}",),
        )
        for view, draw in zip(views, draws, strict=True)
    )


def _require_one_target(views: Sequence[CollusionView]) -> None:
    """Refuse views of different rows, anchors, labels or colluders: they must be attacked one at a time."""
    if not views:
        raise InputError("views", expected="one or more", got="none", cure="Pass at least one view.")
    for index, view in enumerate(views):
        if not _alike(views[0], view):
            expected, got = "of the same uploaded rows, anchor, colluders and labels as view 0", "other ones"
            raise InputError(f"view {index}", expected=expected, got=got, cure="Attack it by itself, with moments.")


def _alike(one: CollusionView, other: CollusionView) -> bool:
    """Whether two views differ in their anchor evidence at most. What is the same object is not compared."""
    if one is other:
        return True
    if (
        one.target != other.target
        or [a.index for a in one.colluders] != [b.index for b in other.colluders]
        or len(one.uploads) != len(other.uploads)
        or one.data_noise_scale != other.data_noise_scale
        or _has_anchor(one) != _has_anchor(other)
    ):
        return False
    pairs = [(one.target_upload.representation, other.target_upload.representation), (one.anchor, other.anchor)]
    pairs += [(a.rows, b.rows) for a, b in zip(one.colluders, other.colluders, strict=True)]
    pairs += [] if one.public_rows is other.public_rows else [(one.reference_rows, other.reference_rows)]
    same_labels = all(a is b for a, b in zip(one.labels, other.labels, strict=True))
    pairs += [] if same_labels else list(zip(one.class_codes(), other.class_codes(), strict=True))
    return all(_equal(a, b) for a, b in pairs)


def _has_anchor(view: CollusionView) -> bool:
    return view.anchor is not None and view.target_upload.anchor_representation is not None


def _equal(one: Array, other: Array) -> bool:
    if one is other:
        return True
    if one is None or other is None or one.shape != other.shape:
        return False
    return bool(namespace_of(one, other).all(one == other))


def both_sides(view: CollusionView, *, noise_variance: float) -> tuple[MomentRows, MomentRows]:
    """The colluders' rows, pooled, and the target's upload, over the classes that both have.

    The target's upload carries private-data noise; the colluders' moments are given as if their rows did too.
    """
    rows, Y = view.reference_rows, view.target_upload.representation
    codes_c = view.reference_codes()
    codes_t = view.codes_of([view.target])
    if rows is None or rows.shape[0] < 2 or Y.shape[0] < 2:
        raise DoesNotApply("A covariance needs two rows or more on either side.")
    shared = np.intersect1d(codes_c, codes_t)
    if shared.size == 0:  # nothing in common but the population: compare it as one class
        codes_c, codes_t, shared = np.zeros_like(codes_c), np.zeros_like(codes_t), np.zeros(1, dtype=np.intp)
    return side_of(rows, codes_c, shared, noise_variance=noise_variance), side_of(Y, codes_t, shared)


def anchor_evidence(views: Sequence[CollusionView], participant: int | None = None) -> AnchorEvidence | None:
    """What noisy anchor representations say, the target's by default; None without an anchor or a colluder who knows it."""
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
    """Rows of the shared classes, recoded 0, 1, …, with their moments."""
    kept = np.flatnonzero(np.isin(codes, shared))
    if kept.size < codes.size:
        rows = rows[namespace_of(rows).asarray(kept, device=rows.device), :]
    recoded = np.searchsorted(shared, codes[kept])
    return MomentRows(rows, recoded, ClassMoments.of(rows, recoded, shared.size).with_noise(noise_variance))
