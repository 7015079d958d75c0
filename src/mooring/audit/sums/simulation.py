"""A simulated study of sums: everybody's contributions as `share` makes them, the total, and what an attacker has of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mooring.attacks.sums import LabelledFeatures, SumView
from mooring.attacks.view import check_roles
from mooring.errors import InputError
from mooring.learners.sums import Sums
from mooring.mechanisms.sums.feature_map import FeatureMap
from mooring.mechanisms.sums.guarantee import SumNoise, SumPrivacy, calibrate_sums
from mooring.mechanisms.sums.prime_field import Words
from mooring.mechanisms.sums.sums import Integers, Outcome, SumAccumulator, SumLayout
from mooring.randomness import Streams
from mooring.typing import Matrix


@dataclass(frozen=True, eq=False)
class SumSimulation:
    """A study of sums with all its secrets."""

    layout: SumLayout
    feature_map: FeatureMap
    noise: SumNoise | None
    """What each participant added; None without noise."""
    features: tuple[Matrix, ...] = field(repr=False)
    """Each of shape (n_i, D): φ of every participant's rows."""
    labels: tuple[Matrix, ...] = field(repr=False)
    """Each of shape (n_i,)."""
    contributions: tuple[Integers, ...] = field(repr=False)
    """Each of shape (size,): the sums over one participant's rows, and noise."""

    @cached_property
    def total(self) -> Integers:
        """What the analyst opens."""
        return np.asarray(np.sum(self.contributions, axis=0))

    @property
    def sums(self) -> Sums:
        """The total as learners take it."""
        return self._as_sums(self.total, len(self.contributions))

    def sums_of(self, participant: int) -> Sums:
        """One contribution as learners take it."""
        return self._as_sums(self.contributions[participant], 1)

    def _as_sums(self, vector: Integers, n_contributions: int) -> Sums:
        scales = (0.0, 0.0) if self.noise is None else self.noise.scales(self.layout, n_contributions)
        S, T = self.layout.unpack(vector)
        features = self.feature_map
        return Sums(S, T, features.constant_share, self.layout.outcome.n_classes, scales, features.unit_length)

    def view(self, colluders: Sequence[int] = (0,)) -> SumView:
        """What the analyst and these participants know together; nothing that the others keep to themselves."""
        p = len(self.contributions)
        check_roles(next((i for i in range(p) if i not in colluders), 0), colluders, p)
        return SumView(
            self.layout,
            self.feature_map.constant_share,
            self.total,
            p,
            self.noise,
            tuple(self.contributions[c] for c in colluders),
            self.members(colluders) if colluders else None,
        )

    def members(self, participants: Sequence[int]) -> LabelledFeatures:
        """The rows of these participants, as they entered the sums."""
        parts = [(self.features[i], self.labels[i]) for i in participants]
        return LabelledFeatures.encode(self.layout, *(np.concatenate(part) for part in zip(*parts, strict=True)))

    def encode(self, rows: Matrix, labels: Matrix) -> LabelledFeatures:
        """Other rows, as they would enter the sums."""
        return LabelledFeatures.encode(self.layout, self.feature_map.apply(rows), labels)


def simulate_sums(
    datasets: Sequence[Matrix],
    labels: Sequence[Matrix],
    *,
    feature_map: FeatureMap,
    n_classes: int,
    privacy: SumPrivacy | None,
    rng: np.random.Generator | Streams,
    rows_of_person: Sequence[Integers] | None = None,
) -> SumSimulation:
    """Run a study of sums from encoded rows to the total.

    Parameters
    ----------
    datasets : sequence of arrays of shape (n_i, n_features)
        Every participant's encoded rows.
    labels : sequence of arrays of shape (n_i,)
        Codes of classes, or numbers in [−1, 1].
    n_classes : int
        0 for a number.
    privacy : SumPrivacy or None
        None for sums without noise, which carry no guarantee.
    rng : numpy.random.Generator or Streams
        Participant i draws its noise from the stream "participant/i/sum-noise".
    rows_of_person : sequence of integers of shape (n_i,), optional
        How many rows the person of each row has: the mean over each person's rows is added. Without it, rows are.

    Examples
    --------
    >>> from mooring.mechanisms.sums.feature_map import RowFeatures
    >>> rng = np.random.default_rng(0)
    >>> rows, labels = [rng.standard_normal((30, 3)) for _ in range(3)], [rng.integers(0, 2, 30) for _ in range(3)]
    >>> simulation = simulate_sums(rows, labels, feature_map=RowFeatures(3), n_classes=2, privacy=None, rng=rng)
    >>> round(simulation.sums.n_rows)
    90
    """
    streams = rng if isinstance(rng, Streams) else Streams.drawn(rng)
    layout = SumLayout(feature_map.n_features, Outcome(n_classes))
    if privacy is not None and privacy.quorum > len(datasets):
        raise InputError(
            "quorum",
            expected=f"at most the {len(datasets)} participants",
            got=str(privacy.quorum),
            cure="No total could be opened.",
        )
    noise = None if privacy is None else calibrate_sums(layout, privacy)
    features = tuple(feature_map.apply(rows) for rows in datasets)
    contributions = []
    for i, (phi, own) in enumerate(zip(features, labels, strict=True)):
        sums = SumAccumulator(layout)
        sums.add(phi, own, None if rows_of_person is None else rows_of_person[i])
        words = words_from(streams.named(f"participant/{i}/sum-noise"))
        contributions.append(sums.vector if noise is None else sums.vector + noise.draw(layout, words))
    return SumSimulation(layout, feature_map, noise, features, tuple(labels), tuple(contributions))


def words_from(rng: np.random.Generator) -> Words:
    """A stream of uniform words for experiments; a participant's own come from its secret."""
    return lambda count: rng.integers(2**64, size=count, dtype=np.uint64)
