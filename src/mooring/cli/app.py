"""The `mooring` command. Registers commands in the order of the steps of a study, and nothing else."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mooring import __version__
from mooring.cli.align import align
from mooring.cli.associate import associate
from mooring.cli.audit import audit
from mooring.cli.check import check
from mooring.cli.collect import collect
from mooring.cli.combine import combine
from mooring.cli.deal import deal
from mooring.cli.deliver import deliver
from mooring.cli.demo import demo
from mooring.cli.describe import describe
from mooring.cli.desk import desk
from mooring.cli.execution import explain_usage_errors, unwrap
from mooring.cli.export import export
from mooring.cli.flare import flare_app
from mooring.cli.governance import governance
from mooring.cli.invite import invite
from mooring.cli.join import join
from mooring.cli.plan import plan
from mooring.cli.predict import predict
from mooring.cli.regress import regress
from mooring.cli.report import report
from mooring.cli.send import send
from mooring.cli.share import share
from mooring.cli.study import study_app
from mooring.cli.survival import survival
from mooring.cli.synthesize import synthesize
from mooring.cli.train import train
from mooring.protocol.step import AFTERWARDS
from mooring.protocol.steps import list_commands

BEFORE = "Before anybody joins"
ANSWERS = "Answers from the total of secure sums"
STEPS = (align, check, collect, combine, deal, deliver, export, invite, join, predict, report, send, share, train)
BY_NAME: dict[str, Any] = {"study": study_app} | {command.__name__: command for command in STEPS}
BY_PHASE = [(BY_NAME[name], phase) for name, phase in list_commands().items()]
COMMANDS = (
    (plan, BEFORE),
    (audit, BEFORE),
    *((command, phase) for command, phase in BY_PHASE if phase != AFTERWARDS),
    *((command, ANSWERS) for command in (describe, regress, survival, associate, synthesize)),
    *((command, phase) for command, phase in BY_PHASE if phase == AFTERWARDS),
    (governance, AFTERWARDS),
    (desk, AFTERWARDS),
    (demo, AFTERWARDS),
)


class InOrder(TyperGroup):
    """Lists commands in the order in which a study uses them."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:
        """Read the options before a command."""
        with explain_usage_errors([*args]):
            return super().make_context(info_name, args, *rest, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Read the command and its options, and run it."""
        with explain_usage_errors([*ctx.args]):
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        order = ["study" if command is study_app else command.__name__ for command, _ in COMMANDS]
        return sorted(super().list_commands(ctx), key=lambda name: order.index(name) if name in order else len(order))


app = typer.Typer(
    cls=InOrder,
    help="One-shot, privacy-preserving collaborative learning, and an honest account of what each upload discloses.\n\n"
    "A study uses these commands from top to bottom. The --help of each shows an example, and --format json prints its "
    "result for other programs. Exit codes: 0 done; 2 input that cannot be used; 3 done, but something was set aside; "
    "4 refused, to protect somebody; 5 a file or disk problem; 70 a fault in mooring; 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # a traceback must not print anybody's records
)
for command, panel in COMMANDS:
    if command is study_app:
        app.add_typer(study_app, name="study", rich_help_panel=panel)
    else:
        app.command(rich_help_panel=panel, help=unwrap(command.__doc__))(command)
for entry in entry_points(group="mooring.commands"):  # commands of other distributions, such as mooring-studies
    app.command(name=entry.name, rich_help_panel=AFTERWARDS)(entry.load())
app.add_typer(flare_app, name="flare", rich_help_panel="Over NVIDIA FLARE, instead of files")


@app.command(rich_help_panel=AFTERWARDS)
def version() -> None:
    """Print mooring's version.

    Example: mooring version
    """
    typer.echo(__version__)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        version()
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Print mooring's version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options that stand before a command."""
