"""Alignment of uploads in one coordinate system: that of a reference participant, or a generalized Procrustes solution."""

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
