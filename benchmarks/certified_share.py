"""How the noise scale decides whether global optimality can be proved: numbers, and the figure in the docs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import matplotlib
import numpy as np

import mooring
from benchmarks import machine
from benchmarks.problems import noisy_uploads
from mooring.theory import transition_scale

matplotlib.use("svg")
from matplotlib import pyplot as plt

SIZES = ((5, 20, 80), (10, 20, 80), (10, 50, 200), (40, 20, 80))
SHARES = tuple(round(0.3 + 0.05 * step, 2) for step in range(17))
SEEDS = range(20)


def measured() -> list[dict[str, object]]:
    """Certified share, largest proved gap and mean iterations at every size and noise scale."""
    rows: list[dict[str, object]] = []
    for p, d, r in SIZES:
        for share in SHARES:
            uploads = np.stack([noisy_uploads(p, d, r, share * transition_scale(p, d, r), seed) for seed in SEEDS])
            found = mooring.align_batch(uploads, certify=True)
            certificates = [alignment.certificate for alignment in found if alignment.certificate is not None]
            rows.append(
                {
                    "participants": p,
                    "components": d,
                    "anchor_rows": r,
                    "share_of_transition": share,
                    "certified": sum(certificate.certified for certificate in certificates) / len(certificates),
                    "largest_gap": _finite(max(certificate.optimality_gap for certificate in certificates)),
                    "iterations": float(np.mean([alignment.iterations for alignment in found])),
                }
            )
        print(f"({p}, {d}, {r}) done", flush=True)
    return rows


def _finite(number: float) -> float | None:
    """The number, or None for 'nothing proved': JSON knows no infinity."""
    return number if np.isfinite(number) else None


def drawn(rows: list[dict[str, object]], path: Path) -> None:
    """Draw certified share against v / v_PT."""
    plt.rcParams.update({"svg.hashsalt": "mooring", "font.family": "sans-serif", "font.size": 11})
    figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
    for p, d, r in SIZES:
        mine = [row for row in rows if (row["participants"], row["components"]) == (p, d)]
        axes.plot(
            [row["share_of_transition"] for row in mine],
            [row["certified"] for row in mine],
            marker="o",
            markersize=4,
            label=f"p = {p}, d = {d}, r = {r}",
        )
    axes.axvline(1, color="0.5", linestyle="--", linewidth=1)
    axes.set(xlabel="anchor noise scale, v / v_PT", ylabel=f"certified share of {len(SEEDS)} draws", ylim=(-0.03, 1.03))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measure and draw."""
    results = Path(__file__).parent / "results" / "certified_share.json"
    rows = measured()
    content = {"machine": machine.described(), "date": datetime.now(UTC).date().isoformat(), "rows": rows}
    results.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    drawn(rows, Path(__file__).parent.parent / "docs" / "certified-share.svg")


if __name__ == "__main__":
    main()
