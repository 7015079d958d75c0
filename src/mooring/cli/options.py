"""Options that several commands share, as dataclasses whose fields Typer reads."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mooring.errors import InputError
from mooring.protocol.step import split_words

if TYPE_CHECKING:
    from mooring.protocol.analyst.role import Engine

_ADDRESS = "MOORING_DASK_SCHEDULER"
_PANELS = ("Data", "Study", "Attacker", "Secure sums (--mechanism secure-sum)", "Other engines")
data_option, study_option, attacker_option, sum_option, engine_option = (
    partial(typer.Option, rich_help_panel=panel) for panel in _PANELS
)
ProjectionChoice = Literal["auto", "none", "gaussian", "public-svd"]
DataPath = Annotated[
    Path,
    typer.Argument(
        help="A table (.csv, .parquet) or images (a folder with one subfolder per class, .npz, IDX, .parquet)."
    ),
]
ReportFolder = Annotated[
    Path,
    typer.Option(help="Folder for report.html and the result. An interrupted run continues from what it holds."),
]


def parse_epsilon(word: str) -> float | None:
    """Return the ε that a person wrote: a positive number, or None for 'none'."""
    try:
        epsilon = None if word == "none" else float(word)
    except ValueError:
        epsilon = math.nan
    if epsilon is not None and not 0 < epsilon < math.inf:
        raise InputError(
            "--epsilon", expected="a positive number, or 'none'", got=repr(word), cure="A usual value is 1."
        )
    return epsilon


@dataclass(frozen=True, kw_only=True)
class SumOptions:
    """Options for secure sums, for the commands that draft a study."""

    epsilon: Annotated[
        str | None,
        sum_option(
            help="Privacy loss ε of adding or removing one row or person; 'none' adds no noise.", show_default="1"
        ),
    ] = None
    delta: Annotated[
        float | None,
        sum_option(
            help="δ of the guarantee; choose it far below 1 divided by the number of all rows.", show_default="1e-5"
        ),
    ] = None
    colluders: Annotated[
        int | None,
        sum_option(min=1, help="Number of participants that may collude with the analyst.", show_default="1"),
    ] = None
    combiner: Annotated[
        list[str] | None,
        sum_option(
            help="Member that holds shares; repeatable.", show_default="the helpers, or the first 15 participants"
        ),
    ] = None
    threshold: Annotated[
        int | None,
        sum_option(
            min=1, help="Number of combiners needed to open the total.", show_default="the smallest safe number"
        ),
    ] = None
    quorum: Annotated[
        int | None,
        sum_option(
            min=1, help="Minimum number of contributions.", show_default="all participants; nearly all if more than 16"
        ),
    ] = None
    person: Annotated[
        str | None,
        sum_option(help="Column that names persons, to protect persons instead of rows; it is never uploaded."),
    ] = None
    rows_per_person: Annotated[
        str | None,
        sum_option(
            help="Largest number of rows per person; 'mean' allows any number and uses their mean.", show_default="1"
        ),
    ] = None
    log_scaled: Annotated[
        list[str] | None, sum_option(help="Column of numbers to use on a logarithmic scale; repeatable.")
    ] = None
    hats: Annotated[
        int | None,
        sum_option(
            min=0, help="Number of curve pieces per column of numbers; 0 fits straight lines.", show_default="5"
        ),
    ] = None
    question: Annotated[
        list[str] | None,
        sum_option(
            help="What the total must answer: model, tables, regression or survival; repeatable.", show_default="model"
        ),
    ] = None
    survival_time: Annotated[str | None, sum_option(help="Column of times to an event, for survival.")] = None
    survival_event: Annotated[str | None, sum_option(help="Column whose two words say whether the event occurred.")] = (
        None
    )
    survival_occurred: Annotated[str | None, sum_option(help="The word for an event that occurred.")] = None
    survival_edge: Annotated[
        list[float] | None, sum_option(help="A boundary of the time intervals, the first usually 0; repeatable.")
    ] = None
    impossible: Annotated[
        list[str] | None,
        sum_option(
            help="Combination that cannot occur, such as sex=m,pregnant=yes; synthetic rows have none; repeatable."
        ),
    ] = None
    least_rows: Annotated[
        int | None,
        sum_option(min=1, help="Minimum number of rows of a participant in a study without noise.", show_default="10"),
    ] = None
    expected_rows: Annotated[
        int | None,
        sum_option(
            min=1,
            help="Number of rows that all participants together are expected to have, for a forecast of the answers. "
            "If they are enough for the noise, images with three classes or more are summed class by class.",
        ),
    ] = None

    def entries(self) -> dict[str, Any]:
        """Return the entries of [mechanism] that these options set."""
        names = {
            "combiner": "combiners",
            "colluders": "n_colluders",
            "hats": "n_hats",
            "question": "questions",
            "survival_edge": "survival_edges",
        }
        entries = {names.get(name, name): value for name, value in vars(self).items() if value is not None}
        if self.rows_per_person is not None and self.rows_per_person.isdecimal():
            entries["rows_per_person"] = int(self.rows_per_person)
        if self.epsilon is not None:
            entries["epsilon"] = parse_epsilon(self.epsilon) or "none"
        return entries


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of `mooring audit` and `mooring plan`: which rows, how they are split, and who attacks whom."""

    study: Annotated[
        Path | None,
        study_option(help="A study's file, whose encoding, method, noise and projection are used."),
    ] = None
    label: Annotated[str | None, data_option(help="Column to predict.")] = None
    participants: Annotated[int, data_option(min=2, help="Number of participants among whom the rows are split.")] = 5
    split_by: Annotated[
        str | None,
        data_option(
            help="Column that names the hospital or person of a row; rows with the same name go to the same participant."
        ),
    ] = None
    rows_each: Annotated[int | None, data_option(min=2, help="Largest number of rows per participant.")] = None
    ignore: Annotated[list[str] | None, data_option(help="Column to leave out; repeatable.")] = None
    missing: Annotated[
        list[str] | None,
        data_option(help="Word that stands for a missing value, besides ?, NA and empty cells; repeatable."),
    ] = None
    size: Annotated[int | None, data_option(min=2, help="Resize images to this width and height.")] = None
    public_share: Annotated[
        float | None,
        data_option(
            min=0.0,
            max=0.9,
            help="Share of rows held out as public, for a public SVD.",
            show_default="0.1 if needed, otherwise 0",
        ),
    ] = None
    components: Annotated[
        int | None, study_option(min=1, help="Number of components to share, h.", show_default="all features, up to 30")
    ] = None
    projection: Annotated[ProjectionChoice, study_option(help="How rows are projected before they are uploaded.")] = (
        "auto"
    )
    learner: Annotated[
        str,
        study_option(
            help="auto, linear, random-fourier, nystroem, svm, forest, gradient-boosting or xgboost; auto is what "
            "'mooring train' would choose."
        ),
    ] = "auto"
    colluders: Annotated[int, attacker_option(min=1, help="Number of participants that collude with the analyst.")] = 1
    colluder: Annotated[
        list[str] | None,
        attacker_option(help="Name of a participant that colludes; repeatable.", show_default="the first"),
    ] = None
    target: Annotated[
        list[str] | None,
        attacker_option(help="Name of a participant that is attacked; repeatable.", show_default="the next ones"),
    ] = None
    attribute: Annotated[
        str | None,
        attacker_option(help="Column that is not shared, and that the attacker tries to infer from the shared ones."),
    ] = None
    auditor: Annotated[
        str | None,
        attacker_option(
            help="'digits' trains a network on public and test images, and links rebuilt images to originals with it."
        ),
    ] = None
    examples: Annotated[
        bool,
        typer.Option(
            "--examples/--no-examples", help="Whether the report shows a few original rows beside rebuilt ones."
        ),
    ] = True
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the split, the secrets and the noise.")] = 0
    device: Annotated[
        str | None, typer.Option(help="Device to compute on: cpu, or cuda if there is a GPU.", show_default="cpu")
    ] = None


def parse_named_range(text: str) -> tuple[str, tuple[float, float]]:
    """Read a column's name and its range.

    Examples
    --------
    >>> parse_named_range("age=0:120")
    ('age', (0.0, 120.0))
    """
    name, equals, ends = text.rpartition("=")
    if not (equals and name):
        raise InputError("--range", expected="NAME=LOWEST:HIGHEST", got=repr(text), cure="For example age=0:120.")
    return name, parse_range(ends)


def parse_pair(option: str, text: str) -> tuple[str, str]:
    """Read a column's name and a value for it.

    Examples
    --------
    >>> parse_pair("--birth", "born=2026-01-01")
    ('born', '2026-01-01')
    """
    name, equals, value = text.rpartition("=")
    if not (equals and name and value):
        raise InputError(
            option, expected="NAME=VALUE", got=repr(text), cure="'mooring study init --help' shows examples."
        )
    return name, value


def parse_range(text: str) -> tuple[float, float]:
    """Read a range.

    Examples
    --------
    >>> parse_range("-1:2.5")
    (-1.0, 2.5)
    """
    low, _, high = text.partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        raise InputError("range", expected="LOWEST:HIGHEST", got=repr(text), cure="For example 0:120.") from None


def parse_named_words(text: str) -> tuple[str, list[str]]:
    """Read a column's name and its categories.

    Examples
    --------
    >>> parse_named_words("sex=female, male")
    ('sex', ['female', 'male'])
    """
    name, equals, words = text.partition("=")
    if not (equals and name and split_words(words)):
        raise InputError("--category", expected="NAME=WORD,WORD", got=repr(text), cure="For example sex=female,male.")
    return name, split_words(words)


def parse_shape(text: str | None) -> tuple[int, ...]:
    """Read the shape of an image.

    Examples
    --------
    >>> parse_shape("28x28")
    (28, 28)
    """
    sides = (text or "").lower().split("x") if text else []
    if not all(side.isascii() and side.isdigit() and int(side) > 0 for side in sides):
        raise InputError("--image-shape", expected="HEIGHTxWIDTH", got=repr(text), cure="For example 8x8.")
    return tuple(map(int, sides))


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options that choose the engine of the analyst's long steps: one process, or a Dask cluster."""

    engine: Annotated[
        Literal["local", "dask"], engine_option(help="local uses one process; dask uses several processes or machines.")
    ] = "local"
    scheduler: Annotated[
        str | None,
        engine_option(
            help="Address of a Dask scheduler, tcp://… or tls://…. Without it, workers are started on this machine.",
            envvar=_ADDRESS,
        ),
    ] = None
    workers: Annotated[
        int | None,
        engine_option(help="Number of worker processes to start on this machine.", show_default="one per core"),
    ] = None
    tls_ca: Annotated[
        Path | None, engine_option(help="PEM file of the authority that signed the scheduler's certificate.")
    ] = None
    tls_cert: Annotated[Path | None, engine_option(help="PEM file of your certificate.")] = None
    tls_key: Annotated[Path | None, engine_option(help="PEM file of your certificate's key.")] = None

    @contextmanager
    def connect(self, **dask_options: Any) -> Iterator[Engine]:
        """Yield the chosen engine; the local engine refuses options that only Dask has."""
        if self.engine == "local":
            from mooring.protocol.analyst.role import LocalEngine

            self._refuse_without_dask(dask_options)
            yield LocalEngine()
            return
        from mooring.engines.dask import DaskEngine, Tls, connect

        files = [path for path in (self.tls_ca, self.tls_cert, self.tls_key) if path is not None]
        if len(files) not in (0, 3):
            raise InputError(
                "TLS", expected="--tls-ca, --tls-cert and --tls-key", got="only some of them", cure="Give all three."
            )
        tls = Tls(*files) if files else None
        with connect(scheduler=self.scheduler, workers=self.workers, tls=tls) as client:
            yield DaskEngine(client, **dask_options)

    def _refuse_without_dask(self, dask_options: dict[str, object]) -> None:
        # An address in the environment does not request Dask by itself.
        unasked = {"engine": "local", "scheduler": os.environ.get(_ADDRESS)}
        for name, value in (asdict(self) | dask_options).items():
            if value is not None and value != unasked.get(name):
                expected, got = "left out with --engine local", "given"
                cure = "Leave it out, or pass --engine dask."
                raise InputError(f"--{name.replace('_', '-')}", expected=expected, got=got, cure=cure)
