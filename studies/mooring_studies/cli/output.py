"""What `mooring reproduce` says: which studies there are, what came out of one, and a row beside the same row again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from mooring import InputError
from mooring_studies.rerun import Rerun, RowComparison, name_row
from mooring_studies.settings.sections import IMAGE_KINDS
from mooring_studies.settings.spec import STUDIES, read_spec
from mooring_studies.summary import control_columns, noisy_columns, percent, say, say_size

_MOST_LINES = 12
_WITH_NOISE = "The same with noise, mean over draws; new rows are scored without it"
_TOLD = ("key", "code_digest", "mooring", "date", "device")
_LONGEST = 14
_LONGEST_WORD = {"noise": len("participants,"), "strongest attack": len("pseudoinverse")}


def describe_studies() -> list[dict[str, str]]:
    """Every study: what it is, what it needs, how long it takes."""
    shown = ("name", "title", "paper_section", "needs", "takes", "takes_quick")
    return [{name: getattr(spec, name) for name in shown} for spec in map(read_spec, STUDIES)]


def print_studies(console: Console) -> None:
    """The same, for people."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for study in describe_studies():
        where = f"the paper's section {study['paper_section']}" if study["paper_section"] else "beyond the paper"
        lines = [
            f"{study['title']} ({where})",
            f"needs {study['needs']}" if study["needs"] else "",
            f"takes {study['takes']}" if study["takes"] else "",
            f"with --quick: {study['takes_quick']}" if study["takes_quick"] else "",
        ]
        table.add_row(study["name"], escape("\n".join(filter(None, lines))) + "\n")
    console.print(table)
    console.print(
        "Run one with 'mooring reproduce STUDY --data-dir FOLDER'; no data come with mooring, and docs/reproducing.md says "
        "where each is from. To begin without any: 'mooring reproduce landscape --quick'.",
        highlight=False,
    )


def print_summary(console: Console, result: Mapping[str, Any]) -> None:
    """The main figures of a finished study, and the page to open."""
    sizes = result["sizes"]
    if result.get("cases"):
        _print_cases(console, *result["cases"])
    if any(size["controls"] for size in sizes):
        _print_controls(console, sizes[:_MOST_LINES], images=read_spec(result["study"]).kind in IMAGE_KINDS)
    leaks = [(size, noise) for size in sizes for noise in size["noisy"] if noise["strongest"] is not None]
    if leaks:
        _print_leaks(console, leaks[:_MOST_LINES])
    hidden = max(len(sizes), len(leaks)) - _MOST_LINES
    if hidden > 0:
        console.print(f"{_counted(hidden, 'more line')} on the page or in its figures.", highlight=False)
    pays = result["draws_that_beat_training_alone"]
    if pays["of"]:
        console.print(say("joining", pays["better"], pays["of"], sizes), style="bold", highlight=False)
    if result["quick"]:
        console.print("A quick run: it says nothing of whether the paper's numbers are met.", style="yellow")
    else:
        _print_comparisons(console, result["comparisons"])
    if result["notes"]:
        notes = _counted(len(result["notes"]), "note", " on how it was done")
        console.print(f"{notes} on the page.", style="dim", highlight=False)
    console.print(
        f"Open [bold]{escape(result['page'])}[/bold] in a browser; numbers are in {escape(result['results'])}.",
        highlight=False,
        soft_wrap=True,
    )


def _print_cases(console: Console, sentence: str, columns: Mapping[str, list[str]]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=sentence, title_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name in ("", "mechanism") else "right", overflow="fold")
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    console.print(table)


def _print_controls(console: Console, sizes: list[dict[str, Any]], *, images: bool) -> None:
    columns = control_columns(sizes)
    title = "Balanced accuracy without noise, in the first deployment"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for size, *cells in zip(sizes, *columns.values(), strict=True):
        table.add_row(say_size(size), *cells)
    console.print(table)
    words = say("references", [*columns], images and {"C-GDP", "pooled raw"} <= {*columns})
    if words:
        console.print(words, style="dim", highlight=False)


def _print_leaks(console: Console, leaks: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """What noise leaves of accuracy and of leakage, and what the columns mean."""
    noisy = [noise for _, noise in leaks]
    several = len({say_size(size) for size, _ in leaks}) > 1
    names = [f"{say_size(size)}: {noise['words']}" if several else noise["words"] for size, noise in leaks]
    columns = noisy_columns(noisy)
    full = [f"{noise['attacked_fully']} of {noise['draws']}" for noise in noisy]
    scores = [noise["accuracy"] if noise["accuracy_clean"] is None else noise["accuracy_clean"] for noise in noisy]
    shown = {"noise": names, "accuracy": list(map(percent, scores)), "attacked fully": full}
    shown |= {name: columns[name] for name in ("strongest attack", "it links", "matched directly") if name in columns}
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=_WITH_NOISE, title_justify="left")
    for name in shown:
        number = name not in ("noise", "strongest attack")
        side: JustifyMethod = "right" if number else "left"
        table.add_column(name.replace(" ", "\n"), justify=side, no_wrap=number, min_width=_LONGEST_WORD.get(name))
    for cells in zip(*shown.values(), strict=True):
        table.add_row(*cells)
    console.print(table)
    console.print(f"{say('leakage', [*shown])} {say('lower_bound')}", style="red", highlight=False)


def _counted(n: int, what: str, more: str = "") -> str:
    """So many of something that 'is' or 'are' somewhere."""
    return f"{n} {what}{'' if n == 1 else 's'}{more} {'is' if n == 1 else 'are'}"


def _print_comparisons(console: Console, comparisons: list[dict[str, Any]]) -> None:
    judged = [row for row in comparisons if row["kind"] == "result" and row["ours"] is not None]
    if judged:
        large = sum(bool(row["large"]) for row in judged)
        console.print(say("agreement", len(judged), large), highlight=False)


def require_alone(row: str | None, others: dict[str, Any]) -> None:
    """With --row, settings are those of the kept table; and --from is of no use without --row."""
    if row is None:
        raise InputError("from", expected="given with --row", got="no --row", cure="Say which row of it to compute.")
    for name, value in others.items():
        if value:
            cure = "The row is computed with the settings of the table it is in."
            raise InputError(name, expected="left out with --row", got=f"--{name}", cure=cure)


def describe_rerun(again: Rerun) -> dict[str, Any]:
    """The comparison for other programs."""
    return {
        "study": again.kept.get("study"),
        "kept": {name: again.kept.get(name) for name in _TOLD},
        "now": {name: again.now.get(name) for name in _TOLD},
        "rows": [{"row": row.identity, "columns": [asdict(column) for column in row.columns]} for row in again.rows],
        "columns_that_differ": again.n_differing,
    }


def print_rerun(console: Console, again: Rerun) -> None:
    """The same, for people."""
    for row in again.rows:
        console.print(name_row(row.identity), style="bold", markup=False, highlight=False, soft_wrap=True)
        if row.columns:
            console.print(_table(row))
        else:
            console.print("This version of the study does not compute it.", style="yellow")
    made = {"kept": again.kept, "computed again": again.now}
    for words, facts in made.items():
        console.print(f"{words}: {_made(facts)}", style="dim", markup=False, highlight=False, soft_wrap=True)
    n, of = again.n_differing, sum(len(row.columns) for row in again.rows)
    console.print(
        f"{n} of {of} columns differ by more than rounding (a millionth); seconds do not count.",
        style="yellow" if n else "green",
        highlight=False,
        soft_wrap=True,
    )


def _table(row: RowComparison) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("column", overflow="fold")
    for name in ("kept", "computed again", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    for column in row.columns:
        style = "yellow" if column.differs else None
        cells = (
            column.column,
            _shown(column.kept),
            _shown(column.again),
            _difference(column.difference, differs=column.differs),
        )
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
    parts = [f"{name} {value}" for name, value in words.items() if value]
    return ", ".join([*parts, str(facts.get("date", "at an unknown time"))])
