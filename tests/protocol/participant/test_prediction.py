"""What predictions say of themselves: which rows they have, how they were adjusted, and what their scores are worth."""

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from mooring.errors import InputError
from mooring.learners import AUTO, Gain, Score, compare, score, train_learner
from mooring.learners.calibration import Recalibration, conformal_radius
from mooring.learners.evaluation import evaluate_classes, measure_importance
from mooring.protocol.messages.result import Release
from mooring.protocol.messages.study import Study
from mooring.protocol.participant import prediction
from mooring.protocol.participant.prediction import (
    Adjustment,
    AdjustmentRecord,
    Predictions,
    Reading,
    Scoring,
    _describe_reading,
    _find_labelled,
    _list_recorded,
    fetch_result,
    predict_rows,
)
from mooring.protocol.storage.vault import Vault
from mooring.tables.encoder import EncodedRows, RowsLeftOut, read_encoded
from mooring.tables.problems import Problem, ProblemKind
from tests.permissions import has_mode
from tests.raising import numbers_in, raising
from tests.sites import numeric_study

RECORD = AdjustmentRecord(rows=40, left_out=3, checked=True, radius=2.5)
SCORE = Score("R²", 0.8, 0.7, 0.9, 12)


def numbers(*values: float, **rest: Any) -> Predictions:
    return Predictions(np.array(values), (), None, None, None, **rest)


def test_an_interval_has_the_radius_on_both_sides_and_ends_where_the_label_does() -> None:
    adjusted = numbers(1.0, 5.0, 9.0, adjustment=Adjustment(RECORD, (0.0, 10.0)))
    assert adjusted.intervals is not None
    assert adjusted.intervals.tolist() == [[0.0, 3.5], [2.5, 7.5], [6.5, 10.0]]
    assert list(adjusted.as_table()) == ["prediction", "low", "high"]
    assert adjusted.as_table()["high"] == [3.5, 7.5, 10.0]
    without = Adjustment(replace(RECORD, radius=None), (0.0, 10.0))
    assert numbers(1.0).intervals is None
    assert numbers(1.0, adjustment=without).intervals is None


def test_coverage_is_the_share_of_errors_up_to_the_radius() -> None:
    adjustment = Adjustment(RECORD, (0.0, 10.0))
    errors = np.array([-2.5, 2.5, 2.6, -2.6])
    assert adjustment.with_coverage(errors).record.coverage == 0.5
    bare = Adjustment(replace(RECORD, radius=None), (0.0, 0.0))
    assert bare.with_coverage(errors) is bare
    values = np.array([1.0])
    assert adjustment.apply(values, None) == (values, None)
    shares = np.array([[0.6, 0.4]])
    assert adjustment.apply(values, shares)[1] is shares
    fitted = Recalibration.fit(np.arange(40) % 2, np.full((40, 2), [0.9, 0.1]))
    changed, probabilities = Adjustment(RECORD, (0.0, 0.0), fitted).apply(np.array([0]), np.array([[0.9, 0.1]]))
    assert probabilities == pytest.approx(fitted.apply(np.array([[0.9, 0.1]])))
    assert changed.tolist() == fitted.choose(fitted.apply(np.array([[0.9, 0.1]]))).tolist()


@pytest.mark.parametrize(
    ("changes", "figures"),
    [
        ({}, {2.5, 40, 3}),
        ({"coverage": 0.875}, {2.5, 40, 3, 88}),
        ({"left_out": 0}, {2.5, 40}),
        ({"radius": None}, {40, 3}),
        ({"radius": None, "coverage": 0.5, "left_out": 0}, {40}),
    ],
)
def test_an_adjustment_says_by_how_many_rows_and_how_well(changes: dict[str, Any], figures: set[float]) -> None:
    record = replace(RECORD, **changes)
    assert numbers_in(str(record)) == figures
    assert str(record) != str(replace(record, checked=False))


def problem(column: str, n_cells: int, kind: ProblemKind = ProblemKind.NOT_A_NUMBER) -> Problem:
    return Problem(kind, column, "a number", kind.got or "a field too many", "Correct it.", n_cells)


def test_rows_without_a_prediction_and_cells_that_were_adapted_are_counted() -> None:
    assert Reading(9).state() == []
    reading = Reading(9, (2, 5), reasons=(problem("age", 1), problem("", 1), problem("age", 7)))
    (line,) = reading.state()
    assert line.startswith("2 of 9 rows cannot be read and have no prediction: rows 2, 5 (")
    assert line.count("'age'") == 1
    assert "a line has" in line
    (line,) = replace(reading, unread=(2,)).state()
    assert line.startswith("1 of 9 rows cannot be read and has no prediction: row 2 (")
    both = Reading(9, (2,), adapted=(problem("age", 3), problem("sex", 4))).state()
    assert [line.split()[0] for line in both] == ["1", "7"]
    assert "(3); 'sex'" in both[1]
    (one,) = Reading(9, adapted=(problem("age", 1),)).state()
    assert one.startswith("1 cell does ")


def test_a_table_of_predictions_has_all_rows_in_their_order(tmp_path: Path) -> None:
    reading = Reading(5, (2, 5), {2: {"id": "b"}})
    shares = np.array([[0.25, 0.75], [1.0, 0.0], [1 / 3, 2 / 3]])
    predictions = Predictions(
        np.array(["ill", "well", "ill"]),
        ("well", "ill"),
        shares,
        None,
        None,
        ids={"id": ["a", "c", "d"]},
        reading=reading,
    )
    expected = {
        "id": ["a", "b", "c", "d", None],
        "prediction": ["ill", None, "well", "ill", None],
        "probability_well": [0.25, None, 1.0, 0.333333, None],
        "probability_ill": [0.75, None, 0.0, 0.666667, None],
    }
    assert predictions.as_table() == expected
    predictions.write(tmp_path / "p.csv")
    predictions.write(tmp_path / "p.parquet")
    assert pq.read_table(tmp_path / "p.parquet").to_pydict() == expected
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == list(expected)
    assert rows[2] == ["b", "", "", ""]
    assert len(rows) == 6
    assert has_mode(tmp_path / "p.csv", 0o600)
    assert replace(predictions, reading=None).as_table()["id"] == ["a", "c", "d"]
    assert predictions.record.n_unread == 2


@pytest.mark.parametrize(
    ("values", "classes", "only", "chance"),
    [
        (["b", "b", "b"], ("a", "b", "c"), "b", 33.3),
        (["b", "b"], ("a", "b"), "b", 50.0),
        (["b"], ("a", "b"), "", 0),  # one row says nothing
        (["a", "b"], ("a", "b"), "", 0),
        ([1.0, 1.0], (), "", 0),
    ],
)
def test_a_model_that_predicts_one_class_for_every_row_is_said_to_guess(
    values: list[Any], classes: tuple[str, ...], only: str, chance: float
) -> None:
    predictions = Predictions(np.array(values), classes, None, None, None)
    assert predictions.only_class == predictions.record.only_class == only
    sentence = predictions.record.state_only_class()
    assert bool(sentence) == bool(only)
    if only:
        assert {chance, len(values)} <= numbers_in(sentence)
        assert predictions.state_findings() == [sentence]
    assert replace(predictions.record, n_classes=1, only_class="b").state_only_class() == ""
    assert replace(predictions.record, n_classes=2, only_class="b").state_only_class() != ""


def test_rows_that_were_shared_make_a_score_worth_little() -> None:
    gain = Gain("R²", 0.1, 0.05, 0.2, 12)
    scored = replace(numbers(1.0, 2.0), score=SCORE, local_only=SCORE, gain=gain, release=Release(0.25))
    lines = scored.state_findings()
    assert (len(lines), lines[-1]) == (4, gain.sentence())
    assert "25.0%" in lines[0]
    assert len(replace(scored, release=None).state_findings()) == 3
    assert len(replace(scored, gain=None).state_findings()) == 3
    for n, begin in ((1, "1 of these rows was "), (2, "2 of these rows were ")):
        shared = replace(scored, n_shared=n).state_findings()
        assert shared[-1].startswith(begin)
        assert len(shared) == 4
    read = replace(scored, reading=Reading(3, (2,)))
    assert read.state_findings()[1:] == lines
    assert replace(scored, n_scored=2).record.n_scored == 2


@pytest.mark.parametrize(
    ("threshold", "fine"), [(0.0, False), (1e-6, True), (0.999, True), (1.0, False), (-0.1, False)]
)
def test_a_threshold_is_a_probability_between_zero_and_one(threshold: float, fine: bool) -> None:
    if fine:
        shares = np.array([[1 - threshold, threshold], [1 - threshold / 2, threshold / 2]])
        assert Scoring(threshold).apply_threshold((np.array([0, 0]), shares))[0].tolist() == [1, 0]
    else:
        with raising(InputError, "threshold"):
            Scoring(threshold)


def test_what_kept_rows_from_being_read_is_told_apart_from_what_was_adapted() -> None:
    study = numeric_study()
    assert _list_recorded(study, study.schema) == [f"x{k}" for k in range(6)]
    of_cells, of_lines = problem("x1", 2), problem("", 1, ProblemKind.LINE_LENGTH)
    left_out = RowsLeftOut()
    assert _describe_reading(left_out, "adapt", "y") is None
    left_out.problems = (problem("y", 1),)
    assert _describe_reading(left_out, "adapt", "y") is None  # a row without a label is predicted
    left_out.problems = (problem("y", 1), of_cells, of_lines)
    adapted, unread = (_describe_reading(left_out, unfit, "y") for unfit in ("adapt", "leave out"))
    assert adapted is not None
    assert unread is not None
    assert (adapted.reasons, adapted.adapted) == ((of_lines,), (of_cells,))
    assert (unread.reasons, unread.adapted) == ((of_cells, of_lines), ())


def test_rows_are_scored_whose_label_is_known() -> None:
    rows = EncodedRows(np.zeros((3, 1)), None, np.zeros((3, 1)), 1)
    assert _find_labelled(rows).tolist() == [False] * 3
    assert _find_labelled(replace(rows, labels=np.zeros(3))).tolist() == [True] * 3
    some = np.array([True, False, True])
    assert _find_labelled(replace(rows, labels=np.zeros(2), labelled=some)).tolist() == some.tolist()


def test_a_folder_without_the_file_of_the_mechanism_is_no_result(tmp_path: Path) -> None:
    study = numeric_study()
    for place, got in ((tmp_path, "a folder without it"), (tmp_path / "none", "no folder")):
        with raising(InputError, "result", got=got), fetch_result(place, study):
            pass
    (tmp_path / "map.safetensors").write_bytes(b"")
    with fetch_result(tmp_path, study) as folder:
        assert folder == tmp_path


class Plain:
    """A delivered model that finds the second class, or a number, in the first column."""

    release, model_digest = None, "a"

    def __init__(self, study: Study) -> None:
        self.schema = study.schema

    def predict(self, rows: np.ndarray) -> Any:
        if self.schema.label.kind == "number":
            return 10 * rows[:, 0], None
        sure = (1 + rows[:, 0]) / 2
        return (sure >= 0.5).astype(np.int64), np.column_stack([1 - sure, sure])


@dataclass
class Ward:
    """A participant's vault, the tables in its folder, and a model that was delivered to it."""

    vault: Vault
    study: Study

    def table(self, name: str, n: int, *further: str) -> tuple[Path, np.ndarray, np.ndarray]:
        """Write a table of n labelled rows and further lines, and return its path, rows and labels."""
        rng = np.random.default_rng(len(name))
        rows = rng.uniform(-1, 1, (n, 2)).round(3)
        noisy = rows[:, 0] + 0.5 * rng.standard_normal(n)
        classes = self.study.label.classes
        labels = np.array([classes[int(x > 0)] for x in noisy]) if classes else (10 * noisy).round(3)
        lines = [f"{a},{b},{label}" for (a, b), label in zip(rows, labels, strict=True)]
        path = self.vault.folder.parent / f"{name}.csv"
        path.write_text("\n".join(["x0,x1,y", *lines, *further]) + "\n")
        codes = np.array([classes.index(label) for label in labels]) if classes else labels
        return path, rows, codes

    def predict(self, path: Path, **options: Any) -> Predictions:
        return predict_rows(self.vault, self.study, path, result=path.parent, **options)


@pytest.fixture
def ward(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ward:
    study = numeric_study(h=2, r=8, kind=getattr(request, "param", "classes"))
    exchange = SimpleNamespace(
        open_result=lambda _, study, __: Plain(study), adapts_rows=lambda _: False, person_column=lambda _: ""
    )
    monkeypatch.setattr(prediction, "exchange_of", lambda _: exchange)
    return Ward(Vault.create(tmp_path / "vault"), study)


@pytest.mark.parametrize("ward", ["classes", "number"], indirect=True)
def test_new_rows_are_scored_with_a_label_beside_a_model_of_the_own_rows_on_the_same_rows(ward: Ward) -> None:
    """The same rows have the same intervals each time: what is drawn for them does not change."""
    kind, schema = ward.study.label.kind, ward.study.schema
    path, rows, truth = ward.table("new", 24, "0.5,0.5,", "7,0.5,")
    own, *_ = ward.table("shared", 30)
    model, new_rows = Plain(ward.study), np.vstack([rows, [0.5, 0.5]])
    predictions = ward.predict(path, own_rows=own, scoring=Scoring(importance=True))
    values, shares = model.predict(new_rows)
    named = values if kind == "number" else np.array(["well", "ill"])[values]
    assert np.array_equal(predictions.values, named)
    assert predictions.reading is not None
    assert (predictions.reading.unread, predictions.n_scored, predictions.n_shared) == ((26,), 24, 0)
    encoded = read_encoded(schema, own)
    assert encoded.labels is not None
    fitted = train_learner(AUTO, encoded.rows, encoded.labels, kind=kind, seed=0)
    known = values[:24], None if shares is None else shares[:24]
    alone = fitted.predict(rows), fitted.probabilities(rows, len(schema.label.classes))
    for (predicted, of_each), found in ((known, predictions.score), (alone, predictions.local_only)):
        assert found == score(truth, predicted, kind=kind, rng=np.random.default_rng(0), shares=of_each)
    both = None if known[1] is None or alone[1] is None else (known[1], alone[1][None])
    assert predictions.gain == compare(truth, known[0], alone[0][None], kind=kind, shares=both)
    widths = {"x0": 1, "x1": 1}
    assert predictions.importance == measure_importance(model.predict, rows, truth, widths=widths, kind=kind)
    expected = evaluate_classes(truth, known, alone, classes=schema.label.classes) if kind == "classes" else None
    assert predictions.evaluation == expected
    bare = ward.predict(path)
    assert (bare.score, bare.local_only, bare.gain, bare.importance) == (predictions.score, None, None, None)
    unread = ward.predict(path, ignore=("y",))
    assert (unread.score, unread.n_scored, unread.evaluation) == (None, 0, None)
    assert np.array_equal(unread.values, named)


def test_predictions_stand_beside_the_ids_and_persons_of_their_rows(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column of persons is read where the study has one, although its model does not take it."""
    monkeypatch.setattr(prediction.exchange_of(ward.study), "person_column", lambda _: "who")
    path, *_ = ward.table("new", 3)
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([f"{header},who", *(f"{line},p{k}" for k, line in enumerate(lines))]) + "\n")
    assert ward.predict(path).ids == {"who": ["p0", "p1", "p2"]}
    assert ward.predict(path, ignore=("who",)).ids == {}
    ward.study = replace(ward.study, ids=("who",))
    assert ward.predict(path).as_table()["who"] == ["p0", "p1", "p2"]


def test_a_table_without_a_row_that_can_be_read_is_refused_for_its_first_problem(ward: Ward) -> None:
    for lines, what in (((), "data file"), (("7,0.5,ill",), "row 1, column 'x0'")):
        path, *_ = ward.table("new", 0, *lines)
        with raising(InputError, what):
            ward.predict(path)


@pytest.mark.parametrize("ward", ["number"], indirect=True)
def test_intervals_follow_from_twenty_labelled_rows_that_were_not_scored(ward: Ward) -> None:
    path, rows, truth = ward.table("new", 24)
    scored = path.read_text().splitlines()[1:]
    for n, fine in ((20, True), (19, False)):
        held_out, others, labels = ward.table("beside", n, *scored[:3], "7,0.5,1")
        if not fine:
            with raising(InputError, "rows to calibrate on", expected="20", got="19, besides 3"):
                ward.predict(path, scoring=Scoring(held_out=held_out))
            continue
        adjustment = ward.predict(path, scoring=Scoring(held_out=held_out)).adjustment
        assert adjustment is not None
        radius = conformal_radius(labels, 10 * others[:, 0])
        covered = float((np.abs(truth - 10 * rows[:, 0]) <= radius).mean())
        assert adjustment.record == AdjustmentRecord(20, 3, checked=False, radius=radius, coverage=covered)
        assert adjustment.label_range == (-1000, 1000)


def test_classes_are_recalibrated_by_rows_that_were_not_scored_and_chosen_by_the_threshold(ward: Ward) -> None:
    path, rows, truth = ward.table("new", 24)
    held_out, others, labels = ward.table("beside", 40)
    model = Plain(ward.study)
    fitted = Recalibration.fit(labels, model.predict(others)[1])
    shares = fitted.apply(model.predict(rows)[1])
    adjusted = ward.predict(path, scoring=Scoring(held_out=held_out))
    assert adjusted.probabilities == pytest.approx(shares)
    assert adjusted.values.tolist() == np.array(["well", "ill"])[fitted.choose(shares)].tolist()
    assert adjusted.score == ward.predict(path).score  # which is of the model as it was delivered
    assert adjusted.n_scored == truth.size
    by_threshold = ward.predict(path, scoring=Scoring(0.2, held_out=held_out))
    assert by_threshold.values.tolist() == np.array(["well", "ill"])[(shares[:, 1] >= 0.2).astype(int)].tolist()
    assert by_threshold.evaluation is not None
    assert by_threshold.evaluation.threshold == 0.2
