"""`mooring export`: the collaboration matrix, or the model as ONNX, for any other tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli import execution
from mooring.cli.execution import DEFAULT_FOLDER, Force, Output, WorkFolder, command


@command
def export(
    console: Output,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The file to write: .onnx for the model, Parquet otherwise.")
    ],
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    folder: WorkFolder = DEFAULT_FOLDER,
    result: Annotated[
        Path | None, typer.Option(help="A participant's folder of what the analyst delivered, instead of --folder.")
    ] = None,
    force: Force = False,
) -> None:
    """Take the step 'export'.

    The Parquet file has an aligned row for each record, with its participant and label. With an output that ends in .onnx,
    write the model instead, for scoring elsewhere: from aligned rows or, in a study of secure sums, from encoded rows to
    predictions. This needs the extra onnx; mooring itself never reads such a file.

    Example: mooring export --folder analysis --output collaboration.parquet

    The model: mooring export --study study.toml --folder analysis --output model.onnx
    """
    if output.suffix == ".onnx":
        from mooring.protocol.analyst.model_export import export_model

        path = export_model(execution.read_study(study), output, folder=folder, result=result, force=force)
        console.show({"output": str(path)}, f"Wrote {escape(str(path))}: from float32 rows to predictions.")
        return
    from mooring.protocol.rotation.collaboration_matrix import export as export_table

    path = export_table(folder, output, force=force)
    console.show(
        {"output": str(path)},
        f"Wrote {escape(str(path))}: columns participant, label (where the study has one) and z1, z2, …",
    )
