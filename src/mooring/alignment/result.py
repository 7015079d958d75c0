"""The result of an alignment, the same for every solver."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from mooring.alignment.certificate import Certificate, prove_optimal
from mooring.alignment.problem import ProcrustesProblem, have_full_rank
from mooring.errors import InputError
from mooring.geometry.backend import as_float64, namespace_of, require_finite, to_numpy
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.serialization import render_html
from mooring.typing import Array


class Termination(Enum):
    """Why a solver stopped, as a sentence."""

    CONVERGED = "Converged: another power-method step would move the maps by less than the tolerance."
    ITERATION_LIMIT = "The iteration limit was reached before the maps converged."
    STALLED = "No step improved the objective further at this precision, although the tolerance was not met."
    CLOSED_FORM = "The problem has a closed-form solution for two participants, so no iterations were needed."
    REFERENCE = "All participants were aligned to the reference participant, which is exact for anchors without noise."
    SPECTRAL_ONLY = "Only the spectral estimate was requested; it was not refined."

    def __str__(self) -> str:
        return self.value

    @property
    def is_unfinished(self) -> bool:
        """Whether an iterative solver stopped before its maps converged."""
        return self in (Termination.ITERATION_LIMIT, Termination.STALLED)


@dataclass(frozen=True, eq=False)
class Alignment:
    """Maps that bring every participant's upload into one coordinate system, and how they were found."""

    maps: tuple[RigidMap, ...]
    """One map per participant; `maps[i].apply(representation)` lies in the common space."""
    template: Array
    """Mean of the aligned, centred anchor representations, of shape (r, d). Late joiners are aligned to it."""
    origin: Array
    """The anchor's mean in the common space, of shape (d,): zero, or that of the reference participant."""
    objective: float
    """tr(Rᵀ G R), which the Procrustes solvers maximise."""
    misfit: float
    """The minimised sum of squared distances to the template."""
    iterations: int
    """Number of solver iterations, without the two final power steps of the default solver at low noise."""
    step: float
    """Length ‖R_new − R_old‖_F of the last step over the whole stack; to first order for the default solver."""
    residual: float
    """‖Π(GR) − R‖_F / max(1, ‖R‖_F), the paper's fixed-point residual."""
    termination: Termination
    """Why the solver stopped; `str(termination)` is a sentence."""
    certificate: Certificate | None = None
    """Whether the objective is proved to be the global optimum; None if no proof was requested."""

    @property
    def converged(self) -> bool:
        """Whether an iterative solver converged; always true for a solver without iterations.

        Not converging is a normal outcome, not an error. `residual` measures the quality of maps from any solver.
        """
        return not self.termination.is_unfinished

    @classmethod
    def from_sum(
        cls,
        maps: tuple[RigidMap, ...],
        weighted_sum: Array,
        origin: Array,
        *,
        squares: float,
        iterations: int,
        step: float,
        gap: float,
        termination: Termination,
        certificate: Certificate | None = None,
    ) -> Alignment:
        """Return the alignment with these maps, from S = Σ B̄_i R_i, Σ ‖B̄_i‖² (`squares`) and the fixed-point gap."""
        xp, p = namespace_of(weighted_sum), len(maps)
        objective = float(xp.sum(weighted_sum * weighted_sum))
        return cls(
            maps=maps,
            template=weighted_sum / p,  # eq. gopp_C_update
            origin=origin,
            objective=objective,
            misfit=squares - objective / p,  # eq. gopp_optimal_value_relation
            iterations=iterations,
            step=step,
            residual=gap / math.sqrt(p * weighted_sum.shape[-1]),  # ‖R‖_F = √(pd), which is above 1
            termination=termination,
            certificate=certificate,
        )

    def _repr_html_(self) -> str:
        figures = (f"{self.objective:.6g}", f"{self.misfit:.3g}", str(self.iterations), f"{self.residual:.1e}")
        table = [("objective", "misfit", "iterations", "residual"), figures]
        title = f"{len(self.maps)} participants. {self.termination}"
        return render_html(title, str(self.certificate or ""), tables=[table])

    def admit(self, anchor_representation: Array) -> RigidMap:
        """Return the map that aligns a late joiner to the template. The maps of other participants do not change.

        Parameters
        ----------
        anchor_representation : array of shape (r, d)
            The late joiner's upload, made with the same anchor.
        """
        return align_to_template(anchor_representation, self.template, origin=self.origin)


@dataclass(frozen=True, eq=False)
class BatchSolution:
    """A solver's result for a batch of problems; `alignments` returns it as public results."""

    maps: Array
    """Orthogonal maps, of shape (n_problems, p, d, d)."""
    terminations: list[Termination]
    iterations: npt.NDArray[np.int64]
    step: npt.NDArray[np.float64]
    """Length of the last step, as in `Alignment`, of shape (n_problems,)."""
    gap: npt.NDArray[np.float64]
    """Fixed-point gap, of shape (n_problems,); NaN where the solver did not compute it."""

    @classmethod
    def in_one_step(cls, maps: Array, termination: Termination) -> BatchSolution:
        """Return the solution of a solver without iterations."""
        n = int(maps.shape[0])
        return cls(maps, [termination] * n, np.zeros(n, dtype=np.int64), np.zeros(n), np.full(n, np.nan))

    def alignments(
        self, problem: ProcrustesProblem, *, origin: Array | None = None, tolerance: float = 0.0, certify: bool = False
    ) -> tuple[Alignment, ...]:
        """Return one alignment per problem, with the anchor's mean at `origin` (zero by default).

        Maps whose gap is at most the tolerance count as converged, even if the solver stalled or was stopped by its limit.
        """
        maps, xp = self.maps, namespace_of(self.maps)
        gaps = to_numpy(problem.fixed_point_gap(maps)) if np.isnan(self.gap).any() else self.gap
        p, d = problem.n_participants, problem.n_components
        origin = xp.zeros_like(problem.means[0, 0]) if origin is None else origin
        alignments = []
        for index, termination in enumerate(self.terminations):
            blocks, means, unit = problem.blocks[index], problem.means[index], float(problem.unit[index])
            reached = termination.is_unfinished and gaps[index] <= tolerance
            alignments.append(
                Alignment.from_sum(
                    tuple(RigidMap.from_centre(maps[index, i], means[i], origin) for i in range(p)),
                    unit * (blocks @ xp.reshape(maps[index], (p * d, d))),
                    origin,
                    squares=unit**2 * float(xp.sum(blocks * blocks)),
                    iterations=int(self.iterations[index]),
                    step=float(self.step[index]),
                    gap=float(gaps[index]),
                    termination=Termination.CONVERGED if reached else termination,
                    certificate=prove_optimal(problem, maps[index], index=index) if certify else None,
                )
            )
        return tuple(alignments)


def align_to_template(anchor_representation: Array, template: Array, *, origin: Array | None = None) -> RigidMap:
    """Return the alignment map that brings one anchor representation closest to a template.

    Parameters
    ----------
    anchor_representation : array of shape (r, d)
    template : array of shape (r, d)
        A centred matrix.
    origin : array of shape (d,), optional
        The anchor's mean in the common space; zero by default.
    """
    array = as_float64(anchor_representation)
    xp = namespace_of(array, template)
    if tuple(array.shape) != tuple(template.shape):
        raise InputError(
            "anchor_representation",
            expected=f"of shape {tuple(template.shape)} like the template",
            got=f"shape {tuple(array.shape)}",
            cure="Both must be made from the same anchor: use the study's anchor and projection.",
        )
    require_finite("anchor_representation", array, cure="Request the upload again.")
    mean = xp.mean(array, axis=0)
    centred = array - mean
    if not have_full_rank(centred):
        expected, cure = f"of rank {array.shape[1]} after centring", "Use the study's anchor, which has full rank."
        raise InputError("anchor_representation", expected=expected, got="a lower rank", cure=cure)
    origin = xp.zeros_like(mean) if origin is None else origin
    return RigidMap.from_centre(polar_factor(centred.T @ template), mean, origin)
