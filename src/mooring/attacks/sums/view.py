"""What an attacker on sums has: the total that was opened, and everything the colluders know."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mooring.attacks.reconstruction import DoesNotApply
from mooring.errors import InputError
from mooring.learners.sums import Sums
from mooring.mechanisms.sums.guarantee import SumNoise
from mooring.mechanisms.sums.sums import Integers, SumLayout, quantise
from mooring.typing import Matrix


@dataclass(frozen=True, eq=False)
class LabelledFeatures:
    """Rows as they enter the sums, in the units of `SumLayout.unpack`."""

    features: Matrix
    """Of shape (n, D): φ, quantised."""
    outcomes: Matrix
    """Of shape (n, K): y."""

    @classmethod
    def encode(cls, layout: SumLayout, features: Matrix, labels: Matrix) -> LabelledFeatures:
        """Quantise φ and encode labels, as a participant does before it adds them up.

        Parameters
        ----------
        features : array of shape (n, D)
        labels : array of shape (n,)
            Codes of classes, or numbers in [−1, 1].
        """
        outcomes = layout.outcome.encode(labels) / layout.outcome.unit
        return cls(quantise(features, layout.resolution) / layout.resolution, outcomes)


@dataclass(frozen=True, eq=False)
class MembershipScores:
    """What an attack says of the candidates: one score each, higher for those that it takes for members."""

    scores: Matrix
    """Of shape (n_candidates,); NaN for a candidate that the attack says nothing about."""


@dataclass(frozen=True, eq=False)
class SumView:
    """The total, the noise that everybody adds, and what the colluders contributed."""

    layout: SumLayout
    """Public, like the feature map and the noise."""
    constant_share: float
    """c₀ of the feature map."""
    total: Integers
    """Of shape (size,): what the analyst opened."""
    n_contributions: int
    """How many participants are in it."""
    noise: SumNoise | None
    """What each of them adds; None in a study without noise."""
    known: tuple[Integers, ...] = ()
    """Each of shape (size,): the colluders' contributions, noise included."""
    population: LabelledFeatures | None = None
    """The colluders' rows; None without colluders."""
    asked: LabelledFeatures | None = None
    """Rows whose membership is asked for; from some attacks, all that could be members."""

    @property
    def n_honest(self) -> int:
        """How many contributions are not known."""
        return self.n_contributions - len(self.known)

    @property
    def constant(self) -> float:
        """The constant feature, as it is quantised: exact sums tell exact counts."""
        return math.trunc(math.sqrt(self.constant_share) * self.layout.resolution) / self.layout.resolution

    @cached_property
    def honest(self) -> Sums:
        """The sums of those who do not collude: the total less what is known."""
        S, T = self.layout.unpack(self.total - sum(self.known, np.zeros_like(self.total)))
        scales = (0.0, 0.0) if self.noise is None else self.noise.scales(self.layout, self.n_honest)
        return Sums(S, T, self.constant**2, self.layout.outcome.n_classes, scales)

    @property
    def candidates(self) -> LabelledFeatures:
        """The rows whose membership is asked for."""
        if self.asked is None:
            raise InputError("asked", expected="rows to score", got="none", cure="Pass them to `SumSimulation.view`.")
        return self.asked

    def require_population(self) -> LabelledFeatures:
        """Return the colluders' rows, or say that the attack has none to compare with."""
        if self.population is None:
            raise DoesNotApply("Nobody colludes, so no rows of the population are known.")
        return self.population

    def class_sums(self) -> Matrix:
        """Σφ over the honest rows of each class, of shape (D, n_classes)."""
        sums, K = self.honest, self.layout.outcome.n_classes
        if K == 0:
            raise DoesNotApply("The label is a number, so rows have no classes.")
        everything = sums.products[:, -1:] / self.constant
        if K == 2:
            return np.hstack([everything - sums.outcomes, everything + sums.outcomes]) / 2
        return np.asarray(sums.outcomes + everything / K)

    def joint_products(self) -> Matrix:
        """Σ of (φ, y)(φ, y)ᵀ over the honest rows, as far as the sums tell; of φφᵀ alone for a number.

        Σyyᵀ is not shared, but follows from the counts of classes. Of more than two classes the last number of y is left
        out, since they add up to zero.
        """
        sums, K = self.honest, self.layout.outcome.n_classes
        if K == 0:
            return sums.products
        counts = self.class_sums()[-1] / self.constant
        codes = np.array([[-1.0], [1.0]]) if K == 2 else (np.eye(K) - 1 / K)[:, :-1]
        crossed = sums.outcomes[:, : codes.shape[1]]
        return np.block([[sums.products, crossed], [crossed.T, codes.T @ (counts[:, None] * codes)]])

    def joint_features(self, rows: LabelledFeatures) -> Matrix:
        """(φ, y) of rows, as `joint_products` has them."""
        width = max(0, self.layout.outcome.n_classes - 1)
        return np.hstack([rows.features, rows.outcomes[:, :width]])
