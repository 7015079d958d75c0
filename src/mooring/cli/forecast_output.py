"""What commands print of a forecast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from mooring.cli.execution import make_table

if TYPE_CHECKING:
    from mooring.protocol.forecast import StudyForecast


def describe_forecast(forecast: StudyForecast) -> Iterator[str | Table]:
    """Yield the tables of a forecast, how useful each answer is likely to be, and what is assumed."""
    yield f"[bold]{escape(forecast.heading)}[/bold]"
    for title, rows in forecast.list_tables():
        yield make_table([[escape(cell) for cell in row] for row in rows], title=title, n_left=len(rows[0]))
    for outlook in forecast.outlooks:
        style = "" if outlook.is_useful else "[bold red]"
        yield f"{style}{escape(outlook.words)}.{'[/bold red]' if style else ''}"
    yield from map(escape, forecast.assumed)
