"""What steps of a study give back, whichever mechanism it uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mooring.protocol.storage.ledger import Entry
from mooring.serialization import Record, count_noun, render_html

if TYPE_CHECKING:  # attacks and learners take a second to load, which sharing need not wait for
    from mooring.audit import AuditResult
    from mooring.audit.decision import Decision
    from mooring.learners import Score


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
class ShareResult:
    """What was shared; of secure sums, none of it but the digest leaves."""

    n_rows: int
    bundle_digest: str
    reissued: bool
    """Whether this is a bundle that was made before."""
    class_counts: dict[str, int] | None = None
    """Rows a class, where rows are shared; the analyst sees them too."""
    epsilon: float | None = None
    """Of a study of secure sums; None without noise."""
    spent: float = 0.0
    """What these rows have spent in other studies of secure sums."""
    rows_digest: str = field(default="", repr=False)
    """Keyed: by it the report knows whether these very rows were checked. It stays in the vault."""
    override: str = ""
    exceeded: tuple[str, ...] = ()
    """Who shared, and why, although these limits of the study were not shown to be kept."""

    @classmethod
    def of(cls, entry: Entry, **rest: Any) -> ShareResult:
        """What the ledger says of an upload, and the rest."""
        rest |= {"rows_digest": entry.rows_digest, "override": entry.override, "exceeded": entry.exceeded}
        return cls(entry.n_rows, entry.bundle or "", **rest)

    @property
    def epsilon_in_all(self) -> float | None:
        """What these rows have spent in all studies of secure sums; None without a guarantee."""
        return None if self.epsilon is None or np.isinf(self.spent) else self.epsilon + self.spent

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for the record in the vault."""
        return {
            "rows": self.n_rows,
            "class_counts": self.class_counts,
            "bundle_digest": self.bundle_digest,
            "reissued": self.reissued,
            "epsilon": self.epsilon,
            "epsilon_in_all": self.epsilon_in_all,
            "rows_digest": self.rows_digest,
            "override": self.override,
            "exceeded": list(self.exceeded),
        }


@dataclass(frozen=True)
class Inspection:
    """What was found."""

    n_rows: int
    class_counts: dict[str, int] | None
    """Rows of each class of the study."""
    hazards: tuple[str, ...]
    """What in these rows makes the transform easy to break."""
    warnings: tuple[str, ...]
    """What holds whatever the rows are, and what could not be done."""
    local_only: Score | None
    """A model of one's own, on the rows as they are, cross-validated: what joining has to beat."""
    verdict: str
    exceeded: tuple[str, ...] = ()
    """Limits of the study that these rows do not keep."""
    data_noise_scale: float = 0.0
    anchor_noise_scale: float = 0.0
    """σ and v of the study."""
    rms: float | None = None
    """s, the root mean square of the projected rows; None where rows are not shared."""
    self_attack: AuditResult | None = None
    """Some of the rows play the colluder, others the target; of yet others, the attacker must tell that they are not in. The
    first point is the study's own. Without points, or None, where it could not be run."""
    rows_digest: str = ""
    """Keyed: by it `share` knows these very rows again."""
    refused: tuple[str, ...] = ()
    """Why `share` takes no such rows, whatever attackers make of them; what helps is among the hazards."""
    decision: Decision = field(default_factory=dict)
    """The question, the answer (share, do not share, or cannot tell), its reasons, and all of these in words."""

    @property
    def level(self) -> float | None:
        """σ / s: private-data noise in units of the rows; None where the rows are zero throughout."""
        return self.data_noise_scale / self.rms if self.rms else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for the record that a report reads. Of shared rows it holds a few, original beside rebuilt."""
        noise = {name: getattr(self, name) for name in ("data_noise_scale", "rms", "level", "anchor_noise_scale")}
        return {
            "rows": self.n_rows,
            "class_counts": self.class_counts,
            "hazards": list(self.hazards),
            "warnings": list(self.warnings),
            "local_only": None if self.local_only is None else self.local_only.as_dict(),
            "noise": None if self.rms is None else noise,
            "self_attack": None if self.self_attack is None else self.self_attack.as_dict(),
            "verdict": self.verdict,
            "exceeded": list(self.exceeded),
            "refused": list(self.refused),
            "decision": self.decision.get("words", ""),
            "answer": self.decision.get("answer", ""),
            "rows_digest": self.rows_digest,
        }

    def _repr_html_(self) -> str:
        from mooring.audit.decision import state_alone, state_leakage

        tables = [] if self.self_attack is None else [self.self_attack.list_points()]
        fits = count_noun(self.n_rows, "row fits", "rows fit")
        alone = "" if self.local_only is None else state_alone(self.local_only)
        said = [] if self.self_attack is None else state_leakage(self.self_attack)
        rest = self.verdict.removeprefix(" ".join(said)).strip()
        first = self.decision.get("words", ""), *said, rest, alone, f"{fits}."
        return render_html(*first, *self.hazards, *self.warnings, tables=tables)


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
