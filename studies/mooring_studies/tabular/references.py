"""What joining is measured against: participants alone, and everybody's rows pooled as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mooring.tables import Partition
from mooring_studies.tabular.deployment import Row
from mooring_studies.tabular.jobs import Job, renamed
from mooring_studies.tabular.scores import alone, leaning, ranked, scored, train


@dataclass(frozen=True, eq=False)
class _Alone:
    """Training on rows as they are, one participant's or everybody's, when it is called."""

    dealt: Partition
    who: Sequence[int]
    learners: Sequence[str]
    seed: int

    def __call__(self) -> Row:
        labels, test_labels = self.dealt.train_labels, self.dealt.test_labels
        assert labels is not None
        assert test_labels is not None
        rows = np.concatenate([self.dealt.train[i] for i in self.who])
        own = np.concatenate([labels[i] for i in self.who])
        columns: Row = {"anchor_noise_scale": 0.0, "data_noise_scale": 0.0, "n_own_rows": int(rows.shape[0])}
        for k, learner in enumerate(self.learners):
            found = alone(rows, own, self.dealt.test, test_labels, learner=learner, seed=self.seed)
            columns |= renamed(found, learner) if k else found
        return columns


@dataclass(frozen=True, eq=False)
class _EachOwn:
    """Every participant's own model on its own test rows, all predictions scored together, when it is called.

    Where populations differ, as hospitals' do, this is what joining has to beat: a model that was never meant for other
    hospitals' patients is not to blame for failing on them.
    """

    dealt: Partition
    learners: Sequence[str]
    seed: int

    def __call__(self) -> Row:
        dealt = self.dealt
        assert dealt.train_labels is not None
        assert dealt.test_labels is not None
        columns: Row = {"anchor_noise_scale": 0.0, "data_noise_scale": 0.0}
        for k, learner in enumerate(self.learners):
            models = [
                train(learner, rows, labels, seed=self.seed)
                for rows, labels in zip(dealt.train, dealt.train_labels, strict=True)
            ]
            pairs = [(model, test) for model, test in zip(models, dealt.test, strict=True) if len(test)]
            said = np.concatenate([model.predict(test) for model, test in pairs])
            found = scored(dealt.test_labels, clean=said, noisy=said)
            leans = [part for model, test in pairs if (part := leaning(model, test)) is not None]
            if len(leans) == len(pairs):
                found |= ranked(dealt.test_labels, np.concatenate(leans))
                found.pop("auc_clean", None)  # leanings of different models cannot be ranked together
            columns |= renamed(found, learner) if k else found
        return columns


def reference_jobs(dealt: Partition, *, learners: Sequence[str], most_alone: int, seed: int) -> list[Job]:
    """Participants alone, each own model on its own test rows, and everybody's rows pooled as they are."""
    p = dealt.n_participants
    chosen = np.unique(np.linspace(0, p - 1, min(most_alone, p)).round().astype(int)).tolist()
    alone_jobs: list[Job] = [({"method": "local-only", "draw": i}, _Alone(dealt, [i], learners, seed)) for i in chosen]
    return [
        *alone_jobs,
        ({"method": "local-own", "draw": 0}, _EachOwn(dealt, learners, seed)),
        ({"method": "pooled-raw", "draw": 0}, _Alone(dealt, range(p), learners, seed)),
    ]
