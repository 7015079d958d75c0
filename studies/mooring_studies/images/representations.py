"""What the analyst ends up with, for many noise draws at once: the aligned rows of every draw.

Legend: D draws; Y_i = X̃_i O_i + 1 Ψ_iᵀ + σ E_i, B_i = A O_i + 1 Ψ_iᵀ + v W_i; b_i the mean row of B_i; R_i the alignment
maps; Z the collaboration matrix, Z_i = (Y_i − 1 b_iᵀ) R_i. The algebra is float64 throughout; what a network is trained on
is float32.

Private-data noise is coupled as in the paper: E_i is drawn for C-GDP, and AA-I-GDP gets E_i R_iᵀ.

`mooring.audit.simulate` plays one draw and aligns it by itself. Here the same kernel makes the uploads of many draws, and
they are aligned in one batch; a test holds what attackers rebuild from either to the same rows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.alignment import Alignment, Solver, align_batch, align_to_reference
from mooring.geometry import RigidMap
from mooring.mechanisms import ArrayNoise, add_noise
from mooring.randomness import Streams
from mooring.typing import Array, Matrix
from mooring_studies.images.deployment import Deployment
from mooring_studies.roles import COLLUDER, TARGET


@dataclass(frozen=True, eq=False)
class AlignedDraws:
    """Alignments of D draws, as one stack of maps."""

    target_anchor: Array = field(repr=False)
    """The target's B_i, noise and all: what the attacker compares with the anchor."""
    orthogonals: Array = field(repr=False)
    """R_i."""
    origins: Array = field(repr=False)
    """b_i, which the map subtracts first."""
    alignments: tuple[Alignment, ...] = field(repr=False)
    """What the analyst computed in each draw, with the maps of colluder and target alone."""
    diagnostics: tuple[dict[str, Any], ...] = field(repr=False)
    """The solver's columns of each draw; seconds are the batch's, shared out by iterations."""

    def only(self, k: int) -> AlignedDraws:
        """One draw, as a stack of one."""
        at = slice(k, k + 1)
        anchor, maps, origins = self.target_anchor[at], self.orthogonals[at], self.origins[at]
        return AlignedDraws(anchor, maps, origins, self.alignments[at], self.diagnostics[at])


def aligned_draws(
    deployment: Deployment,
    scales: Matrix,
    draws: Sequence[int],
    *,
    solver: Solver,
    max_iterations: int,
    tolerance: float,
) -> AlignedDraws:
    """Draw anchor noise for every draw and align all of them in one batch.

    The noise of participant i in draw k comes from the stream "anchor-noise/k/i", so that it is the same whoever else
    takes part.
    """
    import torch

    p, (r, h) = deployment.n_participants, deployment.anchor.shape
    places = {f"anchor-noise/{draw}/{i}": (k, i) for k, draw in enumerate(draws) for i in range(p)}
    noise = standard_normals(deployment.streams, (len(draws), p, r, h), places, device=deployment.device)
    v = torch.as_tensor(scales, device=deployment.device)[:, None, None, None]
    uploads = deployment.anchor_uploads(v, ArrayNoise(noise))
    _wait(deployment.device)
    began = time.perf_counter()
    alignments = align_batch(uploads, solver=solver, max_iterations=max_iterations, tolerance=tolerance)
    _wait(deployment.device)
    seconds = time.perf_counter() - began
    orthogonals = torch.stack([torch.stack([m.orthogonal for m in alignment.maps]) for alignment in alignments])
    diagnostics = tuple(_diagnostics(alignment, seconds, alignments) for alignment in alignments)
    seen = tuple(
        replace(
            alignment, maps=tuple(RigidMap(R[i], alignment.maps[i].translation.clone()) for i in (COLLUDER, TARGET))
        )
        for alignment, R in zip(alignments, orthogonals, strict=True)
    )
    return AlignedDraws(uploads[:, TARGET].clone(), orthogonals, uploads.mean(dim=2), seen, diagnostics)


def aligned_rows(deployment: Deployment, uploaded: Array, aligned: AlignedDraws) -> Array:
    """Z of every draw, float32 of shape (D, n, h); `uploaded` is Y of shape (n, h), or (D, n, h) with noise of each."""
    import torch

    n, h = deployment.rows.shape
    result = torch.empty((aligned.orthogonals.shape[0], n, h), dtype=torch.float32, device=deployment.device)
    for _, i, where in deployment.blocks():
        result[:, where] = (uploaded[..., where, :] - aligned.origins[:, i, None, :]) @ aligned.orthogonals[:, i]
    return result


@dataclass(frozen=True, eq=False)
class CoupledDraws:
    """Private-data noise of D draws under C-GDP and under AA-I-GDP, coupled."""

    common: Array = field(repr=False)
    anchored: Array = field(repr=False)
    """Z of either method."""
    common_clean: Array = field(repr=False)
    anchored_clean: Array = field(repr=False)
    """The same rows without noise, as a participant scores its own."""
    target_common: Array = field(repr=False)
    target_anchored: Array = field(repr=False)
    """The target's uploaded queries."""
    discrepancy: Matrix
    """‖Z_AA − Z_C‖_F / ‖Z_C‖_F in float64."""


def coupled_draws(deployment: Deployment, scales: Matrix, draws: Sequence[int]) -> CoupledDraws:
    """Draw private-data noise for every draw, for training, validation and test rows alike."""
    import torch

    D, (n, h), device = len(draws), deployment.rows.shape, deployment.device
    common, anchored = (torch.empty((D, n, h), dtype=torch.float32, device=device) for _ in range(2))
    q = len(deployment.query_places)
    target_common, target_anchored = (torch.empty((D, q, h), dtype=torch.float64, device=device) for _ in range(2))
    maps = align_to_reference(list(deployment.anchor_uploads()), reference=COLLUDER).maps
    clean_common, clean_own = deployment.uploaded(common=True), deployment.uploaded()
    discrepancy = np.empty(D)
    for k, draw in enumerate(draws):
        # σ W is turned, not W: the kernel's σ (W R) and `coupled_noise` round otherwise, and rows must repeat to the bit.
        E = float(scales[k]) * data_noise(deployment, draw)
        Y_common = add_noise(clean_common, 1.0, ArrayNoise(E))
        Y_own, Z = torch.empty_like(E), torch.empty_like(E)
        for _, i, where in deployment.blocks():
            Y_own[where] = add_noise(clean_own[where], 1.0, ArrayNoise(E[where] @ maps[i].orthogonal.T))
            Z[where] = maps[i].apply(Y_own[where])
        discrepancy[k] = float(torch.linalg.norm(Z - Y_common) / torch.linalg.norm(Y_common))
        common[k], anchored[k] = Y_common.float(), Z.float()
        target_common[k], target_anchored[k] = Y_common[deployment.query_places], Y_own[deployment.query_places]
    anchored_clean = torch.empty_like(clean_own)
    for _, i, where in deployment.blocks():
        anchored_clean[where] = maps[i].apply(clean_own[where])
    return CoupledDraws(
        common, anchored, clean_common.float(), anchored_clean.float(), target_common, target_anchored, discrepancy
    )


def data_noise(deployment: Deployment, draw: int) -> Array:
    """E of one draw, of shape (n, h), standard normal; each participant's from a stream of its own."""
    places = {f"data-noise/{draw}/{split}/{i}": where for split, i, where in deployment.blocks()}
    return standard_normals(deployment.streams, tuple(deployment.rows.shape), places, device=deployment.device)


def standard_normals(streams: Streams, shape: tuple[int, ...], places: Mapping[str, Any], *, device: Any) -> Any:
    """Return a float64 tensor of standard normal numbers, the same on every device.

    NumPy draws them on the host, each piece from a stream of its own name, in as many threads as there are cores; so a draw
    has the same noise on a laptop and on a GPU, alone or among two hundred, and with more participants or fewer.
    `places` says which part of the tensor each stream fills.
    """
    import torch

    drawn: npt.NDArray[np.float64] = np.empty(shape)

    def fill(name: str) -> None:
        streams.named(name).standard_normal(out=drawn[places[name]])

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(fill, places))
    return torch.as_tensor(drawn, device=device)


def _diagnostics(alignment: Alignment, seconds: float, batch: Sequence[Alignment]) -> dict[str, Any]:
    return {
        "iterations": alignment.iterations,
        "converged": bool(alignment.converged),
        "residual": alignment.residual,
        "step": alignment.step,
        "solver_seconds": seconds * alignment.iterations / max(1, sum(other.iterations for other in batch)),
    }


def _wait(device: Any) -> None:
    """Let a GPU finish, so that a clock read here is true."""
    import torch

    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
