"""The analyst as a class, with a method for each step: collect, gather, train, open the total, export and deliver."""

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
    """Runs the analyst's long steps: `LocalEngine`, or `mooring.engines.dask.DaskEngine` for rotation on a cluster.

    Both accept the same bundles and align them in the same way. Models that they train may differ.
    """

    @property
    def collect(self) -> Callable[..., Intake]:
        """Accept one valid bundle per participant at an address, as `mooring.protocol.analyst.intake.collect` does."""

    def gather(self, study: Study, bundles: Sequence[Bundle], folder: Path, options: GatherOptions) -> GatherRecord:
        """Combine bundles that this engine collected, as `Exchange.gather` does."""

    def train(self, study: Study, folder: Path, options: TrainOptions) -> TrainingRecord:
        """Train on what was gathered, as `Exchange.train` does."""


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
        The study with its roster.
    folder : Path
        The work folder.
    signing_key : SigningKey, optional
        Needed to deliver, and to gather secure sums.
    engine : Engine, optional
        Collects, gathers and trains; by default in this process.
    """

    study: Study
    folder: Path
    signing_key: SigningKey | None = None
    engine: Engine = field(default_factory=LocalEngine, compare=False, repr=False)

    def collect(self, source: str | Path, *, progress: Progress | None = None) -> Intake:
        """Accept one valid bundle per participant at `source`; see `mooring.protocol.analyst.intake.collect`."""
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
            As for `mooring.protocol.rotation.analyst.alignment.align_bundles`; secure sums ignore both.
        receipts : path or str, optional
            The folder of the combiners' receipts, or its URL; rotation has no receipts.
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
            A learner that the study's mechanism trains. Rotation also takes a `Learner` object that you made.
        seed : int, default 0
            Random seed of the training and of the scores; secure sums ignore it.
        shares : path or str, optional
            The folder of the combiners' shares of the total, or its URL. Secure sums need it, and rotation ignores it.
        outcome : str, default ""
            The column to predict; empty for the study's label. From a general total, most columns can be predicted.
        """
        exchange_of(self.study).require_outcome(self.study, outcome)
        options = TrainOptions(learner, seed, shares, progress=progress, outcome=outcome)
        return self.engine.train(self.study, self.folder, options)

    def open_total(self, shares: str | Path) -> PairwiseTotal:
        """Open a general total, from which `mooring.mechanisms.sums.answers` reads answers; other studies have none.

        Parameters
        ----------
        shares : path or str
            The folder of the combiners' shares of the total, or its URL.
        """
        return exchange_of(self.study).open_total(self.study, self.folder, shares)

    def export(self, path: str | Path, *, force: bool = False) -> Path:
        """Copy the collaboration matrix of rotation to a file that other tools read; a study of secure sums has none."""
        return exchange_of(self.study).export(self.folder, Path(path), force=force)

    def deliver(self, output: str | Path, *, override: str = "") -> Delivery:
        """Write each participant's result.

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
