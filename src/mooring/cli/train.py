"""`mooring train`: a model of everybody's rows, and how well it predicts participants it has not seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from mooring.cli import execution
from mooring.cli.align import DEFAULT_FOLDER, WorkFolder
from mooring.cli.engine import EngineOptions, engine_option
from mooring.cli.options import expand_options
from mooring.errors import InputError
from mooring.serialization import Rows

if TYPE_CHECKING:
    from mooring.protocol.analyst.sum_training import SumTraining
    from mooring.protocol.analyst.training import Training
    from mooring.protocol.messages.study import Study


@expand_options
def train(
    engine: EngineOptions,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    folder: WorkFolder = DEFAULT_FOLDER,
    learner: Annotated[
        str,
        typer.Option(
            help="auto (linear or random-fourier, by score across participants), linear, random-fourier, forest, nystroem, "
            "svm, and with --engine dask xgboost. The model of nystroem and svm holds rows, and is not delivered unasked."
        ),
    ] = "auto",
    seed: Annotated[int, typer.Option(help="For what a learner draws at random; the same seed, the same model.")] = 0,
    passes: Annotated[
        int | None, engine_option(help="Passes over the rows; not with xgboost.", show_default="2 to 20")
    ] = None,
    shares: Annotated[
        Path | None, typer.Option(help="Folder of the combiners' *.share files.", rich_help_panel="Secure sums")
    ] = None,
    format: execution.Format = "text",
) -> None:
    """Train a model on the aligned rows, and score it on participants that it was not trained on.

    In a study of secure sums: open the total from the combiners' shares, and train on it. The learners are then auto,
    discriminant (classes) and least-squares; there are no rows to score it on, so participants do.

    Exit code 3 means: done, but somebody's rows were left out, or a combiner's share does not fit.

    Example: mooring train --study study.toml --folder analysis --learner linear

    Secure sums: mooring train --study study.toml --folder analysis --shares inbox

    In pieces, on all rows: mooring train --engine dask --learner random-fourier (or linear, or xgboost)
    """
    with execution.run_command(format) as console:
        from mooring.protocol.analyst.training import train as train_model
        from mooring.protocol.messages.study import Study

        opened = Study.read(study)
        if opened.sums is not None:
            if _train_sums(opened, folder, shares, learner, console):
                return
            raise typer.Exit(execution.IN_PART)
        asked: dict[str, Any] = {"learner": learner, "seed": seed, "command": execution.quote_command()}
        with engine.connect(passes=passes) as client, execution.show_progress("Training") as tell:
            if client is None:
                found = train_model(opened, folder, **asked, progress=tell)
            else:
                from mooring.engines.dask import train_on_dask

                found = train_on_dask(client, opened, folder, **asked, passes=passes, progress=tell)
        console.show(found.as_dict(), *_describe_training(found), _describe_model(folder))
    if found.left_out:
        raise typer.Exit(execution.IN_PART)


def _train_sums(study: Study, folder: Path, shares: Path | None, learner: str, console: execution.Output) -> bool:
    """Train on the total; whether every share fits and the total is plausible."""
    from mooring.protocol.analyst.sum_training import train_sums

    if shares is None:
        expected = "the folder of the combiners' shares"
        raise InputError("--shares", expected=expected, got="none", cure="They come of 'mooring combine'.")
    found = train_sums(study, folder, shares, learner=learner, command=execution.quote_command())
    console.show(found.as_dict(), *_describe_sum_training(found), _describe_model(folder))
    return not (found.wrong or found.remarks)


def _describe_model(folder: Path) -> str:
    return f"The model is in {escape(str(folder / 'model.onnx'))}. Next: mooring deliver"


def _describe_sum_training(found: SumTraining) -> Iterator[str | Table]:
    for name in found.wrong:
        yield f"[yellow]Left out[/yellow] the share of {name}: it does not fit the others'."
    for remark in found.remarks:
        yield f"[yellow]Note:[/yellow] {remark}"
    if not found.checked:
        yield "There was no share to spare: had a combiner answered wrongly, nobody could tell. One more share tells."
    yield f"{found} Each participant scores the model at home."
    if found.coefficients:
        title = "What the prediction changes by, all else equal (ridge regression: shrunk toward 0)"
        yield _table(found.list_coefficients(), title, n_left=2)


def _table(lines: Rows, title: str, *, n_left: int) -> Table:
    """Lines of text as a table of the terminal."""
    table = Table(title=title)
    for k, heading in enumerate(lines[0]):
        table.add_column(heading, justify="left" if k < n_left else "right")
    for row in lines[1:]:
        table.add_row(*row)
    return table


def _describe_training(found: Training) -> Iterator[str | Table]:
    used = "" if found.rows_used == found.rows else f" ({found.rows_used:,} of them, drawn evenly, were used)"
    yield f"[bold]Trained[/bold] {found.learner!r} on {found.rows:,} rows{used}."
    for name, own in found.left_out:
        yield (
            f"[yellow]Left out[/yellow] {name}: models of the others' rows do not go with its labels (its score: {own}), as "
            "if its rows were in the wrong place. Ask how its upload was made; it gets its map and the model all the same."
        )
    yield _table(found.list_scores(), f"{found.score.metric.capitalize()} on each participant's rows", n_left=1)
    yield (
        f"Together: {found.score.with_interval()}, a score [bold]across participants[/bold]: each was predicted by a model "
        "trained on the others only. These are uploaded rows, noise and all; new rows are scored without noise."
    )
    yield (
        "'Alone' is cross-validated within each participant's own upload: a stand-in, since these rows carry whatever "
        "noise the study adds. What the pooled raw rows would give, an analyst cannot know."
        if found.alone
        else f"Scored on {found.score.n:,} rows. 'Alone' was not computed: rows in pieces, or too few, do not allow it."
    )
    if found.holds_rows:
        yield "[yellow]This model holds participants' rows[/yellow]; 'auto' makes one that does not."
