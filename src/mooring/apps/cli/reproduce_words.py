"""What `mooring reproduce` says: which studies there are, and what came out of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mooring.apps.experiments.page import between, percent, size_in_words
from mooring.apps.experiments.settings.spec import STUDIES, read_spec
from mooring.apps.experiments.summary import CONTROLS

_MOST_LINES = 12
_WITH_NOISE = "The same with noise, mean over draws; new rows are scored without it"


def studies_as_dicts() -> list[dict[str, str]]:
    """Every study: what it is, what it needs, how long it takes."""
    specs = [read_spec(name) for name in STUDIES]
    return [
        {
            "name": spec.name,
            "title": spec.title,
            "paper_section": spec.paper_section,
            "needs": spec.needs,
            "takes": spec.takes,
            "takes_quick": spec.takes_quick,
        }
        for spec in specs
    ]


def list_studies(console: Console) -> None:
    """The same, for people."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for one in studies_as_dicts():
        where = f"the paper's section {one['paper_section']}" if one["paper_section"] else "beyond the paper"
        lines = [
            f"{one['title']} ({where})",
            f"needs {one['needs']}" if one["needs"] else "",
            f"takes {one['takes']}" if one["takes"] else "",
            f"with --quick: {one['takes_quick']}" if one["takes_quick"] else "",
        ]
        table.add_row(one["name"], escape("\n".join(filter(None, lines))) + "\n")
    console.print(table)
    console.print(
        "Run one with 'mooring reproduce STUDY --data-dir FOLDER'; no data come with mooring, and docs/reproducing.md says "
        "where each is from. To begin without any: 'mooring reproduce landscape --quick'.",
        highlight=False,
    )


def say_summary(console: Console, result: Mapping[str, Any]) -> None:
    """The main figures of a finished study, and the page to open."""
    sizes = result["sizes"]
    if any(size["controls"] for size in sizes):
        console.print(_controls(sizes[:_MOST_LINES]))
        console.print(
            "local only: participants' own models, their mean on everybody's test rows; pooled raw: one model on all rows, "
            "unprotected.",
            style="dim",
            highlight=False,
        )
    leaks = [(size, one) for size in sizes for one in size["noisy"] if one["strongest"] is not None]
    if leaks:
        console.print(_leaks(leaks[:_MOST_LINES]))
        console.print(
            "links: how often it finds the true row among ten look-alikes, the least and the most over draws; chance 10 %. "
            "A lower bound on leakage: a better attack may exist.",
            style="red",
            highlight=False,
        )
    hidden = max(len(sizes), len(leaks)) - _MOST_LINES
    if hidden > 0:
        console.print(f"{hidden} more lines are on the page.", highlight=False)
    pays = result["draws_that_beat_training_alone"]
    if pays["of"]:
        words = (
            f"{pays['better']} of {pays['of']} noisy draws beat training alone (local only), new rows without noise."
        )
        console.print(words, style="bold", highlight=False)
    if result["quick"]:
        console.print("A quick run: it says nothing of whether the paper's numbers are met.", style="yellow")
    else:
        _say_comparisons(console, result["comparisons"])
    if result["notes"]:
        console.print(f"{len(result['notes'])} notes on how it was done are on the page.", style="dim", highlight=False)
    console.print(
        f"Open [bold]{escape(result['page'])}[/bold] in a browser; numbers are in {escape(result['results'])}.",
        highlight=False,
        soft_wrap=True,
    )


def _controls(sizes: list[dict[str, Any]]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title="Balanced accuracy without noise", title_justify="left")
    table.add_column("")
    for name in ("C-GDP", "AA-I-GDP", "I-GDP", "local only", "pooled raw"):
        table.add_column(name, justify="right", no_wrap=True)
    for size in sizes:
        cells = [*(size["controls"].get(method) for method in CONTROLS), size["local_only"], size["pooled_raw"]]
        table.add_row(size_in_words(size), *map(percent, cells))
    return table


def _leaks(leaks: list[tuple[dict[str, Any], dict[str, Any]]]) -> Table:
    several = len({size_in_words(size) for size, _ in leaks}) > 1
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=_WITH_NOISE, title_justify="left")
    if several:
        table.add_column("")
    table.add_column("")
    table.add_column("accuracy", justify="right", no_wrap=True)
    table.add_column("strongest attack", no_wrap=not several)
    table.add_column("links", justify="right", no_wrap=True)
    for size, one in leaks:
        accuracy = one["accuracy_clean"] if one["accuracy_clean"] is not None else one["accuracy"]
        name = [size_in_words(size)] if several else []
        table.add_row(*name, one["words"], percent(accuracy), one["strongest_words"], between(one))
    return table


def _say_comparisons(console: Console, comparisons: list[dict[str, Any]]) -> None:
    judged = [one for one in comparisons if one["kind"] == "result" and one["ours"] is not None]
    if judged:
        large = sum(bool(one["large"]) for one in judged)
        console.print(
            f"Of {len(judged)} results that the paper states, {len(judged) - large} come out about the same and {large} do "
            "not; the page has each, with a likely reason.",
            highlight=False,
        )
