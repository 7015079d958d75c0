"""Targets: how much an attacker may recover, and whether a figure keeps to it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from mooring.audit.result import PointResult
from mooring.errors import InputError
from mooring.metrics import Figure

_MEASURES = {
    "error": "centred_error",
    "reconstruction error": "centred_error",
    "relative error": "relative_error",
    "centred error": "centred_error",
    "decoded error": "decoded_error",
    "linkage": "linkage",
    "identity linkage": "identity_linkage",
    "exact source linkage": "exact_source_linkage",
    "attribute": "attribute",
}
_SHAPE = re.compile(
    r"^\s*(?P<measure>[a-z_ ]+?)\s*(?P<side>at least|at most|>=|<=|≥|≤)\s*(?P<bound>[0-9.]+)\s*(?P<percent>%?)\s*$"
)


@dataclass(frozen=True)
class Target:
    """A bound on what the strongest attack may recover.

    Attributes
    ----------
    measure : str
        The name of a figure, such as "centred_error" or "linkage".
    bound : float
    at_least : bool
        True for errors, of which more is safer; False for linkage and the like.

    Examples
    --------
    >>> Target.parse("reconstruction error at least 0.5")
    Target(measure='centred_error', bound=0.5, at_least=True)
    >>> Target.parse("linkage at most 20 %")
    Target(measure='linkage', bound=0.2, at_least=False)
    """

    measure: str
    bound: float
    at_least: bool

    @classmethod
    def parse(cls, words: str) -> Target:
        """Read a target as people write it."""
        found = _SHAPE.match(words.lower())
        name = "" if found is None else found["measure"].replace("_", " ").strip()
        if found is None or name not in _MEASURES:
            raise InputError(
                "target",
                expected=f"such as 'error at least 0.5' or 'linkage at most 20 %', about one of {', '.join(_MEASURES)}",
                got=repr(words),
                cure="Name a measure, 'at least' or 'at most', and a bound.",
            )
        try:
            bound = float(found["bound"]) / (100 if found["percent"] else 1)
        except ValueError:
            raise InputError(
                "target", expected="a number as its bound", got=repr(words), cure="Write 0.5 or 20 %."
            ) from None
        at_least = found["side"] in ("at least", ">=", "≥")
        measure = _MEASURES[name]
        if at_least != measure.endswith("error"):
            raise InputError(
                "target",
                expected="'at least' for an error, 'at most' for anything else",
                got=repr(words),
                cure="More error is safer; more linkage is not.",
            )
        return cls(measure, bound, at_least)

    def __str__(self) -> str:
        name = next(word for word, measure in _MEASURES.items() if measure == self.measure)
        if self.at_least:
            return f"{name} at least {self.bound:g}"
        return f"{name} at most {100 * self.bound:.6g}%"

    def met_by(self, figure: Figure) -> bool:
        """Whether a figure keeps to the target even at the worse end of its interval."""
        interval = figure.interval
        if self.at_least:
            return (interval.low if interval.known else figure.value) >= self.bound
        return (interval.high if interval.known else figure.value) <= self.bound

    def met_at(self, result: PointResult) -> bool:
        """Whether the strongest attack at a point keeps to it; no attack, no trust."""
        worst = result.worst(self.measure)
        return worst is not None and not math.isnan(worst[1].value) and self.met_by(worst[1])
