"""Options that `mooring audit` and `mooring plan` share: which file, how its rows are partitioned, where results go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DataPath = Annotated[
    Path,
    typer.Argument(
        help="A table (.csv, .parquet) or images (a folder with one subfolder a class, .npz, IDX, .parquet)."
    ),
]
StudyOption = Annotated[
    Path | None,
    typer.Option(
        "--study",
        help="A study's file: rows are encoded as it says, and its method, noise and projection are used.",
        rich_help_panel="Study",
    ),
]
Label = Annotated[str | None, typer.Option(help="The column to predict.", rich_help_panel="Data")]
Participants = Annotated[int, typer.Option(min=2, help="How many participants share the rows.", rich_help_panel="Data")]
SplitBy = Annotated[
    str | None,
    typer.Option(
        help="A column that says whose row it is: a hospital, or a person. Its rows stay together.",
        rich_help_panel="Data",
    ),
]
RowsEach = Annotated[
    int | None, typer.Option(min=2, help="At most so many rows a participant.", rich_help_panel="Data")
]
Drop = Annotated[
    list[str] | None, typer.Option(help="A column to leave out; may be given again.", rich_help_panel="Data")
]
Missing = Annotated[
    list[str] | None,
    typer.Option(help="What stands for a missing value, besides ?, NA and nothing.", rich_help_panel="Data"),
]
Size = Annotated[
    int | None, typer.Option(min=2, help="Resize images to this width and height.", rich_help_panel="Data")
]
PublicShare = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=0.9,
        help="Share of rows held out as public, for a public SVD.",
        show_default="0.1 if it is needed",
        rich_help_panel="Data",
    ),
]
Components = Annotated[
    int | None,
    typer.Option(min=1, help="Components h to share.", show_default="all features, up to 30", rich_help_panel="Study"),
]
ProjectionOption = Annotated[str, typer.Option(help="auto, none, gaussian or public-svd.", rich_help_panel="Study")]
Colluders = Annotated[
    int, typer.Option(min=1, help="How many participants collude with the analyst.", rich_help_panel="Attacker")
]
ColluderOption = Annotated[
    list[str] | None,
    typer.Option(
        help="A participant that colludes, by name; may be given again.",
        show_default="the first",
        rich_help_panel="Attacker",
    ),
]
TargetOption = Annotated[
    list[str] | None,
    typer.Option(
        help="A participant that is attacked, by name; may be given again.",
        show_default="the next ones",
        rich_help_panel="Attacker",
    ),
]
Attribute = Annotated[
    str | None,
    typer.Option(help="A column that is not shared; can it be inferred from what is?", rich_help_panel="Attacker"),
]
AuditorOption = Annotated[
    str | None,
    typer.Option(
        help="'digits' trains a network on the public and test images; a path to an ONNX model embeds faces.",
        rich_help_panel="Attacker",
    ),
]
Learner = Annotated[
    str,
    typer.Option(
        help="auto, linear, random-fourier, nystroem, svm or forest; auto is what 'mooring train' would choose.",
        rich_help_panel="Study",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Another seed gives another split, other secrets, other noise.")]
Device = Annotated[str | None, typer.Option(help="Where to run: cpu, or cuda where there is one.", show_default="cpu")]
Output = Annotated[
    Path,
    typer.Option(
        help="Folder for report.html and the result; made if missing. A run that was interrupted goes on from it."
    ),
]
Examples = Annotated[
    bool,
    typer.Option("--examples/--no-examples", help="Whether the report shows a few original rows beside rebuilt ones."),
]
