"""`mooring.plan_study` on MNIST dealt to 20 × 300 and 100 × 40 rows, and on breast cancer over 5 clinics.

    python -m benchmarks.plans --mnist FOLDER [--only NAME] [--seed 0]

Writes results/plans.json: every point that the search tried, with the strongest attack's figures and the joint model's
scores. MNIST, as its IDX files in a folder, is not part of the project; breast cancer comes with scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from benchmarks.leakage import RESULTS
from benchmarks.machine import described
from mooring import AuditSettings, EvaluationSpec, Plan, plan_study
from mooring.audit import PointResult
from mooring.tables import Partition, Records, partition, read_images

LIMIT = "error at least 0.5"


def main() -> None:
    """Plan for each deployment and keep what was tried."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    path = RESULTS / "plans.json"
    for name, parts, h in _deployments(given):
        if given.only not in (None, name):
            continue
        began = time.perf_counter()
        plan = plan_study(
            parts,
            limit=LIMIT,
            n_components=h,
            settings=AuditSettings(evaluation=EvaluationSpec(n_examples=0), learner="svm", seed=given.seed),
            progress=lambda done, total, words: print(f"{done}/{total} {words}", flush=True),
        )
        seconds = time.perf_counter() - began
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        kept[name] = _summary(plan) | {
            "seconds": seconds,
            "seed": given.seed,
            "machine": described(),
            "date": datetime.now(UTC).date().isoformat(),
        }
        path.write_text(json.dumps(kept, indent=1, ensure_ascii=False), encoding="utf-8")
        print(name, f"{seconds:.0f} s", plan.verdict, flush=True)


def _deployments(given: argparse.Namespace) -> Iterator[tuple[str, Partition, int | None]]:
    rows, labels = load_breast_cancer(return_X_y=True)
    clinics = Records(rows=StandardScaler().fit_transform(rows), labels=labels)
    rng = np.random.default_rng([given.seed, 200])
    yield "breast cancer, 5 clinics", partition(clinics, n_participants=5, rng=rng), None
    if given.mnist is None:
        return
    images = read_images(given.mnist)
    for p, n in ((20, 300), (100, 40)):
        rng = np.random.default_rng([given.seed, 201])
        parts = partition(images, n_participants=p, rows_each=n, test_share=0.05, public_share=0.1, rng=rng)
        yield f"MNIST, {p} × {n}", parts, 30


def guessing(point: PointResult) -> dict[str, float | None] | None:
    """Errors of guessing the rows without the upload: their mean, and the mean of their class."""
    worst = point.worst()
    return None if worst is None else {"mean": worst[1].chance, "class mean": worst[1].control}


def _summary(plan: Plan) -> dict[str, Any]:
    points = []
    for one in plan.audit.points:
        attack, figure = one.worst() or ("none", None)
        linked = one.worst("linkage")
        points.append(
            {
                **one.point.as_dict(),
                "title": one.title,
                "attack": attack,
                "error": None if figure is None else [figure.value, figure.interval.low, figure.interval.high],
                "linkage": None
                if linked is None
                else [linked[1].value, linked[1].interval.low, linked[1].interval.high],
                "deployed": None if one.deployed is None else one.deployed.as_dict(),
                "noisy_test": None if one.noisy_test is None else one.noisy_test.as_dict(),
            }
        )
    return {
        "target": str(plan.limit),
        "verdict": plan.verdict,
        "answer": plan.answer,
        "recommended": None if plan.recommended is None else plan.recommended.title,
        "guessing": next((guess for one in plan.audit.points if (guess := guessing(one)) is not None), None),
        "references": plan.audit.references.as_dict(),
        "points": points,
    }


if __name__ == "__main__":
    main()
