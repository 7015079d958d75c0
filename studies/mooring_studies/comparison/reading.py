"""What the comparison with the paper reads: the rows of one deployment of a study, and what the study recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mooring.mechanisms import METHODS
from mooring.typing import Matrix, Vector
from mooring_studies.comparison.curves import N_RESAMPLES, WIDEST_GAP, Curve, crossing, fit
from mooring_studies.comparison.results import KINDS, Kind, Results

ANCHOR, DATA = "aa-i-gdp-anchor-noise", "c-gdp-data-noise"
ACCURACY = "balanced_accuracy"
RESOLVED_GAIN = 3.0
"""Percentage points: about twice the spread of a cell's gain between deployments. A smaller gain does not count as one."""


@dataclass(frozen=True, eq=False)
class Study:
    """The rows of one deployment of a study, and the facts that the study recorded."""

    results: Results
    facts: Mapping[str, Any] = field(default_factory=dict)
    n_resamples: int = N_RESAMPLES
    """Bootstrap resamples behind the band of a curve."""

    def at(self, n_participants: int) -> Study:
        """The rows with so many participants; where there are several allocations, that with most identities each."""
        rows = self.results.where(n_participants=n_participants)
        allocations = rows.values("identities_each")
        return replace(self, results=rows.where(identities_each=allocations[-1]) if allocations else rows)

    def allocated_alike(self, participants: Sequence[int]) -> Study:
        """The rows of the allocation that has all these numbers of participants, so that they differ in nothing else."""
        for each in reversed(self.results.values("identities_each")):
            rows = self.results.where(identities_each=each)
            if set(participants) <= set(rows.values("n_participants")):
                return replace(self, results=rows)
        return self

    @property
    def n_participants(self) -> int | None:
        """Number of participants: from the rows if they agree, else from the settings."""
        counts = self.results.values("n_participants")
        if len(counts) == 1:
            return int(counts[0])
        setting = self.fact("spec.data.n_participants.0")
        return None if setting is None else int(setting)

    @property
    def identities_each(self) -> int | None:
        """Identities per participant: from the rows if they agree, else from the settings' last allocation."""
        counts = self.results.values("identities_each")
        if len(counts) == 1:
            return int(counts[0])
        allocations = self.fact("spec.data.identities_each")
        return int(allocations[-1][1]) if allocations else None

    def fact(self, path: str) -> Any:
        """The fact at a path of names and positions, such as "spec.data.n_participants.0"; None if there is none."""
        value: Any = self.facts
        for step in path.split("."):
            try:
                value = value[int(step)] if isinstance(value, list | tuple) else value[step]
            except (KeyError, IndexError, ValueError, TypeError):
                return None
        return value

    def draws(self, method: str) -> Results:
        """The rows of a method."""
        return self.results.where(method=method)

    def mean(self, method: str, column: str = ACCURACY) -> float:
        """The mean of a column over a method's rows; NaN where there is none."""
        return mean_of(self.draws(method)[column])

    def curve(self, method: str, column: str) -> Curve:
        """A spline of a column (see `column_of`) on the method's noise."""
        rows = self.draws(method)
        return fit(noise_of(rows, method), column_of(rows, column))

    def falls_to_alone(self, method: str) -> float | None:
        """The noise at which the joint model, scored as deployed, is worth no more than training alone.

        None where the curve does not fall that low, or where no draws are near.
        """
        curve = self.curve(method, "balanced_accuracy_clean" if method == DATA else ACCURACY)
        noise = crossing(curve, self.mean("local-only"))
        return None if noise is None or curve.widest_gap(noise, noise) > WIDEST_GAP else noise

    def leakage_at_alone(self, method: str, kind: Kind) -> float:
        """What the strongest attack reaches at the noise at which joining is worth no more than training alone."""
        return share_at(self.curve(method, f"envelope:{kind}"), self.falls_to_alone(method))

    def matched_at_worst(self, method: str) -> float:
        """The share of rows that the strongest attack picks out at the noise where it does worst."""
        return -largest_of(-self.draws(method).strongest("match"))


@dataclass(frozen=True, eq=False)
class Deployments:
    """All deployments of a study: what is read is the first one's, and beside it from where to where it goes."""

    rows: Results

    @property
    def first(self) -> Study:
        """Deployment 0."""
        return Study(self.rows.where(deployment=0))

    def read(self, figure: Callable[[Study], float]) -> list[float]:
        """A figure in every deployment that has it."""
        values = [figure(Study(self.rows.where(deployment=each))) for each in self.rows.values("deployment")]
        return [value for value in values if np.isfinite(value)]

    def share(self, figure: Callable[[Study], float]) -> dict[str, Any]:
        """A share in the first deployment, and from where to where it goes over all that have it."""
        return {"value": figure(self.first), "range": self._range(self.read(figure), percent)}

    def falls_below_alone(self, method: str) -> dict[str, Any] | None:
        """From which noise on a joint model is worth less than training alone, and how that differs; None if never."""
        level = self.first.falls_to_alone(method)
        if level is None:
            return None
        values = self.read(lambda study: study.falls_to_alone(method) or float("nan"))
        return {"value": level, "range": self._range(values, "{:.2g}".format)}

    def _range(self, values: Sequence[float], written: Callable[[float], str]) -> dict[str, Any] | None:
        """The least and the most of a figure, and how many deployments have it; None where they are written alike."""
        if not values or written(min(values)) == written(max(values)):
            return None
        return {"low": min(values), "high": max(values), "read": len(values), "of": len(self.rows.values("deployment"))}


def noise_of(rows: Results, method: str) -> Vector:
    """The noise that a method's curves are drawn over: on the anchor if it has that, else on the private data."""
    return rows["anchor_noise_scale" if METHODS[method].anchor_noise else "data_noise_scale"]


def column_of(rows: Results, column: str) -> Vector:
    """A column, or "envelope:linkage" and the like for the strongest attack on each row (see `Results.strongest`)."""
    kind = next((kind for kind in KINDS if column == f"envelope:{kind}"), None)
    return rows[column] if kind is None else rows.strongest(kind)


def mean_of(values: Matrix) -> float:
    """The mean of the finite values; NaN where there are none."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else float("nan")


def largest_of(values: Matrix) -> float:
    """The largest of the finite values; NaN where there are none."""
    finite = values[np.isfinite(values)]
    return float(finite.max()) if finite.size else float("nan")


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation of the finite shares, in percent; the mean of none is NaN, the deviation of one is 0."""
    percentages = 100 * np.asarray([value for value in values if np.isfinite(value)], dtype=float)
    return mean_of(percentages), float(percentages.std(ddof=1)) if len(percentages) > 1 else 0.0


def share_at(curve: Curve, x: float | None) -> float:
    """The value of a curve of shares at x; NaN where there is no x.

    A spline bends for draws far away and overshoots beside a cliff. Where the draws on either side have the same value, and
    where the spline leaves 0 to 1, the value is interpolated between these draws.
    """
    if x is None or not len(curve):
        return float("nan")
    order = np.argsort(curve.x)
    noise, shares = curve.x[order], curve.y[order]
    right = int(np.clip(np.searchsorted(noise, x), 1, len(noise) - 1)) if len(noise) > 1 else 0
    share = float(curve.at(min(max(x, curve.low), curve.high)))
    if shares[right - 1] == shares[right] or not 0 <= share <= 1:
        share = float(np.interp(x, noise, shares))
    return share


def percent(share: float) -> str:
    """A share in percent, to a tenth."""
    return "n/a" if not np.isfinite(share) else f"{100 * share:.1f}\N{NO-BREAK SPACE}%"
