"""One deployment of a table study: projected rows, one anchor, one set of secrets; and what leaks at a point there.

Legend: v the scale of anchor noise, σ that of private-data noise, X the target's projected rows, X̂ what an attack rebuilt.

Within a deployment only the noise is drawn anew, from draw to draw; split, projection, secret maps and anchor stay. So the
spread between deployments can be separated from the spread between draws.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from mooring import InputError
from mooring.attacks import PublicRows
from mooring.audit import (
    AttackRuns,
    EvaluationSpec,
    Guess,
    LinkageTest,
    RowSimulation,
    SimulationSettings,
    make_galleries,
    make_linkage_test,
    root_mean_square,
    simulate,
)
from mooring.geometry import to_numpy
from mooring.mechanisms import METHODS, Projection, make_anchor
from mooring.metrics import relative_error
from mooring.randomness import Streams
from mooring.tables import Column, Partition
from mooring.typing import Matrix
from mooring_studies.comparison.results import Row, name_attack
from mooring_studies.roles import COLLUDER, TARGET
from mooring_studies.tabular.skipped_attacks import GUESSING, LEFT_OUT, skipped_columns

_NEEDS_NOISY_ANCHOR = ("pseudoinverse", "procrustes", "alignment-map", "moments", "refine", "lattice")


@dataclass(frozen=True)
class DrawStreams(Streams):
    """Streams of one deployment in which only noise depends on the draw."""

    draw: int = 0

    def named(self, name: str) -> np.random.Generator:
        """Return the stream called `name`, at its beginning; that of this draw if it is noise."""
        return super().named(f"{name}/draw/{self.draw}" if name.endswith("noise") else name)


@dataclass(frozen=True)
class Point:
    """A method, its noise, and which draw of it."""

    method: str
    draw: int = 0
    anchor_noise_scale: float = 0.0
    data_noise_scale: float = 0.0


@dataclass(frozen=True, eq=False)
class Deployment:
    """Projected rows with all that a point needs."""

    records: Partition = field(repr=False)
    rows: Partition = field(repr=False)
    """Labelled training and test rows, before and after the public projection."""
    projection: Projection = field(repr=False)
    columns: tuple[Column, ...] = field(repr=False)
    """Those of a table, which attackers know, as they know the public rows of `records`."""
    anchor: Matrix = field(repr=False)
    entropy: int = field(repr=False)
    """Where secrets and noise come from."""
    match: LinkageTest = field(repr=False)
    """Ten-way galleries of the target's rows; `match.control` is what guessing without the upload scores."""
    guess: Matrix = field(repr=False)
    """The target's rows as the mean of the colluder's and the public rows of the same class."""

    @property
    def rms(self) -> float:
        """The root mean square of all projected training rows' entries, not centred: the unit of σ in the tables."""
        return root_mean_square([np.concatenate(self.rows.train)])  # in one sum: its rounding is part of the results

    @property
    def standard_deviation(self) -> float:
        """The same after centring each column: the unit of σ in the landscape."""
        return float(np.sqrt(np.mean(np.concatenate(self.rows.train).var(axis=0))))

    def simulate(self, point: Point) -> RowSimulation:
        """Run the collaboration with this draw's noise."""
        method, known = METHODS[point.method], None
        if self.records.public is not None and self.rows.public is not None:
            known = PublicRows(self.records.public, self.rows.public, self.records.public_labels)
        return simulate(
            self.records.train,
            self.records.train_labels,
            method=method,
            data_noise_scale=point.data_noise_scale if method.data_noise else 0.0,
            anchor_noise_scale=point.anchor_noise_scale if method.anchor_noise else 0.0,
            rng=DrawStreams(self.entropy, point.draw),
            settings=SimulationSettings(self.projection, anchor=self.anchor, public_rows=known, columns=self.columns),
        )

    def error(self, rebuilt: Matrix) -> float:
        """‖X̂ − X‖ / ‖X‖ over the rows that galleries ask about."""
        asked = self.match.queried
        return relative_error(self.rows.train[TARGET][asked], rebuilt[asked])


def make_deployment(
    records: Partition,
    projection: Projection,
    *,
    n_anchor_rows: int,
    n_queries: int,
    streams: Streams,
    columns: tuple[Column, ...] = (),
) -> Deployment:
    """Project the rows, draw the anchor, build the galleries, guess without the upload."""
    train, test = (tuple(projection.encode(part) for part in parts) for parts in (records.train, records.test))
    public = None if records.public is None else projection.encode(records.public)
    rows = replace(records, train=train, test=test, public=public)
    assert rows.train_labels is not None
    assert rows.test_labels is not None
    labels, seed = rows.train_labels[TARGET], int(streams.named("galleries").integers(2**31))
    spec = EvaluationSpec(n_queries=n_queries)
    galleries = make_galleries(spec, np.concatenate([labels, *rows.test_labels]), labels.size, seed)
    if galleries is None:
        raise InputError(
            "the target's rows",
            expected=f"some of a class that has {spec.n_candidates} rows with the test rows",
            got="none",
            cure="Give more test rows.",
        )
    known, codes = rows.train[COLLUDER], rows.train_labels[COLLUDER]
    if rows.public is not None and rows.public_labels is not None:
        known, codes = np.concatenate([known, rows.public]), np.concatenate([codes, rows.public_labels])
    guess = Guess.of(known, codes, labels).by_class
    candidates = np.concatenate([rows.train[TARGET], *rows.test])
    match = make_linkage_test("match", galleries, candidates, control_rows=guess, floor_rows=rows.train[TARGET])
    anchor = make_anchor(n_anchor_rows, rows.n_features, rng=streams.named("anchor"))
    entropy = int.from_bytes(streams.named("secrets").bytes(32), "little")
    return Deployment(records, rows, projection, columns, anchor, entropy, match, guess)


def leakage(deployment: Deployment, simulation: RowSimulation, *, attacks: Iterable[str], seed: int) -> Row:
    """Run every attack that applies, plain and through every denoiser of the audit: columns `match:` and `error:`.

    The latter also for guessing.

    Attacks that gave nothing are named with the reason: see `mooring_studies.tabular.skipped_attacks`.
    """
    view = simulation.view(colluders=[COLLUDER], target=TARGET)
    exact = view.method.uses_anchor and view.anchor_noise_scale == 0
    columns: Row = {GUESSING: deployment.error(deployment.guess)}
    reasons: dict[str, str] = {}
    runs = AttackRuns([view], seed)
    for name in attacks:
        if exact and name in _NEEDS_NOISY_ANCHOR:
            why = "A noiseless anchor gives the map exactly: it would say what known-anchor says."
            reasons[name] = f"{LEFT_OUT}: {why}"
            continue
        for (attempt,) in (part.attempts for part in runs.run(name)):
            column = name_attack(name, attempt.denoiser)
            if attempt.reconstruction is None:
                reasons[column] = f"{attempt.outcome}: {attempt.reason}"
                continue
            rebuilt = np.asarray(to_numpy(attempt.reconstruction.rows))
            columns[f"match:{column}"] = deployment.match.figure(rebuilt).value
            columns[f"error:{column}"] = deployment.error(rebuilt)
    return columns | skipped_columns(reasons)


def noise_columns(simulation: RowSimulation) -> Row:
    """The noise of a simulation, and how its alignment ended where anchors carried noise.

    The solver is mooring's own, not the paper's: its iterations are other ones.
    """
    columns: Row = {
        "anchor_noise_scale": simulation.anchor_noise_scale,
        "data_noise_scale": simulation.data_noise_scale,
    }
    alignment = simulation.alignment
    if alignment is None or simulation.anchor_noise_scale == 0:
        return columns
    return columns | {
        "iterations": int(alignment.iterations),
        "converged": bool(alignment.converged),
        "residual": float(alignment.residual),
    }
