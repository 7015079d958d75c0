"""What the protocol asks of a mechanism: one `Exchange` object each, in an open registry.

Everything that the mechanisms have in common (study file, roster, vault, ledger, transport, intake, delivery, prediction)
calls `exchange_of(study)` and never asks which mechanism it is. A mechanism from outside is registered with
`register_exchange`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mooring.errors import InputError, RefusedError, require_choice
from mooring.learners import LearnerLike
from mooring.learners.models import Model, ModelSpec, Predicted
from mooring.mechanisms.rotation.settings import RotationSettings
from mooring.mechanisms.settings import MechanismSettings
from mooring.mechanisms.sums.settings import SumSettings
from mooring.mechanisms.sums.sums import PersonCounts
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.bundle import Bundle
from mooring.protocol.messages.model import MODEL_FILE, MOST_MODEL_BYTES
from mooring.protocol.messages.result import Release
from mooring.protocol.messages.study import Study
from mooring.protocol.results import Consent, ShareResult, StepResult
from mooring.protocol.step import Addition, Step
from mooring.protocol.storage.vault import Floors, Vault
from mooring.serialization import Rows
from mooring.tables.encoder import EncodedRows
from mooring.typing import Matrix, Progress, TableSource

if TYPE_CHECKING:  # attacks take a second to load, which sharing need not wait for
    from mooring.audit import AuditResult, OperatingPoint, PointResult
    from mooring.learners.models import FeatureMap
    from mooring.mechanisms.rotation.projection import Projection
    from mooring.protocol.description import Description
    from mooring.protocol.inspection import Inspection
    from mooring.tables import Partition

AlignMode = Literal["first", "late", "again"]


@dataclass(frozen=True)
class GatherOptions:
    """How the analyst asked for bundles to be gathered; a mechanism ignores what it has no use for."""

    mode: AlignMode = "first"
    """Whether to align everybody for the first time, only newcomers ("late"), or everybody again after a delivery."""
    certify: bool = True
    """Whether to try to prove that no better alignment exists."""
    confirmations: Path | None = None
    """The folder of the combiners' confirmations."""
    signing_key: SigningKey | None = None
    """The analyst's."""
    command: str = ""
    """How the step was asked for, for the record."""
    progress: Progress | None = None


@dataclass(frozen=True)
class MechanismDraft:
    """The table [mechanism] of a draft."""

    entries: dict[str, Any]
    above: str = ""
    below: str = ""
    """Comments around the entries."""


@dataclass(frozen=True, eq=False)
class PublicFile:
    """A file beside a study that is computed from public rows, such as a projection."""

    arrays: Mapping[str, Matrix]
    """The arrays in the file, by name."""
    name_in: Callable[[str], MechanismSettings]
    """Returns the study's settings with the file's SHA-256, which is its argument."""
    description: str
    """The shape of the arrays, in words."""


@dataclass(frozen=True)
class AuditRequest:
    """Operating points that an audit compares with the study's own."""

    methods: Sequence[str] = ()
    """Methods of rotation."""
    anchor_noise_scales: Sequence[float] = ()
    data_noise_scales: Sequence[float] = ()
    """v and σ of these methods. If empty, those of the study are used."""
    epsilons: Sequence[float | None] = ()
    """ε of secure sums; None for sums without noise."""


class Gathered(Protocol):
    """What gathering bundles gives back."""

    @property
    def is_whole(self) -> bool:
        """Whether nobody's bundle was left out."""

    @property
    def left_out(self) -> Mapping[str, str]:
        """Participants whose bundle was left out, and why."""

    def as_dict(self) -> dict[str, Any]:
        """The record in plain values, for JSON."""

    def describe(self) -> list[str]:
        """Sentences on what was done, and what comes next."""

    def list_contributions(self) -> Rows:
        """A line a participant, headings first."""


@dataclass(frozen=True)
class TrainOptions:
    """How the analyst asked for a model; a mechanism ignores what it has no use for."""

    learner: LearnerLike = "auto"
    seed: int = 0
    shares: Path | None = None
    """The folder of the combiners' shares of the total."""
    command: str = ""
    """How the step was asked for, for the record."""
    progress: Progress | None = None


class Trained(Protocol):
    """What training gives back."""

    @property
    def learner(self) -> str:
        """What was trained."""

    @property
    def model_digest(self) -> str:
        """SHA-256 of the model."""

    @property
    def is_whole(self) -> bool:
        """Whether nobody's contribution was left out."""

    def as_dict(self) -> dict[str, Any]:
        """The record in plain values, for JSON."""

    def state_warnings(self) -> list[str]:
        """A sentence on each contribution that was left out, and on what could not be checked."""

    def state_scores(self) -> list[str]:
        """Sentences on how well the model predicts, as far as an analyst can know."""

    def list_tables(self) -> dict[str, Rows]:
        """Tables of scores or coefficients, by title."""


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
    write_own: Callable[[Path, int, str, SigningKey], None]
    """Writes what one participant gets besides the model. The arguments are the participant's folder, its index in
    `names`, the digest of the signed model (empty without one) and the analyst's key."""


class Predictor(Protocol):
    """A delivered model as it applies to a participant's encoded rows."""

    @property
    def release(self) -> Release | None:
        """What may be told of the rows behind the model, where the study limits it."""

    @property
    def model_digest(self) -> str:
        """SHA-256 of the model; empty where none was delivered."""

    def predict(self, rows: Matrix) -> Predicted:
        """Values and, where there are such, probabilities."""


@dataclass(frozen=True)
class SendableFile:
    """A signed file that may leave a participant's machine."""

    kind: str
    """What its manifest says that it is."""
    fields: tuple[str, ...]
    """What its manifest says besides."""
    suffix: str
    """How its name ends."""
    is_sealed: bool
    """Whether whoever carries it can open nothing of it, so that a connection need not be protected."""


class Exchange(Protocol):
    """How one mechanism's contributions are made, gathered, trained on and handed back."""

    @property
    def name(self) -> str:
        """The mechanism's name, as `name` in a study's [mechanism]."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """Steps that only this mechanism has."""

    @property
    def additions(self) -> tuple[Addition, ...]:
        """What this mechanism adds to common steps."""

    def list_roles(self, study: Study, name: str) -> tuple[str, ...]:
        """The roles that a participant of a complete study has in steps of this mechanism."""

    @property
    def sendable(self) -> tuple[SendableFile, ...]:
        """Files of a participant that may leave its machine."""

    @property
    def gathers_signed(self) -> bool:
        """Whether `gather` signs something, so that it needs the analyst's key."""

    @property
    def gather_record(self) -> str:
        """The name, without its suffix, of the record that `gather` writes to the work folder."""

    def load_records(self) -> None:
        """Load the mechanism's subclasses of `GatherRecord` and `TrainingRecord`."""

    def describe(self, study: Study) -> Description:
        """What pages and governance drafts say of the mechanism; the study has its roster."""

    def find_point(self, study: Study, result: AuditResult) -> PointResult | None:
        """The audited point that has the study's own settings, if there is one."""

    def draft(self, entries: Mapping[str, Any], width: int) -> MechanismDraft:
        """Return [mechanism] of a draft: the given entries and defaults for encoded rows of `width` columns."""

    def adapt_to_images(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entries of a draft, changed for rows that are images."""

    def prepare_public_file(self, entries: Mapping[str, Any], n_components: int | None) -> dict[str, Any]:
        """Return the entries without the public file, so that the study can be read before the file exists."""

    def fit_public_file(self, study: Study, batches: Callable[[], Iterable[Matrix]]) -> PublicFile:
        """Compute the public file of a study from public rows."""

    def audit_points(self, study: Study, parts: Partition, asked: AuditRequest) -> tuple[OperatingPoint, ...]:
        """Return the operating points of an audit: the study's own first, then those requested for comparison."""

    def audit_projection(self, study: Study) -> Projection:
        """Return the projection for operating points of an audit that share rows."""

    def audit_features(self, study: Study) -> FeatureMap:
        """Return the feature map for operating points of an audit that share sums."""

    def describe_study(self, study: Study) -> list[tuple[str, str]]:
        """What a study's settings mean, as pairs of a heading and a sentence."""

    def list_warnings(self, study: Study) -> list[str]:
        """What members of a complete roster should know before they begin."""

    def person_column(self, study: Study) -> str:
        """The column that names persons and stays at home; empty where there is none."""

    def require_floors(self, study: Study, floors: Floors) -> None:
        """Refuse a study whose noise is below a participant's floors."""

    def list_refusals(
        self, study: Study, n_rows: int, class_counts: Mapping[str, int] | None, persons: PersonCounts | None
    ) -> list[InputError | RefusedError]:
        """Return the reasons why `share` refuses such a table, apart from measured leakage; empty if it accepts it."""

    def inspect(
        self,
        study: Study,
        encoded: EncodedRows,
        *,
        n_rows: int,
        class_counts: dict[str, int] | None,
        seed: int,
        progress: Progress | None,
    ) -> Inspection:
        """Attack a participant's own rows before anything leaves; `n_rows` and `class_counts` are of the whole table."""

    def conclude(self, study: Study, inspection: Inspection) -> Inspection:
        """The same inspection with its decision."""

    def share(
        self,
        vault: Vault,
        study: Study,
        data: TableSource,
        *,
        output: Path,
        consent: Consent,
        anchor: Path | None,
        ignore: Collection[str],
        progress: Progress | None,
    ) -> ShareResult:
        """Write the one bundle of these rows in this study, or the same bytes again."""

    def describe_share(self, study: Study, shared: ShareResult) -> tuple[str, str]:
        """What a bundle holds, in words, and whom to send it to."""

    def require_anchor(self, vault: Vault, study: Study, path: Path) -> None:
        """Refuse an anchor file that this participant cannot share with."""

    def take_step(
        self,
        step: str,
        vault: Vault,
        study: Study,
        *,
        output: Path,
        files: Mapping[str, str | Path],
        progress: Progress | None,
    ) -> StepResult:
        """Take a step that only this mechanism has, and write its file; `files` are what the step needs, by name."""

    def verify_bundle(self, path: Path, study: Study) -> Bundle:
        """Read a bundle from somebody who is not trusted, or refuse it with a reason."""

    def most_bundle_bytes(self, study: Study) -> int:
        """How large a bundle of a study can be."""

    def gather(self, study: Study, bundles: Sequence[Bundle], folder: Path, options: GatherOptions) -> Gathered:
        """Combine verified bundles, one per participant, into what `train` uses, and write it to the work folder."""

    def export(self, folder: Path, path: Path, *, force: bool) -> Path:
        """Copy what was gathered to a file that other tools read; a file that is there is overwritten only by force."""

    def list_learners(self, study: Study) -> tuple[str, ...]:
        """Names of learners whose models are delivered, "auto" first."""

    def require_learner(self, study: Study, learner: LearnerLike) -> None:
        """Refuse a learner whose model cannot be trained or delivered."""

    def train(self, study: Study, folder: Path, options: TrainOptions) -> Trained:
        """Train on what was gathered, and keep the model in the work folder."""

    def prepare_results(self, study: Study, folder: Path) -> Deliverable:
        """What is delivered of a work folder."""

    def specify_model(self, study: Study) -> ModelSpec:
        """What the study's models take and predict."""

    def own_result_files(self, study: Study) -> dict[str, int]:
        """Files of a result besides the model, and the most bytes that each can have."""

    def open_result(self, vault: Vault, study: Study, folder: Path) -> Predictor:
        """Read a participant's delivered result, or refuse it with a reason."""


_BUILT_IN = {
    RotationSettings.name: "mooring.protocol.rotation.exchange",
    SumSettings.name: "mooring.protocol.sums.exchange",
}
_EXCHANGES: dict[str, Exchange] = {}


def register_exchange(exchange: Exchange) -> None:
    """Add a mechanism to those that studies can name; its name must be new."""
    if exchange.name in (*_BUILT_IN, *_EXCHANGES):
        cure = "Choose another name: studies on disk refer to it."
        raise InputError("name of the mechanism", expected="a new one", got=repr(exchange.name), cure=cure)
    _EXCHANGES[exchange.name] = exchange


def exchange_of(study: Study) -> Exchange:
    """The exchange of the mechanism that a study names."""
    return get_exchange(study.mechanism.name)


def get_exchange(name: str) -> Exchange:
    """The exchange of a mechanism, by its name."""
    if name in _BUILT_IN and name not in _EXCHANGES:
        _EXCHANGES[name] = import_module(_BUILT_IN[name]).EXCHANGE
    require_choice("mechanism", name, (*_BUILT_IN, *_EXCHANGES), cure="Correct [mechanism] in the study's file.")
    return _EXCHANGES[name]


def load_gather_records() -> list[str]:
    """Load the classes of all mechanisms' records; return the names of the files that gathering leaves in a work folder."""
    exchanges = [get_exchange(name) for name in dict.fromkeys((*_BUILT_IN, *_EXCHANGES))]
    for exchange in exchanges:
        exchange.load_records()
    return list(dict.fromkeys(f"{exchange.gather_record}.json" for exchange in exchanges))


def list_sendable_files() -> list[SendableFile]:
    """The files that may leave a participant's machine, of all mechanisms."""
    return [form for name in dict.fromkeys((*_BUILT_IN, *_EXCHANGES)) for form in get_exchange(name).sendable]


def result_files(study: Study) -> dict[str, int]:
    """The files of a participant's result, and the most bytes that each can have, in the order in which they are sent."""
    return {MODEL_FILE: MOST_MODEL_BYTES, **exchange_of(study).own_result_files(study)}


def required_result_file(study: Study) -> str:
    """The file that every result of a study has, whether a model was trained or not."""
    return next(reversed(result_files(study)))
