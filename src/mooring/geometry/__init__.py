"""Orthogonal matrices and rigid maps, on NumPy or torch."""

from mooring.geometry.backend import is_out_of_memory, to_numpy
from mooring.geometry.orthogonal import orthogonality_defect, polar_factor, sample_orthogonal
from mooring.geometry.rigid import RigidMap

__all__ = [
    "RigidMap",
    "is_out_of_memory",
    "orthogonality_defect",
    "polar_factor",
    "sample_orthogonal",
    "to_numpy",
]
