"""A dozen claims of the paper: what became of each in our deployments, by one rule a claim.

`paper.toml` names the numbers of each claim ([[claim]]). Ours are read from draws in a bin around the noise (or linkage, or
accuracy) that the paper names, deployment by deployment: a mean over them or a straight line through them, no spline.
Beside them, a claim is what must be true in every deployment (`_RULES`). It

- *holds*: it is true, and every number is near (`claims.is_large`);
- *holds, shifted*: it is true, but a number is not near;
- *does not*: it is not true in some deployment;
- *ill-posed*: the number that the paper names is not there to be read in most deployments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.theory import transition_scale
from mooring.typing import Vector
from mooring_studies.comparison.claims import FUNCTIONS, Number, is_large, paper_numbers
from mooring_studies.comparison.claims_study import NoAnswer, column_of, noise_of, read_paper
from mooring_studies.comparison.findings_reading import ANCHOR, DATA, Reader, at_alone, mean_and_deviation
from mooring_studies.comparison.results import Results

HOLDS, SHIFTED, FAILS, ILL_POSED = "holds", "holds, shifted", "does not", "ill-posed"
FEWEST_DRAWS, FEWEST_FOR_LINE = 3, 5
BIN = 0.05  # half its width, as a share of the range of noise; and, below, in linkage or accuracy
SHARE_BIN = 0.02
CHANCE = 0.1
ACCURACY, OP, SECRET = "balanced_accuracy", "linkage:procrustes", "linkage:known-secret"


@dataclass(frozen=True)
class Reading:
    """One number of the paper, and ours in each deployment that has it, in the same unit."""

    words: str
    number: Number
    ours: tuple[float, ...]

    @property
    def paper(self) -> float:
        """The paper's."""
        return self.number.value or 0.0

    @property
    def shown(self) -> tuple[float, float]:
        """Mean and standard deviation of ours."""
        return float(np.mean(self.ours)), float(np.std(self.ours, ddof=1)) if len(self.ours) > 1 else 0.0

    @property
    def outside(self) -> bool:
        """Whether the paper's number lies outside of all of ours, where there are several."""
        return len(self.ours) > 1 and not min(self.ours) <= self.paper <= max(self.ours)

    @property
    def near(self) -> bool:
        """Whether the mean of ours is near the paper's number, by the rule of its unit."""
        return not is_large(self.number, self.shown[0])


def judge(true: bool, readings: Sequence[Reading]) -> str:
    """The verdict on a claim."""
    if any(not one.ours for one in readings):
        return ILL_POSED
    return FAILS if not true else HOLDS if all(one.near for one in readings) else SHIFTED


def describe_verdicts(studies: Mapping[str, Results]) -> dict[str, dict[str, Any]]:
    """Each claim's verdict and readings, by name; of the studies that were run."""
    numbers = {one.id: one for one in paper_numbers()}
    found: dict[str, dict[str, Any]] = {}
    for claim in read_paper()["claim"]:
        if claim["study"] not in studies:
            continue
        rows = studies[claim["study"]]
        deployments = [Reader(rows.where(deployment=one)) for one in rows.values("deployment")]
        readings = [
            Reading(words, numbers[name], _read(numbers[name], deployments)) for name, words in claim["numbers"]
        ]
        if claim["rule"] == "crosses" and any(2 * len(one.ours) <= len(deployments) for one in readings):
            readings = [replace(one, ours=()) for one in readings]
        true = all(_RULES[claim["rule"]](one) for one in deployments)
        found[claim["name"]] = {"verdict": judge(true, readings), "readings": readings}
        if claim["rule"] == "safer":
            linked = [[at_alone(one, method, "linkage") for one in deployments] for method in (ANCHOR, DATA)]
            known = [[value for value in own if np.isfinite(value)] for own in linked]
            found[claim["name"]] |= {"linked": [mean_and_deviation(own) for own in known]}
    return found


def _read(number: Number, deployments: Sequence[Reader]) -> tuple[float, ...]:
    """Ours in every deployment that has it, in the number's unit."""
    found = []
    for one in deployments:
        rows = Reader(one.at(number.args["p"]).results, one.facts) if "p" in number.args else one
        args = {name: value for name, value in number.args.items() if name != "p"}
        with suppress(NoAnswer):
            read = _BINNED.get(number.ours, FUNCTIONS[number.ours])
            found.append(read(rows, **args) * (100.0 if number.unit == "%" else 1.0))
    return tuple(value for value in found if np.isfinite(value))


def _in_bin(study: Reader, *, method: str, column: str, at: float) -> float:
    """A column at a level of noise: a line through the draws near it, the mean of few, NaN where there are too few."""
    rows = study.draws(method)
    noise, values = noise_of(rows, method), column_of(rows, column)
    most = float(np.max(noise, initial=0.0))
    at = min(at, most * (1 - BIN))
    near = (np.abs(noise - at) <= BIN * most) & np.isfinite(values)
    if near.sum() < FEWEST_FOR_LINE:
        return _mean(values, near)
    return float(np.polyval(np.polyfit(noise[near] - at, values[near], 1), 0.0))


def _mean(values: Vector, chosen: npt.NDArray[np.bool_]) -> float:
    known = values[chosen & np.isfinite(values)]
    return float(known.mean()) if len(known) >= FEWEST_DRAWS else float("nan")


def _plateau(study: Reader, *, method: str, column: str, low: float, high: float, end: str = "") -> float:
    """The mean over all draws between two levels of noise."""
    rows = study.draws(method)
    noise = noise_of(rows, method)
    return _mean(rows[column], (noise >= low) & (noise <= high))


def _at_linkage(study: Reader, *, method: str, attack: str, at: float) -> float:
    rows = study.draws(method)
    return _mean(rows[ACCURACY], np.abs(rows[f"linkage:{attack}"] - at) <= SHARE_BIN)


def _at_utility(study: Reader, *, method: str, attack: str, level: float) -> float:
    rows = study.draws(method)
    return _mean(rows[f"linkage:{attack}"], np.abs(rows[ACCURACY] - level) <= SHARE_BIN)


def _crossing(study: Reader, *, method: str, column: str, level: float) -> float:
    """Where the first bin of draws begins whose mean is at a level or below."""
    rows = study.draws(method)
    noise = noise_of(rows, method)
    edges = np.linspace(0, np.max(noise, initial=0.0), round(1 / (2 * BIN)) + 1)
    means = [_mean(rows[column], (noise >= low) & (noise < high)) for low, high in pairwise(edges)]
    return next((float(low) for low, mean in zip(edges, means, strict=False) if mean <= level), float("nan"))


def _transition(study: Reader, *, method: str) -> float:
    return FUNCTIONS["middle_of_stopping"](study, method=method)


_BINNED: Mapping[str, Callable[..., float]] = {
    "fitted": _in_bin,
    "mean_fitted": _plateau,
    "extreme_fitted": _plateau,
    "on_linkage": _at_linkage,
    "linkage_at_utility": _at_utility,
    "crossing_of": _crossing,
    "largest_converged": _transition,
}


def _coupled(one: Reader) -> bool:
    """Both methods with private-data noise give the same matrix, and link alike."""
    first, second = one.draws(DATA), one.draws("aa-i-gdp-data-noise")
    same = np.array_equal(first[SECRET], second["linkage:known-anchor"], equal_nan=True)
    return same and bool(np.max(second["discrepancy"], initial=0.0) < 1e-10)


def _safer(one: Reader) -> bool:
    """At the accuracy of training alone, the strongest attack links less under anchor noise than under noise on rows."""
    anchor, data = (at_alone(one, method, "linkage") for method in (ANCHOR, DATA))
    return not anchor >= data


def _ahead(one: Reader) -> bool:
    """At equal linkage by the paper's attacks, anchor noise leaves more accuracy."""
    levels = (0.124, 0.2, 0.3)
    anchor, data = (
        np.array([_at_linkage(one, method=method, attack=attack, at=at) for at in levels])
        for method, attack in ((ANCHOR, "procrustes"), (DATA, "known-secret"))
    )
    return not (anchor <= data).any()


def _is_of_digits(one: Reader) -> bool:
    """Whether there are ten classes and h = 100: only digits have coupled private-data noise."""
    return len(one.draws("aa-i-gdp-data-noise")) > 0


def _near_i_gdp(one: Reader) -> bool:
    """Accuracy under much anchor noise is nearer to I-GDP's than halfway to guessing."""
    most = float(np.max(one.draws(ANCHOR)["anchor_noise_scale"], initial=0.0))
    end = _plateau(one, method=ANCHOR, column=ACCURACY, low=most / 2, high=most)
    guessing = CHANCE if _is_of_digits(one) else 0.5
    return not abs(end - one.mean("i-gdp")) > (end - guessing) / 2


def _by_participants(one: Reader, rises: Callable[[Reader], float]) -> list[bool]:
    """Of each allocation of identities: whether a figure rises with every step in the number of participants."""
    series = [
        [rises(Reader(rows.where(n_participants=p))) for p in rows.values("n_participants")]
        for each in one.results.values("identities_each")
        for rows in [one.results.where(identities_each=each)]
    ]
    return [all(low < high for low, high in pairwise(values)) for values in series]


def _stops_below_v_pt(one: Reader) -> bool:
    stopped = one.draws(ANCHOR).where(converged=1.0)
    sizes = zip(stopped["n_participants"], stopped["anchor_noise_scale"], strict=True)
    h = 100 if _is_of_digits(one) else 400
    return all(v < transition_scale(int(p), h, 4 * h) for p, v in sizes)


_RULES: Mapping[str, Callable[[Reader], bool]] = {
    "coupled": _coupled,
    "open": lambda one: one.mean("c-gdp", SECRET) > 3 * CHANCE,
    "i-gdp is lower": lambda one: one.mean("c-gdp") > one.mean("i-gdp"),
    "op is strongest": lambda one: not one.mean(ANCHOR, "linkage:pseudoinverse") >= one.mean(ANCHOR, OP),
    "falls": lambda one: _in_bin(one, method=ANCHOR, column=ACCURACY, at=0.2) < one.mean("aa-i-gdp"),
    "above chance": lambda one: one.mean(ANCHOR, OP) > CHANCE,
    "to chance": lambda one: _in_bin(one, method=DATA, column=ACCURACY, at=50) < 2 * CHANCE,
    "near i-gdp": _near_i_gdp,
    "stops below": _stops_below_v_pt,
    "ahead": _ahead,
    "safer": _safer,
    "crosses": lambda one: True,
    "rises": lambda one: all(_by_participants(one, partial(_in_bin, method=ANCHOR, column=ACCURACY, at=0.01))),
    "does not rise": lambda one: not all(_by_participants(one, lambda part: part.mean("i-gdp"))),
    "more stop": lambda one: (
        _stops_below_v_pt(one) and all(_by_participants(one, lambda part: float(part.draws(ANCHOR)["converged"].sum())))
    ),
}
