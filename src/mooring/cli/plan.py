"""`mooring plan`: which method and how much noise, or whether to join at all."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from mooring.cli import options
from mooring.cli.execution import Format, count_progress
from mooring.errors import InputError, MooringError


def plan(
    data: options.DataPath,
    limit: Annotated[
        str,
        typer.Option(
            help="What the strongest attack may recover: 'error at least 0.5', 'linkage at most 20 %'.",
            rich_help_panel="Study",
        ),
    ] = "reconstruction error at least 0.5",
    study: options.StudyOption = None,
    label: options.Label = None,
    participants: options.Participants = 5,
    split_by: options.SplitBy = None,
    rows_each: options.RowsEach = None,
    drop: options.Drop = None,
    missing: options.Missing = None,
    size: options.Size = None,
    public_share: options.PublicShare = None,
    components: options.Components = None,
    projection: options.ProjectionOption = "auto",
    colluders: options.Colluders = 1,
    colluder: options.ColluderOption = None,
    target: options.TargetOption = None,
    attribute: options.Attribute = None,
    auditor: options.AuditorOption = None,
    learner: options.Learner = "auto",
    examples: options.Examples = True,
    seed: options.Seed = 0,
    device: options.Device = None,
    output: options.Output = Path("plan-report"),
    format: Format = "text",
) -> None:
    """Search methods, noise and sizes on rows like yours; recommend the point that protects, or say that none pays.

    Example: mooring plan patients.csv --label outcome --participants 8 --limit "error at least 0.5"

    Example: mooring plan --study study.toml patients.csv --limit "error at least 0.5"

    Example: mooring plan digits/ --participants 20 --rows-each 300 --limit "linkage at most 20 %"
    """
    from mooring.audit import AuditSettings, plan_study
    from mooring.cli import inputs
    from mooring.cli.audit_output import points_table, print_findings
    from mooring.cli.study_records import format_study_lines
    from mooring.report import render_plan

    console = Console(stderr=format == "json")
    try:
        if format not in ("text", "json"):
            raise InputError("format", expected="text or json", got=repr(format), cure="json is for other programs.")
        given = inputs.read_and_partition(
            data,
            study=study,
            label=label,
            participants=participants,
            split_by=split_by,
            rows_each=rows_each,
            drop=drop,
            missing=missing,
            size=size,
            public_share=public_share,
            components=components,
            projection=projection,
            attribute=attribute,
            auditor=auditor,
            examples=examples,
            colluders=colluders,
            colluder=colluder,
            target=target,
            seed=seed,
        )
        with count_progress() as tell:
            found = plan_study(
                given.parts,
                limit=limit,
                n_components=components,
                n_anchor_rows=None if given.studied is None else given.studied.study.n_anchor_rows,
                settings=AuditSettings(
                    projection=given.projection,
                    colluders=given.colluders,
                    targets=given.targets,
                    learner=learner,
                    evaluation=given.evaluation,
                    seed=seed,
                    device=device,
                    folder=output / "points",
                ),
                progress=tell,
            )
    except MooringError as problem:
        inputs.refuse(problem)
    except KeyboardInterrupt:
        inputs.interrupted(output)
    report = output / "report.html"
    report.write_text(render_plan(found, command=shlex.join(["mooring", *sys.argv[1:]])), encoding="utf-8")
    (output / "plan.json").write_text(found.to_json(), encoding="utf-8")
    if format == "json":
        typer.echo(found.to_json())
        return
    console.print(points_table(found.audit, only=found.frontier, title="Frontier: no point tried beats these in both"))
    print_findings(console, found.audit, notes=given.records.notes)
    console.print(found.verdict, style="bold green" if found.recommended is not None else "bold red")
    if given.studied is not None and found.recommended is not None:
        console.print("For the study's file, with σ in the units of its encoded rows:")
        console.print(format_study_lines(found.recommended), markup=False, highlight=False)
    elif found.recommended is not None:
        console.print("σ is in units of s, the rows' root mean square; with --study it is told in a study's own units.")
    console.print(
        f"Open [bold]{escape(str(report))}[/bold] in a browser; numbers are in {escape(str(output / 'plan.json'))}."
    )
