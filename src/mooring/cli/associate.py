"""`mooring associate`: correlations and chi-square tests from the total of a study."""

from __future__ import annotations

from typing import Annotated

import typer

from mooring.cli import execution
from mooring.cli.answers import AnswerOptions


@execution.command
def associate(
    console: execution.Output,
    *,
    columns: Annotated[list[str] | None, typer.Argument(help="Columns to compare.", show_default="all")] = None,
    options: AnswerOptions,
) -> int:
    """Print the correlation of each pair of numbers and the chi-square test of each pair of categories.

    Categories of two levels are also correlated with numbers. Intervals and tests include the noise; p-values are not
    adjusted for the number of pairs.

    Example: mooring associate age pressure sex
    """
    from mooring.mechanisms.sums.answers.association import associate as associate_total

    return options.show(console, associate_total(options.open(), columns or ()))
