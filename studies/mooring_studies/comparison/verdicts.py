"""A dozen claims of the paper: what became of each in our deployments, by one rule a claim.

`paper.toml` names the numbers of each claim ([[claim]]). Ours are read from draws in a bin around the noise (or linkage, or
accuracy) that the paper names, deployment by deployment: a mean over them or a straight line through them, no spline.
Beside them, a claim is what must be true in every deployment (`_RULES`; None where it cannot be read). Deployments in
which none of its numbers was measured, as with attacks that only the first one ran, are not asked. A claim

- *holds*: it is true, and every number is near (`claims.is_large`);
- *holds, shifted*: it is true, but a number is not near;
- *does not*: it is not true in some deployment;
- *ill-posed*: in most deployments the claim or a number that the paper names is not there to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.theory import transition_scale
from mooring.typing import Vector
from mooring_studies.comparison.claims import FUNCTIONS, Number, is_large, paper_numbers
from mooring_studies.comparison.claims_study import NOT_MEASURED, NoAnswer, column_of, noise_of, read_paper
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


def judge(true: bool | None, readings: Sequence[Reading]) -> str:
    """The verdict on a claim; None is one that cannot be read."""
    if true is None or any(not one.ours for one in readings):
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
        read = {name: [_read(numbers[name], one) for one in deployments] for name, _ in claim["numbers"]}
        asked = [k for k in range(len(deployments)) if not read or any(own[k] is not None for own in read.values())]
        readings = [
            Reading(words, numbers[name], _in_most([read[name][k] for k in asked])) for name, words in claim["numbers"]
        ]
        true = _every([_RULES[claim["rule"]](deployments[k]) for k in asked])
        found[claim["name"]] = {"verdict": judge(true, readings), "readings": readings}
        if claim["rule"] == "safer":
            linked = [[at_alone(one, method, "linkage") for one in deployments] for method in (ANCHOR, DATA)]
            known = [[value for value in own if np.isfinite(value)] for own in linked]
            found[claim["name"]] |= {"linked": [mean_and_deviation(own) for own in known]}
    return found


def _read(number: Number, one: Reader) -> float | None:
    """Ours in a deployment, in the number's unit: NaN where it is not there to be read, None where it was not measured."""
    rows = Reader(one.at(number.args["p"]).results, one.facts) if "p" in number.args else one
    args = {name: value for name, value in number.args.items() if name != "p"}
    read = _BINNED.get(number.ours, FUNCTIONS[number.ours])
    try:
        return read(rows, **args) * (100.0 if number.unit == "%" else 1.0)
    except NoAnswer as problem:
        return None if str(problem) == NOT_MEASURED else float("nan")


def _in_most(values: Sequence[float | None]) -> tuple[float, ...]:
    """Those that can be read, if they are most; else none."""
    known = tuple(value for value in values if value is not None and np.isfinite(value))
    return known if 2 * len(known) > len(values) else ()


def _every(answers: Sequence[bool | None]) -> bool | None:
    """Whether all answers are yes that can be read; None where most cannot, or there are none."""
    known = [one for one in answers if one is not None]
    return all(known) if 2 * len(known) > len(answers) else None


def _below(low: float, high: float) -> bool | None:
    """Whether a figure is below another; None where one of them cannot be read."""
    return bool(low < high) if np.isfinite([low, high]).all() else None


def _in_bin(study: Reader, *, method: str, column: str, at: float) -> float:
    """A column at a level of noise: a line through the draws near it, the mean of few; NaN outside the range, or of too few.

    Draws are uniform, and the largest stands for the end of the range, up to half a bin: there the bin lies below it.
    """
    rows = study.draws(method)
    noise, values = noise_of(rows, method), column_of(rows, column)
    most = float(np.max(noise, initial=0.0))
    if at > most * (1 + BIN):
        return float("nan")
    low = min(at - BIN * most, most * (1 - 2 * BIN))
    near = (
        (noise >= low) & (noise <= low + 2 * BIN * most * (1 + 1e-9)) & np.isfinite(values)
    )  # also the largest itself
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


def _coupled(one: Reader) -> bool | None:
    """Both methods with private-data noise give the same matrix, and link alike."""
    first, second = one.draws(DATA), one.draws("aa-i-gdp-data-noise")
    linked, distance = second["linkage:known-anchor"], second["discrepancy"]
    if not (np.isfinite(linked).any() and np.isfinite(distance).any()):
        return None
    return bool(np.array_equal(first[SECRET], linked, equal_nan=True) and np.nanmax(distance) < 1e-10)


def _safer(one: Reader) -> bool | None:
    """At the accuracy of training alone, the strongest attack links less under anchor noise than under noise on rows."""
    return _below(*(at_alone(one, method, "linkage") for method in (ANCHOR, DATA)))


def _ahead(one: Reader) -> bool | None:
    """At equal linkage by the paper's attacks, anchor noise leaves more accuracy."""
    data, anchor = (
        [_at_linkage(one, method=method, attack=attack, at=at) for at in (0.124, 0.2, 0.3)]
        for method, attack in ((DATA, "known-secret"), (ANCHOR, "procrustes"))
    )
    return _every([*map(_below, data, anchor)])


def _links_less(one: Reader) -> bool | None:
    """At 75 % accuracy, the paper's attacks link less under anchor noise."""
    attacks = ((ANCHOR, "procrustes"), (DATA, "known-secret"))
    return _below(*(_at_utility(one, method=method, attack=attack, level=0.75) for method, attack in attacks))


def _is_of_digits(one: Reader) -> bool:
    """Whether there are ten classes and h = 100: only digits have coupled private-data noise."""
    return len(one.draws("aa-i-gdp-data-noise")) > 0


def _near_i_gdp(one: Reader) -> bool | None:
    """Accuracy under much anchor noise is nearer to I-GDP's than halfway to guessing."""
    most = float(np.max(one.draws(ANCHOR)["anchor_noise_scale"], initial=0.0))
    end = _plateau(one, method=ANCHOR, column=ACCURACY, low=most / 2, high=most)
    guessing = CHANCE if _is_of_digits(one) else 0.5
    return _below(abs(end - one.mean("i-gdp")), (end - guessing) / 2)


def _by_participants(one: Reader, rises: Callable[[Reader], float]) -> bool | None:
    """Whether a figure rises with every step in the number of participants, for each allocation of identities."""
    series = [
        [rises(Reader(rows.where(n_participants=p))) for p in rows.values("n_participants")]
        for each in one.results.values("identities_each")
        for rows in [one.results.where(identities_each=each)]
    ]
    return _every([_every([_below(low, high) for low, high in pairwise(values)]) for values in series])


def _stops_below_v_pt(one: Reader) -> bool | None:
    stopped = one.draws(ANCHOR).where(converged=1.0)
    sizes = zip(stopped["n_participants"], stopped["anchor_noise_scale"], strict=True)
    h = 100 if _is_of_digits(one) else 400
    return _every([_below(v, transition_scale(int(p), h, 4 * h)) for p, v in sizes])


def _i_gdp_does_not_rise(one: Reader) -> bool | None:
    rises = _by_participants(one, lambda part: part.mean("i-gdp"))
    return None if rises is None else not rises


_RULES: Mapping[str, Callable[[Reader], bool | None]] = {
    "coupled": _coupled,
    "open": lambda one: _below(3 * CHANCE, one.mean("c-gdp", SECRET)),
    "i-gdp is lower": lambda one: _below(one.mean("i-gdp"), one.mean("c-gdp")),
    "op is strongest": lambda one: _below(one.mean(ANCHOR, "linkage:pseudoinverse"), one.mean(ANCHOR, OP)),
    "falls": lambda one: _below(_in_bin(one, method=ANCHOR, column=ACCURACY, at=0.2), one.mean("aa-i-gdp")),
    "above chance": lambda one: _below(CHANCE, one.mean(ANCHOR, OP)),
    "to chance": lambda one: _below(_in_bin(one, method=DATA, column=ACCURACY, at=50), 2 * CHANCE),
    "near i-gdp": _near_i_gdp,
    "stops below": _stops_below_v_pt,
    "ahead": _ahead,
    "links less": _links_less,
    "safer": _safer,
    "crosses": lambda one: True,
    "rises": lambda one: _by_participants(one, partial(_in_bin, method=ANCHOR, column=ACCURACY, at=0.01)),
    "does not rise": _i_gdp_does_not_rise,
    "more stop": lambda one: _every(
        [_stops_below_v_pt(one), _by_participants(one, lambda part: float(part.draws(ANCHOR)["converged"].sum()))]
    ),
}
