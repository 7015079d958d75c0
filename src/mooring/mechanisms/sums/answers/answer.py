"""What every answer states: the number of rows that it is about, the guarantee, and what its intervals include."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from mooring.errors import InputError, MissingExtraError
from mooring.mechanisms.sums.answers.readings import LEAST_SIGNAL
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.serialization import FloatOrNaN, OpenRecord, Record, Rows, render_html

SAYS_NOTHING = 0.8
"""An interval that covers this share of the possible values says nothing, and its estimate is not shown."""
_SAMPLED = "Intervals are 95 % and include {}that other rows could have been observed."


@dataclass(frozen=True)
class Source(Record):
    """The total from which an answer was computed."""

    rows: FloatOrNaN
    """n̂, the number of rows, which carries noise, too."""
    rows_error: FloatOrNaN
    """Standard error of `rows` because of the noise."""
    epsilon: float | None
    delta: float | None
    """ε and δ of the guarantee for adding or removing one unit; None without a guarantee."""
    unit: str
    """The unit of the guarantee, "row" or "person"."""
    caveat: str
    """Why the noise of this total gives no guarantee; empty if it gives one, or if there is no noise."""

    def __str__(self) -> str:
        if self.epsilon is None:
            return f"{self.rows:,.0f} rows, without noise and without a guarantee."
        about = f"About {max(self.rows, 0):,.0f} rows (± {1.96 * self.rows_error:,.0f} by noise)"
        promise = f"{about}; ε = {self.epsilon:g}, δ = {self.delta:g} for one {self.unit}."
        return f"{promise} {self.caveat}".strip()


def name_source(total: PairwiseTotal) -> Source:
    """Return the number of rows and the guarantee of a total."""
    constant = total.workload.constant
    values, noise = total.read(constant.vector[None], constant.vector[None])
    return Source(float(values[0]), math.sqrt(noise[0, 0]), total.epsilon, total.delta, total.unit, total.caveat)


def state_intervals(total: PairwiseTotal) -> str:
    """Return a sentence on which kinds of uncertainty the intervals of population quantities include."""
    return _SAMPLED.format("both the noise and " if total.noise_variance else "")


def explain_empty(total: PairwiseTotal) -> str:
    """Return a clause that says why nothing is known of a group with hardly any rows."""
    return "under the noise it cannot be known whether it has rows" if total.noise_variance else "it has no rows"


def require_rows(total: PairwiseTotal) -> Source:
    """Return the source of a total; raise an `InputError` unless it clearly has rows."""
    source = name_source(total)
    if not source.rows > max(LEAST_SIGNAL * source.rows_error, 0.5):
        problem = "Under the noise it cannot be known whether the total has any rows."
        cure = "Ask a study with more rows, fewer columns or a larger epsilon."
        if not total.noise_variance:
            problem, cure = "The total has no rows.", "Ask a study with rows."
        raise InputError("total", problem=problem, cure=cure)
    return source


def make_frame(table: Any) -> Any:
    """Return a pyarrow table as a pandas DataFrame; raise a `MissingExtraError` without pandas."""
    try:
        return table.to_pandas()
    except ImportError:
        raise MissingExtraError(needed_for="A data frame of an answer", package="pandas", extra="pandas") from None


@dataclass(frozen=True)
class Answer(OpenRecord):
    """An answer that was computed from a total. Every kind of answer is a subclass."""

    kind_key: ClassVar[str] = "answer"
    answer: ClassVar[str] = ""
    """The name of the kind."""
    lines_field: ClassVar[str]
    """Name of the field whose entries are the lines of the answer's data frame."""

    source: Source
    notes: tuple[str, ...]
    """Sentences on what was left out and why, and on what the answer does not say."""
    included: str
    """A sentence on what the intervals include."""

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one line per entry of the field that `lines_field` names."""
        import pyarrow as pa

        lines = getattr(self, self.lines_field)
        names = [field.name for field in fields(lines[0])] if lines else []
        return make_frame(pa.table({name: [getattr(line, name) for line in lines] for name in names}))

    def list_estimates(self) -> dict[str, tuple[float, float, float]]:
        """Return (estimate, low, high) of every population quantity that has an interval, by the quantity's name."""
        raise NotImplementedError

    def list_tables(self) -> dict[str, Rows]:
        """Return tables as text, by their titles; the first row of each holds the headings."""
        raise NotImplementedError

    def list_sentences(self) -> list[str]:
        """Return sentences: the source, what the intervals include, and the notes."""
        return [str(self.source), self.included, *self.notes]

    def _repr_html_(self) -> str:
        return render_html(*self.list_sentences(), tables=list(self.list_tables().values()))


@dataclass(frozen=True)
class AskedAnswer(Record):
    """An answer as it is kept in a file, with the command that asked for it."""

    command: str
    study: str
    """Digest of the study."""
    answer: Answer

    def __post_init__(self) -> None:
        try:
            self.answer.list_tables()
        except (LookupError, ArithmeticError, ValueError):
            problem = "The answer lacks values that its tables show."
            raise InputError("the answer", problem=problem, cure="Ask the question again.") from None


def require_group(total: PairwiseTotal, column: str) -> None:
    """Raise an `InputError` unless the levels of a column put each row into exactly one group."""
    levels = total.workload.column(column)
    if not levels.is_exact or levels.kind == "survival":
        problem = f"{column!r} cannot form groups: only categories and whole numbers with few values can."
        raise InputError("by", problem=problem, cure="Name a column of one of these kinds.")


def write_number(value: float, digits: int = 3) -> str:
    """Return a number as text with this many significant digits and all digits before the point, or a dash for NaN.

    Examples
    --------
    >>> [write_number(value) for value in (0.012345, 3.14159, 1234.6, float("nan"))]
    ['0.0123', '3.14', '1,235', '–']
    """
    if math.isnan(value):
        return "–"
    if abs(value) >= 10**digits or value == 0:
        return f"{value + 0.0:,.0f}"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def write_p(p: float) -> str:
    """Return a p-value as text.

    Examples
    --------
    >>> [write_p(p) for p in (0.5, 0.0312, 0.00001, float("nan"))]
    ['0.50', '0.031', '<0.001', '–']
    """
    if np.isnan(p):
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"
