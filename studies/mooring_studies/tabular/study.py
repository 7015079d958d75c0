"""Studies of tables, four hospitals and a census dealt to many: where joining beats training alone, and at what leakage.

Every deployment has its own split, anchor, secret maps and noise. In it are measured the controls, a grid of anchor noise,
a grid of private-data noise, and a grid of both; beside them every participant alone, and one model on everybody's rows as
they are. A row of the result is one draw of noise at one point of a grid.

Legend: v the scale of anchor noise, σ that of private-data noise, in the options as a multiple of the root mean square of
the projected rows, in the results absolute.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from mooring.errors import InputError
from mooring.learners import LEARNERS
from mooring.mechanisms.projection import Projection, no_projection, public_svd_projection
from mooring.randomness import Streams
from mooring.tables import Partition, partition
from mooring_studies.data.tables import TableRows, load_tables
from mooring_studies.settings.spec import Spec
from mooring_studies.storage.machine_facts import first_facts
from mooring_studies.storage.progress import Progress
from mooring_studies.storage.store import FACTS, ResultStore
from mooring_studies.tabular.deployment import Row, Scene, first_columns, leakage, make_scene
from mooring_studies.tabular.jobs import append_missing, checked, renamed
from mooring_studies.tabular.references import reference_jobs
from mooring_studies.tabular.scaling import on_one_scale
from mooring_studies.tabular.scores import utility
from mooring_studies.tabular.skipped_attacks import facts_of, notes_of


@dataclass(frozen=True)
class Point:
    """One point of a grid and one draw of noise there."""

    method: str
    draw: int
    anchor_noise_scale: float = 0.0
    data_noise_level: float = 0.0


@dataclass(frozen=True)
class TableOptions:
    """The [options] of a study of tables.

    Attributes
    ----------
    source : str
        "hospitals", with one participant a hospital, or "census", dealt to `n_participants`.
    rows_each : tuple of int
        Most training rows a participant; 0 for all there are. One part of the study each.
    n_components : int
        h; 0 shares all columns as they are. Otherwise they are projected by an SVD of public rows.
    learners : tuple of str
        The first one's scores have the usual columns; those of another have its name after a colon.
    anchor_noise, data_noise, both_anchor, both_data : tuple of float
        The grids; private-data noise as a multiple of the projected rows' root mean square.
    draws : int
        Draws of noise at every point of a grid.
    alone : int
        Most participants whose own models are trained.
    """

    source: str
    n_participants: int
    rows_each: tuple[int, ...]
    test_share: float
    public_share: float
    n_components: int
    learners: tuple[str, ...]
    anchor_noise: tuple[float, ...]
    data_noise: tuple[float, ...]
    both_anchor: tuple[float, ...]
    both_data: tuple[float, ...]
    draws: int
    attacks: tuple[str, ...]
    n_queries: int
    alone: int

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> TableOptions:
        """Check the options of a spec; all must be there and no other."""
        return cls(**checked(options, cls.__annotations__))

    def points(self) -> Iterator[Point]:
        """Every point with every draw; the draws of a method are numbered through its grid."""
        yield from (Point(method, 0) for method in ("c-gdp", "aa-i-gdp", "i-gdp"))
        for method, vs, levels in (
            ("aa-i-gdp-anchor-noise", self.anchor_noise, (0.0,)),
            ("aa-i-gdp-data-noise", (0.0,), self.data_noise),
            ("aa-i-gdp-both-noise", self.both_anchor, self.both_data),
        ):
            grid = product(vs, levels, range(self.draws))
            yield from (Point(method, k, v, level) for k, (v, level, _) in enumerate(grid))


def run_tables(spec: Spec, *, data_dir: Path | None, store: ResultStore, progress: Progress) -> None:
    """Run a study of tables, leaving out what the store has already.

    Parameters
    ----------
    spec : Spec
        Its options are those of `TableOptions`.
    data_dir : Path, optional
        Where the files are: see `mooring_studies.data.tables`.
    store, progress
        Where rows and facts go, and who is told.
    """
    options = TableOptions.of(spec.options)
    began = time.perf_counter()
    tables = load_tables(options.source, data_dir)
    for name, checksum in tables.checksums.items():
        store.bind(name, checksum)
    for note in tables.unlike:
        progress.note(note)
    points = list(options.points())
    parts = list(product(range(spec.deployments), options.rows_each))
    progress.stage("points", len(parts) * (len(points) + 1))
    facts: dict[str, Any] = first_facts(spec) | {"parts": []}
    for deployment, rows_each in parts:
        streams = Streams(int(Streams.for_experiment(spec.seed).named(f"deployment/{deployment}").integers(2**62)))
        dealt, projection = partition_tables(tables, options, rows_each, streams)
        scene = scene_of_tables(dealt, projection, options, streams)
        identity = {
            "deployment": deployment,
            "n_participants": dealt.n_participants,
            "rows_each": max(part.shape[0] for part in dealt.train),
        }
        facts["parts"].append(identity | _facts_of(scene, dealt))
        seed = spec.seed + 1000 * deployment
        append_missing(
            reference_jobs(dealt, learners=options.learners, most_alone=options.alone, seed=seed),
            identity,
            store=store,
            progress=progress,
            as_one=True,
        )
        append_missing(
            [
                ({"method": point.method, "draw": point.draw}, _Measuring(scene, options, point, seed))
                for point in points
            ],
            identity,
            store=store,
            progress=progress,
        )
    seconds = dict((store.kept(FACTS) or {}).get("seconds", {}))
    seconds["points"] = seconds.get("points", 0.0) + time.perf_counter() - began
    rows = store.rows()
    store.keep(
        FACTS,
        facts
        | {
            "data": dict(tables.checksums),
            "n_train": sum(part.shape[0] for part in dealt.train),
            "n_test": sum(part.shape[0] for part in dealt.test),
            "columns": list(tables.records.feature_names),
            "participants": list(dealt.names) if dealt.n_participants <= 10 else dealt.n_participants,
            "label": list(tables.records.label_names),
            **facts_of(rows),
            "seconds": seconds,
            "notes": [
                *tables.notes,
                *tables.records.notes,
                f"learner: {LEARNERS[options.learners[0]]}",
                "local-only and pooled-raw learn from rows as they are, not projected",
                "local-own: each participant's own model on its own test rows, all scored together",
                "other scores are over everybody's test rows; own:<k> are those of participant k's own, as deployed",
                "auc columns: areas under the ROC curve, as deployed; auc_own_clean is the mean of participants' own",
                "alignment by mooring's own solver, not the paper's: iterations are not the power method's",
                "match and error are in the projected space; look-alikes are rows of the same class",
                *notes_of(rows),
            ],
        },
    )


def partition_tables(
    tables: TableRows, options: TableOptions, rows_each: int, streams: Streams
) -> tuple[Partition, Projection]:
    """Deal the rows, hospital by hospital where there are such, standardise them, and make the public projection."""
    dealt_as_written = partition(
        tables.records,
        n_participants=options.n_participants,
        rows_each=rows_each or None,
        test_share=options.test_share,
        public_share=options.public_share,
        by_group=tables.records.groups is not None,
        rng=streams.named("deal"),
    )
    dealt = on_one_scale(dealt_as_written, tables)
    if options.n_components == 0:
        return dealt, no_projection(dealt.n_features)
    if dealt.public is None:
        raise InputError(
            "public_share of [options]",
            expected="above 0 where n_components asks for a projection",
            got="0",
            cure="Set some rows aside as public, or n_components = 0.",
        )
    return dealt, public_svd_projection(dealt.public, options.n_components, rng=streams.named("projection"))


def scene_of_tables(dealt: Partition, projection: Projection, options: TableOptions, streams: Streams) -> Scene:
    """The scene in which all points of one deployment are measured."""
    assert dealt.train_labels is not None
    assert dealt.test_labels is not None
    return make_scene(
        [projection.encode(part) for part in dealt.train],
        dealt.train_labels,
        [projection.encode(part) for part in dealt.test],
        dealt.test_labels,
        projected_by=projection.kind,
        n_anchor_rows=4 * projection.n_components,
        n_queries=options.n_queries,
        streams=streams,
    )


@dataclass(frozen=True, eq=False)
class _Measuring:
    """The measuring of one point, when it is called."""

    scene: Scene
    options: TableOptions
    point: Point
    seed: int

    def __call__(self) -> Row:
        point, seed = self.point, self.seed + self.point.draw
        simulation = self.scene.play(
            point.method,
            draw=point.draw,
            anchor_noise_scale=point.anchor_noise_scale,
            data_noise_scale=point.data_noise_level * self.scene.rms,
        )
        columns = first_columns(simulation) | leakage(self.scene, simulation, attacks=self.options.attacks, seed=seed)
        first, *others = self.options.learners
        columns |= utility(self.scene, simulation, learner=first, seed=seed)
        for learner in others:
            columns |= renamed(utility(self.scene, simulation, learner=learner, seed=seed), learner)
        return columns


def _facts_of(scene: Scene, dealt: Partition) -> Row:
    return {
        "rms": scene.rms,
        "n_components": int(scene.anchor.shape[1]),
        "n_anchor_rows": int(scene.anchor.shape[0]),
        "projection": scene.projected_by,
        "rows": [int(part.shape[0]) for part in dealt.train][:10],
        "n_queries": len(scene.match.galleries.queries),
        "match_guessing": scene.match.control,
        "match_ceiling": scene.match.floor,
    }
