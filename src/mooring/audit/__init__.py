"""The audit: what the strongest attack recovers, beside chance and controls, and what joining is worth."""

from mooring.audit.operating_points import OperatingPoint, grid, point_with_noise
from mooring.audit.outcomes import AttackOutcome
from mooring.audit.plan import Plan, plan_study
from mooring.audit.result import AuditResult, PointResult
from mooring.audit.run import run_audit
from mooring.audit.specification import Lens
from mooring.audit.target import Target

__all__ = [
    "AttackOutcome",
    "AuditResult",
    "Lens",
    "OperatingPoint",
    "Plan",
    "PointResult",
    "Target",
    "grid",
    "plan_study",
    "point_with_noise",
    "run_audit",
]
