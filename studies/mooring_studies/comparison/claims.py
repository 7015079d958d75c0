"""The paper's numbers beside ours: every number that section 5 states, and what this run gives for it.

`paper.toml` has the numbers, in the paper's order: settings and results, and for each the function that computes ours
from a study's table and facts. After them it has a few numbers of ours that belong beside the paper's and are not in it.

A difference is called large by one rule a unit. A setting: any difference. A share in per cent: more than 3 percentage
points. A count or seconds: more than 20 %. Anything else: more than 10 %; or more than a factor of ten, for numbers that
only their order of magnitude matters of. Counts of draws are first scaled to the paper's number of draws. Only a large
difference gets a reason: the most likely one, which `paper.toml` names.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

from mooring_studies.comparison import claims_counts, claims_fits
from mooring_studies.comparison.claims_study import NoAnswer, Study, read_paper
from mooring_studies.comparison.results import Results

Kind = Literal["setting", "result", "beside"]
Unit = Literal["%", "", "s", "count"]
Facts = Mapping[str, Any]

NOT_RUN = "not run"
LARGE_POINTS = 3.0
LARGE_SHARES: Mapping[Unit, float] = MappingProxyType({"": 0.1, "count": 0.2, "s": 0.2})
LARGE_FACTOR = 10.0
FORMULA = "transition"
"""The function whose answer takes no run: v_PT."""
_SAME = 1e-9

FUNCTIONS: Mapping[str, Callable[..., float]] = MappingProxyType(
    {
        name: each
        for module in (claims_counts, claims_fits)
        for name, each in inspect.getmembers(module, inspect.isfunction)
        if each.__module__ == module.__name__ and not name.startswith("_")
    }
)


@dataclass(frozen=True)
class Number:
    """One number of the paper, or one of ours that belongs beside it.

    Attributes
    ----------
    study, section : str
        Whose it is, and where the paper has it.
    says : str
        What it is, in a few words.
    ours : str
        The function in `FUNCTIONS` that computes ours.
    value : float or None
        The paper's; None for a number that is ours alone.
    args : mapping
        What that function takes, by keyword; but "p" chooses the rows with so many participants first.
    reason : str
        The likely reason, should the difference be large.
    of : int or None
        The number of draws that a count is out of.
    order_only : bool
        Whether only the order of magnitude matters.
    decimals : int or None
        How many the paper writes, where its last one is 0.
    """

    id: str
    study: str
    section: str
    says: str
    kind: Kind
    unit: Unit
    ours: str
    value: float | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    of: int | None = None
    order_only: bool = False
    decimals: int | None = None


@dataclass(frozen=True)
class Comparison:
    """One of the paper's numbers beside ours.

    Attributes
    ----------
    ours : float or None
        In the number's unit; None where there is none, and then `note` says why.
    difference : float or None
        Ours less the paper's, in the number's unit; counts of draws first scaled to the paper's number of draws.
    relative : float or None
        The difference as a share of the paper's number; None where that is 0.
    large : bool
        By the rule of this module.
    note : str
        The likely reason of a large difference; why ours is missing; of how many draws a count is.
    spread : (float, float) or None
        The lowest and the highest of ours over several deployments.
    read_in : (int, int) or None
        In how many deployments, of how many, ours could be read.
    """

    number: Number
    ours: float | None
    difference: float | None = None
    relative: float | None = None
    large: bool = False
    note: str = ""
    spread: tuple[float, float] | None = None
    read_in: tuple[int, int] | None = None


@cache
def paper_numbers() -> tuple[Number, ...]:
    """Every number of `paper.toml`, in its order."""
    stated = [Number(**entry | {"value": float(entry["value"])}) for entry in read_paper()["number"]]
    return (*stated, *(Number(kind="beside", **entry) for entry in read_paper()["beside"]))


def compare(study_results: Mapping[str, tuple[Results, Facts]]) -> list[Comparison]:
    """Every number of the paper beside ours.

    Parameters
    ----------
    study_results : mapping of str to (Results, facts)
        The studies that were run, by name; the others' numbers come back as 'not run'.
    """
    return [_compare_one(number, study_results.get(number.study)) for number in paper_numbers()]


def _compare_one(number: Number, found: tuple[Results, Facts] | None) -> Comparison:
    if found is None:
        return Comparison(number, None, note=NOT_RUN)
    results, facts = found
    first = Study(results.where(deployment=0), facts)
    try:
        answer = _answer(number, first)
    except NoAnswer as reason:
        return Comparison(number, None, note=str(reason))
    spread, read_in = _spread(number, results, facts)
    if number.value is None:
        return Comparison(number, answer, spread=spread, read_in=read_in)
    n_draws = _n_draws(number, first)
    scaled = answer * number.of / n_draws if number.of and n_draws else answer
    difference = scaled - number.value
    relative = difference / abs(number.value) if number.value else None
    large = is_large(number, scaled)
    notes = [f"of {n_draws} draws, the paper's of {number.of}"] if number.of and n_draws not in (number.of, 0) else []
    notes += [_reason(number, first)] if large else []
    return Comparison(number, answer, difference, relative, large, "; ".join(filter(None, notes)), spread, read_in)


def _answer(number: Number, study: Study) -> float:
    """Ours, in the number's unit."""
    args = {name: value for name, value in number.args.items() if name != "p"}
    return FUNCTIONS[number.ours](_rows_of(number, study), **args) * (100.0 if number.unit == "%" else 1.0)


def _rows_of(number: Number, study: Study) -> Study:
    """The rows that a number is about: those with its number of participants, where it has one."""
    return study.at(number.args["p"]) if "p" in number.args else study


def _spread(
    number: Number, results: Results, facts: Facts
) -> tuple[tuple[float, float] | None, tuple[int, int] | None]:
    """The lowest and highest of ours over the deployments in which it can be read, and in how many of how many.

    None for what depends on the number of draws, and where there is one deployment.
    """
    deployments = results.values("deployment")
    if len(deployments) < 2 or number.ours not in read_paper()["varying"]:
        return None, None
    numbers = []
    for each in deployments:
        with suppress(NoAnswer):
            numbers.append(_answer(number, Study(results.where(deployment=each), facts)))
    return (min(numbers), max(numbers)) if len(numbers) > 1 else None, (len(numbers), len(deployments))


def _n_draws(number: Number, study: Study) -> int:
    """How many draws a count of ours is out of."""
    method = number.args.get("method") or number.args.get("first")
    return len(_rows_of(number, study).draws(method)) if number.of and method else 0


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
    """The likely reason of a large difference: a quick run explains all; else what the entry names."""
    name = "quick" if study.fact("spec.quick") else number.reason
    reason = str(read_paper()["reasons"][name]) if name else ""
    identities = _rows_of(number, study).identities_each if "p" in number.args else None
    return reason.replace("{identities}", str(identities)) if identities else reason
