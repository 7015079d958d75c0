"""`mooring check`: look before anything leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from mooring.cli import execution
from mooring.errors import InputError
from mooring.serialization import count_noun

if TYPE_CHECKING:
    from mooring.protocol.step import Outcome, Place
    from mooring.tables import TableFit
    from mooring.tables.problems import Problem


@execution.command
def check(
    console: execution.Output,
    data: execution.TablePath,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    anchor: execution.AnchorPath = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Where the page goes; it shows rows of yours.", show_default="beside the vault's records"),
    ] = None,
    ignore: execution.IgnoreColumns = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the simulated attack.")] = 0,
    fit_only: Annotated[
        bool,
        typer.Option(
            "--fit-only",
            help="Only see whether the table fits, and list every problem; needs no vault, roster or anchor.",
        ),
    ] = False,
) -> int | None:
    """Take the step 'check', or with --fit-only the step 'fit'.

    Part of your own rows plays the colluder and attacks the rest, at the study's noise, with every attack that mooring
    knows. What is found is kept in the vault, with a page for you; nothing leaves. In a study of secure sums the attackers
    are after membership: with the study's noise, and without any.

    Exit code 4 means: done, and your rows are not shown to keep to a limit that the study states: 'mooring share' refuses
    them. Exit code 3: done, and the advice is not to share.

    Example: mooring check patients.csv --study draft.toml --fit-only

    Example: mooring check patients.csv --study study.toml --vault st-mary/vault
    """
    place = execution.make_place(study, vault)
    if fit_only:
        outcome = _fit(console, place, data, ignore)
    else:
        given = {"data": data, "ignore": ignore, "seed": seed, "anchor": anchor, "output": output}
        try:
            outcome = execution.take_step("check", place, **given)
        except InputError:  # what does not fit is listed whole
            _fit(console, place, data, ignore)
            raise
    console.show_outcome(outcome)
    return execution.STANDINGS[outcome.standing]


def _fit(console: execution.Output, place: Place, data: Path, ignore: Sequence[str] | None) -> Outcome:
    """Take the step 'fit'; a table that does not fit ends in an error that lists every reason."""
    outcome = execution.take_step("fit", place, data=data, ignore=ignore)
    fit: TableFit = outcome.result
    if fit.fits:
        return outcome
    n_cells = sum(problem.n_cells for problem in fit.problems if problem.column)
    problem = InputError(
        "the table",
        expected=f"a table that fits the study {outcome.record['study']!r}",
        got=f"a table that does not (reasons: {len(fit.problems)}; cells: {n_cells}, in {count_noun(fit.n_rows, 'row')})",
        cure="Row 1 is the first beneath the header.",
    )
    failed = console.fail(problem, execution.BAD_INPUT, fit=outcome.record)
    stopped = [f"[bold]Not read to its end:[/bold] {escape(fit.stopped)}"] if fit.stopped else []
    console.say(*stopped, *_list_problems(fit.problems))
    raise failed


def _list_problems(problems: Sequence[Problem]) -> Iterator[str]:
    """Problems by column: what is wrong, how often, where first, and what to do."""
    heading = ""
    for problem in problems:
        above = f"[bold]{escape(problem.column or 'Lines')}[/bold], {escape(problem.expected)}"
        above = above if problem.n_cells else "[bold]Columns[/bold]"
        if above != heading:
            yield above
        heading, where = above, f": {problem.where}" if problem.where else ""
        yield f"  • {escape(problem.got)}{where}. {escape(problem.suggestion)}"
