"""`mooring demo`: run a whole study on handwritten digits with the real commands, and write its report."""

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
    output: Annotated[Path, typer.Option(help="Folder for all files of the study; it must be new or empty.")] = Path(
        "demo-report"
    ),
    participants: Annotated[int, typer.Option(min=3, max=20, help="Number of participants.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the split of rows among participants.")] = 0,
) -> None:
    """Run a whole study on this machine: twenty participants with forty handwritten digits each, and an analyst.

    Every role has a folder of its own and runs the real commands of a study of secure sums: study, join, check, share,
    combine, align, train, deliver, predict and report. Look into the folders afterwards: post/ holds what anybody may see,
    and analyst/ holds sealed sums and nobody's rows. Only auditor/ holds everybody's rows, which no real study has in one
    place. The audit there compares secure sums with the paper's method and with pooled rows, and shows what attacks recover.

    Example: mooring demo --output demo-report --seed 3
    """
    with run_command("text") as console:
        from mooring.demo import run_demo

        _require_empty(output)
        console.say(
            f"Running a study of {participants} participants in {escape(str(output))}; this takes a minute or two."
        )
        with count_progress() as tell:
            played = run_demo(output.resolve(), n_participants=participants, seed=seed, progress=tell)
        _say(console, played, output)


def _require_empty(output: Path) -> None:
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        got = "a folder that is not empty" if output.is_dir() else "a file"
        raise InputError("output", expected="a new or empty folder", got=got, cure="Delete it, or name another folder.")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(
            "output",
            expected="a folder that can be made",
            got=problem.strerror or "an error",
            cure="Name another folder.",
        ) from None


def _say(console: Output, played: DemoResult, output: Path) -> None:
    """Print the result of the demonstration."""
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
        "alone",
        _mean(played, "local_only"),
        "a model trained on one participant's rows, on its new rows; mean over participants",
    )
    table.add_row(
        "together", _mean(played, "score"), "the joint model on the same rows, evaluated locally", style="bold"
    )
    console.print(table)
    console.say(_compare(played), "\nThe same digits in a simulation, where an analyst colludes with one participant:")
    mechanisms = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("mechanism", "score", "what an attacker gets, at least", "promised"):
        mechanisms.add_column(heading, justify="right" if heading == "score" else "left")
    for line in compare_mechanisms(AuditResult.from_dict(played.audit)):
        mechanisms.add_row(line.name, "" if line.score is None else str(line.score), line.attacker, line.promise)
    console.say(
        mechanisms, "A better attack may exist. A promise holds against every attack within the study's assumptions."
    )
    console.say(f"\nOpen [bold]{escape(str(output / 'report.html'))}[/bold], the analyst's report, in a browser.")
    shown = next((output / played.tables.names[0] / "vault" / "studies").glob("*/check.html"), None)
    console.say(f"The page that one participant saw before sharing: {escape(str(shown))}")


def _compare(played: DemoResult) -> str:
    """State the gain of the joint model over local ones, paired by row and pooled over independent participants."""
    import numpy as np

    from mooring.metrics.intervals import mean_ratio, student_interval

    gains = np.array([[record["gain"]["value"]] for record in played.predictions if record["gain"]])
    value, error, n = mean_ratio(gains, np.ones_like(gains))
    interval = student_interval(value, error, n=n)
    side = "pays" if interval.low > 0 else "does not pay" if interval.high <= 0 else "is not shown to pay"
    return (
        f"Joining {side}: {100 * value:+z.1f} points [{100 * interval.low:+z.1f}, {100 * interval.high:+z.1f}] over "
        f"training alone, on the same rows, over {n} participants."
    )


def _mean(played: DemoResult, which: str) -> str:
    scores = [record[which] for record in played.predictions if record[which]]
    values = [score["value"] for score in scores if score["value"] is not None]
    return f"{sum(values) / len(values):.1%}"
