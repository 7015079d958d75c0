"""Curves of what attacks find as noise grows, kept to what attacks can do.

A spline is free to rise at its ends above all its draws. An attack is not: noise does not help it. So no curve of an attack
is drawn above what the same attack finds without noise, with the same decoder; draws that luck put above it stay where they
are, as points. And the strongest of several attacks is nowhere weaker than one of them: its curve rests on fewer draws than
theirs, and where theirs is higher it follows them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mooring_studies.figures.fits import Line, Track
from mooring_studies.figures.labels import (
    ALIGNED,
    ALIGNED_DATA_NOISE,
    ANCHOR_NOISE,
    COMMON,
    DATA_NOISE,
)
from mooring_studies.figures.series import Material, column, control, control_strongest, percent, strongest

if TYPE_CHECKING:
    from mooring_studies.comparison.results import Kind, Results

SCALES = {
    DATA_NOISE: "data_noise_scale",
    ALIGNED_DATA_NOISE: "data_noise_scale",
    ANCHOR_NOISE: "anchor_noise_scale",
}
PAPER_ATTACKS = {
    DATA_NOISE: ("known-secret",),
    ALIGNED_DATA_NOISE: ("known-anchor",),
    ANCHOR_NOISE: ("pseudoinverse", "alignment-map", "procrustes"),
}
CURVE_RULE = (
    "No curve of an attack is drawn above what the attack finds without noise, and that of the strongest is nowhere below "
    "one of the paper's attacks"
)
_WITHOUT_NOISE = {
    DATA_NOISE: (COMMON, "known-secret"),
    ALIGNED_DATA_NOISE: (ALIGNED, "known-anchor"),
    ANCHOR_NOISE: (ALIGNED, "known-anchor"),
}
_LEARNED = "+learned"


def noiseless_linkage(results: Results, method: str) -> float | None:
    """What the paper's attack and decoder link where the method adds no noise, in percent."""
    plain, attack = _WITHOUT_NOISE[method]
    return control(results, plain, f"linkage:{attack}")


def has_learned_decoder(results: Results, method: str) -> bool:
    """Whether attacks on a method were also judged by a decoder that the paper does not have."""
    return any(name.endswith(_LEARNED) for name in results.where(method=method).attacks("linkage"))


def paper_line(material: Material, results: Results, method: str, attack: str) -> Line | None:
    """The curve of one of the paper's attacks on the noise, not above the same without noise."""
    own = results.where(method=method)
    line = material.fits.line(column(own, SCALES[method]), percent(own, f"linkage:{attack}"))
    return None if line is None else line.capped(noiseless_linkage(results, method))


def paper_track(material: Material, results: Results, method: str, attack: str) -> Track | None:
    """Linkage by one of the paper's attacks and utility, paired by noise; linkage not above the same without noise."""
    own = results.where(method=method)
    noise, linkage = column(own, SCALES[method]), percent(own, f"linkage:{attack}")
    found = material.fits.track(noise, linkage, percent(own, "balanced_accuracy"))
    return None if found is None else replace(found, across=found.across.capped(noiseless_linkage(results, method)))


def paper_curve(material: Material, results: Results, method: str, attack: str) -> Line | None:
    """Utility on linkage by one of the paper's attacks, as far as the linkage that it reaches without noise."""
    own, top = results.where(method=method), noiseless_linkage(results, method)
    line = material.fits.line(percent(own, f"linkage:{attack}"), percent(own, "balanced_accuracy"))
    return line if line is None or top is None else line.only(line.x <= top)


def strongest_line(material: Material, results: Results, method: str) -> Line | None:
    """The curve of the strongest attack by the auditor: see this module's words."""
    own = results.where(method=method)
    line = material.fits.line(column(own, SCALES[method]), strongest(own, "linkage"))
    return None if line is None else _envelope(line, material, results, method)


def strongest_track(material: Material, results: Results, method: str) -> Track | None:
    """Linkage by the strongest attack and utility, paired by noise.

    Linkage rests on the draws on which every attack was run, which are few; utility is known on every draw and rests on all.
    """
    own = results.where(method=method)
    across = strongest_line(material, results, method)
    up = material.fits.line(column(own, SCALES[method]), percent(own, "balanced_accuracy"))
    return None if across is None or up is None else Track(across.x, across, up.on(across.x))


def highest(line: Line, others: Iterable[Line | None]) -> Line:
    """A curve raised to those of others wherever one of them is higher, band and all, within its own range."""
    edges = [line.y, line.lower, line.upper]
    for other in others:
        if other is not None:
            moved = other.on(line.x)
            there = (moved.y, moved.lower, moved.upper)
            # Where a curve has no band of its own, none is borrowed.
            edges = [
                np.where(np.isnan(own), np.nan, np.fmax(own, edge)) for own, edge in zip(edges, there, strict=True)
            ]
    y, lower, upper = edges
    return Line(line.x, y, lower, np.maximum(upper, y))


def _envelope(line: Line, material: Material, results: Results, method: str) -> Line:
    shown = (paper_line(material, results, method, attack) for attack in PAPER_ATTACKS[method])
    return highest(line.capped(_noiseless_strongest(results, method, "linkage")), shown)


def _noiseless_strongest(results: Results, method: str, kind: Kind) -> float | None:
    """What the strongest attack finds without noise; None where a decoder of the noisy draws was not tried there."""
    plain = _WITHOUT_NOISE[method][0]
    decoders = (
        {name.endswith(_LEARNED) for name in results.where(method=one).attacks(kind)} for one in (method, plain)
    )
    noisy, quiet = decoders
    return control_strongest(results, plain, kind) if noisy <= quiet else None
