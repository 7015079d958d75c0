"""Write docs/benchmarks.md from the results; no number in it is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import batching, render_distributed
from benchmarks.run import RESULTS
from benchmarks.sharing import LIMIT_MB

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def main() -> None:
    """Read every result file that is there, and write the page."""
    parts = [_HEAD]
    for name, render in (
        ("sharing", _sharing),
        ("cpu", _cpu),
        ("gpu", _gpu),
        ("batching", _batching),
        ("quality", _quality),
        ("distributed", render_distributed.section),
    ):
        path = RESULTS / f"{name}.json"
        if path.exists():
            parts.append(render(json.loads(path.read_text(encoding="utf-8"))))
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    render_distributed.write_cost(RESULTS / "distributed.json")


def _machine(result: dict[str, Any]) -> str:
    return (
        f"Measured on {result['date']}: "
        + ", ".join(f"{key} {value}" for key, value in result["machine"].items())
        + "."
    )


def _sharing(result: dict[str, Any]) -> str:
    lines = [
        "## Sharing a large table\n",
        _machine(result) + "\n",
        "`mooring share` checks, fingerprints and maps every row, shuffles, adds noise, hashes and signs. Beside it:",
        "reading the file once with pyarrow, doing nothing; and the matrix product alone, without any reading or writing.",
        f"Memory is the process's peak; the limit is {LIMIT_MB} MB.\n",
        "| file | noise on rows | share | reading once | product alone | over reading twice and the product "
        "| over the product | rows a second | peak memory | within the limit |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        share, reading, product = (row[f"{what}_seconds"] for what in ("share", "reading", "product"))
        lines.append(
            f"| {row['file']}, {row['rows']:,} × {row['columns']}, {row['megabytes'] / 1000:.1f} GB "
            f"| {'yes' if row['data_noise'] else 'no'} | {share:.0f} s | {reading:.0f} s | {product:.1f} s "
            f"| {share / (2 * reading + product):.1f} | {share / product:.1f} | {row['rows'] / share:,.0f} "
            f"| {row['peak_megabytes']:.0f} MB | {'yes' if row['peak_megabytes'] <= LIMIT_MB else '**no**'} |"
        )
    return "\n".join(lines) + "\n"


def _cpu(result: dict[str, Any]) -> str:
    lines = [
        "## On a CPU\n",
        _machine(result) + "\n",
        "| measure | obvious way | mooring | ratio | to reach | met | note |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        met = "yes" if row["met"] else "**no**"
        cells = (
            row["measure"],
            row["obvious"],
            row["ours"],
            f"{row['ratio']:.3f}",
            f"{row['reach']:.3f}",
            met,
            row["note"],
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _gpu(result: dict[str, Any]) -> str:
    found = result["gpu"]
    size = found["size"]
    shape = f"({size['participants']}, {size['components']}, {size['anchor_rows']}), v = {size['noise']:g}"
    rest = found["iterations_to_rest"]
    patience = (
        f"Left alone, the first of them came to rest after {rest} iterations."
        if rest
        else "The first had not come to rest after 20,000."
    )
    cheaper = found["batch_seconds_each"] / found["alone_seconds"]
    lines = [
        "## On a GPU\n",
        _machine(result) + "\n",
        "| measure | obvious way | mooring | ratio | to reach | met |",
        "|---|---|---|---|---|---|",
        f"| {shape}, against the loop | {found['loop']['seconds']:.1f} s ({found['loop']['iterations']} iterations) "
        f"| {found['mooring']['seconds']:.2f} s ({found['mooring']['iterations']} iterations) "
        f"| {found['ratio']:.4f} | 0.01 | {'yes' if found['ratio'] <= 0.01 else '**no**'} |",
        f"| the same size, {found['batch_problems']} problems in a batch, each against one alone "
        f"| {found['alone_seconds']:.2f} s | {found['batch_seconds_each']:.2f} s | {cheaper:.2f} | 1 "
        f"| {'yes' if cheaper <= 1 else '**no**'} |",
        "",
        f"The loop ended at an objective of {found['loop']['objective']:.2f}, mooring at "
        f"{found['mooring']['objective']:.2f}. The batch took {found['batch_peak_bytes'] / 1e9:.0f} GB of GPU memory, "
        f"uploads included. {found['batch_converged']} of its {found['batch_problems']} problems came to rest to 1e-7 "
        f"within the default 500 iterations; their median residual was then {found['batch_median_residual']:.1e}. "
        + patience,
    ]
    return "\n".join(lines) + "\n"


def _batching(result: dict[str, Any]) -> str:
    lines = [
        "## Many at once against one at a time\n",
        "The same networks trained member after member with torch's own modules, and as one ensemble; the same alignment",
        "problems solved by `align` in a loop, and by one `align_batch`, both with the paper's power method. Noise is",
        "spread over the problems, so that some end early. A ratio below 1 says that batching pays on that device.\n",
    ]
    notes = []
    for entry in result.values():
        lines.append(_machine(entry) + (" A quick run, of small sizes." if entry["quick"] else "") + "\n")
        alone, members = entry["training"]["members_timed_alone"], entry["training"]["members"]
        if alone < members:
            notes.append(
                f"On {entry['training']['device']}, one at a time stands for {alone} of the {members} networks; the time of "
                "all was taken in proportion."
            )
    lines += ["| " + " | ".join(batching.HEADINGS) + " |", "|---" * len(batching.HEADINGS) + "|"]
    lines += ["| " + " | ".join(cells) + " |" for entry in result.values() for cells in batching.lines(entry)]
    lines += ["", *notes] if notes else []
    return "\n".join(lines) + "\n"


def _quality(result: dict[str, Any]) -> str:
    lines = [
        "## Which optimum each solver finds\n",
        "(10, 100, 400), twenty seeds: the power method at its limit of 500 iterations against mooring's default. 'Same' is",
        "within one part in a hundred million.\n",
        "| v | v / v_PT | better | same | worse | mean gain | worst | power method at rest | certified |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for found in result["noises"]:
        rows = found["rows"]
        at_rest, certified = (sum(row[key] for row in rows) for key in ("gpm_converged", "certified"))
        lines.append(
            f"| {found['noise']:g} | {found['share_of_transition']:.2f} | {found['better']} | {found['same']} "
            f"| {found['worse']} | {found['mean_gain']:+.1e} | {found['worst_gain']:+.1e} "
            f"| {at_rest} of {len(rows)} | {certified} of {len(rows)} |"
        )
    for found in result["noises"][1:]:
        lines += [
            f"\nSeed by seed at v = {found['noise']:g}:\n",
            "| seed | power method | iterations | mooring | iterations |",
            "|---|---|---|---|---|",
            *(
                f"| {row['seed']} | {row['gpm']:.4f} | {row['gpm_iterations']} | {row['accelerated']:.4f} "
                f"| {row['accelerated_iterations']} |"
                for row in found["rows"]
            ),
        ]
    return "\n".join(lines) + "\n"


_HEAD = """# Benchmarks

Written by `python -m benchmarks.render` from `benchmarks/results/`; `make bench` measures anew. Every row is a ratio within
one run on one machine, mean over the seeds. (p, d, r) are participants, components and anchor rows.

**The loop** is the obvious way and what the paper's authors run: the power method with one SVD a block in a Python loop,
stopped by its own rule or after 500 iterations. **mooring** is the default solver, from raw uploads to finished maps, until
objective *and* fixed-point residual are both at least as good as the loop's. pymanopt's conjugate gradient starts where the
loop starts, and is let off with a fixed-point gap of 3e-5 where it cannot get lower.
"""

if __name__ == "__main__":
    main()
