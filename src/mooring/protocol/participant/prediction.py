"""Predictions of a participant's new rows, on its own machine, by the model that the analyst delivered."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from mooring.atomic_io import write_atomically
from mooring.errors import InputError, StorageError
from mooring.learners import AUTO, Gain, Kind, Score, compare, score, train_learner
from mooring.learners.calibration import FEWEST_ROWS, Recalibration, conformal_radius
from mooring.learners.evaluation import Evaluation, Importance, evaluate_classes, measure_importance
from mooring.learners.models import Predicted
from mooring.protocol.exchange_types import Predictor
from mooring.protocol.messages.result import Release
from mooring.protocol.messages.study import Study
from mooring.protocol.registry import exchange_of
from mooring.protocol.storage.fingerprints import Fingerprinter, Words
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Vault
from mooring.protocol.transport.addresses import is_url, local_path, redact_address
from mooring.protocol.transport.object_stores import NOT_THERE, download, open_folder, read_size
from mooring.serialization import Count, Record, count_noun, render_html
from mooring.tables.encoder import EncodedRows, LabelUse, RowsLeftOut, UnfitUse, encoded_batches, read_encoded
from mooring.tables.files import is_parquet, no_rows
from mooring.tables.problems import Problem, ProblemKind
from mooring.tables.schema import Schema
from mooring.typing import Matrix, Progress, TableSource

PREDICT_FILE = "predict.json"
_MOST_NAMED = 10


@dataclass(frozen=True)
class AdjustmentRecord(Record):
    """How the participant's held-out labelled rows changed the predictions, without the rows themselves."""

    rows: Count
    left_out: Count
    """Number of held-out rows that were not used, because they were shared before or are among the rows scored."""
    checked: bool
    """Whether the ledger could tell which of the held-out rows were shared."""
    radius: float | None = None
    """Half the width of an interval that does not reach an end of the label's range; None for classes."""
    coverage: float | None = None
    """The share of labelled new rows whose number lies within its interval; None for classes, and without labels."""

    def __str__(self) -> str:
        rows = f"{self.rows} rows that {'the model was not trained on' if self.checked else 'you say were not shared'}"
        n_left_out = count_noun(self.left_out, "further held-out row was", "further held-out rows were")
        left_out = f" {n_left_out} left out, because each was shared before or is scored here." if self.left_out else ""
        if self.radius is None:
            return (
                f"Probabilities are recalibrated on {rows}.{left_out} The calibration shown is that of the recalibrated "
                "probabilities; scores are computed before recalibration."
            )
        words = f"In nine of ten new rows, the number should lie within ± {self.radius:.3g} of its prediction"
        words += "" if self.coverage is None else f"; in {self.coverage:.0%} of the labelled new rows, it does"
        return f"{words}. This width was fitted on {rows}.{left_out}"


@dataclass(frozen=True)
class PredictionRecord(Record):
    """Scores of predictions whose labels were known, as the vault keeps them. No prediction is part of it."""

    n_rows: Count
    score: Score | None
    local_only: Score | None
    gain: Gain | None
    evaluation: Evaluation | None
    importance: tuple[str, tuple[Importance, ...]] | None
    release: Release | None
    n_shared: Count
    """As in `Predictions`."""
    adjustment: AdjustmentRecord | None = None
    command: str = ""
    """The command that was run."""
    only_class: str = ""
    """The class that the model predicts for every one of several rows; empty otherwise, and for numbers."""
    n_classes: Count = 0
    """Number of classes between which the model chooses; 0 if it predicts numbers."""
    n_unread: Count = 0
    """Number of further rows that have no prediction, because they could not be read."""
    n_scored: Count = 0
    """Number of rows whose label was known."""

    def state_only_class(self) -> str:
        """Return a sentence if the model predicts the same one of several classes for every row; empty otherwise."""
        if not self.only_class or self.n_classes < 2:
            return ""
        return (
            f"The model predicts '{self.only_class}' for all {self.n_rows:,} rows. That is no better than guessing: where "
            f"every class occurs, both have a balanced accuracy of {1 / self.n_classes:.1%}."
        )


@dataclass(frozen=True)
class Adjustment:
    """An adjustment of predictions, fitted to labelled rows that were held out and not shared."""

    record: AdjustmentRecord
    label_range: tuple[float, float]
    recalibration: Recalibration | None = None
    """How probabilities of classes are changed; None for numbers."""

    def apply(self, values: npt.NDArray[Any], probabilities: Matrix | None) -> Predicted:
        """Return the recalibrated probabilities and the classes that they give; numbers are returned as they are."""
        if self.recalibration is None or probabilities is None:
            return values, probabilities
        changed = self.recalibration.apply(probabilities)
        return self.recalibration.choose(changed), changed

    def with_coverage(self, errors: npt.NDArray[Any]) -> Adjustment:
        """Return the adjustment with the coverage of its intervals, given the errors on new rows; unchanged for classes."""
        if self.record.radius is None:
            return self
        coverage = float((np.abs(errors) <= self.record.radius).mean())
        return replace(self, record=replace(self.record, coverage=coverage))


@dataclass(frozen=True)
class Reading:
    """How new rows were read."""

    n_rows: int
    """Number of all rows in the table."""
    unread: tuple[int, ...] = ()
    """Numbers of the rows that could not be read, counted from 1 without the header. They have no prediction."""
    ids: dict[int, dict[str, str]] = field(default_factory=dict)
    """The ids of the unread rows, by row number and then by column. Lines with a wrong number of fields have none."""
    reasons: tuple[Problem, ...] = ()
    """Why the unread rows could not be read."""
    adapted: tuple[Problem, ...] = ()
    """Cells that do not fit the study, and were adapted as for sharing."""

    def state(self) -> list[str]:
        """Return a sentence on the rows without a prediction, and one on adapted cells, where there are any."""
        lines = []
        if self.unread:
            rows = ", ".join(map(str, self.unread[:_MOST_NAMED]))
            rows += f" and {len(self.unread) - _MOST_NAMED:,} more" if len(self.unread) > _MOST_NAMED else ""
            why = "; ".join(dict.fromkeys(map(_name_problem, self.reasons)))
            verb = "cannot be read and has" if len(self.unread) == 1 else "cannot be read and have"
            named = f"row{'s' * (len(self.unread) > 1)} {rows}"
            lines.append(
                f"{len(self.unread):,} of {count_noun(self.n_rows, 'row')} {verb} no prediction: {named} ({why})."
            )
        if self.adapted:
            n_cells = sum(problem.n_cells for problem in self.adapted)
            why = "; ".join(f"{_name_problem(problem)} ({problem.n_cells:,})" for problem in self.adapted)
            do = "cell does not fit and was" if n_cells == 1 else "cells do not fit and were"
            lines.append(f"{n_cells:,} {do} adapted in the same way as for sharing: {why}.")
        return lines


def _name_problem(problem: Problem) -> str:
    return f"{problem.column!r} has {problem.got}" if problem.column else f"a line has {problem.got}"


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions of new rows by the joint model, and their scores if the rows have labels."""

    values: npt.NDArray[Any]
    """Names of classes, or numbers, in the order of the rows; shape (n,). Rows that could not be read have none."""
    classes: tuple[str, ...]
    """The classes between which the model chooses; empty if it predicts numbers."""
    probabilities: Matrix | None
    """Probability of each class, shape (n, classes); None for numbers, and if the learner has no probabilities."""
    score: Score | None
    """Score of the joint model before recalibration, but with the participant's threshold if there is one; None without
    labels."""
    local_only: Score | None
    """Score, on the same rows, of a model of the participant's raw rows alone; None unless it was requested and the rows
    have labels."""
    gain: Gain | None = None
    """Gain of the joint model over the model of the participant's own rows, from the difference on each row."""
    ids: dict[str, list[str]] = field(default_factory=dict)
    """For each column that names rows or persons, if the table has it: its values."""
    evaluation: Evaluation | None = None
    """Further measures of the joint model and, if there is one, of the model of the own rows. The calibration of the joint
    model is that of `probabilities`. None for numbers, and without labels."""
    importance: tuple[str, tuple[Importance, ...]] | None = None
    """Importance of each column to the joint model; None unless it was requested and the rows have labels."""
    release: Release | None = None
    """What an attacker may learn about the rows behind the model, where the study limits it."""
    adjustment: Adjustment | None = None
    """The recalibration of probabilities, or the intervals of numbers, by held-out rows; None without such rows."""
    n_shared: int = 0
    """Number of labelled rows that were shared in this study, so that the model was trained on them."""
    reading: Reading | None = None
    """How the rows were read; None if all of them fit."""
    n_scored: int = 0
    """Number of rows whose label is known."""

    def as_table(self) -> dict[str, list[Any]]:
        """Return the columns of a table, by name: the ids, then the prediction.

        Intervals add the columns low and high, and probabilities one column probability_<class> per class. The table has all
        rows in their order. Rows that could not be read have empty cells (None), except for ids that could be read.
        """
        shares = () if self.probabilities is None else np.round(self.probabilities, 6).T.tolist()
        named = {f"probability_{name}": column for name, column in zip(self.classes, shares, strict=False)}
        ends = {} if self.intervals is None else dict(zip(("low", "high"), self.intervals.T.tolist(), strict=True))
        columns: dict[str, list[Any]] = {**self.ids, "prediction": self.values.tolist(), **ends, **named}
        if self.reading is None:
            return columns
        return {name: list(self._spread(name, column, self.reading)) for name, column in columns.items()}

    @staticmethod
    def _spread(name: str, column: list[Any], reading: Reading) -> Iterator[Any]:
        """Yield the cells of a column, adding one for each row that could not be read."""
        cells, unread = iter(column), frozenset(reading.unread)
        for number in range(1, reading.n_rows + 1):
            yield reading.ids.get(number, {}).get(name) if number in unread else next(cells)

    @property
    def intervals(self) -> Matrix | None:
        """The ends of an interval around each predicted number, shape (n, 2); None for classes, and without held-out rows.

        Nine of ten intervals should contain the true number.
        """
        if self.adjustment is None or self.adjustment.record.radius is None:
            return None
        radius, ends = self.adjustment.record.radius, self.adjustment.label_range
        return np.column_stack([self.values - radius, self.values + radius]).clip(*ends)

    def state_findings(self) -> list[str]:
        """Return sentences on how the rows were read, on what the model may disclose, and on the scores, where known."""
        joint, alone = self.score, self.local_only
        only_class = self.record.state_only_class()
        lines = [] if self.reading is None else self.reading.state()
        lines += [*([only_class] if only_class else []), *([] if self.release is None else [str(self.release)])]
        lines += [] if joint is None else [f"Joint model on these rows: {joint.metric} {joint.with_interval()}."]
        lines += [] if alone is None else [f"A model of your raw rows alone: {alone.with_interval()}."]
        if self.n_shared:
            shared = count_noun(self.n_shared, "of these rows was", "of these rows were")
            trained = f"{shared} shared, so the model was trained on {'it' if self.n_shared == 1 else 'them'}."
            return [*lines, f"{trained} Scores on new rows may be lower. Whether joining pays is not shown."]
        return lines if self.gain is None else [*lines, self.gain.sentence()]

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the scores, never the predictions."""
        tables = [] if self.evaluation is None else [self.evaluation.list_measures()]
        return render_html(f"{count_noun(self.values.size, 'prediction')}.", *self.state_findings(), tables=tables)

    def write(self, path: Path) -> None:
        """Write the table with permissions for its owner only, as Parquet or CSV by the ending of the file's name."""
        columns = self.as_table()
        if is_parquet(path):
            written = pa.BufferOutputStream()
            pq.write_table(pa.table(dict(columns)), written)
            data = bytes(written.getvalue())
        else:
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows([list(columns), *zip(*columns.values(), strict=True)])
            data = text.getvalue().encode()
        write_atomically(path, data, mode=0o600, what="the predictions")

    @property
    def record(self) -> PredictionRecord:
        """The record that the vault keeps for the report."""
        return PredictionRecord(
            int(self.values.size),
            self.score,
            self.local_only,
            self.gain,
            self.evaluation,
            self.importance,
            self.release,
            self.n_shared,
            None if self.adjustment is None else self.adjustment.record,
            only_class=self.only_class,
            n_classes=len(self.classes),
            n_unread=0 if self.reading is None else len(self.reading.unread),
            n_scored=self.n_scored,
        )

    @property
    def only_class(self) -> str:
        """The class that the model predicts for every one of several rows; empty otherwise, and for numbers."""
        named = np.unique(self.values) if self.classes and self.values.size > 1 else np.empty(0)
        return str(named[0]) if named.size == 1 else ""


@dataclass(frozen=True)
class Scoring:
    """How predictions are made and, if labels are known, measured."""

    threshold: float | None = None
    """Smallest probability at which the second of two classes is predicted. By default it is the class's share of the
    training rows or, for recalibrated probabilities, of the held-out rows."""
    importance: bool = False
    """Whether to measure the importance of each column."""
    held_out: TableSource | None = None
    """Labelled rows that were not shared. They serve to recalibrate probabilities, or to give numbers intervals."""

    def __post_init__(self) -> None:
        if self.threshold is not None and not 0 < self.threshold < 1:
            cure = "Leave it out to use the class's share of the training rows."
            raise InputError("threshold", expected="between 0 and 1", got=f"{self.threshold:g}", cure=cure)

    def apply_threshold(self, predicted: Predicted) -> Predicted:
        """Return the predictions by the threshold; without one, or without probabilities of two classes, as they are."""
        shares = predicted[1]
        if self.threshold is None or shares is None or shares.shape[1] != 2:
            return predicted
        return (shares[:, 1] >= self.threshold).astype(np.int64), shares


DEFAULT_SCORING = Scoring()


def predict_rows(
    vault: Vault,
    study: Study,
    data: TableSource,
    *,
    result: Path,
    own_rows: TableSource | None = None,
    scoring: Scoring = DEFAULT_SCORING,
    ignore: Collection[str] = (),
    progress: Progress | None = None,
) -> Predictions:
    """Predict new rows, with or without labels, by the model that the analyst delivered in the folder `result`.

    If the study adapts cells that do not fit when rows are shared, they are adapted here, too. In other studies, a row with
    such a cell has no prediction. A table of which no row can be read is refused. `own_rows` are the rows that were shared:
    if the new rows have labels, a model of `own_rows` alone is trained for comparison.
    """
    exchange = exchange_of(study)
    opened = exchange.open_result(vault, study, result)
    if not opened.model_digest:
        raise InputError("result", problem="The result has no model.", cure="Ask the analyst to train one.")
    release, taken = opened.release, opened.schema
    unfit: UnfitUse = "adapt" if exchange.adapts_rows(study) else "leave out"
    asked = ignore = (*ignore, *sorted(study.schema.names - taken.names))  # columns that this model does not need
    schema, person = taken, exchange.person_column(study)
    if person and person not in (*study.ids, *ignore):
        schema, ignore = replace(schema, ids=(person, *study.ids)), (*ignore, person)
    label, recorded = taken.label, _list_recorded(study, taken)
    prints = Fingerprinter(vault.ledger_key, recorded)
    values_by_block, shares, truth, is_labelled, rows = [], [], [], [], []
    ids: dict[str, list[str]] = {}
    # people ignore the label's column, for example, because its values are not known yet
    labels: LabelUse = "ignore" if label.column in ignore else "allow"
    left_out = RowsLeftOut()
    for block in encoded_batches(
        schema, data, labels=labels, ignore=asked, with_ids=True, unfit=unfit, left_out=left_out, progress=progress
    ):
        for name, texts in block.ids.items():
            ids.setdefault(name, []).extend(texts)
        values, probabilities = scoring.apply_threshold(opened.predict(block.rows))
        values_by_block.append(values)
        shares += [] if probabilities is None else [probabilities]
        labelled = _find_labelled(block)
        is_labelled.append(labelled)
        if block.labels is not None:
            truth.append(block.labels[labelled])
            prints.add(block.values[labelled, : len(recorded)])
        rows += [block.rows[labelled]] if own_rows is not None or scoring.importance else []
    if not values_by_block:
        raise left_out.problems[0].error() if left_out.problems else no_rows()
    predicted, each = np.concatenate(values_by_block), np.concatenate(shares) if shares else None
    scored = prints.take()
    held_out = scoring.held_out
    adjustment = None if held_out is None else _adjust(vault, study, opened, held_out, ignore, prints, scored)
    adjusted, probabilities = predicted, each
    if adjustment is not None:
        adjusted, probabilities = scoring.apply_threshold(adjustment.apply(predicted, each))
    kind: Kind = "classes" if label.kind == "classes" else "number"
    words = np.array(label.classes)[adjusted] if kind == "classes" else adjusted
    reading = _describe_reading(left_out, unfit, label.column)
    predictions = Predictions(
        words,
        label.classes,
        probabilities,
        None,
        None,
        ids=ids,
        release=release,
        adjustment=adjustment,
        reading=reading,
    )
    if not truth:
        return predictions
    known, mask = np.concatenate(truth), np.concatenate(is_labelled)
    predicted, adjusted = predicted[mask], adjusted[mask]
    each, probabilities = (None if of_rows is None else of_rows[mask] for of_rows in (each, probabilities))
    joint = score(known, predicted, kind=kind, rng=_rng(), shares=each)
    alone = gain = by_own_rows = evaluation = importance = None
    if own_rows is not None:
        own_unfit: UnfitUse = "adapt" if unfit == "adapt" else "refuse"
        own = read_encoded(taken, own_rows, ignore=tuple(ignore), unfit=own_unfit)
        by_own_rows = scoring.apply_threshold(_predict_alone(taken, own, np.concatenate(rows)))
        predicted_alone, shares_alone = by_own_rows
        both = None if each is None or shares_alone is None else (each, shares_alone[None])
        joint = score(known, predicted, kind=kind, rng=_rng(), shares=None if both is None else each)
        alone = score(known, predicted_alone, kind=kind, rng=_rng(), shares=None if both is None else shares_alone)
        gain = compare(known, predicted, predicted_alone[None], kind=kind, shares=both)
    if kind == "classes":
        evaluation = evaluate_classes(
            known, (predicted, each), by_own_rows, classes=label.classes, threshold=scoring.threshold
        )
        if adjustment is not None:
            recalibrated = evaluate_classes(known, (adjusted, probabilities), classes=label.classes).joint
            evaluation = replace(evaluation, joint=replace(evaluation.joint, calibration=recalibrated.calibration))
    if scoring.importance:
        widths = {column.name: column.width for column in taken.columns}
        importance = measure_importance(opened.predict, np.concatenate(rows), known, widths=widths, kind=kind)
    return replace(
        predictions,
        score=joint,
        local_only=alone,
        gain=gain,
        evaluation=evaluation,
        importance=importance,
        adjustment=adjustment and adjustment.with_coverage(known - predicted),
        n_scored=known.size,
        n_shared=int(Ledger(vault.folder).find_shared(study.digest, scored).sum()),
    )


def _find_labelled(block: EncodedRows) -> npt.NDArray[np.bool_]:
    """Return which rows of a block have a label that can be read."""
    if block.labelled is not None:
        return block.labelled
    return np.full(len(block.rows), block.labels is not None)


def _describe_reading(left_out: RowsLeftOut, unfit: UnfitUse, label: str) -> Reading | None:
    """Return how a table was read; None if all of it fits. Labels need not fit, since rows are predicted without them."""
    problems = [problem for problem in left_out.problems if problem.column != label]
    if not problems:
        return None
    is_reason = {problem: unfit == "leave out" or problem.kind is ProblemKind.LINE_LENGTH for problem in problems}
    reasons, adapted = ([problem for problem in problems if is_reason[problem] is side] for side in (True, False))
    return Reading(left_out.n_rows, tuple(left_out.numbers), left_out.ids, tuple(reasons), tuple(adapted))


def _list_recorded(study: Study, taken: Schema) -> list[str]:
    """Return the study's columns, without its label, that a model reads, in the order of `EncodedRows.values`."""
    names = [*(column.name for column in taken.columns), taken.label.column]
    return [name for name in names if name in {column.name for column in study.columns}]


def _predict_alone(schema: Schema, encoded: EncodedRows, new_rows: Matrix) -> Predicted:
    """Return predictions of `new_rows` by a model that is trained on `encoded` alone."""
    assert encoded.labels is not None
    kind: Kind = "classes" if schema.label.kind == "classes" else "number"
    fitted = train_learner(AUTO, encoded.rows, encoded.labels, kind=kind, seed=0)
    return fitted.predict(new_rows), fitted.probabilities(new_rows, len(schema.label.classes))


def _adjust(
    vault: Vault,
    study: Study,
    opened: Predictor,
    data: TableSource,
    ignore: Collection[str],
    prints: Fingerprinter,
    scored: Words,
) -> Adjustment:
    """Return an adjustment fitted to those labelled rows that, by their fingerprints, were neither shared nor scored."""
    unfit: UnfitUse = "adapt" if exchange_of(study).adapts_rows(study) else "leave out"
    encoded, ledger = read_encoded(opened.schema, data, ignore=tuple(ignore), unfit=unfit), Ledger(vault.folder)
    assert encoded.labels is not None
    label, recorded = opened.schema.label, _list_recorded(study, opened.schema)
    fingerprints = prints.add(encoded.values[:, : len(recorded)])
    left_out = ledger.find_shared(study.digest, fingerprints) | np.isin(fingerprints, scored)
    rows, labels = encoded.rows[~left_out], encoded.labels[~left_out]
    if len(rows) < FEWEST_ROWS:
        got = f"{len(rows)}, besides {left_out.sum()} shared before or among the rows scored"
        raise InputError("rows to calibrate on", expected=f"at least {FEWEST_ROWS}", got=got, cure="Give more rows.")
    values, probabilities = opened.predict(rows)
    is_checked = ledger.entry(study.digest) is not None and len(recorded) == len(study.columns)
    record = AdjustmentRecord(len(rows), int(left_out.sum()), is_checked)
    ends = (label.low, label.high)
    if label.kind == "number":
        return Adjustment(replace(record, radius=conformal_radius(labels.astype(np.float64), values)), ends)
    if probabilities is None:
        problem = "The model predicts classes without probabilities, so there is nothing to recalibrate."
        raise InputError("the model", problem=problem, cure="Leave the calibration out.")
    return Adjustment(record, ends, Recalibration.fit(labels.astype(np.int64), probabilities))


@contextmanager
def fetch_result(address: str | Path, study: Study) -> Iterator[Path]:
    """Yield a local folder with a participant's result: the folder itself, or a temporary copy of what is at a URL.

    In a local folder, only the required file is looked for; of files at a URL, the sizes are checked, too.
    `Exchange.open_result` checks the content. The temporary folder is readable by its owner only, and is removed
    afterwards.
    """
    exchange = exchange_of(study)
    if not is_url(address):
        place, signed = local_path(address), exchange.required_result_file(study)
        if not (place / signed).is_file():
            raise InputError(
                "result",
                expected=f"your own folder of what the analyst delivered, with {signed} in it",
                got="a folder without it" if place.is_dir() else "no folder",
                cure="Give --result results/YOUR-NAME.",
            )
        yield place
        return
    system, root = open_folder(str(address))
    with TemporaryDirectory(prefix="mooring-result-") as name:
        for file, most in exchange.result_files(study).items():
            size = read_size(system, f"{root}/{file}")
            reason = download(
                system, f"{root}/{file}", Path(name) / file, size=size, most_bytes=most, what="the temporary folder"
            )
            is_needed = (
                file == exchange.required_result_file(study) or reason != NOT_THERE
            )  # some results have no model
            if reason is not None and is_needed:
                raise StorageError(
                    "the result",
                    reason=f"{redact_address(address)}/{file} cannot be fetched: {reason}",
                    cure="Check the address (it ends in your name) and your access, or ask the analyst.",
                )
        yield Path(name)


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)  # only for the resampling behind intervals
