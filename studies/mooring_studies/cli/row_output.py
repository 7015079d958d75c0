"""What `mooring reproduce --row` says: a kept row, and the same row computed again."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mooring.errors import InputError
from mooring_studies.rerun import Again, RowAgain, differing, in_words

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOLD = ("key", "code_digest", "mooring", "date", "device")
_LONGEST = 14


def require_alone(row: str | None, others: dict[str, Any]) -> None:
    """With --row, settings are those of the kept table; and --from is of no use without --row."""
    if row is None:
        raise InputError("from", expected="given with --row", got="no --row", cure="Say which row of it to compute.")
    for name, value in others.items():
        if value:
            cure = "The row is computed with the settings of the table it is in."
            raise InputError(name, expected="left out with --row", got=f"--{name}", cure=cure)


def again_as_dict(again: Again) -> dict[str, Any]:
    """The comparison for other programs."""
    return {
        "study": again.kept.get("study"),
        "kept": {name: again.kept.get(name) for name in _TOLD},
        "now": {name: again.now.get(name) for name in _TOLD},
        "rows": [{"row": row.identity, "columns": [asdict(one) for one in row.columns]} for row in again.rows],
        "columns_that_differ": differing(again.rows),
    }


def say_again(console: Console, again: Again) -> None:
    """The same, for people."""
    for row in again.rows:
        console.print(in_words(row.identity), style="bold", markup=False, highlight=False, soft_wrap=True)
        if row.columns:
            console.print(_table(row))
        else:
            console.print("This version of the study does not compute it.", style="yellow")
    made = {"kept": again.kept, "computed again": again.now}
    for words, facts in made.items():
        console.print(f"{words}: {_made(facts)}", style="dim", markup=False, highlight=False, soft_wrap=True)
    n, of = differing(again.rows), sum(len(row.columns) for row in again.rows)
    console.print(
        f"{n} of {of} columns differ by more than rounding (a millionth); seconds do not count.",
        style="yellow" if n else "green",
        highlight=False,
        soft_wrap=True,
    )


def _table(row: RowAgain) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("column", overflow="fold")
    for name in ("kept", "computed again", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in row.columns:
        style = "yellow" if one.differs else None
        cells = (one.column, _shown(one.kept), _shown(one.again), _difference(one.difference, differs=one.differs))
        table.add_row(*map(escape, cells), style=style)
    return table


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    text = f"{value:.8g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _difference(difference: float | None, *, differs: bool) -> str:
    if difference is None:
        return "differs" if differs else "same"
    return f"{difference:+.2g}" if difference else "0"


def _made(facts: Mapping[str, Any]) -> str:
    words = {
        "key": facts.get("key"),
        "code": str(facts.get("code_digest") or "")[:16],
        "mooring": facts.get("mooring"),
        "device": facts.get("device"),
    }
    told = [f"{name} {value}" for name, value in words.items() if value]
    return ", ".join([*told, str(facts.get("date", "at an unknown time"))])
