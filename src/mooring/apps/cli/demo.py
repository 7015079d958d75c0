"""`mooring demo`: the main job on handwritten digits, ending in a page to open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from mooring.apps.demo.page import render
from mooring.apps.demo.story import Story, tell


def demo(
    output: Annotated[Path, typer.Option(help="Folder for report.html and story.json; made if missing.")] = Path(
        "demo-report"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Another seed gives another split, other secrets, other noise.")] = 0,
) -> None:
    """Align 25 participants' handwritten digits, train on them together, and write a page about it.

    Example: mooring demo --output demo-report --seed 3
    """
    console = Console()
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise typer.BadParameter(f"cannot make the folder: {problem.strerror}", param_hint="--output") from None
    with console.status("starting") as status:
        story = tell(seed, progress=lambda words: status.update(f"{words} …"))
    report = output / "report.html"
    report.write_text(render(story), encoding="utf-8")
    (output / "story.json").write_text(json.dumps(story.as_dict(), indent=1), encoding="utf-8")
    console.print(_table(story))
    console.print(
        "Accuracy is what joining can buy. It says nothing of what an upload gives away: "
        "anchor noise is [bold]not[/bold] a privacy guarantee. Ask [bold]mooring plan[/bold] and "
        "[bold]mooring audit[/bold] about rows like yours.",
        style="red",
    )
    console.print(f"Open [bold]{report}[/bold] in a browser.")


def _table(story: Story) -> Table:
    table = Table(
        title=f"{story.n_participants} participants × {story.rows_each} digits, {story.n_components} components"
    )
    for heading, justify in (("method", "left"), ("σ", "right"), ("v", "right"), ("accuracy", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for method in story.methods:
        table.add_row(
            method.title, f"{method.data_noise_scale:.3f}", f"{method.anchor_noise_scale:.3f}", f"{method.accuracy:.1%}"
        )
    table.add_section()
    table.add_row("local only (mean)", "", "", f"{story.local_only:.1%}")
    table.add_row("pooled raw", "", "", f"{story.pooled_raw:.1%}")
    return table
