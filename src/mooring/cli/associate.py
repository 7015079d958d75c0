"""`mooring associate`: correlations and chi-square tests from the total of a study."""

from __future__ import annotations

from typing import Annotated

import typer

from mooring.cli import execution
from mooring.cli.answers import DEFAULT_SHARES, AnswerPage, SharesFolder, open_total, show_answer


@execution.command
def associate(
    console: execution.Output,
    columns: Annotated[list[str] | None, typer.Argument(help="Columns to compare.", show_default="all")] = None,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    folder: execution.WorkFolder = execution.DEFAULT_FOLDER,
    shares: SharesFolder = DEFAULT_SHARES,
    page: AnswerPage = None,
) -> int:
    """Print the correlation of each pair of numbers and the chi-square test of each pair of categories.

    Categories of two levels are also correlated with numbers. Intervals and tests include the noise; p-values are not
    adjusted for the number of pairs.

    Example: mooring associate age pressure sex
    """
    from mooring.mechanisms.sums.answers.association import associate as associate_total

    return show_answer(
        console, associate_total(open_total(study, folder, shares), columns or ()), page, study=study, folder=folder
    )
