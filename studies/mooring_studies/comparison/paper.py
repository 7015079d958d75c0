"""What section 5 of the paper states: its numbers and its claims, from `paper.csv`.

The file has one line per number, in the paper's order; a number that the section repeats is listed once. After them come a
few numbers of ours (kind "beside") that belong beside the paper's, and then the claims (kind "claim"). Its columns are:

- `id`: the study, and a name; `section`: where the paper states the number, or the figure of ours that shows a claim;
  `says`: what the number is, or what is claimed.
- `kind`: "setting", "result", "beside" or "claim"; `paper`: the number as the paper writes it; `unit`: "%", "count", "s" or
  empty.
- `ours`, `args`: the function in `quantities` that computes our counterpart, and its keyword arguments, as
  "name=value; name=value". A list has "|" between its values, and `p` selects the rows with this number of participants.
  "as_built" is a constant of the code, which a test compares with the paper's. For a claim, `ours` is the rule that decides
  it (a name in `claims.RULES`), and `args` are the ids of its numbers with words that distinguish them.
- `reason`: a key of `numbers.REASONS`, shown if the difference is large; `n_draws`: the number of draws that a count is out
  of; `order_only`: whether only the order of magnitude is compared.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

Kind = Literal["setting", "result", "beside"]
Unit = Literal["%", "", "s", "count"]


@dataclass(frozen=True)
class Number:
    """One number of the paper, or one of ours that belongs beside it."""

    id: str
    section: str
    says: str
    kind: Kind
    unit: Unit
    ours: str
    value: float | None = None
    decimals: int = 0
    args: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    n_draws: int | None = None
    order_only: bool = False

    @property
    def study(self) -> str:
        """The study that computes our counterpart."""
        return self.id.partition(".")[0]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper about one study."""

    says: str
    figure: str
    study: str
    rule: str
    numbers: Mapping[str, str]
    """The words for each number that stands for the claim, by the number's id."""


@cache
def _read_lines() -> list[dict[str, str]]:
    text = (Path(__file__).parent / "paper.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def paper_numbers() -> tuple[Number, ...]:
    """Return every number of the paper, in its order, and those of ours beside them."""
    return tuple(_number_of(line) for line in _read_lines() if line["kind"] != "claim")


@cache
def paper_claims() -> tuple[Claim, ...]:
    """Return every claim of the paper, one for each study that it is about."""
    return tuple(
        Claim(line["says"], line["section"], line["id"].partition(".")[0], line["ours"], _split(line["args"]))
        for line in _read_lines()
        if line["kind"] == "claim"
    )


def paper_number(id: str) -> Number:
    """Return a number of the paper by its id."""
    return next(number for number in paper_numbers() if number.id == id)


def _number_of(line: Mapping[str, str]) -> Number:
    return Number(
        **{name: line[name] for name in ("id", "section", "says", "ours", "reason")},
        kind=cast(Kind, line["kind"]),
        unit=cast(Unit, line["unit"]),
        value=float(line["paper"]) if line["paper"] else None,
        decimals=0 if "e" in line["paper"] else len(line["paper"].partition(".")[2]),
        args={name: _parse(text) for name, text in _split(line["args"]).items()},
        n_draws=int(line["n_draws"]) if line["n_draws"] else None,
        order_only=line["order_only"] == "yes",
    )


def _split(pairs: str) -> dict[str, str]:
    return {name: text for name, _, text in (pair.partition("=") for pair in pairs.split("; ")) if name}


def _parse(text: str) -> Any:
    """Return a number, a truth value, a word, or a list of these."""
    if "|" in text:
        return [_parse(part) for part in text.split("|")]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
