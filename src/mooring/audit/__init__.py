"""The audit: what the strongest attack recovers, with chance and controls, and how much joining improves the model."""

from mooring.audit.attempts import AttackRuns, Attempt, Rebuilt, run_attack, run_attack_batch, run_denoising
from mooring.audit.auditor import run_audit
from mooring.audit.deployment import Deployment, ProjectionKind, root_mean_square
from mooring.audit.evaluator import Guess, LeakageEvaluator
from mooring.audit.identification.linkage import LinkageTest, make_galleries, make_linkage_test
from mooring.audit.measurement import measure_leakage
from mooring.audit.operating_points import (
    NoiseUnit,
    OperatingPoint,
    PointGrid,
    RotationPoint,
    SumPoint,
    point_with_noise,
)
from mooring.audit.planning import Plan, plan_study
from mooring.audit.result import (
    HEADLINE,
    AttackOutcome,
    AuditDescription,
    AuditResult,
    Leakage,
    PointResult,
    find_strongest,
)
from mooring.audit.simulation import (
    JointModel,
    RowSimulation,
    Simulation,
    SimulationSettings,
    simulate,
    simulate_rows,
)
from mooring.audit.specification import DEFAULT_LIMIT, AuditSettings, EvaluationSpec, LeakageLimit
from mooring.audit.sum_leakage import attack_total
from mooring.audit.sum_simulation import SumSimulation, simulate_sums
from mooring.audit.utility import References

__all__ = [
    "DEFAULT_LIMIT",
    "HEADLINE",
    "AttackOutcome",
    "AttackRuns",
    "Attempt",
    "AuditDescription",
    "AuditResult",
    "AuditSettings",
    "Deployment",
    "EvaluationSpec",
    "Guess",
    "JointModel",
    "Leakage",
    "LeakageEvaluator",
    "LeakageLimit",
    "LinkageTest",
    "NoiseUnit",
    "OperatingPoint",
    "Plan",
    "PointGrid",
    "PointResult",
    "ProjectionKind",
    "Rebuilt",
    "References",
    "RotationPoint",
    "RowSimulation",
    "Simulation",
    "SimulationSettings",
    "SumPoint",
    "SumSimulation",
    "attack_total",
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
    "simulate_rows",
    "simulate_sums",
]
