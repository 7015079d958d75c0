"""What one attack recovered at one operating point, and which attack recovered most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mooring.metrics import Figure

HEADLINE = "centred_error"
"""The measure by which attacks are ranked: error of the rebuilt rows, relative to the centred rows, after projection."""


@dataclass(frozen=True)
class AttackOutcome:
    """One attack's figures, or why it has none.

    Attributes
    ----------
    attack : str
        Its name; " + denoising" is appended where its rows were denoised.
    figures : dict of Figure
        By measure; empty where the attack does not apply.
    reason : str or None
        Why it does not apply.
    notes : tuple of str
    """

    attack: str
    figures: dict[str, Figure] = field(default_factory=dict)
    reason: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def applies(self) -> bool:
        """Whether there are figures."""
        return bool(self.figures)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "attack": self.attack,
            "figures": {name: figure.as_dict() for name, figure in self.figures.items()},
            "reason": self.reason,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> AttackOutcome:
        """Read back what `as_dict` gave."""
        figures = {name: Figure.from_dict(figure) for name, figure in plain["figures"].items()}
        return cls(plain["attack"], figures, plain["reason"], tuple(plain["notes"]))


def strongest(outcomes: Sequence[AttackOutcome], measure: str = HEADLINE) -> AttackOutcome | None:
    """The outcome that leaks most by this measure; None if no attack has it."""
    having = [
        one for one in outcomes if measure in one.figures and one.figures[measure].value == one.figures[measure].value
    ]
    if not having:
        return None
    worst_first = max if having[0].figures[measure].higher_is_worse else min
    return worst_first(having, key=lambda one: one.figures[measure].value)
