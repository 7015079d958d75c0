"""Forecasts of what a study is likely to give, before anybody shares.

A forecast is computed from the study's declaration, its noise and the expected number of rows. A forecast that decides
nothing, and is only shown to a person, may also use the rows of one table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mooring.serialization import Count, Record, Rows, count_noun, render_html

if TYPE_CHECKING:
    from mooring.audit.results.decision import Remark


@dataclass(frozen=True)
class Outlook(Record):
    """What one question of a study is likely to give."""

    question: str
    """"model", "tables", "regression" or "survival"."""
    is_useful: bool
    """Whether the answer is likely to be worth more than guessing and, for a model, more than training alone."""
    words: str
    """A sentence without a full stop, such as "The model is likely no better than guessing"."""


@dataclass(frozen=True)
class StudyForecast(Record):
    """What a study is likely to give.

    Unless `from_rows` is set, the forecast depends on public facts alone, so that it may decide whether somebody shares.
    """

    n_rows: Count
    """Expected number of rows of all participants together."""
    n_participants: Count
    """Number of participants that have these rows."""
    outlooks: tuple[Outlook, ...]
    """One outlook per question of the study."""
    tables: dict[str, tuple[tuple[str, ...], ...]]
    """The figures, as tables with headings, by their titles."""
    assumed: tuple[str, ...]
    """What is assumed of the rows, in sentences."""
    from_rows: bool = False
    """Whether everybody's rows are assumed to be like those of one table; such a forecast is shown and decides nothing."""

    @property
    def is_advised(self) -> bool:
        """Whether at least one question is likely to have a useful answer."""
        return any(outlook.is_useful for outlook in self.outlooks)

    @property
    def heading(self) -> str:
        """The rows that the forecast is about, as a heading."""
        n_participants = count_noun(self.n_participants, "participant")
        like = " like those of the table," if self.from_rows else ""
        return f"Forecast for {self.n_rows:,} rows{like} from {n_participants} in total"

    def list_sentences(self) -> list[str]:
        """Return a sentence per question, the warnings first."""
        return [f"{outlook.words}." for outlook in sorted(self.outlooks, key=lambda outlook: outlook.is_useful)]

    def list_tables(self) -> list[tuple[str, Rows]]:
        """Return the tables with their titles."""
        return [(title, list(table)) for title, table in self.tables.items()]

    def _repr_html_(self) -> str:
        tables = [table for _, table in self.list_tables()]
        return render_html(f"{self.heading}.", *self.list_sentences(), *self.assumed, tables=tables)


def weigh_forecast(forecast: StudyForecast | None) -> list[Remark]:
    """Return reasons against sharing: one per question if no question is likely to have a useful answer.

    The list is empty if there is such a question, or no forecast.
    """
    from mooring.audit.results.decision import Remark  # loads attacks

    if forecast is None or forecast.is_advised:
        return []
    return [Remark("do not share", outlook.words) for outlook in forecast.outlooks]
