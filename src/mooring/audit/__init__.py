"""The audit: what the strongest attack recovers, with chance and controls, and how much joining improves the model."""

from mooring.audit.auditor import run_audit
from mooring.audit.deployment import Deployment, root_mean_square
from mooring.audit.effort import AuditEffort
from mooring.audit.grid import PointGrid
from mooring.audit.measurement import measure_leakage
from mooring.audit.operating_points import OperatingPoint
from mooring.audit.planning import Plan, plan_study
from mooring.audit.results.audit_result import AuditDescription, AuditResult
from mooring.audit.results.point_result import HEADLINE, AttackOutcome, Leakage, PointResult, find_strongest
from mooring.audit.rotation.attempts import AttackRuns, Attempt, Rebuilt, run_attack, run_attack_batch, run_denoising
from mooring.audit.rotation.evaluator import Guess, LeakageEvaluator
from mooring.audit.rotation.linkage import LinkageTest, make_galleries, make_linkage_test
from mooring.audit.rotation.point import RotationPoint, point_with_noise
from mooring.audit.rotation.simulation import RowSimulation, SimulationSettings, simulate, simulate_rows
from mooring.audit.simulation import JointModel, Simulation
from mooring.audit.specification import AuditSettings, EvaluationSpec, NoiseUnit, ProjectionKind
from mooring.audit.sums.general_simulation import PairwiseSimulation, simulate_general_total
from mooring.audit.sums.leakage import attack_total
from mooring.audit.sums.point import SumPoint
from mooring.audit.sums.simulation import SumSimulation, simulate_sums
from mooring.audit.utility import References
from mooring.metrics.limits import LeakageLimit

__all__ = [
    "HEADLINE",
    "AttackOutcome",
    "AttackRuns",
    "Attempt",
    "AuditDescription",
    "AuditEffort",
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
    "PairwiseSimulation",
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
    "simulate_general_total",
    "simulate_rows",
    "simulate_sums",
]
