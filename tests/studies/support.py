"""What tests of the studies share: a progress that counts, deployments of image studies, a stand-in for a slow attack."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from mooring_studies.images import leakage
from mooring_studies.images.deployment import SPLITS, Deployment, deployed
from mooring_studies.images.evaluator import Decoder, ImageEvaluator
from mooring_studies.roles import TARGET

from mooring.audit import Attempt
from mooring.metrics import Galleries
from mooring.randomness import Streams


class Counting:
    """A progress that counts the steps of every stage and keeps notes; it can end the run after some steps."""

    def __init__(self, until: int | None = None) -> None:
        self.totals: dict[str, int] = {}
        self.steps: Counter[str] = Counter()
        self.notes: list[str] = []
        self._until = until

    def stage(self, name: str, total: int) -> None:
        self._now, self.totals[name] = name, total

    def advance(self, n: int = 1) -> None:
        self.steps[self._now] += n
        if self.steps.total() == self._until:
            raise KeyboardInterrupt

    def note(self, text: str) -> None:
        self.notes.append(text)


def dealt_images(p: int, h: int, sizes: Mapping[str, int]) -> tuple[dict[Any, list[Any]], dict[Any, list[Any]]]:
    """Rows of three skewed classes, and labels; what participant i holds does not depend on p, nor are two of one size."""
    rng = np.random.default_rng(4)
    means, mixing = 2 * rng.standard_normal((3, h)), rng.standard_normal((3, h, h)) / 2
    parts: dict[Any, list[Any]] = {split: [] for split in SPLITS}
    labels: dict[Any, list[Any]] = {split: [] for split in SPLITS}
    for i in range(p):
        rng_of_rows = np.random.default_rng(100 + i)
        for split in SPLITS:
            codes = rng_of_rows.permutation(np.arange(sizes[split] + 3 * i) % 3)
            spread = rng_of_rows.gamma(2.0, 1.0, (len(codes), h)) - 2
            parts[split].append(means[codes] + np.einsum("nij,nj->ni", mixing[codes], spread))
            labels[split].append(codes)
    return parts, labels


def image_deployment(p: int, h: int, sizes: Mapping[str, int], *, n_anchor_rows: int, streams: Streams) -> Deployment:
    """Such rows with secrets and an anchor; the target's test rows are the queries."""
    parts, labels = dealt_images(p, h, sizes)
    before = sum(map(len, (*parts["train"], *parts["validation"], *parts["test"][:TARGET])))
    places = np.arange(before, before + len(parts["test"][TARGET]))
    return deployed(parts, labels, places, n_anchor_rows=n_anchor_rows, streams=streams, device="cpu")


def image_evaluator(queries: Any, galleries: Galleries, **changes: Any) -> ImageEvaluator:
    """An auditor that sees the projected rows themselves."""
    import torch

    normalise = torch.nn.functional.normalize
    settings: dict[str, Any] = {
        "queries": queries,
        "decoder": Decoder(torch.eye(queries.shape[1])),
        "embed": lambda images: normalise(images, dim=1),
        "references": normalise(queries.float().clamp(0, 1), dim=1),
        "galleries": galleries,
        "match_galleries": galleries,
        "shown": np.arange(3),
    }
    return ImageEvaluator(**settings | changes)


def stand_in_for_moments(patch: pytest.MonkeyPatch, attack: Callable[..., Any]) -> None:
    """Have image studies run another attack in place of the moments attack, which takes seconds."""
    run_attack, many = leakage.run_attack, leakage.run_attack_batch

    def run_one(name: str, view: Any, *, rng: Any) -> Any:
        return Attempt(name, False, attack(view, rng=rng)) if name == "moments" else run_attack(name, view, rng=rng)

    def run_many(name: str, views: Any, *, rng: Any) -> Any:
        if name != "moments":
            return many(name, views, rng=rng)
        return tuple(Attempt(name, False, attack(view, rng=rng)) for view in views)

    patch.setattr(leakage, "run_attack", run_one)
    patch.setattr(leakage, "run_attack_batch", run_many)


LANDSCAPE_S = {20: 2.0, 200: 3.0}
"""The standard deviation of the rows of each size."""
_ATTACKED = {"match:moments": 0.5, "error:moments": 0.2, "error:procrustes": 0.4, "error:guessing": 0.8}
_SCORES = {"local-only": 0.50, "pooled-raw": 0.80, "aa-i-gdp": 0.79}
_NOISES = [
    ("aa-i-gdp-anchor-noise", 0.05, 0.0, 0.70),
    ("aa-i-gdp-anchor-noise", 0.2, 0.0, 0.48),
    ("aa-i-gdp-data-noise", 0.0, 0.3, 0.60),
]


def landscape_rows(*, deployments: int = 1) -> list[dict[str, Any]]:
    """Two sizes by two numbers of participants; more rows and participants are worth more to all but noise."""
    rows = []
    for deployment, size, p in ((d, n, p) for d in range(deployments) for n in LANDSCAPE_S for p in (2, 10)):
        cell = {"deployment": deployment, "n_participants": p, "rows_each": size}
        more = 0.001 * p * (deployment + 1)
        noiseless = [(method, 0.0, 0.0, score) for method, score in _SCORES.items()]
        for draw, (method, v, level, score) in enumerate(noiseless + _NOISES):
            better = score + more * (method != "local-only")
            noise = {"anchor_noise_scale": v, "data_noise_scale": level * LANDSCAPE_S[size]}
            figures = {"balanced_accuracy": better, "balanced_accuracy_clean": better}
            attacked = {} if method in ("local-only", "pooled-raw") else _ATTACKED
            rows.append(cell | {"method": method, "draw": draw} | noise | figures | attacked)
    return rows
