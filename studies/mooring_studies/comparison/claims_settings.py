"""Ours beside the paper's settings: from a study's own settings and facts, and from what the code is built to do.

Each function takes a `Study` and, by keyword, what `paper.toml` says; it returns a number or the reason why there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from mooring_studies.comparison import curves
from mooring_studies.comparison.claims_study import NOT_RECORDED, Answer, Study
from mooring_studies.data.faces import HELD_OUT_SHARE

BUILT: Mapping[str, float] = MappingProxyType(
    {
        "brightest pixel": 1,
        "digit image: side": 28,
        "digit image: features": 28 * 28,
        "digit classes": 10,
        "digit network: input side": 10,
        "digit network: padding": 3,
        "digit network: padded side": 16,
        "network: filters, first layer": 10,
        "network: filters, second layer": 20,
        "network: filter side": 5,
        "network: pooling side": 2,
        "digit network: side after first layer": 12,
        "digit network: side after first pooling": 6,
        "digit network: side after second layer": 2,
        "digit network: features": 20,
        "network: hidden units": 50,
        "auditor: filters, first layer": 32,
        "auditor: filters, second layer": 64,
        "auditor: filters, third layer": 64,
        "auditor: filter side": 3,
        "auditor: padding": 1,
        "auditor: side after first pooling": 14,
        "auditor: side after second pooling": 7,
        "auditor: features": 3136,
        "auditor: embedding": 128,
        "gallery: candidates": 10,
        "gallery: distractors": 9,
        "gallery: chance": 0.1,
        "face image: side": 64,
        "face image: features": 64 * 64 * 3,
        "face network: input side": 20,
        "face classes: chance": 0.5,
        "face model: embedding": 512,
        "galleries an identity": 10,
        "queries an identity": 1,
        "references an identity": 1,
        "colluders": 1,
        "colluder's index": 0,
        "target's index": 1,
        "projection: spread of entries": 1,
        "spline: interior knots": curves.N_KNOTS,
        "bands: resamples": curves.N_RESAMPLES,
        "bands: level": curves.LEVEL,
    }
)


def as_built(study: Study, *, what: str) -> Answer:
    """A number that no setting changes; a test holds it against the code."""
    return float(BUILT[what])


def from_facts(study: Study, *, path: str) -> Answer:
    """A number that the study recorded."""
    found = study.fact(path)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else NOT_RECORDED


def sum_of_facts(study: Study, *, paths: list[str]) -> Answer:
    """The sum of several numbers that the study recorded."""
    found = [from_facts(study, path=path) for path in paths]
    return (
        NOT_RECORDED
        if any(isinstance(one, str) for one in found)
        else sum(one for one in found if not isinstance(one, str))
    )


def highest_noise(study: Study, *, noise: Literal["data", "anchor"]) -> Answer:
    """The upper end of the noise drawn, absolute."""
    ranges, rms = study.fact(f"spec.noise.{noise}"), study.fact("rms")
    if not ranges or (rms is None and any(one["unit"] == "rms" for one in ranges)):
        return NOT_RECORDED
    return max(float(one["high"]) * (float(rms) if one["unit"] == "rms" else 1.0) for one in ranges)


def identities_each(study: Study) -> Answer:
    """Identities a participant."""
    found = study.identities_each
    return NOT_RECORDED if found is None else float(found)


def identities_in(study: Study, *, split: Literal["train", "validation", "test"]) -> Answer:
    """Identities a participant in one split: 15 % each, rounded, to validate and to test, the rest to train."""
    found = study.identities_each
    if found is None:
        return NOT_RECORDED
    held_out = int(HELD_OUT_SHARE * found + 0.5)
    return float(found - 2 * held_out if split == "train" else held_out)


def episodes(study: Study) -> Answer:
    """Galleries of the target's identities in all."""
    found = study.identities_each
    return NOT_RECORDED if found is None else float(found * BUILT["galleries an identity"])


def participants_run(study: Study, *, n_participants: int) -> Answer:
    """A participant count, if it was run."""
    return float(n_participants) if len(study.results.where(n_participants=n_participants)) else "not run"
