"""The audit of sums: simulated totals, canaries, and what attackers and participants get from them."""

from mooring.audit.sums.canaries import audit_epsilon, run_canaries
from mooring.audit.sums.measurement import SumAuditor
from mooring.audit.sums.simulation import SumSimulation, simulate_sums

__all__ = ["SumAuditor", "SumSimulation", "audit_epsilon", "run_canaries", "simulate_sums"]
