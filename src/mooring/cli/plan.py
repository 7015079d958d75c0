"""`mooring plan`: recommend a method and its noise, or advise against joining."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.execution import Output, command, count_progress
from mooring.cli.options import AuditOptions, ReportFolder
from mooring.errors import InputError

if TYPE_CHECKING:
    from mooring.protocol.forecast import StudyForecast
    from mooring.protocol.messages.study import Study

_EPSILONS = (None, 8.0, 2.0, 1.0)


@command
def plan(
    console: Output,
    data: Annotated[
        Path | None,
        typer.Argument(
            help="A table (.csv, .parquet) or images (a folder with one subfolder per class, .npz, IDX, .parquet). Without "
            "it, the study that --study names is forecast from its declaration, the expected rows and its noise alone."
        ),
    ] = None,
    *,
    options: AuditOptions,
    expected_rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of rows that all participants together are expected to have.",
            show_default="what the study states",
            rich_help_panel="Study",
        ),
    ] = None,
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

    The search uses one half of the rows; the figures of the recommended setting are measured on the other half. Without
    rows, nothing is searched: the forecast says how wide each answer's interval will be, which answers will be refused, and
    whether the model is likely to be better than guessing and than training alone.

    Example: mooring plan --study study.toml --expected-rows 6000

    Example: mooring plan patients.csv --label outcome --participants 8 --limit "error at least 0.5"

    Example: mooring plan --study study.toml patients.csv --limit "error at least 0.5"

    Example: mooring plan patients.csv --label outcome --participants 8 --limit "epsilon at most 2"

    Example: mooring plan digits/ --participants 20 --rows-each 300 --limit "membership at most 5 % at 1 %"
    """
    from mooring.cli.forecast_output import describe_forecast

    if data is None or options.study is not None:
        study, forecast = _forecast(options, data, expected_rows)
        if forecast is not None and (
            data is None or study.label.kind == "none"
        ):  # without a label, nothing is searched
            console.show(forecast.as_dict(), *describe_forecast(forecast))
            return
        console.say(*([] if forecast is None else describe_forecast(forecast)))
    assert data is not None
    from mooring.audit import plan_study
    from mooring.audit.results.statements import warn_of_linked_rows
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
            others=inputs.points_without_rows(_EPSILONS),
            settings=inputs.settings(options, output, feature_map=inputs.feature_map),
            progress=tell,
        )
    where = write_page(output, render_plan, planned, "plan.json")
    if console.format == "json":
        typer.echo(planned.to_json())
        return
    title = "Frontier, on the half of the rows that was searched: no point tried beats these in both score and leakage"
    if shown := [*planned.frontier, *planned.tried.totals]:
        print_points(console, planned.tried, shown, title=title)
    print_findings(console, planned.audit, notes=inputs.records.notes)
    style = "bold red" if planned.mechanism is None else "bold green" if planned.answer == "pays" else "bold yellow"
    console.print(planned.verdict, style=style, markup=False)
    if (against := warn_of_linked_rows(planned.recommended)) is not None:
        console.print(against, style="bold red", markup=False)
    lines = planned.mechanism_lines()
    if lines is not None:
        console.print(
            "Write these lines into the study's file or, if the plan had --study, give plan.json to "
            "'mooring study init --from-plan':"
        )
        console.print(lines, markup=False, highlight=False)
    console.print(where)


def _forecast(
    options: AuditOptions, data: Path | None, expected_rows: int | None
) -> tuple[Study, StudyForecast | None]:
    """Return the study and its forecast, from the declaration alone or, with a table, for rows like the table's.

    The forecast is None if a table is given and the mechanism makes no forecast; without a table, an error is raised.
    """
    from mooring.cli.execution import make_workspace, read_study
    from mooring.protocol.participant.steps import read_by_mapping
    from mooring.protocol.registry import exchange_of
    from mooring.tables.encoder import read_encoded

    if options.study is None:
        cure = "Name a table, or name a study with --study to forecast it from its declaration."
        raise InputError("data", problem="There are no rows and no study to plan for.", cure=cure)
    study = read_study(options.study)
    exchange, n_rows, encoded = exchange_of(study), expected_rows or 0, None
    if data is not None:
        table = read_by_mapping(make_workspace(options.study), data)
        person = exchange.person_column(study)
        encoded = read_encoded(study.schema, table, labels="allow", ignore=options.ignore or (), person=person)
        n_rows = expected_rows or len(encoded.rows)
    participants = 0 if study.participants else options.participants
    forecast = exchange.forecast(study, n_rows=n_rows, n_participants=participants, encoded=encoded)
    if forecast is None and data is None:
        problem = "Nothing can be forecast of this study without rows."
        cure = "Name a table of rows like those of the study or, for secure sums of a table, give --expected-rows."
        raise InputError("study", problem=problem, cure=cure)
    return study, forecast
