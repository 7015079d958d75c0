"""What an alignment gives back, whichever solver made it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from mooring.alignment.certificate import Certificate
from mooring.alignment.problem import ProcrustesProblem, centred_newcomer
from mooring.geometry.backend import namespace_of
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.typing import Array


class Termination(Enum):
    """Why a solver stopped, as a sentence."""

    CONVERGED = "The maps rest: one more power-method step would move them by less than the tolerance."
    ITERATION_LIMIT = "The iteration limit was reached before the maps came to rest."
    STALLED = "No step improved the objective any further at this precision, though the tolerance was not met."
    CLOSED_FORM = "Two participants: the problem has a closed-form solution, and no iterations were needed."
    REFERENCE = "Everybody was aligned to the reference participant, which is exact for anchors without noise."
    SPECTRAL_ONLY = "Only the spectral estimate was asked for; it was not refined."

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, eq=False)
class Alignment:
    """Maps that bring every participant's upload into one coordinate system, and how they were found.

    Attributes
    ----------
    maps : tuple of RigidMap
        One a participant; `maps[i].apply(representation)` lies in the common space.
    template : array of shape (r, d)
        The mean of the aligned, centred anchor representations: what late joiners are aligned to.
    origin : array of shape (d,)
        Where the common space puts the anchor's mean: zero, or the reference participant's.
    objective : float
        tr(Rᵀ G R), which the Procrustes solvers maximise.
    misfit : float
        The minimised sum of squared distances to the template: what the objective leaves over.
    iterations : int
        Solver iterations in all.
    step : float
        Length of the last step over the whole stack: ‖R_new − R_old‖_F, to first order for the default solver, and 0 if
        that step was not taken.
    residual : float
        ‖Π(GR) − R‖_F / max(1, ‖R‖_F), the paper's fixed-point residual.
    termination : Termination
        Why the solver stopped; `str(termination)` is a sentence.
    certificate : Certificate or None
        Whether the objective is shown to be the global optimum; None if that was not asked for.
    """

    maps: tuple[RigidMap, ...]
    template: Array
    origin: Array
    objective: float
    misfit: float
    iterations: int
    step: float
    residual: float
    termination: Termination
    certificate: Certificate | None = None

    @property
    def converged(self) -> bool:
        """Whether the solver did what it is for: an iterative one came to rest, a one-step one was computed.

        Not converging is a normal outcome, not an error. What one-step maps are worth, `residual` says.
        """
        return self.termination not in (Termination.ITERATION_LIMIT, Termination.STALLED)

    def admit(self, anchor_representation: Array) -> RigidMap:
        """Align a late joiner to the template, moving nobody else.

        Parameters
        ----------
        anchor_representation : array of shape (r, d)
            The newcomer's upload, made with the same anchor.
        """
        centred, mean = centred_newcomer(anchor_representation, template=self.template)
        return map_around(polar_factor(centred.T @ self.template), mean, self.origin)


def alignment_of(
    problem: ProcrustesProblem,
    maps: Array,
    *,
    index: int,
    origin: Array,
    iterations: int,
    step: float,
    gap: float,
    termination: Termination,
    certificate: Certificate | None = None,
) -> Alignment:
    """Put together what problem `index` of a batch gives back, from its maps (p, d, d) and how they were found."""
    xp = namespace_of(maps)
    p, d = problem.n_participants, problem.n_components
    blocks, means, unit = problem.blocks[index], problem.means[index], float(problem.unit[index])
    S = blocks @ xp.reshape(maps, (p * d, d))
    objective = unit**2 * float(xp.sum(S * S))
    return Alignment(
        maps=tuple(map_around(maps[participant], means[participant], origin) for participant in range(p)),
        template=(unit / p) * S,  # eq. gopp_C_update
        origin=origin,
        objective=objective,
        misfit=unit**2 * float(xp.sum(blocks * blocks)) - objective / p,  # eq. gopp_optimal_value_relation
        iterations=iterations,
        step=step,
        residual=gap / max(1.0, math.sqrt(p * d)),  # ‖R‖_F = √(pd)
        termination=termination,
        certificate=certificate,
    )


def map_around(orthogonal: Array, mean: Array, origin: Array) -> RigidMap:
    """The alignment map T ↦ (T − 1 bᵀ) R + 1 oᵀ (eq. paigdp_alignment_map, and Algorithm 2 with o = b_s)."""
    return RigidMap(orthogonal, origin - mean @ orthogonal)
