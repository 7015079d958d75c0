"""Secure sums: one model from everybody's noisy sums, beside training alone, pooled raw rows and rotation.

Every case is a table or pictures dealt to participants, anew in every deployment. At each ε the study is simulated as it
would run: quantised features, sums and the noise that every participant adds; a model is trained from the total and scored
on test rows; and every attack on membership is run with what the analyst and one participant know together.

Legend: ε, δ the guarantee, c colluders that the noise allows for, D features. A row of the result with the method
"secure-sum" is one ε in one deployment of one case; its draw is the place of ε in the options.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.datasets import load_digits

from mooring import StorageError
from mooring.audit import AuditSettings, SumSpec, find_strongest
from mooring.audit.sums import SumAuditor, simulate_sums
from mooring.learners import fit_discriminant
from mooring.mechanisms.secure_sum import FeatureMap, PictureFeatures, SumPrivacy, TableFeatures
from mooring.randomness import Streams
from mooring.tables import Column, Partition, Records, Schema, encode_table, partition
from mooring.typing import Matrix
from mooring_studies.comparison.results import Row
from mooring_studies.data.tables import TableRows, load_tables
from mooring_studies.settings.sections import AtLeastOne, AtLeastTwo, AtLeastZero, convert
from mooring_studies.settings.spec import Spec
from mooring_studies.storage.machine_facts import first_facts
from mooring_studies.storage.progress import Progress
from mooring_studies.storage.store import ResultStore
from mooring_studies.tabular.deployment import Point, leakage, make_deployment
from mooring_studies.tabular.jobs import Job, append_missing, deployment_streams, keep_facts
from mooring_studies.tabular.scores import alone, each_own, ranked, scored, utility

NOTES = (
    "delta and the number of colluders as in the options; the quorum is all participants; noise is discrete, as shared",
    "the model is linear discriminant analysis from the total; nothing but epsilon differs between its rows",
    "local-only and pooled-raw learn from encoded columns, local-only-features from the public features without noise",
    "where persons repeat, the unit is a person: the mean over a person's rows is added, and persons are dealt whole",
    "membership: by all attacks on sums, of all others' rows against test rows, by the analyst and one participant; the "
    "control is the same attacker without the sums; of hospitals, the colluder's own test rows are left out",
    "categories are told from all rows, as a form declared beforehand would tell them; ranges are declared",
)
_LEARNERS = ("linear", "svm")
_AT_1_PERCENT = "membership_at_1_percent"
_FEW = 4  # of so many participants, each is scored on its own test rows, in every deployment


@dataclass(frozen=True)
class SumCase:
    """A data set dealt to participants; `rows_each` of 0 gives each group, such as a hospital, its own rows."""

    name: str
    source: str
    n_participants: AtLeastTwo
    rows_each: AtLeastZero
    test_share: float = 0.25
    n_hats: AtLeastZero = 5
    deals: AtLeastOne = 10


@dataclass(frozen=True)
class DeclaredColumns:
    """What is declared of a table: ranges of numbers, and which are read on a logarithmic scale."""

    numbers: Mapping[str, tuple[float, float]]
    log_scaled: tuple[str, ...] = ()
    missing: Literal["fill", "indicate"] = "fill"


@dataclass(frozen=True)
class SumOptions:
    """The [options] of a study of sums.

    Attributes
    ----------
    alone, deals_alone : int
        Participants whose own models are trained, in how many deployments.
    most_rows_of_rotation : int
        Rotation (AA-I-GDP without noise) is measured in cases of no more training rows, in the first deployment.
    sources : mapping of str to DeclaredColumns
        By source; "diabetes within 30 days" has those of "diabetes".
    """

    epsilons: tuple[float | Literal["none"], ...]
    delta: float
    n_colluders: AtLeastZero
    alone: AtLeastOne
    deals_alone: AtLeastOne
    most_rows_of_rotation: AtLeastZero
    cases: tuple[SumCase, ...]
    sources: Mapping[str, DeclaredColumns]


@dataclass(frozen=True, eq=False)
class CaseRows:
    """Encoded rows of a case and their public features; `persons` where they repeat."""

    feature_map: FeatureMap
    records: Records = field(repr=False)
    persons: Any = field(repr=False, default=None)
    checksums: Mapping[str, str] = field(default_factory=dict)
    unlike: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Dealt:
    """The rows of one deployment, and how many rows the person of each training row has, where persons repeat."""

    rows: Partition
    feature_map: FeatureMap
    rows_of_person: tuple[Any, ...] | None

    @property
    def features(self) -> Partition:
        """The same rows as features, without their constant."""
        train, test = (
            tuple(self.feature_map.apply(own)[:, :-1] for own in parts) for parts in (self.rows.train, self.rows.test)
        )
        return replace(self.rows, train=train, test=test)


def run_sums(spec: Spec, *, data_dir: Path | None, store: ResultStore, progress: Progress) -> None:
    """Measure every case whose files are there, leaving out what the store has already.

    Parameters
    ----------
    spec : Spec
        Its options are those of `SumOptions`.
    data_dir : Path, optional
        Where the files are: see `mooring_studies.data.tables`.
    store, progress
        Where rows and facts go, and who is told.
    """
    options = convert(spec.options, SumOptions)
    began = time.perf_counter()
    progress.stage("deals", sum(min(case.deals, spec.deployments) for case in options.cases))
    checksums: dict[str, str] = {}
    notes, told = list(NOTES), []
    for case in options.cases:
        try:
            data = load_case(case, options, data_dir)
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
            dealt = deal_rows(data, case, streams.named(f"deal/{case.name}/{case.rows_each}"))
            own = identity | {"deployment": deployment}
            append_missing(store, jobs_of(dealt, options, streams, deployment=deployment), own)
            progress.advance()
        told.append(identity | {"n_features": data.feature_map.n_features, "participants": list(dealt.rows.names)[:4]})
    facts = first_facts(spec) | {"data": checksums, "cases": told, "notes": list(dict.fromkeys(notes))}
    keep_facts(store, "deals", began, facts)


def load_case(case: SumCase, options: SumOptions, data_dir: Path | None) -> CaseRows:
    """Encode the rows of a case by its declared columns; scikit-learn's digits need no file."""
    if case.source == "digits":
        pictures, labels = load_digits(return_X_y=True)
        return CaseRows(PictureFeatures(8, 8), Records(rows=pictures / 8 - 1, labels=labels))
    tables = load_tables(case.source, data_dir)
    declared = options.sources[case.source.partition(" ")[0]]
    columns = {name: tables.columns.column(name) for name in tables.columns.column_names}
    columns |= {name: _as_words(values) for name, values in columns.items() if name not in declared.numbers}
    schema = Schema(tuple(_declare(name, values, declared) for name, values in columns.items()))
    features = TableFeatures(schema, frozenset(declared.log_scaled), case.n_hats)
    groups = tables.records.groups
    records = replace_rows(tables, encode_table(schema, pa.table(columns)))
    repeats = case.rows_each > 0 and groups is not None
    return CaseRows(features, records, groups if repeats else None, tables.checksums, tables.unlike)


def replace_rows(tables: TableRows, rows: Matrix) -> Records:
    """The same labels and groups with other rows."""
    found = tables.records
    return Records(rows=rows, labels=found.labels, groups=found.groups, group_names=found.group_names)


def deal_rows(data: CaseRows, case: SumCase, rng: np.random.Generator) -> Dealt:
    """Deal rows to participants: to each group its own where `rows_each` is 0; persons whole where they repeat."""
    options: dict[str, Any] = {"n_participants": case.n_participants, "test_share": case.test_share, "rng": rng}
    records, labels = data.records, np.asarray(data.records.labels)
    if data.persons is None:
        each = case.rows_each or None
        return Dealt(partition(records, rows_each=each, by_group=each is None, **options), data.feature_map, None)
    persons, first, code, counts = np.unique(data.persons, return_index=True, return_inverse=True, return_counts=True)
    people = Records(rows=persons[:, None].astype(np.float64), labels=labels[first])
    dealt = partition(people, rows_each=round(case.rows_each * len(persons) / len(code)), **options)
    order = np.argsort(code, kind="stable")
    ends = np.cumsum(counts)
    rows_of = np.split(order, ends[:-1])

    def rows(parts: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(np.concatenate([rows_of[k] for k in part]) for part in parts)

    train, test = rows(dealt.train_indices), rows(dealt.test_indices)
    own = replace(
        dealt,
        train=tuple(records.rows[part] for part in train),
        train_labels=tuple(labels[part] for part in train),
        test=tuple(records.rows[part] for part in test),
        test_labels=tuple(labels[part] for part in test),
        train_indices=train,
        test_indices=test,
    )
    return Dealt(own, data.feature_map, tuple(counts[code[part]] for part in train))


def jobs_of(dealt: Dealt, options: SumOptions, streams: Streams, *, deployment: int) -> list[Job]:
    """What is measured in one deployment: sums at each ε, and what they are compared with."""
    rows, seed = dealt.rows, int(streams.named("seed").integers(2**31))
    p = rows.n_participants
    chosen = np.unique(np.linspace(0, p - 1, min(options.alone, p)).round().astype(int)).tolist()
    jobs: list[Job] = []
    for k, epsilon in enumerate(options.epsilons):
        named = {"method": "secure-sum", "draw": k}
        jobs.append((named, partial(measure_sums, dealt, epsilon, options=options, streams=streams, seed=seed)))
    jobs.append(
        ({"method": "pooled-raw", "draw": 0}, partial(alone, rows, range(p), learners=_LEARNERS[:1], seed=seed))
    )
    if deployment < options.deals_alone or p <= _FEW:
        for suffix, own in (("", rows), ("-features", dealt.features)):
            train = partial(alone, own, learners=_LEARNERS, seed=seed)
            jobs += [({"method": f"local-only{suffix}", "draw": i}, partial(train, [i])) for i in chosen]
            if p <= _FEW:
                each = partial(each_own, own, learners=_LEARNERS, seed=seed)
                jobs.append(({"method": f"local-own{suffix}", "draw": 0}, each))
    if deployment == 0 and sum(len(part) for part in rows.train) <= options.most_rows_of_rotation:
        jobs.append(({"method": "aa-i-gdp", "draw": 0}, partial(measure_rotation, rows, streams, seed=seed)))
    return jobs


def measure_sums(
    dealt: Dealt, epsilon: float | Literal["none"], *, options: SumOptions, streams: Streams, seed: int
) -> Row:
    """Simulate a study of sums, train from the total, score it on test rows, and attack membership.

    Parameters
    ----------
    dealt : Dealt
    epsilon : float or "none"
    options : SumOptions
    streams : Streams
        Those of the deployment.
    seed : int
        Of which candidates are attacked.
    """
    rows, feature_map = dealt.rows, dealt.feature_map
    assert rows.train_labels is not None
    assert rows.test_labels is not None
    privacy = None
    if epsilon != "none":
        privacy = SumPrivacy(epsilon, options.delta, rows.n_participants, options.n_colluders)
    n_classes = int(max(own.max() for own in (*rows.train_labels, *rows.test_labels))) + 1
    simulation = simulate_sums(
        rows.train,
        [own.astype(np.float64) for own in rows.train_labels],
        feature_map=feature_map,
        n_classes=n_classes,
        privacy=privacy,
        rng=Streams(int(streams.named(f"epsilon/{epsilon}").integers(2**62))),
        rows_of_person=dealt.rows_of_person,
    )
    model = fit_discriminant(simulation.sums, shrink=isinstance(feature_map, TableFeatures))
    features = feature_map.apply(np.concatenate(rows.test))
    said = np.asarray(model.predict(features))
    leans = model.scores(features)[:, 0] if n_classes == 2 else None
    columns: Row = {} if privacy is None else {"epsilon": float(privacy.epsilon)}
    columns |= {"n_features": feature_map.n_features, "n_rows": sum(len(part) for part in rows.train)}
    columns |= scored(rows.test_labels, clean=said, noisy=said) | ranked(rows.test_labels, leans)
    # among many alike, the colluder's test rows are asked for like all others
    settings = AuditSettings(colluders=(), seed=seed, sums=SumSpec(feature_map=feature_map))
    auditor = SumAuditor(without_colluders_tests(rows), settings)
    outcomes = [one for one in auditor.attack(simulation, (0,)) if one.applies]
    for one in outcomes:
        columns |= {f"membership_auc:{one.attack}": one.figures["membership_auc"].value}
        columns |= {f"membership_tpr:{one.attack}": one.figures[_AT_1_PERCENT].value}
    for column, measure in (("membership_auc", "membership_auc"), ("membership_tpr", _AT_1_PERCENT)):
        strongest = find_strongest(outcomes, measure)
        if strongest is not None:
            found = strongest.figures[measure]
            columns |= {column: found.value, f"{column}_low": found.interval.low, f"{column}_control": found.control}
    limit = 1.0 if privacy is None else min(1.0, math.exp(privacy.epsilon) * 0.01 + privacy.delta)
    return columns | {"membership_limit": limit}


def without_colluders_tests(rows: Partition) -> Partition:
    """Without the colluder's test rows where each participant is another population: to tell hospitals is no attack."""
    if rows.n_participants > _FEW or rows.test_labels is None:
        return rows
    labels = (rows.test_labels[0][:0], *rows.test_labels[1:])
    return replace(rows, test=(rows.test[0][:0], *rows.test[1:]), test_labels=labels)


def measure_rotation(rows: Partition, streams: Streams, *, seed: int) -> Row:
    """The paper's way without noise: what its joint model is worth, and how often a row is told from nine others."""
    deployment = make_deployment(
        rows, projected_by="none", n_anchor_rows=4 * rows.n_features, n_queries=1000, streams=streams
    )
    simulation = deployment.simulate(Point("aa-i-gdp"))
    found = utility(rows, simulation, learners=_LEARNERS[:1], seed=seed)
    return found | leakage(deployment, simulation, attacks=("known-anchor",), seed=seed)


def _as_words(values: Any) -> Any:
    """A column as words; whole numbers without a point."""
    if pa.types.is_floating(values.type):
        values = values.cast(pa.int64())
    return values.cast(pa.string())


def _declare(name: str, values: Any, declared: DeclaredColumns) -> Column:
    if name in declared.numbers:
        low, high = declared.numbers[name]
        missing = declared.missing if pc.any(pc.is_null(values)).as_py() else "refuse"
        return Column(name, "number", low, high, missing=missing, outside="clip")
    levels = sorted(word for word in pc.unique(values).to_pylist() if word is not None)
    return Column(name, "category", categories=tuple(levels), missing="fill")
