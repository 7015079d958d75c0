"""`mooring train`: a model of everybody's rows, and how well it predicts participants it has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mooring.cli import execution
from mooring.cli.options import EngineOptions, engine_option


@execution.command
def train(
    console: execution.Output,
    engine: EngineOptions,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    folder: execution.WorkFolder = execution.DEFAULT_FOLDER,
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
    """Take the step 'train'.

    A model of aligned rows is scored on participants that it was not trained on. In a study of secure sums the total is
    opened from the combiners' shares; its learners are auto, discriminant (classes) and least-squares. There are no rows
    to score such a model on, so participants do.

    Exit code 3 means: done, but somebody's rows were left out, or a combiner's share does not fit.

    Example: mooring train --study study.toml --folder analysis --learner linear

    Secure sums: mooring train --study study.toml --folder analysis --shares inbox

    In pieces, on all rows: mooring train --engine dask --learner random-fourier (or linear, or xgboost)
    """
    place = execution.make_place(study, folder=folder)
    with engine.connect(passes=passes) as place.engine:
        outcome = execution.take_step("train", place, learner=learner, seed=seed, shares=shares)
    console.show_outcome(outcome)
    return execution.STANDINGS[outcome.standing]
