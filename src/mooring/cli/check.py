"""`mooring check`: see what an upload would disclose, before anything is uploaded."""

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
    from mooring.protocol.workspace import Outcome, Workspace
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
        typer.Option(help="File for the page, which shows some of your rows.", show_default="in the vault"),
    ] = None,
    ignore: execution.IgnoreColumns = None,
    mapping: execution.MappingPath = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the simulated attack.")] = 0,
    fit_only: Annotated[
        bool,
        typer.Option(
            "--fit-only",
            help="Only check that the table fits the study, and list every problem; needs no vault, roster or anchor.",
        ),
    ] = False,
) -> int:
    """Take the step 'check', or with --fit-only the step 'fit'.

    Some of your rows play the part of a colluding participant, who attacks your other rows at the study's noise with all of
    mooring's attacks that apply. The result is kept in the vault, with a page for you; nothing is uploaded. In a study of
    secure sums, the attacks try to recognise whose rows are in the sums, with the study's noise and without noise.

    Exit code 3 means that the check is done and advises against sharing. Exit code 4 means that your rows were not shown to
    keep to a limit of the study, so that 'mooring share' refuses them without --override.

    Example: mooring check patients.csv --study draft.toml --fit-only

    Example: mooring check patients.csv --study study.toml --vault st-mary/vault
    """
    workspace = execution.make_workspace(study, vault, mapping=mapping)
    if fit_only:
        outcome = _fit(console, workspace, data, ignore)
    else:
        answers = {"data": data, "ignore": ignore, "seed": seed, "anchor": anchor, "output": output}
        try:
            outcome = execution.take_step("check", workspace, **answers)
        except InputError:  # list every reason why the table does not fit
            _fit(console, workspace, data, ignore)
            raise
    return console.show_outcome(outcome)


def _fit(console: execution.Output, workspace: Workspace, data: Path, ignore: Sequence[str] | None) -> Outcome:
    """Take the step 'fit'; a table that does not fit ends in an error that lists every reason."""
    outcome = execution.take_step("fit", workspace, data=data, ignore=ignore)
    fit: TableFit = outcome.result
    if fit.fits:
        return outcome
    n_cells = sum(problem.n_cells for problem in fit.problems if problem.column)
    problem = InputError(
        "the table",
        expected=f"a table that fits the study {outcome.record['study']!r}",
        got=f"a table that does not (reasons: {len(fit.problems)}; cells: {n_cells}, in {count_noun(fit.n_rows, 'row')})",
        cure="Correct the cells and columns that are listed. Row 1 is the first beneath the header.",
    )
    failed = console.fail(problem, execution.BAD_INPUT, fit=outcome.record)
    stopped = [f"[bold]Not read to its end:[/bold] {escape(fit.stopped)}"] if fit.stopped else []
    console.say(*stopped, *_list_problems(fit.problems))
    raise failed


def _list_problems(problems: Sequence[Problem]) -> Iterator[str]:
    """Yield the problems by column: what is wrong, how often, where it occurs first, and what to do."""
    heading = ""
    for problem in problems:
        above = f"[bold]{escape(problem.column or 'Lines')}[/bold], {escape(problem.expected)}"
        above = above if problem.n_cells else "[bold]Columns[/bold]"
        if above != heading:
            yield above
        heading, where = above, f": {problem.where}" if problem.where else ""
        yield f"  • {escape(problem.got)}{where}. {escape(problem.suggestion)}"
