"""The GPU part: the loop against mooring's solver, and a batch of problems against one alone."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.contenders import loop, mooring_solver


def uploads_on_gpu(n_problems: int, p: int, d: int, r: int, noise: float, seed: int) -> Any:
    """Noisy uploads of shape (n_problems, p, r, d), made where they are used."""
    import torch

    generator = torch.Generator(device="cuda").manual_seed(seed)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, dtype=torch.float64, device="cuda", generator=generator)

    uploads = torch.empty(n_problems, p, r, d, dtype=torch.float64, device="cuda")
    for problem in range(n_problems):
        gaussian = normal(r, d)
        anchor = torch.linalg.qr(gaussian - gaussian.mean(dim=0)).Q
        # The signs of R do not matter here: noise and objective are invariant under them.
        uploads[problem] = anchor @ torch.linalg.qr(normal(p, d, d)).Q + noise * normal(p, r, d)
    return uploads


def measured(*, n_problems: int = 200, p: int = 10, d: int = 400, r: int = 1600, noise: float = 0.06) -> dict[str, Any]:
    """Loop, one solve, and a batch, on the GPU at hand."""
    import torch

    import mooring

    uploads = uploads_on_gpu(1, p, d, r, noise, seed=0)[0]
    mooring.align(uploads, max_iterations=20)  # warms the libraries up, for both contenders alike
    loop(uploads, max_iterations=2)
    obvious = loop(uploads)
    ours = mooring_solver(uploads, objective=obvious.objective, gap=obvious.gap)
    print("loop", obvious, "\nours", ours, flush=True)

    batch = uploads_on_gpu(n_problems, p, d, r, noise, seed=1)
    alone = []
    for problem in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        mooring.align(batch[problem])
        torch.cuda.synchronize()
        alone.append(time.perf_counter() - began)
    began = time.perf_counter()
    alignments = mooring.align_batch(batch)
    torch.cuda.synchronize()
    together = time.perf_counter() - began
    patient = mooring.align(batch[0], max_iterations=20_000)
    residuals = sorted(alignment.residual for alignment in alignments)
    return {
        "size": {"participants": p, "components": d, "anchor_rows": r, "noise": noise},
        "loop": vars(obvious),
        "mooring": vars(ours),
        "ratio": ours.seconds / obvious.seconds,
        "alone_seconds": sum(alone) / len(alone),
        "batch_problems": n_problems,
        "batch_seconds_each": together / n_problems,
        "batch_converged": sum(alignment.converged for alignment in alignments),
        "batch_median_residual": residuals[len(residuals) // 2],
        "iterations_to_rest": patient.iterations if patient.converged else None,
        "batch_peak_bytes": torch.cuda.max_memory_allocated(),
    }
