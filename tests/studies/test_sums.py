"""The study of secure sums, on scikit-learn's digits and on small made-up files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from mooring_studies.comparison.findings import find, render_findings
from mooring_studies.comparison.results import Results
from mooring_studies.comparison.sums_table import describe_sums, tabulate_answers, tabulate_pictures, tabulate_sums
from mooring_studies.data import tables as tabular_data
from mooring_studies.settings.sections import convert
from mooring_studies.settings.spec import Spec, read_spec
from mooring_studies.storage.store import FACTS, ResultStore
from mooring_studies.summary import joining_pays, sum_columns, summarised
from mooring_studies.tabular import boosting, picture_cases
from mooring_studies.tabular.answers import AnswerCase, answer_jobs, kaplan_meier, load_answers
from mooring_studies.tabular.picture_cases import PictureCase, PictureRows
from mooring_studies.tabular.sum_line import SumRows, measure_general_total, without_colluders_tests
from mooring_studies.tabular.sums import SumCase, SumOptions, load_case, run_sums, split_rows

from mooring.mechanisms.sums import TableFeatures
from mooring.randomness import Streams
from mooring.tables import Column, Records, Schema, encode_table, partition
from tests.studies.support import Counting

N_PATIENTS = 120


@pytest.fixture
def diabetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Encounters of patients, of whom every third has three."""
    names = ["encounter_id", "patient_nbr", *tabular_data._DIABETES_NUMBERS, *tabular_data._DIABETES_CATEGORIES]
    rng, lines = np.random.default_rng(0), [",".join([*names, "readmitted"])]
    for patient in np.repeat(np.arange(N_PATIENTS), np.where(np.arange(N_PATIENTS) % 3 == 0, 3, 1)):
        given = {"patient_nbr": patient, "age": rng.choice(["[0-10)", "[60-70)", "[90-100)"])}
        given |= {f"diag_{k}": rng.choice(["250.83", "414", "V27", "?"]) for k in (1, 2, 3)}
        given |= {name: rng.integers(0, 9) for name in tabular_data._DIABETES_NUMBERS if name != "age"}
        cells = [given.get(name, rng.choice(["No", "Up"])) for name in names]
        lines.append(",".join(map(str, [*cells, rng.choice(["NO", "<30", ">30"])])))
    monkeypatch.setattr(tabular_data, "DIABETES_ROWS", len(lines) - 1)
    (tmp_path / "diabetic_data.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def small_spec(**options: Any) -> Spec:
    spec = read_spec("sums", quick=True)
    return replace(spec, deployments=1, options={**spec.options, "epsilons": ["none", 2.0], **options})


def run(spec: Spec, data_dir: Path, folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any], Counting]:
    progress = Counting()
    with ResultStore(folder, "key", {}) as store:
        run_sums(spec, data_dir=data_dir, store=store, progress=progress)
        return store.rows(), store.kept(FACTS) or {}, progress


def test_digits_need_no_file_and_a_case_without_its_files_is_left_out(tmp_path: Path) -> None:
    digits = small_spec().options["cases"][0]
    absent = {"name": "Adult", "source": "census", "n_participants": 5, "rows_each": 5}
    rows, facts, progress = run(small_spec(cases=[digits, absent]), tmp_path, tmp_path / "store")
    assert {row["case"] for row in rows} == {"digits"}
    assert progress.steps == progress.totals
    assert any("Adult" in note for note in facts["notes"])
    exact, noisy = (row for row in rows if row["method"] == "secure-sum")
    assert "epsilon" not in exact
    assert noisy["epsilon"] == 2
    assert exact["accuracy"] > noisy["accuracy"] > 0.8
    assert exact["membership_tpr"] > 0.9  # by the register of all rows
    assert noisy["membership_tpr_low"] < noisy["membership_limit"] == pytest.approx(0.0739, abs=1e-4)
    again, *_ = run(small_spec(cases=[digits]), tmp_path, tmp_path / "store")
    assert again == rows


def test_answers_of_a_total_are_measured_beside_the_same_rows_without_noise(diabetes: Path, tmp_path: Path) -> None:
    columns = ("age", "time_in_hospital", "metformin", "label")
    case = AnswerCase("Table 1", "table", "diabetes", 4_000, columns, n_participants=4)
    given, streams = load_answers(case, diabetes), Streams(0)
    jobs = answer_jobs(given, ("none", 8.0, 1.0), 1e-5, streams)
    loose, strict = (measure() for _, measure in jobs)
    assert [point["draw"] for point, _ in jobs] == [1, 2]
    assert 0.01 < loose["half_width"] < strict["half_width"] < 0.1
    assert min(loose["coverage"], strict["coverage"]) > 0.7
    assert (loose["n_shown"], loose["n_rows"]) == (loose["n_asked"], 4_000)
    slope = replace(case, question="regression", formula="time_in_hospital ~ age + metformin")
    (_, measure), *_ = answer_jobs(load_answers(slope, diabetes), (8.0,), 1e-5, streams)
    assert 0.9 < measure()["interval_ratio"] < 30
    with ResultStore(tmp_path / "store", "key", {}) as store:
        store.append(
            [{"case": "Table 1", "method": "answer", "deployment": 0, "draw": 2, **part} for part in (loose, strict)]
        )
        rows = store.rows()
    (line,) = tabulate_answers(Results.from_rows([*rows, {**rows[0], "epsilon": 2.0}]))
    assert line["values"][0] == f"{100 * loose['half_width']:.2f}"
    assert line["values"][2] == f"{100 * strict['half_width']:.2f}"


def test_a_curve_of_raw_times_is_that_of_lifelines() -> None:
    from lifelines import KaplanMeierFitter

    rng = np.random.default_rng(0)
    times = np.column_stack([rng.integers(1, 40, 200), rng.integers(2, size=200)]).astype(float)
    ends = [0.5, 5.0, 12.0, 39.0, 60.0]
    curve = KaplanMeierFitter().fit(times[:, 0], times[:, 1]).survival_function_at_times(ends)
    assert kaplan_meier(times, ends) == pytest.approx(curve.to_list())


def test_the_model_of_a_general_total_is_scored_beside_that_of_one_model(diabetes: Path) -> None:
    options = convert(read_spec("sums").options, SumOptions)
    case = SumCase("readmitted", "diabetes", n_participants=4, rows_each=20)
    rows = split_rows(load_case(case, options, diabetes), case, np.random.default_rng(0))
    loose, strict = (
        measure_general_total(rows, epsilon, line=options, streams=Streams(0)) for epsilon in ("none", 1.0)
    )
    assert "epsilon" not in loose
    assert strict["epsilon"] == 1.0
    assert loose["n_features"] == strict["n_features"] > 60
    assert 0 <= loose["auc_clean"] <= 1


@pytest.mark.parametrize(("source", "share"), [("diabetes", 2 / 3), ("diabetes within 30 days", 1 / 3)])
def test_patients_are_dealt_whole_and_each_counts_once(diabetes: Path, source: str, share: float) -> None:
    options = convert(read_spec("sums").options, SumOptions)
    case = SumCase("readmitted", source, n_participants=4, rows_each=20)
    data = load_case(case, options, diabetes)
    assert np.mean(data.records.labels) == pytest.approx(share, abs=0.1)
    case_rows = split_rows(data, case, np.random.default_rng(0))
    owners = [
        set(data.persons[places].tolist()) for places in (*case_rows.rows.train_indices, *case_rows.rows.test_indices)
    ]
    assert sum(map(len, owners)) == len(set.union(*owners))
    assert case_rows.rows_of_person is not None
    for indices, counts in zip(case_rows.rows.train_indices, case_rows.rows_of_person, strict=True):
        assert (1 / counts).sum() == pytest.approx(len(set(data.persons[indices].tolist())))
    assert np.allclose(np.linalg.norm(data.feature_map.apply(case_rows.rows.train[0]), axis=1), 1)


@pytest.mark.parametrize(("p", "left_out"), [(4, True), (5, False)])
def test_rows_of_the_colluders_own_hospital_are_no_candidates(p: int, left_out: bool) -> None:
    case = SumCase("digits", "digits", n_participants=p, rows_each=40)
    rows = split_rows(
        load_case(case, convert(small_spec().options, SumOptions), None), case, np.random.default_rng(0)
    ).rows
    rows_left = without_colluders_tests(rows)
    assert (len(rows_left.test[0]) == 0) is left_out
    assert [len(part) for part in rows_left.test[1:]] == [len(part) for part in rows.test[1:]]


def table_rows() -> SumRows:
    """Rows of a table with each kind of column, in two classes that follow from a number and a word."""
    columns = (
        Column("age", "number", 0, 100, missing="indicate"),
        Column("income", "number", 0, 1000),
        Column("sex", "category", categories=("f", "m"), missing="fill"),
    )
    rng = np.random.default_rng(5)
    age, income, sex = rng.integers(0, 101, 900), rng.integers(0, 1001, 900), rng.choice(["f", "m"], 900)
    labels = (age + 40 * (sex == "f") + rng.normal(0, 10, 900) > 70).astype(np.int64)
    ages = [None if k % 10 == 0 else float(value) for k, value in enumerate(age)]
    rows = encode_table(Schema(columns), pa.table({"age": ages, "income": income.astype(float), "sex": sex}))
    parts = partition(Records(rows=rows, labels=labels), n_participants=5, rows_each=120, rng=rng)
    return SumRows(parts, TableFeatures(Schema(columns), frozenset({"income"})))


def test_columns_of_the_rival_are_those_that_were_declared() -> None:
    given = table_rows()
    assert isinstance(given.feature_map, TableFeatures)
    rows = np.array([[0.5, 0.0, -1.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0, 1.0], [-1.0, 0.0, 0.0, 0.0, 0.0]])
    columns, kinds = boosting.decode_columns(rows, given.feature_map)
    assert kinds == ["continuous", "nominal", "continuous", "nominal"]
    assert columns[:, [0, 1, 3]].tolist() == [[0.5, 0, 0], [0, 1, 1], [-1, 0, -1]]
    assert columns[:, 2] == pytest.approx([-1, 1, 0.85], abs=0.01)  # half of the range, on four decades


def test_the_study_says_where_its_rival_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {"name": "Adult", "source": "census", "n_participants": 5, "rows_each": 5}
    for is_installed in (True, False):
        monkeypatch.setattr(boosting, "is_installed", lambda answer=is_installed: answer)
        assert boosting.has_rival(table_rows()) is is_installed
        _, facts, _ = run(small_spec(cases=[absent]), tmp_path, tmp_path / str(is_installed))
        assert any("install interpret-core" in note for note in facts["notes"]) is not is_installed


def test_the_rival_learns_from_pooled_rows() -> None:
    pytest.importorskip("interpret")
    measured = boosting.measure_boosting(table_rows(), 8.0, delta=1e-5, seed=0)
    assert (measured["epsilon"], measured["n_rows"]) == (8.0, 600)
    assert measured["auc_clean"] > 0.85
    assert 0.5 < boosting.measure_boosting(table_rows(), 0.05, delta=1e-5, seed=0)["auc_clean"] < measured["auc_clean"]


def test_the_rival_has_a_table_of_its_own_beside_sums() -> None:
    rows = sum_rows()
    rival = [
        {"case": "credit default", "n_participants": 50, "rows_each": 50, "deployment": deployment, "method": "dp-ebm"}
        | {"draw": draw, "epsilon": epsilon, "auc_clean": 0.7}
        for deployment in (0, 1)
        for draw, epsilon in enumerate((8.0, 2.0, 1.0), start=1)
    ]
    results = Results.from_rows([*rows, *rival])
    (line,) = tabulate_sums(results)
    assert line["rival"] == ["70.0 ± 0.0"] * 3
    assert sum_columns([line])["DP-EBM of pooled rows, ε = 1"] == ["70.0 ± 0.0"]
    assert find({"sums": results})["rival"] == {"of": 3, "ahead": 1, "n_splits": 2}
    assert "| 68.5 ± 0.7 | 70.0 |" in render_findings({"sums": results})


def sum_rows() -> list[dict[str, Any]]:
    """Two deployments of a case; its noisy models are better than training alone, but for the last."""
    base = {"case": "credit default", "n_participants": 50, "rows_each": 50}
    rows: list[dict[str, Any]] = []
    for deployment in (0, 1):
        row = base | {"deployment": deployment}
        for draw, (epsilon, score) in enumerate([(None, 0.78), (8.0, 0.76), (2.0, 0.74), (1.0, 0.68)]):
            figures = {} if epsilon is None else {"epsilon": epsilon}
            figures |= {"auc_clean": score + 0.01 * deployment, "accuracy": 0.8, "n_features": 120}
            figures |= {
                "membership_tpr": 0.02,
                "membership_tpr_low": 0.01,
                "membership_limit": 0.03,
                "membership_auc": 0.5,
            }
            rows.append(row | {"method": "secure-sum", "draw": draw} | figures)
        rows += [
            row | {"method": "local-only", "draw": 0, "auc_clean": 0.6, "auc_clean:svm": 0.65},
            row | {"method": "local-only-features", "draw": 0, "auc_clean": 0.7, "auc_clean:svm": 0.66},
            row | {"method": "pooled-raw", "draw": 0, "auc_clean": 0.77},
        ]
    return rows


def test_the_table_names_the_better_way_of_training_alone() -> None:
    results = Results.from_rows(sum_rows())
    (line,) = tabulate_sums(results)
    assert line["alone"] == {"columns": "65.0", "features": "70.0"}
    assert line["scores"] == ["78.5 ± 0.7", "76.5 ± 0.7", "74.5 ± 0.7", "68.5 ± 0.7"]
    assert sum_columns([line])["ε = 1"] == ["68.5 ± 0.7"]
    page = render_findings({"sums": results})
    assert "| credit default, 50 × 50 | 70.0 | 77.0 | 78.5 |" in page
    assert "DP-EBM" not in page
    assert summarised(results) == []  # not a study of sizes
    assert joining_pays(results) == (0, 0)


def test_a_line_of_sums_stands_beside_the_other_methods_of_a_study() -> None:
    base = {"deployment": 0, "n_participants": 4, "draw": 0}
    scores = {"local-only": 0.6, "local-only-features": 0.62, "pooled-raw": 0.7, "aa-i-gdp": 0.71}
    rows: list[dict[str, Any]] = [base | {"method": name, "balanced_accuracy_clean": x} for name, x in scores.items()]
    rows[1]["balanced_accuracy_clean:svm"] = 0.65
    assert describe_sums(Results.from_rows(rows)) is None
    for draw, epsilon in enumerate([None, 8.0, 2.0, 1.0]):
        figures = {"balanced_accuracy_clean": 0.9 - 0.05 * draw, "membership_tpr": 0.5 - 0.1 * draw, "n_rows": 4800}
        rows.append(base | {"method": "secure-sum", "draw": draw} | figures | ({"epsilon": epsilon} if epsilon else {}))
    assert describe_sums(Results.from_rows(rows)) == {"alone": "65.0", "without": "90.0", "private": "75.0"}


def test_pictures_have_the_total_that_the_public_rule_gives_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of four classes that differ in their covariance, as features of pictures would be."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, 6000)
    shapes = 0.1 + np.abs(rng.standard_normal((4, 40)))
    features = shapes[codes] * rng.standard_normal((6000, 40))
    features /= np.linalg.norm(features, axis=1, keepdims=True)

    def split(case: PictureCase, streams: Streams) -> tuple[list[np.ndarray], list[np.ndarray]]:
        p = case.n_participants
        return np.array_split(np.arange(5000), p), np.array_split(np.arange(5000, 6000), p)

    made = PictureRows(features, codes, split, {"pictures": "0" * 64})
    monkeypatch.setattr(picture_cases, "load_mnist", lambda data_dir: made)
    digits = small_spec().options["cases"][0]
    cases = [
        {"name": "made", "source": "mnist", "n_participants": 5, "rows_each": 1000, "epsilons": [0.1, 8.0], "deals": 1},
        {"name": "absent", "source": "celeba", "n_participants": 5, "rows_each": 0, "epsilons": [1.0], "deals": 1},
    ]
    rows, facts, progress = run(small_spec(cases=[digits], pictures=cases), tmp_path, tmp_path / "store")
    assert progress.steps == progress.totals
    assert any(note.startswith("absent was left out") for note in facts["notes"])
    results = Results.from_rows(rows)
    few, many = tabulate_pictures(results)
    assert (few["features_by_class"], many["features_by_class"]) == ("one total", "40")
    assert few["ruled"] == few["pooled"]
    assert float(many["ruled"]) > float(many["pooled"]) + 20
    assert [line["case"] for line in tabulate_sums(results)] == ["digits"]
    assert f"| {many['pooled']} ({many['ruled']}) |" in render_findings({"sums": results})
