"""The view of an attacker on sums: the opened total, and everything that the colluders know."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mooring.attacks.reconstruction import DoesNotApply
from mooring.errors import InputError
from mooring.learners.sums import Sums
from mooring.mechanisms.sums.class_moments import ClassLayout
from mooring.mechanisms.sums.guarantee import SumNoise
from mooring.mechanisms.sums.sums import Integers, SumLayout, quantise, require_codes
from mooring.typing import Indices, Matrix


@dataclass(frozen=True, eq=False)
class LabelledFeatures:
    """Rows as they enter the sums, in the units of `SumLayout.unpack`."""

    features: Matrix
    """Quantised φ, of shape (n, D)."""
    outcomes: Matrix
    """y, of shape (n, K)."""

    @classmethod
    def encode(cls, layout: SumLayout | ClassLayout, features: Matrix, labels: Matrix) -> LabelledFeatures:
        """Return quantised φ and encoded labels, as a participant computes them before adding them up.

        Sums by class round φ at random; this method leaves the rounding out. In these sums the label is an indicator of the
        class.

        Parameters
        ----------
        features : array of shape (n, D)
        labels : array of shape (n,)
            Class codes, or numbers in [−1, 1].
        """
        if isinstance(layout, ClassLayout):
            return cls(features, np.eye(layout.n_classes)[require_codes(labels, layout.n_classes)])
        outcomes = layout.outcome.encode(labels) / layout.outcome.unit
        return cls(quantise(features, layout.resolution) / layout.resolution, outcomes)

    def without_outcomes(self, places: Indices) -> LabelledFeatures:
        """Return some of the rows with a zero for the label."""
        return LabelledFeatures(self.features[places], np.zeros((len(places), 1)))


@dataclass(frozen=True, eq=False)
class MembershipScores:
    """The result of an attack: one score per candidate, which is higher for likely members."""

    scores: Matrix
    """Scores, of shape (n_candidates,); NaN for candidates that the attack cannot score."""
    rows: LabelledFeatures | None = None
    """Rows of honest participants, with their labels, that the attack reads off the total exactly; None if the attack does
    not do so."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TotalView:
    """What an attacker has of any total: the sums, and the contributions and rows of the colluders."""

    total: Integers
    """The opened total, of shape (size,)."""
    n_contributions: int
    """Number of contributions in the total."""
    known: tuple[Integers, ...] = ()
    """The colluders' contributions, including their noise, each of shape (size,)."""
    population: LabelledFeatures | None = None
    """The colluders' rows; None without colluders."""
    asked: LabelledFeatures | None = None
    """Candidate rows; for some attacks, all rows that could be members. None if there are no candidates."""

    @property
    def n_honest(self) -> int:
        """The number of contributions of honest participants."""
        return self.n_contributions - len(self.known)

    @property
    def honest_total(self) -> Integers:
        """The total minus the known contributions, of shape (size,)."""
        return np.asarray(self.total - sum(self.known, np.zeros_like(self.total)))

    @property
    def candidates(self) -> LabelledFeatures:
        """The candidate rows."""
        if self.asked is None:
            problem = "The view has no candidate rows to score."
            raise InputError("asked", problem=problem, cure="Pass candidates to `view` of the simulation.")
        return self.asked

    def require_population(self) -> LabelledFeatures:
        """Return the colluders' rows, or raise `DoesNotApply` if there are none."""
        if self.population is None:
            raise DoesNotApply("Nobody colludes, so no rows of the population are known.")
        if not len(self.population.features):
            raise DoesNotApply("The colluders have no rows of this class.")
        return self.population


@dataclass(frozen=True, eq=False, kw_only=True)
class SumView(TotalView):
    """The total of sums for one model, over all rows or those of one class."""

    layout: SumLayout
    """The layout of the sums, which is public, like the feature map and the noise."""
    constant_share: float
    """c₀ of the feature map: the square of the constant feature before it is quantised."""
    noise: SumNoise | None
    """The noise of each contribution; None in a study without noise."""

    @property
    def constant(self) -> float:
        """The quantised constant feature, which turns exact sums into exact counts."""
        return math.trunc(math.sqrt(self.constant_share) * self.layout.resolution) / self.layout.resolution

    @cached_property
    def honest(self) -> Sums:
        """The sums of honest participants: the total minus the known contributions."""
        S, T = self.layout.unpack(self.honest_total)
        scales = (0.0, 0.0) if self.noise is None else self.noise.scales(self.layout, self.n_honest)
        return Sums(S, T, self.constant**2, self.layout.outcome.n_classes, scales)

    def class_sums(self) -> Matrix:
        """Return Σφ over the honest rows of each class, of shape (D, n_classes)."""
        sums, K = self.honest, self.layout.outcome.n_classes
        if K == 0:
            raise DoesNotApply("The label is a number, so rows have no classes.")
        everything = sums.products[:, -1:] / self.constant
        if K == 2:
            return np.hstack([everything - sums.outcomes, everything + sums.outcomes]) / 2
        return np.asarray(sums.outcomes + everything / K)

    def joint_products(self) -> Matrix:
        """Return Σ (φ, y)(φ, y)ᵀ over the honest rows; if the label is a number, only Σ φφᵀ.

        Σ yyᵀ is not shared, but follows from the class counts. With more than two classes the last entry of y is left out,
        because the entries sum to zero.
        """
        sums, K = self.honest, self.layout.outcome.n_classes
        if K == 0:
            return sums.products
        counts = self.class_sums()[-1] / self.constant
        codes = np.array([[-1.0], [1.0]]) if K == 2 else (np.eye(K) - 1 / K)[:, :-1]
        crossed = sums.outcomes[:, : codes.shape[1]]
        return np.block([[sums.products, crossed], [crossed.T, codes.T @ (counts[:, None] * codes)]])

    def joint_features(self, rows: LabelledFeatures) -> Matrix:
        """Return (φ, y) of rows, as used in `joint_products`."""
        width = max(0, self.layout.outcome.n_classes - 1)
        return np.hstack([rows.features, rows.outcomes[:, :width]])
