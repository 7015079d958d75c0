"""`mooring export`: the collaboration matrix, for any other tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli.align import DEFAULT_FOLDER, WorkFolder
from mooring.cli.execution import Force, Output, command


@command
def export(
    console: Output,
    output: Annotated[Path, typer.Option("--output", "-o", help="The Parquet file to write.")],
    folder: WorkFolder = DEFAULT_FOLDER,
    force: Force = False,
) -> None:
    """Copy the collaboration matrix to a Parquet file: one row a record, aligned, with its participant and label.

    Example: mooring export --folder analysis --output collaboration.parquet
    """
    from mooring.protocol.analyst.collaboration_matrix import export as export_table

    path = export_table(folder, output, force=force)
    console.show(
        {"output": str(path)},
        f"Wrote {escape(str(path))}: columns participant, label (where the study has one) and z1, z2, …",
    )
