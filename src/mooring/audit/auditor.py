"""The audit: operating points × attacks on given data, with utility beside leakage."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.attacks import PublicRows
from mooring.audit.checkpoints import PointStore, code_digest, digest
from mooring.audit.hazards import find_hazards, warn_of_dissimilar_colluder
from mooring.audit.identification.linkage import CachedEmbedding
from mooring.audit.identification.membership import audit_row_noise
from mooring.audit.leakage import measure_leakage
from mooring.audit.operating_points import OperatingPoint, PointGrid
from mooring.audit.release import measure_point_release
from mooring.audit.result import AuditResult, PointResult, SumAudit
from mooring.audit.simulation import Simulation, SimulationSettings, simulate
from mooring.audit.specification import AuditSettings, ProjectionKind
from mooring.audit.sums import SumAuditor
from mooring.audit.utility import References, find_label_kind, measure_references, measure_utility
from mooring.errors import InputError, MissingExtraError
from mooring.mechanisms.rotation.projection import Projection, gaussian_projection, no_projection, public_svd_projection
from mooring.tables import Partition
from mooring.typing import Array, Matrix, Progress
from mooring.version import __version__


def run_audit(
    datasets: Partition | Sequence[Array],
    labels: Sequence[Array] | None = None,
    *,
    points: Sequence[OperatingPoint] | PointGrid | None = None,
    chosen: OperatingPoint | None = None,
    settings: AuditSettings | None = None,
    progress: Progress | None = None,
    contrast: bool = False,
) -> AuditResult:
    """Attack every operating point with every attack, and measure what the joint model is worth there.

    Parameters
    ----------
    datasets : Partition, or sequence of arrays of shape (n_i, n_features)
        Rows a participant: as `mooring.tables.partition` gives them, or one matrix each, of which a quarter is kept for
        testing.
    labels : sequence of arrays of shape (n_i,), optional
        With matrices: integers for classes, floats for numbers.
    points : sequence of OperatingPoint, or PointGrid, optional
        What to audit; by default every method with three scales of every noise it has.
    chosen : OperatingPoint, optional
        The one of them that a study has, or is to have: what the result says first is about it.
    settings : AuditSettings, optional
        Attacks, colluders, targets, projection, learner, how rebuilt rows are evaluated, seed, device, folder.
    progress : callable, optional
        Called with points done, points in all, and what comes next.
    contrast : bool, default False
        Whether the points only stand beside secure sums, which the result says first.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> classes = [rng.integers(0, 2, 60) for _ in range(3)]
    >>> rows = [rng.standard_normal((60, 3)) + 4 * part[:, None] for part in classes]
    >>> grid = PointGrid(methods=["aa-i-gdp-anchor-noise"], anchor_noise_scales=[0.5])
    >>> point = run_audit(rows, classes, points=grid).points[0]
    >>> attack, figure = point.worst()
    >>> figure.value < point.outcomes[3].figures["centred_error"].value  # Procrustes: the paper's strongest
    True
    """
    auditor = Auditor.of(datasets, labels, settings or AuditSettings())
    points = PointGrid() if points is None else points
    if isinstance(points, PointGrid):
        points = points.points(auditor.default_n_components, auditor.rms)
    if not points:
        raise InputError("points", expected="at least one", got="none", cure="Name a method and its noise.")
    tell = progress or (lambda done, total, words: None)
    total = len(points) + 1
    tell(0, total, "training alone and pooled")
    scores = auditor.references()
    results = []
    for k, point in enumerate(points):
        tell(k + 1, total, auditor.title(point))
        results.append(auditor.audit(point))
        if point == chosen:
            tell(k + 1, total, "what the model gives away")
            results[-1] = auditor.audit_release(results[-1])
    sums = auditor.audit_sums(lambda words: tell(len(points), total, words))
    tell(total, total, "done")
    place, more = None if chosen is None else points.index(chosen), {"contrast": True} if contrast else {}
    return auditor.result(scores, results, chosen=place, sums=sums, **more)


@dataclass(frozen=True, eq=False)
class Auditor:
    """Audits one operating point after the other on the same data and with the same draws."""

    partition: Partition
    """Who holds which rows."""
    settings: AuditSettings
    """Checked against the data, with targets chosen."""
    _projections: dict[int, Projection] = field(default_factory=dict, repr=False)
    _rms: dict[int, float] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, datasets: Partition | Sequence[Array], labels: Sequence[Array] | None, settings: AuditSettings
    ) -> Auditor:
        """Check what is asked for, choose targets, and deal matrices out where no deal is given.

        Parameters
        ----------
        datasets : Partition or sequence of array
            Rows already dealt into training, test and public rows, or a matrix a participant to deal.
        labels : sequence of array or None
            A vector a participant; None beside a Partition, which has its own, and where utility is not measured.
        settings : AuditSettings
            Whom to attack, with what, and what to measure.
        """
        if isinstance(datasets, Partition):
            if labels is not None:
                raise InputError(
                    "labels", expected="absent beside a Partition", got="given", cure="A Partition has its own labels."
                )
            partition = datasets
        else:
            partition = Partition.from_parts(datasets, labels, rng=np.random.default_rng([settings.seed, 9]))
        evaluation = settings.evaluation
        if evaluation.embedding is not None:
            evaluation = replace(evaluation, embedding=CachedEmbedding(evaluation.embedding))
        return cls(partition, replace(settings, evaluation=evaluation).for_data(partition))

    @property
    def default_n_components(self) -> int:
        """How many components a study has unless it says otherwise."""
        given = self.settings.projection
        return given.n_components if isinstance(given, Projection) else min(30, self.partition.n_features)

    def references(self) -> References:
        """Local only and pooled raw."""
        return self._references[0]

    @cached_property
    def _references(self) -> tuple[References, npt.NDArray[Any] | None]:
        return measure_references(self.partition, learner=self.settings.learner, seed=self.settings.seed)

    def projection_onto(self, n_components: int) -> Projection:
        """The public projection onto so many components; always the same one."""
        given = self.settings.projection
        if isinstance(given, Projection):
            if (given.n_features, given.n_components) != (self.partition.n_features, n_components):
                raise InputError(
                    "projection",
                    expected=f"one from {self.partition.n_features} features onto {n_components} components",
                    got=f"one from {given.n_features} onto {given.n_components}",
                    cure="A projection that is given fixes the number of components.",
                )
            return given
        if n_components not in self._projections:
            rng = np.random.default_rng([self.settings.seed, 0, n_components])
            self._projections[n_components] = make_projection(self.partition, given, n_components, rng)
        return self._projections[n_components]

    def rms(self, n_components: int) -> float:
        """s, the root mean square of all training rows projected onto so many components."""
        if n_components not in self._rms:
            self._rms[n_components] = root_mean_square(self.partition.train, self.projection_onto(n_components))
        return self._rms[n_components]

    def title(self, point: OperatingPoint) -> str:
        """A point's method and noise, with σ itself."""
        return point.title_with(self.rms(point.n_components) * point.data_noise_level)

    def audit(self, point: OperatingPoint) -> PointResult:
        """Simulate, attack, train and score at one point, or load what was found there before."""
        settings = self.settings
        store = None
        if settings.folder is not None:
            store = PointStore(Path(settings.folder), self._key(), keep_examples=settings.evaluation.n_examples > 0)
            if (stored := store.load(point)) is not None:
                return stored
        simulation = self._simulate(point)
        outcomes, examples = measure_leakage(simulation, self.partition, settings)
        found = measure_utility(
            simulation,
            self.partition,
            learner=settings.learner,
            seed=settings.seed,
            alone=self._references[1],
            groups=settings.evaluation.groups,
        )
        alignment = None if simulation.alignment is None else str(simulation.alignment.termination)
        found |= {"alignment": alignment, "examples": examples, "epsilon": audit_row_noise(simulation)}
        result = PointResult(point, simulation.data_noise_scale, outcomes, **found)
        if store is not None:
            store.save(result)
        return result

    def audit_release(self, result: PointResult) -> PointResult:
        """The same result, with what the joint model itself gives away."""
        found = measure_point_release(
            self._simulate(result.point),
            self.partition,
            learner=result.learner,
            seed=self.settings.seed,
            columns=self.settings.evaluation.columns,
        )
        return replace(result, release=found)

    def _simulate(self, point: OperatingPoint) -> Simulation:
        settings, projection = self.settings, self.projection_onto(point.n_components)
        known, columns = None, settings.evaluation.columns
        if self.partition.public is not None:
            records = _on_device(self.partition.public, settings.device)
            known = PublicRows(records, projection.moved_to(records).encode(records), self.partition.public_labels)
        return simulate(
            [_on_device(part, settings.device) for part in self.partition.train],
            self.partition.train_labels,
            method=point.method,
            anchor_noise_scale=point.anchor_noise_scale,
            data_noise_scale=self.rms(point.n_components) * point.data_noise_level,
            rng=np.random.default_rng([settings.seed, 8]),  # the same draws at every point: differences are the point's
            settings=SimulationSettings(
                projection, n_anchor_rows=point.n_anchor_rows, public_rows=known, columns=columns
            ),
        )

    def sum_auditor(self) -> SumAuditor | None:
        """What audits secure sums on the same data; None where there is nothing to learn."""
        if find_label_kind(self.partition) is None:
            return None
        scores, predicted = self._references
        alone = None if scores.local_only is None or predicted is None else (scores.local_only, predicted)
        return SumAuditor(self.partition, self.settings, alone)

    def audit_sums(self, tell: Callable[[str], None]) -> SumAudit | None:
        """Secure sums at every ε of the settings; None where they ask for none, or there is nothing to learn."""
        auditor = self.sum_auditor()
        if self.settings.sums is None or auditor is None:
            return None
        results = []
        for epsilon in self.settings.sums.epsilons:
            tell(auditor.point(epsilon).title)
            results.append(auditor.audit(auditor.point(epsilon)))
        return auditor.result(results)

    def result(
        self,
        scores: References,
        results: Sequence[PointResult],
        *,
        chosen: int | None = None,
        sums: SumAudit | None = None,
        **more: Any,
    ) -> AuditResult:
        """All that was found, described, with warnings.

        Parameters
        ----------
        scores : References
            Training alone and on pooled rows.
        results : sequence of PointResult
            One a point; the first one's width is that of the hazards.
        chosen : int, optional
            Place of the recommended point in `results`.
        sums : SumAudit, optional
            What secure sums of the same rows give away.
        **more : object
            Added to the description.
        """
        warnings = (*find_hazards(self.partition, results[0].point.n_components), *warn_of_dissimilar_colluder(results))
        return AuditResult(self.describe() | more, scores, tuple(results), warnings, chosen, sums)

    def describe(self) -> dict[str, Any]:
        """What is audited, and with which attacks, in plain values."""
        partition, settings = self.partition, self.settings
        rows = [int(part.shape[0]) for part in partition.train]
        return {
            "mooring": __version__,
            "n_participants": partition.n_participants,
            "rows_each": [min(rows), max(rows)],
            "n_features": partition.n_features,
            "n_test_rows": int(sum(part.shape[0] for part in partition.test)),
            "labels": partition.label_kind,
            "projection": settings.projection_name,
            "colluders": [partition.names[c] for c in settings.colluders],
            "targets": [partition.names[t] for t in settings.targets or ()],
            "attacks": list(settings.attack_names),
            "n_known_rows": settings.n_known_rows,
            "n_repeated_uploads": settings.n_repeated_uploads,
            "attribute": None if settings.evaluation.attribute is None else settings.evaluation.attribute_name,
            "learner": settings.learner_name,
            "seed": settings.seed,
            "noise_unit": str(settings.noise_unit),
            "device": settings.device or "cpu",
            "machine": f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}",
        }

    def _key(self) -> str:
        """A digest of all that a point's result depends on, but for the point."""
        partition, settings, spec = self.partition, self.settings, self.settings.evaluation
        plain = {
            "code": code_digest(),
            "attacks": settings.attack_names,
            "whom": [settings.colluders, settings.targets, settings.n_known_rows, settings.n_repeated_uploads],
            "learner": settings.learner_name,
            "projection": settings.projection_name,
            "seed": settings.seed,
            "evaluation": [spec.image_shape, spec.n_candidates, spec.n_queries, spec.n_examples, spec.pixel_range],
            "embedding": repr(spec.embedding),
            "columns": [spec.columns, spec.feature_names, spec.feature_scales, spec.attribute_kind],
        }
        parts = [*partition.train, *partition.test, partition.public, spec.groups, spec.attribute]
        parts += [settings.projection.matrix] if isinstance(settings.projection, Projection) else []
        parts += [partition.public_labels]
        return digest([*parts, *(partition.train_labels or ()), *(partition.test_labels or ())], plain)


def make_projection(
    partition: Partition, kind: ProjectionKind, n_components: int, rng: np.random.Generator
) -> Projection:
    """The public projection that a study of this kind would use.

    Parameters
    ----------
    kind : {"auto", "none", "gaussian", "public-svd"}
    """
    m = partition.n_features
    if kind == "auto":
        kind = "none" if n_components == m else "gaussian" if partition.public is None else "public-svd"
    if kind == "none":
        if n_components != m:
            raise InputError(
                "n_components", expected=f"{m} without a projection", got=str(n_components), cure="Choose a projection."
            )
        return no_projection(m)
    if kind == "gaussian":
        return gaussian_projection(m, n_components, rng=rng)
    if partition.public is None:
        raise InputError(
            "projection", expected="one that needs no public rows", got="'public-svd'", cure="Set public rows aside."
        )
    return public_svd_projection(partition.public, n_components, rng=rng)


def root_mean_square(parts: Sequence[Matrix], projection: Projection | None = None) -> float:
    """s: the root mean square of all projected training rows' entries, the unit of private-data noise.

    Without a projection, of rows that are projected already.
    """
    projected = (part if projection is None else projection.encode(part) for part in parts)
    squares = [(float((part**2).sum()), part.size) for part in projected]
    return float(np.sqrt(sum(total for total, _ in squares) / sum(size for _, size in squares)))


def _on_device(rows: Matrix, device: str | None) -> Array:
    if device in (None, "cpu"):
        return rows
    try:
        import torch
    except ImportError:
        raise MissingExtraError(needed_for="an audit on a GPU", package="torch", extra="torch") from None
    try:
        return torch.as_tensor(rows, dtype=torch.float64, device=device)
    except (AssertionError, RuntimeError):
        raise InputError(
            "device", expected="one that torch finds here", got=repr(device), cure="'cpu' always works."
        ) from None
