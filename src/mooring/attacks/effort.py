"""How long the searches of attacks go on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """Iterations and candidates that attacks try; the defaults are what audits and studies use.

    Less effort makes an attack faster and weaker: what it recovers is still a lower bound, and a lower one.
    """

    first_iterations: int = 25
    """Steps of descent from each start, before the best one is followed (`moments`, `joint-moments`)."""
    stage_iterations: int = 60
    """Steps in each smoothed landscape before the last."""
    last_iterations: int = 200
    """Steps in the last landscape."""
    sign_rounds: int = 2
    """How often `moments` turns round axes that third moments vote against."""
    joint_rounds: int = 2
    """How often `joint-moments` matches every other participant to the rest."""
    component_iterations: int = 400
    """Iterations of FastICA (`independent-components`)."""
    class_rounds: int = 20
    """Rounds of expectation and maximisation of the latent-class model (denoiser `grid`)."""
    grid_sweeps: int = 100
    """Sweeps of the sampler of cells behind a projection (denoiser `grid`)."""
    grid_refits: int = 3
    """How often the model behind a projection is fitted again to drawn cells."""
    refit_sweeps: int = 40
    """Sweeps of the sampler before each of these fits."""
    known_shares: tuple[float, ...] = (0.0, 0.3, 0.6, 0.9, 20, 80)
    """c² of the kernels around known rows, of which the best is chosen; above 1, a number of neighbours (denoiser
    `kernel`)."""
    other_shares: tuple[float, ...] = (0.0, 0.5, 0.8, 0.95)
    """c² of the kernels around other participants' denoised rows."""
