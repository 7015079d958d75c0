"""Where joining pays: rows a participant against participants, and what each upload discloses.

For every pair of sizes (rows n_i, participants p) the same points are measured: no noise, four scales of anchor noise,
three of private-data noise; beside them, participants alone, and one model on everybody's rows without protection. All
learn in the same way from the same projected rows, so that a gain is one of joining and not of the projection. Test rows
are scored as deployed: mapped by their owner, without noise.

Legend: v the scale of anchor noise, σ that of private-data noise, in the options as a multiple of the projected rows'
standard deviation (columns centred), in the results absolute.

The rows are MNIST's. Where its files are absent, scikit-learn's small digits take their place, in a smaller grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from mooring.learners import LEARNERS
from mooring.mechanisms import Projection, public_svd_projection
from mooring.mechanisms.sums import CONSTANT_SHARE, PictureFeatures, RowFeatures
from mooring.randomness import Streams
from mooring.tables import Partition, Records, partition
from mooring.typing import Indices, Matrix
from mooring_studies.comparison.results import Row
from mooring_studies.data.digits import SHAPES, load_digits
from mooring_studies.data.downloads import data_folder, find_packed
from mooring_studies.settings.sections import convert
from mooring_studies.settings.spec import Spec
from mooring_studies.storage.machine_facts import first_facts
from mooring_studies.storage.progress import Progress
from mooring_studies.storage.store import ResultStore
from mooring_studies.tabular.deployment import Deployment, Point, make_deployment
from mooring_studies.tabular.jobs import Measurer, Options, deployment_streams, keep_facts
from mooring_studies.tabular.sum_line import NOTES, SumRows, sum_jobs


@dataclass(frozen=True)
class LandscapeOptions(Options):
    """The [options] of the landscape."""

    n_participants: tuple[int, ...]
    """The grid of sizes; pairs with more rows in all than `most_rows` are left out."""
    most_rows: int
    repeated_up_to: int
    """Pairs with more rows in all than this are measured in the first deployment only."""
    n_anchor_rows: int
    n_public: int
    n_test: int

    def sizes(self, deployment: int, available: int) -> list[tuple[int, int]]:
        """Pairs of rows a participant and participants, the smallest in all first."""
        most = min(self.most_rows, available, self.repeated_up_to if deployment else available)
        pairs = [(n, p) for n in self.rows_each for p in self.n_participants if n * p <= most]
        return sorted(pairs, key=lambda pair: (pair[0] * pair[1], pair))

    def points(self, standard_deviation: float) -> list[Point]:
        """No noise, every anchor noise, and every private-data noise for rows of this standard deviation."""
        unit = standard_deviation
        return [
            Point("aa-i-gdp"),
            *(Point("aa-i-gdp-anchor-noise", k, v) for k, v in enumerate(self.anchor_noise)),
            *(Point("aa-i-gdp-data-noise", k, 0.0, level * unit) for k, level in enumerate(self.data_noise)),
        ]


@dataclass(frozen=True, eq=False)
class Pool:
    """Projected rows to train on, to test on and public ones, and where the first two stand among the digits."""

    train: Records = field(repr=False)
    test: Records = field(repr=False)
    public: Records = field(repr=False)
    train_places: Indices = field(repr=False)
    test_places: Indices = field(repr=False)


@dataclass(frozen=True, eq=False)
class Digits:
    """Rows to train on and rows to test on, as they are."""

    train: Records = field(repr=False)
    test: Records = field(repr=False)
    name: str
    """Whose rows they are."""
    checksums: Mapping[str, str]

    @cached_property
    def features(self) -> tuple[Matrix, Matrix]:
        """Public features of all pictures, without their constant, as secure sums take them."""
        side = math.isqrt(self.train.n_features)
        features = PictureFeatures(side, side)
        return features.apply(2 * self.train.rows - 1)[:, :-1], features.apply(2 * self.test.rows - 1)[:, :-1]

    @property
    def are_mnist(self) -> bool:
        """Whether they are MNIST's, not those that take their place."""
        return self.name == "MNIST"


def run_landscape(spec: Spec, *, data_dir: Path | None, store: ResultStore, progress: Progress) -> None:
    """Measure every pair of sizes, leaving out what the store has already."""
    options = convert(spec.options, LandscapeOptions)
    digits = _load(data_folder(data_dir))
    if not digits.are_mnist:
        progress.note("MNIST's files are not there: the landscape is that of scikit-learn's digits, in a smaller grid.")
    store.bind("rows from", digits.name)  # one folder, one data set: with and without MNIST the settings are the same
    for file, checksum in digits.checksums.items():
        store.bind(file, checksum)
    n_train, n_test = _pool_sizes(options, digits)
    sizes = [options.sizes(deployment, n_train) for deployment in range(spec.deployments)]
    progress.stage("sizes", sum(len(part) for part in sizes) * (len(options.points(1.0)) + spec.sums.n_rows + 1))
    cells = []
    # All participants have rows of the same kind here, so scores on each one's own few rows are left out.
    measurer = Measurer(options, store, progress, own_scores=False)
    for deployment, pairs in enumerate(sizes):
        streams = deployment_streams(spec, deployment)
        pool = _pool(digits, options, streams)
        for rows_each, p in pairs:
            streams_of_size = Streams(int(streams.named(f"size/{rows_each}/{p}").integers(2**62)))
            made = _deployment(pool, rows_each, p, options, streams_of_size)
            identity = {"deployment": deployment, "n_participants": p, "rows_each": rows_each}
            points = [(point, spec.seed) for point in options.points(made.standard_deviation)]
            sums = sum_jobs(partial(_sum_rows, digits, pool, made.rows), spec.sums, streams_of_size, seed=spec.seed)
            measurer.measure(made, points, identity, references=made.rows, sums=sums, seed=spec.seed)
            cells.append(identity | _facts_of(made))
    facts = {"rows_from": digits.name, "data": dict(digits.checksums), "n_train": n_train, "n_test": n_test}
    notes = [
        *([] if digits.are_mnist else ["MNIST was not there: these are scikit-learn's digits, in a smaller grid"]),
        "public rows, for the projection, are taken out of the training rows; attackers have them",
        "local-only and pooled-raw learn from projected rows, as the joint model does",
        f"learner: {LEARNERS[options.learners[0]].description}",
        "private-data noise in the options is in standard deviations of the projected rows, columns centred",
        "match and error are in the projected space; look-alikes are rows of the same class",
        "alignment by mooring's own solver, not the paper's: iterations are not the power method's",
        "secure sums take pictures, by public features, not projected rows",
        *NOTES,
    ]
    keep_facts(store, first_facts(spec) | facts | {"cells": cells, "notes": notes})


def _facts_of(deployment: Deployment) -> Row:
    return {
        "standard_deviation": deployment.standard_deviation,
        "n_queries": len(deployment.match.galleries.queries),
        "match_guessing": deployment.match.control,
    }


def _load(folder: Path) -> Digits:
    """MNIST's digits; scikit-learn's where none of its files is there. Half of them there is an error."""
    if any(find_packed(folder, "mnist", name) for name in SHAPES):
        digits = load_digits(folder)
        train = Records(rows=digits.train_images / 255.0, labels=digits.train_labels)
        test = Records(rows=digits.test_images / 255.0, labels=digits.test_labels)
        return Digits(train, test, "MNIST", digits.checksums)
    from sklearn.datasets import load_digits as load_small_digits

    small, labels = load_small_digits(return_X_y=True)
    order = Streams.for_experiment(0).named("small digits").permutation(len(labels))
    rest, test_rows = order[len(labels) // 4 :], order[: len(labels) // 4]
    parts = [Records(rows=small[chosen] / 16.0, labels=labels[chosen]) for chosen in (rest, test_rows)]
    return Digits(parts[0], parts[1], "scikit-learn's digits", {})


def _pool_sizes(options: LandscapeOptions, digits: Digits) -> tuple[int, int]:
    n_rows = digits.train.n_rows
    return n_rows - min(options.n_public, n_rows // 5), min(options.n_test, digits.test.n_rows)


def _pool(digits: Digits, options: LandscapeOptions, streams: Streams) -> Pool:
    """Projected rows to train on and to test on; the projection is made from public rows, which are taken out."""
    train, test = digits.train, digits.test
    assert train.labels is not None
    assert test.labels is not None
    n_train, n_test = _pool_sizes(options, digits)
    order = streams.named("public").permutation(train.n_rows)
    public, kept = order[n_train:], order[:n_train]
    projection = _with_same_signs(
        public_svd_projection(train.rows[public], options.n_components, rng=streams.named("projection"))
    )
    tested = streams.named("test").permutation(test.n_rows)[:n_test]
    return Pool(
        Records(rows=projection.encode(train.rows[kept]), labels=train.labels[kept]),
        Records(rows=projection.encode(test.rows[tested]), labels=test.labels[tested]),
        Records(rows=projection.encode(train.rows[public]), labels=train.labels[public]),
        kept,
        tested,
    )


def _with_same_signs(projection: Projection) -> Projection:
    """Return the projection with the largest entry of every component positive: an SVD's signs differ between processors."""
    F = projection.matrix
    signs = np.sign(F[np.abs(F).argmax(axis=0), np.arange(F.shape[1])])
    return replace(projection, matrix=F * signs, decoder=projection.decoder * signs[:, None])


def _sum_rows(digits: Digits, pool: Pool, parts: Partition) -> SumRows:
    """The rows of a cell as secure sums take them."""
    train, test = digits.features
    cell = replace(
        parts,
        train=tuple(train[pool.train_places[indices]] for indices in parts.train_indices),
        test=tuple(np.array_split(test[pool.test_places], parts.n_participants)),
    )
    return SumRows(cell, RowFeatures(train.shape[1], CONSTANT_SHARE))


def _deployment(pool: Pool, rows_each: int, p: int, options: LandscapeOptions, streams: Streams) -> Deployment:
    train, test = pool.train, pool.test
    test_labels: list[Any] = np.array_split(np.asarray(test.labels), p)
    parts = partition(train, n_participants=p, rows_each=rows_each, test_share=0.0, rng=streams.named("deal"))
    parts = replace(parts, test=tuple(np.array_split(test.rows, p)), test_labels=tuple(test_labels))
    flat = np.eye(options.n_components)  # the rows are projected already
    return make_deployment(
        replace(parts, public=pool.public.rows, public_labels=pool.public.labels),
        Projection(flat, flat, "public-svd"),
        n_anchor_rows=options.n_anchor_rows,
        n_queries=options.n_queries,
        streams=streams,
    )
