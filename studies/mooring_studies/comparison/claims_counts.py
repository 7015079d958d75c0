"""Ours beside the paper's numbers: settings, and counts, means, extremes and medians of the table.

Each function takes a `Study` and, by keyword, what `paper.toml` says; it returns a number or raises `NoAnswer`. Shares are
between 0 and 1.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from mooring.theory import transition_scale
from mooring.typing import Vector
from mooring_studies.comparison.claims_study import (
    NOT_MEASURED,
    NOT_RECORDED,
    NoAnswer,
    Study,
    column_of,
    noise_of,
    read_paper,
    require_number,
    require_values,
)
from mooring_studies.comparison.max_of_k_baseline import estimate_max_of_k
from mooring_studies.comparison.results import Kind, Results
from mooring_studies.data.faces import HELD_OUT_SHARE


def mean_of(study: Study, *, method: str, column: str) -> float:
    """The mean of a column over a method's rows: a control's value, or the mean over noisy draws.

    Parameters
    ----------
    study, method, column
        Whose rows, and what of them.
    """
    return float(require_values(column_of(study.draws(method), column)).mean())


def largest_of(study: Study, *, method: str, column: str) -> float:
    """The largest value of a column over a method's rows.

    Parameters
    ----------
    study, method, column
        Whose rows, and what of them.
    """
    return float(require_values(study.draws(method)[column]).max())


def median_of(study: Study, *, method: str, column: str, converged: bool) -> float:
    """The median of a column over the runs that met the stopping criterion, or over those that did not.

    Parameters
    ----------
    study, method, column, converged
        Whose rows, what of them, and of which runs.
    """
    return float(np.median(require_values(_stopped(study, method, converged)[column], "no such run")))


def n_identical_pairs(study: Study, *, first: str, first_column: str, second: str, second_column: str) -> float:
    """Of how many draws two methods have the same noise and the same value.

    Parameters
    ----------
    study : Study
    first, second, first_column, second_column : str
        Methods, and what of their rows is compared.
    """
    one, other = (rows.only(np.argsort(rows["draw"], kind="stable")) for rows in map(study.draws, (first, second)))
    _, here, there = np.intersect1d(one["draw"], other["draw"], return_indices=True)
    if not len(here):
        raise NoAnswer(NOT_MEASURED)
    same_noise = noise_of(one, first)[here] == noise_of(other, second)[there]
    return float(np.sum(same_noise & (one[first_column][here] == other[second_column][there])))


def n_strongest(study: Study, *, method: str, attack: str, among: list[str]) -> float:
    """On how many draws an attack links as many as the best of several, ties included.

    Parameters
    ----------
    study, method, attack
        Attacked method, and the attack.
    among : list of str
        The attacks that it is compared with.
    """
    rows = study.draws(method)
    every = np.stack([rows[f"linkage:{name}"] for name in among])
    complete = np.isfinite(every).all(axis=0)
    if not complete.any():
        raise NoAnswer(NOT_MEASURED)
    return float(np.sum(rows[f"linkage:{attack}"][complete] >= every[:, complete].max(axis=0)))


def expected_max_of_k(study: Study, *, method: str, kind: Kind) -> float:
    """What the strongest attack on a method would reach by chance alone, on average: see `max_of_k_baseline`.

    Parameters
    ----------
    study, method, kind
        Attacked method; linkage, or direct matching.
    """
    found = estimate_max_of_k(study.draws(method), study.facts, kind)
    return require_number(None if found is None else found[1], NOT_RECORDED)


def n_stopped(study: Study, *, method: str, converged: bool, side: Literal["below", "above"] | None = None) -> float:
    """How many runs met the stopping criterion, or were cut off; where asked, on one side of v_PT only.

    Parameters
    ----------
    study, method, converged
        Whose runs, and which of them.
    side : {"below", "above"}, optional
        Of v_PT; None is both.
    """
    require_values(study.draws(method)["converged"])
    rows = _stopped(study, method, converged)
    if side is None:
        return float(len(rows))
    noise, v_pt = noise_of(rows, method), transition(study)
    return float(np.sum(noise < v_pt if side == "below" else noise >= v_pt))


def largest_converged(study: Study, *, method: str) -> float:
    """The largest noise of a run that met the stopping criterion."""
    return float(_noise_where(study, method, True, "no run met the criterion").max())


def smallest_capped(study: Study, *, method: str) -> float:
    """The smallest noise of a run that was cut off."""
    return float(_noise_where(study, method, False, "no run was cut off").min())


def middle_of_stopping(study: Study, *, method: str) -> float:
    """Where runs cease to meet the criterion: midway between the two noises above."""
    return (largest_converged(study, method=method) + smallest_capped(study, method=method)) / 2


def transition(study: Study) -> float:
    """v_PT, from the sizes that were run (eq. paigdp_ling_empirical_scale)."""
    p, h, r = study.n_participants, study.fact("spec.data.n_components"), study.fact("spec.data.n_anchor_rows")
    if not (p and h and r):
        raise NoAnswer("the sizes are not recorded")
    return transition_scale(p, h, r)


def n_draws(study: Study, *, method: str) -> float:
    """How many draws a method has."""
    return require_number(len(study.draws(method)) or None, NOT_MEASURED)


def n_methods(study: Study, *, methods: list[str]) -> float:
    """How many of the paper's methods were run."""
    return float(len(set(study.results.values("method")) & set(methods)))


def as_built(study: Study, *, what: str) -> float:
    """A number that no setting changes; a test compares it with the code."""
    return float(read_paper()["built"][what])


def from_facts(study: Study, *, path: str) -> float:
    """A number that the study recorded."""
    found = study.fact(path)
    known = isinstance(found, int | float) and not isinstance(found, bool)
    return require_number(found if known else None, NOT_RECORDED)


def sum_of_facts(study: Study, *, paths: list[str]) -> float:
    """The sum of several numbers that the study recorded."""
    return sum(from_facts(study, path=path) for path in paths)


def highest_noise(study: Study, *, noise: Literal["data", "anchor"]) -> float:
    """The upper end of the noise drawn, absolute."""
    ranges, rms = study.fact(f"spec.noise.{noise}"), study.fact("rms")
    if not ranges or (rms is None and any(one["unit"] == "rms" for one in ranges)):
        raise NoAnswer(NOT_RECORDED)
    return max(float(one["high"]) * (float(rms) if one["unit"] == "rms" else 1.0) for one in ranges)


def identities_each(study: Study) -> float:
    """Identities a participant."""
    return require_number(study.identities_each, NOT_RECORDED)


def identities_in(study: Study, *, split: Literal["train", "validation", "test"]) -> float:
    """Identities a participant in one split: 15 % each, rounded, to validate and to test, the rest to train."""
    found = identities_each(study)
    held_out = int(HELD_OUT_SHARE * found + 0.5)
    return float(found - 2 * held_out if split == "train" else held_out)


def episodes(study: Study) -> float:
    """Galleries of the target's identities in all."""
    return identities_each(study) * as_built(study, what="galleries an identity")


def participants_run(study: Study, *, n_participants: int) -> float:
    """A participant count, if it was run."""
    if not len(study.results.where(n_participants=n_participants)):
        raise NoAnswer("not run")
    return float(n_participants)


def _stopped(study: Study, method: str, converged: bool) -> Results:
    return study.draws(method).where(converged=float(converged))


def _noise_where(study: Study, method: str, converged: bool, reason: str) -> Vector:
    return require_values(noise_of(_stopped(study, method, converged), method), reason)
