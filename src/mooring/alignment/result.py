"""What an alignment gives back, whichever solver made it."""

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

    CONVERGED = "The maps rest: one more power-method step would move them by less than the tolerance."
    ITERATION_LIMIT = "The iteration limit was reached before the maps came to rest."
    STALLED = "No step improved the objective any further at this precision, though the tolerance was not met."
    CLOSED_FORM = "Two participants: the problem has a closed-form solution, and no iterations were needed."
    REFERENCE = "Everybody was aligned to the reference participant, which is exact for anchors without noise."
    SPECTRAL_ONLY = "Only the spectral estimate was asked for; it was not refined."

    def __str__(self) -> str:
        return self.value

    @property
    def is_unfinished(self) -> bool:
        """Whether an iterative solver stopped before its maps came to rest."""
        return self in (Termination.ITERATION_LIMIT, Termination.STALLED)


@dataclass(frozen=True, eq=False)
class Alignment:
    """Maps that bring every participant's upload into one coordinate system, and how they were found."""

    maps: tuple[RigidMap, ...]
    """One a participant; `maps[i].apply(representation)` lies in the common space."""
    template: Array
    """Of shape (r, d): the mean of the aligned, centred anchor representations, which late joiners are aligned to."""
    origin: Array
    """Of shape (d,): where the common space puts the anchor's mean, zero or the reference participant's."""
    objective: float
    """tr(Rᵀ G R), which the Procrustes solvers maximise."""
    misfit: float
    """The minimised sum of squared distances to the template: what the objective leaves over."""
    iterations: int
    """Solver iterations in all; not counted are the default solver's two power steps at the end where noise is
    small."""
    step: float
    """Length of the last step over the whole stack: ‖R_new − R_old‖_F, to first order for the default solver."""
    residual: float
    """‖Π(GR) − R‖_F / max(1, ‖R‖_F), the paper's fixed-point residual."""
    termination: Termination
    """Why the solver stopped; `str(termination)` is a sentence."""
    certificate: Certificate | None = None
    """Whether the objective is shown to be the global optimum; None if that was not asked for."""

    @property
    def converged(self) -> bool:
        """Whether the solver did what it is for: an iterative one came to rest, a one-step one was computed.

        Not converging is a normal outcome, not an error. What one-step maps are worth, `residual` says.
        """
        return not self.termination.is_unfinished

    def _repr_html_(self) -> str:
        figures = (f"{self.objective:.6g}", f"{self.misfit:.3g}", str(self.iterations), f"{self.residual:.1e}")
        table = [("objective", "misfit", "iterations", "residual"), figures]
        title = f"{len(self.maps)} participants. {self.termination}"
        return render_html(title, str(self.certificate or ""), tables=[table])

    def admit(self, anchor_representation: Array) -> RigidMap:
        """Align a late joiner to the template, moving nobody else.

        Parameters
        ----------
        anchor_representation : array of shape (r, d)
            The newcomer's upload, made with the same anchor.
        """
        return align_to_template(anchor_representation, self.template, origin=self.origin)


@dataclass(frozen=True, eq=False)
class BatchSolution:
    """What every solver returns for a batch of problems; `alignments` makes it public."""

    maps: Array
    """Of shape (n_problems, p, d, d)."""
    terminations: list[Termination]
    iterations: npt.NDArray[np.int64]
    step: npt.NDArray[np.float64]
    """Of shape (n_problems,): as in `Alignment`."""
    gap: npt.NDArray[np.float64]
    """Of shape (n_problems,): fixed-point gap; not a number where the solver did not compute it."""

    @classmethod
    def in_one_step(cls, maps: Array, termination: Termination) -> BatchSolution:
        """The solution of a solver that does not iterate."""
        n = int(maps.shape[0])
        return cls(maps, [termination] * n, np.zeros(n, dtype=np.int64), np.zeros(n), np.full(n, np.nan))

    def alignments(
        self, problem: ProcrustesProblem, *, origin: Array | None = None, tolerance: float = 0.0, certify: bool = False
    ) -> tuple[Alignment, ...]:
        """Put together an alignment a problem."""
        maps, xp = self.maps, namespace_of(self.maps)
        gaps = to_numpy(problem.fixed_point_gap(maps)) if np.isnan(self.gap).any() else self.gap
        p, d = problem.n_participants, problem.n_components
        origin = xp.zeros_like(problem.means[0, 0]) if origin is None else origin
        found = []
        for index, termination in enumerate(self.terminations):
            blocks, means, unit = problem.blocks[index], problem.means[index], float(problem.unit[index])
            S = blocks @ xp.reshape(maps[index], (p * d, d))
            objective, gap = unit**2 * float(xp.sum(S * S)), float(gaps[index])
            found.append(
                Alignment(
                    maps=tuple(RigidMap.from_centre(maps[index, i], means[i], origin) for i in range(p)),
                    template=(unit / p) * S,  # eq. gopp_C_update
                    origin=origin,
                    objective=objective,
                    misfit=unit**2 * float(xp.sum(blocks * blocks)) - objective / p,  # eq. gopp_optimal_value_relation
                    iterations=int(self.iterations[index]),
                    step=float(self.step[index]),
                    residual=gap / max(1.0, math.sqrt(p * d)),  # ‖R‖_F = √(pd)
                    termination=Termination.CONVERGED
                    if termination.is_unfinished and gap <= tolerance
                    else termination,
                    certificate=prove_optimal(problem, maps[index], index=index) if certify else None,
                )
            )
        return tuple(found)


def align_to_template(anchor_representation: Array, template: Array, *, origin: Array | None = None) -> RigidMap:
    """Find the alignment map that brings one anchor representation closest to a template.

    Parameters
    ----------
    anchor_representation : array of shape (r, d)
    template : array of shape (r, d)
        Centred.
    origin : array of shape (d,), optional
        Where the common space puts the anchor's mean; zero by default.
    """
    array = as_float64(anchor_representation)
    xp = namespace_of(array, template)
    if tuple(array.shape) != tuple(template.shape):
        raise InputError(
            "anchor_representation",
            expected=f"of shape {tuple(template.shape)} like the template",
            got=f"shape {tuple(array.shape)}",
            cure="Both are made from one anchor, row for row: use the study's anchor and projection.",
        )
    require_finite("anchor_representation", array, cure="Ask for the upload again.")
    mean = xp.mean(array, axis=0)
    centred = array - mean
    if not have_full_rank(centred):
        expected, cure = f"of rank {array.shape[1]} after centring", "The anchor is rank-poor: use the study's own."
        raise InputError("anchor_representation", expected=expected, got="less", cure=cure)
    origin = xp.zeros_like(mean) if origin is None else origin
    return RigidMap.from_centre(polar_factor(centred.T @ template), mean, origin)
