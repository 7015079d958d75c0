"""Points that audits up to version 0.2.0 recommended or reported first, attacked by everything there is today.

    python -m benchmarks.points --data FOLDER [--only NAME] [--seeds 3]

Writes points.json. Every point is one of private-data noise alone, audited on fresh splits: with the public rows that its
projection was made from, if it has one, and by an attacker without them. The data is not part of the project: mnist/ with
the IDX files, and tabular/ with heart_disease/, adult/ and diabetes130/ of the UCI Machine Learning Repository; digits come
with scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from mooring_studies.data.tables import load_tables, standardise
from sklearn.datasets import load_digits

from benchmarks.leakage import RESULTS
from benchmarks.machine import described
from benchmarks.plans import deal_images
from mooring import AuditSettings, EvaluationSpec, RotationPoint, no_projection, public_svd_projection, run_audit
from mooring.audit import root_mean_square
from mooring.tables import Column, Partition, Records, Schema, encode_table, partition, read_images

MEASURES = (
    "centred_error",
    "exposed_tenth",
    "exposed_share",
    "membership_auc",
    "membership_at_1_percent",
    "membership_at_0.1_percent",
    "outlying_membership_at_0.1_percent",
    "linkage",
    "register_class",
    "holder",
    "roster",
)
FIRST_SEED = 21
HEART = Schema(  # as examples/heart declares them
    (
        Column("X1", "number", 18, 100, missing="fill"),
        Column("X2", "category", categories=("0", "1"), missing="fill"),
        Column("X3", "category", categories=("1", "2", "3", "4"), missing="fill"),
        Column("X4", "number", 50, 250, missing="fill"),
        Column("X5", "number", 50, 700, missing="fill"),
        Column("X6", "category", categories=("0", "1"), missing="fill"),
        Column("X7", "category", categories=("0", "1", "2"), missing="fill"),
        Column("X8", "number", 40, 230, missing="fill"),
        Column("X9", "category", categories=("0", "1"), missing="fill"),
        Column("X10", "number", -5, 10, missing="fill"),
        Column("X11", "category", categories=("1", "2", "3"), missing="fill"),
    )
)
Deal = Callable[[int], tuple[Partition, tuple[Column, ...]]]
"""From a seed to who holds which rows, and the table's columns."""


@dataclass(frozen=True)
class EarlierPoint:
    """A point, and what was claimed of it."""

    name: str
    deal: Deal
    claimed: tuple[float, float]
    """Error of all rows, and the share linked among ten."""
    n_components: int | None = None
    """Through an SVD of the public rows; None for all columns."""
    sigma: float | None = None
    level: float | None = None
    """Either σ itself, or relative to the root mean square of the projected rows."""


def main() -> None:
    """Audit every point, and add what was found to what is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    path = given.output / "points.json"
    for point in _points(given.data):
        if given.only not in (None, point.name):
            continue
        audits = [one for k in range(given.seeds) for one in _audited(point, FIRST_SEED + k)]
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        kept[point.name] = {
            "claimed": point.claimed,
            "audits": audits,
            "machine": described(),
            "date": datetime.now(UTC).date().isoformat(),
        }
        path.write_text(json.dumps(kept, indent=1, ensure_ascii=False), encoding="utf-8")


def _points(data: Path) -> Iterator[EarlierPoint]:
    images, tables = cache(partial(read_images, data / "mnist")), data / "tabular"
    yield EarlierPoint("digits in −1 … 1, 20 × 40, h = 30, σ = 1", _deal_digits, (0.665, 0.75), 30, sigma=1.0)
    for p, n, level, claimed in ((20, 300, 0.6125, (0.519, 0.97)), (100, 40, 0.575, (0.539, 0.99))):
        deal = partial(_deal_images, images, p, n)
        yield EarlierPoint(f"MNIST, {p} × {n}, h = 30, σ = {level:.3f} s", deal, claimed, 30, level=level)
    for by, hospitals, claimed in (("at random", False, (0.694, 0.86)), ("by hospital", True, (0.786, 0.78))):
        deal = partial(_deal_heart, tables, hospitals)
        yield EarlierPoint(f"heart disease, four hospitals split {by}, σ = 0.5", deal, claimed, sigma=0.5)
    for source, name, p, n, h, sigma, claimed in (
        ("census", "Adult", 50, 50, 60, 0.332, (0.565, 1.0)),
        ("census", "Adult", 50, 50, None, 0.206, (0.512, 0.99)),
        ("diabetes", "diabetes in 130 hospitals", 20, 300, None, 0.257, (0.510, 0.997)),
    ):
        deal, kind = partial(_deal_table, tables, source, p, n, h is not None), f"h = {h}" if h else "all columns"
        yield EarlierPoint(f"{name}, {p} × {n}, {kind}, σ = {sigma}", deal, claimed, h, sigma=sigma)


def _deal_digits(seed: int) -> tuple[Partition, tuple[Column, ...]]:
    rows, labels = load_digits(return_X_y=True)
    records, rng = Records(rows=rows / 8 - 1, labels=labels), np.random.default_rng([seed, 300])
    return partition(records, n_participants=20, rows_each=40, public_share=0.1, rng=rng), ()


def _deal_images(images: Callable[[], Records], p: int, n: int, seed: int) -> tuple[Partition, tuple[Column, ...]]:
    return deal_images(images(), p, n, seed), ()


def _deal_heart(folder: Path, by_hospital: bool, seed: int) -> tuple[Partition, tuple[Column, ...]]:
    tables = load_tables("hospitals", folder)
    columns = {one.name: tables.columns.column(one.name) for one in HEART.columns}
    for one in HEART.columns:
        if one.kind == "category":
            columns[one.name] = columns[one.name].cast(pa.int64()).cast(pa.string())
    given, rng = tables.records, np.random.default_rng([seed, 301])
    rows = encode_table(HEART, pa.table(columns))
    records = Records(rows=rows, labels=given.labels, groups=given.groups, group_names=given.group_names)
    return partition(records, n_participants=4, by_group=by_hospital, rng=rng), HEART.columns


def _deal_table(
    folder: Path, source: str, p: int, n: int, public: bool, seed: int
) -> tuple[Partition, tuple[Column, ...]]:
    tables, rng = load_tables(source, folder), np.random.default_rng([seed, 302])
    share = 0.1 if public else 0.0
    return standardise(partition(tables.records, n_participants=p, rows_each=n, public_share=share, rng=rng), tables)


def _audited(point: EarlierPoint, seed: int) -> Iterator[dict[str, Any]]:
    parts, columns = point.deal(seed)
    h, projection = point.n_components or parts.n_features, no_projection(parts.n_features)
    if point.n_components is not None and parts.public is not None:
        projection = public_svd_projection(parts.public, h, rng=np.random.default_rng([seed, 303]))
    level = point.level or 0.0
    if point.sigma is not None:
        level = point.sigma / root_mean_square([projection.encode(np.concatenate(parts.train))])
    at = RotationPoint("aa-i-gdp-data-noise", n_components=h, n_anchor_rows=4 * h, data_noise_level=level)
    evaluation = EvaluationSpec(n_examples=0, columns=columns)
    targets = (1, 2, 3) if parts.n_participants == 4 else None  # every other hospital
    settings = AuditSettings(targets=targets, evaluation=evaluation, projection=projection, learner="linear", seed=seed)
    nobody = np.zeros(0, dtype=np.int64)
    views = {"without": replace(parts, public=None, public_labels=None, public_indices=nobody)}
    views |= {} if parts.public is None else {"with": parts}
    for public, split in views.items():
        began = time.perf_counter()
        found = run_audit(split, points=[at], settings=settings).points[0]
        figures = {measure: found.worst(measure) for measure in MEASURES}
        entry = {
            "seed": seed,
            "public rows": public,
            "seconds": time.perf_counter() - began,
            "figures": {
                measure: {"attack": one[0], "value": one[1].value, "chance": one[1].chance, "control": one[1].control}
                for measure, one in figures.items()
                if one is not None
            },
        }
        print(point.name, entry, flush=True)
        yield entry


if __name__ == "__main__":
    main()
