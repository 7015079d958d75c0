"""`mooring export`: write the collaboration matrix as Parquet, or the model as ONNX, for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli import execution
from mooring.cli.execution import DEFAULT_FOLDER, Force, Output, WorkFolder, command
from mooring.errors import InputError


@command
def export(
    console: Output,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="File to write: the model if it ends in .onnx, otherwise aligned rows as Parquet."
        ),
    ],
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    folder: WorkFolder = DEFAULT_FOLDER,
    result: Annotated[
        Path | None, typer.Option(help="For a model, the folder that a participant received, instead of --folder.")
    ] = None,
    force: Force = False,
) -> None:
    """Take the step 'export'.

    The Parquet file has one aligned row per record, with its participant and label. If the output ends in .onnx, the model
    is written instead, for scoring elsewhere. Its input is aligned rows or, in a study of secure sums, encoded rows. Writing
    a model needs mooring's extra 'onnx'; mooring itself never reads such a file.

    Example: mooring export --folder analysis --output collaboration.parquet

    The model: mooring export --study study.toml --folder analysis --output model.onnx
    """
    if output.suffix == ".onnx":
        from mooring.protocol.analyst.model_export import export_model

        path = export_model(execution.read_study(study), output, folder=folder, result=result, force=force)
        console.show(
            {"output": str(path)}, f"Wrote {escape(str(path))}. Its input is rows of float32, its output predictions."
        )
        return
    if result is not None:
        cure = "Name an output that ends in .onnx, or leave --result out."
        raise InputError("--result", problem="Only a model is exported from a participant's result.", cure=cure)
    from mooring.protocol.rotation.analyst.collaboration_matrix import export as export_table

    path = export_table(folder, output, force=force)
    console.show(
        {"output": str(path)},
        f"Wrote {escape(str(path))} with the columns participant, label (if the study has one) and z1, z2, …",
    )
