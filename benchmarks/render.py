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
    found = {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name in ("sharing", "general_total", "cpu", "quality", "distributed")
        if (path := RESULTS / f"{name}.json").exists()
    }
    parts = [_HEAD]
    if "sharing" in found:
        parts.append(_sharing(found["sharing"], found.get("general_total")))
    for name, render in (("cpu", _alignment), ("quality", _quality), ("distributed", render_distributed.section)):
        if name in found:
            parts.append(render(found[name]))
    return "\n".join(parts)


def _sharing(result: dict[str, Any], totals: dict[str, Any] | None) -> str:
    """What `mooring share` costs, for rotation and, where that was measured, for many questions."""
    lines = [
        "## Sharing a table\n",
        "The time of `mooring share`, also as a multiple of reading the file once and the product alone together. Targets: "
        f"{LIMIT_MB} MB;",
        f"for the [general total](statistics.md), in processor seconds, {LIMIT_TIMES:g} times.\n",
        "| file | what is shared | time | multiple | peak memory |",
        "|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        share, both = row["share_seconds"], row["reading_seconds"] + row["product_seconds"]
        what = f"rotated, σ {'>' if row['data_noise'] else '='} 0"
        lines.append(f"| {_file(row)} | {what} | {share:.0f} s | {share / both:.1f} | {_peak(row)} |")
    for row in totals["sharing"] if totals else ():
        times = f"{row['times']:.1f}{_missed(row['times'] <= LIMIT_TIMES)}"
        lines.append(f"| {_file(row)} | general total | {row['share_cpu_seconds']:.1f} s | {times} | {_peak(row)} |")
    return "\n".join([*lines, *_describe_sizes(totals)] if totals else lines) + "\n"


def _file(row: dict[str, Any]) -> str:
    size = row["megabytes"]
    return f"{row['file']}, {row['rows']:,} × {row['columns']}, " + (
        f"{size / 1000:.1f} GB" if size >= 1000 else f"{size:.0f} MB"
    )


def _peak(row: dict[str, Any]) -> str:
    return f"{row['peak_megabytes']:.0f} MB{_missed(row['peak_megabytes'] <= LIMIT_MB)}"


def _describe_sizes(result: dict[str, Any]) -> list[str]:
    """How large bundles of sums are, and what combining and opening take."""
    opening = result["opening"]
    size, combining, opened = (opening[f"{what}"] for what in ("bundle_megabytes", "combine_seconds", "open_seconds"))
    lines = [
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
    return lines


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
    lines = [
        "## Alignment\n",
        "The time of mooring's [solver](alignment.md) over that of others (target), until objective *and* residual are at",
        "least as good as the loop's (against qc-procrustes: as its objective).\n",
    ]
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
        f"  after 500 iterations {found['batch_converged']} converged, "
        f"and the median residual is {found['batch_median_residual']:.1e}"
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
        "| v | v / v_PT | better | same | worse | power method converged | certified |",
        "|---|---|---|---|---|---|---|",
    ]
    for found in result["noises"]:
        rows = found["rows"]
        at_rest, certified = (sum(row[key] for row in rows) for key in ("gpm_converged", "certified"))
        lines.append(
            f"| {found['noise']:g} | {found['share_of_transition']:.2f} | {found['better']} | {found['same']} "
            f"| {found['worse']} | {at_rest} of {len(rows)} | {certified} of {len(rows)} |"
        )
    return "\n".join(lines) + "\n"


_HEAD = """# Benchmarks

Ratios of times are of one machine: compare these, not seconds. The files in `benchmarks/results`
state machines and dates. (p, d, r) are participants, components and anchor rows, v is the [anchor noise](glossary.md),
and the loop is the paper's power method in Python, stopped by its own rule or after 500 iterations.
"""

if __name__ == "__main__":
    main()
