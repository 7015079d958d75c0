"""Limits on leakage, as people write them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mooring.errors import InputError
from mooring.metrics.intervals import Figure
from mooring.metrics.measures import MEASURES
from mooring.serialization import Record

DEFAULT_LIMIT = "error at least 0.5"
"""The default limit of plans. Decisions check it unless a study or the caller states a limit on the same measure."""
_MEASURES = {measure.limit: name for name, measure in MEASURES.items() if measure.limit} | {"epsilon": "epsilon"}
_ERRORS = ("exposed_tenth", "centred_error", "relative_error", "decoded_error")
_SHAPE = re.compile(
    r"^\s*(?P<measure>[a-z_ ]+?)\s*(?P<side>at least|at most|>=|<=|≥|≤)\s*(?P<bound>[0-9.]+)\s*(?P<percent>%?)"
    r"(?:\s*at\s*(?P<rate>1|0?\.1)\s*%)?\s*$"
)


@dataclass(frozen=True)
class LeakageLimit(Record):
    """A bound on what the strongest attack may recover.

    "error" is the error that a tenth of the rows stay below, relative to the error of guessing a row. "mean error" is the
    error over all rows, relative to their spread. Limits on membership are at 1 % false positives, unless "at 0.1 %"
    follows.

    Examples
    --------
    >>> LeakageLimit.parse("error at least 0.5")
    LeakageLimit(measure='exposed_tenth', bound=0.5, at_least=True)
    >>> LeakageLimit.parse("linkage at most 20 %")
    LeakageLimit(measure='linkage', bound=0.2, at_least=False)
    >>> LeakageLimit.parse("membership at most 5 % at 0.1 %")
    LeakageLimit(measure='membership_at_0.1_percent', bound=0.05, at_least=False)
    """

    measure: str
    """The name of a figure, such as "exposed_tenth" or "linkage"."""
    bound: float
    at_least: bool
    """True for errors, which should be large; False for all other measures."""

    @classmethod
    def parse(cls, words: str) -> LeakageLimit:
        """Return the limit that a text such as 'linkage at most 20 %' states."""
        parsed = _SHAPE.match(words.lower())
        name = "" if parsed is None else parsed["measure"].replace("_", " ").strip()
        if parsed is not None and name in _MEASURES and parsed["rate"] and "membership" not in name:
            expected = "without a rate of false positives, which only limits on membership have"
            raise InputError("limit", expected=expected, got=repr(words), cure=f"Leave out 'at {parsed['rate']} %'.")
        if parsed is None or name not in _MEASURES:
            raise InputError(
                "limit",
                expected=f"such as 'error at least 0.5' or 'linkage at most 20 %', with one of {', '.join(_MEASURES)}",
                got=repr(words),
                cure="Name a measure, 'at least' or 'at most', and a bound.",
            )
        try:
            bound = float(parsed["bound"]) / (100 if parsed["percent"] else 1)
        except ValueError:
            raise InputError(
                "limit", expected="such that its bound is a number", got=repr(words), cure="Write 0.5 or 20 %."
            ) from None
        at_least = parsed["side"] in ("at least", ">=", "≥")
        measure = _MEASURES[name]
        if bound > 1 and measure not in (*_ERRORS, "epsilon"):
            cure = "Write a share from 0 to 1, or a percentage up to '100 %'."
            raise InputError("limit", expected="a share of at most 1, which is 100 %", got=repr(words), cure=cure)
        if (parsed["rate"] or "1") != "1":
            measure = measure.replace("at_1", "at_0.1")
        if at_least != (measure in _ERRORS):
            raise InputError(
                "limit",
                expected="'at least' for an error, 'at most' for anything else",
                got=repr(words),
                cure="Write 'at least' for an error, which should be large, and 'at most' for any other measure.",
            )
        return cls(measure, bound, at_least)

    def __str__(self) -> str:
        known = self.measure.replace("at_0.1", "at_1")
        name = next(word for word, measure in _MEASURES.items() if measure == known)
        if self.at_least or self.measure == "epsilon":
            return f"{name} at {'least' if self.at_least else 'most'} {self.bound:g}"
        rate = f" at {'1' if known == self.measure else '0.1'}%" if "membership" in name else ""
        return f"{name} at most {100 * self.bound:.6g}%{rate}"

    def met_by(self, figure: Figure, *, room: float = 1.0) -> bool:
        """Return whether the less favourable end of a figure's interval meets the limit.

        `room` multiplies the distance from the figure to that end: 2 demands twice the margin. A figure without an interval
        is compared by its value alone.
        """
        worse = figure.interval.low if self.at_least else figure.interval.high
        value = figure.value + room * (worse - figure.value if figure.interval.known else 0.0)
        return value >= self.bound if self.at_least else value <= self.bound
