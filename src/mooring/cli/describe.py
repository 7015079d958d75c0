"""`mooring describe`: counts, shares, means and standard deviations from the total of a study."""

from __future__ import annotations

from typing import Annotated

import typer

from mooring.cli import execution
from mooring.cli.answers import AnswerOptions, GroupColumn


@execution.command
def describe(
    console: execution.Output,
    *,
    columns: Annotated[list[str] | None, typer.Argument(help="Columns to describe.", show_default="all")] = None,
    by: GroupColumn = "",
    options: AnswerOptions,
) -> int:
    """Print a Table 1 of a study of secure sums, for all rows or by group, with intervals that include the noise.

    Means are those of the values that are not missing. A number on a logarithmic scale is described by the mean of its
    logarithm. The study must be declared for tables, regression or survival. Every answer comes from the same total and
    uses up no further privacy budget.

    Example: mooring describe --by arm
    """
    from mooring.mechanisms.sums.answers.description import describe as describe_total

    return options.show(console, describe_total(options.open(), by=by, columns=columns or ()))
