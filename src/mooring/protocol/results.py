"""Results of the steps of a study, for every mechanism."""

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
    """Something in a result that a reader must not overlook."""

    kind: str
    """The kind of the finding, such as "missing", "flagged" or "left out"."""
    words: str
    """The finding as a sentence."""
    about: tuple[str, ...] = ()
    """Names of the participants or the limits that it concerns."""


@dataclass(frozen=True)
class Contribution(Record):
    """The state of one participant's upload."""

    state: str
    """The state in words, without a full stop."""
    rows: Count | None = None
    """Number of rows in the upload; None if the analyst does not know it."""
    fit: float | None = None
    """Correlation of its anchor with the others' anchors; None without an anchor."""


class GatherRecord(OpenRecord):
    """The result of gathering bundles, which the work folder keeps. Each mechanism has a subclass."""

    kind_key: ClassVar[str] = "mechanism"
    mechanism: ClassVar[str] = ""
    command: str

    def list_left_out(self) -> Mapping[str, str]:
        """Return the participants whose bundle was left out, and why."""
        return {}

    @property
    def is_whole(self) -> bool:
        """Whether nobody's bundle was left out."""
        return not self.list_left_out()

    def describe(self) -> list[str]:
        """Return sentences on what was done and what comes next."""
        return []

    def state_hand_off(self) -> list[str]:
        """Return sentences on what to send to whom."""
        return []

    def list_contributions(self) -> Rows:
        """Return one line per participant, headings first."""
        return [
            ("participant", "state"),
            *((name, contribution.state) for name, contribution in self.list_states().items()),
        ]

    def list_states(self) -> Mapping[str, Contribution]:
        """Return the state of each participant's upload, by name."""
        return {}

    def list_findings(self) -> tuple[Finding, ...]:
        """Return what a reader must not overlook."""
        return ()

    def list_measures(self) -> Rows:
        """Return measures of what was gathered, as rows of name and value."""
        return ()


class TrainingRecord(OpenRecord):
    """The result of a training, which the work folder keeps beside the model. Each mechanism has a subclass."""

    kind_key: ClassVar[str] = "mechanism"
    mechanism: ClassVar[str] = ""
    learner: str
    rows: int
    model_digest: str
    study: str
    made_from: str
    """`study` is the digest of the study. `made_from` is the digest of the training data, which is an alignment's space or a
    closing list."""
    command: str
    score: Score | None
    """Score of the model; None if the analyst cannot know it."""
    participants: tuple[tuple[str, Score], ...]
    """For each participant: the score, on its rows, of a model trained only on the rows of the others."""
    alone: tuple[tuple[str, Score], ...]
    """For each participant: the score of a model trained on its upload alone."""
    gain: Gain | None
    """Score of models trained on the other uploads minus score of models trained on one upload alone, on the same rows; None
    if it was not measured."""

    @property
    def is_whole(self) -> bool:
        """Whether there is no finding, such as a contribution that was left out."""
        return not self.list_findings()

    def list_findings(self) -> tuple[Finding, ...]:
        """Return what a reader must not overlook."""
        return ()

    def state_warnings(self) -> list[str]:
        """Return the findings as sentences, such as one on a contribution that was left out."""
        return [finding.words for finding in self.list_findings()]

    def list_tables(self) -> dict[str, Rows]:
        """Return tables of scores, by title."""
        return {}

    def state_scores(self) -> list[str]:
        """Return sentences on how well the model predicts, as far as an analyst can know."""
        return []


@dataclass(frozen=True)
class Consent:
    """Decisions of a participant that shares its rows."""

    labels: bool = False
    """Whether the analyst may see the label of every row as it is. If not, rows are not shared where labels are shown."""
    override: str = ""
    """'NAME: REASON': who shares, and why, although the check does not show that the study's limits are kept."""
    command: str = ""
    """The command that was run, for the record."""


@dataclass(frozen=True)
class CheckSummary(Record):
    """What sharing needs of a check. It is kept apart, because reading the whole inspection loads the attacks."""

    rows_digest: str
    """Keyed digest, by which `share` recognises the rows that were checked."""
    exceeded_by_rows: dict[str, tuple[str, ...]]
    """By the digest of the rows: the limits that this or an earlier check did not show to be kept. A check with another
    seed cannot remove a limit from them."""
    advice: str
    """The decision in words."""
    is_warning: bool
    """Whether a limit was not shown to be kept, or the advice is not to share these rows."""
    command: str
    """The command that was run."""
    answer: str = ""
    """The decision as one of three values: "share", "do not share", "cannot tell"."""

    def __post_init__(self) -> None:
        if self.rows_digest not in self.exceeded_by_rows:
            problem = "The summary of a check does not say which limits its rows exceed."
            raise InputError("exceeded_by_rows", problem=problem, cure="Run 'mooring check' again.")

    @property
    def exceeded(self) -> tuple[str, ...]:
        """Limits of the study that some check of these rows did not show to be kept."""
        return self.exceeded_by_rows[self.rows_digest]


@dataclass(frozen=True)
class ShareResult(Record):
    """The result of sharing. In studies of secure sums, the number of rows must not leave the vault."""

    n_rows: Count
    bundle_digest: str
    reissued: bool
    """Whether the bundle was made before, so that the same bytes were written again."""
    class_counts: dict[str, Count] | None = None
    """Number of rows of each class, if rows are shared; the analyst sees these numbers too."""
    epsilon: float | None = None
    """ε of a study of secure sums; None without noise."""
    spent: float | None = 0.0
    """ε that this vault has spent in other studies of secure sums; None if it is not known."""
    rows_digest: str = field(default="", repr=False)
    """Keyed digest, by which the report recognises whether these rows were checked. It stays in the vault."""
    override: str = ""
    exceeded: tuple[str, ...] = ()
    """`override` says who shared, and why, although the limits in `exceeded` were not shown to be kept."""
    command: str = ""
    """The command that was run."""

    @classmethod
    def of(cls, entry: Entry, **rest: Any) -> ShareResult:
        """Return the result from an upload's entry in the ledger; `rest` holds the fields that the ledger does not have."""
        rest |= {"rows_digest": entry.rows_digest, "override": entry.override, "exceeded": entry.exceeded}
        return cls(entry.n_rows, entry.bundle or "", **rest)

    @property
    def epsilon_in_all(self) -> float | None:
        """ε that this vault has spent in all studies of secure sums; None without a guarantee in this one, or not known."""
        return None if self.epsilon is None or self.spent is None else self.epsilon + self.spent


@dataclass(frozen=True)
class StepResult(Record):
    """The result of a step that only one mechanism has, such as making an anchor."""

    output: str
    """The file that was written."""
    digest: str
    """SHA-256 of the file."""
    lines: tuple[str, ...]
    """Sentences on what the file holds."""
    is_whole: bool = True
    """Whether nothing was left out of the file."""
    hand_off: str = ""
    """A sentence on whom to send the file to."""
