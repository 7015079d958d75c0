"""`mooring plan`: which method and how much noise, or whether to join at all."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mooring import InputError, plan_study
from mooring.apps.cli import inputs
from mooring.apps.cli.tables import points_table, say_first
from mooring.apps.report.page import render_plan
from mooring.errors import MooringError


def plan(
    data: inputs.DataPath,
    target: Annotated[
        str,
        typer.Option(
            help="What the strongest attack may recover: 'error at least 0.5', 'linkage at most 20 %'.",
            rich_help_panel="Study",
        ),
    ] = "reconstruction error at least 0.5",
    label: inputs.Label = None,
    participants: inputs.Participants = 5,
    split_by: inputs.SplitBy = None,
    rows_each: inputs.RowsEach = None,
    drop: inputs.Drop = None,
    missing: inputs.Missing = None,
    size: inputs.Size = None,
    public_share: inputs.PublicShare = None,
    components: inputs.Components = None,
    projection: inputs.ProjectionOption = "auto",
    colluders: inputs.Colluders = 1,
    accomplice: inputs.AccompliceOption = None,
    victim: inputs.VictimOption = None,
    attribute: inputs.Attribute = None,
    auditor: inputs.AuditorOption = None,
    learner: inputs.Learner = "auto",
    examples: inputs.Examples = True,
    seed: inputs.Seed = 0,
    device: inputs.Device = None,
    output: inputs.Output = Path("plan-report"),
    format: inputs.Format = "table",
) -> None:
    """Search methods, noise and sizes on rows like yours; recommend the point that protects, or say that none pays.

    Example: mooring plan patients.csv --label outcome --participants 8 --target "error at least 0.5"

    Example: mooring plan digits/ --participants 20 --rows-each 300 --target "linkage at most 20 %"
    """
    console = Console(stderr=format == "json")
    try:
        if format not in ("table", "json"):
            raise InputError("format", expected="table or json", got=repr(format), cure="json is for other programs.")
        given = inputs.read_and_deal(
            data,
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
            accomplice=accomplice,
            victim=victim,
            seed=seed,
        )
        bar, tell = inputs.progress_bar()
        with bar:
            found = plan_study(
                given.dealt,
                target=target,
                n_components=components,
                projection=inputs.projection_kind(projection),
                colluders=given.accomplices,
                targets=given.targets,
                learner=learner,
                lens=given.lens,
                seed=seed,
                device=device,
                folder=output / "points",
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
    say_first(console, found.audit, notes=given.records.notes)
    console.print(found.verdict, style="bold green" if found.recommended is not None else "bold red")
    console.print(f"Open [bold]{report}[/bold] in a browser; numbers are in {output / 'plan.json'}.")
