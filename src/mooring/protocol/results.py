"""What steps of a study give back, whichever mechanism it uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from mooring.errors import InputError
from mooring.protocol.storage.ledger import Entry
from mooring.serialization import Count, OpenRecord, Record, Rows

if TYPE_CHECKING:  # learners take a second to load
    from mooring.learners import Gain, Score


@dataclass(frozen=True)
class Finding(Record):
    """Something that a reader of a result must not overlook."""

    kind: str
    """What kind of thing it is: "missing", "flagged", "left out" and so on."""
    words: str
    """The finding as a sentence."""
    about: tuple[str, ...] = ()
    """Names of participants, or limits, that it is about."""


@dataclass(frozen=True)
class Contribution(Record):
    """What became of one participant's upload."""

    state: str
    """In words, without a full stop."""
    rows: Count | None = None
    """None where the analyst does not know."""
    fit: float | None = None
    """Correlation of its anchor with the others'; None where there is no anchor."""


class GatherRecord(OpenRecord):
    """What gathering bundles gives back and leaves in the work folder: one subclass for each mechanism."""

    kind_key: ClassVar[str] = "mechanism"
    mechanism: ClassVar[str] = ""
    command: str

    def list_left_out(self) -> Mapping[str, str]:
        """Participants whose bundle was left out, and why."""
        return {}

    @property
    def is_whole(self) -> bool:
        """Whether nobody's bundle was left out."""
        return not self.list_left_out()

    def describe(self) -> list[str]:
        """Sentences on what was done, and what comes next."""
        return []

    def list_contributions(self) -> Rows:
        """A line a participant, headings first."""
        return [("participant", "state"), *((name, given.state) for name, given in self.list_states().items())]

    def list_states(self) -> Mapping[str, Contribution]:
        """What became of each participant's upload, by name."""
        return {}

    def list_findings(self) -> tuple[Finding, ...]:
        """What a reader must not overlook."""
        return ()

    def list_measures(self) -> Rows:
        """Measures of what was gathered, as rows of name and value."""
        return ()


class TrainingRecord(OpenRecord):
    """What training gives back and leaves in the work folder beside the model: one subclass for each mechanism."""

    kind_key: ClassVar[str] = "mechanism"
    mechanism: ClassVar[str] = ""
    learner: str
    rows: int
    model_digest: str
    study: str
    made_from: str
    """Digests of the study, and of what was trained on."""
    command: str
    score: Score | None
    """How well the model predicts, where the analyst can know."""
    participants: tuple[tuple[str, Score], ...]
    """The score at each participant, of models of the others."""
    alone: tuple[tuple[str, Score], ...]
    """The score of a model of one upload alone, by participant."""
    gain: Gain | None
    """Score of models of the others minus that of models of one upload alone."""

    @property
    def is_whole(self) -> bool:
        """Whether nobody's contribution was left out."""
        return not self.list_findings()

    def list_findings(self) -> tuple[Finding, ...]:
        """What a reader must not overlook."""
        return ()

    def state_warnings(self) -> list[str]:
        """A sentence on each contribution that was left out, and on what could not be checked."""
        return [finding.words for finding in self.list_findings()]

    def list_tables(self) -> dict[str, Rows]:
        """Tables of scores, by title."""
        return {}

    def state_scores(self) -> list[str]:
        """Sentences on how well the model predicts, as far as an analyst can know."""
        return []


@dataclass(frozen=True)
class Consent:
    """What the owner of rows decides when sharing them."""

    labels: bool = False
    """Whether the analyst may see the label of every row as it is. A mechanism that shows labels is refused without it."""
    override: str = ""
    """'NAME: REASON': who shares, and why, although the check does not show that the study's limits are kept."""
    command: str = ""
    """How the step was asked for, for the record."""


@dataclass(frozen=True)
class CheckSummary(Record):
    """What sharing needs of a check. It is kept apart, because reading the whole inspection loads the attacks."""

    rows_digest: str
    """Keyed: by it `share` recognises the rows that were checked."""
    exceeded_by_rows: dict[str, tuple[str, ...]]
    """Limits exceeded in this and earlier checks, by the digest of the rows: another seed does not undo them."""
    advice: str
    """The decision in words."""
    is_warning: bool
    """Whether the advice is not to share these rows."""
    command: str
    """How the check was asked for."""

    def __post_init__(self) -> None:
        if self.rows_digest not in self.exceeded_by_rows:
            problem = "The summary of a check does not say which limits its rows exceed."
            raise InputError("exceeded_by_rows", problem=problem, cure="Run 'mooring check' again.")

    @property
    def exceeded(self) -> tuple[str, ...]:
        """Limits of the study that a check did not show these rows to keep."""
        return self.exceeded_by_rows[self.rows_digest]


@dataclass(frozen=True)
class ShareResult(Record):
    """What was shared; of secure sums, none of it but the digest leaves."""

    n_rows: Count
    bundle_digest: str
    reissued: bool
    """Whether this is a bundle that was made before."""
    class_counts: dict[str, Count] | None = None
    """Rows a class, where rows are shared; the analyst sees them too."""
    epsilon: float | None = None
    """ε of a study of secure sums; None without noise."""
    spent: float = 0.0
    """ε that this vault has spent in other studies of secure sums."""
    rows_digest: str = field(default="", repr=False)
    """Keyed: by it the report knows whether these very rows were checked. It stays in the vault."""
    override: str = ""
    exceeded: tuple[str, ...] = ()
    """Who shared, and why, although these limits of the study were not shown to be kept."""
    command: str = ""
    """How the step was asked for."""

    @classmethod
    def of(cls, entry: Entry, **rest: Any) -> ShareResult:
        """What the ledger says of an upload, and the rest."""
        rest |= {"rows_digest": entry.rows_digest, "override": entry.override, "exceeded": entry.exceeded}
        return cls(entry.n_rows, entry.bundle or "", **rest)

    @property
    def epsilon_in_all(self) -> float | None:
        """ε that this vault has spent in all studies of secure sums; None without a guarantee in this one."""
        return None if self.epsilon is None else self.epsilon + self.spent


@dataclass(frozen=True)
class StepResult(Record):
    """What a step that only one mechanism has wrote, such as dealing an anchor."""

    output: str
    """The file."""
    digest: str
    """Its SHA-256."""
    lines: tuple[str, ...]
    """Sentences on what it holds, and whom to send it to."""
    is_whole: bool = True
    """Whether nothing was left out of it."""
