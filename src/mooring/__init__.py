"""mooring: one-shot, privacy-preserving collaborative learning, and an honest account of what each upload gives away."""

from mooring import attacks, theory
from mooring.alignment import Alignment, Certificate, Termination, align, align_batch, align_to_reference
from mooring.anchors import check_anchor, make_anchor
from mooring.attacks import CollusionView
from mooring.audit import AuditResult, Lens, OperatingPoint, Plan, plan_study, run_audit
from mooring.collaboration import Collaboration, collaborate
from mooring.errors import InputError, MissingExtraError, MooringError
from mooring.geometry import RigidMap
from mooring.guarantee import Guarantee, Neighbours, clip_rows, guarantee_for
from mooring.mechanisms import METHODS, Method, Upload, coupled_noise, represent
from mooring.projection import Projection, gaussian_projection, no_projection, public_svd_projection
from mooring.randomness import Streams
from mooring.simulation import Simulation, simulate
from mooring.version import __version__ as __version__

__all__ = [
    "METHODS",
    "Alignment",
    "AuditResult",
    "Certificate",
    "Collaboration",
    "CollusionView",
    "Guarantee",
    "InputError",
    "Lens",
    "Method",
    "MissingExtraError",
    "MooringError",
    "Neighbours",
    "OperatingPoint",
    "Plan",
    "Projection",
    "RigidMap",
    "Simulation",
    "Streams",
    "Termination",
    "Upload",
    "align",
    "align_batch",
    "align_to_reference",
    "attacks",
    "check_anchor",
    "clip_rows",
    "collaborate",
    "coupled_noise",
    "gaussian_projection",
    "guarantee_for",
    "make_anchor",
    "no_projection",
    "plan_study",
    "public_svd_projection",
    "represent",
    "run_audit",
    "simulate",
    "theory",
]
