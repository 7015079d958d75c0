"""The paper's claims: whether each holds in our deployments, by one rule per claim.

Ours are read from the draws in a bin around the noise (or linkage, or accuracy) that the paper names, deployment by
deployment: a mean over them or a straight line through them, no spline. A rule says whether the claim is true in one
deployment, or None where that cannot be read. Deployments in which none of the claim's numbers was measured, as with
attacks that only the first one ran, are not asked. A claim

- *holds*: it is true in every deployment, and every number is near the paper's (`numbers.is_large`);
- *holds, shifted*: it is true, but a number is not near;
- *does not*: it is not true in some deployment;
- *ill-posed*: in most deployments the claim or a number that the paper names cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt

from mooring.theory import transition_scale
from mooring.typing import Vector
from mooring_studies.comparison.numbers import is_large, rows_of
from mooring_studies.comparison.paper import Claim, Number, paper_claims, paper_number
from mooring_studies.comparison.quantities import FUNCTIONS, NOT_MEASURED, NoAnswer, middle_of_stopping
from mooring_studies.comparison.reading import ACCURACY, ANCHOR, DATA, Study, column_of, mean_and_deviation, noise_of
from mooring_studies.comparison.results import Results

HOLDS, SHIFTED, FAILS, ILL_POSED = "holds", "holds, shifted", "does not", "ill-posed"
FEWEST_DRAWS, FEWEST_FOR_LINE = 3, 5
BIN = 0.05  # half its width, as a share of the range of noise; and, below, in linkage or accuracy
SHARE_BIN = 0.02
CHANCE = 0.1
COUPLED, OP, SECRET = "aa-i-gdp-data-noise", "linkage:procrustes", "linkage:known-secret"


@dataclass(frozen=True)
class Reading:
    """One number of the paper, and ours in each deployment that has it, in the same unit."""

    words: str
    number: Number
    ours: tuple[float, ...]

    @property
    def paper(self) -> float:
        """The paper's number."""
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


@dataclass(frozen=True)
class Verdict:
    """What became of a claim."""

    claim: Claim
    verdict: str
    readings: tuple[Reading, ...]
    linked: tuple[tuple[float, float], ...] = ()
    """Mean and deviation of linkage under anchor and private-data noise at the accuracy of training alone, in percent."""


def judge_claims(studies: Mapping[str, Results]) -> list[list[Verdict]]:
    """The verdicts on every claim, one per study that it is about; claims about a study that was not run are left out."""
    claims = [list(lines) for _, lines in groupby(paper_claims(), key=lambda claim: claim.says)]
    return [
        [_judge_claim(claim, studies[claim.study]) for claim in lines]
        for lines in claims
        if all(claim.study in studies for claim in lines)
    ]


def _judge_claim(claim: Claim, rows: Results) -> Verdict:
    deployments = [Study(rows.where(deployment=each)) for each in rows.values("deployment")]
    read = {id: [_read(paper_number(id), study) for study in deployments] for id in claim.numbers}
    asked = [k for k in range(len(deployments)) if not read or any(values[k] is not None for values in read.values())]
    readings = tuple(
        Reading(words, paper_number(id), in_most([read[id][k] for k in asked])) for id, words in claim.numbers.items()
    )
    linked: tuple[tuple[float, float], ...] = ()
    if not readings:
        linked = tuple(
            mean_and_deviation([study.leakage_at_alone(method, "linkage") for study in deployments])
            for method in (ANCHOR, DATA)
        )
    is_true = all_true([RULES[claim.rule](deployments[k]) for k in asked])
    return Verdict(claim, judge(is_true, readings), readings, linked)


def judge(is_true: bool | None, readings: Sequence[Reading]) -> str:
    """The verdict on a claim; None is one that cannot be read."""
    if is_true is None or not all(reading.ours for reading in readings):
        return ILL_POSED
    if not is_true:
        return FAILS
    return HOLDS if all(reading.near for reading in readings) else SHIFTED


def _read(number: Number, study: Study) -> float | None:
    """Ours in a deployment, in the number's unit: NaN where it cannot be read, None where it was not measured."""
    args = {name: value for name, value in number.args.items() if name != "p"}
    read = _BINNED.get(number.ours, FUNCTIONS[number.ours])
    try:
        return read(rows_of(number, study), **args) * (100.0 if number.unit == "%" else 1.0)
    except NoAnswer as problem:
        return None if str(problem) == NOT_MEASURED else float("nan")


def in_most(values: Sequence[float | None]) -> tuple[float, ...]:
    """The values that can be read, if they are most; else none."""
    known = tuple(value for value in values if value is not None and np.isfinite(value))
    return known if 2 * len(known) > len(values) else ()


def all_true(answers: Sequence[bool | None]) -> bool | None:
    """Whether all answers that can be read are yes; None where most cannot, or there are none."""
    known = [answer for answer in answers if answer is not None]
    return all(known) if 2 * len(known) > len(answers) else None


def _below(low: float, high: float) -> bool | None:
    """Whether a figure is below another; None where one of them cannot be read."""
    return bool(low < high) if np.isfinite([low, high]).all() else None


# ---------------------------------------------------------------------------------------------------- read from a bin


def read_bin(study: Study, *, method: str, column: str, at: float) -> float:
    """A column at a level of noise: a line through the draws near it, the mean of few; NaN outside the range, or of too few.

    Draws are uniform, and the largest stands for the end of the range, up to half a bin: there the bin lies below it.
    """
    rows = study.draws(method)
    noise, values = noise_of(rows, method), column_of(rows, column)
    most = float(np.max(noise, initial=0.0))
    if at > most * (1 + BIN):
        return float("nan")
    low = min(at - BIN * most, most * (1 - 2 * BIN))
    high = low + 2 * BIN * most * (1 + 1e-9)  # the largest itself is in the last bin
    near = (noise >= low) & (noise <= high) & np.isfinite(values)
    if near.sum() < FEWEST_FOR_LINE:
        return _mean(values, near)
    return float(np.polyval(np.polyfit(noise[near] - at, values[near], 1), 0.0))


def _mean(values: Vector, chosen: npt.NDArray[np.bool_]) -> float:
    known = values[chosen & np.isfinite(values)]
    return float(known.mean()) if len(known) >= FEWEST_DRAWS else float("nan")


def _plateau(study: Study, *, method: str, column: str, low: float, high: float, end: str = "") -> float:
    """The mean over all draws between two levels of noise."""
    rows = study.draws(method)
    noise = noise_of(rows, method)
    return _mean(rows[column], (noise >= low) & (noise <= high))


def _at_linkage(study: Study, *, method: str, attack: str, at: float) -> float:
    rows = study.draws(method)
    return _mean(rows[ACCURACY], np.abs(rows[f"linkage:{attack}"] - at) <= SHARE_BIN)


def _at_utility(study: Study, *, method: str, attack: str, level: float) -> float:
    rows = study.draws(method)
    return _mean(rows[f"linkage:{attack}"], np.abs(rows[ACCURACY] - level) <= SHARE_BIN)


def _crossing(study: Study, *, method: str, column: str, level: float) -> float:
    """Where the first bin of draws begins whose mean is at a level or below."""
    rows = study.draws(method)
    noise = noise_of(rows, method)
    edges = np.linspace(0, np.max(noise, initial=0.0), round(1 / (2 * BIN)) + 1)
    means = [_mean(rows[column], (noise >= low) & (noise < high)) for low, high in pairwise(edges)]
    return next((float(low) for low, mean in zip(edges, means, strict=False) if mean <= level), float("nan"))


_BINNED: Mapping[str, Callable[..., float]] = {
    "fitted": read_bin,
    "mean_fitted": _plateau,
    "extreme_fitted": _plateau,
    "on_linkage": _at_linkage,
    "linkage_at_utility": _at_utility,
    "crossing_of": _crossing,
    "largest_converged": middle_of_stopping,
}


# --------------------------------------------------------------------------------------------------------------- rules


def _coupled(study: Study) -> bool | None:
    """Both methods with private-data noise give the same matrix, and link alike."""
    linked, distance = study.draws(COUPLED)["linkage:known-anchor"], study.draws(COUPLED)["discrepancy"]
    if not (np.isfinite(linked).any() and np.isfinite(distance).any()):
        return None
    return bool(np.array_equal(study.draws(DATA)[SECRET], linked, equal_nan=True) and np.nanmax(distance) < 1e-10)


def _safer(study: Study) -> bool | None:
    """At the accuracy of training alone, the strongest attack links less under anchor noise than under noise on rows."""
    return _below(*(study.leakage_at_alone(method, "linkage") for method in (ANCHOR, DATA)))


def _ahead(study: Study) -> bool | None:
    """At equal linkage by the paper's attacks, anchor noise leaves more accuracy."""
    data, anchor = (
        [_at_linkage(study, method=method, attack=attack, at=at) for at in (0.124, 0.2, 0.3)]
        for method, attack in ((DATA, "known-secret"), (ANCHOR, "procrustes"))
    )
    return all_true([*map(_below, data, anchor)])


def _links_less(study: Study) -> bool | None:
    """At 75 % accuracy, the paper's attacks link less under anchor noise."""
    attacks = ((ANCHOR, "procrustes"), (DATA, "known-secret"))
    return _below(*(_at_utility(study, method=method, attack=attack, level=0.75) for method, attack in attacks))


def _is_of_digits(study: Study) -> bool:
    """Whether there are ten classes and h = 100: only digits have coupled private-data noise."""
    return len(study.draws(COUPLED)) > 0


def _near_i_gdp(study: Study) -> bool | None:
    """Accuracy under much anchor noise is nearer to I-GDP's than halfway to guessing."""
    most = float(np.max(study.draws(ANCHOR)["anchor_noise_scale"], initial=0.0))
    plateau = _plateau(study, method=ANCHOR, column=ACCURACY, low=most / 2, high=most)
    guessing = CHANCE if _is_of_digits(study) else 0.5
    return _below(abs(plateau - study.mean("i-gdp")), (plateau - guessing) / 2)


def _rises_with_participants(study: Study, figure: Callable[[Study], float]) -> bool | None:
    """Whether a figure rises with every step in the number of participants, for each allocation of identities."""
    series = [
        [figure(Study(rows.where(n_participants=p))) for p in rows.values("n_participants")]
        for each in study.results.values("identities_each")
        for rows in [study.results.where(identities_each=each)]
    ]
    return all_true([all_true([_below(low, high) for low, high in pairwise(values)]) for values in series])


def _stops_below_v_pt(study: Study) -> bool | None:
    stopped = study.draws(ANCHOR).where(converged=1.0)
    sizes = zip(stopped["n_participants"], stopped["anchor_noise_scale"], strict=True)
    h = 100 if _is_of_digits(study) else 400
    return all_true([_below(v, transition_scale(int(p), h, 4 * h)) for p, v in sizes])


def _i_gdp_does_not_rise(study: Study) -> bool | None:
    rises = _rises_with_participants(study, lambda part: part.mean("i-gdp"))
    return None if rises is None else not rises


def _more_stop(study: Study) -> bool | None:
    more = _rises_with_participants(study, lambda part: float(part.draws(ANCHOR)["converged"].sum()))
    return all_true([_stops_below_v_pt(study), more])


RULES: Mapping[str, Callable[[Study], bool | None]] = {
    "coupled": _coupled,
    "open": lambda study: _below(3 * CHANCE, study.mean("c-gdp", SECRET)),
    "i-gdp is lower": lambda study: _below(study.mean("i-gdp"), study.mean("c-gdp")),
    "op is strongest": lambda study: _below(study.mean(ANCHOR, "linkage:pseudoinverse"), study.mean(ANCHOR, OP)),
    "falls": lambda study: _below(read_bin(study, method=ANCHOR, column=ACCURACY, at=0.2), study.mean("aa-i-gdp")),
    "above chance": lambda study: _below(CHANCE, study.mean(ANCHOR, OP)),
    "to chance": lambda study: _below(read_bin(study, method=DATA, column=ACCURACY, at=50), 2 * CHANCE),
    "near i-gdp": _near_i_gdp,
    "stops below": _stops_below_v_pt,
    "ahead": _ahead,
    "links less": _links_less,
    "safer": _safer,
    "crosses": lambda study: True,
    "rises": lambda study: _rises_with_participants(study, partial(read_bin, method=ANCHOR, column=ACCURACY, at=0.01)),
    "does not rise": _i_gdp_does_not_rise,
    "more stop": _more_stop,
}
"""What must be true in every deployment, by the names of rules in `paper.csv`."""
