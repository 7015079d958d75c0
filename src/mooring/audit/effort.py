"""How much work audits and plans do, besides that of the attacks that they run."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.attacks.effort import Effort, current_effort


@dataclass(frozen=True)
class AuditEffort(Effort):
    """The effort of attacks, the size of an audit's measurements, and the noise that a plan tries."""

    most_targets: int = 3
    """Maximum number of participants that an audit attacks, if each has few rows."""
    n_resamples: int = 400
    """Number of bootstrap resamples for the intervals of errors and attributes."""
    data_levels: tuple[float, ...] = (0.15, 0.3, 0.5, 0.8, 1.2)
    """Private-data noise that a plan tries, in units of the rows' root mean square."""
    anchor_scales: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    """Anchor noise that a plan tries."""
    both_noises: tuple[tuple[float, float], ...] = ((0.05, 0.3), (0.1, 0.3), (0.05, 0.5), (0.1, 0.5), (0.1, 0.8))
    """Pairs of anchor noise and private-data noise that a plan tries."""
    halvings: int = 3
    """How often a plan halves the distance to the smallest noise that keeps to the limit."""


def current_audit_effort() -> AuditEffort:
    """Return the effort of audits that are not given one; `mooring.attacks.set_effort` changes it."""
    current = current_effort()
    return current if isinstance(current, AuditEffort) else AuditEffort(**vars(current))
