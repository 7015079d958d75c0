"""The audit: what the strongest attack recovers, beside chance and controls, and what joining is worth."""

from mooring.audit.auditor import root_mean_square, run_audit
from mooring.audit.evaluator import Guess, LeakageEvaluator
from mooring.audit.identification.linkage import LinkageTest, make_galleries, make_linkage_test
from mooring.audit.leakage import Attempt, AttemptLog, measure_leakage, run_attack, run_attack_batch, run_denoising
from mooring.audit.operating_points import NoiseUnit, OperatingPoint, PointGrid, SumPoint, point_with_noise
from mooring.audit.planning import Plan, plan_study
from mooring.audit.result import HEADLINE, AttackOutcome, AuditResult, PointResult, SumAudit, SumResult, find_strongest
from mooring.audit.simulation import Simulation, SimulationSettings, simulate
from mooring.audit.specification import (
    DEFAULT_LIMIT,
    AuditSettings,
    EvaluationSpec,
    LeakageLimit,
    ProjectionKind,
    SumSpec,
)
from mooring.audit.utility import References

__all__ = [
    "DEFAULT_LIMIT",
    "HEADLINE",
    "AttackOutcome",
    "Attempt",
    "AttemptLog",
    "AuditResult",
    "AuditSettings",
    "EvaluationSpec",
    "Guess",
    "LeakageEvaluator",
    "LeakageLimit",
    "LinkageTest",
    "NoiseUnit",
    "OperatingPoint",
    "Plan",
    "PointGrid",
    "PointResult",
    "ProjectionKind",
    "References",
    "Simulation",
    "SimulationSettings",
    "SumAudit",
    "SumPoint",
    "SumResult",
    "SumSpec",
    "find_strongest",
    "make_galleries",
    "make_linkage_test",
    "measure_leakage",
    "plan_study",
    "point_with_noise",
    "root_mean_square",
    "run_attack",
    "run_attack_batch",
    "run_audit",
    "run_denoising",
    "simulate",
]
