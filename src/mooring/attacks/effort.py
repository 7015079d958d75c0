"""How much work attacks do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """The numbers of iterations and candidates of attacks.

    Audits and studies use the defaults. Less effort makes an attack faster and weaker: what it recovers is still a lower
    bound, but a smaller one.
    """

    first_iterations: int = 25
    """Steps of descent from each start, before the best one is followed (`moments`, `joint-moments`)."""
    stage_iterations: int = 60
    """Steps on each smoothed objective (`moments`)."""
    last_iterations: int = 200
    """Steps on the objective without smoothing."""
    sign_rounds: int = 2
    """How often `moments` reverses axes that third moments vote against."""
    joint_rounds: int = 2
    """How often `joint-moments` matches every other participant to the rest."""
    joint_participants: int = 30
    """Maximum number of other participants whose maps `joint-moments` searches for; without anchor noise, all are used."""
    component_iterations: int = 400
    """Iterations of FastICA (`independent-components`)."""
    component_rows: int = 20_000
    """Maximum number of rows that FastICA is fitted to."""
    assigned_rows: int = 2000
    """Maximum number of rows that `repeated-upload` pairs by assignment, at cubic cost; more are paired with the closest."""
    class_rounds: int = 20
    """Rounds of expectation and maximisation of the latent-class model (denoiser `grid`)."""
    latent_classes: int = 16
    """Latent classes of that model without a projection."""
    grid_models: int = 4
    """Models without a projection, from different starts, whose answers are averaged."""
    projected_classes: int = 32
    """Latent classes behind a projection."""
    grid_rows: int = 8192
    """Maximum number of noisy rows that the model is fitted to without a projection, if maps are known exactly."""
    refit_rows: int = 500
    """Maximum number of noisy rows that the model is fitted to behind a projection."""
    refit_below: int = 1000
    """The model behind a projection is fitted to noisy rows only if fewer records than this are known."""
    grid_chains: int = 4
    """Independent runs of the sampler of cells behind a projection (denoiser `grid`)."""
    grid_sweeps: int = 200
    """Sweeps of each run of the sampler."""
    grid_refits: int = 3
    """How often the model behind a projection is fitted again to drawn cells."""
    refit_sweeps: int = 40
    """Sweeps of the sampler before each of these fits."""
    known_shares: tuple[float, ...] = (0.0, 0.3, 0.6, 0.9, 20, 80)
    """c² of the kernels around known rows, of which the best is chosen; above 1, a number of neighbours (denoiser
    `kernel`)."""
    kernel_centres: int = 4096
    """Maximum number of known rows of a class whose neighbours are sought."""
    other_shares: tuple[float, ...] = (0.0, 0.5, 0.8, 0.95)
    """c² of the kernels around other participants' denoised rows."""
    refine_rounds: int = 45
    """Rounds of denoising and aligning for declared columns without private-data noise (`refine`)."""
    refine_class_rounds: int = 3
    """Rounds of expectation and maximisation of the latent-class model in each of them."""
    refine_few_rounds: int = 8
    """Rounds of denoising and aligning for declared columns with private-data noise."""
    refine_kernel_rounds: int = 45
    """Rounds of denoising and aligning without declared columns, or behind a projection."""
    refine_rows: int = 1000
    """Maximum number of rows of participants whose maps are refined together for declared columns."""
    refine_again: int = 3
    """Maximum number of times that every row is denoised again, with a map found from all other rows."""
    refine_again_rounds: int = 6
    """Rounds of denoising and aligning after each of these times."""
    refine_shares: tuple[float, ...] = (50,)
    """The values that replace `known_shares` in the rounds without declared columns. A class with fewer known rows than
    twice this number of neighbours has a kernel around each known row instead."""
    refine_centres: int = 600
    """The value that replaces `kernel_centres` in these rounds."""


_current = Effort()


def current_effort() -> Effort:
    """Return the effort of views and audits that are not given one."""
    return _current


def set_effort(effort: Effort) -> Effort:
    """Change the effort of views and audits that are not given one, in this process; return the previous one.

    Parameters
    ----------
    effort : Effort
        Tests and first looks may use little effort. Whoever bases a decision on an audit should use the default, `Effort()`.
    """
    global _current
    previous, _current = _current, effort
    return previous
