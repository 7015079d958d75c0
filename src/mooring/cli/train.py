"""`mooring train`: a model of everybody's rows, and how well it predicts participants it has not seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from mooring.cli import execution
from mooring.cli.align import DEFAULT_FOLDER, WorkFolder
from mooring.cli.execution import make_table
from mooring.cli.options import EngineOptions, engine_option
from mooring.errors import InputError

if TYPE_CHECKING:
    from mooring.protocol.analyst.sum_training import SumTraining
    from mooring.protocol.analyst.training import Training
    from mooring.protocol.messages.study import Study


@execution.command
def train(
    console: execution.Output,
    engine: EngineOptions,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    folder: WorkFolder = DEFAULT_FOLDER,
    learner: Annotated[
        str,
        typer.Option(
            help="auto (linear or random-fourier, by score across participants), linear, random-fourier, forest, "
            "gradient-boosting or xgboost; with --engine dask, linear, random-fourier or xgboost."
        ),
    ] = "auto",
    seed: Annotated[int, typer.Option(help="For what a learner draws at random; the same seed, the same model.")] = 0,
    passes: Annotated[
        int | None, engine_option(help="Passes over the rows; not with xgboost.", show_default="2 to 20")
    ] = None,
    shares: Annotated[
        Path | None, typer.Option(help="Folder of the combiners' *.share files.", rich_help_panel="Secure sums")
    ] = None,
) -> int | None:
    """Train a model on the aligned rows, and score it on participants that it was not trained on.

    In a study of secure sums: open the total from the combiners' shares, and train on it. The learners are then auto,
    discriminant (classes) and least-squares; there are no rows to score it on, so participants do.

    Exit code 3 means: done, but somebody's rows were left out, or a combiner's share does not fit.

    Example: mooring train --study study.toml --folder analysis --learner linear

    Secure sums: mooring train --study study.toml --folder analysis --shares inbox

    In pieces, on all rows: mooring train --engine dask --learner random-fourier (or linear, or xgboost)
    """
    opened, command = execution.read_study(study), execution.quote_command()
    if opened.sums is not None:
        return _train_sums(opened, folder, shares, learner, console)
    with engine.connect(passes=passes) as chosen, execution.show_progress("Training") as tell:
        found = chosen.train(opened, folder, learner=learner, seed=seed, command=command, progress=tell)
    console.show(found.as_dict(), *_describe_training(found), _describe_model(folder))
    return execution.IN_PART if found.left_out else None


def _train_sums(study: Study, folder: Path, shares: Path | None, learner: str, console: execution.Output) -> int | None:
    """Train on the total."""
    from mooring.protocol.analyst.sum_training import train_sums

    if shares is None:
        expected = "the folder of the combiners' shares"
        raise InputError("--shares", expected=expected, got="none", cure="They come of 'mooring combine'.")
    found = train_sums(study, folder, shares, learner=learner, command=execution.quote_command())
    console.show(found.as_dict(), *_describe_sum_training(found), _describe_model(folder))
    return execution.IN_PART if found.wrong or found.remarks else None


def _describe_model(folder: Path) -> str:
    return f"The model is in {escape(str(folder / 'training.safetensors'))}. Next: mooring deliver"


def _describe_sum_training(found: SumTraining) -> Iterator[str | Table]:
    yield from _warn(found)
    yield f"{found} Each participant scores the model at home."
    if found.coefficients:
        title = "What the prediction changes by, all else equal (ridge regression: shrunk toward 0)"
        yield make_table(found.list_coefficients(), title=title, n_left=2)


def _describe_training(found: Training) -> Iterator[str | Table]:
    yield str(found)
    yield from _warn(found)
    title = f"{found.score.metric.capitalize()} on each participant's rows"
    yield make_table(found.list_scores(), title=title, n_left=1)
    yield from map(escape, found.state_scores())


def _warn(found: Training | SumTraining) -> Iterator[str]:
    for sentence in found.state_warnings():
        yield f"[yellow]Note:[/yellow] {escape(sentence)}"
