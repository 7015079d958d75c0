"""Figures read from a study's table, and how a page of findings writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mooring.typing import Matrix
from mooring_studies.comparison.claims import paper_numbers
from mooring_studies.comparison.claims_study import Study, column_of
from mooring_studies.comparison.curves import WIDEST_GAP, Curve, crossing
from mooring_studies.comparison.results import Kind, Results

ANCHOR, DATA = "aa-i-gdp-anchor-noise", "c-gdp-data-noise"
_UNEVEN_NOISE = (0.0, 0.04, 0.08, 0.16, 0.25)
RESOLVED_GAIN = 3.0
"""Percentage points: about twice the spread of a cell's gain between deployments. What is less is not told from nothing."""


class Reader(Study):
    """Figures read from one deployment of a study."""

    def mean(self, method: str, column: str = "balanced_accuracy") -> float:
        """The mean of a column over a method's rows; NaN where there is none."""
        return mean_of(self.draws(method)[column])

    def falls_to(self, method: str, column: str, level: float) -> float | None:
        """The noise at which a curve falls to a level; None where it does not, or where no draws are near.

        Parameters
        ----------
        method, column : str
            The curve's.
        level : float
            In percent.
        """
        curve = self.curve(method, column)
        found = crossing(curve, level)
        return None if found is None or curve.widest_gap(found, found) > WIDEST_GAP else found

    def falls_to_alone(self, method: str) -> float | None:
        """The noise at which the joint model, scored as deployed, is worth no more than training alone."""
        column = "balanced_accuracy_clean" if method == DATA else "balanced_accuracy"
        return self.falls_to(method, column, self.mean("local-only"))

    def matched_at_worst(self, method: str) -> float:
        """The share of rows that the strongest attack picks out at the noise where it does worst."""
        return -largest_of(-self.draws(method).strongest("match"))


@dataclass(frozen=True, eq=False)
class Deployments:
    """All deployments of a study: what is read is the first one's, and beside it from where to where it goes."""

    rows: Results

    @property
    def first(self) -> Reader:
        """Deployment 0."""
        return Reader(self.rows.where(deployment=0))

    def read(self, one: Callable[[Reader], float]) -> list[float]:
        """A figure in every deployment that has it."""
        found = [one(Reader(self.rows.where(deployment=each))) for each in self.rows.values("deployment")]
        return [value for value in found if np.isfinite(value)]

    def share(self, one: Callable[[Reader], float]) -> dict[str, Any]:
        """A share in the first deployment, and from where to where it goes over all that have it."""
        return {"value": one(self.first), "range": self._range(self.read(one), percent)}

    def falls_below_alone(self, method: str) -> dict[str, Any] | None:
        """From which noise on a joint model is worth less than training alone, and how that differs; None if never."""
        level = self.first.falls_to_alone(method)
        if level is None:
            return None
        found = self.read(lambda one: one.falls_to_alone(method) or float("nan"))
        return {"value": level, "range": self._range(found, "{:.2g}".format)}

    def _range(self, found: Sequence[float], written: Callable[[float], str]) -> dict[str, Any] | None:
        """The least and the most of a figure, and how many deployments have it; None where they are written alike."""
        if not found or written(min(found)) == written(max(found)):
            return None
        return {"low": min(found), "high": max(found), "read": len(found), "of": len(self.rows.values("deployment"))}


def stated(name: str) -> float:
    """A number of the paper, by its name in paper.toml; shares as shares."""
    value, unit = next((one.value, one.unit) for one in paper_numbers() if one.id == name and one.value is not None)
    return value / 100 if unit == "%" else value


def read_at(name: str) -> float:
    """The noise at which the paper reads one of its numbers, by that number's name in paper.toml."""
    return float(next(one.args["at"] for one in paper_numbers() if one.id == name))


def mean_of(values: Matrix) -> float:
    """The mean of what is known; NaN where nothing is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def largest_of(values: Matrix) -> float:
    """The largest of what is known; NaN where nothing is."""
    known = values[np.isfinite(values)]
    return float(known.max()) if known.size else float("nan")


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation of shares, in percent; the mean is NaN of none, the deviation 0 of one."""
    known = 100 * np.asarray(values, dtype=float)
    return mean_of(known), float(known.std(ddof=1)) if len(known) > 1 else 0.0


def percent(share: float) -> str:
    """A share in per cent, to a tenth."""
    return "n/a" if not np.isfinite(share) else f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def share_at(curve: Curve, x: float | None) -> float:
    """What a curve of shares says at x; NaN where there is no x.

    A spline bends for draws far away and overshoots beside a cliff. Where the draws on either side are of one mind, and
    where the spline leaves 0 to 1, it is these draws that say.
    """
    if x is None or not len(curve):
        return float("nan")
    order = np.argsort(curve.x)
    noise, found = curve.x[order], curve.y[order]
    right = int(np.clip(np.searchsorted(noise, x), 1, len(noise) - 1)) if len(noise) > 1 else 0
    share = float(curve.at(min(max(x, curve.low), curve.high)))
    if found[right - 1] == found[right] or not 0 <= share <= 1:
        share = float(np.interp(x, noise, found))
    return share


def at_alone(study: Reader, method: str, kind: Kind) -> float:
    """What the strongest attack reaches at the noise at which joining is worth no more than training alone.

    Parameters
    ----------
    study : Reader
    method : str
    kind : Kind
        Linkage, or direct matching.
    """
    return share_at(study.curve(method, f"envelope:{kind}"), study.falls_to_alone(method))


def describe_uneven(studies: Mapping[str, Results]) -> list[dict[str, Any]]:
    """Uneven participants beside even ones, in the deployments of both: mean and deviation of the two, by noise.

    Of the draws on which every attack was run, and of I-GDP.
    """
    if not {"celeba", "uneven"} <= set(studies):
        return []

    def both(column: str, read: Callable[[Reader, str], float]) -> list[tuple[float, float]]:
        deployments = studies["uneven"].values("deployment")
        found = [
            [read(Reader(studies[name].where(deployment=one)), column) for one in deployments]
            for name in ("celeba", "uneven")
        ]
        return [mean_and_deviation([value for value in own if np.isfinite(value)]) for own in found]

    def line(noise: str, read: Callable[[Reader, str], float]) -> dict[str, Any]:
        names = {"op": "linkage:procrustes", "linked": "envelope:linkage", "matched": "envelope:match"}
        return {"noise": noise, **{n: both(c, read) for n, c in {**names, "accuracy": "balanced_accuracy"}.items()}}

    def between(low: float, high: float) -> Callable[[Reader, str], float]:
        def read(one: Reader, column: str) -> float:
            rows = one.draws(ANCHOR)
            noise = rows["anchor_noise_scale"]
            chosen = (noise >= low) & (noise < high) & np.isfinite(rows["linkage:moments"])
            return mean_of(column_of(rows, column)[chosen])

        return read

    lines = [line(f"{low:g} to {high:g}", between(low, high)) for low, high in pairwise(_UNEVEN_NOISE)]
    return [*lines, line("no anchor (I-GDP)", lambda one, column: mean_of(column_of(one.draws("i-gdp"), column)))]
