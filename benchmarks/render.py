"""Write docs/benchmarks.md from the results; no number in it is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import render_distributed
from benchmarks.general_total import LIMIT_BUNDLE_MB, LIMIT_PICTURES_MB, LIMIT_SECONDS, LIMIT_TIMES
from benchmarks.run import RESULTS
from benchmarks.sharing import LIMIT_MB

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def main() -> None:
    """Write the page, and the cost model of the page on Dask."""
    PAGE.write_text(render_page(), encoding="utf-8")
    render_distributed.write_cost(RESULTS / "distributed.json")


def render_page() -> str:
    """Return the page, from every result file that is there."""
    parts = [_HEAD]
    for name, render in (
        ("sharing", _sharing),
        ("general_total", _general_total),
        ("cpu", _alignment),
        ("quality", _quality),
        ("distributed", render_distributed.section),
    ):
        path = RESULTS / f"{name}.json"
        if path.exists():
            parts.append(render(json.loads(path.read_text(encoding="utf-8"))))
    return "\n".join(parts)


def _sharing(result: dict[str, Any]) -> str:
    lines = [
        "## Sharing a large table\n",
        f"`mooring share`; target for memory: {LIMIT_MB} MB.\n",
        "| file | noise on rows | share | reading once | product alone | peak memory |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        share, peak = row["share_seconds"], row["peak_megabytes"]
        lines.append(
            f"| {row['file']}, {row['rows']:,} × {row['columns']}, {row['megabytes'] / 1000:.1f} GB "
            f"| {'yes' if row['data_noise'] else 'no'} | {share:.0f} s | {row['reading_seconds']:.0f} s "
            f"| {row['product_seconds']:.1f} s | {peak:.0f} MB{_missed(peak <= LIMIT_MB)} |"
        )
    return "\n".join(lines) + "\n"


def _general_total(result: dict[str, Any]) -> str:
    opening = result["opening"]
    lines = [
        "## Sharing for many questions\n",
        "The [general total](statistics.md) of a table, in processor seconds. The target is "
        f"{LIMIT_TIMES:g} times reading and product, in {LIMIT_MB} MB.\n",
        "| file | share | reading once | product alone | times both | peak memory |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["sharing"]:
        file = f"{row['file']}, {row['rows']:,} × {row['columns']}, {row['megabytes']:.0f} MB"
        seconds = (row[f"{what}_cpu_seconds"] for what in ("share", "reading", "product"))
        times = f"{row['times']:.1f}{_missed(row['times'] <= LIMIT_TIMES)}"
        peak = f"{row['peak_megabytes']:.0f} MB{_missed(row['peak_megabytes'] <= LIMIT_MB)}"
        lines.append("| " + " | ".join([file, *(f"{value:.1f} s" for value in seconds), times, peak]) + " |")
    size, combining, opened = (opening[f"{what}"] for what in ("bundle_megabytes", "combine_seconds", "open_seconds"))
    lines += [
        f"\nWith {opening['participants']} participants and {opening['combiners']} combiners, a bundle has {size:.2f} MB"
        f"{_missed(size <= LIMIT_BUNDLE_MB)}; a combiner takes",
        f"{combining:.1f} s, and opening the total {opened:.1f} s{_missed(combining + opened <= LIMIT_SECONDS)}.",
    ]
    if pictures := result.get("pictures"):
        size = pictures["bundle_megabytes"]
        lines.append(
            f"Of pictures by class ({pictures['classes']} classes, {pictures['features']} features), a bundle "
            f"has {size:.1f} MB{_missed(size <= LIMIT_PICTURES_MB)}."
        )
    return "\n".join(lines) + "\n"


def _missed(met: bool) -> str:
    return "" if met else " **(missed)**"


def _alignment(result: dict[str, Any]) -> str:
    on_gpu = RESULTS / "gpu.json"
    gpu = json.loads(on_gpu.read_text(encoding="utf-8")) if on_gpu.exists() else None
    in_batches = RESULTS / "batching.json"
    batched = json.loads(in_batches.read_text(encoding="utf-8")) if in_batches.exists() else {}
    cells: dict[str, dict[str, str]] = {}
    alone = []
    for row in result["rows"]:
        size, _, rival = row["measure"].partition(", against ")
        ratio = f"{row['ratio']:.3f} ({row['reach']:.2g}){_missed(row['met'])}"
        if rival:
            cells.setdefault(size, {})[rival] = ratio
        else:
            alone.append(f"- {size}: {ratio}")
    if gpu:
        size = gpu["gpu"]["size"]
        shape = f"({size['participants']}, {size['components']}, {size['anchor_rows']}), v = {size['noise']:g}"
        ratio = f"{gpu['gpu']['ratio']:.4f} (0.01){_missed(gpu['gpu']['ratio'] <= 0.01)}"
        cells[f"{shape}, one {gpu['machine']['gpu']}"] = {"the loop": ratio}
    rivals = dict.fromkeys(rival for ratios in cells.values() for rival in ratios)
    lines = ["## Alignment\n", "mooring's time over that of others (target):\n"]
    lines += ["| size | " + " | ".join(rivals) + " |", "|---" * (len(rivals) + 1) + "|"]
    lines += [
        f"| {size} | " + " | ".join(ratios.get(rival, "–") for rival in rivals) + " |" for size, ratios in cells.items()
    ]
    alone += [_describe_batch(gpu["gpu"])] if gpu else []
    alone += [_describe_batching(entry) for entry in batched.values()]
    return "\n".join([*lines, "", "Other ratios:\n", *alone]) + "\n"


def _describe_batch(found: dict[str, Any]) -> str:
    cheaper = found["batch_seconds_each"] / found["alone_seconds"]
    size = "({participants}, {components}, {anchor_rows})".format(**found["size"])
    return (
        f"- {found['batch_problems']} problems of {size} in a batch on the GPU, time of each over that of one alone: "
        f"{cheaper:.2f} (1){_missed(cheaper <= 1)};\n"
        f"  {found['batch_converged']} of them converged to 1e-7 within 500 iterations (median residual "
        f"{found['batch_median_residual']:.1e})"
    )


def _describe_batching(entry: dict[str, Any]) -> str:
    """What batches are worth on a device, as an item of the list of ratios."""
    solved = entry["alignment"]
    size = f"({solved['participants']}, {solved['components']}, {solved['anchor_rows']})"
    return (
        f"- {solved['problems']} problems of {size} in `align_batch`, over one after another: {solved['ratio']:.3f} "
        f"({solved['device']})"
    )


def _quality(result: dict[str, Any]) -> str:
    lines = [
        "## Which optimum each solver finds\n",
        "(10, 100, 400), twenty seeds, against the power method. 'Same': to one part in a hundred million.\n",
        "| v | v / v_PT | better | same | worse | mean gain | power method converged | certified |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for found in result["noises"]:
        rows = found["rows"]
        at_rest, certified = (sum(row[key] for row in rows) for key in ("gpm_converged", "certified"))
        lines.append(
            f"| {found['noise']:g} | {found['share_of_transition']:.2f} | {found['better']} | {found['same']} "
            f"| {found['worse']} | {found['mean_gain']:+.1e} "
            f"| {at_rest} of {len(rows)} | {certified} of {len(rows)} |"
        )
    return "\n".join(lines) + "\n"


_HEAD = """# Benchmarks

Each row compares two ways in one run on one machine: compare ratios, not seconds. The files in `benchmarks/results`
state machines and dates. (p, d, r) are participants, components and anchor rows, v is the [anchor noise](glossary.md),
and the loop is the paper's power method in Python, stopped by its own rule or after 500 iterations. mooring's default
[solver](alignment.md) runs until objective *and* residual are at least as good.
"""

if __name__ == "__main__":
    main()
