"""What an analyst that colludes with participants can rebuild of another's rows: one file an attack."""

from mooring.attacks.decoding import LearnedDecoder, learn_decoder
from mooring.attacks.denoising import DENOISERS, denoise_by_gaussians
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, reconstruct
from mooring.attacks.registry import REGISTRY, Attack, run, run_batch
from mooring.attacks.view import Colluder, CollusionView, PublicRows

__all__ = [
    "DENOISERS",
    "REGISTRY",
    "Attack",
    "Colluder",
    "CollusionView",
    "DoesNotApply",
    "LearnedDecoder",
    "PublicRows",
    "Reconstruction",
    "denoise_by_gaussians",
    "learn_decoder",
    "reconstruct",
    "run",
    "run_batch",
]
