"""What the attacks recover on MNIST and CelebA, beside the prototype's figures: error, linkage, seconds.

    python -m benchmarks.leakage --mnist FOLDER [--celeba FILE] [--device cuda] [--seeds 3]

The data is not part of the project: MNIST as its four IDX files in a folder; CelebA as a Parquet file of 64×64 images with
columns image_webp (encoded), identity, smiling and pool ("public" or "participants").
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import described
from mooring import (
    Projection,
    RowSimulation,
    SimulationSettings,
    attacks,
    gaussian_projection,
    public_svd_projection,
    simulate,
)
from mooring.audit import Guess
from mooring.geometry.backend import to_numpy
from mooring.metrics import bootstrap_ratio, build_galleries, link, relative_error
from mooring.tables import Partition, partition, read_images

RESULTS = Path(__file__).parent / "results"
ATTACKS = ("pseudoinverse", "procrustes", "alignment-map", "moments", "joint-moments")


@dataclass(frozen=True, eq=False)
class Setting:
    """Rows, a projection, and the noise levels to attack; None stands for I-GDP, which has no anchor."""

    name: str
    partition: Partition
    projection: Projection
    anchor_noise_scales: tuple[float | None, ...]
    public_rows: attacks.PublicRows | None = None
    """The rows that a public projection was fitted to, which the attacker has, too."""


def main() -> None:
    """Run what was asked for and write results/leakage.json, adding to what is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--celeba", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    path = given.output / "leakage.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for seed in range(given.seeds):
        for setting in _settings(given, seed):
            key = f"{setting.name} on {given.device}"
            entry = kept.setdefault(key, {"rows": []})
            entry |= {"machine": described(), "date": datetime.now(UTC).date().isoformat(), "name": setting.name}
            entry["guessing"] = guess_without_upload(setting)
            entry["rows"] = [row for row in entry["rows"] if row["seed"] != seed]
            for row in _attacked(setting, seed, given.device):
                entry["rows"].append(row)
                print(key, row, flush=True)
            path.write_text(json.dumps(kept, indent=1), encoding="utf-8")


def _settings(given: argparse.Namespace, seed: int) -> Iterator[Setting]:
    rng = np.random.default_rng([seed, 100])
    if given.mnist is not None:
        records = read_images(given.mnist)
        parts = partition(records, n_participants=10, test_share=0.0, rng=rng)
        projection = gaussian_projection(records.n_features, 100, rng=rng)
        yield Setting("MNIST, 10 × 6,000, h = 100 Gaussian, r = 400", parts, projection, (0.05, 0.2, 0.5, None))
    if given.celeba is not None:
        records = read_images(given.celeba, image_column="image_webp", label="smiling", group_by="identity")
        pool = records.attributes["pool"] == "public"
        public, private = (records.take(np.flatnonzero(chosen)) for chosen in (pool, ~pool))
        projection = public_svd_projection(public.rows, 400, rng=rng)
        small = replace(private, rows=projection.encode(private.rows), image_shape=None, feature_names=())
        parts = partition(small, n_participants=10, test_share=0.0, by_group=True, rng=rng)
        flat = Projection(np.eye(400), np.eye(400), "public-svd")  # the rows are projected already
        encoded = projection.encode(public.rows)
        known = attacks.PublicRows(encoded, encoded, public.labels)
        name = "CelebA, 10 × 99 identities, h = 400 public SVD, r = 1,600"
        yield Setting(name, parts, flat, (0.02, 0.06, 0.25, None), known)


def guess_without_upload(setting: Setting) -> dict[str, float]:
    """Relative error of guessing participant 1's projected rows from participant 0's: their mean, or the mean of a class."""
    parts = setting.partition
    assert parts.train_labels is not None
    known, truth = (setting.projection.encode(rows) for rows in parts.train[:2])
    guess = Guess.of(known, *parts.train_labels[:2])
    return {"mean": relative_error(truth, guess.overall), "class mean": relative_error(truth, guess.by_class)}


def _attacked(setting: Setting, seed: int, device: str) -> Iterator[dict[str, Any]]:
    for v in setting.anchor_noise_scales:
        simulation = _simulated(setting, v, seed, device)
        view = simulation.view(colluders=[0], target=1)
        truth = to_numpy(simulation.private_data[1])
        galleries = build_galleries(to_numpy(simulation.labels[1]), n_queries=1000, seed=seed)
        for name in ATTACKS:
            began = time.perf_counter()
            try:
                rows = to_numpy(attacks.run(name, view, rng=np.random.default_rng(seed)).rows)
            except attacks.DoesNotApply:
                continue
            seconds = time.perf_counter() - began
            off, size = ((rows - truth) ** 2).sum(axis=1), (truth**2).sum(axis=1)
            interval = bootstrap_ratio(off, size, rng=np.random.default_rng(seed))
            linked = max(link(rows, truth, galleries, metric=m).value for m in ("euclidean", "cosine"))
            yield {
                "v": v,
                "seed": seed,
                "attack": name,
                "error": float(np.sqrt(off.sum() / size.sum())),
                "interval": [interval.low, interval.high],
                "linkage": linked,
                "seconds": seconds,
            }


def _simulated(setting: Setting, v: float | None, seed: int, device: str) -> RowSimulation:
    rows, known = list[Any](setting.partition.train), setting.public_rows
    if device != "cpu":
        import torch

        rows = [torch.as_tensor(part, device=device) for part in rows]
        if known is not None:
            encoded = torch.as_tensor(known.rows, device=device)
            known = attacks.PublicRows(encoded, encoded, known.labels)
    return simulate(
        rows,
        setting.partition.train_labels,
        method="i-gdp" if v is None else "aa-i-gdp-anchor-noise",
        anchor_noise_scale=v or 0.0,
        rng=np.random.default_rng([seed, 101]),
        settings=SimulationSettings(projection=setting.projection, public_rows=known),
    )


if __name__ == "__main__":
    main()
