"""The role of the analyst, whose methods call the functions of this folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mooring.errors import InputError
from mooring.learners import LearnerLike
from mooring.protocol.analyst.delivery import Delivery, deliver
from mooring.protocol.analyst.intake import Intake, collect
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.exchange_types import AlignMode, GatherOptions, TrainOptions
from mooring.protocol.messages.bundle import Bundle
from mooring.protocol.messages.study import Study
from mooring.protocol.registry import exchange_of
from mooring.protocol.results import GatherRecord, TrainingRecord
from mooring.typing import Progress

if TYPE_CHECKING:
    from mooring.mechanisms.sums.general.total import PairwiseTotal


class Engine(Protocol):
    """Runs the analyst's long steps: `LocalEngine`, or `mooring.engines.dask.DaskEngine`, with the same results."""

    @property
    def collect(self) -> Callable[..., Intake]:
        """Accept the valid bundles at an address: `mooring.protocol.analyst.intake.collect`."""

    def gather(self, study: Study, bundles: Sequence[Bundle], folder: Path, options: GatherOptions) -> GatherRecord:
        """Combine bundles that this engine collected: `Exchange.gather`."""

    def train(self, study: Study, folder: Path, options: TrainOptions) -> TrainingRecord:
        """Train on what was gathered: `Exchange.train`."""


class LocalEngine:
    """Runs everything in this process."""

    collect = staticmethod(collect)

    def gather(self, study: Study, bundles: Sequence[Bundle], folder: Path, options: GatherOptions) -> GatherRecord:
        """Combine verified bundles for training, as the study's mechanism does."""
        return exchange_of(study).gather(study, bundles, folder, options)

    def train(self, study: Study, folder: Path, options: TrainOptions) -> TrainingRecord:
        """Train on what was gathered, as the study's mechanism does."""
        return exchange_of(study).train(study, folder, options)


@dataclass(frozen=True)
class Analyst:
    """Collects, gathers, trains and delivers, and never sees a raw row, an anchor or a secret.

    Parameters
    ----------
    study : Study
        With its roster.
    signing_key : SigningKey, optional
        Needed to deliver, and to gather secure sums.
    engine : Engine, optional
        Runs collecting, gathering and training; by default this process.
    """

    study: Study
    folder: Path
    signing_key: SigningKey | None = None
    engine: Engine = field(default_factory=LocalEngine, compare=False, repr=False)

    def collect(self, source: str | Path, *, progress: Progress | None = None) -> Intake:
        """Accept the valid bundles at `source`; see `mooring.protocol.analyst.intake.collect`."""
        return self.engine.collect(self.study, source, self.folder, progress=progress)

    def gather(
        self,
        bundles: Sequence[Bundle],
        *,
        mode: AlignMode = "first",
        certify: bool = True,
        receipts: str | Path | None = None,
        progress: Progress | None = None,
    ) -> GatherRecord:
        """Combine bundles for training: rows in one space, or the signed list of contributions to a total.

        Parameters
        ----------
        bundles : sequence of Bundle
            From `collect`.
        mode, certify
            As for `mooring.protocol.rotation.analyst.alignment.align_bundles`; secure sums have no use for them.
        receipts : path or str, optional
            The folder of the combiners' receipts, or its URL; rotation has none.
        """
        options = GatherOptions(mode, certify, receipts, self.signing_key, progress=progress)
        return self.engine.gather(self.study, bundles, self.folder, options)

    def train(
        self,
        learner: LearnerLike = "auto",
        *,
        seed: int = 0,
        shares: str | Path | None = None,
        outcome: str = "",
        progress: Progress | None = None,
    ) -> TrainingRecord:
        """Train on what was gathered.

        Parameters
        ----------
        learner : str or Learner, default "auto"
            One of those that the study's mechanism trains; rotation also takes a learner of one's own.
        seed : int, default 0
            Random seed of the training and of the scores.
        shares : path or str, optional
            The folder of the combiners' shares of the total, or its URL; rotation has none.
        outcome : str, default ""
            The column to predict; empty for the study's label. A total of secure sums with questions predicts most columns.
        """
        exchange_of(self.study).require_outcome(self.study, outcome)
        options = TrainOptions(learner, seed, shares, progress=progress, outcome=outcome)
        return self.engine.train(self.study, self.folder, options)

    def open_total(self, shares: str | Path) -> PairwiseTotal:
        """Open the total of a study with questions, from which `mooring.mechanisms.sums.answers` reads answers.

        Parameters
        ----------
        shares : path or str
            The folder of the combiners' shares of the total, or its URL.
        """
        return exchange_of(self.study).open_total(self.study, self.folder, shares)

    def export(self, path: str | Path, *, force: bool = False) -> Path:
        """Copy what was gathered to a file that other tools read, such as the collaboration matrix of rotation."""
        return exchange_of(self.study).export(self.folder, Path(path), force=force)

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
