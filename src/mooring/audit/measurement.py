"""What attackers recover from a simulated collaboration and from its joint model, for any mechanism."""

from __future__ import annotations

from functools import singledispatch

from mooring.audit.deployment import Deployment
from mooring.audit.release import ReleaseRisk
from mooring.audit.results.point_result import Leakage
from mooring.audit.rotation.leakage import measure_rows
from mooring.audit.rotation.release import measure_point_release
from mooring.audit.rotation.simulation import RowSimulation
from mooring.audit.simulation import Simulation
from mooring.audit.specification import AuditSettings
from mooring.audit.sums.general_simulation import PairwiseSimulation
from mooring.audit.sums.leakage import measure_total
from mooring.audit.sums.simulation import SumSimulation
from mooring.errors import InputError
from mooring.learners import LearnerLike
from mooring.tables import Partition


@singledispatch
def measure_leakage(simulation: Simulation, partition: Partition, settings: AuditSettings) -> Leakage:
    """Return what each attack that applies to a simulation recovers.

    Simulations of other classes than `RowSimulation`, `SumSimulation` and `PairwiseSimulation` need a function of their
    own, which takes the same arguments and is registered with `measure_leakage.register(TheirClass)`. The simulation must
    have been made from the partition's training rows. The partition's test rows are the non-members that attackers must
    distinguish from uploaded rows. The settings must have been checked against the partition, and must name the targets.
    """
    kind = type(simulation).__name__
    cure = "Return one of these from `simulate`, or register a function with `measure_leakage.register`."
    raise InputError("simulation", expected="a row, sum or pairwise simulation", got=f"a {kind}", cure=cure)


measure_leakage.register(RowSimulation)(measure_rows)
measure_leakage.register(SumSimulation)(measure_total)
measure_leakage.register(PairwiseSimulation)(measure_total)


@singledispatch
def measure_release(
    simulation: Simulation, deployment: Deployment, *, learner: LearnerLike | None
) -> ReleaseRisk | None:
    """Return what the joint model of a simulation itself discloses; None if this is not measured.

    It is not measured for totals, because a model of a total discloses no more than the total. A function for simulations of
    another class is registered with `measure_release.register(TheirClass)`.
    """
    return None


measure_release.register(RowSimulation)(measure_point_release)
