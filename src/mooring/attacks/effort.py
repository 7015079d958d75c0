"""How much work attacks do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """Limits on the iterations and candidates of attacks.

    Audits and studies use the defaults. Less effort makes an attack faster and usually weaker: what such an attack recovers
    is still a lower bound on leakage, but often a smaller one.
    """

    first_iterations: int = 25
    """Maximum number of steps from each start, before the best start is followed (`moments`, `joint-moments`). For
    participants other than the target, `joint-moments` also follows the best start for at most this many steps."""
    stage_iterations: int = 60
    """Maximum number of steps on each smoothed objective (`moments`)."""
    last_iterations: int = 200
    """Maximum number of steps on the objective without smoothing (`moments`, and `joint-moments` for the target)."""
    sign_rounds: int = 2
    """Maximum number of rounds, for each smoothing, in which `moments` reverses axes that third moments vote against."""
    joint_rounds: int = 2
    """How often `joint-moments` matches every other participant to the rest."""
    joint_participants: int = 30
    """Maximum number of other participants whose maps `joint-moments` searches for; without anchor noise, all are used."""
    component_iterations: int = 400
    """Maximum number of iterations of FastICA (`independent-components`)."""
    component_rows: int = 20_000
    """Maximum number of rows that FastICA is fitted to."""
    assigned_rows: int = 2000
    """Maximum number of rows that `repeated-upload` pairs by assignment, at cubic cost. If there are more rows, every row is
    paired with the closest one."""
    class_rounds: int = 20
    """Rounds of expectation and maximisation of the latent-class model (denoiser `grid`)."""
    latent_classes: int = 16
    """Maximum number of latent classes of that model without a projection."""
    grid_models: int = 4
    """Models without a projection, from different starts, whose probabilities are averaged. `refine` fits one model if there
    is no private-data noise."""
    projected_classes: int = 32
    """Maximum number of latent classes behind a projection."""
    grid_rows: int = 8192
    """Maximum number of noisy rows that models are fitted to if maps are known exactly."""
    refit_rows: int = 500
    """Maximum number of noisy rows that the model behind a projection is fitted to."""
    refit_below: int = 1000
    """If fewer records than this are known, the model behind a projection is also fitted to noisy rows."""
    grid_chains: int = 4
    """Independent runs of the sampler of cells behind a projection (denoiser `grid`)."""
    grid_sweeps: int = 200
    """Sweeps of each run of the sampler."""
    grid_refits: int = 3
    """How often the model behind a projection is fitted again, to drawn cells of noisy rows, if few records are known."""
    refit_sweeps: int = 40
    """Sweeps of the sampler before each of these fits."""
    known_shares: tuple[float, ...] = (0.0, 0.3, 0.6, 0.9, 20, 80)
    """Values of c² for the kernels around known rows (denoiser `kernel`). The value with the lowest estimated risk is used;
    a value above 1 is a number of neighbours."""
    kernel_centres: int = 4096
    """Maximum number of known rows of a class whose neighbours are sought."""
    other_shares: tuple[float, ...] = (0.0, 0.5, 0.8, 0.95)
    """Values of c² for the kernels around other participants' denoised rows."""
    refine_rounds: int = 45
    """Rounds of denoising and aligning in `refine`, for declared columns without a projection and without private-data
    noise."""
    refine_class_rounds: int = 3
    """Rounds of expectation and maximisation of the latent-class model, which replace `class_rounds` in each of these
    rounds."""
    refine_few_rounds: int = 8
    """Rounds of denoising and aligning in the same case, but with private-data noise."""
    refine_kernel_rounds: int = 45
    """Rounds of denoising and aligning without declared columns, or behind a projection."""
    refine_rows: int = 1000
    """For declared columns, maps of participants are refined together: the first ones, up to this number of rows, and the
    target's."""
    refine_again: int = 3
    """Maximum number of times that every row is denoised again, with a map found from all other rows."""
    refine_again_rounds: int = 6
    """Rounds of denoising and aligning each time."""
    refine_shares: tuple[float, ...] = (50,)
    """The values that replace `known_shares` in the rounds of `refine_kernel_rounds`. A class with fewer known rows than
    twice a number of neighbours has a kernel around each known row instead."""
    refine_centres: int = 600
    """The value that replaces `kernel_centres` in the same rounds."""


_current = Effort()


def current_effort() -> Effort:
    """Return the effort that views and audits have by default."""
    return _current


def set_effort(effort: Effort) -> Effort:
    """Set the effort that views and audits have by default in this process, and return the previous default.

    Parameters
    ----------
    effort : Effort
        Tests and first looks may use little effort. Whoever bases a decision on an audit should use the default, `Effort()`.
    """
    global _current
    previous, _current = _current, effort
    return previous
