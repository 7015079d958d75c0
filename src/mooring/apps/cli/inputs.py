"""Options that `mooring audit` and `mooring plan` share: which file, how it is dealt out, where results go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mooring import InputError, Lens
from mooring.datasets import Deal, Records, deal, read_records, set_aside
from mooring.errors import MooringError
from mooring.measures import onnx_embedding, train_digit_auditor

_TEST_ROWS = 3000

DataPath = Annotated[
    Path,
    typer.Argument(
        help="A table (.csv, .parquet) or images (a folder with one subfolder a class, .npz, IDX, .parquet)."
    ),
]
Label = Annotated[str | None, typer.Option(help="The column to predict.", rich_help_panel="Data")]
Participants = Annotated[
    int, typer.Option(min=2, help="How many participants to deal the rows to.", rich_help_panel="Data")
]
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
        help="Share of rows set aside as public, for a public SVD.",
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
AccompliceOption = Annotated[
    list[str] | None,
    typer.Option(
        help="A participant that colludes, by name; may be given again.",
        show_default="the first",
        rich_help_panel="Attacker",
    ),
]
VictimOption = Annotated[
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
Learner = Annotated[str, typer.Option(help="auto, svm, linear or forest.", rich_help_panel="Study")]
Seed = Annotated[int, typer.Option(min=0, help="Another seed gives another split, other secrets, other noise.")]
Device = Annotated[str | None, typer.Option(help="Where to run: cpu, or cuda where there is one.", show_default="cpu")]
Output = Annotated[
    Path,
    typer.Option(
        help="Folder for report.html and the result; made if missing. A run that was interrupted goes on from it."
    ),
]
Format = Annotated[str, typer.Option("--format", help="What to print: table, or json for other programs.")]
Examples = Annotated[
    bool,
    typer.Option("--examples/--no-examples", help="Whether the report shows a few original rows beside rebuilt ones."),
]


@dataclass(frozen=True, eq=False)
class Given:
    """What a command was given, read and dealt out."""

    records: Records
    dealt: Deal
    lens: Lens
    accomplices: tuple[int, ...]
    targets: tuple[int, ...] | None


def read_and_deal(
    path: Path,
    *,
    label: str | None,
    participants: int,
    split_by: str | None,
    rows_each: int | None,
    drop: list[str] | None,
    missing: list[str] | None,
    size: int | None,
    public_share: float | None,
    components: int | None,
    projection: str,
    attribute: str | None,
    auditor: str | None,
    examples: bool,
    colluders: int,
    accomplice: list[str] | None,
    victim: list[str] | None,
    seed: int,
) -> Given:
    """Read a file, set an attribute aside, deal the rows out, and make the lens that fits them."""
    records = read_records(path, label=label, group_by=split_by, drop=drop or (), missing=missing or (), size=size)
    values, kind = None, "category"
    if attribute is not None:
        records, values, kind = set_aside(records, attribute)
    h = components or min(30, records.n_features)
    wants_public = projection == "public-svd" or (
        projection == "auto" and h < records.n_features and records.n_rows > 20 * h
    )
    share = public_share if public_share is not None else 0.1 if wants_public else 0.0
    rng = np.random.default_rng([seed, 11])
    n_groups = 0 if records.groups is None else int(np.unique(records.groups).size)
    if 0 < n_groups < participants:
        participants = n_groups  # a natural split, one group each
    dealt = deal(
        records,
        n_participants=participants,
        rows_each=rows_each,
        test_share=min(0.25, max(_TEST_ROWS, participants) / records.n_rows),
        public_share=share,
        by_group=n_groups > 0,
        rng=rng,
    )
    lens = Lens(
        image_shape=records.image_shape,
        embedding=None if auditor is None else _embedding(auditor, records, dealt, seed),
        groups=records.groups if n_groups > participants else None,
        attribute=values,
        attribute_name=attribute or "attribute",
        attribute_kind=kind,  # type: ignore[arg-type]
        n_examples=6 if examples else 0,
        feature_names=records.feature_names,
    )
    accomplices = tuple(_numbered(name, dealt) for name in accomplice) if accomplice else tuple(range(colluders))
    targets = tuple(_numbered(name, dealt) for name in victim) if victim else None
    if targets is None and n_groups == participants:  # every other organisation of a natural split, up to five
        targets = tuple(i for i in range(participants) if i not in accomplices)[:5]
    return Given(records, dealt, lens, accomplices, targets)


def _numbered(name: str, dealt: Deal) -> int:
    if name not in dealt.names:
        raise InputError(
            "participant", expected=f"one of {', '.join(dealt.names)}", got=repr(name), cure="Check its name."
        )
    return dealt.names.index(name)


def progress_bar() -> Any:
    """A progress bar on standard error, and the callback that moves it."""
    bar = Progress(
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("starting", total=1)

    def tell(done: int, total: int, words: str) -> None:
        bar.update(task, completed=done, total=total, description=words)

    return bar, tell


def _embedding(auditor: str, records: Records, dealt: Deal, seed: int) -> Any:
    if records.image_shape is None:
        raise typer.BadParameter("an auditor compares images, and these are not images", param_hint="--auditor")
    if auditor == "digits":
        if dealt.test_labels is None:
            raise typer.BadParameter(
                "the digit auditor is trained on labels, and there are none", param_hint="--auditor"
            )
        used = np.concatenate(dealt.train_indices)
        free = np.setdiff1d(np.arange(records.n_rows), used)
        assert records.labels is not None
        return train_digit_auditor(records.rows[free], records.labels[free], seed=seed)
    return onnx_embedding(auditor, image_shape=records.image_shape, input_size=(112, 112), scale=2.0, offset=-1.0)


def projection_kind(name: str) -> Literal["auto", "none", "gaussian", "public-svd"]:
    """Read the name of a projection."""
    match name:
        case "auto" | "none" | "gaussian" | "public-svd":
            return name
    raise InputError(
        "projection", expected="auto, none, gaussian or public-svd", got=repr(name), cure="'auto' chooses."
    )


def refuse(problem: MooringError) -> NoReturn:
    """Say what is wrong with the input, and leave with the exit code for bad input."""
    Console(stderr=True).print(f"[bold red]mooring:[/bold red] {escape(str(problem))}", highlight=False, soft_wrap=True)
    raise typer.Exit(2)


def interrupted(output: Path) -> NoReturn:
    """Say that nothing is lost."""
    Console(stderr=True).print(
        f"Interrupted. What is finished is kept in {output}: run the same command again to go on."
    )
    raise typer.Exit(130)
