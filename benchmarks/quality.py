"""Which optimum does each solver find? Twenty seeds near the transition, where there are several."""

from __future__ import annotations

from typing import Any

import mooring
from benchmarks.problems import noisy_uploads

_SAME = 1e-8  # relative: two objectives this close are the same optimum


def optima(noise: float, *, seeds: range, p: int = 10, d: int = 100, r: int = 400) -> dict[str, Any]:
    """Objectives of the power method (at its limit of 500 iterations) and of mooring's solver, seed by seed."""
    rows = []
    for seed in seeds:
        uploads = noisy_uploads(p, d, r, noise, seed)
        paper = mooring.align(uploads, solver="gpm", max_iterations=500)
        ours = mooring.align(uploads, certify=True)
        assert ours.certificate is not None
        rows.append(
            {
                "seed": seed,
                "gpm": paper.objective,
                "gpm_iterations": paper.iterations,
                "gpm_converged": paper.converged,
                "accelerated": ours.objective,
                "accelerated_iterations": ours.iterations,
                "certified": ours.certificate.certified,
            }
        )
    gains = [row["accelerated"] / row["gpm"] - 1 for row in rows]
    return {
        "noise": noise,
        "share_of_transition": noise / mooring.theory.transition_scale(p, d, r),
        "rows": rows,
        "better": sum(gain > _SAME for gain in gains),
        "same": sum(abs(gain) <= _SAME for gain in gains),
        "worse": sum(gain < -_SAME for gain in gains),
        "mean_gain": sum(gains) / len(gains),
        "worst_gain": min(gains),
    }
