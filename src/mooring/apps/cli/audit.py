"""`mooring audit`: attack every method on data like yours, and see what is recovered."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mooring import METHODS, InputError, run_audit
from mooring.apps.cli import inputs
from mooring.apps.cli.tables import points_table, say_first
from mooring.apps.report.page import render_audit
from mooring.errors import MooringError


def audit(
    data: inputs.DataPath,
    label: inputs.Label = None,
    participants: inputs.Participants = 5,
    split_by: inputs.SplitBy = None,
    rows_each: inputs.RowsEach = None,
    drop: inputs.Drop = None,
    missing: inputs.Missing = None,
    size: inputs.Size = None,
    public_share: inputs.PublicShare = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help=f"A method to audit; may be given again: {', '.join(METHODS)}.",
            show_default="all",
            rich_help_panel="Study",
        ),
    ] = None,
    components: inputs.Components = None,
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
    projection: inputs.ProjectionOption = "auto",
    colluders: inputs.Colluders = 1,
    accomplice: inputs.AccompliceOption = None,
    victim: inputs.VictimOption = None,
    known_rows: Annotated[
        int, typer.Option(min=0, help="Grant the attacker so many of the target's rows.", rich_help_panel="Attacker")
    ] = 0,
    repeated_uploads: Annotated[
        int, typer.Option(min=0, help="Let the target upload so many times more.", rich_help_panel="Attacker")
    ] = 0,
    attribute: inputs.Attribute = None,
    auditor: inputs.AuditorOption = None,
    learner: inputs.Learner = "auto",
    examples: inputs.Examples = True,
    seed: inputs.Seed = 0,
    device: inputs.Device = None,
    output: inputs.Output = Path("audit-report"),
    format: inputs.Format = "table",
) -> None:
    """Deal rows like yours to participants, run every method, attack every upload, and report what is recovered.

    Example: mooring audit patients.csv --label outcome --participants 8

    Example: mooring audit digits/ --participants 20 --rows-each 300 --method aa-i-gdp-anchor-noise --anchor-noise 0.2
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
            result = run_audit(
                given.dealt,
                methods=method or tuple(METHODS),
                n_components=components,
                n_anchor_rows=anchor_rows,
                anchor_noise_scales=anchor_noise or (0.05, 0.1, 0.2),
                data_noise_levels=data_noise or (0.3, 0.5, 0.8),
                projection=inputs.projection_kind(projection),
                colluders=given.accomplices,
                targets=given.targets,
                n_known_rows=known_rows,
                n_repeated_uploads=repeated_uploads,
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
    report.write_text(render_audit(result, command=shlex.join(["mooring", *sys.argv[1:]])), encoding="utf-8")
    (output / "audit.json").write_text(result.to_json(), encoding="utf-8")
    if format == "json":
        typer.echo(result.to_json())
        return
    say_first(console, result, notes=given.records.notes)
    console.print(points_table(result))
    console.print(f"Open [bold]{report}[/bold] in a browser; numbers are in {output / 'audit.json'}.")
