"""Where joining pays: rows a participant against participants, and what each upload gives away.

For every pair of sizes (rows n_i, participants p) the same points are measured: no noise, four scales of anchor noise,
three of private-data noise; beside them, participants alone, and one model on everybody's rows without protection. All
learn in the same way from the same projected rows, so that a gain is one of joining and not of the projection. Test rows
are scored as deployed: mapped by their owner, without noise.

Legend: v the scale of anchor noise, σ that of private-data noise, in the options as a multiple of the projected rows'
standard deviation (columns centred), in the results absolute.

The rows are MNIST's. Where its files are absent, scikit-learn's small digits take their place, in a smaller grid.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mooring.learners import LEARNERS
from mooring.mechanisms.projection import public_svd_projection
from mooring.randomness import Streams
from mooring.tables import Records, partition
from mooring.typing import Matrix
from mooring_studies.data.digits import SHAPES, load_digits
from mooring_studies.data.downloads import data_folder
from mooring_studies.settings.spec import Spec
from mooring_studies.storage.machine_facts import first_facts
from mooring_studies.storage.progress import Progress
from mooring_studies.storage.store import FACTS, ResultStore
from mooring_studies.tabular.deployment import Row, Scene, first_columns, leakage, make_scene
from mooring_studies.tabular.jobs import Job, append_missing, checked
from mooring_studies.tabular.scores import alone, utility
from mooring_studies.tabular.skipped_attacks import facts_of, notes_of


@dataclass(frozen=True)
class LandscapeOptions:
    """The [options] of the landscape.

    Attributes
    ----------
    rows_each, n_participants : tuple of int
        The grid of sizes; pairs with more rows in all than `most_rows` are left out.
    repeated_up_to : int
        Pairs with more rows in all than this are measured in the first deployment only.
    learners : tuple of str
        One learner for all.
    alone : int
        Most participants whose own models are trained.
    """

    rows_each: tuple[int, ...]
    n_participants: tuple[int, ...]
    most_rows: int
    repeated_up_to: int
    n_components: int
    n_anchor_rows: int
    n_public: int
    n_test: int
    learners: tuple[str, ...]
    anchor_noise: tuple[float, ...]
    data_noise: tuple[float, ...]
    attacks: tuple[str, ...]
    n_queries: int
    alone: int

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> LandscapeOptions:
        """Check the options of a spec; all must be there and no other."""
        return cls(**checked(options, cls.__annotations__))

    def sizes(self, deployment: int, available: int) -> list[tuple[int, int]]:
        """Pairs of rows a participant and participants, the smallest in all first."""
        most = min(self.most_rows, available, self.repeated_up_to if deployment else available)
        pairs = [(n, p) for n in self.rows_each for p in self.n_participants if n * p <= most]
        return sorted(pairs, key=lambda pair: (pair[0] * pair[1], pair))

    def points(self) -> Iterator[tuple[str, int, float, float]]:
        """Method, draw, v, and σ in standard deviations."""
        yield "aa-i-gdp", 0, 0.0, 0.0
        yield from (("aa-i-gdp-anchor-noise", k, v, 0.0) for k, v in enumerate(self.anchor_noise))
        yield from (("aa-i-gdp-data-noise", k, 0.0, level) for k, level in enumerate(self.data_noise))


@dataclass(frozen=True, eq=False)
class Pool:
    """Projected rows to deal from, and rows to test on.

    Attributes
    ----------
    train, test : Records
    name : str
        Whose rows they are.
    checksums : mapping of str to str
    """

    train: Records = field(repr=False)
    test: Records = field(repr=False)
    name: str
    checksums: Mapping[str, str]


def run_landscape(spec: Spec, *, data_dir: Path | None, store: ResultStore, progress: Progress) -> None:
    """Measure every pair of sizes, leaving out what the store has already.

    Parameters
    ----------
    spec : Spec
        Its options are those of `LandscapeOptions`.
    data_dir : Path, optional
        Where MNIST's files are, or "mnist" with them in it.
    store, progress
        Where rows and facts go, and who is told.
    """
    options = LandscapeOptions.of(spec.options)
    began = time.perf_counter()
    rows, labels, test_rows, test_labels, name, checksums = _raw(data_folder(data_dir))
    if name != "MNIST":
        progress.note("MNIST's files are not there: the landscape is that of scikit-learn's digits, in a smaller grid.")
    store.bind("rows from", name)  # one folder, one data set: with and without MNIST the settings are the same
    for file, checksum in checksums.items():
        store.bind(file, checksum)
    pools = []
    for deployment in range(spec.deployments):
        streams = Streams(int(Streams.for_experiment(spec.seed).named(f"deployment/{deployment}").integers(2**62)))
        pools.append((deployment, streams))
    n_pool = _pool_sizes(options, len(labels), len(test_labels))
    sizes = {deployment: options.sizes(deployment, n_pool[0]) for deployment, _ in pools}
    points = list(options.points())
    progress.stage("sizes", sum(len(part) for part in sizes.values()) * (len(points) + 1))
    cells = []
    for deployment, streams in pools:
        pool = _pool(rows, labels, test_rows, test_labels, options, name, checksums, streams)
        for rows_each, p in sizes[deployment]:
            own = Streams(int(streams.named(f"size/{rows_each}/{p}").integers(2**62)))
            scene = _scene(pool, rows_each, p, options, own)
            identity = {"deployment": deployment, "n_participants": p, "rows_each": rows_each}
            append_missing(
                _reference_jobs(scene, options, spec.seed), identity, store=store, progress=progress, as_one=True
            )
            jobs: list[Job] = [
                ({"method": method, "draw": draw}, _Measuring(scene, options, method, draw, v, level, spec.seed))
                for method, draw, v, level in points
            ]
            append_missing(jobs, identity, store=store, progress=progress)
            cells.append(
                identity
                | {
                    "standard_deviation": scene.standard_deviation,
                    "n_queries": len(scene.match.galleries.queries),
                    "match_guessing": scene.match.control,
                }
            )
    seconds = dict((store.kept(FACTS) or {}).get("seconds", {}))
    seconds["sizes"] = seconds.get("sizes", 0.0) + time.perf_counter() - began
    store.keep(
        FACTS,
        first_facts(spec)
        | {
            "rows_from": name,
            "data": dict(checksums),
            "n_train": n_pool[0],
            "n_test": n_pool[1],
            "cells": cells,
            **facts_of(store.rows()),
            "seconds": seconds,
            "notes": [
                *(
                    []
                    if name == "MNIST"
                    else ["MNIST was not there: these are scikit-learn's digits, in a smaller grid"]
                ),
                "public rows, for the projection, are taken out of the training rows",
                "local-only and pooled-raw learn from projected rows, as the joint model does",
                f"learner: {LEARNERS[options.learners[0]]}",
                "private-data noise in the options is in standard deviations of the projected rows, columns centred",
                "match and error are in the projected space; look-alikes are rows of the same class",
                "alignment by mooring's own solver, not the paper's: iterations are not the power method's",
                *notes_of(store.rows()),
            ],
        },
    )


@dataclass(frozen=True, eq=False)
class _Measuring:
    """The measuring of one point, when it is called."""

    scene: Scene
    options: LandscapeOptions
    method: str
    draw: int
    v: float
    level: float
    seed: int

    def __call__(self) -> Row:
        sigma = self.level * self.scene.standard_deviation
        simulation = self.scene.play(self.method, draw=self.draw, anchor_noise_scale=self.v, data_noise_scale=sigma)
        columns = first_columns(simulation)
        columns |= leakage(self.scene, simulation, attacks=self.options.attacks, seed=self.seed)
        return columns | _without_own(utility(self.scene, simulation, learner=self.options.learners[0], seed=self.seed))


@dataclass(frozen=True, eq=False)
class _Alone:
    """Training one model on the rows of some participants, of one or of all, when it is called."""

    scene: Scene
    who: Sequence[int]
    learner: str
    seed: int

    def __call__(self) -> Row:
        scene = self.scene
        rows = np.concatenate([scene.train[i] for i in self.who])
        labels = np.concatenate([scene.train_labels[i] for i in self.who])
        found = alone(rows, labels, scene.test, scene.test_labels, learner=self.learner, seed=self.seed)
        return {"anchor_noise_scale": 0.0, "data_noise_scale": 0.0} | _without_own(found)


def _reference_jobs(scene: Scene, options: LandscapeOptions, seed: int) -> list[Job]:
    """Participants alone, and everybody's rows pooled without protection: the same learner, rows and seed."""
    p, learner = scene.n_participants, options.learners[0]
    chosen = np.unique(np.linspace(0, p - 1, min(options.alone, p)).round().astype(int)).tolist()
    alone_jobs: list[Job] = [({"method": "local-only", "draw": i}, _Alone(scene, [i], learner, seed)) for i in chosen]
    return [*alone_jobs, ({"method": "pooled-raw", "draw": 0}, _Alone(scene, range(p), learner, seed))]


def _without_own(columns: Row) -> Row:
    """Participants are dealt alike here: what each scores on its own few test rows says nothing more."""
    return {name: value for name, value in columns.items() if not name.startswith("own:")}


def _raw(folder: Path) -> tuple[Any, Any, Any, Any, str, Mapping[str, str]]:
    """Rows and labels to deal and to test on. MNIST's files absent is one thing, half of them there another."""
    places = [folder, folder / "mnist"]
    if any((place / (name + suffix)).exists() for place in places for name in SHAPES for suffix in ("", ".gz")):
        digits = load_digits(folder)
        images = (digits.train_images, digits.train_labels, digits.test_images, digits.test_labels)
        return images[0] / 255.0, images[1], images[2] / 255.0, images[3], "MNIST", digits.checksums
    from sklearn.datasets import load_digits as load_small_digits

    small, labels = load_small_digits(return_X_y=True)
    order = Streams.for_experiment(0).named("small digits").permutation(len(labels))
    rest, test = order[len(labels) // 4 :], order[: len(labels) // 4]
    return small[rest] / 16.0, labels[rest], small[test] / 16.0, labels[test], "scikit-learn's digits", {}


def _pool_sizes(options: LandscapeOptions, n_rows: int, n_test_rows: int) -> tuple[int, int]:
    return n_rows - min(options.n_public, n_rows // 5), min(options.n_test, n_test_rows)


def _pool(
    rows: Matrix,
    labels: Any,
    test_rows: Matrix,
    test_labels: Any,
    options: LandscapeOptions,
    name: str,
    checksums: Mapping[str, str],
    streams: Streams,
) -> Pool:
    """Take the public rows out, make the projection from them, and project the rest."""
    n_train, n_test = _pool_sizes(options, len(labels), len(test_labels))
    order = streams.named("public").permutation(len(labels))
    public, kept = order[n_train:], order[:n_train]
    projection = public_svd_projection(rows[public], options.n_components, rng=streams.named("projection"))
    tested = streams.named("test").permutation(len(test_labels))[:n_test]
    train = Records(rows=projection.encode(rows[kept]), labels=labels[kept])
    test = Records(rows=projection.encode(test_rows[tested]), labels=test_labels[tested])
    return Pool(train, test, name, checksums)


def _scene(pool: Pool, rows_each: int, p: int, options: LandscapeOptions, streams: Streams) -> Scene:
    dealt = partition(pool.train, n_participants=p, rows_each=rows_each, test_share=0.0, rng=streams.named("deal"))
    assert dealt.train_labels is not None
    assert pool.test.labels is not None
    return make_scene(
        dealt.train,
        dealt.train_labels,
        np.array_split(pool.test.rows, p),
        np.array_split(pool.test.labels, p),
        projected_by="public-svd",
        n_anchor_rows=options.n_anchor_rows,
        n_queries=options.n_queries,
        streams=streams,
    )
