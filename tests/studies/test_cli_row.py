"""`mooring reproduce --row`: one row of a finished study again, beside the kept one."""

import json
from pathlib import Path
from typing import Any

import pytest
from mooring_studies import runner
from mooring_studies.comparison.results import write_results
from mooring_studies.settings.spec import read_spec

from tests import commands
from tests.commands import flat

ROW = "deployment=0,method=aa-i-gdp-anchor-noise,draw=1"
SPEC = read_spec("mnist", quick=True, draws=2, deployments=2)


def made(method: str, draw: int, score: float) -> dict[str, Any]:
    first = {"deployment": 0, "n_participants": 10, "method": method, "draw": draw, "anchor_noise_scale": 0.1 * draw}
    return first | {"balanced_accuracy": score, "converged": True, "solver_seconds": 0.1}


class FakeStudy:
    """Stands in for `run_study`: makes what the store lacks, a little better than before."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.problem: BaseException | None = None

    def __call__(self, spec: Any, *, store: Any, progress: Any, **given: Any) -> None:
        self.given = given | {"spec": spec, "rows": store.rows()}
        if self.problem:
            raise self.problem
        progress.stage("all", 4)
        for method in ("i-gdp", "aa-i-gdp-anchor-noise"):
            done = store.done(method=method, deployment=0, identities_each=None)
            store.append([made(method, draw, 0.75) | {"solver_seconds": 9.0} for draw in range(2) if draw not in done])


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> FakeStudy:
    fake = FakeStudy()
    monkeypatch.setattr(runner, "run_study", fake)
    return fake


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """The folder of a finished study, as it may be published: a table and facts."""
    folder = tmp_path / "out" / "mnist"
    folder.mkdir(parents=True)
    rows = [made(method, draw, 0.5) for method in ("i-gdp", "aa-i-gdp-anchor-noise") for draw in range(2)]
    write_results(rows, folder / "results.parquet")
    facts = {"study": "mnist", "spec": SPEC.as_dict(), "key": "kept-key", "code_digest": "kept-code", "date": "then"}
    (folder / "facts.json").write_text(json.dumps(facts))
    return folder


def run(*words: Any, code: int = 0, what: str = "") -> Any:
    return commands.run("reproduce", "mnist", "--device", "cpu", *words, code=code, what=what)


def test_kept_and_new_stand_side_by_side_and_the_folder_is_as_it_was(study: FakeStudy, results: Path) -> None:
    before = {path: path.read_bytes() for path in results.parent.rglob("*") if path.is_file()}
    printed = flat(run("--from", results, "--row", ROW).output)
    assert "balanced_accuracy 0.5 0.75 +0.25" in printed
    assert "kept-key" in printed
    assert {path: path.read_bytes() for path in results.parent.rglob("*") if path.is_file()} == before


def test_only_that_row_is_asked_of_the_study_with_the_settings_of_the_table(study: FakeStudy, results: Path) -> None:
    run("--output", results.parent, "--row", ROW)  # the study's folder there is what is meant
    assert len(study.given["rows"]) == 3
    assert study.given["spec"].quick
    assert study.given["spec"].noise == SPEC.noise
    assert study.given["spec"].deployments == 1  # no more than the row needs
    assert study.given["device"] == "cpu"


def test_json_has_the_same(study: FakeStudy, results: Path) -> None:
    plain = json.loads(run("--from", results, "--row", ROW, "--format", "json").stdout)
    assert plain["columns_that_differ"] == 1
    assert plain["kept"]["key"] == "kept-key"
    assert plain["now"]["code_digest"]
    (row,) = plain["rows"]
    assert row["row"] == {"deployment": 0, "n_participants": 10, "method": "aa-i-gdp-anchor-noise", "draw": 1}
    (score,) = [column for column in row["columns"] if column["differs"]]
    assert score == {"column": "balanced_accuracy", "kept": 0.5, "again": 0.75, "difference": 0.25, "differs": True}


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--row", "deployment=0,method=aa-i-gdp-anchor-noise,draw=7"], "row"),
        (["--row", "drow=7"], "a column of row"),
        (["--row", ROW, "--quick"], "quick"),
        (["--row", ROW, "--draws", "3"], "draws"),
        (["--row", ROW, "--redraw"], "redraw"),
        ([], "from"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str], what: str, study: FakeStudy, results: Path) -> None:
    run("--from", results, *words, code=2, what=what)
    assert study.given == {}


def test_a_study_that_was_not_run_or_is_interrupted_ends_with_its_code(
    study: FakeStudy, results: Path, tmp_path: Path
) -> None:
    run("--output", tmp_path, "--row", ROW, code=5)
    study.problem = KeyboardInterrupt()
    run("--from", results, "--row", ROW, code=130)
