"""What the protocol hands to a mechanism's `Exchange`, and what the `Exchange` returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mooring.learners import LearnerLike
from mooring.learners.models import Model, Predicted
from mooring.mechanisms.settings import MechanismSettings
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.result import Release
from mooring.tables.schema import Schema
from mooring.typing import Matrix, Progress

if TYPE_CHECKING:  # attacks take a second to load, and only an assessment needs them
    from mooring.learners.models import FeatureMap
    from mooring.mechanisms.rotation.projection import Projection

AlignMode = Literal["first", "late", "again"]


@dataclass(frozen=True)
class GatherOptions:
    """The analyst's options for gathering bundles; a mechanism ignores those that it does not use."""

    mode: AlignMode = "first"
    """Whether to align everybody for the first time, only newcomers ("late"), or everybody again after a delivery."""
    certify: bool = True
    """Whether to try to prove that no better alignment exists."""
    receipts: str | Path | None = None
    """The folder of the combiners' receipts for bundles, or its URL."""
    signing_key: SigningKey | None = None
    """The analyst's signing key."""
    command: str = ""
    """The command that was run, for the record."""
    progress: Progress | None = None


@dataclass(frozen=True)
class MechanismDraft:
    """The table [mechanism] of a draft."""

    entries: dict[str, Any]
    above: str = ""
    below: str = ""
    """Comments above and below the entries."""


@dataclass(frozen=True, eq=False)
class PublicFile:
    """A file that is computed from public rows and lies beside the study's file, such as a projection."""

    arrays: Mapping[str, Matrix]
    """The arrays in the file, by name."""
    name_in: Callable[[str], MechanismSettings]
    """Takes the SHA-256 of the file, and returns the mechanism's settings with this digest."""
    description: str
    """The shape of the arrays, in words."""


@dataclass(frozen=True)
class AuditRequest:
    """Operating points that an audit compares with the study's own."""

    methods: Sequence[str] = ()
    """Methods of rotation."""
    anchor_noise_scales: Sequence[float] = ()
    data_noise_scales: Sequence[float] = ()
    """v and σ of these methods. If empty, the study's are used; for noise that the study does not have, those of drafts."""
    epsilons: Sequence[float | None] = ()
    """ε of secure sums; None for sums without noise."""


@dataclass(frozen=True, eq=False)
class AuditMaps:
    """The maps that an audit of a study applies to rows before it attacks what leaves."""

    projection: Projection
    """The map at operating points that share rows."""
    features: FeatureMap
    """The map at operating points that share sums."""


@dataclass(frozen=True)
class TrainOptions:
    """The analyst's options for training; a mechanism ignores those that it does not use."""

    learner: LearnerLike = "auto"
    seed: int = 0
    shares: str | Path | None = None
    """The folder of the combiners' shares of the total, or its URL."""
    command: str = ""
    """The command that was run, for the record."""
    progress: Progress | None = None
    outcome: str = ""
    """The column to predict; empty for the study's label."""


@dataclass(frozen=True, eq=False)
class Deliverable:
    """What the analyst hands back, before it is signed."""

    names: tuple[str, ...]
    """Participants who get a result."""
    model: Model | None
    source: str
    """Digest of what the model was trained on."""
    risk: float
    """Proportion of training rows that an attacker may recognise, as the study's limit measures it; 1 if unknown."""
    remedy: str
    """What would lower this risk, as an instruction without a full stop."""
    write_own: Callable[[Path, int, str, SigningKey], None]
    """Writes what one participant gets besides the model. The arguments are the participant's folder, its index in
    `names`, the digest of the signed model (empty without one) and the analyst's key."""


class Predictor(Protocol):
    """A delivered model as it applies to a participant's encoded rows."""

    @property
    def release(self) -> Release | None:
        """What an attacker may learn about the rows behind the model, where the study limits it."""

    @property
    def model_digest(self) -> str:
        """SHA-256 of the model; empty where none was delivered."""

    @property
    def schema(self) -> Schema:
        """The columns of the rows that the model takes; their label is what the model predicts."""

    def predict(self, rows: Matrix) -> Predicted:
        """Return class codes or numbers and, if the model gives them, the probabilities of the classes."""


@dataclass(frozen=True)
class SendableFile:
    """A signed file that may leave a participant's machine."""

    kind: str
    """The kind that its manifest states."""
    fields: tuple[str, ...]
    """Further fields of its manifest."""
    suffix: str
    """The ending of its file name."""
    is_sealed: bool
    """Whether its content is sealed to its recipients, so that the connection need not be protected."""
