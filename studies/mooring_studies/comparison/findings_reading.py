"""Figures read from a study's table, and how a page of findings writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mooring.typing import Matrix
from mooring_studies.comparison.claims import paper_numbers
from mooring_studies.comparison.curves import WIDEST_GAP, Curve, crossing, fit
from mooring_studies.comparison.results import Kind, Results

ANCHOR, DATA = "aa-i-gdp-anchor-noise", "c-gdp-data-noise"


@dataclass(frozen=True, eq=False)
class Reader:
    """Figures read from one deployment of a study."""

    rows: Results

    def mean(self, method: str, column: str = "balanced_accuracy") -> float:
        """The mean of a column over a method's rows; NaN where there is none."""
        return mean_of(self.rows.where(method=method)[column])

    def curve(self, method: str, column: str) -> Curve:
        """A spline on the method's noise."""
        rows = self.rows.where(method=method)
        return fit(rows[noise_column(method)], rows[column])

    def strongest(self, method: str, kind: Kind) -> Curve:
        """A spline of the strongest attack on the noise, over the draws on which every attack was run."""
        rows = self.rows.where(method=method)
        return fit(rows[noise_column(method)], rows.strongest(kind))

    def falls_to(self, method: str, column: str, level: float) -> float | None:
        """The noise at which a curve falls to a level; None where it does not, or where no draws are near."""
        curve = self.curve(method, column)
        found = crossing(curve, level)
        return None if found is None or curve.widest_gap(found, found) > WIDEST_GAP else found

    def falls_to_alone(self, method: str) -> float | None:
        """The noise at which the joint model, scored as deployed, is worth no more than training alone."""
        column = "balanced_accuracy_clean" if method == DATA else "balanced_accuracy"
        return self.falls_to(method, column, self.mean("local-only"))

    def matched_at_worst(self, method: str) -> float:
        """The share of rows that the strongest attack picks out at the noise where it does worst."""
        return -largest_of(-self.rows.where(method=method).strongest("match"))


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

    def how_many(self, found: list[float]) -> str:
        """Over how many deployments a figure was read, and of how many where not all have it."""
        n_all = len(self.rows.values("deployment"))
        return f"{len(found)} deployments" if len(found) == n_all else f"{len(found)} of {n_all} deployments"

    def percent(self, one: Callable[[Reader], float]) -> str:
        """A share in the first deployment, and from where to where it goes over all that have it."""
        found, told = self.read(one), percent(one(self.first))
        if len({percent(value) for value in found}) < 2:
            return told
        return f"{told} ({percent(min(found))} to {percent(max(found))} over {self.how_many(found)})"


def about_i_gdp(study: Deployments) -> str:
    """What I-GDP is worth, and what of it leaks."""
    return (
        "To I-GDP, which uploads no anchor, the paper assigns no leakage. Its accuracy is "
        f"{study.percent(lambda one: one.mean('i-gdp'))}, and the strongest attack on it that we ran, by moments, picks "
        f"out {study.percent(lambda one: one.matched_at_worst('i-gdp'))} of the rows."
    )


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


def noise_column(method: str) -> str:
    """The noise that a method is drawn over."""
    return "data_noise_scale" if "data" in method else "anchor_noise_scale"


def percent(share: float) -> str:
    """A share in per cent, to a tenth."""
    return "n/a" if not np.isfinite(share) else f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def percent_over(shares: Matrix) -> str:
    """The mean of shares in per cent, and from where to where they go if there are several."""
    known = shares[np.isfinite(shares)]
    spread = (
        f" ({percent(known.min())} to {percent(known.max())} over deployments)" if len(set(known.tolist())) > 1 else ""
    )
    return percent(mean_of(shares)) + spread


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


def percent_at(curve: Curve, x: float | None) -> str:
    """The same in per cent."""
    return "an unknown share" if x is None else percent(share_at(curve, x))


def in_powers_of_ten(number: float) -> str:
    """A very small or large number."""
    if not np.isfinite(number):
        return "n/a"
    mantissa, exponent = f"{number:.1e}".split("e")
    return f"{mantissa} · 10^{int(exponent)}"


def at_alone(study: Reader, method: str, kind: Kind) -> float:
    """What the strongest attack reaches at the noise at which joining is worth no more than training alone."""
    return share_at(study.strongest(method, kind), study.falls_to_alone(method))


def below_alone(symbol: str, study: Deployments, method: str) -> str:
    """From which noise on a joint model is worth less than training alone, and how that differs between deployments."""
    level = study.first.falls_to_alone(method)
    if level is None:
        return "stays above training alone over the whole range"
    found = study.read(lambda one: one.falls_to_alone(method) or float("nan"))
    ends = [f"{value:.2g}" for value in (min(found), max(found))]
    spread = f" ({ends[0]} to {ends[1]} over {study.how_many(found)})" if len(set(ends)) > 1 else ""
    return f"falls below training alone from about {symbol} = {level:.2g}{spread} on, by the fitted curve"


def place_among(value: float, spread: list[float]) -> str:
    """Where a number of the paper stands among ours."""
    if min(spread) <= value <= max(spread):
        return "lies among them"
    return f"lies {'below' if value < min(spread) else 'above'} all of them, for a reason we do not know"
