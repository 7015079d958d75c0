"""`mooring demo`: run a whole study on handwritten digits with the real commands, and write its report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from mooring.cli.execution import Output, count_progress, make_table, run_command
from mooring.errors import InputError

if TYPE_CHECKING:
    from mooring.demo import DemoResult


def demo(
    output: Annotated[Path, typer.Option(help="Folder for all files of the study; it must be new or empty.")] = Path(
        "demo-report"
    ),
    participants: Annotated[int, typer.Option(min=3, max=20, help="Number of participants.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the splits of rows, and of the audit.")] = 0,
) -> None:
    """Run a whole study on this machine: participants with forty handwritten digits each, and an analyst.

    Every role has a folder of its own and runs the real commands of a study of secure sums: study, join, check, share,
    combine, align, train, deliver, predict and report. Look into the folders afterwards: post/ holds what anybody may see,
    and analyst/ holds sealed sums and nobody's rows. Only auditor/ holds everybody's rows, which no real study has in one
    place. The audit there compares secure sums with the paper's method and with pooled rows, and shows what attacks recover.

    A second study, of a table of patients in four hospitals, ends in a Table 1 and a regression.

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
    from mooring.demo import EPSILON, HOSPITAL_EPSILON, N_HOSPITALS, ROWS_EACH
    from mooring.mechanisms.sums.answers import Description, Regression
    from mooring.report.audit_page import compare_mechanisms

    console.say(
        f"{len(played.predictions)} participants with {ROWS_EACH} digits each took part in the study 'digits' "
        f"({played.fingerprint}).\nEach kept its rows, uploaded sealed sums once, and got back a model. The total carries "
        f"noise for ε = {EPSILON:g}, δ = 1e-5, against any attack within the study's assumptions."
    )
    scores = [
        ("model", "trained on", "mean accuracy on new digits"),
        ("alone", "one participant's digits", f"{played.mean_score('local_only'):.1%}"),
        ("together", "everybody's sums", f"{played.mean_score('score'):.1%}"),
    ]
    console.say(make_table(scores, title="", n_left=2), played.state_gain())
    described, fitted = played.answers
    for answer in (Description.from_dict(described), Regression.from_dict(fitted)):
        for title, rows in answer.list_tables().items():
            console.say(make_table([tuple(map(escape, row)) for row in rows], title=title, n_left=len(rows[0])))
    console.say(
        f"Both were read off one total of {N_HOSPITALS} hospitals' sealed sums, at ε = {HOSPITAL_EPSILON:g}: one upload "
        "each, and no further question costs privacy."
    )
    console.say("\nThe same digits in a simulation, where an analyst colludes with one participant:")
    audit = AuditResult.from_dict(played.audit)
    lines = compare_mechanisms(audit)
    metric = next((line.score.metric for line in lines if line.score is not None), "score")
    mechanisms = [("mechanism", metric, "what an attacker gets, at least", "promised")]
    mechanisms += [
        (line.name, "" if line.score is None else str(line.score), line.brief, line.promise) for line in lines
    ]
    console.say(
        make_table(mechanisms, title="", n_left=4),
        audit.joining,
        "A better attack may exist. A promise holds against every attack within the study's assumptions.",
        f"\nOpen [bold]{escape(str(output / 'report.html'))}[/bold], the analyst's report, in a browser.",
    )
    shown = next((output / played.tables.names[0] / "vault" / "studies").glob("*/check.html"), None)
    console.say(f"The page that one participant saw before sharing: {escape(str(shown))}")
