"""What figures read out of a result table: series in percent, controls, and the strongest attack of every draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mooring.errors import InputError
from mooring_studies.comparison.max_of_k_baseline import luck_words
from mooring_studies.comparison.results import Kind, Results
from mooring_studies.figures.fits import Fits
from mooring_studies.figures.labels import ANCHOR_NOISE, LOCAL_ONLY, POOLED_RAW

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Material:
    """A study's results, what is known about the run, and the curves fitted so far."""

    study: str
    results: Results
    facts: Mapping[str, Any]
    fits: Fits

    @property
    def paper(self) -> Results:
        """The deployment that stands for the paper's: the first."""
        return self.results.where(deployment=0)

    def transition(self, n_participants: float) -> float | None:
        """v_PT for so many participants, if the run noted it: of the whole, or of each number of participants apart."""
        parts = self.facts.get("deployments")
        for part in (self.facts, *(parts.values() if isinstance(parts, Mapping) else ())):
            value = (part.get("phase_transition") or {}).get(str(int(n_participants)))
            if value is not None:
                return float(value)
        return None

    def only_transition(self) -> float | None:
        """v_PT of a study with one number of participants."""
        counts = values(self.paper.where(method=ANCHOR_NOISE), "n_participants")
        return self.transition(counts[0]) if len(counts) else None


def column(results: Results, name: str) -> Array:
    """A column; NaN throughout where the table does not have it."""
    try:
        return np.asarray(results[name], dtype=float)
    except InputError:
        return np.full(len(results), np.nan)


def percent(results: Results, name: str) -> Array:
    """A column of shares, in percent."""
    return 100 * column(results, name)


def values(results: Results, name: str) -> list[float]:
    """The different values of a column, in order."""
    found = column(results, name)
    return [float(value) for value in np.unique(found[np.isfinite(found)])]


def mean(series: Array) -> float | None:
    """The mean of what is finite; None where nothing is."""
    good = series[np.isfinite(series)]
    return float(good.mean()) if len(good) else None


def control(results: Results, method: str, name: str) -> float | None:
    """A method's mean, in percent."""
    return mean(percent(results.where(method=method), name))


def accuracy_of(results: Results, method: str) -> float | None:
    """Mean balanced accuracy of a method without noise, in percent."""
    found = control(results, method, "balanced_accuracy")
    return control(results, method, "balanced_accuracy_clean") if found is None else found


def local_only(results: Results) -> float | None:
    """What a participant reaches alone, in percent: the mean over participants."""
    found = accuracy_of(results, LOCAL_ONLY)
    return mean(percent(results, "local_only")) if found is None else found


def pooled_raw(results: Results) -> float | None:
    """What training on everybody's unprotected rows reaches, in percent."""
    found = accuracy_of(results, POOLED_RAW)
    return mean(percent(results, "pooled_raw")) if found is None else found


def converged(results: Results) -> NDArray[np.bool_]:
    """Which runs met the solver's stopping rule."""
    return np.asarray(column(results, "converged") == 1, dtype=bool)


def strongest(results: Results, kind: Kind) -> Array:
    """What the strongest attack finds in every draw: percent for linkage and match, the smallest error for error.

    NaN on the draws on which some attack was not run: see `Results.strongest`.
    """
    found = results.strongest(kind)
    return found if kind == "error" else 100 * found


def luck(
    material: Material, kind: Kind, methods: Iterable[str], *, opening: str = "The best", everywhere: bool = False
) -> str:
    """What the strongest attack on each method would reach by luck alone, for a caption: see `luck_words`.

    In the first deployment, or in all of them.
    """
    results = material.results if everywhere else material.paper
    return luck_words((results.where(method=method) for method in methods), material.facts, kind, opening=opening)


def control_strongest(results: Results, method: str, kind: Kind) -> float | None:
    """What the strongest attack finds where a method adds no noise."""
    return mean(strongest(results.where(method=method), kind))
