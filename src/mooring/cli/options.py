"""Options that several commands take alike, as dataclasses whose fields Typer reads."""

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
        help="A table (.csv, .parquet) or images (a folder with one subfolder a class, .npz, IDX, .parquet)."
    ),
]
ReportFolder = Annotated[
    Path,
    typer.Option(
        help="Folder for report.html and the result; made if missing. A run that was interrupted goes on from it."
    ),
]


def parse_epsilon(word: str) -> float | None:
    """Read ε as people write it: a positive number, or 'none', which is None."""
    try:
        epsilon = None if word == "none" else float(word)
    except ValueError:
        epsilon = math.nan
    if epsilon is not None and not 0 < epsilon < math.inf:
        raise InputError("--epsilon", expected="a positive number, or 'none'", got=repr(word), cure="1 is usual.")
    return epsilon


@dataclass(frozen=True, kw_only=True)
class SumOptions:
    """What `mooring study init` asks of secure sums."""

    epsilon: Annotated[
        str | None, sum_option(help="Privacy loss of adding or removing one unit, or 'none'.", show_default="1")
    ] = None
    delta: Annotated[float | None, sum_option(help="Its delta: far below one over all rows.", show_default="1e-5")] = (
        None
    )
    colluders: Annotated[
        int | None, sum_option(min=0, help="How many participants may help the analyst.", show_default="1")
    ] = None
    combiner: Annotated[
        list[str] | None,
        sum_option(help="A participant that holds shares; again for more.", show_default="the first 15 enrolled"),
    ] = None
    threshold: Annotated[
        int | None, sum_option(min=1, help="How many combiners open the total.", show_default="the least that is safe")
    ] = None
    quorum: Annotated[
        int | None, sum_option(min=1, help="The least number of contributions.", show_default="nine tenths")
    ] = None
    person: Annotated[
        str | None, sum_option(help="A column that names persons, who are protected; it stays at home.")
    ] = None
    rows_per_person: Annotated[
        str | None,
        sum_option(help="The most rows of a person; 'mean': any, of which the mean counts.", show_default="1"),
    ] = None
    log_scaled: Annotated[
        list[str] | None, sum_option(help="A number to be read on a logarithmic scale; again for more.")
    ] = None
    hats: Annotated[
        int | None, sum_option(min=0, help="Curve pieces of a number; 0: straight lines.", show_default="5")
    ] = None
    least_rows: Annotated[
        int | None, sum_option(min=1, help="Without noise, who has fewer rows does not share.", show_default="10")
    ] = None

    def entries(self) -> dict[str, Any]:
        """The entries of [mechanism] that were asked for."""
        names = {"combiner": "combiners", "colluders": "n_colluders", "hats": "n_hats"}
        given = {names.get(name, name): value for name, value in vars(self).items() if value is not None}
        if self.rows_per_person is not None and self.rows_per_person.isdecimal():
            given["rows_per_person"] = int(self.rows_per_person)
        if self.epsilon is not None:
            given["epsilon"] = parse_epsilon(self.epsilon) or "none"
        return given

    @property
    def is_given(self) -> bool:
        """Whether anything was asked for."""
        return any(value is not None for value in vars(self).values())


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """What `mooring audit` and `mooring plan` ask alike: which rows, how they are partitioned, who attacks whom."""

    study: Annotated[
        Path | None,
        study_option(
            help="A study's file: rows are encoded as it says, and its method, noise and projection are used."
        ),
    ] = None
    label: Annotated[str | None, data_option(help="The column to predict.")] = None
    participants: Annotated[int, data_option(min=2, help="How many participants share the rows.")] = 5
    split_by: Annotated[
        str | None,
        data_option(help="A column that says whose row it is: a hospital, or a person. Its rows stay together."),
    ] = None
    rows_each: Annotated[int | None, data_option(min=2, help="At most so many rows a participant.")] = None
    drop: Annotated[list[str] | None, data_option(help="A column to leave out; may be given again.")] = None
    missing: Annotated[
        list[str] | None, data_option(help="What stands for a missing value, besides ?, NA and nothing.")
    ] = None
    size: Annotated[int | None, data_option(min=2, help="Resize images to this width and height.")] = None
    public_share: Annotated[
        float | None,
        data_option(
            min=0.0,
            max=0.9,
            help="Share of rows held out as public, for a public SVD.",
            show_default="0.1 if it is needed",
        ),
    ] = None
    components: Annotated[
        int | None, study_option(min=1, help="Components h to share.", show_default="all features, up to 30")
    ] = None
    projection: Annotated[ProjectionChoice, study_option(help="How rows are projected before they leave.")] = "auto"
    learner: Annotated[
        str,
        study_option(
            help="auto, linear, random-fourier, nystroem, svm, forest, gradient-boosting or xgboost; auto is what "
            "'mooring train' would choose."
        ),
    ] = "auto"
    colluders: Annotated[int, attacker_option(min=1, help="How many participants collude with the analyst.")] = 1
    colluder: Annotated[
        list[str] | None,
        attacker_option(help="A participant that colludes, by name; may be given again.", show_default="the first"),
    ] = None
    target: Annotated[
        list[str] | None,
        attacker_option(
            help="A participant that is attacked, by name; may be given again.", show_default="the next ones"
        ),
    ] = None
    attribute: Annotated[
        str | None, attacker_option(help="A column that is not shared; can it be inferred from what is?")
    ] = None
    auditor: Annotated[
        str | None,
        attacker_option(
            help="'digits' trains a network on the public and test images, which then compares rebuilt ones."
        ),
    ] = None
    examples: Annotated[
        bool,
        typer.Option(
            "--examples/--no-examples", help="Whether the report shows a few original rows beside rebuilt ones."
        ),
    ] = True
    seed: Annotated[int, typer.Option(min=0, help="Another seed gives another split, other secrets, other noise.")] = 0
    device: Annotated[
        str | None, typer.Option(help="Where to run: cpu, or cuda where there is one.", show_default="cpu")
    ] = None


def parse_named_range(given: str) -> tuple[str, tuple[float, float]]:
    """A column and its range.

    Examples
    --------
    >>> parse_named_range("age=0:120")
    ('age', (0.0, 120.0))
    """
    name, equals, ends = given.rpartition("=")
    if not (equals and name):
        raise InputError("--range", expected="NAME=LOWEST:HIGHEST", got=repr(given), cure="For example age=0:120.")
    return name, parse_range(ends)


def parse_pair(option: str, given: str) -> tuple[str, str]:
    """A column and what is said of it.

    Examples
    --------
    >>> parse_pair("--birth", "born=2026-01-01")
    ('born', '2026-01-01')
    """
    name, equals, said = given.rpartition("=")
    if not (equals and name and said):
        raise InputError(
            option, expected="NAME=VALUE", got=repr(given), cure="mooring study init --help shows examples."
        )
    return name, said


def parse_range(given: str) -> tuple[float, float]:
    """A range.

    Examples
    --------
    >>> parse_range("-1:2.5")
    (-1.0, 2.5)
    """
    low, _, high = given.partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        raise InputError("range", expected="LOWEST:HIGHEST", got=repr(given), cure="For example 0:120.") from None


def parse_named_words(given: str) -> tuple[str, list[str]]:
    """A column and its categories.

    Examples
    --------
    >>> parse_named_words("sex=female, male")
    ('sex', ['female', 'male'])
    """
    name, equals, words = given.partition("=")
    if not (equals and name and parse_words(words)):
        raise InputError("--category", expected="NAME=WORD,WORD", got=repr(given), cure="For example sex=female,male.")
    return name, parse_words(words)


def parse_words(given: str) -> list[str]:
    """Words between commas."""
    return [word.strip() for word in given.split(",") if word.strip()]


def parse_shape(given: str | None) -> tuple[int, ...]:
    """The shape of an image.

    Examples
    --------
    >>> parse_shape("28x28")
    (28, 28)
    """
    sides = (given or "").lower().split("x") if given else []
    if not all(side.isascii() and side.isdigit() and int(side) > 0 for side in sides):
        raise InputError("--image-shape", expected="HEIGHTxWIDTH", got=repr(given), cure="For example 8x8.")
    return tuple(map(int, sides))


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Which engine runs the analyst's long steps: one process, or a Dask cluster and how to reach it."""

    engine: Annotated[Literal["local", "dask"], engine_option(help="Dask runs on several processes or machines.")] = (
        "local"
    )
    scheduler: Annotated[
        str | None,
        engine_option(
            help="Address of a Dask scheduler, tcp://… or tls://…; without one, workers start on this machine.",
            envvar=_ADDRESS,
        ),
    ] = None
    workers: Annotated[int | None, engine_option(help="Processes to start here.", show_default="cores")] = None
    tls_ca: Annotated[Path | None, engine_option(help="PEM of who signed the scheduler's certificate.")] = None
    tls_cert: Annotated[Path | None, engine_option(help="PEM of your certificate.")] = None
    tls_key: Annotated[Path | None, engine_option(help="PEM of its key.")] = None

    @contextmanager
    def connect(self, **others: Any) -> Iterator[Engine]:
        """The engine that was asked for; the local one refuses all options that only Dask has."""
        if self.engine == "local":
            from mooring.protocol.analyst.role import LocalEngine

            self._refuse_without_dask(others)
            yield LocalEngine()
            return
        from mooring.engines.dask import DaskEngine, Tls, connect

        files = [path for path in (self.tls_ca, self.tls_cert, self.tls_key) if path is not None]
        if len(files) not in (0, 3):
            raise InputError(
                "TLS", expected="--tls-ca, --tls-cert and --tls-key", got="not all three", cure="Give all."
            )
        tls = Tls(*files) if files else None
        with connect(scheduler=self.scheduler, workers=self.workers, tls=tls) as client:
            yield DaskEngine(client, **others)

    def _refuse_without_dask(self, others: dict[str, object]) -> None:
        # An address that stands in the environment asks for nothing by itself.
        unasked = {"engine": "local", "scheduler": os.environ.get(_ADDRESS)}
        for name, value in (asdict(self) | others).items():
            if value is not None and value != unasked.get(name):
                expected, got = "left out with --engine local", "given"
                raise InputError(f"--{name.replace('_', '-')}", expected=expected, got=got, cure="Pass --engine dask.")
