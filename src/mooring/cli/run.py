"""`mooring run`: run each step of a study as soon as its inputs are there, and exchange files through a place."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from mooring.cli import execution
from mooring.errors import InputError, StorageError
from mooring.serialization import count_noun

if TYPE_CHECKING:
    from mooring.protocol.driver import Driver, Event, OpenQuestion, Turn
    from mooring.protocol.driver.standing import Standing
    from mooring.protocol.workspace import Workspace

_FIRST_WAIT, _LONGEST_WAIT = 2.0, 60.0
_MOST_COLUMNS = 30

PlaceOption = Annotated[
    str,
    typer.Option(
        "--place",
        help="Where members exchange files: a folder that all can reach, or its URL (s3://ward/study).",
        envvar="MOORING_PLACE",
        show_default=False,
    ),
]
Accepted = Annotated[
    list[str] | None,
    typer.Option(
        "--accept",
        metavar="FINGERPRINT",
        help="A fingerprint that you compared: that of the study or, for the analyst, of a member's card. Repeatable.",
    ),
]


@execution.command
def run(
    console: execution.Output,
    place: PlaceOption,
    table: Annotated[
        Path | None, typer.Option("--table", help="Your table, as a participant: .csv (also .tsv, .gz) or .parquet.")
    ] = None,
    analyst: Annotated[
        bool, typer.Option("--analyst", help="You are the analyst; your folder holds the study's draft.")
    ] = False,
    helper: Annotated[
        bool, typer.Option("--helper", help="You are a helper, who combines secure sums and contributes no rows.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(help="Your name in the study.", show_default="that of your card; 'analyst' for the analyst"),
    ] = None,
    accept: Accepted = None,
    share: Annotated[
        Literal["ask", "yes", "no", "if-advised"],
        typer.Option(
            help="Whether your rows are shared. 'yes' includes labels where the analyst sees them. 'if-advised' follows the "
            "check or, if the study declares an epsilon, the study alone."
        ),
    ] = "ask",
    predict: Annotated[
        Path | None, typer.Option(help="Table of new rows to predict once the result is there.", show_default=False)
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Do not wait for the files of this member; repeatable.")
    ] = None,
    members: Annotated[
        int,
        typer.Option(
            min=0,
            help="For the analyst: number of other members. Once that many have joined, you are asked about them.",
        ),
    ] = 0,
    once: Annotated[bool, typer.Option("--once", help="Do what can be done now, and stop.")] = False,
    ignore: execution.IgnoreColumns = None,
    mapping: execution.MappingPath = None,
    learner: Annotated[str | None, typer.Option(help="Learner, for the analyst.", show_default="auto")] = None,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    with_passphrase: Annotated[
        bool, typer.Option("--passphrase", help="Encrypt a new vault with a passphrase, as 'mooring join' does.")
    ] = False,
) -> int:
    """Run every step of a study as soon as its inputs are there, and exchange files with other members through a place.

    You are asked what a person must answer: your name and, if the vault is encrypted, its passphrase; whether a fingerprint
    is the one that you heard by telephone; whether a table that differs from the study's is read correctly; and whether to
    share your rows. Before that, your rows are checked, and the check sends nothing. The analyst is also asked whether all
    members have joined. Answers may be given beforehand, by --name, --accept, 'mooring match' and --share. Stop the run with
    Ctrl-C and start it again at any time: nothing is done twice.

    Files for one member are sealed, so that whoever keeps the place reads nothing confidential. Files at the place are
    signed, apart from cards and the study, whose fingerprints people compare, and the study's public file, whose digest the
    study holds.

    The analyst first drafts the study with 'mooring study init'. If your vault is to refuse more than by default, run
    'mooring join' with its options first. 'mooring status' shows what is done and what comes next.

    Exit code 3 means that --once left a question open.

    Example: mooring run --place /mnt/ward --table patients.csv --name st-mary

    Analyst: mooring run --place /mnt/ward --analyst --members 4

    Without questions: mooring run --place s3://ward/study --table patients.csv --name st-mary --accept
    qkda-x7m7-3zxj-lcta-3ok2-nb4q-i23h --share if-advised
    """
    from mooring.protocol.driver import Driver, Given
    from mooring.protocol.transport.place import Place

    if analyst and helper:
        raise InputError("--analyst and --helper", expected="one of them", got="both", cure="Leave one out.")
    workspace = execution.make_workspace(execution.DEFAULT_STUDY, vault, mapping=mapping)
    role = "analyst" if analyst else "helper" if helper else "participant"
    answers = _answer_steps(workspace, role, name, table, predict, ignore, learner, with_passphrase=with_passphrase)
    given = Given(answers, analyst, tuple(accept or ()), share, tuple(without or ()), members)
    driver = Driver(workspace, Place(place), given)
    events = list[dict[str, str]]()

    def tell(event: Event) -> None:
        events.append({"kind": event.kind, "words": event.words})
        _tell(console, event)

    driver.tell, driver.decide = tell, _Person(console, sys.stdin.isatty() and console.format == "text")
    driver.progress = execution.show_progress
    with execution.end_on_sigterm(), driver.lock():
        turn = _go_on(console, driver, once=once)
    console.show({"events": events, **turn.as_dict()}, *_close(turn))
    return execution.IN_PART if turn.questions else 0


def _answer_steps(
    workspace: Workspace,
    role: str,
    name: str | None,
    table: Path | None,
    predict: Path | None,
    ignore: list[str] | None,
    learner: str | None,
    *,
    with_passphrase: bool,
) -> dict[str, dict[str, Any]]:
    """Return the answers that options give to the questions of steps. A vault with a passphrase is opened here."""
    from mooring.cli.join import new_passphrase
    from mooring.protocol.storage.vault import has_vault

    passphrase = None
    if has_vault(workspace.vault_folder):
        if workspace.is_locked:
            passphrase = execution.ask_passphrase(workspace.vault_folder)
            workspace.ask_passphrase = lambda folder: passphrase
        workspace.vault  # noqa: B018 (opens it)
    who = workspace.identify()
    if who.role and who.role != role:
        expected, got = f"one with the role {role}", f"one with the role {who.role}"
        cure = "Start in the folder that you joined in, with the same role."
        raise InputError("the card in this folder", expected=expected, got=got, cure=cure)
    if not who.role:
        name = name or ("analyst" if role == "analyst" else None) or _ask_name()
        passphrase = new_passphrase() if with_passphrase and passphrase is None else passphrase
    if role == "participant" and table is None:
        problem = "A participant's run needs its table."
        raise InputError("--table", problem=problem, cure="Give it with --table, or start with --analyst or --helper.")
    rows = {key: value for key, value in (("data", table), ("ignore", tuple(ignore or ()))) if value}
    answers: dict[str, dict[str, Any]] = {
        "join": {
            key: value
            for key, value in (("name", name), ("role", role), ("passphrase", passphrase))
            if value is not None
        }
    }
    if table is not None:
        answers |= dict.fromkeys(("fit", "check", "share"), rows)
    if predict is not None:
        answers["predict"] = {**rows, "data": predict, "beside": table}
    if learner is not None:
        answers["train"] = {"learner": learner}
    for path in (table, predict):
        if path is not None and not path.is_file():
            raise StorageError(f"the table {path.name}", reason="it is not there", cure="Check the path.")
    return answers


def _ask_name() -> str:
    if not sys.stdin.isatty():
        raise InputError("--name", problem="You have not joined yet, and have no name.", cure="Give one with --name.")
    return str(typer.prompt("Your name in the study (lower-case letters, digits and hyphens)", err=True))


class _Person:
    """Asks a person at the terminal. Without a terminal, questions stay open."""

    def __init__(self, console: execution.Output, is_there: bool) -> None:
        self.console, self.is_there = console, is_there
        self.shown = set[object]()
        """Facts and tables of columns that this person has read in earlier questions."""

    def __call__(self, question: OpenQuestion) -> bool | None:
        if not self.is_there:
            return None
        self.console.say(*describe_question(question, self.shown))
        self.shown.update(question.facts, [question.columns])
        return typer.confirm(question.words, default=False, err=True)


def describe_question(question: OpenQuestion, shown: Collection[object] = ()) -> Iterator[str | Table]:
    """Yield what a person should know before answering a question, except what was shown before."""
    facts = [fact for fact in question.facts if fact not in shown]
    width = max((len(heading) for heading, _ in (*facts, *question.fingerprints)), default=0) + 1
    yield ""
    if len(facts) < len(question.facts):
        yield "  The study's terms and columns are shown above ('mooring study show' prints them again)."
    for heading, words in facts:
        yield f"  {escape(heading + ':'):<{width}} {escape(words)}"
    if question.fingerprints:
        yield f"  {'Fingerprint' if len(question.fingerprints) == 1 else 'Fingerprints'}:"
    for whose, fingerprint in question.fingerprints:
        yield f"  {escape(whose + ':'):<{width}} [bold]{fingerprint}[/bold]"
    if question.columns and question.columns not in shown:
        rows = [tuple(map(escape, row)) for row in question.columns[: 1 + _MOST_COLUMNS]]
        yield execution.make_table(rows, title="", n_left=len(rows[0]), caption=_count_others(question))
    if question.advice:
        yield f"  Advice: [bold]{question.advice}[/bold]"


def _count_others(question: OpenQuestion) -> str:
    n_others = len(question.columns) - 1 - _MOST_COLUMNS
    return f"and {count_noun(n_others, 'column')} more: 'mooring study show' lists all" if n_others > 0 else ""


def _tell(console: execution.Output, event: Event) -> None:
    if event.outcome is None:
        console.say(escape(event.words))
        return
    console.say(f"[bold]{escape(event.words)}[/bold]")
    page = (
        "" if event.outcome.page is None else f"Page: {event.outcome.page}; it may show rows, so keep it to yourself."
    )
    for line in (*event.outcome.lines, *event.outcome.notes, event.outcome.decision, page):
        console.say(*([f"  {escape(line)}"] if line else []))
    console.say(*execution.list_tables(event.outcome))


def _go_on(console: execution.Output, driver: Driver, *, once: bool) -> Turn:
    """Advance until everything is done or, with `once`, a single time; show meanwhile what the run waits for."""
    wait, last_words = _FIRST_WAIT, ""
    while True:
        turn = driver.advance()
        if turn.is_finished or once:
            if turn.away:
                reason = turn.away.removeprefix("the place: ").rstrip(".")
                raise StorageError("the place", reason=reason, cure="Run the same command again once it is back.")
            return turn
        wait = _FIRST_WAIT if turn.did_something else min(2 * wait, _LONGEST_WAIT)
        words = turn.state_waiting()
        if console.is_terminal and console.format == "text":
            shown = Group(tabulate(turn.members), escape(words))
            with Live(shown, console=console, transient=True, auto_refresh=False):
                time.sleep(wait)
        else:
            if words != last_words:
                console.say(escape(words))
            time.sleep(wait)
        last_words = words


def tabulate(members: tuple[Standing, ...]) -> Any:
    """Return a table of who has done what."""
    from mooring.protocol.driver.standing import list_standings

    rows = [tuple(map(escape, row)) for row in list_standings(members)]
    return execution.make_table(rows, title="", n_left=len(rows[0]))


def _close(turn: Turn) -> Iterator[Any]:
    if turn.members:
        yield tabulate(turn.members)
    if turn.is_finished:
        yield "Everything is done."
    elif turn.waits or turn.questions:
        yield escape(turn.state_waiting())
    for question in turn.questions:
        yield from describe_question(question)
    if turn.left:
        yield "Left to you: " + ", ".join(f"mooring {command}" for command in turn.left)
