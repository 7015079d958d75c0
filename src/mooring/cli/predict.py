"""`mooring predict`: raw rows in, predictions out, nothing leaves."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from mooring.cli.execution import (
    DEFAULT_STUDY,
    DEFAULT_VAULT,
    Format,
    IgnoreColumns,
    StudyPath,
    TablePath,
    VaultPath,
    open_participant,
    quote_command,
    run_command,
    show_progress,
)
from mooring.errors import InputError


def predict(
    data: TablePath,
    result: Annotated[
        str,
        typer.Option(help="The folder that the analyst delivered to you, or its URL: s3://bucket/results/YOUR-NAME."),
    ],
    study: StudyPath = DEFAULT_STUDY,
    vault: VaultPath = DEFAULT_VAULT,
    output: Annotated[
        Path, typer.Option(help="Where the predictions go, one line a row: CSV, or Parquet if it ends in .parquet.")
    ] = Path("predictions.csv"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
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
    ignore: IgnoreColumns = None,
    format: Format = "text",
) -> None:
    """Score new rows with the joint model, on your own machine: raw rows in, predictions out.

    The table has the column prediction and, for classes, probability_<class> for each class (a support vector machine, and
    least squares from sums, have none).

    Preprocessing, your secret map, the analyst's map and the model in one call, without noise. The map is checked first: it
    must be orthogonal, signed by the analyst, and made from your own upload.

    Example: mooring predict new-patients.csv --result results/st-mary --study study.toml --vault st-mary/vault
    """
    with run_command(format) as console:
        from mooring.atomic_io import require_writable, write_atomically
        from mooring.protocol.participant.prediction import Scoring
        from mooring.protocol.transport.addresses import is_url, local_path

        require_writable(output, what="the predictions", inputs=(data, study, beside))
        if output.exists() and not force:
            raise InputError(
                "--output",
                expected="a file that is not there",
                got="one that is",
                cure="Choose another --output, or give --force.",
            )
        participant = open_participant(study, vault)
        file = "map.safetensors" if participant.study.sums is None else "result.safetensors"
        if not is_url(result) and not (local_path(result) / file).is_file():
            raise InputError(
                "result",
                expected=f"your own folder of what the analyst delivered, with {file} in it",
                got="a folder without it" if local_path(result).is_dir() else "no folder",
                cure="Give --result results/YOUR-NAME.",
            )
        with show_progress("scoring") as moved:
            scoring = Scoring(threshold, importance)
            found = participant.predict(
                data, result=result, own_rows=beside, scoring=scoring, ignore=ignore or (), progress=moved
            )
        write_atomically(output, _write_table(output, found.as_table()), mode=0o600, what="the predictions")
        record = {"command": quote_command(), **found.as_dict()}
        kept = participant.vault.study_folder(participant.study.folder_name) / "predict.json"
        if found.score is None and kept.exists():  # a score is kept for the report
            record = json.loads(kept.read_bytes()) | {name: record[name] for name in ("risk", "override")}
        participant.vault.write(participant.study.folder_name, kept.name, json.dumps(record).encode())
        lines = [f"Wrote {found.values.size} predictions to [bold]{escape(str(output))}[/bold]."]
        if found.release is not None:
            limit, override = participant.study.model_limit, escape(found.release.override)
            above = f" It was delivered all the same by {override}." if override else ""
            lines.append(f"Of the rows behind the model up to {found.release.risk:.1%} may be told; '{limit}'.{above}")
        if found.score is not None:
            lines.append(f"Joint model on these rows: {found.score.metric} {found.score.with_interval()}.")
        if found.local_only is not None:
            lines.append(f"Your own rows alone: {found.local_only.with_interval()}.")
        if found.gain is not None:
            lines.append(found.gain.sentence())
        lines += _say_evaluation(found.as_dict())
        console.show({**found.as_dict(), "predictions": str(output)}, *lines)


def _say_evaluation(record: Mapping[str, Any]) -> list[str]:
    """Sentences on the AUC, on both kinds of error, and on what the model looks at most."""
    from mooring.report.numbers import describe_evaluation

    described = describe_evaluation(record)
    if described is None:
        return []
    lines = []
    for one in described["measures"]:
        alone = f"; alone {one['alone']}" if one["alone"] else ""
        gain = f"; difference on the same rows {one['gain']}" if one["gain"] else ""
        lines.append(escape(f"{one['name']}: {one['joint']}{alone}{gain}."))
    if described["importance"]:
        most = ", ".join(f"{escape(one['name'])} ({one['drop']})" for one in described["importance"][:5])
        lines.append(f"What it looks at most (fall of the {described['importance_metric']} when shuffled): {most}.")
    return [*lines, "All of it is on the page of 'mooring report', with the confusion table and the calibration."]


def _write_table(path: Path, columns: Mapping[str, Sequence[Any]]) -> bytes:
    """A table as Parquet or CSV, by the file's name."""
    from mooring.tables.files import is_parquet

    if is_parquet(path):
        import pyarrow as pa
        import pyarrow.parquet

        written = pa.BufferOutputStream()
        pa.parquet.write_table(pa.table(dict(columns)), written)
        return bytes(written.getvalue())
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([list(columns), *zip(*columns.values(), strict=True)])
    return text.getvalue().encode()
