"""A study is forecast from its declaration, the expected rows and its noise; rows of a participant decide nothing."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.audit import simulate_general_total
from mooring.errors import InputError
from mooring.mechanisms.sums.answers.forecast import find_most_columns, forecast_answers
from mooring.mechanisms.sums.features.columns import RowFeatures, TableFeatures
from mooring.mechanisms.sums.guarantee import calibrate_sums
from mooring.mechanisms.sums.model_forecast import (
    OWN_ROWS,
    ModelCase,
    ModelForecast,
    ModelOutlook,
    _invent_rows,
    _sum_rows,
)
from mooring.mechanisms.sums.settings import SumSettings, make_features, make_layout
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.role import Participant
from mooring.protocol.sums.forecast import _expect_privacy, _find_noise, _state_model, forecast_sums
from mooring.protocol.sums.participant.inspection import conclude
from mooring.protocol.sums.scheme import sum_settings
from mooring.tables.encoder import EncodedRows
from mooring.tables.schema import Column, Label, Schema
from tests.protocol.sums.support import make_sum_study

LEVELS = (2, 2, 2, 3, 3, 4, 4, 4, 5, 5, 5, 6, 8, 9, 12, 20)
HOSPITAL = (
    *(Column(f"number {k}", "number", 0.0, 100.0) for k in range(8)),
    *(Column(f"code {k}", "category", categories=tuple(f"c{i}" for i in range(n))) for k, n in enumerate(LEVELS)),
)
"""Columns like those of the hospitals' diabetes table."""
THREE, TWO = Label("readmitted", "classes", ("no", "late", "early")), Label("readmitted", "classes", ("no", "yes"))
SURVIVAL: dict[str, Any] = {
    "survival_time": "number 0",
    "survival_event": "code 0",
    "survival_occurred": "c1",
    "survival_edges": (0.0, 20.0, 40.0),
}


def draft(columns: tuple[Column, ...] = HOSPITAL, label: Label = THREE, **settings: Any) -> Study:
    return Study("forecast", "0123456789abcdef" * 2, columns, label, SumSettings(**settings))


def outlooks(study: Study, **options: Any) -> dict[str, bool]:
    forecast = forecast_sums(study, **options)
    assert forecast is not None
    return {outlook.question: outlook.is_useful for outlook in forecast.outlooks}


def test_four_clinics_with_6002_rows_of_three_classes_are_warned_that_joining_gives_nothing() -> None:
    study = draft(expected_rows=6002, epsilon=1.0)
    forecast = forecast_sums(study, n_participants=4)
    assert forecast is not None
    assert not forecast.is_advised
    assert "no better than training alone" in forecast.tables["Model"][2]


def test_a_forecast_says_that_it_assumes_participants_before_anybody_has_joined() -> None:
    study = draft(expected_rows=6002, epsilon=1.0)
    assumed, given = forecast_sums(study), forecast_sums(study, n_participants=4)
    assert assumed is not None
    assert given is not None
    assert f"{assumed.n_participants} participants are assumed" in assumed.assumed[0]
    assert not any("participants are assumed" in sentence for sentence in given.assumed)


@pytest.mark.parametrize(("n_colluders", "n_participants"), [(1, 5), (4, 5), (5, 6), (7, 8)])
def test_as_many_participants_are_assumed_as_leave_an_honest_one_and_five_at_least(
    n_colluders: int, n_participants: int
) -> None:
    forecast = forecast_sums(draft(HOSPITAL[:3], TWO, n_colluders=n_colluders, expected_rows=2000))
    assert forecast is not None
    assert forecast.n_participants == n_participants


def test_many_small_participants_are_told_that_joining_pays() -> None:
    assert outlooks(draft(label=TWO, expected_rows=5_000), n_participants=50) == {"model": True}


def test_a_model_of_few_rows_under_much_noise_is_said_to_be_no_better_than_guessing() -> None:
    forecast = forecast_sums(draft(epsilon=0.1), n_rows=500, n_participants=4)
    assert forecast is not None
    assert {line[1] for line in forecast.tables["Model"][1:]} == {"no better than guessing"}


@pytest.mark.parametrize("questions", [("model",), ("model", "tables")])
def test_without_noise_and_with_many_rows_a_model_reaches_what_the_assumption_allows(questions: Any) -> None:
    study = draft(HOSPITAL[:4], TWO, epsilon=None, questions=questions)
    forecast = forecast_sums(study, n_rows=8_000)
    assert forecast is not None
    reached = [float(line[2]) for line in forecast.tables["Model"][1:]]
    assert reached == pytest.approx([0.63, 0.73, 0.83], abs=0.03)


def test_answers_are_forecast_with_what_would_do_where_they_are_refused() -> None:
    study = draft(label=Label(), questions=("tables", "regression", "survival"), **SURVIVAL)
    assert outlooks(study, n_rows=100_000) == {"tables": True, "regression": True, "survival": True}
    few = forecast_sums(study, n_rows=150)
    assert few is not None
    (refused,) = [outlook for outlook in few.outlooks if outlook.question == "regression"]
    assert not refused.is_useful
    (line,) = [cells for cells in few.tables["Answers"] if cells[0].startswith("regression")]
    assert line[1].startswith("refused; from about")
    assert line[1].split()[3] in refused.words


def test_answers_are_forecast_of_the_studys_noise_and_of_the_rows_that_are_kept() -> None:
    study = draft(HOSPITAL[:3], TWO, questions=("tables", "regression"), kept_share=0.25, epsilon=0.5)
    layout: Any = make_layout(sum_settings(study), study.schema, make_features(sum_settings(study), study.schema, ()))
    variance = _find_noise(study, layout, 5)[0] ** 2
    for n_rows in (2_000, 80_000):
        forecast = forecast_sums(study, n_rows=n_rows)
        assert forecast is not None
        expected = forecast_answers(layout.workload, variance, n_rows // 4)
        assert [list(line) for line in forecast.tables["Answers"]] == [list(line) for line in expected.list_table()]
        for outlook in forecast.outlooks:
            most = find_most_columns(layout.workload, variance, n_rows // 4, outlook.question)
            assert (f"at most {most} columns" in outlook.words) == (not outlook.is_useful and most > 0)


def test_answers_of_everybodys_rows_are_forecast_as_if_there_were_more_rows_like_ones_own() -> None:
    study = draft(HOSPITAL[:3], TWO, questions=("tables",))
    rows = np.random.default_rng(0).uniform(-1, 1, (100, 3))
    tables = []
    for copies in (1, 10):
        many = np.tile(rows, (copies, 1))
        forecast = forecast_sums(study, n_rows=1000, encoded=EncodedRows(many, np.arange(len(many)) % 2, many, 1))
        assert forecast is not None
        assert forecast.n_rows == 1000
        tables.append(forecast.tables["Answers"])
    assert tables[0] == tables[1] != forecast_sums(study, n_rows=1000).tables["Answers"]  # type: ignore[union-attr]
    nobody = EncodedRows(rows[:0], np.zeros(0, dtype=np.int64), rows[:0], 1)
    of_nobody = forecast_sums(study, n_rows=1000, encoded=nobody)
    assert of_nobody is not None
    assert of_nobody.tables["Answers"] == forecast_sums(study, n_rows=1000).tables["Answers"]  # type: ignore[union-attr]
    unlabelled = EncodedRows(rows, None, rows, 1)
    of_no_labels = forecast_sums(draft(HOSPITAL[:3], TWO), n_rows=1000, encoded=unlabelled)
    assert of_no_labels is None


def test_a_model_of_an_eighth_of_the_rows_is_forecast_as_one_of_so_many_rows() -> None:
    kept = forecast_sums(draft(HOSPITAL[:3], TWO, epsilon=None, kept_share=0.125), n_rows=4000)
    fewer = forecast_sums(draft(HOSPITAL[:3], TWO, epsilon=None), n_rows=500)
    assert kept is not None
    assert fewer is not None
    assert kept.tables["Model"] == fewer.tables["Model"]


GOOD, POOR = (0.9, 0.6), (0.5, 0.4)  # what a model of all rows scores, and one of a participant's rows


@pytest.mark.parametrize(
    ("scores", "useful", "n_unless"),
    [((GOOD, GOOD, GOOD), True, 0), ((POOR, GOOD, POOR), True, 2), ((POOR, POOR, GOOD), False, 1)],
)
def test_the_moderate_case_is_stated_with_those_of_the_others_that_differ(
    scores: tuple[tuple[float, float], ...], useful: bool, n_unless: int
) -> None:
    relations = zip(("weak", "moderate", "strong"), scores, strict=True)
    lines = tuple(ModelOutlook(relation, *pair, 0.01, 0.5, (0.05, 0.03)) for relation, pair in relations)
    stated = _state_model(draft(HOSPITAL[:3], TWO), ModelForecast("AUC", lines))
    assert (stated.is_useful, stated.words.count("if they tell")) == (useful, n_unless)
    assert {float(number) for number in re.findall(r"0\.\d+", stated.words)} == {*scores[1], 0.5}


@pytest.mark.parametrize(("pair", "useful"), [(GOOD, True), (POOR, False)])
def test_a_model_of_rows_like_ones_own_is_stated_with_its_scores(pair: tuple[float, float], useful: bool) -> None:
    line = ModelOutlook(OWN_ROWS, *pair, 0.01, 0.5, (0.05, 0.03))
    stated = _state_model(draft(HOSPITAL[:3], TWO), ModelForecast("AUC", (line,)))
    assert stated.is_useful == useful
    assert {float(number) for number in re.findall(r"0\.\d+", stated.words)} == {*pair, 0.5}


def test_nothing_is_forecast_without_a_number_of_rows_and_fewer_participants_than_colluders_are_refused() -> None:
    assert forecast_sums(draft()) is None
    for n_participants in (3, 5):
        with pytest.raises(InputError) as caught:
            forecast_sums(draft(n_colluders=5), n_rows=1000, n_participants=n_participants)
        assert caught.value.what == "participants"


def test_pictures_have_no_forecast() -> None:
    pixels = tuple(Column(f"x{k}", "number", 0.0, 1.0) for k in range(64))
    study = Study("p", "0123456789abcdef" * 2, pixels, THREE, SumSettings(features="pictures"), image_shape=(8, 8))
    assert forecast_sums(study, n_rows=100_000) is None


def test_the_number_of_expected_rows_is_in_a_study_only_where_it_is_stated() -> None:
    assert "expected_rows" not in draft().as_dict()["mechanism"]
    stated = draft(expected_rows=6002)
    assert Study.from_dict(stated.as_dict()) == stated
    with pytest.raises(InputError) as caught:
        draft(expected_rows=-1)
    assert caught.value.what == "expected_rows"


def test_rows_that_tell_nothing_of_their_label_are_said_to_give_nothing_and_rows_that_tell_much_are_not() -> None:
    study = draft(HOSPITAL[:3], TWO, epsilon=8.0)
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (400, 3))
    for labels, useful in ((rng.integers(2, size=400), False), ((rows.sum(axis=1) > 0).astype(int), None)):
        forecast = forecast_sums(study, n_rows=4000, encoded=EncodedRows(rows, labels, None, rows))
        assert forecast is not None
        assert forecast.from_rows
        (line,) = forecast.tables["Model"][1:]
        assert (float(line[2]) > 0.9) == (useful is None)
        assert (float(line[3]) > 0.9) == (useful is None)  # whoever has such rows needs nobody else
        assert (line[1] == "no better than guessing") == (useful is False)


@pytest.mark.parametrize("n_participants", [2, 5])
def test_the_noise_of_a_general_total_is_forecast_as_it_is_added(n_participants: int) -> None:
    study, rng = draft(HOSPITAL[:3], TWO, questions=("model", "tables")), np.random.default_rng(0)
    settings: Any = study.mechanism
    features: Any = make_features(settings, study.schema, None)
    layout: Any = make_layout(settings, study.schema, features)
    rows, labels = [rng.uniform(-1, 1, (20, 3))] * n_participants, [np.arange(20) % 2] * n_participants
    privacy = _expect_privacy(settings, n_participants)
    total = simulate_general_total(rows, labels, features=features, privacy=privacy, rng=rng).total
    found = _find_noise(study, layout, n_participants)
    assert (found[0] ** 2, found[1]) == (pytest.approx(total.noise_variance), 0.0)


@pytest.mark.parametrize(("n_participants", "quorum"), [(6, 4), (5, 4), (3, 3)])
def test_the_noise_of_a_complete_study_is_that_of_its_quorum_and_of_as_many_as_are_asked_for(
    n_participants: int, quorum: int, tmp_path: Path
) -> None:
    """There are six participants; three cannot be a quorum of four, and are taken for all participants."""
    study = make_sum_study(tmp_path, 6, quorum=4, threshold=6, epsilon=2.0).study
    layout: Any = make_layout(sum_settings(study), study.schema, make_features(sum_settings(study), study.schema, ()))
    noise = calibrate_sums(layout, sum_settings(study).privacy(quorum=quorum))
    assert _find_noise(study, layout, n_participants) == pytest.approx(noise.scales(layout, n_participants))


@pytest.mark.parametrize("correlation", [0.3, 0.7])
def test_invented_labels_follow_the_columns_as_strongly_as_is_assumed(correlation: float) -> None:
    """Numbers lie about the middle of their range, an eighth of it apart; classes have equal shares."""
    columns, number = HOSPITAL[:3], Label("y", "number", low=20.0, high=100.0)
    for label in (number, THREE):
        schema, rng = Schema(columns, label), np.random.default_rng(0)
        case = ModelCase(TableFeatures(schema), schema, frozenset(), (0.0, 0.0))
        rows, labels = _invent_rows(case, 50_000, correlation, rng)
        assert np.abs(rows).max() <= 1
        if label is THREE:
            assert np.bincount(labels) / len(labels) == pytest.approx(np.full(3, 1 / 3), abs=1e-4)
            continue
        assert (labels.mean(), labels.std()) == pytest.approx((60.0, 10.0), rel=0.01)
        design = np.column_stack([rows, np.ones(len(rows))])
        fitted = design @ np.linalg.lstsq(design, labels, rcond=None)[0]
        assert np.corrcoef(fitted, labels)[0, 1] == pytest.approx(correlation, abs=0.02)


@pytest.mark.parametrize(("n_features", "fine"), [(1500, True), (1501, False)])
def test_a_model_of_up_to_1500_features_is_forecast(n_features: int, fine: bool) -> None:
    case = ModelCase(RowFeatures(n_features - 1), Schema(HOSPITAL, THREE), frozenset(), (0.0, 0.0))
    assert case.features.n_features == n_features
    assert case.can_be_forecast == fine


def test_the_noise_of_a_forecast_is_that_of_the_sums() -> None:
    """Off the diagonal, an entry of S has half the variance: a vector of S has each of them once, times √2."""
    schema = Schema(HOSPITAL, THREE)
    features, rng = TableFeatures(schema), np.random.default_rng(0)
    rows, labels = np.zeros((3, schema.n_features)), np.arange(3)
    without, noisy = (
        _sum_rows(ModelCase(features, schema, frozenset(), noise), rows, labels, 2.0, rng)
        for noise in ((0.0, 0.0), (5.0, 0.1))
    )
    S, T = noisy.products - without.products, noisy.outcomes - without.outcomes
    assert np.array_equal(S, S.T)
    n = features.n_features
    for part, scale in ((np.diag(S), 5.0), (S[np.triu_indices(n, 1)], 5 / np.sqrt(2)), (T.ravel(), 0.1)):
        assert part.std() == pytest.approx(scale, rel=5 / np.sqrt(2 * part.size))


@pytest.mark.parametrize(("n_rows", "n_trained"), [(100, 50), (5000, 3000), (25_000, 20_000)])
def test_all_rows_that_do_not_test_a_model_train_it_up_to_20_000(
    n_rows: int, n_trained: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, tested = list[int](), list[int]()

    def train(case: object, rows: np.ndarray, *_: object) -> Callable[..., float]:
        trained.append(len(rows))
        return lambda new, truth: tested.append(len(new)) or 0.7

    monkeypatch.setattr("mooring.mechanisms.sums.model_forecast._train_jointly", train)
    monkeypatch.setattr("mooring.mechanisms.sums.model_forecast._train_alone", train)
    rows, labels = np.zeros((n_rows, 3)), np.arange(n_rows) % 2
    encoded = EncodedRows(rows, labels, None, rows)
    assert forecast_sums(draft(HOSPITAL[:3], TWO), n_rows=n_rows, encoded=encoded) is not None
    assert set(trained) == {n_trained}
    assert set(tested) == {min(2000, n_rows - n_trained)}


@pytest.mark.parametrize(("n_rows", "n_classes"), [(39, 2), (40, 1)])
def test_too_few_rows_or_rows_of_one_class_are_no_sample_of_everybodys(n_rows: int, n_classes: int) -> None:
    study, rows = draft(HOSPITAL[:3], TWO), np.random.default_rng(0).uniform(-1, 1, (n_rows, 3))
    labels = np.arange(n_rows) % n_classes
    assert forecast_sums(study, n_rows=4000, encoded=EncodedRows(rows, labels, None, rows)) is None


def test_a_study_without_epsilon_is_forecast_without_noise_however_few_rows_there_are() -> None:
    rows = np.random.default_rng(0).uniform(-1, 1, (40, 3))
    encoded = EncodedRows(rows, (rows.sum(axis=1) > 0).astype(int), None, rows)
    forecast = forecast_sums(draft(HOSPITAL[:3], TWO, epsilon=None), n_rows=40, encoded=encoded)
    assert forecast is not None
    (line,) = forecast.tables["Model"][1:]
    assert float(line[2]) > 0.9  # noise with a standard deviation of one row would make it 0.82


def test_the_declaration_decides_and_a_participants_own_rows_do_not(tmp_path: Path) -> None:
    given = make_sum_study(tmp_path, 4, expected_rows=40, epsilon=0.2)
    inspection = Participant(given.study, given.vaults[0]).check(given.table(0, 200))
    assert inspection.forecast is not None
    assert inspection.own_forecast is not None
    assert inspection.decision is not None
    assert not inspection.forecast.is_advised
    assert inspection.decision.answer == "do not share"
    advised = replace(inspection.forecast, outlooks=(replace(inspection.forecast.outlooks[0], is_useful=True),))
    for forecast in (None, inspection.own_forecast):
        decided = conclude(given.study, replace(inspection, forecast=advised, own_forecast=forecast)).decision
        assert decided is not None
        assert decided.answer == "share"


def test_a_forecast_is_kept_with_the_check_and_read_back(tmp_path: Path) -> None:
    forecast = forecast_sums(draft(HOSPITAL[:2], TWO), n_rows=2000)
    assert forecast is not None
    assert type(forecast).from_json(forecast.to_json()) == forecast


CODES = HOSPITAL[11:14]  # of three and four words


@pytest.mark.parametrize(
    ("columns", "settings"),
    [
        (CODES, {}),
        (HOSPITAL[:1], {}),
        ((HOSPITAL[0], *CODES), {"log_scaled": ("number 0",)}),
        ((HOSPITAL[0], HOSPITAL[8], *CODES), {"questions": ("regression", "survival"), **SURVIVAL}),
    ],
    ids=["no number and no two words", "one column", "a logarithm of zero", "survival alone"],
)
def test_a_regression_needs_an_outcome_and_another_column(columns: tuple[Column, ...], settings: Any) -> None:
    asked = {"questions": ("regression",), **settings}
    with pytest.raises(InputError) as caught:
        draft(columns, Label(), **asked)
    assert caught.value.what == "questions"
    draft((*columns, HOSPITAL[1], HOSPITAL[9]), Label(), **asked)
    draft(columns, Label(), **asked | {"questions": tuple({*asked["questions"], "tables"} - {"regression"})})
