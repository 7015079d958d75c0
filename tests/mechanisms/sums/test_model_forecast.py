"""What a model is likely to be worth: on how many rows it is tried, what is invented of them, and what is said of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.mechanisms.sums import model_forecast
from mooring.mechanisms.sums.features.columns import TableFeatures
from mooring.mechanisms.sums.general.features import LevelFeatures
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.mechanisms.sums.model_forecast import (
    ModelCase,
    ModelForecast,
    ModelOutlook,
    forecast_model,
    forecast_on_rows,
)
from mooring.tables.schema import Column, Label, Schema
from tests.record import check_record

RECORD = Path(__file__).parent / "record.json"
COLUMNS = (
    Column("income", "number", 0, 1e5),
    Column("age", "number", 20, 80),
    Column("ward", "category", categories=("a", "b", "c")),
)
LOGS = frozenset({"income"})
LABELS = {
    "two": Label("y", "classes", ("no", "yes")),
    "three": Label("y", "classes", ("low", "middle", "high")),
    "number": Label("y", "number", low=-20, high=60),
}


def make_case(label: str, *, general: bool = False, noise: tuple[float, float] = (2.0, 1.0)) -> ModelCase:
    schema = Schema(COLUMNS, LABELS[label])
    features: Any = TableFeatures(schema, LOGS)
    if general:
        features = LevelFeatures(make_workload(schema, log_scaled=LOGS), schema)
    return ModelCase(features, schema, LOGS, (noise[0], 0.0) if general else noise)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("general", [False, True])
def test_models_of_invented_rows_are_as_on_record(label: str, general: bool) -> None:
    case, rng = make_case(label, general=general), np.random.default_rng(5)
    rows, labels = model_forecast._invent_rows(case, 900, 0.6, rng)
    train, test = slice(0, 300), slice(300, None)
    joint = model_forecast._train_jointly(case, rows[train], labels[train], 900, rng)
    alone = model_forecast._train_alone(case, rows[:80], labels[:80])
    sums = model_forecast._sum_rows(case, rows[train], labels[train], 3.0, rng)
    scores = [judge(rows[test], labels[test]) for judge in (joint, alone)]
    figures = [*scores, np.linalg.norm(sums.products), np.linalg.norm(sums.outcomes), sums.constant_share]
    check_record(RECORD, f"model, {label}, {general}", [*figures, *sums.noise_scales, sums.n_classes, labels[:5]])
    assert (case.metric, case.guessing, case.n_classes) == {
        "two": ("AUC", 0.5, 2), "three": ("AUC", 0.5, 3), "number": ("R²", 0.0, 0)
    }[label]  # fmt: skip


def test_invented_numbers_are_normal_on_their_scale_and_categories_equally_frequent() -> None:
    rows, _ = model_forecast._invent_rows(make_case("two"), 40_000, 0.5, np.random.default_rng(0))
    logs = 2 * np.log1p(9999 * (rows[:, 0] + 1) / 2) / math.log(1e4) - 1
    for places in (logs, rows[:, 1]):
        assert (places.mean(), places.std()) == pytest.approx((0.0, 0.25), abs=0.005)
        assert np.abs(places).max() <= 1 + 1e-9
    assert rows[:, 2:].mean(axis=0) == pytest.approx([1 / 3] * 3, abs=0.01)
    assert (rows[:, 2:].sum(axis=1) == 1).all()


def test_labels_of_one_class_and_sums_that_no_rows_have_leave_guessing() -> None:
    case = make_case("two")
    rows, labels = model_forecast._invent_rows(case, 60, 0.5, np.random.default_rng(0))
    alone = model_forecast._train_alone(case, rows, 0 * labels)
    assert alone(rows, labels) == 0.5
    hopeless = make_case("two", general=True, noise=(1e9, 0.0))
    joint = model_forecast._train_jointly(hopeless, rows, labels, 60, np.random.default_rng(0))
    assert 0.0 <= joint(rows, labels) <= 1.0


@pytest.mark.parametrize(
    ("n_rows", "n_participants", "n_drawn", "n_alone"),
    [(1000, 4, 1000, 250), (50_000, 4, 20_000, 12_500), (100_000, 2, 20_000, 20_000), (3, 4, 8, 2), (11, 4, 11, 2)],
)
def test_a_forecast_draws_the_rows_of_all_and_one_participants_share_of_them(
    n_rows: int, n_participants: int, n_drawn: int, n_alone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model of all scores 0.6, 0.7, 0.8, 0.9 in four draws, and that of one participant 0.6, 0.64, 0.68, 0.72."""
    trained, tested = {"joint": list[int](), "alone": list[int]()}, set[int]()

    def train(which: str, of_draw: Callable[[int], float]) -> Callable[..., Any]:
        def fit(case: object, rows: np.ndarray, labels: np.ndarray, *rest: Any) -> Callable[..., float]:
            trained[which].append(len(rows))
            assert len(labels) == len(rows)
            assert which == "alone" or rest[0] == n_rows
            score = of_draw((len(trained[which]) - 1) % 4)
            return lambda new, truth: tested.add(len(new)) or score

        return fit

    monkeypatch.setattr(model_forecast, "_train_jointly", train("joint", lambda draw: 0.6 + 0.1 * draw))
    monkeypatch.setattr(model_forecast, "_train_alone", train("alone", lambda draw: 0.6 + 0.04 * draw))
    forecast = forecast_model(make_case("two"), n_rows, n_participants)
    assert (set(trained["joint"]), set(trained["alone"]), tested) == ({n_drawn}, {n_alone}, {2000})
    assert [line.relation for line in forecast.lines] == ["weak", "moderate", "strong"]
    for line in forecast.lines:
        assert (line.joint, line.alone, line.gain_error) == pytest.approx((0.75, 0.66, np.std([0, 0.06, 0.12, 0.18])))
        assert (line.guessing, line.least_gains) == (0.5, (0.05, 0.03))
    assert len(trained["joint"]) == 12


@pytest.mark.parametrize("label", ["two", "number"])
def test_a_forecast_from_the_declaration_is_as_on_record(label: str) -> None:
    forecast = forecast_model(make_case(label), 300, 3)
    check_record(RECORD, f"forecast, {label}", [line.as_dict() for line in forecast.lines], abs=2e-3)


@pytest.mark.parametrize("label", ["two", "number"])
def test_a_forecast_from_own_rows_is_as_on_record(label: str) -> None:
    case = make_case(label)
    rows, labels = model_forecast._invent_rows(case, 150, 0.6, np.random.default_rng(1))
    forecast = forecast_on_rows(case, rows, labels, 900)
    assert forecast is not None
    check_record(RECORD, f"forecast on rows, {label}", [line.as_dict() for line in forecast.lines], abs=2e-3)


@pytest.mark.parametrize(
    ("n", "n_test", "n_train"), [(39, 0, 0), (40, 20, 20), (41, 20, 21), (4_001, 2000, 2001), (30_000, 2000, 20_000)]
)
def test_own_rows_are_split_into_those_to_train_on_and_those_to_score(
    n: int, n_test: int, n_train: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Differently in each of four draws; both models are trained on the same rows and scored on all others."""
    trained, tested = list[np.ndarray](), list[np.ndarray]()

    def fit(case: object, rows: np.ndarray, labels: np.ndarray, *rest: Any) -> Callable[..., float]:
        assert (rows[:, 0] == labels + 0.5).all()
        trained.append(labels)
        return lambda new, truth: tested.append(truth) or float((new[:, 0] == truth + 0.5).all())

    monkeypatch.setattr(model_forecast, "_train_jointly", fit)
    monkeypatch.setattr(model_forecast, "_train_alone", fit)
    labels = np.arange(n)
    forecast = forecast_on_rows(make_case("number"), labels[:, None] + 0.5, labels, 10**6)
    assert (forecast is None) == (n < 40)
    if forecast is None:
        return
    assert (forecast.lines[0].joint, forecast.lines[0].alone, len(trained), len(tested)) == (1, 1, 8, 8)
    for train, test in zip(trained, tested, strict=True):
        assert (len(train), len(test), np.unique([*train, *test]).size) == (n_train, n_test, n_train + n_test)
    assert len({tuple(test) for test in tested}) == 4


def test_own_rows_of_one_label_have_no_forecast_and_a_draw_that_leaves_one_is_left_out() -> None:
    case = make_case("two")
    rows, labels = model_forecast._invent_rows(case, 60, 0.5, np.random.default_rng(0))
    assert forecast_on_rows(case, rows, 0 * labels, 900) is None
    assert forecast_on_rows(case, rows, (np.arange(60) == 3).astype(int), 900) is None  # never on both sides
    assert forecast_on_rows(case, rows, (np.arange(60) < 2).astype(int), 900) is not None


@pytest.mark.parametrize(
    ("joint", "alone", "error", "outlook"),
    [
        (0.55, 0.5, 0.0, "better than training alone"),
        (0.5499, 0.4, 0.0, "no better than guessing"),
        (math.nan, 0.4, 0.0, "no better than guessing"),
        (0.75, 0.71, 0.0, "better than training alone"),
        (0.75, 0.725, 0.0, "no better than training alone"),
        (0.75, 0.65, 0.099, "better than training alone"),
        (0.75, 0.65, 0.101, "no better than training alone"),
        (0.75, math.nan, 0.0, "no better than training alone"),
    ],
)
def test_a_model_is_worth_what_it_gains_over_guessing_and_over_training_alone(
    joint: float, alone: float, error: float, outlook: str
) -> None:
    line = ModelOutlook("weak", joint, alone, error, 0.5, (0.05, 0.03))
    other = ModelOutlook("strong", 0.9, 0.6, 0.0, 0.5, (0.05, 0.03))
    assert line.outlook == outlook
    assert ModelForecast("AUC", (other, line, other)).outlook == outlook
    assert ModelForecast("AUC", (line,)).outlook == outlook
    table = ModelForecast("AUC", (line, other)).list_table()
    assert table[1] == ("weakly", outlook, f"{joint:.2f}", f"{alone:.2f}", "0.50")
    assert table[2][0] == "strongly"
