"""The analyst on Dask, in docs/benchmarks.md and in the costs of docs/dask.md; no number is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.distributed import N_ANCHOR_ROWS, N_COMPONENTS

PAGE = Path(__file__).parent.parent / "docs" / "dask.md"
BEGIN, END = "<!-- costs: written by make docs -->\n", "<!-- end of costs -->\n"
N_ROWS, PARTICIPANTS, WORKERS, STORAGE = 1e9, 1e5, 100, 1e9


def section(result: dict[str, Any]) -> str:
    """What was measured, as a part of docs/benchmarks.md."""
    lines = [
        "## The analyst on Dask\n",
        "Workers of [Dask](dask.md) have one thread; their start is not counted.\n",
        "| rows | local engine | Dask, two workers | ratio | peak memory, local; worker |",
        "|---|---|---|---|---|",
    ]
    for row in result["mapping"]:
        local, two = (row[f"{name}_seconds"] for name in ("local", "dask_2"))
        lines.append(
            f"| {row['rows']:,} × {row['columns']}, {row['gigabytes']:.1f} GB "
            f"| {local:.1f} s | {two:.1f} s | {two / local:.2f} "
            f"| {row['local_peak_megabytes']:.0f} MB; {row['dask_2_peak_megabytes']:.0f} MB |"
        )
    return "\n".join(lines) + "\n"


def write_cost(path: Path) -> None:
    """Write the costs into docs/dask.md, between their marks."""
    if not path.exists() or not PAGE.exists():
        return
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(
        f"{before}{BEGIN}{costs(json.loads(path.read_text(encoding='utf-8')))}{END}{after}", encoding="utf-8"
    )


def costs(result: dict[str, Any]) -> str:
    """What one very large alignment costs, in sentences."""
    found = cost(result, n_rows=N_ROWS, p=PARTICIPANTS, workers=WORKERS, storage=STORAGE)
    times = {
        "mapping": found["mapping_seconds"],
        "aligning": found["aligning_seconds"],
        "handing out tasks": found["tasks_seconds"],
        "reading and writing the shared storage": found["storage_seconds"],
    }
    lines = [
        "Estimated from one worker (`benchmarks/results/distributed.json`), for 10⁵ participants with 10⁹ rows in all,",
        f"h = 100, r = 400, {WORKERS} workers, and shared storage of {STORAGE / 1e9:.0f} GB/s:\n",
        f"- **Memory**: {found['worker_memory'] / 1e9:.1f} GB and one block a worker; of the client "
        f"{found['client_memory_reduced'] / 1e9:.0f} GB with `--reduce-over-workers`, otherwise",
        f"  over {found['client_memory_anchors_here'] / 1e9:.0f} GB.",
        f"- **Time**: {', '.join(f'{name} {_time(seconds)}' for name, seconds in times.items())}.\n",
    ]
    return "\n".join(lines)


def cost(result: dict[str, Any], *, n_rows: float, p: float, workers: int, storage: float) -> dict[str, float]:
    """Memory, traffic and time of one alignment at h = 100 and r = 400, from what was measured.

    Parameters
    ----------
    result : dict
        What `measured` gave.
    n_rows, p : float
        Rows and participants in all.
    workers : int
        Processes of one thread, as quick as the one that was measured.
    storage : float
        Bytes a second that the shared storage gives to all workers together.
    """
    r, h = N_ANCHOR_ROWS, N_COMPONENTS
    mapped = max(result["mapping"], key=lambda row: row["rows"])
    rate = mapped["rows"] / mapped["dask_1_seconds"]
    iterations = max(row["reduced_iterations"] for row in result["participants"]) + 2
    steps, task = result["constants"]["step_seconds"], result["constants"]["task_seconds"]
    bundles = 4 * (n_rows * (h + 1) + p * r * h)
    read, wrote = 3 * bundles, 4.0 * n_rows * (h + 1)
    return {
        "worker_memory": 8 * p * r * h / workers,
        "client_memory_reduced": 2 * 8 * p * h * h,
        "client_memory_anchors_here": 8 * p * r * h + 2 * 8 * p * h * h,
        "mapping_seconds": n_rows / rate / workers,
        "aligning_seconds": iterations * p * steps / workers,
        "tasks_seconds": 1.1 * p * task,  # one to map each bundle, one to verify some sixteen
        "storage_seconds": (read + wrote) / storage,
    }


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
