"""A study of several questions: the general total goes through sharing, combining and opening like any sums."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.errors import InputError, RefusedError
from mooring.mechanisms.onnx_export import to_onnx
from mooring.mechanisms.settings import MechanismSettings
from mooring.mechanisms.sums.answers import describe
from mooring.mechanisms.sums.general.layout import PairwiseLayout
from mooring.mechanisms.sums.general.total import PairwiseTotal, sum_exactly
from mooring.mechanisms.sums.guarantee import calibrate_multiplier
from mooring.mechanisms.sums.settings import SumSettings, make_general_workload
from mooring.protocol.analyst.role import Analyst
from mooring.protocol.messages.result import read_delivered_model
from mooring.protocol.messages.study_file import RangeSource
from mooring.protocol.participant.prediction import predict_rows
from mooring.protocol.registry import exchange_of
from mooring.protocol.sums.analyst.total import open_total
from mooring.protocol.sums.analyst.training import SumTraining, train_sums
from mooring.protocol.sums.scheme import sum_scheme
from mooring.tables.schema import Column, Schema
from tests.protocol.sums.support import SumStudy, make_sum_study
from tests.raising import raising
from tests.sites import specifier_of

QUESTIONS = ("model", "tables", "regression")


def open_after(given: SumStudy, **tables: Any) -> PairwiseTotal:
    """The total of everybody's tables."""
    for i in range(len(given.vaults)):
        given.share(i, **({"data": tables["table"](i)} if tables else {}))
    given.close()
    for i in range(len(given.vaults)):
        given.combine(i)
    return open_total(given.study, given.work, given.inbox).pairwise


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_the_total_without_noise_is_that_of_all_rows(kind: str, tmp_path: Path) -> None:
    given = make_sum_study(tmp_path, 3, kind=kind, epsilon=None, questions=QUESTIONS, least_rows=2000)
    total = open_after(given, table=lambda i: given.table(i, 2000))
    parts = [given.rows(i, 2000) for i in range(3)]
    rows, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    exact = sum_exactly(total.workload, rows, labels)
    workload = total.workload
    x0, x1 = workload.number("x0"), workload.number("x1")
    assert total.n_rows == pytest.approx(6000)
    for first, second in ((x0, x0), (x0, x1), (x0, workload.functional("y", np.arange(workload.column("y").n_levels)))):
        matrix = workload.product(first, second)
        # random rounding to 1/512 of a step between nodes: a few parts in ten thousand of 6,000 rows
        slack = 5e-4 * 6000 * np.abs(first.values).max() * np.abs(second.values).max()
        assert abs(total.estimate(matrix) - exact.estimate(matrix)) < slack
    assert (total.epsilon, total.noise_variance) == (None, 0.0)


def test_the_noise_is_that_of_all_listed_contributions(tmp_path: Path) -> None:
    given = make_sum_study(tmp_path, 3, epsilon=2.0, questions=QUESTIONS, n_colluders=1)
    total, scheme = open_after(given), sum_scheme(given.study)
    assert isinstance(scheme.layout, PairwiseLayout)
    sigma = calibrate_multiplier(2.0, 1e-5)
    expected = total.workload.noise_variance(sigma) * Fraction(3, scheme.quorum - 1)
    assert total.noise_variance == pytest.approx(float(expected), rel=1e-6)
    assert (total.epsilon, total.delta, total.unit) == (2.0, 1e-5, "row")
    rng = np.random.default_rng(0)
    drawn = scheme.draw_noise(lambda n: rng.integers(2**64, size=n, dtype=np.uint64))
    unit = total.workload.resolution**2 * np.sqrt(float(expected) / 3)
    assert drawn[1:].std() == pytest.approx(unit / np.sqrt(2), rel=0.2)


def test_a_model_of_the_label_follows_from_the_general_total(tmp_path: Path) -> None:
    given = make_sum_study(tmp_path, 2, epsilon=8.0, questions=QUESTIONS)
    open_after(given, table=lambda i: given.table(i, 1500))
    training = train_sums(given.study, given.work, given.inbox)
    assert training.rows == pytest.approx(3000, abs=100)
    assert training.learner == "discriminant"


def test_a_model_of_any_column_is_trained_delivered_and_used(tmp_path: Path) -> None:
    given = make_sum_study(tmp_path, 2, epsilon=8.0, questions=QUESTIONS)
    open_after(given, table=lambda i: given.table(i, 1500))
    lab = Analyst(given.study, given.work, given.analyst.signing_key)
    training = lab.train(shares=given.inbox, outcome="x0")
    assert isinstance(training, SumTraining)
    assert (training.outcome, training.learner, training.n_classes) == ("x0", "least-squares", 0)
    lab.deliver(tmp_path / "results")
    place: dict[str, Any] = {"result": tmp_path / "results" / "p0"}
    known = predict_rows(given.vaults[0], given.study, given.table(0, 1500), **place)
    assert known.n_shared == 1500
    assert known.score is not None
    new = tmp_path / "new.csv"
    new.write_text("x1\n-50\n50\n")
    assert (np.abs(predict_rows(given.vaults[0], given.study, new, **place).values) <= 100).all()
    assert to_onnx(read_delivered_model(place["result"], given.study, specifier_of(given.study)).model)


@pytest.mark.parametrize(("questions", "outcome"), [(("model",), "x0"), (QUESTIONS, "height")])
def test_an_outcome_that_the_total_does_not_predict_is_refused(
    questions: tuple[str, ...], outcome: str, tmp_path: Path
) -> None:
    given = make_sum_study(tmp_path, 2, questions=questions)
    with pytest.raises(InputError) as caught:
        Analyst(given.study, given.work).train(shares=given.inbox, outcome=outcome)
    assert caught.value.what in ("outcome", "column")


def test_means_of_persons_are_added_and_lose_nothing(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"person": "who", "rows_per_person": "mean", "most_rows": 10**5}
    given = make_sum_study(tmp_path, 2, epsilon=None, questions=QUESTIONS, least_rows=1500, **settings)
    total = open_after(given, table=lambda i: given.table(i, 1500, persons=[k // 300 for k in range(1500)]))
    assert total.n_rows == pytest.approx(10, rel=1e-3)  # five persons of 300 rows at each of two participants


@pytest.mark.parametrize("confirmed", ["", "Dr. Ash: the ranges are public"])
def test_answers_say_where_ranges_from_rows_leave_no_guarantee(confirmed: str, tmp_path: Path) -> None:
    given = make_sum_study(tmp_path, 2, epsilon=8.0, questions=QUESTIONS)
    study = replace(given.study, range_source=RangeSource(("x0",), confirmed))
    open_after(replace(given, study=study))
    total = exchange_of(study).open_total(study, given.work, given.inbox)
    assert bool(describe(total).source.caveat) == (not confirmed)
    assert train_sums(study, given.work, given.inbox).is_guaranteed == bool(confirmed)


def test_a_total_for_one_model_answers_nothing_else(tmp_path: Path) -> None:
    given = make_sum_study(tmp_path, 2, epsilon=1.0)
    with pytest.raises(InputError) as caught:
        open_after(given)
    assert caught.value.what == "questions"


def test_a_total_of_more_rows_than_allowed_is_refused(tmp_path: Path) -> None:
    given = make_sum_study(tmp_path, 2, epsilon=8.0, questions=QUESTIONS, most_rows=100)
    with raising(RefusedError, reason="rows"):
        open_after(given, table=lambda i: given.table(i, 1500))


SURVIVAL = {
    "survival_time": "x0",
    "survival_event": "x1",
    "survival_occurred": "yes",
    "survival_edges": (0.0, 10.0),
}


@pytest.mark.parametrize(
    "settings",
    [
        {"questions": ()},
        {"questions": ("model", "model")},
        {"questions": ("tables",), "features": "fourier"},
        {"questions": ("survival",)},
        {"questions": ("tables",), **SURVIVAL},
        {"questions": ("survival",), **SURVIVAL, "survival_edges": ()},
    ],
)
def test_questions_that_do_not_fit_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        SumSettings(**settings)
    assert caught.value.what == "questions"


def test_questions_are_read_back_from_what_is_written_of_them() -> None:
    settings = SumSettings(questions=("tables", "survival"), **SURVIVAL)
    schema = Schema((Column("x0", "number", 0, 10), Column("x1", "category", categories=("no", "yes"))))
    assert MechanismSettings.read({"name": settings.name, **settings.as_dict()}, schema) == settings


def test_numbers_have_less_noise_on_their_slopes_where_no_model_is_asked() -> None:
    schema = Schema(tuple(Column(f"x{k}", "number", -5, 5) for k in range(3)))
    variances = []
    for questions in (("tables",), ("tables", "model")):
        workload = make_general_workload(SumSettings(questions=questions), schema)
        x, y = workload.number("x0"), workload.number("x1")
        total = PairwiseTotal(workload, np.zeros((workload.size,) * 2), workload.noise_variance(1.0))
        variances.append(total.read(x.vector[None], y.vector[None])[1][0, 0])
    assert variances[0] < 0.7 * variances[1]


@pytest.mark.parametrize("questions", [("model",), QUESTIONS])
def test_the_table_of_sums_lists_every_number_once(questions: tuple[str, ...], tmp_path: Path) -> None:
    given = make_sum_study(tmp_path, 2, questions=questions)
    headings, *lines = exchange_of(given.study).list_shared(given.study)
    numbers = {line[0]: int(line[1].replace(",", "")) for line in lines}
    everything = numbers.pop("all", sum(numbers.values()))
    assert headings[1] == "numbers"
    # seven contrasts of eight nodes and a square, twice, two of three classes, and products of contrasts; or S and T
    assert list(numbers.values()) == ([1, 8, 8, 2, 7 * 7 + 2 * 7 * 2] if questions == QUESTIONS else [6, 9])
    assert everything == sum(numbers.values()) == sum_scheme(given.study).layout.size
    squared = {line[0].partition(":")[0] for line in lines if "squares" in line[0]}
    declared = {column.name for column in given.study.schema.columns if column.kind == "number"}
    assert squared == (declared if questions == QUESTIONS else set())
    weights = [float(line[2]) for line in lines if line[2]]
    assert sum(weights) == pytest.approx(1 if questions == QUESTIONS else 2, abs=0.01)
