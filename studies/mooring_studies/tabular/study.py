"""Studies of tables, four hospitals and a census split among many: where joining beats training alone, and at what leakage.

Every deployment has its own split, anchor, secret maps and noise. In it are measured the controls, a grid of anchor noise,
a grid of private-data noise, and a grid of both; beside them every participant alone, and one model on everybody's rows as
they are. A row of the result is one draw of noise at one point of a grid.

Legend: v the scale of anchor noise, σ that of private-data noise, in the options as a multiple of the root mean square of
the projected rows, in the results absolute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path

from mooring import InputError
from mooring.learners import LEARNERS
from mooring.mechanisms import Projection, no_projection, public_svd_projection
from mooring.mechanisms.sums import TableFeatures
from mooring.randomness import Streams
from mooring.tables import Column, Partition, partition
from mooring.typing import Matrix
from mooring_studies.comparison.results import Row
from mooring_studies.data.tables import TableRows, load_tables, standardise
from mooring_studies.settings.sections import convert
from mooring_studies.settings.spec import Spec
from mooring_studies.storage.machine_facts import first_facts
from mooring_studies.storage.progress import Progress
from mooring_studies.storage.store import ResultStore
from mooring_studies.tabular.deployment import Deployment, Point, make_deployment
from mooring_studies.tabular.jobs import Measurer, Options, deployment_streams, keep_facts
from mooring_studies.tabular.sum_line import NOTES, SumRows, declared_columns, make_table_features, sum_jobs, take_rows


@dataclass(frozen=True)
class TableOptions(Options):
    """The [options] of a study of tables; a participant's rows are all there are where `rows_each` is 0."""

    source: str
    """"hospitals", with one participant a hospital, or "census", split among `n_participants`."""
    n_participants: int
    test_share: float
    public_share: float
    both_anchor: tuple[float, ...]
    both_data: tuple[float, ...]
    """The grid of both noises; the unit of private-data noise is the projected rows' root mean square."""
    draws: int
    """Draws of noise at every point of a grid."""

    def points(self, rms: float) -> Iterator[Point]:
        """Every point with every draw, for rows of this root mean square; a method's draws are numbered through its grid."""
        yield from (Point(method) for method in ("c-gdp", "aa-i-gdp", "i-gdp"))
        for method, vs, levels in (
            ("aa-i-gdp-anchor-noise", self.anchor_noise, (0.0,)),
            ("aa-i-gdp-data-noise", (0.0,), self.data_noise),
            ("aa-i-gdp-both-noise", self.both_anchor, self.both_data),
        ):
            grid = product(vs, levels, range(self.draws))
            yield from (Point(method, k, v, level * rms) for k, (v, level, _) in enumerate(grid))


def run_tables(spec: Spec, *, data_dir: Path | None, store: ResultStore, progress: Progress) -> None:
    """Run a study of tables, leaving out what the store has already."""
    options = convert(spec.options, TableOptions)
    tables = load_tables(options.source, data_dir)
    for name, checksum in tables.checksums.items():
        store.bind(name, checksum)
    for note in tables.unlike:
        progress.note(note)
    parts = list(product(range(spec.deployments), options.rows_each))
    progress.stage("points", len(parts) * (len(list(options.points(1.0))) + spec.sums.n_rows + 1))
    facts: Row = first_facts(spec) | {"parts": []}
    measurer = Measurer(options, store, progress)
    encode_for_sums = cache(lambda: make_table_features(tables, declared_columns(options.source), spec.sums.n_hats))
    for deployment, rows_each in parts:
        streams, seed = deployment_streams(spec, deployment), spec.seed + 1000 * deployment
        partition, columns, projection = partition_tables(tables, options, rows_each, streams)
        made = make_deployment(
            partition,
            projection,
            n_anchor_rows=4 * projection.n_components,
            n_queries=options.n_queries,
            streams=streams,
            columns=columns,
        )
        identity = {
            "deployment": deployment,
            "n_participants": partition.n_participants,
            "rows_each": max(part.shape[0] for part in partition.train),
        }
        facts["parts"].append(identity | _facts_of(made, partition))
        points = [(point, seed + point.draw) for point in options.points(made.rms)]
        sums = sum_jobs(partial(sum_rows, partition, encode_for_sums), spec.sums, streams, seed=seed)
        measurer.measure(made, points, identity, references=partition, sums=sums, seed=seed)
    keep_facts(store, facts | _facts_of_tables(tables, partition, options))


def _facts_of_tables(tables: TableRows, partition: Partition, options: TableOptions) -> Row:
    return {
        "data": dict(tables.checksums),
        "n_train": sum(part.shape[0] for part in partition.train),
        "n_test": sum(part.shape[0] for part in partition.test),
        "columns": list(tables.records.feature_names),
        "participants": list(partition.names) if partition.n_participants <= 10 else partition.n_participants,
        "label": list(tables.records.label_names),
        "notes": [
            *tables.notes,
            *tables.records.notes,
            f"learner: {LEARNERS[options.learners[0]].description}",
            "local-only and pooled-raw learn from rows as they are, not projected",
            "local-own: each participant's own model on its own test rows, all scored together",
            "other scores are over everybody's test rows; own:<k> are those of participant k's own, as deployed",
            "auc columns: areas under the ROC curve, as deployed; auc_own_clean is the mean of participants' own",
            "alignment by mooring's own solver, not the paper's: iterations are not the power method's",
            "match and error are in the projected space; look-alikes are rows of the same class",
            "attackers know the columns, and have the public rows if there are any",
            *NOTES,
        ],
    }


def partition_tables(
    tables: TableRows, options: TableOptions, rows_each: int, streams: Streams
) -> tuple[Partition, tuple[Column, ...], Projection]:
    """Split the rows, by hospital where there are hospitals, standardise them, and make the public projection.

    The columns are those that the rows are encoded by.
    """
    split = partition(
        tables.records,
        n_participants=options.n_participants,
        rows_each=rows_each or None,
        test_share=options.test_share,
        public_share=options.public_share,
        by_group=tables.records.groups is not None,
        rng=streams.named("deal"),
    )
    parts, columns = standardise(split, tables)
    if options.n_components == 0:
        return parts, columns, no_projection(parts.n_features)
    if parts.public is None:
        raise InputError(
            "public_share of [options]",
            expected="above 0 where n_components asks for a projection",
            got="0",
            cure="Set some rows aside as public, or n_components = 0.",
        )
    return parts, columns, public_svd_projection(parts.public, options.n_components, rng=streams.named("projection"))


def sum_rows(parts: Partition, encode: Callable[[], tuple[TableFeatures, Matrix]]) -> SumRows:
    """The rows of a partition as secure sums take them: encoded by declared columns, not standardised or projected."""
    features, rows = encode()
    return SumRows(take_rows(parts, rows), features)


def _facts_of(deployment: Deployment, partition: Partition) -> Row:
    return {
        "rms": deployment.rms,
        "n_components": int(deployment.anchor.shape[1]),
        "n_anchor_rows": int(deployment.anchor.shape[0]),
        "projection": deployment.projection.kind,
        "rows": [int(part.shape[0]) for part in partition.train][:10],
        "n_queries": len(deployment.match.galleries.queries),
        "match_guessing": deployment.match.control,
        "match_ceiling": deployment.match.floor,
    }
