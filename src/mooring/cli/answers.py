"""Shared parts of the commands that read an answer off the total of a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli import execution
from mooring.protocol.workspace import Outcome

if TYPE_CHECKING:
    from mooring.mechanisms.sums.answers.answer import Answer
    from mooring.mechanisms.sums.general.total import PairwiseTotal

SharesFolder = Annotated[Path, typer.Option("--shares", help="Folder of the combiners' *.share files.")]
GroupColumn = Annotated[
    str, typer.Option("--by", help="Column that forms groups: a category, or whole numbers with few values.")
]
AnswerPage = Annotated[
    Path | None, typer.Option("--page", help="HTML page to write, with tables and pictures; it holds no rows.")
]
DEFAULT_SHARES = Path("inbox")


def open_total(study: Path, folder: Path, shares: Path) -> PairwiseTotal:
    """Open the total of a study from the combiners' shares."""
    from mooring.protocol.registry import exchange_of

    agreed = execution.read_study(study)
    return exchange_of(agreed).open_total(agreed, folder, shares)


def show_answer(console: execution.Output, answer: Answer, page: Path | None, *, study: Path, folder: Path) -> int:
    """Print an answer: what it is about, its tables, and what it does not say.

    It is kept for the report, and its page is written if there is to be one.
    """
    from mooring.protocol.sums.analyst.asked import keep_answer

    keep_answer(execution.read_study(study), folder, answer, execution.quote_command())
    if page is not None:
        from mooring.atomic_io import write_atomically
        from mooring.report.answer_page import render_answer

        question = execution.quote_command()
        write_atomically(page, render_answer(answer, question=question).encode(), mode=0o600, what="the page")
    source, included, *notes = answer.list_sentences()
    tables = tuple(answer.list_tables().items())
    return console.show_outcome(
        Outcome(answer, answer.as_dict(), (source, included), notes=tuple(notes), tables=tables)
    )
