"""mooring: one-shot, privacy-preserving collaborative learning, and an honest account of what each upload discloses.

Names are loaded when they are used, so that a command that needs no learner or cipher does not wait for its import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mooring.errors import InputError, MissingExtraError, MooringError, RefusedError, StorageError
from mooring.version import __version__ as __version__

if TYPE_CHECKING:
    from mooring import attacks, estimators, theory
    from mooring.alignment import Alignment, Certificate, Termination, align, align_batch, align_to_reference
    from mooring.attacks import CollusionView
    from mooring.audit import (
        AuditResult,
        AuditSettings,
        EvaluationSpec,
        OperatingPoint,
        Plan,
        PointGrid,
        RotationPoint,
        SumPoint,
        plan_study,
        run_audit,
    )
    from mooring.audit.rotation.simulation import RowSimulation, SimulationSettings, simulate, simulate_rows
    from mooring.audit.sums.simulation import SumSimulation, simulate_sums
    from mooring.geometry import RigidMap
    from mooring.mechanisms.accounting import Guarantee, NeighboringRelation, calibrate_gaussian, clip_rows
    from mooring.mechanisms.rotation.anchors import check_anchor, make_anchor
    from mooring.mechanisms.rotation.kernel import (
        ArrayNoise,
        NoiseStream,
        Upload,
        UploadNoise,
        coupled_noise,
        represent,
    )
    from mooring.mechanisms.rotation.methods import METHODS, Method
    from mooring.mechanisms.rotation.projection import (
        Projection,
        gaussian_projection,
        no_projection,
        public_svd_projection,
    )
    from mooring.mechanisms.rotation.settings import RotationSettings
    from mooring.mechanisms.sums.settings import SumSettings
    from mooring.protocol.analyst.role import Analyst
    from mooring.protocol.designer.draft import DeclaredColumns, DraftSettings, draft_study
    from mooring.protocol.designer.revision import enrol_cards
    from mooring.protocol.messages.study import Study
    from mooring.protocol.participant.membership import issue_card
    from mooring.protocol.participant.prediction import Scoring
    from mooring.protocol.participant.role import Participant, check_table_fit
    from mooring.randomness import Streams
    from mooring.tables import Column, Label, partition, read_records

_HOMES = {
    "alignment": ("Alignment", "Certificate", "Termination", "align", "align_batch", "align_to_reference"),
    "attacks": ("CollusionView",),
    "audit": (
        "AuditResult",
        "AuditSettings",
        "EvaluationSpec",
        "OperatingPoint",
        "Plan",
        "PointGrid",
        "RotationPoint",
        "SumPoint",
        "plan_study",
        "run_audit",
    ),
    "audit.rotation.simulation": ("RowSimulation", "SimulationSettings", "simulate", "simulate_rows"),
    "audit.sums.simulation": ("SumSimulation", "simulate_sums"),
    "geometry": ("RigidMap",),
    "mechanisms.accounting": ("Guarantee", "NeighboringRelation", "clip_rows", "calibrate_gaussian"),
    "mechanisms.rotation.anchors": ("check_anchor", "make_anchor"),
    "mechanisms.rotation.kernel": ("ArrayNoise", "NoiseStream", "Upload", "UploadNoise", "coupled_noise", "represent"),
    "mechanisms.rotation.methods": ("METHODS", "Method"),
    "mechanisms.rotation.projection": ("Projection", "gaussian_projection", "no_projection", "public_svd_projection"),
    "mechanisms.rotation.settings": ("RotationSettings",),
    "mechanisms.sums.settings": ("SumSettings",),
    "protocol.analyst.role": ("Analyst",),
    "protocol.designer.draft": ("DeclaredColumns", "DraftSettings", "draft_study"),
    "protocol.designer.revision": ("enrol_cards",),
    "protocol.messages.study": ("Study",),
    "protocol.participant.membership": ("issue_card",),
    "protocol.participant.prediction": ("Scoring",),
    "protocol.participant.role": ("Participant", "check_table_fit"),
    "randomness": ("Streams",),
    "tables": ("Column", "Label", "partition", "read_records"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "METHODS",
    "Alignment",
    "Analyst",
    "ArrayNoise",
    "AuditResult",
    "AuditSettings",
    "Certificate",
    "CollusionView",
    "Column",
    "DeclaredColumns",
    "DraftSettings",
    "EvaluationSpec",
    "Guarantee",
    "InputError",
    "Label",
    "Method",
    "MissingExtraError",
    "MooringError",
    "NeighboringRelation",
    "NoiseStream",
    "OperatingPoint",
    "Participant",
    "Plan",
    "PointGrid",
    "Projection",
    "RefusedError",
    "RigidMap",
    "RotationPoint",
    "RotationSettings",
    "RowSimulation",
    "Scoring",
    "SimulationSettings",
    "StorageError",
    "Streams",
    "Study",
    "SumPoint",
    "SumSettings",
    "SumSimulation",
    "Termination",
    "Upload",
    "UploadNoise",
    "align",
    "align_batch",
    "align_to_reference",
    "attacks",
    "calibrate_gaussian",
    "check_anchor",
    "check_table_fit",
    "clip_rows",
    "coupled_noise",
    "draft_study",
    "enrol_cards",
    "estimators",
    "gaussian_projection",
    "issue_card",
    "make_anchor",
    "no_projection",
    "partition",
    "plan_study",
    "public_svd_projection",
    "read_records",
    "represent",
    "run_audit",
    "simulate",
    "simulate_rows",
    "simulate_sums",
    "theory",
]


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines it."""
    if name in _HOME_OF:
        return getattr(import_module(f"mooring.{_HOME_OF[name]}"), name)
    if name in __all__:
        return import_module(f"mooring.{name}")
    raise AttributeError(f"module 'mooring' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
