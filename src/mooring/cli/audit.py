"""`mooring audit`: attack every method on data like yours, and report what the attacks recover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from mooring.cli.execution import Output, command, count_progress
from mooring.cli.options import AuditOptions, DataPath, ReportFolder, attacker_option, parse_epsilon, study_option
from mooring.mechanisms.rotation.methods import METHODS


@command
def audit(
    console: Output,
    data: DataPath,
    options: AuditOptions,
    method: Annotated[
        list[str] | None,
        study_option(
            help=f"Method to audit, one of {', '.join(METHODS)}; repeatable.", show_default="all, or the study's"
        ),
    ] = None,
    anchor_rows: Annotated[
        int | None, study_option(min=2, help="Number of anchor rows, r.", show_default="four times h")
    ] = None,
    anchor_noise: Annotated[
        list[float] | None,
        study_option(help="Scale of the anchor noise, v; repeatable.", show_default="0.05 0.1 0.2, or the study's"),
    ] = None,
    data_noise: Annotated[
        list[float] | None,
        study_option(
            help="Scale of the private-data noise, σ; repeatable. With --study, its unit is that of encoded numbers, which "
            "lie between -1 and 1. Otherwise it is a column's standard deviation or, for images, the range of a pixel.",
            show_default="0.3, 0.5 and 0.8 times the rows' root mean square, or the study's",
        ),
    ] = None,
    epsilon: Annotated[
        list[str] | None,
        study_option(
            help="Also audit secure sums with this ε; 'none' adds no noise and gives no guarantee. Repeatable."
        ),
    ] = None,
    known_rows: Annotated[int, attacker_option(min=0, help="Number of the target's rows that the attacker knows.")] = 0,
    repeated_uploads: Annotated[
        int, attacker_option(min=0, help="Number of further uploads that the target makes.")
    ] = 0,
    output: ReportFolder = Path("audit-report"),
) -> None:
    """Split rows like yours among participants, run each method, attack the uploads, and report what is recovered.

    Example: mooring audit patients.csv --label outcome --participants 8

    Example: mooring audit --study study.toml patients.csv

    Example: mooring audit patients.csv --label outcome --participants 8 --epsilon none --epsilon 2

    Example: mooring audit digits/ --participants 20 --rows-each 300 --method aa-i-gdp-anchor-noise --anchor-noise 0.2
    """
    from mooring.audit import OperatingPoint, PointGrid, run_audit
    from mooring.cli.audit_output import print_findings, print_points, write_page
    from mooring.cli.inputs import points_of, read_and_partition, refuse_beside_a_study
    from mooring.report.audit_page import render_audit

    inputs = read_and_partition(data, options)
    epsilons = [parse_epsilon(word) for word in epsilon or ()]
    points: Sequence[OperatingPoint] | PointGrid
    chosen = None
    if inputs.study is None:
        points = PointGrid(
            method or tuple(METHODS),
            n_components=options.components,
            n_anchor_rows=anchor_rows,
            anchor_noise_scales=anchor_noise or PointGrid.anchor_noise_scales,
            data_noise_scales=data_noise or (),
            epsilons=epsilons,
        )
    else:
        from mooring.protocol.exchange_types import AuditRequest

        refuse_beside_a_study({"anchor_rows": anchor_rows})
        points = points_of(inputs, AuditRequest(method or (), anchor_noise or (), data_noise or (), epsilons))
        chosen = points[0]
    settings = inputs.settings(
        options,
        output,
        n_known_rows=known_rows,
        n_repeated_uploads=repeated_uploads,
        feature_map=inputs.feature_map if epsilons or chosen is not None else None,
    )
    with count_progress() as tell:
        result = run_audit(inputs.parts, points=points, chosen=chosen, settings=settings, progress=tell)
    if inputs.study is not None and inputs.study.upload_limits:
        result = replace(result, description=replace(result.description, limits=inputs.study.upload_limits))
    where = write_page(output, render_audit, result, "audit.json")
    if console.format == "json":
        typer.echo(result.to_json())
        return
    print_findings(console, result, notes=inputs.records.notes)
    console.print(result.joining, style="bold", markup=False)
    print_points(console, result, result.points)
    console.print(where)
