"""`mooring plan`: which method and how much noise, or whether to join at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from mooring.cli.execution import Output, command, count_progress
from mooring.cli.options import AuditOptions, DataPath, ReportFolder

_EPSILONS = (None, 8.0, 2.0, 1.0)


@command
def plan(
    console: Output,
    data: DataPath,
    options: AuditOptions,
    limit: Annotated[
        str,
        typer.Option(
            help="What the strongest attack may recover: 'error at least 0.5' (of the most exposed tenth of rows), "
            "'membership at most 5 % at 1 %', 'linkage at most 20 %'; or the guarantee that secure sums must carry: "
            "'epsilon at most 2'.",
            rich_help_panel="Study",
        ),
    ] = "error at least 0.5",
    output: ReportFolder = Path("plan-report"),
) -> None:
    """Search methods, noise and sizes on rows like yours; recommend a point that keeps to the limit, or say that none pays.

    One half of the rows is searched; the figures of the recommended point are of the other half.

    Example: mooring plan patients.csv --label outcome --participants 8 --limit "error at least 0.5"

    Example: mooring plan --study study.toml patients.csv --limit "error at least 0.5"

    Example: mooring plan patients.csv --label outcome --participants 8 --limit "epsilon at most 2"

    Example: mooring plan digits/ --participants 20 --rows-each 300 --limit "membership at most 5 % at 1 %"
    """
    from mooring.audit import plan_study
    from mooring.audit.hazards import warn_of_linked_rows
    from mooring.cli.audit_output import print_findings, print_points, write_page
    from mooring.cli.inputs import read_and_partition
    from mooring.report import render_plan

    if options.rows_each is not None:
        options = replace(options, rows_each=2 * options.rows_each)  # so many in each half
    given = read_and_partition(data, options)
    with count_progress() as tell:
        found = plan_study(
            given.parts,
            limit=limit,
            n_components=options.components,
            n_anchor_rows=None if given.study is None else given.study.as_dict()["mechanism"].get("n_anchor_rows"),
            sums=given.sum_points(_EPSILONS),
            settings=given.settings(options, output, feature_map=given.feature_map),
            progress=tell,
        )
    where = write_page(output, render_plan, found, "plan.json")
    if console.format == "json":
        typer.echo(found.to_json())
        return
    title = "Frontier, on the half of the rows that was searched: no point tried beats these in both"
    if shown := [*found.frontier, *found.tried.totals]:
        print_points(console, found.tried, shown, title=title)
    print_findings(console, found.audit, notes=given.records.notes)
    style = "bold red" if found.mechanism is None else "bold green" if found.answer == "pays" else "bold yellow"
    console.print(found.verdict, style=style, markup=False)
    if (against := warn_of_linked_rows(found.recommended)) is not None:
        console.print(against, style="bold red", markup=False)
    lines = found.mechanism_lines()
    if lines is not None:
        console.print("For the study's file, or 'mooring study init --from-plan' with the plan's JSON:")
        console.print(lines, markup=False, highlight=False)
    console.print(where)
