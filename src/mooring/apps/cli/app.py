"""The `mooring` command. Registers commands, and nothing else."""

from __future__ import annotations

import typer

from mooring import __version__
from mooring.apps.cli.audit import audit
from mooring.apps.cli.demo import demo
from mooring.apps.cli.plan import plan

app = typer.Typer(
    help="One-shot, privacy-preserving collaborative learning, and an honest account of what each upload gives away.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # a traceback must not print anybody's records
)
app.command()(demo)
app.command()(audit)
app.command()(plan)


@app.command()
def version() -> None:
    """Print mooring's version."""
    typer.echo(__version__)
