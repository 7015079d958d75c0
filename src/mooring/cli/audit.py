"""`mooring audit`: attack every method on data like yours, and see what is recovered."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from mooring.cli import options
from mooring.cli.execution import Format, count_progress
from mooring.errors import InputError, MooringError
from mooring.mechanisms.methods import METHODS


def audit(
    data: options.DataPath,
    study: options.StudyOption = None,
    label: options.Label = None,
    participants: options.Participants = 5,
    split_by: options.SplitBy = None,
    rows_each: options.RowsEach = None,
    drop: options.Drop = None,
    missing: options.Missing = None,
    size: options.Size = None,
    public_share: options.PublicShare = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help=f"A method to audit; may be given again: {', '.join(METHODS)}.",
            show_default="all",
            rich_help_panel="Study",
        ),
    ] = None,
    components: options.Components = None,
    anchor_rows: Annotated[
        int | None, typer.Option(min=2, help="Anchor rows r.", show_default="4 h", rich_help_panel="Study")
    ] = None,
    anchor_noise: Annotated[
        list[float] | None,
        typer.Option(help="Anchor noise v; may be given again.", show_default="0.05 0.1 0.2", rich_help_panel="Study"),
    ] = None,
    data_noise: Annotated[
        list[float] | None,
        typer.Option(
            help="Private-data noise in units of the rows' root mean square; may be given again.",
            show_default="0.3 0.5 0.8",
            rich_help_panel="Study",
        ),
    ] = None,
    projection: options.ProjectionOption = "auto",
    colluders: options.Colluders = 1,
    colluder: options.ColluderOption = None,
    target: options.TargetOption = None,
    known_rows: Annotated[
        int, typer.Option(min=0, help="Grant the attacker so many of the target's rows.", rich_help_panel="Attacker")
    ] = 0,
    repeated_uploads: Annotated[
        int, typer.Option(min=0, help="Let the target upload so many times more.", rich_help_panel="Attacker")
    ] = 0,
    attribute: options.Attribute = None,
    auditor: options.AuditorOption = None,
    learner: options.Learner = "auto",
    examples: options.Examples = True,
    seed: options.Seed = 0,
    device: options.Device = None,
    output: options.Output = Path("audit-report"),
    format: Format = "text",
) -> None:
    """Partition rows like yours among participants, run every method, attack every upload, and report what is recovered.

    Example: mooring audit patients.csv --label outcome --participants 8

    Example: mooring audit --study study.toml patients.csv

    Example: mooring audit digits/ --participants 20 --rows-each 300 --method aa-i-gdp-anchor-noise --anchor-noise 0.2
    """
    from mooring.audit import AuditSettings, OperatingPoint, PointGrid, run_audit
    from mooring.cli import inputs
    from mooring.cli.audit_output import points_table, print_findings
    from mooring.cli.study_records import points_of, refuse_beside_a_study
    from mooring.report import render_audit

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
        points: Sequence[OperatingPoint] | PointGrid
        if given.studied is None:
            points = PointGrid(
                method or tuple(METHODS),
                n_components=components,
                n_anchor_rows=anchor_rows,
                anchor_noise_scales=anchor_noise or PointGrid.anchor_noise_scales,
                data_noise_levels=data_noise or PointGrid.data_noise_levels,
            )
        else:
            refuse_beside_a_study({"anchor-rows": anchor_rows})
            points = points_of(
                given.studied,
                given.parts,
                methods=method or (),
                anchor_noise_scales=anchor_noise or (),
                data_noise_levels=data_noise or (),
            )
        with count_progress() as tell:
            result = run_audit(
                given.parts,
                points=points,
                settings=AuditSettings(
                    projection=given.projection,
                    colluders=given.colluders,
                    targets=given.targets,
                    n_known_rows=known_rows,
                    n_repeated_uploads=repeated_uploads,
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
    report.write_text(render_audit(result, command=shlex.join(["mooring", *sys.argv[1:]])), encoding="utf-8")
    (output / "audit.json").write_text(result.to_json(), encoding="utf-8")
    if format == "json":
        typer.echo(result.to_json())
        return
    print_findings(console, result, notes=given.records.notes)
    console.print(points_table(result))
    console.print(
        f"Open [bold]{escape(str(report))}[/bold] in a browser; numbers are in {escape(str(output / 'audit.json'))}."
    )
