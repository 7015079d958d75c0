"""The examples run as they are, for somebody who has `mooring` on the PATH."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .typed_commands import PROGRAM

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BESIDE = ROOT.parent / "shared" / "data" / "tabular" / "heart_disease"

pytestmark = pytest.mark.posix  # shell scripts


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """One in which `mooring` is this one, and nothing is set that a newcomer would not have."""
    with tempfile.TemporaryDirectory() as folder:
        programs = Path(folder)
        # Elsewhere linear algebra does not survive the copying of a process, by which the server runs commands.
        copies = sys.platform == "linux"
        program = PROGRAM if copies else '#!/bin/sh\nexec "{python}" -m mooring "$@"\n'
        (programs / "mooring").write_text(program.format(python=sys.executable, door=programs / "door"))
        (programs / "mooring").chmod(0o755)
        (programs / "pandas.py").write_text("raise ImportError")  # which only tests install
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MOORING_")}
        calm = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(programs), os.environ.get("PYTHONPATH")])),
            "PYTHON": sys.executable,
            "COLUMNS": "120",
            "OPENBLAS_NUM_THREADS": "1",
        }
        if not copies:
            yield inherited | calm
            return
        serving = [sys.executable, "-m", "tests.cli.typed_commands", str(programs / "door")]
        with subprocess.Popen(serving, cwd=ROOT, env=inherited | calm, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"open\n"
            yield inherited | calm
            server.terminate()


def run(script: str, *words: str, environment: dict[str, str], code: int = 0) -> str:
    result = subprocess.run(
        ["bash", str(EXAMPLES / script), *words], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout + result.stderr


def test_ones_own_csv_with_the_table_that_scikit_learn_has(environment: dict[str, str], tmp_path: Path) -> None:
    work = tmp_path / "rehearsal"
    small = {"WORK": str(work), "PARTICIPANTS": "2", "ROWS": "80", "QUICK": "1"}
    run("own-csv/run.sh", environment=environment | small)
    assert len((work / "participant-1" / "predictions.csv").read_text().splitlines()) == 11
    assert sorted(path.name for path in (work / "participant-2" / "result").iterdir()) == [
        "map.safetensors",
        "map.safetensors.sealed",
        "model.safetensors",
        "model.safetensors.sealed",
    ]
    assert (work / "report.html").is_file()
    run("own-csv/run.sh", environment=environment | {"WORK": str(work)}, code=2)


def test_ones_own_csv_stops_where_the_study_is_open(environment: dict[str, str], tmp_path: Path) -> None:
    table = tmp_path / "patients.csv"
    table.write_text("age,sex,ill\n40,female,no\n")
    work = tmp_path / "rehearsal"
    words = [str(table), "--label", "ill", "--classes", "no,yes", "--range", "age=0:120"]
    result = run("own-csv/run.sh", *words, environment=environment | {"WORK": str(work)}, code=2)
    assert "study.toml.draft" in result
    assert "TODO" in (tmp_path / "study.toml.draft").read_text()
    assert not work.exists()


def test_the_four_hospitals(environment: dict[str, str], tmp_path: Path) -> None:
    data = Path(os.environ.get("HEART_DATA") or BESIDE)
    if not (data / "processed.cleveland.data").is_file():
        pytest.skip("the heart-disease data is not here; HEART_DATA names its folder")
    work = tmp_path / "heart"
    run("heart/run.sh", str(data), str(work), environment=environment | {"QUICK": "1"})
    assert (work / "cleveland" / "report.html").is_file()
    for hospital in ("cleveland", "hungary", "switzerland", "long-beach"):
        assert (work / "analyst" / "results" / hospital / "model.safetensors").is_file()
    assert (work / "report.html").is_file()


def test_without_its_data_the_heart_example_says_where_to_get_it(environment: dict[str, str], tmp_path: Path) -> None:
    run("heart/run.sh", str(tmp_path), environment=environment | {"HEART_DATA": ""}, code=2)


@pytest.mark.parametrize("header", ["", "X1,X2,X3,X4,X5,X6,X7,X8,X9,X10,X11,X12,X13,X14\n"])
def test_heart_files_are_read_with_and_without_a_header(
    header: str, environment: dict[str, str], tmp_path: Path
) -> None:
    lines = ["63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0", "40,0,4,0,-9,?,0,120,1,-.5,2,-9,-9,3"]
    for hospital in ("cleveland", "hungarian", "switzerland", "va"):
        (tmp_path / f"processed.{hospital}.data").write_text(header + "\n".join(lines) + "\n")
    subprocess.run(
        [sys.executable, str(EXAMPLES / "heart" / "prepare.py"), str(tmp_path), str(tmp_path / "out")], check=True
    )
    assert (tmp_path / "out" / "hungary" / "rows.csv").read_text().splitlines()[1:] == [
        "63.0,male,typical,145.0,233.0,yes,hypertrophy,150.0,no,2.3,down,0.0,fixed,no",
        "40,female,none,?,?,?,normal,120,yes,-.5,flat,?,?,yes",
    ]
