"""Figures read from a study's table, and how a page of findings writes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mooring.apps.experiments.comparison.claims import paper_numbers
from mooring.apps.experiments.comparison.curves import Curve, Floats, crossing, fit
from mooring.apps.experiments.comparison.results import Kind, Results

ANCHOR, DATA = "aa-i-gdp-anchor-noise", "c-gdp-data-noise"


@dataclass(frozen=True, eq=False)
class Reader:
    """Figures read from one study's first deployment."""

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
        """The noise at which a curve falls to a level."""
        return crossing(self.curve(method, column), level)


def about_i_gdp(study: Reader) -> str:
    """What I-GDP is worth, and what of it leaks."""
    return (
        "To I-GDP, which uploads no anchor, the paper assigns no leakage. Its accuracy is "
        f"{percent(study.mean('i-gdp'))}, and the one attack that applies to it, by moments alone, picks out "
        f"{percent_over(study.rows.where(method='i-gdp').strongest('match'))} of the rows."
    )


def stated(name: str) -> float:
    """A number of the paper, by its name in paper.toml; shares as shares."""
    value, unit = next((one.value, one.unit) for one in paper_numbers() if one.id == name and one.value is not None)
    return value / 100 if unit == "%" else value


def read_at(name: str) -> float:
    """The noise at which the paper reads one of its numbers, by that number's name in paper.toml."""
    return float(next(one.args["at"] for one in paper_numbers() if one.id == name))


def mean_of(values: Floats) -> float:
    """The mean of what is known; NaN where nothing is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def largest_of(values: Floats) -> float:
    """The largest of what is known; NaN where nothing is."""
    known = values[np.isfinite(values)]
    return float(known.max()) if known.size else float("nan")


def noise_column(method: str) -> str:
    """The noise that a method is drawn over."""
    return "data_noise_scale" if "data" in method else "anchor_noise_scale"


def percent(share: float) -> str:
    """A share in per cent, to a tenth."""
    return "n/a" if not np.isfinite(share) else f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def percent_over(shares: Floats) -> str:
    """The mean of shares in per cent, and from where to where they go if there are several."""
    known = shares[np.isfinite(shares)]
    spread = (
        f" ({percent(known.min())} to {percent(known.max())} over deployments)" if len(set(known.tolist())) > 1 else ""
    )
    return percent(mean_of(shares)) + spread


def percent_at(curve: Curve, x: float | None) -> str:
    """What a curve of shares says at x; where a spline overshoots and leaves 0 to 1, what the draws on either side say."""
    if x is None:
        return "an unknown share"
    share = float(curve.at(min(max(x, curve.low), curve.high)))
    if not 0 <= share <= 1:
        order = np.argsort(curve.x)
        share = float(np.interp(x, curve.x[order], curve.y[order]))
    return percent(share)


def in_powers_of_ten(number: float) -> str:
    """A very small or large number."""
    if not np.isfinite(number):
        return "n/a"
    mantissa, exponent = f"{number:.1e}".split("e")
    return f"{mantissa} · 10^{int(exponent)}"


def below_alone(symbol: str, level: float | None) -> str:
    """From which noise on a joint model is worth less than training alone."""
    if level is None:
        return "stays above training alone over the whole range"
    return f"falls below training alone from about {symbol} = {level:.2g} on, by the fitted curve"


def place_among(value: float, spread: list[float]) -> str:
    """Where a number of the paper stands among ours."""
    if min(spread) <= value <= max(spread):
        return "lies among them"
    return f"lies {'below' if value < min(spread) else 'above'} all of them, for a reason we do not know"
