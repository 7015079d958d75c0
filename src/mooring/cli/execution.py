"""What every command of the protocol shares: options, exit codes, and how results and errors are printed."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer
from rich import progress
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mooring.errors import MooringError, RefusedError, StorageError, UnforeseenError, explain_error
from mooring.protocol.step import Outcome, Place
from mooring.protocol.steps import explain_command, find_step
from mooring.report.step_pages import StepPages
from mooring.serialization import Rows
from mooring.typing import Progress

# What commands of other distributions use, such as mooring-studies.
__all__ = ["Format", "Output", "end_on_sigterm", "exit_code_of", "run_command"]

if TYPE_CHECKING:
    from mooring.protocol.messages.study import Study

BAD_INPUT, IN_PART, REFUSED, STORAGE, UNFORESEEN, INTERRUPTED = 2, 3, 4, 5, 70, 130
"""Exit codes: bad input; done, but some set aside; refused to protect; disk trouble; a fault of mooring's; Ctrl-C."""
STANDINGS = {"whole": None, "in part": IN_PART, "refused": REFUSED}
"""Exit codes of steps that ended, by how they stand."""
TERMINATED = 143
"""Exit code of a run that the system, or somebody, asked to end."""

StudyPath = Annotated[
    Path, typer.Option("--study", "-s", help="The study's file.", envvar="MOORING_STUDY", rich_help_panel="Study")
]
VaultPath = Annotated[
    Path,
    typer.Option(
        "--vault",
        help="Folder of your keys, secrets and ledger. Keep it, back it up, show it to nobody.",
        envvar="MOORING_VAULT",
        rich_help_panel="Study",
    ),
]
WorkFolder = Annotated[Path, typer.Option("--folder", help="Your work folder: what you collect and compute is here.")]
TablePath = Annotated[Path, typer.Argument(help="Your table: .csv (also .tsv, .gz) or .parquet.", show_default=False)]
AnchorPath = Annotated[
    Path | None,
    typer.Option(help="The sealed anchor that was dealt.", show_default="STUDY.anchor", rich_help_panel="Study"),
]
IgnoreColumns = Annotated[
    list[str] | None, typer.Option("--ignore", help="A column of the table that is not shared; may be given again.")
]
LabelConsent = Annotated[
    bool,
    typer.Option("--labels", help="Yes, the analyst may see every row's label. Needed where the study has a label."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")]
Format = Annotated[Literal["text", "json"], typer.Option(help="What to print: json is for other programs.")]
_UsageError: Any = typer.BadParameter.__mro__[1]  # click's, which newer versions of Typer bring along
DEFAULT_STUDY, DEFAULT_VAULT, DEFAULT_FOLDER = Path("study.toml"), Path("vault"), Path("analysis")


class Output(Console):
    """Where a command prints: text on standard output; or one JSON object there, and text on standard error."""

    def __init__(self, format: str) -> None:
        self.format = format
        super().__init__(stderr=format == "json")

    def show(self, result: Mapping[str, Any], *lines: str | Table) -> None:
        """Print a result: as JSON, or as lines of text with Rich's markup, and tables."""
        if self.format == "json":
            typer.echo(json.dumps(result, indent=2, ensure_ascii=False))
        self.say(*lines)

    def show_outcome(self, outcome: Outcome) -> None:
        """Print what a step did."""
        page = {} if outcome.page is None else {"page": str(outcome.page)}
        self.show({**outcome.record, **page}, *_describe_outcome(outcome))

    def fail(self, problem: MooringError | str, code: int, **further: Any) -> typer.Exit:
        """Print what went wrong on standard error, and for programs on standard output with its fields; returns the exit.

        `further` has more fields of the error, such as the kind of one that is only a message.
        """
        Console(stderr=True).print(
            f"[bold red]mooring:[/bold red] {escape(str(problem))}", highlight=False, soft_wrap=True
        )
        if self.format == "json":
            known = {} if isinstance(problem, str) else vars(problem)
            error = {"kind": type(problem).__name__, "message": str(problem), **known, **further}
            with suppress(OSError):  # standard output may be full or closed; the message is on the other one
                typer.echo(json.dumps({"error": error, "exit_code": code}, indent=2, ensure_ascii=False))
        return typer.Exit(code)

    def say(self, *lines: str | Table) -> None:
        """Print lines and tables, unless a result is printed as JSON."""
        for line in lines if self.format == "text" else ():
            self.print(line, highlight=False, soft_wrap=isinstance(line, str))


def make_table(lines: Rows, *, title: str, n_left: int, caption: str = "", n_rows: int | None = None) -> Table:
    """Lines of text, of which the first holds headings, as a table of the terminal.

    Parameters
    ----------
    lines : Rows
    title : str
    n_left : int
        Columns that are aligned left; the others hold numbers.
    caption : str, optional
    n_rows : int, optional
        What comes after so many rows stands apart, in bold.
    """
    table = Table(title=title, caption=caption or None, box=SIMPLE_HEAD, pad_edge=False)
    for k, heading in enumerate(lines[0]):
        table.add_column(heading, justify="left" if k < n_left else "right", no_wrap=k >= n_left)
    for k, row in enumerate(lines[1:], start=1):
        table.add_row(*row, style="bold" if n_rows is not None and k > n_rows else None, end_section=k == n_rows)
    return table


@contextmanager
def run_command(format: str) -> Iterator[Output]:
    """Run a command: errors become one message, as JSON too where that is asked for, and an exit code with a meaning."""
    try:
        yield (console := Output(format))
    except KeyboardInterrupt as problem:
        message = "Interrupted. What is finished is kept: run the same command again to go on."
        raise console.fail(message, exit_code_of(problem), kind="Interrupted") from None
    except typer.Abort:
        message = "No passphrase was given: type it at a terminal, or set MOORING_PASSPHRASE."
        raise console.fail(message, INTERRUPTED, kind="Interrupted") from None
    except typer.Exit:
        raise
    except Exception as problem:
        if not isinstance(problem, MooringError | OSError) and os.environ.get("MOORING_TRACEBACK"):
            raise
        shown = explain_error(problem, is_out_of_memory=_is_out_of_memory(problem))
        raise console.fail(shown, _code(shown)) from None


@contextmanager
def explain_usage_errors(words: Sequence[str]) -> Iterator[None]:
    """Where a command line asks for JSON, print an error in the line itself as JSON too; otherwise leave it to Typer."""
    try:
        yield
    except _UsageError as problem:
        words = words[: words.index("--")] if "--" in words else words
        if "--format=json" in words or ("--format", "json") in pairwise(words):
            raise Output("json").fail(problem.format_message(), problem.exit_code, kind="UsageError") from None
        raise


def command(function: Callable[..., int | None]) -> Callable[..., None]:
    """Make a command of a function that prints on its first parameter, the console, and may return an exit code.

    The command has the option --format and, of a parameter that is a dataclass, an option for each of its fields. Where the
    list of steps explains it, that sentence takes the place of the first of the function's docstring.
    """
    groups: dict[str, Any] = {}
    shown: list[inspect.Parameter] = []
    for parameter in [*inspect.signature(function, eval_str=True).parameters.values()][1:]:
        kind, options = parameter.annotation, {parameter.name: (parameter.annotation, parameter.default)}
        if is_dataclass(kind):
            groups[parameter.name], types = kind, get_type_hints(kind, include_extras=True)
            options = {option.name: (types[option.name], option.default) for option in fields(kind)}
        shown += [_option(name, *declared) for name, declared in options.items()]
    shown.append(_option("format", Format, "text"))

    @wraps(function)
    def run(*, format: str, **given: Any) -> None:
        with run_command(format) as console:
            for name, kind in groups.items():
                given[name] = kind(**{option.name: given.pop(option.name) for option in fields(kind)})
            code = function(console, **given)
        if code:
            raise typer.Exit(code)

    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    first, _, rest = (function.__doc__ or "").partition("\n\n")
    explained = explain_command(function.__name__) or explain_command(f"study {function.__name__}")
    run.__doc__ = f"{explained or first}\n\n{inspect.cleandoc(rest)}"
    run.__annotations__ = {option.name: option.annotation for option in shown}
    return run


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _is_out_of_memory(problem: Exception) -> bool:
    from mooring.geometry.backend import is_out_of_memory

    return not isinstance(problem, MooringError) and is_out_of_memory(problem)


class Terminated(KeyboardInterrupt):
    """The process was asked to end, by SIGTERM."""


@contextmanager
def end_on_sigterm() -> Iterator[None]:
    """Let SIGTERM, which schedulers and `kill` send, end a long run in the way that Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():  # handlers can be set there alone
        yield
        return

    def end(number: int, frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def exit_code_of(problem: KeyboardInterrupt) -> int:
    """The exit code of a run that was stopped from outside."""
    return TERMINATED if isinstance(problem, Terminated) else INTERRUPTED


def _code(problem: MooringError) -> int:
    codes = {RefusedError: REFUSED, StorageError: STORAGE, UnforeseenError: UNFORESEEN}
    return next((code for kind, code in codes.items() if isinstance(problem, kind)), BAD_INPUT)


def ask_passphrase(vault: Path) -> str | None:
    """The passphrase of a vault that has one: from the environment, or asked for."""
    from mooring.protocol.storage.vault import is_encrypted

    if not is_encrypted(vault):
        return None
    return os.environ.get("MOORING_PASSPHRASE") or str(
        typer.prompt("Passphrase of the vault", hide_input=True, err=True)
    )


def read_study(path: Path) -> Study:
    """The study in a file."""
    from mooring.protocol.messages.study import Study

    return Study.read(path)


def make_place(study: Path, vault: Path = DEFAULT_VAULT, folder: Path = DEFAULT_FOLDER) -> Place:
    """The current folder, with what options name in place of the usual names."""
    return Place(Path(), study, vault, folder, StepPages(), ask_passphrase=ask_passphrase)


def take_step(name: str, place: Place, /, **options: Any) -> Outcome:
    """Take a step with what was given to a command, by the names of the step's parameters."""
    step = find_step(place, name)
    assert step.run is not None
    given = {option: value for option, value in options.items() if value not in (None, "", ())}
    with show_progress(step.title) as moved:
        return step.run(place, **given, command=quote_command(), progress=moved)


def _describe_outcome(outcome: Outcome) -> Iterator[str | Table]:
    yield from map(escape, outcome.lines)
    for sentence in outcome.details:
        yield f"  • {escape(sentence)}"
    for note in outcome.notes:
        yield f"[yellow]Note:[/yellow] {escape(note)}"
    for title, rows in outcome.tables:
        cells = [[escape(cell) for cell in row] for row in rows]
        # all columns up to the last that holds words, such as a reason, which may be long
        n_left = max(
            (k + 1 for row in rows[1:] for k, cell in enumerate(row) if any(map(str.isalpha, cell))), default=1
        )
        yield make_table(cells, title=title, n_left=n_left)
    if outcome.decision:
        yield f"[bold]{escape(outcome.decision)}[/bold]"
    if outcome.page is not None:
        yield escape(f"Open {outcome.page} in a browser; it may show rows, so keep it to yourself.")


def quote_command() -> str:
    """The command as it was typed, for the records that a report shows; without passwords and signatures of addresses."""
    from mooring.protocol.transport.addresses import redact_word

    return shlex.join(["mooring", *(redact_word(word) for word in sys.argv[1:])])


@contextmanager
def show_progress(words: str) -> Iterator[Progress]:
    """A progress bar on standard error; call what it yields with how much is done and how much there is."""
    with _progress_bar(progress.TimeElapsedColumn(), progress.TimeRemainingColumn()) as bar:
        task = bar.add_task(words, total=None)
        yield lambda done, total, what="": bar.update(task, completed=done, total=total, description=what or words)


@contextmanager
def count_progress() -> Iterator[Progress]:
    """A progress bar of steps; call what it yields with steps done, steps in all, and what comes next."""
    with _progress_bar(progress.MofNCompleteColumn(), progress.TimeElapsedColumn()) as bar:
        task = bar.add_task("starting", total=1)
        yield lambda done, total, what="": bar.update(task, completed=done, total=total, description=what)


def _progress_bar(*columns: progress.ProgressColumn) -> progress.Progress:
    console = Console(stderr=True)
    hidden = not console.is_terminal  # a file or a pipe would get an empty line
    text = progress.TextColumn("{task.description}")
    return progress.Progress(text, progress.BarColumn(), *columns, console=console, transient=True, disable=hidden)
