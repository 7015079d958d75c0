"""The analyst's part of a study, step by step: a thin mirror of the functions beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mooring.errors import InputError
from mooring.learners import LearnerLike
from mooring.protocol.analyst.alignment import Aligned, AlignMode, align_bundles
from mooring.protocol.analyst.collaboration_matrix import export
from mooring.protocol.analyst.delivery import Delivery, deliver
from mooring.protocol.analyst.intake import Intake, collect
from mooring.protocol.analyst.sum_total import Closing, close_list
from mooring.protocol.analyst.sum_training import SumTraining, train_sums
from mooring.protocol.analyst.training import Training, train
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.bundle import Bundle
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.sums.answers import LIST_FILE
from mooring.protocol.messages.sums.bundle import SumBundle
from mooring.typing import Progress


class Engine(Protocol):
    """Who does the analyst's long steps: `LocalEngine`, or `mooring.engines.dask.DaskEngine`, with the same maps."""

    @property
    def collect(self) -> Callable[..., Intake]:
        """Take the bundles at an address that hold up: `mooring.protocol.analyst.intake.collect`."""

    @property
    def align(self) -> Callable[..., Aligned]:
        """Bring what this engine collected into one space: `mooring.protocol.analyst.alignment.align_bundles`."""

    @property
    def train(self) -> Callable[..., Training]:
        """Train on the collaboration matrix, and score: `mooring.protocol.analyst.training.train`."""


class LocalEngine:
    """This process does everything itself."""

    collect = staticmethod(collect)
    align = staticmethod(align_bundles)
    train = staticmethod(train)


@dataclass(frozen=True)
class Analyst:
    """Who collects, aligns, trains and delivers, and never sees a raw row, an anchor or a secret.

    Parameters
    ----------
    study : Study
        With its roster.
    signing_key : SigningKey, optional
        Needed to deliver, and to close the list of secure sums.
    engine : Engine, optional
        Who collects, aligns and trains; this process unless told otherwise.
    """

    study: Study
    folder: Path
    signing_key: SigningKey | None = None
    engine: Engine = field(default_factory=LocalEngine, compare=False, repr=False)

    def collect(self, source: str | Path, *, progress: Progress | None = None) -> Intake:
        """Take the bundles at `source` that hold up; see `mooring.protocol.analyst.intake.collect`."""
        return self.engine.collect(self.study, source, self.folder, progress=progress)

    def align(
        self,
        bundles: Sequence[Bundle],
        *,
        mode: AlignMode = "first",
        certify: bool = True,
        progress: Progress | None = None,
    ) -> Aligned:
        """Bring bundles, from `collect`, into one space.

        Parameters
        ----------
        bundles, mode, certify, progress
            As for `mooring.protocol.analyst.alignment.align_bundles`.
        """
        return self.engine.align(self.study, bundles, self.folder, mode=mode, certify=certify, progress=progress)

    def train(self, learner: LearnerLike = "auto", *, seed: int = 0, progress: Progress | None = None) -> Training:
        """Train and score.

        Parameters
        ----------
        learner, seed, progress
            As for `mooring.protocol.analyst.training.train`.
        """
        return self.engine.train(self.study, self.folder, learner=learner, seed=seed, progress=progress)

    def close(self, bundles: Sequence[SumBundle], *, confirmations: str | Path | None = None) -> Closing:
        """Close the list of secure sums; see `mooring.protocol.analyst.sum_total.close_list`."""
        return close_list(self.study, bundles, self.folder, self._key, confirmations=confirmations)

    @property
    def closing_list(self) -> Path:
        """The signed list that `close` wrote, which combiners need."""
        return self.folder / LIST_FILE

    def train_sums(self, shares: str | Path, learner: str = "auto") -> SumTraining:
        """Open the total and train on it; see `mooring.protocol.analyst.sum_training.train_sums`."""
        return train_sums(self.study, self.folder, shares, learner=learner)

    def export(self, path: str | Path, *, force: bool = False) -> Path:
        """Copy the collaboration matrix; see `mooring.protocol.analyst.collaboration_matrix.export`."""
        return export(self.folder, path, force=force)

    def deliver(self, output: str | Path, *, override: str = "") -> Delivery:
        """Write everybody's result.

        Parameters
        ----------
        output, override
            As for `mooring.protocol.analyst.delivery.deliver`.
        """
        return deliver(self.study, self.folder, output, self._key, override=override)

    @property
    def _key(self) -> SigningKey:
        if self.signing_key is None:
            cure = "Pass Vault.open(folder).signing_key."
            raise InputError("signing_key", expected="the analyst's", got="none", cure=cure)
        return self.signing_key
