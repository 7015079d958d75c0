"""`mooring train`: a model of everybody's rows, and how well it predicts participants it has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli import execution
from mooring.cli.align import DEFAULT_FOLDER, WorkFolder
from mooring.cli.execution import make_table
from mooring.cli.options import EngineOptions, engine_option


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
    from mooring.protocol.exchange import TrainOptions

    opened, command = execution.read_study(study), execution.quote_command()
    with engine.connect(passes=passes) as chosen, execution.show_progress("Training") as tell:
        options = TrainOptions(learner, seed, shares, command, tell)
        found = chosen.train(opened, folder, options)
    tables = [make_table(rows, title=title, n_left=1) for title, rows in found.list_tables().items()]
    notes = (f"[yellow]Note:[/yellow] {escape(sentence)}" for sentence in found.state_warnings())
    scores = map(escape, found.state_scores())
    console.show(found.as_dict(), escape(str(found)), *notes, *tables, *scores, _describe_model(folder))
    return None if found.is_whole else execution.IN_PART


def _describe_model(folder: Path) -> str:
    return f"The model is in {escape(str(folder / 'training.safetensors'))}. Next: mooring deliver"
