"""What a comparison with the paper reads: one deployment's rows of a finished study, and its facts."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mooring.mechanisms import METHODS
from mooring.typing import Vector
from mooring_studies.comparison.curves import Curve, fit
from mooring_studies.comparison.results import KINDS, Results

NOT_RECORDED = "not recorded"
NOT_MEASURED = "not measured"


class NoAnswer(Exception):
    """There is no number of ours; its text says why."""


@cache
def read_paper() -> Mapping[str, Any]:
    """The contents of `paper.toml`."""
    return tomllib.loads((Path(__file__).parent / "paper.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, eq=False)
class Study:
    """One deployment of a study.

    Attributes
    ----------
    results : Results
        Its rows.
    facts : mapping
        What the study recorded beside them.
    """

    results: Results
    facts: Mapping[str, Any] = field(default_factory=dict)

    def at(self, n_participants: int) -> Study:
        """The rows with so many participants; where there are several allocations, that with most identities each."""
        rows = self.results.where(n_participants=n_participants)
        allocations = rows.values("identities_each")
        return Study(rows.where(identities_each=allocations[-1]) if allocations else rows, self.facts)

    def allocated_alike(self, participants: Sequence[int]) -> Study:
        """The rows of the allocation that has all these numbers of participants, so that they differ in nothing else."""
        for each in reversed(self.results.values("identities_each")):
            rows = self.results.where(identities_each=each)
            if set(participants) <= set(rows.values("n_participants")):
                return Study(rows, self.facts)
        return self

    @property
    def n_participants(self) -> int | None:
        """How many take part: from the rows if they agree, else from the settings."""
        found = self.results.values("n_participants")
        if len(found) == 1:
            return int(found[0])
        set_to = self.fact("spec.data.n_participants.0")
        return None if set_to is None else int(set_to)

    @property
    def identities_each(self) -> int | None:
        """Identities a participant: from the rows if they agree, else from the settings' last allocation."""
        found = self.results.values("identities_each")
        if len(found) == 1:
            return int(found[0])
        allocations = self.fact("spec.data.identities_each")
        return int(allocations[-1][1]) if allocations else None

    def fact(self, path: str) -> Any:
        """What the facts hold at a path of names and positions, such as "spec.data.n_participants.0"; None if nothing."""
        found: Any = self.facts
        for step in path.split("."):
            try:
                found = found[int(step)] if isinstance(found, list | tuple) else found[step]
            except (KeyError, IndexError, ValueError, TypeError):
                return None
        return found

    def draws(self, method: str) -> Results:
        """The rows of a method."""
        return self.results.where(method=method)

    def curve(self, method: str, column: str) -> Curve:
        """A spline of a column (see `column_of`) on the method's noise."""
        rows = self.draws(method)
        return fit(noise_of(rows, method), column_of(rows, column))


def noise_of(rows: Results, method: str) -> Vector:
    """The noise that a method's curves are drawn over: on the anchor if it has that, else on the private data."""
    return rows["anchor_noise_scale" if METHODS[method].anchor_noise else "data_noise_scale"]


def column_of(rows: Results, column: str) -> Vector:
    """A column, or "envelope:linkage" and the like for the strongest attack on each row (see `Results.strongest`)."""
    kind = next((kind for kind in KINDS if column == f"envelope:{kind}"), None)
    return rows[column] if kind is None else rows.strongest(kind)


def require_number(value: float | None, reason: str) -> float:
    """A number; where it is missing or not finite, there is no answer for this reason."""
    if value is None or not np.isfinite(value):
        raise NoAnswer(reason)
    return float(value)


def require_values(values: Vector, reason: str = NOT_MEASURED) -> Vector:
    """The finite ones of some values; where there are none, there is no answer for this reason."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        raise NoAnswer(reason)
    return finite
