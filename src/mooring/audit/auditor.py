"""The audit: every attack at every operating point on given data, with utility and leakage."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mooring.audit.deployment import Deployment
from mooring.audit.grid import PointGrid
from mooring.audit.hazards import find_hazards
from mooring.audit.measurement import measure_leakage, measure_release
from mooring.audit.operating_points import OperatingPoint
from mooring.audit.results.audit_result import AuditDescription, AuditResult
from mooring.audit.results.checkpoints import PointStore, code_digest, digest
from mooring.audit.results.point_result import PointResult
from mooring.audit.results.statements import warn_of_dissimilar_colluder
from mooring.audit.rotation.linkage import CachedEmbedding
from mooring.audit.specification import AuditSettings
from mooring.audit.utility import Alone, measure_alone, measure_utility
from mooring.errors import InputError
from mooring.mechanisms.rotation.projection import Projection
from mooring.tables import Partition
from mooring.typing import Array, Progress
from mooring.version import __version__


def run_audit(
    datasets: Partition | Sequence[Array],
    labels: Sequence[Array] | None = None,
    *,
    points: Sequence[OperatingPoint] | PointGrid | None = None,
    chosen: OperatingPoint | None = None,
    settings: AuditSettings | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Return what every attack recovers at every operating point, and the score of the joint model there.

    Parameters
    ----------
    datasets : Partition, or sequence of arrays of shape (n_i, n_features)
        The rows of each participant: as `mooring.tables.partition` returns them, or as one matrix per participant. A
        quarter of the rows of each matrix is kept for testing.
    labels : sequence of arrays of shape (n_i,), optional
        Labels of the rows, if `datasets` are matrices: integers for classes, floats for numbers.
    points : sequence of OperatingPoint, or PointGrid, optional
        The points to audit: of rotation, of secure sums, or of another mechanism. By default, every method of rotation with
        three scales of each of its noises.
    chosen : OperatingPoint, optional
        The point that a study uses or will use; the headline of the result is about it.
    settings : AuditSettings, optional
        Everything else, such as attacks, colluders, targets, learner, seed and the folder for finished points.
    progress : callable, optional
        Called with the number of finished steps, the total number of steps, and what comes next. The first step trains the
        models without joining, and each further step audits one point.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> classes = [rng.integers(0, 2, 60) for _ in range(3)]
    >>> rows = [rng.standard_normal((60, 3)) + 4 * part[:, None] for part in classes]
    >>> grid = PointGrid(methods=["aa-i-gdp-anchor-noise"], anchor_noise_scales=[0.5])
    >>> point = run_audit(rows, classes, points=grid).points[0]
    >>> attack, figure = point.worst()
    >>> figure.value < point.outcomes[3].figures["centred_error"].value  # Procrustes is the paper's strongest
    True
    """
    auditor = Auditor.of(datasets, labels, settings or AuditSettings())
    points = PointGrid() if points is None else points
    if isinstance(points, PointGrid):
        points = points.points(auditor.deployment.default_n_components, auditor.deployment.rms)
    if not points:
        raise InputError("points", expected="at least one", got="none", cure="Name a method and its noise.")
    if chosen is not None and chosen not in points:
        raise InputError(
            "chosen", expected="one of the points", got=chosen.title_on(auditor.deployment), cure="Add it to points."
        )
    tell = progress or (lambda done, total, words: None)
    total = len(points) + 1
    tell(0, total, "training alone and pooled")
    _ = auditor.alone
    results = []
    for k, point in enumerate(points):
        tell(k + 1, total, point.title_on(auditor.deployment))
        results.append(auditor.audit(point))
        if point == chosen:
            tell(k + 1, total, "what the model discloses")
            results[-1] = auditor.audit_release(results[-1])
    tell(total, total, "done")
    return auditor.result(results, chosen=None if chosen is None else [*points].index(chosen))


@dataclass(frozen=True, eq=False)
class Auditor:
    """Audits one operating point after the other on the same data and with the same random draws."""

    deployment: Deployment
    """The participants' rows and the settings, which were checked against the data and name the targets."""

    @classmethod
    def of(
        cls, datasets: Partition | Sequence[Array], labels: Sequence[Array] | None, settings: AuditSettings
    ) -> Auditor:
        """Check the settings, choose targets, and split matrices into training and test rows if necessary."""
        if isinstance(datasets, Partition):
            if labels is not None:
                raise InputError(
                    "labels",
                    expected="absent if `datasets` is a Partition",
                    got=f"{len(labels)} arrays",
                    cure="A Partition has its own labels.",
                )
            partition = datasets
        else:
            partition = Partition.from_parts(datasets, labels, rng=np.random.default_rng([settings.seed, 9]))
        evaluation = settings.evaluation
        if evaluation.embedding is not None:
            evaluation = replace(evaluation, embedding=CachedEmbedding(evaluation.embedding))
        return cls(Deployment(partition, replace(settings, evaluation=evaluation).for_data(partition)))

    @property
    def partition(self) -> Partition:
        """The participants' rows."""
        return self.deployment.partition

    @property
    def settings(self) -> AuditSettings:
        """The settings of the audit."""
        return self.deployment.settings

    @cached_property
    def alone(self) -> Alone:
        """The scores of models trained alone and on pooled raw rows."""
        return measure_alone(self.deployment, learner=self.settings.learner)

    def audit(self, point: OperatingPoint) -> PointResult:
        """Return the result at one point: simulate, attack, train and score, or load an earlier result."""
        settings, deployment = self.settings, self.deployment
        point = point.settled_for(deployment)
        store = None
        if settings.folder is not None and all(attack.is_own for attack in settings.attack_list):
            store = PointStore(Path(settings.folder), self._key(), keep_examples=settings.evaluation.n_examples > 0)
            if (stored := store.load(point)) is not None:
                return stored
        simulation = point.simulate(deployment)
        leakage = measure_leakage(simulation, self.partition, settings)
        utility = measure_utility(
            simulation,
            deployment,
            learner=settings.learner,
            alone=self.alone,
            groups=settings.evaluation.groups,
        )
        result = PointResult(
            point,
            getattr(simulation, "data_noise_scale", 0.0),
            usable=point.is_usable_with(simulation),
            alignment=getattr(simulation, "termination", None),
            **vars(leakage),
            **vars(utility),
        )
        if store is not None:
            store.save(result)
        return result

    def audit_release(self, result: PointResult) -> PointResult:
        """Return the result with the risk of the joint model, where this is measured."""
        simulation = result.point.simulate(self.deployment)
        return replace(result, release=measure_release(simulation, self.deployment, learner=result.learner))

    def result(self, results: Sequence[PointResult], *, chosen: int | None = None, **more: Any) -> AuditResult:
        """Return the result of the audit with description and warnings; `more` is added to the description."""
        widths = (getattr(result.point, "n_components", 0) for result in results)  # points that share sums have none
        width = next(filter(None, widths), self.deployment.default_n_components)
        names = self.settings.evaluation.feature_names
        warnings = (*find_hazards(self.partition, width, names), *warn_of_dissimilar_colluder(results))
        if any(not result.point.shares_rows for result in results):
            more |= {"n_sum_features": self.deployment.features.n_features}
        description = replace(self.describe(), **more)
        return AuditResult(description, self.alone.references, tuple(results), warnings, chosen)

    def describe(self) -> AuditDescription:
        """Return the description of the data, the settings and the attacks."""
        partition, settings = self.partition, self.settings
        rows = [int(part.shape[0]) for part in partition.train]
        return AuditDescription(
            mooring=__version__,
            n_participants=partition.n_participants,
            n_rows=sum(rows),
            rows_each=(min(rows), max(rows)),
            n_features=partition.n_features,
            n_test_rows=int(sum(part.shape[0] for part in partition.test)),
            labels=partition.label_kind,
            projection=self.deployment.projection_name,
            colluders=tuple(partition.names[c] for c in settings.colluders),
            targets=tuple(partition.names[t] for t in settings.targets or ()),
            attacks=tuple(attack.name for attack in settings.attack_list),
            n_known_rows=settings.n_known_rows,
            n_repeated_uploads=settings.n_repeated_uploads,
            attribute=None if settings.evaluation.attribute is None else settings.evaluation.attribute_name,
            learner=settings.learner_name,
            seed=settings.seed,
            noise_unit=settings.noise_unit,
            device=settings.device or "cpu",
            machine=f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}",
        )

    def _key(self) -> str:
        """Return a digest of everything that the result of a point depends on, except the point."""
        partition, settings, spec = self.partition, self.settings, self.settings.evaluation
        plain = {
            "code": code_digest(),
            "attacks": [attack.name for attack in settings.attack_list],
            "sums": [settings.n_canary_runs, repr(settings.feature_map)],
            "whom": [settings.colluders, settings.targets, settings.n_known_rows, settings.n_repeated_uploads],
            "effort": [repr(settings.effort), spec.n_resamples],
            "learner": repr(settings.learner),
            "projection": self.deployment.projection_name,
            "seed": settings.seed,
            "evaluation": [spec.image_shape, spec.n_candidates, spec.n_queries, spec.n_examples, spec.pixel_range],
            "embedding": repr(spec.embedding),
            "columns": [spec.columns, spec.feature_names, spec.feature_scales, spec.attribute_kind],
        }
        parts = [*partition.train, *partition.test, partition.public, spec.groups, spec.attribute]
        parts += [settings.projection.matrix] if isinstance(settings.projection, Projection) else []
        parts += [partition.public_labels, *(spec.others or ())]
        return digest([*parts, *(partition.train_labels or ()), *(partition.test_labels or ())], plain)
