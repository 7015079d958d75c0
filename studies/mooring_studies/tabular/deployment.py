"""A scene: rows dealt to participants and projected, one anchor, one set of secrets; and what a point is worth there.

Legend: v the scale of anchor noise, σ that of private-data noise, X the target's projected rows, X̂ what an attack rebuilt.

Within a scene only the noise is drawn anew, from draw to draw; split, projection, secret maps and anchor stay. So the
spread between scenes can be told from the spread between draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.attacks import REGISTRY, denoised
from mooring.audit.linkage import LinkageTest, linkage_test
from mooring.audit.simulation import Simulation, SimulationSettings, simulate
from mooring.errors import InputError
from mooring.geometry import to_numpy
from mooring.mechanisms.anchors import make_anchor
from mooring.mechanisms.methods import METHODS
from mooring.mechanisms.projection import Projection
from mooring.metrics import Galleries, build_galleries
from mooring.randomness import Streams
from mooring.typing import Matrix
from mooring_studies.roles import COLLUDER, TARGET
from mooring_studies.tabular.skipped_attacks import GUESSING, NotRun

Labels = npt.NDArray[Any]
Row = dict[str, Any]

N_CANDIDATES = 10
_NEEDS_NOISY_ANCHOR = ("pseudoinverse", "procrustes", "alignment-map", "moments", "lattice")


@dataclass(frozen=True)
class DrawStreams(Streams):
    """Streams of one scene in which only noise depends on the draw."""

    draw: int = 0

    def named(self, name: str) -> np.random.Generator:
        """Return the stream called `name`, at its beginning; that of this draw if it is noise."""
        return super().named(f"{name}/draw/{self.draw}" if name.endswith("noise") else name)


@dataclass(frozen=True, eq=False)
class Scene:
    """Projected rows with all that a point needs.

    Attributes
    ----------
    train, test : tuple of arrays of shape (n_i, h)
        Projected rows a participant.
    train_labels, test_labels : tuple of arrays of shape (n_i,)
    anchor : array of shape (r, h)
    projected_by : str
        The kind of projection, which an attack may ask for.
    entropy : int
        Where secrets and noise come from.
    match : LinkageTest
        Ten-way galleries of the target's rows; `match.control` is what guessing without the upload scores.
    guess : array of shape (n_1, h)
        The target's rows as the mean of the colluder's rows of the same class.
    """

    train: tuple[Matrix, ...] = field(repr=False)
    train_labels: tuple[Labels, ...] = field(repr=False)
    test: tuple[Matrix, ...] = field(repr=False)
    test_labels: tuple[Labels, ...] = field(repr=False)
    anchor: Matrix = field(repr=False)
    projected_by: str
    entropy: int = field(repr=False)
    match: LinkageTest = field(repr=False)
    guess: Matrix = field(repr=False)

    @property
    def n_participants(self) -> int:
        """How many participants there are, p."""
        return len(self.train)

    @property
    def rms(self) -> float:
        """The root mean square of all projected training rows' entries, not centred: the unit of σ in the tables."""
        return float(np.sqrt(np.mean(np.concatenate(self.train) ** 2)))

    @property
    def standard_deviation(self) -> float:
        """The same after centring each column: the unit of σ in the landscape."""
        return float(np.sqrt(np.mean(np.concatenate(self.train).var(axis=0))))

    def play(self, method: str, *, draw: int, anchor_noise_scale: float, data_noise_scale: float) -> Simulation:
        """Play the collaboration through with this draw's noise."""
        described = METHODS[method]
        h = int(self.anchor.shape[1])
        flat = Projection(np.eye(h), np.eye(h), self.projected_by)  # the rows are projected already
        return simulate(
            self.train,
            self.train_labels,
            method=described,
            data_noise_scale=data_noise_scale if described.data_noise else 0.0,
            anchor_noise_scale=anchor_noise_scale if described.anchor_noise else 0.0,
            rng=DrawStreams(self.entropy, draw),
            settings=SimulationSettings(projection=flat, anchor=self.anchor),
        )


def make_scene(
    train: Sequence[Matrix],
    train_labels: Sequence[Labels],
    test: Sequence[Matrix],
    test_labels: Sequence[Labels],
    *,
    projected_by: str,
    n_anchor_rows: int,
    n_queries: int,
    streams: Streams,
) -> Scene:
    """Set a scene up: draw the anchor, build the galleries, guess without the upload."""
    h = int(train[0].shape[1])
    own = train_labels[TARGET]
    fillers, filler_labels = np.concatenate(list(test)), np.concatenate(list(test_labels))
    galleries = _galleries(own, filler_labels, n_queries, seed=int(streams.named("galleries").integers(2**31)))
    guess = _guessed(train[COLLUDER], train_labels[COLLUDER], own)
    match = linkage_test(
        "match",
        galleries,
        np.concatenate([train[TARGET], fillers]),
        embedding=None,
        control_rows=guess,
        floor_rows=train[TARGET],
    )
    return Scene(
        tuple(train),
        tuple(train_labels),
        tuple(test),
        tuple(test_labels),
        make_anchor(n_anchor_rows, h, rng=streams.named("anchor")),
        projected_by,
        int.from_bytes(streams.named("secrets").bytes(32), "little"),
        match,
        guess,
    )


def leakage(scene: Scene, simulation: Simulation, *, attacks: Iterable[str], seed: int) -> Row:
    """Run every attack that applies, plain and denoised: columns `match:` and `error:`, the latter also for guessing.

    Attacks that gave nothing are named with the reason: see `mooring_studies.tabular.skipped_attacks`.
    """
    view = simulation.view(colluders=[COLLUDER], target=TARGET)
    exact = view.method.uses_anchor and view.anchor_noise_scale == 0
    columns: Row = {GUESSING: _error(scene, scene.guess)}
    not_run = NotRun()
    for name in attacks:
        if exact and name in _NEEDS_NOISY_ANCHOR:
            not_run.left_out(name, "A noiseless anchor gives the map exactly: it would say what known-anchor says.")
            continue
        with not_run.trying(name):
            found = REGISTRY[name](view, rng=np.random.default_rng([seed, 3]))
            columns |= _measured(scene, name, found.rows)
            with not_run.trying(f"{name}+denoised"):
                columns |= _measured(scene, f"{name}+denoised", denoised(found, view).rows)
    return columns | not_run.columns()


def first_columns(simulation: Simulation) -> Row:
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


def _measured(scene: Scene, name: str, rebuilt: Any) -> Row:
    rows = np.asarray(to_numpy(rebuilt))
    if not np.isfinite(rows).all():
        raise FloatingPointError("The rebuilt rows are not finite.")
    return {f"match:{name}": float(scene.match.linked(rows).accuracy), f"error:{name}": _error(scene, rows)}


def _error(scene: Scene, rows: Matrix) -> float:
    truth = scene.train[TARGET][scene.match.queried]
    return float(np.linalg.norm(rows[scene.match.queried] - truth) / np.linalg.norm(truth))


def _guessed(known: Matrix, known_labels: Labels, wanted: Labels) -> Matrix:
    mean = known.mean(axis=0)
    means = {k: known[known_labels == k].mean(axis=0) for k in np.unique(known_labels)}
    return np.stack([means.get(k, mean) for k in wanted])


def _galleries(own: Labels, others: Labels, n_queries: int, *, seed: int) -> Galleries:
    """A target's row and nine look-alikes of its class, among the target's rows and everybody's test rows."""
    built = build_galleries(np.concatenate([own, others]), n_candidates=N_CANDIDATES, seed=seed)
    asked = np.flatnonzero(built.queries < own.size)
    if asked.size == 0:
        raise InputError(
            "the target's rows",
            expected=f"some of a class that has {N_CANDIDATES} rows with the test rows",
            got="none",
            cure="Give more test rows.",
        )
    if asked.size > n_queries:
        asked = np.sort(np.random.default_rng([seed, 7]).choice(asked, n_queries, replace=False))
    return Galleries(built.queries[asked], built.candidates[asked], built.answers[asked], built.n_dropped, seed)
