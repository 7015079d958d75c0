"""`mooring train`: train the joint model, and score it on participants that it was not trained on."""

from __future__ import annotations

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
            help="linear, random-fourier, forest, gradient-boosting or xgboost; with --engine dask only linear, "
            "random-fourier or xgboost. auto chooses linear or random-fourier by their scores across participants."
        ),
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Random seed of the learner; the same seed gives the same model.")] = 0,
    passes: Annotated[
        int | None,
        engine_option(
            help="Number of passes over the rows, if the label has classes; not for xgboost.",
            show_default="2 to 20, by the number of rows",
        ),
    ] = None,
    shares: Annotated[
        str | None,
        typer.Option(help="Folder of the combiners' *.share files, or its URL.", rich_help_panel="Secure sums"),
    ] = None,
    outcome: Annotated[
        str,
        typer.Option(
            help="Column to predict, in a study with questions.",
            show_default="the label",
            rich_help_panel="Secure sums",
        ),
    ] = "",
) -> int:
    """Take the step 'train'.

    A model of aligned rows is scored on participants that it was not trained on. In a study of secure sums, the total is
    opened from the combiners' shares, and the learners are auto, discriminant (for classes), least-squares and, where the
    rows of each class are summed on their own, quadratic. The analyst has no rows to score such a model on, so participants
    evaluate it locally.

    Exit code 3 means that the step is done, but somebody's rows were left out, or a combiner's share could not be used.

    Example: mooring train --study study.toml --folder analysis --learner linear

    Secure sums: mooring train --study study.toml --folder analysis --shares inbox

    Another outcome: mooring train --shares inbox --outcome smoker

    With Dask, in pieces: mooring train --engine dask --learner random-fourier
    """
    workspace = execution.make_workspace(study, folder=folder)
    with engine.connect(passes=passes) as workspace.engine:
        trained = execution.take_step("train", workspace, learner=learner, seed=seed, shares=shares, outcome=outcome)
    return console.show_outcome(trained)
