"""Plans for MNIST split into 20 × 300 and 100 × 40 rows and for breast cancer over 5 clinics, held to fresh seeds.

    python -m benchmarks.plans --mnist FOLDER [--only NAME] [--part earlier|plan] [--fresh 3] [--points FOLDER]

Writes plans.json, which has for every deployment: `earlier`, the point recommended before and what was claimed of it;
`again`, audits of that point on fresh seeds; `plan`, the plan of today; `fresh`, audits of its point on fresh seeds. Each
seed has its own split of the rows, maps and noise. MNIST, as its IDX files in a folder, is not part of the project; breast
cancer comes with scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from benchmarks.leakage import RESULTS
from benchmarks.machine import described
from mooring import AuditSettings, EvaluationSpec, Plan, RotationPoint, plan_study, run_audit
from mooring.audit import PointResult
from mooring.tables import Partition, Records, partition, read_images

LIMIT = "error at least 0.5"
MEASURES = (
    "exposed_tenth",
    "centred_error",
    "membership_at_1_percent",
    "membership_at_0.1_percent",
    "outlying_membership_at_1_percent",
    "linkage",
    "register_class",
)
FIRST_FRESH_SEED = 11
Deal = Callable[[int, int], Partition]
"""From a seed, and how many times the rows of a study, to who holds which."""


def main() -> None:
    """Audit and plan for each deployment, and add what was found to what is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--part", choices=("earlier", "plan"))
    parser.add_argument("--fresh", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--points", type=Path, help="where finished points are kept, to go on from")
    given = parser.parse_args()
    path = given.output / "plans.json"
    earlier = json.loads((RESULTS / "plans.json").read_text(encoding="utf-8"))
    for name, deal, h in _deployments(given.mnist):
        if given.only not in (None, name):
            continue
        entry: dict[str, Any] = {"earlier": earlier[name]["earlier"]}
        if given.part != "plan":
            entry["again"] = audit_afresh(deal, entry["earlier"]["point"], given.fresh, given.points)
        if given.part != "earlier":
            entry["plan"] = _planned(deal, h, given.points)
            entry["fresh"] = audit_afresh(deal, entry["plan"]["reported"]["point"], given.fresh, given.points)
        entry |= {"machine": described(), "date": datetime.now(UTC).date().isoformat()}
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        kept[name] = kept.get(name, {}) | entry
        path.write_text(json.dumps(kept, indent=1, ensure_ascii=False), encoding="utf-8")


def _deployments(mnist: Path | None) -> Iterator[tuple[str, Deal, int | None]]:
    rows, labels = load_breast_cancer(return_X_y=True)
    clinics = Records(rows=StandardScaler().fit_transform(rows), labels=labels)

    def deal_clinics(seed: int, times: int) -> Partition:
        return partition(clinics, n_participants=5, rng=np.random.default_rng([seed, 200]))

    yield "breast cancer, 5 clinics", deal_clinics, None
    if mnist is None:
        return
    images = read_images(mnist)
    for p, n in ((20, 300), (100, 40)):

        def deal(seed: int, times: int, p: int = p, n: int = n) -> Partition:
            return deal_images(images, p, times * n, seed)

        yield f"MNIST, {p} × {n}", deal, 30


def deal_images(images: Records, n_participants: int, rows_each: int, seed: int) -> Partition:
    """MNIST with a tenth of the rows public and a twentieth to score on."""
    rng = np.random.default_rng([seed, 201])
    return partition(
        images, n_participants=n_participants, rows_each=rows_each, test_share=0.05, public_share=0.1, rng=rng
    )


def _settings(seed: int, folder: Path | None) -> AuditSettings:
    return AuditSettings(evaluation=EvaluationSpec(n_examples=0), learner="svm", seed=seed, folder=folder)


def print_progress(done: float, total: float, what: str = "", /) -> None:
    """Print a line for each step that is done."""
    print(f"{done:g}/{total:g} {what}", flush=True)


def _planned(deal: Deal, h: int | None, folder: Path | None) -> dict[str, Any]:
    """A plan on twice the rows, so that each half is a study of the stated size; of breast cancer there are no more."""
    began = time.perf_counter()
    plan = plan_study(
        deal(0, 2),
        limit=LIMIT,
        n_components=h,
        settings=_settings(0, folder),
        progress=print_progress,
    )
    print(plan.verdict, flush=True)
    return summarise_plan(plan) | {"seconds": time.perf_counter() - began}


def audit_afresh(deal: Deal, point: dict[str, Any], n_seeds: int, folder: Path | None) -> list[dict[str, Any]]:
    """Audit a point, whose noise is relative to the rows, on splits of the rows that no search has seen."""
    found = []
    for seed in range(FIRST_FRESH_SEED, FIRST_FRESH_SEED + n_seeds):
        at = RotationPoint(**{name: value for name, value in point.items() if name != "mechanism"})
        result = run_audit(deal(seed, 1), points=[at], settings=_settings(seed, folder))
        found.append({"seed": seed, **summarise_point(result.points[0]), "alone": result.references.as_dict()})
        print(found[-1], flush=True)
    return found


def summarise_point(one: PointResult, measures: Sequence[str] = MEASURES) -> dict[str, Any]:
    """The point, its scores, and the strongest attack by each measure beside interval, chance and control."""
    figures = {}
    for measure in measures:
        if (worst := one.worst(measure)) is not None:
            ends = [worst[1].interval.low, worst[1].interval.high] if worst[1].interval.known else [None, None]
            figures[measure] = {
                "attack": worst[0],
                "value": worst[1].value,
                "interval": ends,
                "chance": worst[1].chance,
                "control": worst[1].control,
            }
    return {
        "title": one.title,
        "point": one.point.as_dict(),
        "figures": figures,
        "deployed": None if one.deployed is None else one.deployed.as_dict(),
        "gain": None if one.gain is None else one.gain.as_dict() | {"answer": one.gain.answer},
    }


def summarise_plan(plan: Plan) -> dict[str, Any]:
    """The verdict, what is reported, and every point that was tried, with what it was chosen by."""
    return {
        "limit": str(plan.limit),
        "verdict": plan.verdict,
        "answer": plan.answer,
        "recommended": plan.recommended is not None,
        "reported": summarise_point(plan.audit.points[0]),
        "references": plan.audit.references.as_dict(),
        "searched_references": plan.tried.references.as_dict(),
        "tried": [summarise_point(one, [plan.limit.measure]) for one in plan.tried.points],
    }


if __name__ == "__main__":
    main()
