"""Bringing uploads into one coordinate system: to a reference participant, or by generalized Procrustes."""

from mooring.alignment.certificate import Certificate
from mooring.alignment.reference import align_to_reference
from mooring.alignment.result import Alignment, Termination, align_to_template
from mooring.alignment.solve import Solver, align, align_batch

__all__ = [
    "Alignment",
    "Certificate",
    "Solver",
    "Termination",
    "align",
    "align_batch",
    "align_to_reference",
    "align_to_template",
]
