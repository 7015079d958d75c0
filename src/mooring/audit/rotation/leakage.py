"""What attackers recover from the uploaded rows of a simulation: attacks and their figures."""

from __future__ import annotations

from dataclasses import replace

from mooring.attacks import CollusionView, attacks_on
from mooring.audit.results.point_result import Leakage
from mooring.audit.rotation.attempts import AttackRuns
from mooring.audit.rotation.evaluator import LeakageEvaluator
from mooring.audit.rotation.membership import audit_row_noise
from mooring.audit.rotation.simulation import RowSimulation
from mooring.audit.specification import AuditSettings
from mooring.tables import Partition


def measure_rows(simulation: RowSimulation, partition: Partition, settings: AuditSettings) -> Leakage:
    """Return the figures of every attack on every target's uploaded rows, with and without each denoiser.

    The partition's test rows serve as candidates in galleries, as held-out records of known persons for identity linkage,
    and as non-members. The settings must name the targets.
    """
    views = [
        simulation.view(
            settings.colluders,
            target,
            n_known_rows=settings.n_known_rows,
            n_repeated_uploads=settings.n_repeated_uploads,
        )
        for target in settings.targets or ()
    ]
    columns, effort = settings.evaluation.columns, settings.effort
    views = [replace(view, columns=view.columns or columns, effort=effort) for view in views]
    evaluator = LeakageEvaluator(simulation, views, partition, settings.evaluation, settings.seed)
    runs = AttackRuns(views, settings.seed, evaluator.is_hopeless)
    rebuilt = [part for attack in attacks_on(CollusionView, settings.attacks) for part in runs.run(attack)]
    return replace(evaluator.measure(rebuilt), epsilon=audit_row_noise(simulation))
