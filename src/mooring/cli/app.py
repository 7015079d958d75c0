"""The `mooring` command. Registers commands in the order of the steps of a study."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mooring import __version__
from mooring.cli.execution import explain_usage_errors, unwrap
from mooring.protocol.step import AFTERWARDS
from mooring.protocol.steps import list_commands

BEFORE = "Before anybody joins"
BY_ITSELF = "A whole study by one command"
ANSWERS = "Answers from the total of secure sums"
OF_STEPS = list_commands()
COMMANDS = {
    **dict.fromkeys(("run", "status"), BY_ITSELF),
    **dict.fromkeys(("cohort", "plan", "audit"), BEFORE),
    **{name: phase for name, phase in OF_STEPS.items() if phase != AFTERWARDS},
    **dict.fromkeys(("describe", "regress", "survival", "associate", "synthesize"), ANSWERS),
    **{name: phase for name, phase in OF_STEPS.items() if phase == AFTERWARDS},
    **dict.fromkeys(("governance", "desk", "demo"), AFTERWARDS),
    "flare": "Over NVIDIA FLARE, instead of files",
}
"""The headings of commands, in the order in which a study uses them. Each command is in the module of its name."""


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
        order = [*COMMANDS]
        return sorted(super().list_commands(ctx), key=lambda name: order.index(name) if name in order else len(order))


app = typer.Typer(
    cls=InOrder,
    help="One-shot, privacy-preserving collaborative learning, and an honest account of what each upload discloses.\n\n"
    "A study uses these commands from top to bottom. The --help of each shows an example, and --format json prints its "
    "result for other programs. Exit codes: 0 done; 2 input that cannot be used; 3 done, but something needs a look; "
    "4 refused, to protect somebody; 5 a file or disk problem; 70 a fault in mooring; 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # a traceback must not print anybody's records
)
for name, panel in COMMANDS.items():
    module = import_module(f"mooring.cli.{name}")
    if (group := getattr(module, f"{name}_app", None)) is not None:  # a group of commands, such as study
        app.add_typer(group, name=name, rich_help_panel=panel)
    else:
        command = getattr(module, name)
        app.command(rich_help_panel=panel, help=unwrap(command.__doc__))(command)
for entry in entry_points(group="mooring.commands"):  # commands of other distributions, such as mooring-studies
    app.command(name=entry.name, rich_help_panel=AFTERWARDS)(entry.load())


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
