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
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another self-attack.")] = 0,
    fit_only: Annotated[
        bool,
        typer.Option(
            "--fit-only",
            help="Only see whether the table fits, and list every problem; needs no vault, roster or anchor.",
        ),
    ] = False,
) -> int | None:
    """Look before anything leaves: does the table fit, is it easy to break, and what would a colluder recover.

    Part of your own rows plays the colluder and attacks the rest, at the study's noise, with every attack that mooring
    knows. What is found is kept in the vault, with a page for you; nothing leaves. In a study of secure sums the attackers
    are after membership: with the study's noise, and without any.

    Exit code 4 means: done, and your rows are not shown to keep to a limit that the study states: 'mooring share' refuses
    them. Exit code 3: done, and the advice is not to share.

    Example: mooring check patients.csv --study draft.toml --fit-only

    Example: mooring check patients.csv --study study.toml --vault st-mary/vault
    """
    if fit_only:
        name, fit, refused = _require_fit(console, data, study, ignore or ())
        fits = f"{count_noun(fit.n_rows, 'row fits', 'rows fit')} the study {escape(repr(name))}."
        lines = [f"{fits} Nothing was kept, and nothing left.", *(f"  • {escape(words)}" for words in refused)]
        console.show({"study": name, **fit.as_dict(), "warnings": refused}, *lines)
        return execution.IN_PART if refused else None
    from mooring.atomic_io import require_writable, write_atomically
    from mooring.protocol.exchange import exchange_of
    from mooring.report import render_check

    if output is not None:
        require_writable(output, what="the page", inputs=(data, study, anchor))
    participant = execution.open_participant(study, vault)
    agreed = participant.study
    if anchor is not None:
        exchange_of(agreed).require_anchor(participant.vault, agreed, execution.find_anchor(anchor, agreed.name))
    try:
        with execution.count_progress() as moved:
            found = participant.check(data, ignore=ignore or (), seed=seed, progress=moved)
    except InputError:  # what does not fit is listed whole
        _require_fit(console, data, study, ignore or ())
        raise
    decision, told = found.decision, found.as_dict()
    record = participant.keep_record("check", told, command=execution.quote_command())
    page = output or participant.vault.study_folder(agreed.folder_name) / "check.html"
    write_atomically(page, render_check(agreed, record).encode(), mode=0o600, what="the page")

    del told["rows_digest"]  # stays in the vault
    console.show(
        {**told, "decision": decision, "page": str(page)},
        f"{count_noun(found.n_rows, 'row fits', 'rows fit')} the study {agreed.name!r}, fingerprint {agreed.fingerprint}.",
        *(f"  • {escape(words)}" for words in (*found.hazards, *found.warnings)),
        escape(found.verdict),
        f"[bold]{escape(decision['words'])}[/bold]",
        f"Open [bold]{escape(str(page))}[/bold] to see what attackers would get; keep it to yourself.",
    )
    advised = execution.IN_PART if decision["answer"] == "do not share" else None
    return execution.REFUSED if found.exceeded else advised


def _require_fit(
    console: execution.Output, data: Path, study: Path, ignore: Sequence[str]
) -> tuple[str, TableFit, list[str]]:
    """The study's name, the fit and why `share` refuses the table; one that does not fit ends in every reason why."""
    from mooring.protocol.participant.role import check_table_fit

    agreed = execution.read_study(study)
    with execution.show_progress("Reading the table") as told:
        fit, warnings = check_table_fit(agreed, data, ignore=ignore, progress=told)
    if fit.fits:
        return agreed.name, fit, warnings
    n_cells = sum(problem.n_cells for problem in fit.problems if problem.column)
    problem = InputError(
        "the table",
        expected=f"one that fits the study {agreed.name!r}",
        got=f"another (reasons: {len(fit.problems)}; cells: {n_cells}, in {count_noun(fit.n_rows, 'row')})",
        cure="Row 1 is the first beneath the header.",
    )
    failed = console.fail(problem, execution.BAD_INPUT, fit={"study": agreed.name, **fit.as_dict()})
    stopped = [f"[bold]Not read to its end:[/bold] {escape(fit.stopped)}"] if fit.stopped else []
    console.say(*stopped, *_list_problems(fit.problems))
    raise failed


def _list_problems(problems: Sequence[Problem]) -> Iterator[str]:
    """Problems by column: what is wrong, how often, where first, and what to do."""
    heading = ""
    for one in problems:
        above = f"[bold]{escape(one.column or 'Lines')}[/bold], {escape(one.expected)}"
        above = above if one.n_cells else "[bold]Columns[/bold]"
        if above != heading:
            yield above
        heading, where = above, f": {one.where}" if one.where else ""
        yield f"  • {escape(one.got)}{where}. {escape(one.suggestion)}"
