"""What the protocol asks of a mechanism: an `Exchange`, whose parts have different users.

Designers draft a study (`Drafting`), participants check and share rows and use results (`Participation`), the analyst
gathers contributions and trains (`Analysis`), and pages describe the study (`Presentation`). Attacks on the participants'
rows are kept apart (`Assessment`), because loading them takes a second. Methods with a body are defaults: a mechanism
implements only what differs, and a method may be a function that exists already (`share = staticmethod(share_rows)`).
`mooring.protocol.registry` knows which exchange belongs to a study.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol

from mooring.errors import InputError, RefusedError, require_choice
from mooring.learners import LearnerLike
from mooring.learners.models import ModelSpec
from mooring.protocol.exchange_types import (
    AuditMaps,
    AuditRequest,
    Deliverable,
    GatherOptions,
    MechanismDraft,
    Predictor,
    PublicFile,
    SendableFile,
    TrainOptions,
)
from mooring.protocol.messages.bundle import SUFFIX, Bundle
from mooring.protocol.messages.model import MODEL_FILE, MOST_MODEL_BYTES
from mooring.protocol.messages.study import Study
from mooring.protocol.results import Consent, GatherRecord, ShareResult, StepResult, TrainingRecord
from mooring.protocol.step import Addition, Step
from mooring.protocol.storage.vault import Floors, Vault
from mooring.serialization import Rows
from mooring.tables.encoder import EncodedRows
from mooring.typing import Matrix, Progress, TableSource

if TYPE_CHECKING:  # attacks take a second to load, and only an assessment needs them
    from mooring.audit import AuditResult, OperatingPoint, PointResult
    from mooring.mechanisms.sums.answers import AskedAnswer
    from mooring.mechanisms.sums.general.total import PairwiseTotal
    from mooring.mechanisms.sums.sums import PersonCounts
    from mooring.protocol.description import Description
    from mooring.protocol.forecast import StudyForecast
    from mooring.protocol.inspection import Inspection
    from mooring.tables import Partition


class Drafting(Protocol):
    """What a designer needs of a mechanism: its part of a draft."""

    name: ClassVar[str]
    """The mechanism's name, as `name` in a study's [mechanism]."""

    def draft(self, entries: Mapping[str, Any], width: int, *, has_images: bool, has_label: bool) -> MechanismDraft:
        """Return [mechanism] of a draft: the given entries and defaults for encoded rows of `width` columns."""
        return MechanismDraft({**entries})

    def prepare_public_file(self, entries: Mapping[str, Any], n_components: int | None) -> dict[str, Any]:
        """Return the entries without the public file, so that the study can be read before the file exists.

        A mechanism whose studies use no public file raises an `InputError`.
        """
        self._refuse_public_file()

    def fit_public_file(self, study: Study, batches: Callable[[], Iterable[Matrix]]) -> PublicFile:
        """Compute the public file of a study from public rows; raise an `InputError` if its studies use none."""
        self._refuse_public_file()

    def _refuse_public_file(self) -> NoReturn:
        problem = f"Studies of {self.name} use no file that is made from public rows."
        raise InputError("study", problem=problem, cure="Leave this step out.")


class Participation(Protocol):
    """What a participant needs of a mechanism: checking rows, sharing them, and using the result."""

    name: ClassVar[str]
    sendable: ClassVar[tuple[SendableFile, ...]]
    """Files of a participant that may leave its machine."""

    def list_roles(self, study: Study, name: str) -> tuple[str, ...]:
        """The further roles that this mechanism gives to a participant or helper of a complete study."""
        return ()

    def person_column(self, study: Study) -> str:
        """The column that names persons, which is never uploaded; empty if there is none."""
        return ""

    @abstractmethod
    def require_floors(self, study: Study, floors: Floors) -> None:
        """Refuse a study that does not meet a participant's floors, such as the least noise."""

    def adapts_rows(self, study: Study) -> bool:
        """Return whether a table is accepted whatever its cells hold: those that do not fit are adapted, not refused."""
        return False

    def list_refusals(
        self, study: Study, n_rows: int, class_counts: Mapping[str, int] | None
    ) -> Sequence[InputError | RefusedError]:
        """Return why `share` refuses a table with these numbers of rows, whatever attacks find; empty if it does not."""
        return ()

    def describe_persons(self, study: Study, persons: PersonCounts) -> list[str]:
        """Return sentences on how `share` treats the rows of persons who have several rows."""
        return []

    def advise_sharing(self, study: Study) -> str:
        """Return advice that follows from the study alone: "share", "do not share" or "cannot tell".

        Returns an empty string if the check of a participant's rows decides instead.
        """
        return ""

    @abstractmethod
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

    @abstractmethod
    def describe_share(self, study: Study, shared: ShareResult) -> tuple[str, str]:
        """Return what a bundle holds, in words, and whom to send it to."""

    @property
    def seals_bundles(self) -> bool:
        """Whether the content of a bundle is sealed to its readers, so that the bundle needs no envelope."""
        return any(form.suffix == SUFFIX and form.is_sealed for form in self.sendable)

    def require_anchor(self, vault: Vault, study: Study, path: Path) -> None:
        """Refuse an anchor file that this participant cannot share with."""
        problem = f"Studies of {self.name} do not use an anchor."
        raise InputError("anchor", problem=problem, cure="Leave the anchor out.")

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
        raise InputError("step", problem=f"{self.name} has no step {step!r}.", cure="Leave this step out.")

    def own_result_files(self, study: Study) -> dict[str, int]:
        """Files of a result besides the model, and the most bytes that each can have."""
        return {}

    def result_files(self, study: Study) -> dict[str, int]:
        """The files of a result and the most bytes that each can have, in the order in which they are sent."""
        return {MODEL_FILE: MOST_MODEL_BYTES, **self.own_result_files(study)}

    def required_result_file(self, study: Study) -> str:
        """The file that every result of a study has, whether a model was trained or not."""
        return next(reversed(self.result_files(study)))

    @abstractmethod
    def open_result(self, vault: Vault, study: Study, folder: Path) -> Predictor:
        """Read a participant's delivered result, or refuse it with a reason."""


class Analysis(Protocol):
    """What the analyst needs of a mechanism: gathering contributions, training, and handing results back."""

    name: ClassVar[str]
    gathers_signed: ClassVar[bool] = False
    """Whether `gather` signs something, so that it needs the analyst's key."""
    gather_record: ClassVar[str]
    """The name, without its suffix, of the record that `gather` writes to the work folder."""

    @abstractmethod
    def verify_bundle(self, path: Path, study: Study) -> Bundle:
        """Read a bundle from somebody who is not trusted, or refuse it with a reason."""

    @abstractmethod
    def most_bundle_bytes(self, study: Study) -> int:
        """Return the largest possible size of a bundle in bytes."""

    @abstractmethod
    def gather(self, study: Study, bundles: Sequence[Bundle], folder: Path, options: GatherOptions) -> GatherRecord:
        """Combine verified bundles, one per participant, into what `train` uses, and write it to the work folder."""

    def export(self, folder: Path, path: Path, *, force: bool) -> Path:
        """Copy what was gathered to a file that other tools read; an existing file is overwritten only by force."""
        cure = "Nobody's rows reach the analyst. Export the model instead, to a file that ends in .onnx."
        raise InputError("study", problem=f"A study of {self.name} has no collaboration matrix.", cure=cure)

    @abstractmethod
    def list_learners(self, study: Study) -> tuple[str, ...]:
        """Names of learners whose models are delivered, "auto" first."""

    def require_learner(self, study: Study, learner: LearnerLike) -> None:
        """Refuse a learner whose model cannot be trained or delivered."""
        require_choice("learner", learner, self.list_learners(study))

    def require_outcome(self, study: Study, outcome: str) -> None:
        """Refuse an outcome that cannot be predicted from the gathered contributions; by default, only the label can be."""
        if outcome not in ("", study.label.column):
            problem = f"A study of {self.name} predicts its label only, and {outcome[:60]!r} is not its label."
            raise InputError("outcome", problem=problem, cure="Leave the outcome out.")

    @abstractmethod
    def train(self, study: Study, folder: Path, options: TrainOptions) -> TrainingRecord:
        """Train on what was gathered, and keep the model in the work folder."""

    def load_training_kind(self) -> type[TrainingRecord]:
        """Return the class of the record that `train` writes. Its files can be read once it is loaded."""
        return TrainingRecord

    def open_total(self, study: Study, folder: Path, shares: str | Path) -> PairwiseTotal:
        """Open the total from which answers are read, with the combiners' shares in a folder."""
        problem = f"A study of {self.name} has no total from which questions could be answered."
        raise InputError("study", problem=problem, cure="Draft a study of secure sums with questions.")

    def read_answers(self, folder: Path, study: Study | None = None) -> tuple[AskedAnswer, ...]:
        """Return the answers that a work folder holds; if a study is given, only those of this study."""
        return ()

    @abstractmethod
    def prepare_results(self, study: Study, folder: Path) -> Deliverable:
        """Return what is delivered from a work folder."""

    @abstractmethod
    def specify_model(self, study: Study, outcome: str = "") -> ModelSpec:
        """Return the inputs and outputs of the study's models that predict `outcome`; an empty outcome is the label."""


class Presentation(Protocol):
    """What pages need of a mechanism: its steps, and words for a study."""

    steps: ClassVar[tuple[Step, ...]] = ()
    """Steps that only this mechanism has."""
    additions: ClassVar[tuple[Addition, ...]] = ()
    """What this mechanism adds to common steps."""

    @abstractmethod
    def describe(self, study: Study) -> Description:
        """Return what pages and governance drafts say about the mechanism; the study has its roster."""

    @abstractmethod
    def describe_study(self, study: Study) -> list[tuple[str, str]]:
        """Return what a study's settings mean, as pairs of a heading and a sentence."""

    def list_shared(self, study: Study) -> Rows:
        """Return a table of what a participant shares, headings first; empty where a sentence says it all."""
        return ()

    def list_warnings(self, study: Study) -> list[str]:
        """Return what the members should know before they begin, once the roster is complete."""
        return []

    def forecast(
        self, study: Study, *, n_rows: int = 0, n_participants: int = 0, encoded: EncodedRows | None = None
    ) -> StudyForecast | None:
        """Return what a study is likely to give, from its declaration, its noise and the expected number of rows.

        `n_rows` is the number of rows that all participants are expected to have together; 0 stands for the number that the
        study states. If `n_participants` is 0, it is taken from the roster or, in a draft, assumed by the mechanism. With
        `encoded`, everybody's rows are taken to be like these rows. Returns None if no number of rows is known, or if the
        mechanism makes no forecast for such a study.
        """
        return None


class Assessment(Protocol):
    """What attacks need of a mechanism: how to try them on a participant's own rows, and what an audit compares.

    A module with these functions is enough. The module loads all attacks, so an exchange loads it only when it is needed.
    """

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
        """Attack a participant's own rows before anything leaves; `n_rows` and `class_counts` describe the whole table."""

    def conclude(self, study: Study, inspection: Inspection) -> Inspection:
        """Return the inspection with its decision filled in."""

    def list_audit_points(self, study: Study, parts: Partition, asked: AuditRequest) -> tuple[OperatingPoint, ...]:
        """Return the operating points of an audit: the study's own first, then those requested for comparison."""

    def make_audit_maps(self, study: Study) -> AuditMaps:
        """Return the maps that rows go through at the operating points of an audit."""

    def find_point(self, study: Study, result: AuditResult) -> PointResult | None:
        """Return the audited point that has the study's own settings, if there is one."""


class Exchange(Drafting, Participation, Analysis, Presentation, Protocol):
    """How one mechanism's contributions are drafted, made, gathered, trained on, handed back and described."""

    @property
    @abstractmethod
    def assessment(self) -> Assessment:
        """The mechanism's attacks and audits, which are loaded when this property is read."""
