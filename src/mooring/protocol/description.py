"""How a mechanism describes itself: the texts and values that pages and governance drafts use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Description:
    """What a page says of a study's mechanism. Sentences end with a full stop; clauses do not."""

    what_is_shared: str
    """What a participant is asked to share, as a clause: "these rows"."""
    agreed: tuple[str, ...]
    """What was agreed, in sentences."""
    scoring: str
    """A sentence on how the gain of joining is measured."""
    caveat: str
    """What the person who signs a report understands, as a clause."""
    terms: Terms
    """What governance drafts say."""
    kind: str = ""
    """What kind of study it is, as a clause that follows the study's name; empty if rows are shared."""
    shares_rows: bool = True
    """Whether rows leave, rather than totals over rows."""
    has_noisy_rows: bool = False
    """Whether uploaded rows carry noise, which new rows do not."""
    promise: tuple[float, float] | None = None
    """The ε and δ of a formal guarantee; None without one."""
    unit: str = "row"
    """What the guarantee protects: "row" or "person"."""
    headlines: tuple[str, ...] = ()
    """Sentences that state the guarantee, or that there is none. Pages show them before all figures. Empty if only attacks
    are measured."""
    guarantee: tuple[tuple[str, str], ...] = ()
    """The guarantee as pairs of a heading and a sentence."""
    limitations: tuple[str, ...] = ()
    """What a reader of figures must know, in sentences."""


@dataclass(frozen=True)
class Terms:
    """What a data-sharing agreement and an impact assessment say of a mechanism."""

    what_leaves: tuple[str, ...]
    """What is in an upload, in sentences."""
    who_sees: tuple[tuple[str, str], ...]
    """Pairs of a party and what it sees."""
    not_colluding: str
    """Who is assumed not to collude, in sentences."""
    promises: tuple[str, ...]
    """What is promised, and what is not, in paragraphs."""
    measures: tuple[str, ...]
    """What protects persons, in sentences."""
    files: tuple[tuple[str, str, str], ...]
    """For each file: what is kept, where, and why."""
    outputs: tuple[tuple[str, str], ...]
    """Pairs of what leaves a participant's environment, and to whom it goes."""
    egress: str
    """What egress checks cannot see, in a sentence."""
    recall: str
    """What still contains the data of a person who objects later, as a clause."""
    model_goes_to: str
    """Who gets the model, as a clause."""
    deleted: str
    """What mooring deletes by itself, as a clause."""
    not_covered: tuple[str, ...] = ()
    """What nothing protects against, in sentences."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Roles besides that of a participant, by name."""
    local_columns: Mapping[str, str] = field(default_factory=dict)
    """Columns that are never uploaded, and what they hold, by name."""
