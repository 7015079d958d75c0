"""Ours beside the paper's numbers: those that are counts, means, extremes and medians of the table.

Each function takes a `Study` and, by keyword, what `paper.toml` says; it returns a number or the reason why there is none.
Shares are between 0 and 1.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mooring.theory import transition_scale
from mooring_studies.comparison.claims_study import (
    NOT_MEASURED,
    NOT_RECORDED,
    Answer,
    Study,
    column_of,
    noise_of,
    number_or,
)
from mooring_studies.comparison.max_of_k_baseline import luck_of
from mooring_studies.comparison.results import Kind, Results

Side = Literal["below", "above"]


def mean_of(study: Study, *, method: str, column: str) -> Answer:
    """The mean of a column over a method's rows: a control's value, or the mean over noisy draws."""
    values = column_of(study.draws(method), column)
    values = values[np.isfinite(values)]
    return number_or(float(values.mean()) if len(values) else None, NOT_MEASURED)


def largest_of(study: Study, *, method: str, column: str) -> Answer:
    """The largest value of a column over a method's rows."""
    values = study.draws(method)[column]
    values = values[np.isfinite(values)]
    return number_or(float(values.max()) if len(values) else None, NOT_MEASURED)


def median_of(study: Study, *, method: str, column: str, converged: bool) -> Answer:
    """The median of a column over the runs that met the stopping criterion, or over those that did not."""
    values = study.draws(method).where(converged=float(converged))[column]
    values = values[np.isfinite(values)]
    return number_or(float(np.median(values)) if len(values) else None, "no such run")


def n_identical_pairs(study: Study, *, first: str, first_column: str, second: str, second_column: str) -> Answer:
    """Of how many draws two methods have the same noise and the same value."""
    one, other = _by_draw(study.draws(first)), _by_draw(study.draws(second))
    _, here, there = np.intersect1d(one["draw"], other["draw"], return_indices=True)
    if not len(here):
        return NOT_MEASURED
    same_noise = noise_of(one, first)[here] == noise_of(other, second)[there]
    return float(np.sum(same_noise & (one[first_column][here] == other[second_column][there])))


def n_strongest(study: Study, *, method: str, attack: str, among: list[str]) -> Answer:
    """On how many draws an attack links as many as the best of several, ties included."""
    rows = study.draws(method)
    every = np.stack([rows[f"linkage:{name}"] for name in among])
    complete = np.isfinite(every).all(axis=0)
    if not complete.any():
        return NOT_MEASURED
    return float(np.sum(rows[f"linkage:{attack}"][complete] >= every[:, complete].max(axis=0)))


def by_luck(study: Study, *, method: str, kind: Kind) -> Answer:
    """What the strongest attack on a method would reach by luck alone, on average: see `luck`."""
    found = luck_of(study.draws(method), study.facts, kind)
    return NOT_RECORDED if found is None else found[1]


def n_stopped(study: Study, *, method: str, converged: bool, side: Side | None = None) -> Answer:
    """How many runs met the stopping criterion, or were cut off; where asked, on one side of v_PT only."""
    rows = study.draws(method)
    rows = rows.only(np.isfinite(rows["converged"]))
    if not len(rows):
        return NOT_MEASURED
    chosen = rows["converged"] == float(converged)
    if side is not None:
        v_pt = transition(study)
        if isinstance(v_pt, str):
            return v_pt
        noise = noise_of(rows, method)
        chosen &= noise < v_pt if side == "below" else noise >= v_pt
    return float(np.sum(chosen))


def largest_converged(study: Study, *, method: str) -> Answer:
    """The largest noise of a run that met the stopping criterion."""
    noise = _noise_where(study, method, converged=True)
    return number_or(float(noise.max()) if len(noise) else None, "no run met the criterion")


def smallest_capped(study: Study, *, method: str) -> Answer:
    """The smallest noise of a run that was cut off."""
    noise = _noise_where(study, method, converged=False)
    return number_or(float(noise.min()) if len(noise) else None, "no run was cut off")


def middle_of_stopping(study: Study, *, method: str) -> Answer:
    """Where runs cease to meet the criterion: midway between the two noises above."""
    top, bottom = largest_converged(study, method=method), smallest_capped(study, method=method)
    if isinstance(top, str) or isinstance(bottom, str):
        return top if isinstance(top, str) else bottom
    return (top + bottom) / 2


def transition(study: Study) -> Answer:
    """v_PT, from the sizes that were run (eq. paigdp_ling_empirical_scale)."""
    p, h, r = study.n_participants, study.fact("spec.data.n_components"), study.fact("spec.data.n_anchor_rows")
    return transition_scale(p, h, r) if p and h and r else "the sizes are not recorded"


def n_draws(study: Study, *, method: str) -> Answer:
    """How many draws a method has."""
    return number_or(float(len(study.draws(method))) or None, NOT_MEASURED)


def n_methods(study: Study, *, methods: list[str]) -> Answer:
    """How many of the paper's methods were run."""
    return float(len(set(study.results.values("method")) & set(methods)))


def _by_draw(rows: Results) -> Results:
    return rows.only(np.argsort(rows["draw"], kind="stable"))


def _noise_where(study: Study, method: str, *, converged: bool) -> NDArray[np.float64]:
    rows = study.draws(method)
    return noise_of(rows.where(converged=float(converged)), method)
