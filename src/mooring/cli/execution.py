"""Shared parts of all commands: options, exit codes, and the printing of results and errors."""

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
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mooring.errors import MooringError, RefusedError, StorageError, UnforeseenError, explain_error
from mooring.protocol.steps import explain_command, find_step
from mooring.protocol.workspace import Outcome, Workspace
from mooring.report.step_pages import StepPages
from mooring.serialization import Rows
from mooring.typing import Progress

# Names that commands of other distributions, such as mooring-studies, use.
__all__ = ["Format", "Output", "end_on_sigterm", "exit_code_of", "run_command"]

if TYPE_CHECKING:
    from mooring.protocol.messages.study import Study

BAD_INPUT, IN_PART, REFUSED, STORAGE, UNFORESEEN, INTERRUPTED = 2, 3, 4, 5, 70, 130
"""Exit codes: bad input; done in part; refused to protect somebody; a disk problem; a fault in mooring; Ctrl-C."""
_LONGEST_WORD = 32  # beyond so many characters, a word in a table may be broken
_STANDINGS = {"whole": 0, "in part": IN_PART, "refused": REFUSED}  # exit codes of finished steps
TERMINATED = 143
"""Exit code of a run that was ended by SIGTERM."""

StudyPath = Annotated[
    Path, typer.Option("--study", "-s", help="The study's file.", envvar="MOORING_STUDY", rich_help_panel="Study")
]
VaultPath = Annotated[
    Path,
    typer.Option(
        "--vault",
        help="Folder of your keys, secrets and ledger. Back it up, and show it to nobody.",
        envvar="MOORING_VAULT",
        rich_help_panel="Study",
    ),
]
WorkFolder = Annotated[
    Path, typer.Option("--folder", help="The analyst's work folder, which holds everything collected and computed.")
]
TablePath = Annotated[Path, typer.Argument(help="Your table: .csv (also .tsv, .gz) or .parquet.", show_default=False)]
AnchorPath = Annotated[
    Path | None,
    typer.Option(help="The sealed anchor that you received.", show_default="STUDY.anchor", rich_help_panel="Study"),
]
MappingPath = Annotated[
    Path | None,
    typer.Option(
        "--mapping",
        help="The file of 'mooring match' that says how your own table is read.",
        show_default="mapping.toml, if it is there",
    ),
]
IgnoreColumns = Annotated[
    list[str] | None, typer.Option("--ignore", help="Column of the table to leave out; repeatable.")
]
BundleFolder = Annotated[
    str, typer.Option("--bundles", "-b", help="The folder of all *.bundle files, or its URL: s3://…, https://…")
]
AuditPath = Annotated[
    Path | None, typer.Option(help="An audit.json or plan.json that measured what attacks recover from similar rows.")
]
LabelConsent = Annotated[
    bool,
    typer.Option(
        "--labels", help="Consent: the analyst may see the label of every row. Required where labels are uploaded."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
Format = Annotated[Literal["text", "json"], typer.Option(help="Output format; json is for other programs.")]
_UsageError: Any = typer.BadParameter.__mro__[1]  # click's, which newer versions of Typer bring along
DEFAULT_STUDY, DEFAULT_VAULT, DEFAULT_FOLDER = Path("study.toml"), Path("vault"), Path("analysis")


class Output(Console):
    """A console for text on standard output, or for one JSON object there and text on standard error."""

    def __init__(self, format: str) -> None:
        self.format = format
        super().__init__(stderr=format == "json")

    def show(self, result: Mapping[str, Any], *lines: str | Table) -> None:
        """Print a result: as JSON, or as lines of text with Rich's markup, and tables."""
        if self.format == "json":
            typer.echo(json.dumps(result, indent=2, ensure_ascii=False))
        self.say(*lines)

    def show_outcome(self, outcome: Outcome) -> int:
        """Print what a step did, and return the exit code."""
        page = {} if outcome.page is None else {"page": str(outcome.page)}
        self.show({**outcome.record, **page}, *_describe_outcome(outcome))
        return _STANDINGS[outcome.standing]

    def fail(self, problem: MooringError | str, code: int, **further: Any) -> typer.Exit:
        """Print an error on standard error and, in the JSON format, its fields on standard output; return the exit.

        `further` holds further fields of the error, such as its kind if the problem is only a message.
        """
        Console(stderr=True).print(
            f"[bold red]mooring:[/bold red] {escape(str(problem))}", highlight=False, soft_wrap=True
        )
        if self.format == "json":
            known = {} if isinstance(problem, str) else vars(problem)
            error = {"kind": type(problem).__name__, "message": str(problem), **known, **further}
            with suppress(OSError):  # standard output may be full or closed; standard error has the message
                typer.echo(json.dumps({"error": error, "exit_code": code}, indent=2, ensure_ascii=False))
        return typer.Exit(code)

    def say(self, *lines: str | Table) -> None:
        """Print lines and tables, unless a result is printed as JSON."""
        for line in lines if self.format == "text" else ():
            is_text = isinstance(line, str)
            self.print(line, highlight=False, soft_wrap=is_text, crop=False)  # wide tables keep all columns


def make_table(lines: Rows, *, title: str, n_left: int, caption: str = "", n_rows: int | None = None) -> Table:
    """Return a table for the terminal from rows of text, of which the first holds the headings.

    The first `n_left` columns are aligned left; the others hold numbers. Rows after the first `n_rows` are in bold. Where
    the terminal is narrow, cells are broken at spaces; only words of more than 32 characters may be broken, too.
    """
    table = Table(title=title, caption=caption or None, box=SIMPLE_HEAD, pad_edge=False)
    for k, heading in enumerate(lines[0]):
        longest = max((cell_len(word) for row in lines for word in row[k].split()), default=0)
        narrowest = min(longest, _LONGEST_WORD)
        table.add_column(heading, justify="left" if k < n_left else "right", min_width=narrowest, overflow="fold")
    for k, row in enumerate(lines[1:], start=1):
        table.add_row(*row, style="bold" if n_rows is not None and k > n_rows else None, end_section=k == n_rows)
    return table


@contextmanager
def run_command(format: str) -> Iterator[Output]:
    """Run a command, and turn an error into one message, also as JSON if requested, and an exit code."""
    try:
        yield (console := Output(format))
    except KeyboardInterrupt as problem:
        message = (
            "Interrupted. What is finished is kept. Run the command again: it continues, or says which folder to "
            "delete first."
        )
        raise console.fail(message, exit_code_of(problem), kind="Interrupted") from None
    except typer.Abort:
        message = "A question was not answered. Answer it at a terminal, or give a passphrase in MOORING_PASSPHRASE."
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
    """Print a usage error as JSON if the command line requests JSON; otherwise leave it to Typer."""
    try:
        yield
    except _UsageError as problem:
        words = words[: words.index("--")] if "--" in words else words
        if "--format=json" in words or ("--format", "json") in pairwise(words):
            raise Output("json").fail(problem.format_message(), problem.exit_code, kind="UsageError") from None
        raise


def command(function: Callable[..., int | None]) -> Callable[..., None]:
    """Make a command of a function that prints on its first parameter, the console, and may return an exit code.

    The command gets the option --format and, for a parameter that is a dataclass, one option per field. If the list of
    steps explains the command, that explanation replaces the first paragraph of the function's docstring.
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
    def run(*, format: str, **arguments: Any) -> None:
        with run_command(format) as console:
            for name, kind in groups.items():
                arguments[name] = kind(**{option.name: arguments.pop(option.name) for option in fields(kind)})
            code = function(console, **arguments)
        if code:
            raise typer.Exit(code)

    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    first, *rest = unwrap(function.__doc__ or "").split("\n\n")
    explained = explain_command(function.__name__) or explain_command(f"study {function.__name__}")
    run.__doc__ = "\n\n".join([explained or first, *rest])
    run.__annotations__ = {option.name: option.annotation for option in shown}
    return run


def unwrap(text: str) -> str:
    """Return text with every paragraph on one line, so that a terminal can break lines where it is full."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _is_out_of_memory(problem: Exception) -> bool:
    from mooring.geometry.backend import is_out_of_memory

    return not isinstance(problem, MooringError) and is_out_of_memory(problem)


class Terminated(KeyboardInterrupt):
    """The process was asked to end by SIGTERM."""


@contextmanager
def end_on_sigterm() -> Iterator[None]:
    """Let SIGTERM, which schedulers and `kill` send, end a long run as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread can set handlers
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
    """Return the exit code of a run that was interrupted or terminated."""
    return TERMINATED if isinstance(problem, Terminated) else INTERRUPTED


def _code(problem: MooringError) -> int:
    codes = {RefusedError: REFUSED, StorageError: STORAGE, UnforeseenError: UNFORESEEN}
    return next((code for kind, code in codes.items() if isinstance(problem, kind)), BAD_INPUT)


def ask_passphrase(vault: Path) -> str | None:
    """Return the passphrase of an encrypted vault, from the environment or a prompt; None if it is not encrypted."""
    from mooring.protocol.storage.vault import is_encrypted

    if not is_encrypted(vault):
        return None
    return os.environ.get("MOORING_PASSPHRASE") or str(
        typer.prompt("Passphrase of the vault", hide_input=True, err=True)
    )


def read_study(path: Path) -> Study:
    """Read a study's file."""
    from mooring.protocol.messages.study import Study

    return Study.read(path)


def make_workspace(
    study: Path, vault: Path = DEFAULT_VAULT, folder: Path = DEFAULT_FOLDER, *, mapping: Path | None = None
) -> Workspace:
    """Return the current folder as a workspace, with the paths that options name."""
    return Workspace(Path(), study, vault, folder, StepPages(), mapping=mapping, ask_passphrase=ask_passphrase)


def take_step(name: str, workspace: Workspace, /, **options: Any) -> Outcome:
    """Take a step with a command's options, which have the names of the step's parameters; empty options are left out."""
    step = find_step(workspace, name)
    assert step.run is not None
    answers = {option: value for option, value in options.items() if value not in (None, "", ())}
    with show_progress(step.title) as moved:
        return step.run(workspace, **answers, command=quote_command(), progress=moved)


def _describe_outcome(outcome: Outcome) -> Iterator[str | Table]:
    yield from map(escape, (*outcome.lines, *outcome.hand_off))
    for sentence in outcome.details:
        yield f"  • {escape(sentence)}"
    for note in outcome.notes:
        yield f"[yellow]Note:[/yellow] {escape(note)}"
    yield from list_tables(outcome)
    if outcome.decision:
        yield f"[bold]{escape(outcome.decision)}[/bold]"
    if outcome.page is not None:
        yield escape(f"Open {outcome.page} in a browser; it may show rows, so keep it to yourself.")


def list_tables(outcome: Outcome) -> Iterator[Table]:
    """Yield the tables of a step for the terminal."""
    for title, rows in outcome.tables:
        cells = [[escape(cell) for cell in row] for row in rows]
        # all columns up to the last that holds words, such as a reason, are aligned left, since words may be long
        n_left = max(
            (k + 1 for row in rows[1:] for k, cell in enumerate(row) if any(map(str.isalpha, cell))), default=1
        )
        yield make_table(cells, title=title, n_left=n_left)


def quote_command() -> str:
    """Return the command as it was typed, without passwords and signatures in addresses, for the records of a report."""
    from mooring.protocol.transport.addresses import redact_word

    return shlex.join(["mooring", *(redact_word(word) for word in sys.argv[1:])])


@contextmanager
def show_progress(words: str) -> Iterator[Progress]:
    """Show a progress bar on standard error; yields a function to call with the amount done and the total."""
    with _progress_bar(words, progress.TimeElapsedColumn(), progress.TimeRemainingColumn()) as moved:
        yield moved


@contextmanager
def count_progress() -> Iterator[Progress]:
    """Show a progress bar of steps; yields a function to call with the steps done, their total, and the next step."""
    with _progress_bar("starting", progress.MofNCompleteColumn(), progress.TimeElapsedColumn()) as moved:
        yield moved


@contextmanager
def _progress_bar(words: str, *columns: progress.ProgressColumn) -> Iterator[Progress]:
    console = Console(stderr=True)
    hidden = not console.is_terminal  # a file or a pipe would get an empty line
    text = progress.TextColumn("{task.description}")
    with progress.Progress(
        text, progress.BarColumn(), *columns, console=console, transient=True, disable=hidden
    ) as bar:
        task = bar.add_task(words, total=None)
        yield lambda done, total, what="": bar.update(task, completed=done, total=total, description=what or words)
