"""Secure sums: one model from everybody's noisy sums, beside training alone, pooled raw rows and rotation.

Every case is a table or pictures split among participants, anew in every deployment. At each ε the study is simulated as it
would run: quantised features, sums and the noise that every participant adds; a model is trained from the total and scored
on test rows; and every attack on membership is run with what the analyst and one participant know together.

Legend: ε, δ the guarantee, c colluders that the noise allows for, D features. A row of the result with the method
"secure-sum" is one ε in one deployment of one case; its draw is the place of ε in the options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from mooring import StorageError
from mooring.mechanisms import no_projection
from mooring.mechanisms.sums import FeatureMap, PictureFeatures, TableFeatures
from mooring.randomness import Streams
from mooring.serialization import Record
from mooring.tables import Partition, Records, partition
from mooring_studies.comparison.results import Row
from mooring_studies.data.tables import load_tables
from mooring_studies.settings.sections import AtLeastOne, AtLeastTwo, AtLeastZero, SumLine, convert
from mooring_studies.settings.spec import Spec
from mooring_studies.storage.machine_facts import first_facts
from mooring_studies.storage.progress import Progress
from mooring_studies.storage.store import ResultStore
from mooring_studies.tabular import boosting
from mooring_studies.tabular.answers import AnswerCase, answer_jobs, load_answers
from mooring_studies.tabular.deployment import Point, leakage, make_deployment
from mooring_studies.tabular.jobs import Job, append_missing, choose_evenly, deployment_streams, keep_facts
from mooring_studies.tabular.picture_cases import PictureCase, run_pictures
from mooring_studies.tabular.scores import alone, each_own, utility
from mooring_studies.tabular.sum_line import (
    GENERAL,
    LEARNERS,
    NOTES,
    DeclaredColumns,
    SumRows,
    make_table_features,
    measure_general_total,
    sum_jobs,
    take_rows,
)

_NOTES = (
    *NOTES,
    "local-only and pooled-raw learn from encoded columns",
    "dp-ebm: an explainable boosting machine with differential privacy (interpret-core), of pooled rows and with the same "
    "epsilon and delta for a row; for tables of two classes where rows are the unit",
    "where persons repeat, the unit is a person: the mean over a person's rows is added, and nobody's rows are split up",
    "categories are taken from all rows, as if a form had declared them beforehand; ranges are declared",
)
_NO_RIVAL = "dp-ebm, the rival on pooled rows, was left out: install interpret-core to have it"
_FEW = 4  # of so many participants, each is scored on its own test rows, in every deployment


@dataclass(frozen=True)
class SumCase(Record):
    """A data set split among participants; `rows_each` of 0 gives each group, such as a hospital, its own rows."""

    name: str
    source: str
    n_participants: AtLeastTwo
    rows_each: AtLeastZero
    test_share: float = 0.25
    n_hats: AtLeastZero = 5
    deals: AtLeastOne = 10


@dataclass(frozen=True, kw_only=True)
class SumOptions(SumLine):
    """The [options] of a study of sums."""

    alone: AtLeastOne
    deals_alone: AtLeastOne
    """Participants whose own models are trained, in how many deployments."""
    most_rows_of_rotation: AtLeastZero
    """Rotation (AA-I-GDP without noise) is measured in cases of no more training rows, in the first deployment."""
    cases: tuple[SumCase, ...]
    answers: tuple[AnswerCase, ...] = ()
    """Questions that are answered from the general total."""
    pictures: tuple[PictureCase, ...] = ()
    """Pictures, each at levels of ε of its own; see `mooring_studies.tabular.picture_cases`."""
    sources: Mapping[str, DeclaredColumns]
    """By source; "diabetes within 30 days" has those of "diabetes"."""


@dataclass(frozen=True, eq=False)
class CaseRows:
    """Encoded rows of a case and their public features; `persons` where they repeat."""

    feature_map: FeatureMap
    records: Records = field(repr=False)
    persons: Any = field(repr=False, default=None)
    checksums: Mapping[str, str] = field(default_factory=dict)
    unlike: tuple[str, ...] = ()


def run_sums(spec: Spec, *, data_dir: Path | None, store: ResultStore, progress: Progress) -> None:
    """Measure every case whose files are there, leaving out what the store has already."""
    options = convert(spec.options, SumOptions)
    load = partial(load_case, options=options, data_dir=data_dir)
    notes = (*_NOTES, *(() if boosting.is_installed() else (_NO_RIVAL,)))
    notes += run_answers(spec, options, data_dir=data_dir, store=store, progress=progress)
    notes += run_pictures(spec, options.pictures, options, data_dir=data_dir, store=store, progress=progress)
    run_cases(spec, options.cases, load, partial(jobs_of, options=options), notes=notes, store=store, progress=progress)


def run_answers(
    spec: Spec, options: SumOptions, *, data_dir: Path | None, store: ResultStore, progress: Progress
) -> tuple[str, ...]:
    """Measure the answers of every case whose table is there; returns notes on those that were left out."""
    if not options.answers:
        return ()
    progress.stage("answers", sum(case.deals for case in options.answers))
    notes = []
    for case in options.answers:
        try:
            given = load_answers(case, data_dir)
        except StorageError as problem:
            notes.append(f"{case.name} was left out: {problem}")
            progress.note(notes[-1])
            progress.advance(case.deals)
            continue
        for name, checksum in given.checksums.items():
            store.bind(name, checksum)
        rows_each = case.n_rows // case.n_participants
        identity = {"case": case.name, "n_participants": case.n_participants, "rows_each": rows_each}
        for deployment in range(case.deals):
            jobs = answer_jobs(given, options.epsilons, options.delta, deployment_streams(spec, deployment))
            append_missing(store, jobs, identity | {"deployment": deployment})
            progress.advance()
    return tuple(notes)


def run_cases(
    spec: Spec,
    cases: Sequence[SumCase],
    load: Callable[[SumCase], CaseRows],
    jobs: Callable[[SumRows, Streams, int], list[Job]],
    *,
    notes: Sequence[str],
    store: ResultStore,
    progress: Progress,
) -> None:
    """Split every case anew in every deployment, run the jobs whose rows the store lacks, and keep the facts."""
    progress.stage("deployments", sum(min(case.deals, spec.deployments) for case in cases))
    checksums: dict[str, str] = {}
    notes, parts = list(notes), []
    for case in cases:
        try:
            data = load(case)
        except StorageError as problem:
            notes.append(f"{case.name} was left out: {problem}")
            progress.note(notes[-1])
            progress.advance(min(case.deals, spec.deployments))
            continue
        checksums |= data.checksums
        notes += data.unlike
        for name, checksum in data.checksums.items():
            store.bind(name, checksum)
        identity = {"case": case.name, "n_participants": case.n_participants, "rows_each": case.rows_each}
        for deployment in range(min(case.deals, spec.deployments)):
            streams = deployment_streams(spec, deployment)
            case_rows = split_rows(data, case, streams.named(f"deal/{case.name}/{case.rows_each}"))
            append_missing(store, jobs(case_rows, streams, deployment), identity | {"deployment": deployment})
            progress.advance()
        parts.append(
            identity | {"n_features": data.feature_map.n_features, "participants": list(case_rows.rows.names)[:4]}
        )
    facts = first_facts(spec) | {"data": checksums, "cases": parts, "notes": list(dict.fromkeys(notes))}
    keep_facts(store, facts)


def load_case(case: SumCase, options: SumOptions, data_dir: Path | None) -> CaseRows:
    """Encode the rows of a case by its declared columns; scikit-learn's digits need no file."""
    if case.source == "digits":
        pictures, labels = load_digits(return_X_y=True)
        return CaseRows(PictureFeatures(8, 8), Records(rows=pictures / 8 - 1, labels=labels))
    tables = load_tables(case.source, data_dir)
    features, rows = make_table_features(tables, options.sources[case.source.partition(" ")[0]], case.n_hats)
    records, groups = tables.records, tables.records.groups
    records = Records(rows=rows, labels=records.labels, groups=groups, group_names=records.group_names)
    repeats = case.rows_each > 0 and groups is not None
    return CaseRows(features, records, groups if repeats else None, tables.checksums, tables.unlike)


def split_rows(data: CaseRows, case: SumCase, rng: np.random.Generator) -> SumRows:
    """Split rows among participants: by group where `rows_each` is 0; a person's rows stay together where persons repeat."""
    options: dict[str, Any] = {"n_participants": case.n_participants, "test_share": case.test_share, "rng": rng}
    records, labels = data.records, np.asarray(data.records.labels)
    if data.persons is None:
        each = case.rows_each or None
        return SumRows(partition(records, rows_each=each, by_group=each is None, **options), data.feature_map)
    persons, first, code, counts = np.unique(data.persons, return_index=True, return_inverse=True, return_counts=True)
    people = Records(rows=persons[:, None].astype(np.float64), labels=labels[first])
    people_parts = partition(people, rows_each=round(case.rows_each * len(persons) / len(code)), **options)
    order = np.argsort(code, kind="stable")
    ends = np.cumsum(counts)
    rows_of = np.split(order, ends[:-1])

    def rows(parts: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(np.concatenate([rows_of[k] for k in part]) for part in parts)

    train, test = rows(people_parts.train_indices), rows(people_parts.test_indices)
    parts = replace(
        people_parts,
        train_labels=tuple(labels[part] for part in train),
        test_labels=tuple(labels[part] for part in test),
        train_indices=train,
        test_indices=test,
    )
    return SumRows(take_rows(parts, records.rows), data.feature_map, tuple(counts[code[part]] for part in train))


def jobs_of(case_rows: SumRows, streams: Streams, deployment: int, *, options: SumOptions) -> list[Job]:
    """What is measured in one deployment: sums at each ε, and what they are compared with."""
    rows, seed = case_rows.rows, int(streams.named("seed").integers(2**31))
    p = rows.n_participants
    chosen = choose_evenly(options.alone, p)
    jobs = sum_jobs(lambda: case_rows, replace(options, alone=0), streams, seed=seed)
    if isinstance(case_rows.feature_map, TableFeatures) and case_rows.feature_map.n_hats:
        general = partial(measure_general_total, case_rows, line=options, streams=streams)
        jobs += [
            ({"method": GENERAL, "draw": k}, partial(general, epsilon)) for k, epsilon in enumerate(options.epsilons)
        ]
    jobs.append(({"method": "pooled-raw", "draw": 0}, partial(alone, rows, range(p), learners=LEARNERS[:1], seed=seed)))
    if boosting.has_rival(case_rows):
        rival = partial(boosting.measure_boosting, case_rows, delta=options.delta, seed=seed)
        jobs += [
            ({"method": boosting.METHOD, "draw": k}, partial(rival, epsilon))
            for k, epsilon in enumerate(options.epsilons)
            if epsilon != "none"
        ]
    if deployment < options.deals_alone or p <= _FEW:
        for suffix, part in (("", rows), ("-features", case_rows.features)):
            train = partial(alone, part, learners=LEARNERS, seed=seed)
            jobs += [({"method": f"local-only{suffix}", "draw": i}, partial(train, [i])) for i in chosen]
            if p <= _FEW:
                each = partial(each_own, part, learners=LEARNERS, seed=seed)
                jobs.append(({"method": f"local-own{suffix}", "draw": 0}, each))
    if deployment == 0 and sum(len(part) for part in rows.train) <= options.most_rows_of_rotation:
        jobs.append(({"method": "aa-i-gdp", "draw": 0}, partial(measure_rotation, rows, streams, seed=seed)))
    return jobs


def measure_rotation(rows: Partition, streams: Streams, *, seed: int) -> Row:
    """The paper's method without noise: the joint model's scores, and how often a row is matched among ten."""
    flat, r = no_projection(rows.n_features), 4 * rows.n_features
    deployment = make_deployment(rows, flat, n_anchor_rows=r, n_queries=1000, streams=streams)
    simulation = deployment.simulate(Point("aa-i-gdp"))
    columns = utility(rows, simulation, learners=LEARNERS[:1], seed=seed)
    return columns | leakage(deployment, simulation, attacks=("known-anchor",), seed=seed)
