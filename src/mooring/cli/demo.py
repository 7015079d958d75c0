"""`mooring demo`: a whole study on handwritten digits, through the real commands, ending in a page to open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from mooring.cli.execution import Output, count_progress, run_command
from mooring.errors import InputError

if TYPE_CHECKING:
    from mooring.demo import DemoResult


def demo(
    output: Annotated[
        Path, typer.Option(help="Folder for everything that the study makes; must be new or empty.")
    ] = Path("demo-report"),
    participants: Annotated[int, typer.Option(min=3, max=20, help="How many take part.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Another seed gives other rows to each participant.")] = 0,
) -> None:
    """Twenty participants with forty handwritten digits each, and an analyst, in folders and processes of their own.

    Through the real commands of a study of secure sums: study, join, check, share, combine, align, train, deliver, predict,
    report. Look into the folders afterwards: post/ is what anybody may see, analyst/ has sealed sums and nobody's rows. Only
    auditor/ holds everybody's rows, which no real study has in one place: an audit shows the paper's way beside sums, what
    attacks recover, and what pooling would give.

    Example: mooring demo --output demo-report --seed 3
    """
    with run_command("text") as console:
        from mooring.demo import run_demo

        _require_empty(output)
        console.say(
            f"Playing a study of {participants} participants in {escape(str(output))}; this takes a minute or two."
        )
        with count_progress() as tell:
            played = run_demo(output.resolve(), n_participants=participants, seed=seed, progress=tell)
        _say(console, played, output)


def _require_empty(output: Path) -> None:
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        got = "one that holds something"
        raise InputError("output", expected="a new or empty folder", got=got, cure="Delete it, or name another.")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(
            "output", expected="a folder that can be made", got=problem.strerror or "an error", cure="Name another."
        ) from None


def _say(console: Output, played: DemoResult, output: Path) -> None:
    """The story, in a page."""
    from mooring.audit import AuditResult
    from mooring.demo import EPSILON, ROWS_EACH
    from mooring.report.audit_page import compare_mechanisms

    console.say(
        f"{len(played.predictions)} participants with {ROWS_EACH} digits each took part in the study 'digits' "
        f"({played.fingerprint}).\nEach kept its rows, uploaded sealed sums once, and got back a model. The total carries "
        f"noise for ε = {EPSILON:g}, δ = 1e-5, against any attack within the study's assumptions."
    )
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    table.add_row(
        "alone", _mean(played, "local_only"), "each one's own model on its own new rows; mean over participants"
    )
    table.add_row(
        "together", _mean(played, "score"), "the joint model on the same rows, evaluated locally", style="bold"
    )
    console.print(table)
    console.say(_compare(played), "\nThe same digits in a simulation, where an analyst colludes with one participant:")
    ways = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("mechanism", "score", "what an attacker gets, at least", "promised"):
        ways.add_column(heading, justify="right" if heading == "score" else "left")
    for line in compare_mechanisms(AuditResult.from_dict(played.audit)):
        ways.add_row(line.name, "" if line.score is None else str(line.score), line.attacker, line.promise)
    console.say(ways, "A better attack may exist; on its assumptions, what is promised holds against all.")
    console.say(f"\nOpen [bold]{escape(str(output / 'report.html'))}[/bold] in a browser: the analyst's page.")
    shown = next((output / played.tables.names[0] / "vault" / "studies").glob("*/check.html"), None)
    console.say(f"What one participant was shown before sharing: {escape(str(shown))}")


def _compare(played: DemoResult) -> str:
    """Together less alone, paired by row and pooled over participants, who are independent of each other."""
    import numpy as np

    from mooring.metrics.intervals import mean_ratio, student_interval

    gains = np.array([[one["gain"]["value"]] for one in played.predictions if one["gain"]])
    value, error, n = mean_ratio(gains, np.ones_like(gains))
    interval = student_interval(value, error, n=n)
    side = "pays" if interval.low > 0 else "does not pay" if interval.high <= 0 else "is not shown to pay"
    return (
        f"Joining {side}: {100 * value:+z.1f} points [{100 * interval.low:+z.1f}, {100 * interval.high:+z.1f}] over "
        f"training alone, on the same rows, over {n} participants."
    )


def _mean(played: DemoResult, which: str) -> str:
    values = [one[which]["value"] for one in played.predictions if one[which] and one[which]["value"] is not None]
    return f"{sum(values) / len(values):.1%}"
