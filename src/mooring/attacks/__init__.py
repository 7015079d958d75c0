"""What an analyst that colludes with participants can rebuild of another's rows: one file an attack."""

from mooring.attacks.denoising import denoised
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction
from mooring.attacks.registry import REGISTRY, Attack, run
from mooring.attacks.view import Accomplice, CollusionView

__all__ = ["REGISTRY", "Accomplice", "Attack", "CollusionView", "DoesNotApply", "Reconstruction", "denoised", "run"]
