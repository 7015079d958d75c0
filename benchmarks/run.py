"""`make bench`: every measure in one run; a table on the screen, and a JSON file beside the machine's description."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import batching, distributed, general_total, gpu, machine, measures, quality, sharing
from benchmarks.measures import Row

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="Measure mooring against the obvious way, as ratios in one run.")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one seed, no (10, 400, 1600) at v = 0.06, no quality table, small batches",
    )
    parser.add_argument("--sharing-only", action="store_true", help="the streaming of large tables alone")
    parser.add_argument("--sharing-rows", type=int, default=10_000_000, help="rows of that table")
    parser.add_argument(
        "--batching-only", action="store_true", help="batches against one at a time alone; with --gpu-only, on the GPU"
    )
    parser.add_argument("--distributed-only", action="store_true", help="the analyst on Dask alone")
    parser.add_argument("--large", action="store_true", help="20 million rows there, too; needs 20 GB of disk")
    parser.add_argument("--gpu-only", action="store_true", help="the GPU part alone")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the JSON files")
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    console = Console(width=160)
    if chosen.batching_only:
        _batching_part(console, chosen.output, quick=chosen.quick, gpu_only=chosen.gpu_only)
        return
    if chosen.distributed_only:
        _distributed_part(console, chosen.output, quick=chosen.quick, large=chosen.large)
        return
    if not chosen.gpu_only:
        with console.status(f"sharing {chosen.sharing_rows:,} rows …"):
            _write(chosen.output / "sharing.json", {"rows": sharing.measured(chosen.sharing_rows)})
        with console.status("the general total …"):
            _write(chosen.output / "general_total.json", general_total.measured())
    if chosen.sharing_only:
        return
    if not chosen.gpu_only:
        _cpu_part(console, chosen.output, quick=chosen.quick)
        _distributed_part(console, chosen.output, quick=chosen.quick, large=chosen.large)
    _batching_part(console, chosen.output, quick=chosen.quick, gpu_only=chosen.gpu_only)
    if machine.gpu_name():
        _write(chosen.output / "gpu.json", {"gpu": gpu.measured()})
    else:
        console.print("No CUDA device here: the GPU part was not run.")


def _cpu_part(console: Console, output: Path, *, quick: bool) -> None:
    seeds = range(1) if quick else range(3)
    parts: list[Callable[[], list[Row]]] = [
        lambda: measures.against_the_loop(10, 100, 400, 0.05, seeds=seeds, reach=0.5, library=False),
        lambda: measures.against_the_loop(10, 100, 400, 0.08, seeds=seeds, reach=0.1, library=True),
        lambda: measures.against_the_loop(10, 100, 400, 0.10, seeds=seeds, reach=0.1, library=True),
        lambda: measures.against_the_loop(10, 400, 1600, 0.02, seeds=range(1), reach=0.5, library=False),
        measures.growth,
        measures.many_participants,
        lambda: measures.memory(0.5),
        lambda: measures.memory(0.9),
    ]
    if not quick:
        parts.insert(
            4, lambda: measures.against_the_loop(10, 400, 1600, 0.06, seeds=range(1), reach=0.1, library=False)
        )
        parts.insert(4, lambda: measures.against_qc_procrustes(0.08))
    rows: list[Row] = []
    for part in parts:
        with console.status(f"measuring, {len(rows)} rows so far …"):
            rows += part()
        console.print(f"{rows[-1].measure}: {rows[-1].ours}, ratio {rows[-1].ratio:.3f}")
    console.print(_table(rows))
    _write(output / "cpu.json", {"rows": [{**asdict(row), "met": row.met} for row in rows]})
    if not quick:
        with console.status("twenty seeds at three noise scales …"):
            found = [quality.optima(noise, seeds=range(20)) for noise in (0.06, 0.08, 0.10)]
        _write(output / "quality.json", {"noises": found})


def _distributed_part(console: Console, output: Path, *, quick: bool, large: bool) -> None:
    if not distributed.is_there():
        console.print("Dask is not installed here (pip install 'mooring[dask]'): the analyst on Dask was not measured.")
        return
    with console.status("the analyst on Dask …"):
        found = distributed.measured(large=large, quick=quick)
    table = Table(title="the analyst on Dask")
    for heading in ("rows", "plain loop", "local engine", "Dask, one worker", "Dask, two workers"):
        table.add_column(heading, justify="right")
    for row in found["mapping"]:
        times = (row[f"{name}_seconds"] for name in ("plain", "local", "dask_1", "dask_2"))
        table.add_row(f"{row['rows']:,}", *(f"{seconds:.1f} s" for seconds in times))
    console.print(table)
    _write(output / "distributed.json", found)


def _batching_part(console: Console, output: Path, *, quick: bool, gpu_only: bool) -> None:
    found = {}
    for device in batching.devices(gpu_only=gpu_only):
        with console.status(f"batches against one at a time, {device} …"):
            found[device] = batching.measured(device, quick=quick)
    if not found:
        console.print("No CUDA device here: no batches were measured.")
        return
    table = Table(title="many at once against one at a time")
    for heading in batching.HEADINGS:
        table.add_column(heading, justify="left" if heading in ("what", "device") else "right")
    for entry in found.values():
        for cells in batching.lines(entry):
            table.add_row(*cells)
    console.print(table)
    batching.write(output / "batching.json", found)


def _table(rows: list[Row]) -> Table:
    table = Table(title="mooring against the obvious way")
    for heading in ("measure", "obvious way", "mooring", "ratio", "reach", "met", "note"):
        table.add_column(
            heading, justify="right" if heading in ("obvious way", "mooring", "ratio", "reach") else "left"
        )
    for row in rows:
        cells = (
            row.measure,
            row.obvious,
            row.ours,
            f"{row.ratio:.3f}",
            f"{row.reach:.3f}",
            "yes" if row.met else "no",
            row.note,
        )
        table.add_row(*cells)
    return table


def _write(path: Path, content: dict[str, object]) -> None:
    content = {"machine": machine.described(), "date": datetime.now(UTC).date().isoformat(), **content}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
