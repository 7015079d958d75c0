"""Which engine runs the analyst's long steps: options that 'align' and 'train' share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from mooring.errors import InputError

_PANEL, _ADDRESS = "Other engines", "MOORING_DASK_SCHEDULER"

Engine = Annotated[
    str, typer.Option("--engine", help="local, or dask: on several processes or machines.", rich_help_panel=_PANEL)
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        help="Address of a Dask scheduler, tcp://… or tls://…; without one, workers start on this machine.",
        envvar=_ADDRESS,
        rich_help_panel=_PANEL,
    ),
]
Workers = Annotated[
    int | None, typer.Option("--workers", help="Processes to start here.", show_default="cores", rich_help_panel=_PANEL)
]
TlsCa = Annotated[
    Path | None, typer.Option("--tls-ca", help="PEM of who signed the scheduler's certificate.", rich_help_panel=_PANEL)
]
TlsCert = Annotated[Path | None, typer.Option("--tls-cert", help="PEM of your certificate.", rich_help_panel=_PANEL)]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", help="PEM of its key.", rich_help_panel=_PANEL)]


def is_dask(engine: str, **others: object) -> bool:
    """Whether Dask was asked for; options that only it has are refused without it."""
    if engine not in ("local", "dask"):
        raise InputError("engine", expected="local or dask", got=repr(engine), cure="local is the default.")
    # An address that stands in the environment asks for nothing by itself.
    unasked = {"scheduler": os.environ.get(_ADDRESS)}
    given = [name for name, value in others.items() if value is not None and value != unasked.get(name)]
    if engine == "local" and given:
        raise InputError(
            f"--{given[0].replace('_', '-')}",
            expected="left out with --engine local",
            got="given",
            cure="Pass --engine dask.",
        )
    return engine == "dask"


@contextmanager
def connect_client(
    scheduler: str | None, workers: int | None, ca: Path | None, cert: Path | None, key: Path | None
) -> Iterator[Any]:
    """A Dask client, as the options say."""
    from mooring.engines.dask import Tls, connect

    if not (ca is None) == (cert is None) == (key is None):
        raise InputError("TLS", expected="--tls-ca, --tls-cert and --tls-key", got="not all three", cure="Give all.")
    tls = Tls(ca, cert, key) if ca is not None and cert is not None and key is not None else None
    with connect(scheduler=scheduler, workers=workers, tls=tls) as found:
        yield found
