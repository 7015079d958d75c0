"""Descriptions of methods, the perturbation kernel, anchors, projections, noise and privacy accounting."""

from mooring.mechanisms.accounting import Guarantee, NeighboringRelation, calibrate_gaussian, clip_rows
from mooring.mechanisms.rotation.anchors import check_anchor, make_anchor
from mooring.mechanisms.rotation.kernel import (
    ArrayNoise,
    GeneratorNoise,
    NoiseStream,
    Precision,
    RowMap,
    Upload,
    UploadNoise,
    add_noise,
    coupled_noise,
    map_rows,
    represent,
)
from mooring.mechanisms.rotation.methods import METHODS, Method, get_method
from mooring.mechanisms.rotation.projection import Projection, gaussian_projection, no_projection, public_svd_projection

__all__ = [
    "METHODS",
    "ArrayNoise",
    "GeneratorNoise",
    "Guarantee",
    "Method",
    "NeighboringRelation",
    "NoiseStream",
    "Precision",
    "Projection",
    "RowMap",
    "Upload",
    "UploadNoise",
    "add_noise",
    "calibrate_gaussian",
    "check_anchor",
    "clip_rows",
    "coupled_noise",
    "gaussian_projection",
    "get_method",
    "make_anchor",
    "map_rows",
    "no_projection",
    "public_svd_projection",
    "represent",
]
