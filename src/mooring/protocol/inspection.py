"""The result of a check of a participant's rows before anything leaves, for every mechanism."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.audit import AuditResult
from mooring.audit.results.decision import Decision
from mooring.audit.results.statements import state_alone
from mooring.learners import Score
from mooring.protocol.forecast import StudyForecast
from mooring.serialization import Count, Record, count_noun, render_html


@dataclass(frozen=True)
class Inspection(Record):
    """The result of a check of a participant's rows."""

    n_rows: Count
    class_counts: dict[str, Count] | None
    """Number of rows of each class of the study; None without classes."""
    hazards: tuple[str, ...]
    """Reasons why `share` refuses such rows, with cures; and properties of the rows that make them easy to recover."""
    warnings: tuple[str, ...]
    """Warnings about the table as a whole, about cells that `share` would adapt, about persons, and about what could not be
    done."""
    local_only: Score | None
    """Cross-validated score of a model of the raw rows alone, which joining has to beat; None if it was not measured."""
    verdict: str
    exceeded: tuple[str, ...] = ()
    """Limits of the study that this or an earlier check of these rows did not show to be kept."""
    data_noise_scale: float = 0.0
    anchor_noise_scale: float = 0.0
    """σ and v of the study."""
    rms: float | None = None
    """s, the root mean square of the projected rows; None where rows are not shared."""
    self_attack: AuditResult | None = None
    """Result of the simulated attack: one part of the rows plays the colluder and attacks another part, the target. Further
    rows are non-members. The first point is the study's own. There is no point, or no result, if no attack could be run."""
    rows_digest: str = ""
    """Keyed digest, by which `share` recognises these rows."""
    refused: tuple[str, ...] = ()
    """Reasons why `share` refuses such rows, whatever attacks find; `hazards` repeats them with their cures."""
    decision: Decision | None = None
    """Whether to share these rows; None until it is decided."""
    command: str = ""
    """The command that was run."""
    forecast: StudyForecast | None = None
    """What the study is likely to give, judged by its declaration alone; None if nothing can be forecast."""
    own_forecast: StudyForecast | None = None
    """The same forecast, assuming that everybody's rows are like these. It is shown to a person and decides nothing."""

    @property
    def level(self) -> float | None:
        """σ / s: private-data noise in units of the rows; None where rows are zero throughout or not shared."""
        return self.data_noise_scale / self.rms if self.rms else None

    def _repr_html_(self) -> str:
        tables = [] if self.self_attack is None else [self.self_attack.list_points()]
        fits = count_noun(self.n_rows, "row fits", "rows fit")
        alone = "" if self.local_only is None else state_alone(self.local_only)
        first = "" if self.decision is None else self.decision.words, self.verdict, alone, f"{fits}."
        return render_html(*first, *self.hazards, *self.warnings, tables=tables)
