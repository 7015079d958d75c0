"""One row of a finished study is computed again as it was, alone, and without a trace in the study's folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mooring_studies import rerun, runner
from mooring_studies.comparison.results import decode_rows, write_results
from mooring_studies.rerun import IDENTITY, find_rows, read_choice, rerun_rows, spec_of
from mooring_studies.settings.sections import SumLine
from mooring_studies.settings.spec import STUDIES, Spec, read_spec
from mooring_studies.storage.machine_facts import first_facts
from mooring_studies.storage.store import FACTS, ResultStore
from mooring_studies.tabular import jobs

from mooring.errors import InputError, StorageError
from tests.raising import raising
from tests.studies.support import Counting

Refused = Callable[..., None]
OPTIONS: dict[str, Any] = {
    "rows_each": [20], "n_participants": [2, 3], "most_rows": 1000, "repeated_up_to": 1000, "n_components": 10,
    "n_anchor_rows": 40, "n_public": 200, "n_test": 100, "learners": ["linear"], "anchor_noise": [0.05, 0.2],
    "data_noise": [0.5], "attacks": ["known-anchor", "procrustes"], "n_queries": 20, "alone": 2,
}  # fmt: skip
SUMS = SumLine(epsilons=("none", 1.0), alone=1)
SPEC = Spec(name="landscape", title="", kind="landscape", seed=3, deployments=2, options=OPTIONS, sums=SUMS)
WANTED = {"deployment": 1, "n_participants": 3, "method": "aa-i-gdp-anchor-noise", "draw": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small landscape of scikit-learn's digits, finished."""
    place = tmp_path_factory.mktemp("made") / "landscape"
    facts = first_facts(SPEC)
    with ResultStore(place, facts["key"], facts) as store:
        runner.run_study(SPEC, data_dir=place, store=store, progress=Counting())
        store.finish(facts | (store.kept(FACTS) or {}))
    return place


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def computed(folder: Path, choice: dict[str, Any], data_dir: Path | None = None) -> rerun.Rerun:
    asked = find_rows(folder, "landscape", choice)
    return rerun_rows(asked, data_dir=data_dir or folder, face_model=None, device="cpu", progress=Counting())


def test_a_row_comes_out_as_it_was_and_no_other_is_computed(folder: Path, monkeypatch: Any) -> None:
    before, measured = content(folder), []
    measure = jobs.measured

    def noting(deployment: Any, point: Any, **options: Any) -> dict[str, Any]:
        measured.append((point.method, point.draw))
        return measure(deployment, point, **options)

    monkeypatch.setattr(jobs, "measured", noting)
    result = computed(folder, WANTED)
    assert measured == [("aa-i-gdp-anchor-noise", 1)]
    (row,) = result.rows
    assert row.identity == WANTED | {"rows_each": 20}
    names = [column.column for column in row.columns]
    assert {"balanced_accuracy_clean", "anchor_noise_scale", "error:procrustes", "iterations"} <= set(names)
    assert not set(names) & set(IDENTITY)
    assert all(column.kept == column.again for column in row.columns if column.column != "solver_seconds")
    assert result.n_differing == 0
    assert content(folder) == before
    assert result.kept["key"] == result.now["key"]
    assert result.now["device"] == "cpu"


def test_a_number_that_was_changed_is_found(folder: Path, tmp_path: Path) -> None:
    rows = decode_rows((folder / "results.parquet").read_bytes())
    (place,) = [k for k, row in enumerate(rows) if WANTED.items() <= row.items()]
    rows[place]["balanced_accuracy_clean"] += 0.01
    rows[place]["error:procrustes"] *= 1 + 1e-9
    rows[place]["converged"] = not rows[place]["converged"]
    write_results(rows, tmp_path / "results.parquet")
    (tmp_path / "facts.json").write_bytes((folder / "facts.json").read_bytes())
    result = computed(tmp_path, WANTED, folder)
    assert {column.column for column in result.rows[0].columns if column.differs} == {
        "balanced_accuracy_clean",
        "converged",
    }
    (score,) = [column for column in result.rows[0].columns if column.column == "balanced_accuracy_clean"]
    assert score.difference == pytest.approx(-0.01)


def test_several_rows_may_be_meant_and_one_that_is_computed_no_more_is_told(folder: Path, tmp_path: Path) -> None:
    rows = decode_rows((folder / "results.parquet").read_bytes())
    rows.append(rows[-1] | WANTED | {"draw": 99})
    write_results(rows, tmp_path / "results.parquet")
    (tmp_path / "facts.json").write_bytes((folder / "facts.json").read_bytes())
    result = computed(tmp_path, {name: WANTED[name] for name in ("deployment", "n_participants", "method")}, folder)
    assert {row.identity["draw"]: bool(row.columns) for row in result.rows} == {0: True, 1: True, 99: False}


def test_later_deployments_than_the_rows_are_left_alone(folder: Path, monkeypatch: Any) -> None:
    seen: list[int] = []
    run = runner.run_study
    monkeypatch.setattr(runner, "run_study", lambda spec, **given: seen.append(spec.deployments) or run(spec, **given))
    computed(folder, WANTED | {"deployment": 0})
    assert seen == [1]


def test_other_data_than_the_kept_rows_are_of_are_refused(folder: Path, tmp_path: Path, refused: Refused) -> None:
    for name in ("results.parquet", "facts.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    facts = json.loads((folder / "facts.json").read_text()) | {"rows_from": "MNIST"}
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    refused(lambda: computed(tmp_path, WANTED, folder), what="rows from of this run", expected="MNIST", got="scikit")


@pytest.mark.parametrize(
    ("choice", "nearest"),
    [
        ({"deployment": 1, "method": "aa-i-gdp-anchor-nois", "draw": 1}, "method=aa-i-gdp-anchor-noise,draw=1"),
        ({"deployment": 2, "n_participants": 3, "method": "aa-i-gdp", "draw": 0}, "deployment=1,n_participants=3"),
        ({"method": "aa-i-gdp-anchor-noise", "anchor_noise_scale": 0.06}, "anchor_noise_scale=0.05"),
    ],
)
def test_a_row_that_is_not_there_is_refused_with_the_nearest(choice: Any, nearest: str, folder: Path) -> None:
    with raising(InputError, "row") as problem:
        find_rows(folder, "landscape", choice)
    assert nearest in problem.value.cure.split(";")[0]
    first = problem.value.cure.removeprefix("The nearest: ").split(";")[0]
    assert find_rows(folder, "landscape", read_choice(first)).wanted  # what is offered can be asked for


def test_noise_scales_name_rows_as_well(folder: Path) -> None:
    asked = find_rows(folder, "landscape", read_choice("deployment=0, anchor_noise_scale=0.2"))
    assert {row["draw"] for row in asked.wanted} == {1}
    assert len(asked.wanted) == 2


@pytest.mark.parametrize(
    ("text", "what", "got"),
    [
        ("", "row", "''"), ("draw", "row", "'draw'"), ("draw=", "row", "'draw='"),
        ("drow=1", "a column of row", "'drow'"), ("draw=one", "draw", "'one'"), ("draw=1.5", "draw", "'1.5'"),
        ("anchor_noise_scale=much", "anchor_noise_scale", "'much'"), ("draw=1,draw=2", "draw", "twice"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_read_is_refused(text: str, what: str, got: str) -> None:
    with raising(InputError, what, got=got):
        read_choice(text)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", STUDIES)
def test_settings_come_back_from_the_facts(name: str, quick: bool) -> None:
    spec = read_spec(name, quick=quick, deployments=3)
    back = spec_of({"spec": json.loads(json.dumps(spec.as_dict()))})
    assert back.as_dict() == spec.as_dict()
    assert back.data == spec.data
    assert back.noise == spec.noise


@pytest.mark.parametrize("spec", [None, {}, {"name": "mnist"}, "mnist"])
def test_facts_without_settings_are_refused(spec: Any) -> None:
    with raising(StorageError, "facts.json", cure="0.9"):
        spec_of({"spec": spec, "mooring": "0.9"})


def test_results_of_another_study_are_refused(folder: Path, refused: Refused) -> None:
    refused(lambda: find_rows(folder, "census", WANTED), what="from", expected="census", got="landscape")
