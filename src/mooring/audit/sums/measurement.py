"""Secure sums at one ε after the other: membership by every attack, the ε measured, and what the joint model is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from mooring.attacks import DoesNotApply
from mooring.attacks.sums import SUM_ATTACKS, LabelledFeatures, SumView, score_membership, score_without_sums
from mooring.attacks.sums.register import MOST_CANDIDATES
from mooring.audit.operating_points import SumPoint
from mooring.audit.result import AttackOutcome, SumAudit, SumResult
from mooring.audit.specification import AuditSettings, SumSpec
from mooring.audit.sums.canaries import audit_epsilon
from mooring.audit.sums.simulation import SumSimulation, simulate_sums
from mooring.audit.utility import find_label_kind, mean_score
from mooring.learners import Gain, Score, compare, score
from mooring.learners.fitting import MOST_ALONE
from mooring.learners.registry import AUTO, resolve_sum_learner
from mooring.learners.sums import Sums
from mooring.mechanisms.sums.feature_map import FeatureMap, RowFeatures
from mooring.mechanisms.sums.guarantee import MOST_NUMBERS_A_ROW
from mooring.mechanisms.sums.picture_features import N_COMPONENTS, PictureFeatures, filters_of
from mooring.metrics import Membership
from mooring.tables import Partition
from mooring.typing import Matrix

Labels = npt.NDArray[Any]
_OTHER_SHARES = (0.2, 0.65)  # of the budget for S
_SIDES, _MOST_CHANNELS = (4, 256), 4  # of pictures whose features there are
_LEAST_OTHERS = 1000  # who are needed for a rate of 0.1 %


@dataclass(frozen=True, eq=False)
class SumAuditor:
    """Audits secure sums at one ε after the other on the same data."""

    partition: Partition
    """With labels to learn, and test rows."""
    settings: AuditSettings
    """With targets named."""
    alone: tuple[Score, Labels] | None = None
    """Training alone on the rows as they are: its score, and what each such model predicts of everybody's test rows, of
    shape (n_alone, n_test_rows)."""

    @property
    def spec(self) -> SumSpec:
        """How sums are audited."""
        return self.settings.sums or SumSpec()

    @cached_property
    def feature_map(self) -> FeatureMap:
        """The public map; that of pictures for images of a size that it takes."""
        shape = self.settings.evaluation.image_shape
        if self.spec.feature_map is not None or shape is None:
            return self.spec.feature_map or RowFeatures(self.partition.n_features)
        height, width, n_channels = (*shape, 1)[:3]
        sides = sorted((height, width))
        if not (_SIDES[0] <= sides[0] <= sides[1] <= _SIDES[1] and n_channels <= _MOST_CHANNELS):
            return RowFeatures(self.partition.n_features)
        n_components = min(N_COMPONENTS, filters_of(height, width).n_responses)
        return PictureFeatures(height, width, n_channels, n_components)

    @cached_property
    def _labels(self) -> tuple[Labels, Labels]:
        """All training and test labels, one participant after the other."""
        train = np.concatenate(cast("tuple[Labels, ...]", self.partition.train_labels))
        return train, np.concatenate(cast("tuple[Labels, ...]", self.partition.test_labels))

    @cached_property
    def _levels(self) -> Labels | None:
        """The classes; None for a number."""
        return np.unique(np.concatenate(self._labels)) if find_label_kind(self.partition) == "classes" else None

    def _encode(self, labels: Labels) -> Matrix:
        """Codes of classes, or numbers scaled to [−1, 1] by the largest magnitude, which a study would declare."""
        if self._levels is not None:
            return np.searchsorted(self._levels, labels).astype(np.float64)
        return np.asarray(labels / np.abs(np.concatenate(self._labels)).max(), dtype=np.float64)

    def point(self, epsilon: float | None) -> SumPoint:
        """The operating point with this ε."""
        spec, p = self.spec, self.partition.n_participants
        c = len(self.settings.colluders) if spec.n_colluders is None else spec.n_colluders
        return SumPoint(epsilon, spec.delta, spec.quorum or max(c + 1, p - p // 10), c, spec.product_share)

    def simulate(self, point: SumPoint) -> SumSimulation:
        """The study at this point, with the same draws for every one."""
        return simulate_sums(
            self.partition.train,
            [self._encode(part) for part in cast("tuple[Labels, ...]", self.partition.train_labels)],
            feature_map=self.feature_map,
            n_classes=0 if self._levels is None else len(self._levels),
            privacy=point.privacy,
            rng=np.random.default_rng([self.settings.seed, 12]),
        )

    def audit(self, point: SumPoint) -> SumResult:
        """Simulate, attack, train and score at one point."""
        simulation, settings = self.simulate(point), self.settings
        target, p = (settings.targets or (1,))[0], self.partition.n_participants
        others = tuple(i for i in range(p) if i != target)
        measured = None
        if point.privacy is not None:
            rng = np.random.default_rng([settings.seed, 13])
            measured = audit_epsilon(simulation.layout.outcome, point.privacy, rng=rng, n_runs=self.spec.n_runs)
        deployed, gain = self.score(simulation)
        rows = sorted(len(part) for part in simulation.features)[: point.quorum]
        return SumResult(
            point,
            self.attack(simulation, settings.colluders),
            self.attack(simulation, others) if len(others) > len(settings.colluders) else (),
            measured,
            point.epsilon is not None or simulation.layout.size <= MOST_NUMBERS_A_ROW * sum(rows),
            deployed,
            gain,
        )

    def split_budget(self, point: SumPoint) -> SumPoint:
        """The same ε with the split between S and T whose model scores best."""
        tried = [replace(point, product_share=share) for share in (point.product_share, *_OTHER_SHARES)]
        return max(tried, key=lambda one: self.score(self.simulate(one))[0].value)

    def result(self, results: Sequence[SumResult]) -> SumAudit:
        """All that was found, with what training alone scores on the same features."""
        n_rows = sum(len(part) for part in self.partition.train)
        return SumAudit(self.feature_map.n_features, n_rows, self._alone_with_features[0], tuple(results))

    def score(self, simulation: SumSimulation) -> tuple[Score, Gain | None]:
        """What the model from the total scores on everybody's test rows, and how much more than training alone."""
        kind, truth = cast("Any", find_label_kind(self.partition)), self._labels[1]
        predicted = self._predict(simulation.sums)
        choices = [self._alone_with_features, *([] if self.alone is None else [self.alone])]
        _, alone = max(choices, key=lambda choice: choice[0].value)
        groups = self.settings.evaluation.groups
        owners = None if groups is None else groups[np.concatenate(self.partition.test_indices)]
        found = score(truth, predicted, kind=kind, rng=np.random.default_rng([self.settings.seed, 2]))
        return found, compare(truth, predicted, alone, kind=kind, groups=owners)

    def attack(self, simulation: SumSimulation, colluders: Sequence[int]) -> tuple[AttackOutcome, ...]:
        """Membership of the honest rows against test rows, by every attack; colluders know their own test rows."""
        view = simulation.view(colluders)
        honest = simulation.members([i for i in range(self.partition.n_participants) if i not in colluders])
        asked = [i for i in range(self.partition.n_participants) if i not in self.settings.colluders]
        labels = cast("tuple[Labels, ...]", self.partition.test_labels)
        others = simulation.encode(
            np.concatenate([self.partition.test[i] for i in asked]),
            self._encode(np.concatenate([labels[i] for i in asked])),
        )
        rng = np.random.default_rng([self.settings.seed, 14])
        members = _sample(honest, MOST_CANDIDATES - min(_LEAST_OTHERS, len(others.features)), rng)
        outside = _sample(others, MOST_CANDIDATES - len(members.features), rng)
        is_register = len(members.features) == len(honest.features)
        both = zip(*((rows.features, rows.outcomes) for rows in (members, outside)), strict=True)
        candidates, n = LabelledFeatures(*(np.concatenate(part) for part in both)), len(members.features)
        control = None
        if colluders:
            guessed = score_without_sums(view, candidates)
            control = Membership(guessed[:n], guessed[n:])
        return tuple(
            _attacked(name, view, candidates, n, control)
            if is_register or name != "register"
            else AttackOutcome(name, reason="A register of all these rows would take too long to solve for.")
            for name in SUM_ATTACKS
        )

    @cached_property
    def _alone_with_features(self) -> tuple[Score, Labels]:
        """Models of each participant's own sums without noise: their mean score, and what each predicts."""
        simulation = self.simulate(SumPoint(None, self.spec.delta, 1, 0))
        chosen = np.unique(np.linspace(0, self.partition.n_participants - 1, MOST_ALONE).astype(np.intp))
        alone = np.stack([self._predict(simulation.sums_of(i)) for i in chosen])
        kind, rng = cast("Any", find_label_kind(self.partition)), np.random.default_rng([self.settings.seed, 1])
        return mean_score([score(self._labels[1], one, kind=kind, rng=rng) for one in alone]), alone

    @cached_property
    def _test_features(self) -> Matrix:
        return self.feature_map.apply(np.concatenate(self.partition.test))

    def _predict(self, sums: Sums) -> Labels:
        shrink = self.spec.shrink and not isinstance(self.feature_map, PictureFeatures)
        learner = resolve_sum_learner(AUTO, "number" if self._levels is None else "classes")
        predicted = learner.fit(sums, shrink=shrink).predict(self._test_features)
        if self._levels is None:
            return np.asarray(np.abs(np.concatenate(self._labels)).max() * predicted)
        return np.asarray(self._levels[predicted.astype(np.intp)])


def _sample(rows: LabelledFeatures, most: int, rng: np.random.Generator) -> LabelledFeatures:
    chosen = np.sort(rng.permutation(len(rows.features))[:most])
    return LabelledFeatures(rows.features[chosen], rows.outcomes[chosen])


def _attacked(
    name: str, view: SumView, candidates: LabelledFeatures, n_members: int, control: Membership | None
) -> AttackOutcome:
    try:
        scores = score_membership(name, view, candidates)
    except DoesNotApply as why:
        return AttackOutcome(name, reason=why.reason)
    members, others = (part[np.isfinite(part)] for part in (scores[:n_members], scores[n_members:]))
    if min(members.size, others.size) == 0:
        return AttackOutcome(name, reason="No candidate and no member of the class in question is left to compare.")
    return AttackOutcome(name, Membership(members, others).figures(control))
