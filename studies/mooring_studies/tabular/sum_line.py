"""Secure sums as a line of any study: the model from the total at each ε, what it scores, and who is recognised.

At each ε a study of sums is simulated as it would run, on the very rows that the other methods of the study have: quantised
features, sums, and the noise that every participant adds, with all participants in the quorum. A model is trained from the
total and scored on test rows, and every attack on membership is run with what the analyst and one participant know together.

Legend: ε, δ the guarantee, c colluders that the noise allows for, D features. A row of the result with the method
"secure-sum" is one ε in one deployment; its draw is the place of ε among those of the study.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mooring.audit import (
    AuditSettings,
    SumSimulation,
    attack_total,
    find_strongest,
    simulate_general_total,
    simulate_sums,
)
from mooring.mechanisms.sums import (
    FeatureMap,
    LevelFeatures,
    SumPrivacy,
    SumSettings,
    TableFeatures,
    make_general_workload,
)
from mooring.randomness import Streams
from mooring.serialization import Record
from mooring.tables import Column, Label, Partition, Schema, encode_table
from mooring.typing import Matrix
from mooring_studies.comparison.results import Row
from mooring_studies.data.tables import TableRows
from mooring_studies.settings.sections import SumLine, convert
from mooring_studies.settings.spec import read_spec
from mooring_studies.tabular.jobs import Job
from mooring_studies.tabular.scores import alone, each_own, ranked, scored

NOTES = (
    "local-only-features, local-own-features: participants' own models on the public features of sums, without noise",
    "secure-sum: noise is discrete, as shared, and the quorum is all participants; the model is linear discriminant "
    "analysis from the total",
    "general-total: the same from the total of a study of several questions, whose sums answer other questions, too",
    "membership: by all attacks on sums, of all others' rows against test rows, by the analyst and one participant; the "
    "control is the same attacker without the sums; of 4 participants or fewer, the colluder's own test rows are left out",
)
METHOD, GENERAL, ALONE, EACH_OWN = "secure-sum", "general-total", "local-only-features", "local-own-features"
LEARNERS = ("linear", "svm")
"""Learners of training alone on the features of sums. Sums have to beat the better of the two."""
_AT_1_PERCENT = "membership_at_1_percent"
_FEW = 4  # so few participants are taken to be different populations, as hospitals are


@dataclass(frozen=True, eq=False)
class SumRows:
    """The rows of one deployment, and how many rows the person of each training row has, where persons repeat."""

    rows: Partition
    feature_map: FeatureMap
    rows_of_person: tuple[Any, ...] | None = None

    @cached_property
    def features(self) -> Partition:
        """The same rows as features, without their constant."""
        train, test = (
            tuple(self.feature_map.apply(part)[:, :-1] for part in parts) for parts in (self.rows.train, self.rows.test)
        )
        return replace(self.rows, train=train, test=test)


@dataclass(frozen=True)
class DeclaredColumns(Record):
    """What is declared of a table: ranges of numbers, and which are read on a logarithmic scale."""

    numbers: Mapping[str, tuple[float, float]]
    log_scaled: tuple[str, ...] = ()
    missing: Literal["fill", "indicate"] = "fill"


def declared_columns(source: str) -> DeclaredColumns:
    """What is declared of a table: the study of sums has it for every source."""
    return convert(read_spec("sums").options["sources"][source], DeclaredColumns)


def sum_jobs(rows: Callable[[], SumRows], line: SumLine, streams: Streams, *, seed: int) -> list[Job]:
    """What is measured of secure sums in one deployment: every ε, and training alone on the same features."""

    def measure(epsilon: float | Literal["none"]) -> Row:
        return measure_sums(rows(), epsilon, line=line, streams=streams, seed=seed)

    def train_alone(participant: int) -> Row:
        return alone(rows().features, [participant], learners=LEARNERS, seed=seed)

    def train_each() -> Row:
        return each_own(rows().features, learners=LEARNERS, seed=seed)

    sums: list[Job] = [
        ({"method": METHOD, "draw": k}, partial(measure, epsilon)) for k, epsilon in enumerate(line.epsilons)
    ]
    if line.alone == "own rows":
        return [*sums, ({"method": EACH_OWN, "draw": 0}, train_each)]
    return [*sums, *(({"method": ALONE, "draw": i}, partial(train_alone, i)) for i in range(line.alone))]


def measure_sums(
    case_rows: SumRows, epsilon: float | Literal["none"], *, line: SumLine, streams: Streams, seed: int
) -> Row:
    """Simulate a study of sums, train from the total, score it on test rows, and attack membership."""
    simulation, columns = train_from_sums(case_rows, epsilon, line=line, streams=streams)
    return columns | attack_sums(simulation, case_rows.rows, epsilon, line, seed=seed)


def attack_sums(
    simulation: SumSimulation, rows: Partition, epsilon: float | Literal["none"], line: SumLine, *, seed: int
) -> Row:
    """Return how well members are recognised by the strongest attack, and by each."""
    columns: Row = {}
    # among many alike, the colluder's test rows are asked for like all others
    settings = AuditSettings(colluders=(), seed=seed)
    attacked = attack_total(simulation, without_colluders_tests(rows), settings, (0,))
    outcomes = [outcome for outcome in attacked if outcome.applies]
    for outcome in outcomes:
        columns |= {f"membership_auc:{outcome.attack}": outcome.figures["membership_auc"].value}
        columns |= {f"membership_tpr:{outcome.attack}": outcome.figures[_AT_1_PERCENT].value}
    for column, measure in (("membership_auc", "membership_auc"), ("membership_tpr", _AT_1_PERCENT)):
        strongest = find_strongest(outcomes, measure)
        if strongest is not None:
            figure = strongest.figures[measure]
            columns |= {column: figure.value, f"{column}_low": figure.interval.low, f"{column}_control": figure.control}
    return columns | {"membership_limit": 1.0 if epsilon == "none" else min(1.0, math.exp(epsilon) * 0.01 + line.delta)}


def train_from_sums(
    case_rows: SumRows,
    epsilon: float | Literal["none"],
    *,
    line: SumLine,
    streams: Streams,
    by_class: bool = False,
) -> tuple[SumSimulation, Row]:
    """Simulate a study of sums and score the model from its total on test rows; parameters as of `measure_sums`.

    With `by_class`, the rows of each class are summed on their own.
    """
    rows, feature_map = case_rows.rows, case_rows.feature_map
    assert rows.train_labels is not None
    assert rows.test_labels is not None
    privacy = None
    if epsilon != "none":
        privacy = SumPrivacy(epsilon, line.delta, rows.n_participants, line.n_colluders)
    n_classes = int(max(labels.max() for labels in (*rows.train_labels, *rows.test_labels))) + 1
    simulation = simulate_sums(
        rows.train,
        [part.astype(np.int64) for part in rows.train_labels],
        feature_map=feature_map,
        label_values=np.arange(n_classes),
        privacy=privacy,
        rng=Streams(int(streams.named(f"epsilon/{epsilon}").integers(2**62))),
        rows_of_person=case_rows.rows_of_person,
        by_class=by_class,
    )
    columns: Row = {} if privacy is None else {"epsilon": float(privacy.epsilon)}
    columns |= {"n_features": feature_map.n_features, "n_rows": sum(len(part) for part in rows.train)}
    return simulation, columns | _score_model(rows, simulation.fit(), feature_map)


def measure_general_total(
    case_rows: SumRows, epsilon: float | Literal["none"], *, line: SumLine, streams: Streams
) -> Row:
    """Simulate a study of several questions on the same rows, and score the model that follows from its total."""
    rows, table_features = case_rows.rows, case_rows.feature_map
    assert isinstance(table_features, TableFeatures)
    assert rows.train_labels is not None
    privacy = None
    if epsilon != "none":
        privacy = SumPrivacy(epsilon, line.delta, rows.n_participants, line.n_colluders)
    n_classes = int(max(labels.max() for labels in rows.train_labels)) + 1
    schema = replace(table_features.schema, label=Label("label", "classes", tuple(map(str, range(n_classes)))))
    settings = SumSettings(questions=("model", "tables"), log_scaled=tuple(sorted(table_features.log_scaled)))
    features = LevelFeatures(make_general_workload(settings, schema), schema)
    simulation = simulate_general_total(
        rows.train,
        [part.astype(np.int64) for part in rows.train_labels],
        features=features,
        privacy=privacy,
        rng=Streams(int(streams.named(f"general/{epsilon}").integers(2**62))),
        rows_of_person=case_rows.rows_of_person,
    )
    columns: Row = {} if privacy is None else {"epsilon": float(privacy.epsilon)}
    columns |= {"n_features": features.n_features, "n_rows": sum(len(part) for part in rows.train)}
    return columns | _score_model(rows, simulation.fit(), simulation.features_of_model)


def _score_model(rows: Partition, model: Any, feature_map: FeatureMap) -> Row:
    """Score a model on test rows; classes are predicted as the other lines predict them."""
    assert rows.test_labels is not None
    features = feature_map.apply(np.concatenate(rows.test))
    n_classes = len(model.class_shares)
    most_probable = replace(model, class_shares=np.full(n_classes, 1 / n_classes))  # as the other lines predict
    predicted = np.asarray(most_probable.predict(features))
    leans = model.scores(features)[:, 0] if n_classes == 2 else None
    return scored(rows.test_labels, clean=predicted, noisy=predicted) | ranked(rows.test_labels, leans)


def without_colluders_tests(rows: Partition) -> Partition:
    """Without the colluder's test rows where each participant is another population: to tell hospitals is no attack."""
    if rows.n_participants > _FEW or rows.test_labels is None:
        return rows
    labels = (rows.test_labels[0][:0], *rows.test_labels[1:])
    return replace(rows, test=(rows.test[0][:0], *rows.test[1:]), test_labels=labels)


def make_table_features(tables: TableRows, declared: DeclaredColumns, n_hats: int) -> tuple[TableFeatures, Matrix]:
    """The features of declared columns, and all rows of a table as they are encoded for them."""
    columns = {name: tables.columns.column(name) for name in tables.columns.column_names}
    columns |= {name: _as_words(values) for name, values in columns.items() if name not in declared.numbers}
    schema = Schema(tuple(_declare(name, values, declared) for name, values in columns.items()))
    return TableFeatures(schema, frozenset(declared.log_scaled), n_hats), encode_table(schema, pa.table(columns))


def take_rows(parts: Partition, rows: Matrix) -> Partition:
    """The same partition with other rows, of which `rows` has one for each of the records."""
    train, test = (tuple(rows[places] for places in indices) for indices in (parts.train_indices, parts.test_indices))
    return replace(parts, train=train, test=test, public=None)


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
