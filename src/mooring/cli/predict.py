"""`mooring predict`: raw rows in, predictions out, nothing leaves."""

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
        typer.Option(help="The folder that the analyst delivered to you, or its URL: s3://bucket/results/YOUR-NAME."),
    ],
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    output: Annotated[
        Path, typer.Option(help="Where the predictions go, one line a row: CSV, or Parquet if it ends in .parquet.")
    ] = Path("predictions.csv"),
    force: execution.Force = False,
    beside: Annotated[
        Path | None,
        typer.Option(
            help="The rows you shared: trains a model on them alone, for comparison, if the new rows have labels."
        ),
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="From which probability on the second of two classes counts as predicted, in scores.")
    ] = 0.5,
    importance: Annotated[
        bool,
        typer.Option("--importance", help="Measure what the model looks at, column by column, if there are labels."),
    ] = False,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            help="Labelled rows of yours that you did not share: probabilities are recalibrated on them, numbers get the "
            "columns low and high, between which nine of ten rows lie."
        ),
    ] = None,
    ignore: execution.IgnoreColumns = None,
) -> None:
    """Take the step 'predict'.

    The table has the column prediction and, for classes, probability_<class> for each class (a support vector machine, and
    least squares from sums, have none).

    Preprocessing, your secret map, the analyst's map and the model in one call, without noise. The map is checked first: it
    must be orthogonal, signed by the analyst, and made from your own upload.

    Example: mooring predict new-patients.csv --result results/st-mary --study study.toml --vault st-mary/vault
    """
    outcome = execution.take_step(
        "predict",
        execution.make_place(study, vault),
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
    """Sentences on the AUC, on both kinds of error, and on what the model looks at most."""
    lines = [] if record.adjustment is None else [str(record.adjustment)]
    if record.evaluation is not None:
        for name, joint, alone, gain in record.evaluation.list_measures()[1:]:
            beside = f"; alone {alone}" if alone else ""
            beside += f"; difference on the same rows {gain}" if gain else ""
            lines.append(escape(f"{name}: {joint}{beside}."))
    if record.importance is not None:
        metric, columns = record.importance
        most = ", ".join(f"{escape(column.name)} ({column.drop:+z.3f})" for column in columns[:5])
        lines.append(f"What it looks at most (fall of the {metric} when shuffled): {most}.")
    more = "All of it is on the page of 'mooring report', with the confusion table and the calibration."
    return [*lines, more] if lines else []
