"""The audit: methods × noise levels × attacks on given data, with utility beside leakage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mooring.attacks import REGISTRY
from mooring.audit.auditor import ProjectionKind, make_auditor
from mooring.audit.hazards import hazards, strangers
from mooring.audit.operating_points import OperatingPoint, grid
from mooring.audit.result import AuditResult
from mooring.audit.specification import Lens
from mooring.errors import InputError
from mooring.mechanisms.methods import METHODS
from mooring.mechanisms.projection import Projection
from mooring.tables import Partition
from mooring.typing import Array

Progress = Callable[[int, int, str], None]


def run_audit(
    datasets: Partition | Sequence[Array],
    labels: Sequence[Array] | None = None,
    *,
    points: Sequence[OperatingPoint] | None = None,
    methods: Sequence[str] = tuple(METHODS),
    n_components: int | None = None,
    n_anchor_rows: int | None = None,
    anchor_noise_scales: Sequence[float] = (0.05, 0.1, 0.2),
    data_noise_levels: Sequence[float] = (0.3, 0.5, 0.8),
    projection: ProjectionKind | Projection = "auto",
    attacks: Sequence[str] | None = None,
    colluders: Sequence[int] = (0,),
    targets: Sequence[int] | None = None,
    n_known_rows: int = 0,
    n_repeated_uploads: int = 0,
    learner: str = "auto",
    lens: Lens | None = None,
    seed: int = 0,
    device: str | None = None,
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Attack every operating point with every attack, and measure what the joint model is worth there.

    Parameters
    ----------
    datasets : Partition, or sequence of arrays of shape (n_i, n_features)
        Rows a participant: as `mooring.tables.partition` gives them, or one matrix each, of which a quarter is kept for
        testing.
    labels : sequence of arrays of shape (n_i,), optional
        With matrices: integers for classes, floats for numbers.
    points : sequence of OperatingPoint, optional
        What to audit; by default every method with every noise below.
    methods, n_components, n_anchor_rows, anchor_noise_scales, data_noise_levels
        The grid of points. Private-data noise is in units of the root mean square of the projected rows. By default as
        many components as there are features, up to 30, and four times as many anchor rows.
    projection : {"auto", "none", "gaussian", "public-svd"} or Projection
        "auto": none if there are as many components as features; else a public SVD where there are public rows; else
        Gaussian. A projection itself, such as a study's, is used as it is, and fixes the number of components.
    attacks : sequence of str, optional
        All in `mooring.attacks.REGISTRY` by default.
    colluders : sequence of int, default (0,)
    targets : sequence of int, optional
        By default the first others: one, or up to three where each has few rows.
    n_known_rows, n_repeated_uploads : int, default 0
        Extra knowledge to grant the attacker.
    learner : str, default "auto"
        A name in `mooring.learners.LEARNERS`.
    lens : Lens, optional
        Images, identities, attributes, auditors.
    seed : int, default 0
    device : str, optional
        Such as "cuda": uploads, alignment and attacks run there.
    folder : path, optional
        Where finished points are kept; an audit that was interrupted goes on from there.
    progress : callable, optional
        Called with points done, points in all, and what comes next.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> classes = [rng.integers(0, 2, 60) for _ in range(3)]
    >>> rows = [rng.standard_normal((60, 3)) + 4 * part[:, None] for part in classes]
    >>> result = run_audit(rows, classes, methods=["aa-i-gdp-anchor-noise"], anchor_noise_scales=[0.5])
    >>> attack, figure = result.points[0].worst()
    >>> figure.value < result.points[0].outcomes[3].figures["centred_error"].value  # Procrustes: the paper's strongest
    True
    """
    auditor = make_auditor(
        datasets,
        labels,
        colluders=colluders,
        targets=targets,
        n_known_rows=n_known_rows,
        n_repeated_uploads=n_repeated_uploads,
        learner=learner,
        lens=lens,
        projection=projection,
        seed=seed,
        device=device,
        folder=folder,
    )
    names = tuple(REGISTRY) if attacks is None else tuple(attacks)
    for name in names:
        if name not in REGISTRY:
            raise InputError(
                "attacks", expected=f"among {', '.join(REGISTRY)}", got=repr(name), cure="Correct the name."
            )
    if points is None:
        given = projection.n_components if isinstance(projection, Projection) else min(30, auditor.dealt.n_features)
        h = n_components or given
        points = grid(
            methods,
            n_components=h,
            n_anchor_rows=n_anchor_rows or 4 * h,
            anchor_noise_scales=anchor_noise_scales,
            data_noise_levels=data_noise_levels,
        )
    if not points:
        raise InputError("points", expected="at least one", got="none", cure="Name a method and its noise.")
    tell = progress or (lambda done, total, words: None)
    tell(0, len(points) + 1, "training alone and pooled")
    truth_lines = auditor.references()
    results = []
    for k, point in enumerate(points):
        tell(k + 1, len(points) + 1, point.title)
        results.append(auditor.audit(point, attacks=names))
    tell(len(points) + 1, len(points) + 1, "done")
    warnings = (*hazards(auditor.dealt, points[0].n_components), *strangers(results))
    return AuditResult(auditor.describe(names), truth_lines, tuple(results), warnings)
