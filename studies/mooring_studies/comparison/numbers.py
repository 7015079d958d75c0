"""The paper's numbers beside ours.

A difference is called large by one rule per unit. A setting: any difference. A share in percent: more than 3 percentage
points. A count or seconds: more than 20 %. Anything else: more than 10 %; or more than a factor of ten, for numbers of
which only the order of magnitude matters. Counts of draws are first scaled to the paper's number of draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mooring_studies.comparison.curves import N_RESAMPLES
from mooring_studies.comparison.paper import Number, Unit, paper_numbers
from mooring_studies.comparison.quantities import FUNCTIONS, VARYING, NoAnswer
from mooring_studies.comparison.reading import Study
from mooring_studies.comparison.results import Results

Facts = Mapping[str, Any]

NOT_RUN = "not run"
AS_BUILT = "as_built"
LARGE_POINTS = 3.0
LARGE_SHARES: Mapping[Unit, float] = MappingProxyType({"": 0.1, "count": 0.2, "s": 0.2})
LARGE_FACTOR = 10.0
FORMULA = "transition"
"""The function whose answer needs no run: v_PT."""
_SAME = 1e-9

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "quick": "a quick run: fewer rows, epochs and draws",
        "draws": "other random draws of transforms, projection, anchor, noise and first weights",
        "levels": "other noise levels: a number over all draws depends on where they were drawn",
        "transforms": "other random transforms: how much survives without alignment depends on which ones were drawn",
        "auditor": "another trained auditor and other galleries; same layers, other weights",
        "ties": "two computations of the same reconstruction differ in the last digits, and a query stands or falls "
        "with them",
        "chance": "a fitted curve that lies flat near chance may or may not touch it",
        "rounding": "rounding in another order of operations",
        "split": "the target's test images, split class by class, are about a tenth of all",
        "face-model": "another face model: an ArcFace MobileFaceNet instead of Inception-ResNet-v1 trained on VGGFace2",
        "face-chance": "our curves wander within a few points of chance (another face model, 980 galleries), so where "
        "they cross is ill-determined",
        "face-model-and-identities": "another face model, and {identities} identities a participant instead of 100",
        "faces": "other faces: 98 identities a participant, of the official test split only, warped to one geometry",
        "identities": "988 identities have two images or more: 98 for each of ten participants, 19 for each of fifty",
        "identities-by-p": "{identities} identities a participant instead of 100, of the official test split only",
        "few-identities": "19 identities a participant instead of 100, so that all of up to fifty participants have "
        "as many",
        "face-model-and-few": "another face model, and 19 identities a participant instead of 100, so that all of up "
        "to fifty participants have as many",
        "pictures": "the levels to show are chosen by how linkage falls, and with another face model it falls elsewhere",
        "public": "the public pool of the packed file is two images short of the paper's",
        "machine": "another machine, and many problems are solved at once",
    }
)
"""The most likely reason of a large difference."""


@dataclass(frozen=True)
class Comparison:
    """One of the paper's numbers beside ours."""

    number: Number
    ours: float | None
    """In the number's unit; None where there is none, and then `note` says why."""
    difference: float | None = None
    """Ours less the paper's, in the number's unit; counts of draws first scaled to the paper's number of draws."""
    relative: float | None = None
    """The difference as a share of the paper's number; None where that is 0."""
    large: bool = False
    note: str = ""
    """The likely reason of a large difference; why ours is missing; the number of draws that a count is out of."""
    spread: tuple[float, float] | None = None
    """The lowest and the highest of ours over several deployments."""
    read_in: tuple[int, int] | None = None
    """In how many deployments, of how many, ours could be read."""


def compare(study_results: Mapping[str, tuple[Results, Facts]], *, n_resamples: int = N_RESAMPLES) -> list[Comparison]:
    """Every number of the paper beside ours, from the studies that were run; the others' numbers are 'not run'."""
    firsts = {
        name: Study(results.where(deployment=0), facts, n_resamples) for name, (results, facts) in study_results.items()
    }
    return [
        _compare(number, *study_results[number.study], firsts[number.study])
        if number.study in study_results
        else Comparison(number, None, note=NOT_RUN)
        for number in paper_numbers()
    ]


def _compare(number: Number, results: Results, facts: Facts, first: Study) -> Comparison:
    """The number beside ours of the first deployment, with how much ours differs between deployments."""
    try:
        answer = _answer(number, first)
    except NoAnswer as reason:
        return Comparison(number, None, note=str(reason))
    spread, read_in = _spread(number, results, facts)
    if number.value is None:
        return Comparison(number, answer, spread=spread, read_in=read_in)
    n_draws = _n_draws(number, first)
    scaled = answer * number.n_draws / n_draws if number.n_draws and n_draws else answer
    difference = scaled - number.value
    relative = difference / abs(number.value) if number.value else None
    large = is_large(number, scaled)
    is_scaled = number.n_draws and n_draws not in (number.n_draws, 0)
    notes = [f"of {n_draws} draws, the paper's of {number.n_draws}"] if is_scaled else []
    notes += [_reason(number, first)] if large else []
    return Comparison(number, answer, difference, relative, large, "; ".join(filter(None, notes)), spread, read_in)


def _answer(number: Number, study: Study) -> float:
    """Ours, in the number's unit."""
    if number.ours == AS_BUILT:
        return number.value or 0.0
    args = {name: value for name, value in number.args.items() if name != "p"}
    return FUNCTIONS[number.ours](rows_of(number, study), **args) * (100.0 if number.unit == "%" else 1.0)


def rows_of(number: Number, study: Study) -> Study:
    """The rows that a number is about: those with its number of participants, where it has one."""
    return study.at(number.args["p"]) if "p" in number.args else study


def _spread(
    number: Number, results: Results, facts: Facts
) -> tuple[tuple[float, float] | None, tuple[int, int] | None]:
    """The lowest and highest of ours over the deployments in which it can be read, and in how many of how many.

    None for what depends on the number of draws, and where there is one deployment.
    """
    deployments = results.values("deployment")
    if len(deployments) < 2 or number.ours not in VARYING:
        return None, None
    answers = []
    for each in deployments:
        with suppress(NoAnswer):
            answers.append(_answer(number, Study(results.where(deployment=each), facts)))
    return (min(answers), max(answers)) if len(answers) > 1 else None, (len(answers), len(deployments))


def _n_draws(number: Number, study: Study) -> int:
    """How many draws a count of ours is out of."""
    method = number.args.get("method") or number.args.get("first")
    return len(rows_of(number, study).draws(method)) if number.n_draws and method else 0


def is_large(number: Number, ours: float) -> bool:
    """Whether ours differs from the paper's by much, by the rule of this module."""
    value = number.value or 0.0
    difference = ours - value
    if number.kind == "setting":
        return abs(difference) > _SAME * max(1.0, abs(value)) and not math.isclose(ours, value, rel_tol=_SAME)
    if number.order_only:
        return not (ours > 0 and value / LARGE_FACTOR <= ours <= value * LARGE_FACTOR)
    if number.unit == "%":
        return abs(difference) > LARGE_POINTS
    return abs(difference) > LARGE_SHARES[number.unit] * abs(value)


def _reason(number: Number, study: Study) -> str:
    """The likely reason of a large difference: a quick run explains all; else what the line names."""
    name = "quick" if study.fact("spec.quick") else number.reason
    reason = REASONS[name] if name else ""
    identities = rows_of(number, study).identities_each if "p" in number.args else None
    return reason.replace("{identities}", str(identities)) if identities else reason
