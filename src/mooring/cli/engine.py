"""Which engine runs the analyst's long steps: options that 'align' and 'train' share."""

from __future__ import annotations

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
engine_option = partial(typer.Option, rich_help_panel="Other engines")


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """One process, or a Dask cluster and how to reach it."""

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
