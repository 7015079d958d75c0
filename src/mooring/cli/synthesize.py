"""`mooring synthesize`: write synthetic rows that are drawn from a model of the total of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli import execution
from mooring.cli.answers import TotalOptions


@execution.command
def synthesize(
    console: execution.Output,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="Parquet file to write.")] = Path("synthetic.parquet"),
    rows: Annotated[int | None, typer.Option(help="Number of rows.", show_default="as many as the total has")] = None,
    impossible: Annotated[
        list[str] | None,
        typer.Option(help="Further combination that does not occur, such as sex=m,pregnant=yes; repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same rows.")] = 0,
    force: execution.Force = False,
    options: TotalOptions,
) -> None:
    """Write synthetic rows whose columns, and pairs of columns, are distributed about as in all participants' rows.

    Synthetic rows carry the guarantee of the total, which the file's metadata states, and none is copied from a real row.
    They serve to try out programs and figures. Take estimates and intervals from describe, regress and survival, not from
    these rows.

    Example: mooring synthesize --rows 1000 --output synthetic.parquet
    """
    from mooring.atomic_io import require_absent
    from mooring.mechanisms.sums.answers.synthesis import synthesize as synthesize_rows
    from mooring.mechanisms.sums.general.impossible import read_combination

    require_absent(output, force=force)
    combinations = [read_combination(text) for text in impossible or ()]
    total = options.open()
    synthetic = synthesize_rows(total, rows, seed=seed, impossible=combinations)
    synthetic.write(output)
    header = synthetic.header
    console.show(
        {"output": str(output), "rows": synthetic.table.num_rows, **header.as_dict()},
        escape(f"Wrote {synthetic.table.num_rows:,} rows to {output}. {header.remark}"),
        escape(str(header.source)),
    )
