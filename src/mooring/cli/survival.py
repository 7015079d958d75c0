"""`mooring survival`: survival curves and the log-rank test from the total of a study."""

from __future__ import annotations

from typing import Annotated

import typer

from mooring.cli import execution
from mooring.cli.answers import AnswerOptions, GroupColumn


@execution.command
def survival(
    console: execution.Output,
    *,
    by: GroupColumn = "",
    life_table: Annotated[
        bool, typer.Option("--life-table", help="Count a censored row for half of its interval (actuarial).")
    ] = False,
    options: AnswerOptions,
) -> int:
    """Print the survival curve of all rows or of groups, with numbers at risk, medians and the log-rank test.

    The study declares the columns of times and events, and the intervals. The Kaplan-Meier estimate counts every time as the
    end of its interval. A curve ends where the number at risk cannot be distinguished from zero under the noise.

    Example: mooring survival --by arm
    """
    from mooring.mechanisms.sums.answers.survival import estimate_survival

    total = options.open()
    answer = estimate_survival(total, by=by, estimator="life-table" if life_table else "kaplan-meier")
    return options.show(console, answer)
