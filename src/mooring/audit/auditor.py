"""An auditor: one operating point after the other, on the same data and with the same draws."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mooring.audit.checkpoints import PointStore, code_digest, digest
from mooring.audit.leakage import Targets, measure_leakage
from mooring.audit.linkage import Remembering
from mooring.audit.operating_points import OperatingPoint
from mooring.audit.result import PointResult
from mooring.audit.simulation import simulate
from mooring.audit.specification import Lens
from mooring.audit.utility import References, references, utility
from mooring.errors import InputError, MissingExtraError
from mooring.learners import LEARNERS
from mooring.mechanisms.projection import Projection, gaussian_projection, no_projection, public_svd_projection
from mooring.tables import Partition
from mooring.typing import Array
from mooring.version import __version__

ProjectionKind = Literal["auto", "none", "gaussian", "public-svd"]

_ROWS_TO_ATTACK = 120
_MOST_TARGETS = 3


@dataclass(frozen=True, eq=False)
class Auditor:
    """Audits one operating point after the other on the same data.

    Parameters
    ----------
    dealt : Partition
        Who holds which rows.
    whom : Targets
    lens : Lens
    learner : str
    projection : {"auto", "none", "gaussian", "public-svd"} or Projection
    seed : int
    device : str or None
    folder : Path or None
    """

    dealt: Partition
    whom: Targets
    lens: Lens
    learner: str
    projection: ProjectionKind | Projection
    seed: int
    device: str | None
    folder: Path | None
    _projections: dict[int, Projection] = field(default_factory=dict, repr=False)

    def references(self) -> References:
        """Local only and pooled raw."""
        return references(self.dealt, learner=self.learner, seed=self.seed)

    def projection_onto(self, n_components: int) -> Projection:
        """The public projection onto so many components; always the same one."""
        if isinstance(self.projection, Projection):
            _require_fit(self.projection, self.dealt.n_features, n_components)
            return self.projection
        if n_components not in self._projections:
            rng = np.random.default_rng([self.seed, 0, n_components])
            self._projections[n_components] = make_projection(self.dealt, self.projection, n_components, rng)
        return self._projections[n_components]

    def audit(self, point: OperatingPoint, *, attacks: Sequence[str]) -> PointResult:
        """Simulate, attack, train and score at one point, or load what was found there before."""
        store = PointStore(self.folder, self._key(attacks), keep_examples=self.lens.n_examples > 0)
        stored = store.load(point)
        if stored is not None:
            return stored
        projection = self.projection_onto(point.n_components)
        rows = [self._placed(part) for part in self.dealt.train]
        labels = self.dealt.train_labels
        scale = root_mean_square(self.dealt.train, projection) * point.data_noise_level
        simulation = simulate(
            rows,
            labels,
            method=point.method,
            n_components=point.n_components,
            n_anchor_rows=point.n_anchor_rows,
            anchor_noise_scale=point.anchor_noise_scale,
            data_noise_scale=scale,
            projection=projection,
            rng=np.random.default_rng([self.seed, 8]),  # the same draws at every point: differences are the point's
        )
        outcomes, examples = measure_leakage(
            simulation,
            self.whom,
            attacks=attacks,
            lens=self.lens,
            candidates=np.concatenate(self.dealt.test),
            candidate_labels=None if self.dealt.test_labels is None else np.concatenate(self.dealt.test_labels),
            indices=self.dealt.train_indices,
            reference_indices=np.concatenate(self.dealt.test_indices),
            reference_rows=np.concatenate(self.dealt.test),
            seed=self.seed,
        )
        deployed, noisy = utility(simulation, self.dealt, learner=self.learner, seed=self.seed)
        alignment = None if simulation.alignment is None else str(simulation.alignment.termination)
        result = PointResult(point, scale, outcomes, deployed, noisy, alignment, examples)
        store.save(result)
        return result

    def describe(self, attacks: Sequence[str]) -> dict[str, Any]:
        """What is audited, and with which attacks, in plain values."""
        rows = [int(part.shape[0]) for part in self.dealt.train]
        return {
            "mooring": __version__,
            "n_participants": self.dealt.n_participants,
            "rows_each": [min(rows), max(rows)],
            "n_features": self.dealt.n_features,
            "n_test_rows": int(sum(part.shape[0] for part in self.dealt.test)),
            "labels": self.dealt.label_kind,
            "projection": self._projection_name(),
            "colluders": [self.dealt.names[c] for c in self.whom.colluders],
            "targets": [self.dealt.names[t] for t in self.whom.targets],
            "attacks": list(attacks),
            "n_known_rows": self.whom.n_known_rows,
            "n_repeated_uploads": self.whom.n_repeated_uploads,
            "attribute": None if self.lens.attribute is None else self.lens.attribute_name,
            "learner": self.learner,
            "seed": self.seed,
            "device": self.device or "cpu",
            "machine": f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}",
        }

    def _projection_name(self) -> str:
        return self.projection.kind if isinstance(self.projection, Projection) else self.projection

    def _placed(self, rows: npt.NDArray[np.float64]) -> Array:
        if self.device in (None, "cpu"):
            return rows
        try:
            import torch
        except ImportError:
            raise MissingExtraError(needed_for="an audit on a GPU", package="torch", extra="torch") from None
        try:
            return torch.as_tensor(rows, dtype=torch.float64, device=self.device)
        except (AssertionError, RuntimeError):
            raise InputError(
                "device", expected="one that torch finds here", got=repr(self.device), cure="'cpu' always works."
            ) from None

    def _key(self, attacks: Sequence[str]) -> str:
        if self.folder is None:
            return ""
        settings = {
            "code": code_digest(),
            "attacks": list(attacks),
            "whom": [self.whom.colluders, self.whom.targets, self.whom.n_known_rows, self.whom.n_repeated_uploads],
            "learner": self.learner,
            "projection": self._projection_name(),
            "seed": self.seed,
            "lens": [self.lens.image_shape, self.lens.n_candidates, self.lens.n_queries, self.lens.n_examples],
            "pixels": list(self.lens.pixel_range),
            "embedding": repr(self.lens.embedding),
            "columns": [self.lens.feature_names, self.lens.attribute_kind],
        }
        parts = [*self.dealt.train, *self.dealt.test, self.dealt.public, self.lens.groups, self.lens.attribute]
        parts += [self.projection.matrix] if isinstance(self.projection, Projection) else []
        return digest([*parts, *(self.dealt.train_labels or ()), *(self.dealt.test_labels or ())], settings)


def make_auditor(
    datasets: Partition | Sequence[Array],
    labels: Sequence[Array] | None,
    *,
    colluders: Sequence[int],
    targets: Sequence[int] | None,
    n_known_rows: int,
    n_repeated_uploads: int,
    learner: str,
    lens: Lens | None,
    projection: ProjectionKind | Projection,
    seed: int,
    device: str | None,
    folder: str | Path | None,
) -> Auditor:
    """Check what is asked for, choose targets, and deal matrices out where no deal is given."""
    if isinstance(datasets, Partition):
        if labels is not None:
            raise InputError(
                "labels", expected="absent beside a Partition", got="given", cure="A Partition has its own labels."
            )
        dealt = datasets
    else:
        dealt = Partition.from_parts(datasets, labels, rng=np.random.default_rng([seed, 9]))
    if learner not in LEARNERS:
        raise InputError("learner", expected=f"one of {', '.join(LEARNERS)}", got=repr(learner), cure="'auto' chooses.")
    lens = lens or Lens()
    if lens.embedding is not None:
        lens = replace(lens, embedding=Remembering(lens.embedding))
    _check_lens(lens, dealt)
    p = dealt.n_participants
    if p < 2:
        raise InputError(
            "datasets", expected="at least two participants'", got=str(p), cure="An attack needs a target."
        )
    if any(not 0 <= c < p for c in colluders):
        raise InputError("colluders", expected=f"0 to {p - 1} each", got=str(list(colluders)), cure="Count from zero.")
    if targets is None:
        others = [i for i in range(p) if i not in colluders]
        rows = max(1, min((dealt.train[i].shape[0] for i in others), default=1))
        targets = others[: max(1, min(_MOST_TARGETS, -(-_ROWS_TO_ATTACK // rows)))]
    if not targets or set(targets) & set(colluders):
        raise InputError(
            "targets",
            expected="participants who do not collude, at least one",
            got=str(list(targets)),
            cure="Name another.",
        )
    whom = Targets(tuple(colluders), tuple(targets), n_known_rows, n_repeated_uploads)
    place = None if folder is None else Path(folder)
    return Auditor(dealt, whom, lens, learner, projection, seed, device, place)


def _check_lens(lens: Lens, dealt: Partition) -> None:
    """Groups and attributes have one value a record that was dealt."""
    needed = 1 + max(int(part.max()) for part in (*dealt.train_indices, *dealt.test_indices) if part.size)
    for name, values in (("groups", lens.groups), ("attribute", lens.attribute)):
        if values is not None and len(values) < needed:
            raise InputError(
                f"lens.{name}",
                expected=f"one value a record, at least {needed}",
                got=str(len(values)),
                cure="Give values for all records, also those that nobody trains on.",
            )


def make_projection(dealt: Partition, kind: ProjectionKind, n_components: int, rng: np.random.Generator) -> Projection:
    """The public projection that a study of this kind would use."""
    m = dealt.n_features
    if kind == "auto":
        kind = "none" if n_components == m else "gaussian" if dealt.public is None else "public-svd"
    if kind == "none":
        if n_components != m:
            raise InputError(
                "n_components", expected=f"{m} without a projection", got=str(n_components), cure="Choose a projection."
            )
        return no_projection(m)
    if kind == "gaussian":
        return gaussian_projection(m, n_components, rng=rng)
    if dealt.public is None:
        raise InputError(
            "projection", expected="one that needs no public rows", got="'public-svd'", cure="Set public rows aside."
        )
    return public_svd_projection(dealt.public, n_components, rng=rng)


def _require_fit(projection: Projection, n_features: int, n_components: int) -> None:
    if (projection.n_features, projection.n_components) != (n_features, n_components):
        raise InputError(
            "projection",
            expected=f"one from {n_features} features onto {n_components} components",
            got=f"one from {projection.n_features} onto {projection.n_components}",
            cure="A projection that is given fixes the number of components.",
        )


def root_mean_square(parts: Sequence[npt.NDArray[np.float64]], projection: Projection) -> float:
    """s: the root mean square of all projected training rows' entries, the unit of private-data noise."""
    total = sum(float((projection.encode(part) ** 2).sum()) for part in parts)
    return float(np.sqrt(total / (sum(part.shape[0] for part in parts) * projection.n_components)))
