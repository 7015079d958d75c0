"""`mooring regress`: a linear regression, or odds ratios, from the total of a study."""

from __future__ import annotations

from typing import Annotated

import typer

from mooring.cli import execution
from mooring.cli.answers import AnswerOptions


@execution.command
def regress(
    console: execution.Output,
    *,
    formula: Annotated[
        str, typer.Argument(help='As in R and statsmodels: "y ~ a + log(b) + C(c)".', show_default=False)
    ],
    logistic: Annotated[bool, typer.Option("--logistic", help="Odds ratios of an outcome with two levels.")] = False,
    options: AnswerOptions,
) -> int:
    """Print the coefficients of a regression of any column on any columns, with intervals that include the noise.

    Only main effects are fitted: interactions, powers and splines need more than sums of pairs of columns, and an error
    names them. A category is compared with its first declared level. A number on a logarithmic scale is written log(x). A
    regression is refused where the noise would make its intervals meaningless, and odds ratios also where their bias would
    exceed half a standard error.

    Example: mooring regress "pressure ~ age + sex + C(ward)"

    Odds ratios: mooring regress "ill ~ age + sex" --logistic
    """
    from mooring.mechanisms.sums.answers.odds_ratios import estimate_odds_ratios
    from mooring.mechanisms.sums.answers.regression import regress as regress_total

    total = options.open()
    answer = estimate_odds_ratios(total, formula) if logistic else regress_total(total, formula)
    return options.show(console, answer)
