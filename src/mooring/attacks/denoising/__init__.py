"""Denoisers, which replace rebuilt rows by their posterior mean under a model of the population."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from mooring.attacks.denoising.gaussian import denoise_by_gaussians
from mooring.attacks.denoising.grid import denoise_by_grids
from mooring.attacks.denoising.kernel import denoise_by_kernels
from mooring.attacks.reconstruction import Reconstruction

Denoiser = Callable[..., Reconstruction]
"""Takes a `Reconstruction`, the `CollusionView` and, by keyword, a `numpy.random.Generator`. Returns a `Reconstruction`
whose rows are replaced by their posterior mean, or raises `DoesNotApply`."""

DENOISERS: Mapping[str, Denoiser] = MappingProxyType(
    {"gaussian": denoise_by_gaussians, "kernel": denoise_by_kernels, "grid": denoise_by_grids}
)
"""Every denoiser by name. An audit puts each attack's rows through all of them and reports the strongest."""

__all__ = ["DENOISERS", "Denoiser", "denoise_by_gaussians", "denoise_by_grids", "denoise_by_kernels"]
