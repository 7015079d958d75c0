"""`mooring plan`: recommend a method and its noise, or advise against joining."""

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
            help="Limit on what the strongest attack recovers: 'error at least 0.5' (for the most exposed tenth of rows), "
            "'membership at most 5 % at 1 %' (of false positives) or 'linkage at most 20 %'; or the guarantee that secure "
            "sums must have: 'epsilon at most 2'.",
            rich_help_panel="Study",
        ),
    ] = "error at least 0.5",
    output: ReportFolder = Path("plan-report"),
) -> None:
    """Search methods, noise and sizes on rows like yours; recommend what keeps to the limit, or advise against joining.

    The search uses one half of the rows; the figures of the recommended setting are measured on the other half.

    Example: mooring plan patients.csv --label outcome --participants 8 --limit "error at least 0.5"

    Example: mooring plan --study study.toml patients.csv --limit "error at least 0.5"

    Example: mooring plan patients.csv --label outcome --participants 8 --limit "epsilon at most 2"

    Example: mooring plan digits/ --participants 20 --rows-each 300 --limit "membership at most 5 % at 1 %"
    """
    from mooring.audit import plan_study
    from mooring.audit.statements import warn_of_linked_rows
    from mooring.cli.audit_output import print_findings, print_points, write_page
    from mooring.cli.inputs import read_and_partition
    from mooring.report.audit_page import render_plan

    if options.rows_each is not None:
        options = replace(options, rows_each=2 * options.rows_each)  # this many in each half
    inputs = read_and_partition(data, options)
    with count_progress() as tell:
        planned = plan_study(
            inputs.parts,
            limit=limit,
            n_components=options.components,
            n_anchor_rows=None if inputs.study is None else inputs.study.as_dict()["mechanism"].get("n_anchor_rows"),
            sums=inputs.sum_points(_EPSILONS),
            settings=inputs.settings(options, output, feature_map=inputs.feature_map),
            progress=tell,
        )
    where = write_page(output, render_plan, planned, "plan.json")
    if console.format == "json":
        typer.echo(planned.to_json())
        return
    title = "Frontier, on the half of the rows that was searched: no point tried beats these in both"
    if shown := [*planned.frontier, *planned.tried.totals]:
        print_points(console, planned.tried, shown, title=title)
    print_findings(console, planned.audit, notes=inputs.records.notes)
    style = "bold red" if planned.mechanism is None else "bold green" if planned.answer == "pays" else "bold yellow"
    console.print(planned.verdict, style=style, markup=False)
    if (against := warn_of_linked_rows(planned.recommended)) is not None:
        console.print(against, style="bold red", markup=False)
    lines = planned.mechanism_lines()
    if lines is not None:
        console.print("Write these lines into the study's file, or give plan.json to 'mooring study init --from-plan':")
        console.print(lines, markup=False, highlight=False)
    console.print(where)
