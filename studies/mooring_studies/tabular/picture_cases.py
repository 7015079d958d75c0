"""Pictures in the study of secure sums: the total that a study would have by its public rule, and one total of all classes.

Legend: ε, δ the guarantee, K classes. A row of the result with the method "picture-sums" is one ε in one deployment of one
case, with as many features, by class or not, as follow from the number of rows, ε, δ and K (`count_components`); a row with
the method "picture-sums-pooled" is the same with all features and one total, and so a linear model. Its draw is the place of
ε in the case. Accuracy is that on the test rows of the data set, which nobody's rows are among.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mooring import StorageError
from mooring.mechanisms.sums import CONSTANT_SHARE, PictureFeatures, RowFeatures, count_components, fit_to_public
from mooring.randomness import Streams
from mooring.serialization import Record
from mooring.tables import Partition
from mooring.typing import Indices, Matrix
from mooring_studies.comparison.results import Row
from mooring_studies.data.digits import SIDE, load_digits
from mooring_studies.data.downloads import find
from mooring_studies.data.faces import IMAGE_SHAPE, PUBLIC, load_faces, partition_faces
from mooring_studies.settings.sections import AtLeastOne, AtLeastTwo, AtLeastZero, SumLine
from mooring_studies.settings.spec import Spec
from mooring_studies.storage.progress import Progress
from mooring_studies.storage.store import ResultStore
from mooring_studies.tabular.jobs import Job, append_missing, deployment_streams
from mooring_studies.tabular.sum_line import SumRows, attack_sums, train_from_sums

BY_RULE, POOLED = "picture-sums", "picture-sums-pooled"
NOTES = (
    f"{BY_RULE}: whether pictures are summed by class, and of how many features, follows from the number of rows, which is "
    "taken to be public, from epsilon and from the number of classes",
    f"{POOLED}: the same rows with one total of all classes, 200 features and linear discriminant analysis",
)
_IDENTITIES_EACH, _AT_ONCE = 98, 2048


@dataclass(frozen=True)
class PictureCase(Record):
    """A data set of pictures split among participants; with `rows_each` of 0, all rows are."""

    name: str
    source: Literal["mnist", "celeba"]
    n_participants: AtLeastTwo
    rows_each: AtLeastZero
    epsilons: tuple[float, ...]
    deals: AtLeastOne = 3


@dataclass(frozen=True, eq=False)
class PictureRows:
    """The public features of a data set's pictures, without their constant, and how it is split."""

    features: Matrix = field(repr=False)
    labels: Indices = field(repr=False)
    split: Callable[[PictureCase, Streams], tuple[list[Indices], list[Indices]]]
    """Returns the places of every participant's training rows and of its test rows."""
    checksums: Mapping[str, str] = field(default_factory=dict)


def run_pictures(
    spec: Spec,
    cases: Sequence[PictureCase],
    line: SumLine,
    *,
    data_dir: Path | None,
    store: ResultStore,
    progress: Progress,
) -> tuple[str, ...]:
    """Measure every case whose files are there, leaving out what the store has; return notes on all."""
    if not cases:
        return ()
    progress.stage("deployments of pictures", sum(min(case.deals, spec.deployments) for case in cases))
    loaded: dict[str, PictureRows | str] = {}
    notes = list(NOTES)
    for case in cases:
        if case.source not in loaded:
            try:
                loaded[case.source] = load_mnist(data_dir) if case.source == "mnist" else load_celeba(data_dir)
            except StorageError as problem:
                loaded[case.source] = str(problem)
        data, n_deals = loaded[case.source], min(case.deals, spec.deployments)
        if isinstance(data, str):
            notes.append(f"{case.name} was left out: {data}")
            progress.note(notes[-1])
            progress.advance(n_deals)
            continue
        for name, checksum in data.checksums.items():
            store.bind(name, checksum)
        identity = {"case": case.name, "n_participants": case.n_participants, "rows_each": case.rows_each}
        for deployment in range(n_deals):
            streams = deployment_streams(spec, deployment)
            jobs = list_jobs(split_pictures(data, case, streams), case, line, streams)
            append_missing(store, jobs, identity | {"deployment": deployment})
            progress.advance()
    return tuple(notes)


def load_mnist(data_dir: Path | None) -> PictureRows:
    """Return the features of all 70,000 digits. Participants share those of the training file, at random."""
    digits = load_digits(find(data_dir, "mnist"))
    features = PictureFeatures(SIDE, SIDE)
    phi = np.concatenate(
        [
            _apply(features, images, lambda part: part / 127.5 - 1)
            for images in (digits.train_images, digits.test_images)
        ]
    )
    n = len(digits.train_images)

    def split(case: PictureCase, streams: Streams) -> tuple[list[Indices], list[Indices]]:
        rng, p = streams.named(f"deal/{case.name}/{case.rows_each}"), case.n_participants
        chosen = rng.permutation(n)[: p * case.rows_each if case.rows_each else n]
        return np.array_split(chosen, p), np.array_split(np.arange(n, len(phi)), p)

    return PictureRows(phi, np.concatenate([digits.train_labels, digits.test_labels]), split, digits.checksums)


def load_celeba(data_dir: Path | None) -> PictureRows:
    """Return the features of the participants' faces, fitted to the public ones; people are split, with all their images."""
    path = find(data_dir, "celeba/celeba64.parquet")
    faces = load_faces(path)

    def to_grey(places: Indices) -> Matrix:
        pixels = faces.rows(places).reshape(len(places), -1, IMAGE_SHAPE[2])
        return np.asarray(2 * pixels.mean(axis=2, dtype=np.float64) - 1)

    public, pool = faces.public, np.flatnonzero(faces.pool != PUBLIC)
    grey = np.concatenate([to_grey(public[start : start + _AT_ONCE]) for start in range(0, len(public), _AT_ONCE)])
    features = fit_to_public(PictureFeatures(*IMAGE_SHAPE[:2]), grey)
    phi = np.full((len(faces), features.n_components), np.nan)
    phi[pool] = _apply(features, pool, to_grey)

    def split(case: PictureCase, streams: Streams) -> tuple[list[Indices], list[Indices]]:
        parts = partition_faces(
            faces.identity,
            faces.pool,
            n_participants=case.n_participants,
            identities_each=_IDENTITIES_EACH,
            streams=streams,
        )
        train = [np.concatenate(both) for both in zip(parts.train, parts.validation, strict=True)]
        return train, list(parts.test)

    return PictureRows(phi, faces.smiling.astype(np.int64), split, {path.name: faces.checksum})


def split_pictures(data: PictureRows, case: PictureCase, streams: Streams) -> Partition:
    """Return everybody's features, and test rows that nobody trains on."""
    train, test = data.split(case, streams)
    return Partition.from_parts(
        [data.features[places] for places in train],
        [data.labels[places] for places in train],
        test=[data.features[places] for places in test],
        test_labels=[data.labels[places] for places in test],
        rng=np.random.default_rng(0),  # chooses nothing: test rows are given
    )


def list_jobs(rows: Partition, case: PictureCase, line: SumLine, streams: Streams) -> list[Job]:
    """Return what is measured in one deployment: at each ε the total of the public rule, and one total of all classes."""
    return [
        ({"method": method, "draw": k}, partial(measure_pictures, rows, epsilon, method, line, streams))
        for method in (BY_RULE, POOLED)
        for k, epsilon in enumerate(case.epsilons)
    ]


def measure_pictures(rows: Partition, epsilon: float, method: str, line: SumLine, streams: Streams) -> Row:
    """Simulate a study of sums, score its model on test rows and, with the total of the rule, attack membership."""
    assert rows.train_labels is not None
    n, n_components = sum(len(part) for part in rows.train), 0
    if method == BY_RULE:
        n_classes = len(np.unique(np.concatenate(rows.train_labels)))
        n_components = count_components(n, n_classes, epsilon, line.delta)
    kept = min(n_components or rows.n_features, rows.n_features)
    train, test = (tuple(part[:, :kept] for part in parts) for parts in (rows.train, rows.test))
    narrowed = SumRows(replace(rows, train=train, test=test), RowFeatures(kept, CONSTANT_SHARE, is_dense=True))
    by_class = n_components > 0
    simulation, columns = train_from_sums(narrowed, epsilon, line=line, streams=streams, by_class=by_class)
    attacked = attack_sums(simulation, narrowed.rows, epsilon, line, seed=0) if method == BY_RULE else {}
    return columns | attacked | {"is_by_class": float(by_class), "n_numbers": simulation.layout.size}


def _apply(features: PictureFeatures, items: Any, to_pictures: Callable[[Any], Matrix]) -> Matrix:
    """Return the features of many pictures without their constant, a piece at a time."""
    pieces = (items[start : start + _AT_ONCE] for start in range(0, len(items), _AT_ONCE))
    return np.concatenate([features.apply(to_pictures(piece))[:, :-1] for piece in pieces])
