"""Orthogonal matrices and rigid maps, on NumPy or torch."""

from mooring.geometry.orthogonal import orthogonality_defect, polar_factor, sample_orthogonal
from mooring.geometry.rigid import RigidMap, rotation_spread

__all__ = ["RigidMap", "orthogonality_defect", "polar_factor", "rotation_spread", "sample_orthogonal"]
