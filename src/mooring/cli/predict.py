"""`mooring predict`: predict new rows locally; nothing is uploaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from mooring.cli import execution

if TYPE_CHECKING:
    from mooring.protocol.participant.prediction import PredictionRecord


@execution.command
def predict(
    console: execution.Output,
    data: execution.TablePath,
    result: Annotated[
        str,
        typer.Option(help="Folder that the analyst delivered to you, or its URL: s3://bucket/results/YOUR-NAME."),
    ],
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    output: Annotated[
        Path,
        typer.Option(help="File for the predictions, one line per row: Parquet if it ends in .parquet, otherwise CSV."),
    ] = Path("predictions.csv"),
    force: execution.Force = False,
    beside: Annotated[
        Path | None,
        typer.Option(
            help="Table of the rows that you shared. If the new rows have labels, a model trained on your shared rows "
            "alone is compared with the joint model."
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Smallest probability at which the second of two classes is predicted. By default, the prediction is the "
            "class whose probability is largest in relation to its share of the training rows."
        ),
    ] = None,
    importance: Annotated[
        bool,
        typer.Option("--importance", help="Measure how much each column matters to the model, if there are labels."),
    ] = False,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            help="Table of labelled rows that you did not share. Probabilities are recalibrated on them; predicted numbers "
            "get the columns low and high, an interval that holds nine of ten rows."
        ),
    ] = None,
    ignore: execution.IgnoreColumns = None,
    mapping: execution.MappingPath = None,
) -> None:
    """Take the step 'predict'.

    The output has the column prediction and, for classes, a column probability_<class> for each class. A model that was
    trained on sums by least squares has no probabilities.

    New rows are read in the same way as the rows that you share. A row that cannot be read is listed, and has no prediction.

    Rows are encoded and predicted by the model, all locally and without noise. With rotation, they are first mapped by your
    secret map and by the analyst's map for you. The analyst's map must be orthogonal, signed by the analyst, and made from
    your own upload.

    Example: mooring predict new-patients.csv --result results/st-mary --study study.toml --vault st-mary/vault
    """
    outcome = execution.take_step(
        "predict",
        execution.make_workspace(study, vault, mapping=mapping),
        data=data,
        result=result,
        beside=beside,
        importance=importance,
        force=force,
        ignore=ignore,
        threshold=threshold,
        calibrate=calibrate,
        output=output,
    )
    console.show_outcome(outcome)
    console.say(*_say_evaluation(outcome.result.record))


def _say_evaluation(record: PredictionRecord) -> list[str]:
    """Return sentences on recalibration, on how good the predictions are, and on the columns that matter most."""
    lines = [] if record.adjustment is None else [str(record.adjustment)]
    if record.evaluation is not None:
        for name, joint, alone, gain in record.evaluation.list_measures()[1:]:
            beside = f"; alone {alone}" if alone else ""
            beside += f"; difference on the same rows {gain}" if gain else ""
            lines.append(escape(f"{name}: {joint}{beside}."))
    if record.importance is not None:
        metric, columns = record.importance
        most = ", ".join(f"{escape(column.name)} ({column.drop:+z.3f})" for column in columns[:5])
        lines.append(f"Columns that matter most (fall of the {metric} when a column is shuffled): {most}.")
    more = "'mooring report' shows all measures, with the confusion table and the calibration."
    return [*lines, more] if lines else []
