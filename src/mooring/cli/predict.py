"""`mooring predict`: raw rows in, predictions out, nothing leaves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from mooring.cli import execution
from mooring.serialization import count_noun


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
    """Score new rows with the joint model, on your own machine: raw rows in, predictions out.

    The table has the column prediction and, for classes, probability_<class> for each class (a support vector machine, and
    least squares from sums, have none).

    Preprocessing, your secret map, the analyst's map and the model in one call, without noise. The map is checked first: it
    must be orthogonal, signed by the analyst, and made from your own upload.

    Example: mooring predict new-patients.csv --result results/st-mary --study study.toml --vault st-mary/vault
    """
    from mooring.atomic_io import require_writable
    from mooring.protocol.participant.prediction import Scoring

    require_writable(output, what="the predictions", inputs=(data, study, beside, calibrate))
    execution.require_absent(output, force=force)
    participant = execution.open_participant(study, vault)
    with execution.show_progress("scoring") as moved:
        scoring = Scoring(threshold, importance, calibrate)
        found = participant.predict(
            data, result=result, own_rows=beside, scoring=scoring, ignore=ignore or (), progress=moved
        )
    found.write(output)
    participant.keep_record("predict", found.as_dict(), command=execution.quote_command())
    lines = [f"Wrote {count_noun(found.values.size, 'prediction')} to [bold]{escape(str(output))}[/bold]."]
    lines += [*map(escape, found.state_findings()), *_say_evaluation(found.as_dict())]
    console.show({**found.as_dict(), "predictions": str(output)}, *lines)


def _say_evaluation(record: Mapping[str, Any]) -> list[str]:
    """Sentences on the AUC, on both kinds of error, and on what the model looks at most."""
    from mooring.report.numbers import describe_evaluation

    described = describe_evaluation(record)
    if described is None:
        return []
    lines = [described["adjusted"]] if described["adjusted"] else []
    for one in described["measures"]:
        alone = f"; alone {one['alone']}" if one["alone"] else ""
        gain = f"; difference on the same rows {one['gain']}" if one["gain"] else ""
        lines.append(escape(f"{one['name']}: {one['joint']}{alone}{gain}."))
    if described["importance"]:
        most = ", ".join(f"{escape(one['name'])} ({one['drop']})" for one in described["importance"][:5])
        lines.append(f"What it looks at most (fall of the {described['importance_metric']} when shuffled): {most}.")
    return [*lines, "All of it is on the page of 'mooring report', with the confusion table and the calibration."]
