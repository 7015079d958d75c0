"""What an analyst that colludes with participants can rebuild of another's rows: one file an attack."""

from mooring.attacks.alignment_map import alignment_map_estimate
from mooring.attacks.decoding import LearnedDecoder, learn_decoder
from mooring.attacks.denoising import denoise
from mooring.attacks.moments import moments_batch
from mooring.attacks.procrustes import procrustes_estimate
from mooring.attacks.pseudoinverse import pseudoinverse_estimate
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, reconstruct
from mooring.attacks.registry import REGISTRY, Attack, run
from mooring.attacks.view import Colluder, CollusionView

__all__ = [
    "REGISTRY",
    "Attack",
    "Colluder",
    "CollusionView",
    "DoesNotApply",
    "LearnedDecoder",
    "Reconstruction",
    "alignment_map_estimate",
    "denoise",
    "learn_decoder",
    "moments_batch",
    "procrustes_estimate",
    "pseudoinverse_estimate",
    "reconstruct",
    "run",
]
