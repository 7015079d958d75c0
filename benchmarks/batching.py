"""Many small problems at once against one after the other: training networks, and aligning uploads.

Both ways do the same work: the networks have the same first weights and batches, and the alignments run the same power
method with the same rule to stop. So a ratio says what batching alone is worth on a device.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import mooring
from benchmarks import machine, training
from benchmarks.problems import noisy_uploads
from mooring.theory import transition_scale

Sizes = dict[str, Any]

_REPEATS = 2

_TRAINING: dict[str, dict[str, Sizes]] = {  # what is left out is for `training.measured` to say
    "cpu": {"whole": {}, "quick": {"n_members": 4, "n_rows": 1_000, "epochs": 2}},
    "cuda": {"whole": {}, "quick": {"n_members": 100, "n_rows": 10_000, "epochs": 2, "n_alone": 1}},
}
_ALIGNMENT: dict[str, dict[str, Sizes]] = {
    "cpu": {
        "whole": {"n_problems": 24, "p": 10, "h": 40, "r": 160},
        "quick": {"n_problems": 8, "p": 10, "h": 40, "r": 160, "max_iterations": 100},
    },
    "cuda": {
        "whole": {"n_problems": 100, "p": 10, "h": 100, "r": 400},
        "quick": {"n_problems": 20, "p": 10, "h": 100, "r": 400, "max_iterations": 100},
    },
}


def devices(*, gpu_only: bool = False) -> list[str]:
    """The devices at hand."""
    return ([] if gpu_only else ["cpu"]) + (["cuda"] if machine.gpu_name() else [])


def measured(device: str, *, quick: bool = False) -> dict[str, Any]:
    """Both comparisons on one device, with the machine and the day."""
    size = "quick" if quick else "whole"
    return {
        "machine": machine.described(),
        "date": datetime.now(UTC).date().isoformat(),
        "quick": quick,
        "training": training.measured(device=device, **_TRAINING[device][size]),
        "alignment": alignment(device=device, **_ALIGNMENT[device][size]),
    }


def alignment(
    *, device: str, n_problems: int, p: int, h: int, r: int, max_iterations: int = 500, most_noise: float = 2.0
) -> dict[str, Any]:
    """Seconds of `align` in a loop and of `align_batch`, the best of two turns, for the same problems and power method.

    Noise is spread evenly from problem to problem up to `most_noise` times the transition scale, as the draws of a study
    are: some problems come to rest in a few iterations, others go on to the limit, and a batch waits for the last one.
    """
    scales = np.linspace(0, most_noise * transition_scale(p, h, r), n_problems + 1)[1:]
    problems: Any = np.stack([noisy_uploads(p, h, r, float(v), seed) for seed, v in enumerate(scales)])
    if device == "cuda":
        import torch

        problems = torch.as_tensor(problems, device=device)
    settings: dict[str, Any] = {"solver": "gpm", "max_iterations": max_iterations}
    mooring.align(problems[0], **settings | {"max_iterations": 3})  # warms the libraries up, for both alike
    mooring.align_batch(problems[:2], **settings | {"max_iterations": 3})
    loops, batches = [], []
    for _ in range(_REPEATS):  # in turns, so that whatever else the machine does falls on both
        alone, seconds = _timed(lambda: [mooring.align(one, **settings) for one in problems], device)
        loops.append(seconds)
        batch, seconds = _timed(lambda: mooring.align_batch(problems, **settings), device)
        batches.append(seconds)
    gaps = [abs(a.objective - b.objective) / abs(a.objective) for a, b in zip(alone, batch, strict=True)]
    return {
        "problems": n_problems,
        "participants": p,
        "components": h,
        "anchor_rows": r,
        "most_noise_over_transition": most_noise,
        "max_iterations": max_iterations,
        "device": machine.gpu_name() if device == "cuda" else "cpu",
        "one_at_a_time_seconds": min(loops),
        "batch_seconds": min(batches),
        "ratio": min(batches) / min(loops),
        "iterations": [int(one.iterations) for one in alone],
        "most_iterations_apart": max(abs(a.iterations - b.iterations) for a, b in zip(alone, batch, strict=True)),
        "largest_difference": float(max(gaps)),
    }


HEADINGS = ("what", "device", "at once", "ratio", "largest difference")


def lines(entry: dict[str, Any]) -> list[tuple[str, ...]]:
    """Both comparisons of a device as cells of a table under `HEADINGS`."""
    networks, solved = entry["training"], entry["alignment"]
    size = f"({solved['participants']}, {solved['components']}, {solved['anchor_rows']})"
    return [
        (
            f"training {networks['members']} networks, {networks['rows']:,} rows, {networks['epochs']} epochs",
            networks["device"],
            _seconds(networks["ensemble_seconds"]),
            f"{networks['ratio']:.3f}",
            f"{100 * networks['largest_difference']:.2g} points of balanced accuracy",
        ),
        (
            f"aligning {solved['problems']} problems of {size}, {sum(solved['iterations']):,} iterations in all",
            solved["device"],
            _seconds(solved["batch_seconds"]),
            f"{solved['ratio']:.3f}",
            f"{solved['largest_difference']:.0e} of the objective",
        ),
    ]


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"


def write(path: Path, found: dict[str, dict[str, Any]]) -> None:
    """Write what was measured, by device; what another machine measured on another kind of device stays."""
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(before | found, indent=1) + "\n", encoding="utf-8")


def _timed(work: Callable[[], Any], device: str) -> tuple[Any, float]:
    began = time.perf_counter()
    found = work()
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
    return found, time.perf_counter() - began
