"""Shared parts of the commands that read an answer off the total of a study."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli import execution
from mooring.protocol.workspace import Outcome

if TYPE_CHECKING:
    from mooring.mechanisms.sums.answers.answer import Answer
    from mooring.mechanisms.sums.general.total import PairwiseTotal

GroupColumn = Annotated[
    str, typer.Option("--by", help="Column that forms groups: a category, or whole numbers with few values.")
]


@dataclass(frozen=True)
class TotalOptions:
    """Options that say which total is opened."""

    study: execution.StudyPath = execution.DEFAULT_STUDY
    folder: execution.WorkFolder = execution.DEFAULT_FOLDER
    shares: Annotated[str, typer.Option("--shares", help="Folder of the combiners' *.share files, or its URL.")] = (
        "inbox"
    )

    def open(self) -> PairwiseTotal:
        """Open the total of the study from the combiners' shares."""
        from mooring.protocol.registry import exchange_of

        study = execution.read_study(self.study)
        return exchange_of(study).open_total(study, self.folder, self.shares)


@dataclass(frozen=True)
class AnswerOptions(TotalOptions):
    """Options of a command that reads an answer off a total."""

    page: Annotated[
        Path | None, typer.Option("--page", help="HTML page to write, with tables and pictures; it holds no rows.")
    ] = None

    def show(self, console: execution.Output, answer: Answer) -> int:
        """Print an answer, with its source, what its intervals include, its notes and its tables; return the exit code.

        The answer is kept for the report. If `page` is set, the answer is also written as a page.
        """
        from mooring.protocol.sums.analyst.asked import keep_answer

        question = execution.quote_command()
        keep_answer(execution.read_study(self.study), self.folder, answer, question)
        if self.page is not None:
            from mooring.atomic_io import write_atomically
            from mooring.report.answer_page import render_answer

            text = render_answer(answer, question=question)
            write_atomically(self.page, text.encode(), mode=0o600, what="the page")
        source, included, *notes = answer.list_sentences()
        tables = tuple(answer.list_tables().items())
        outcome = Outcome(answer, answer.as_dict(), (source, included), notes=tuple(notes), tables=tables)
        return console.show_outcome(outcome)
