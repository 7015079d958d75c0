"""The notebooks of examples/ run from the first cell to the last; what they claim, they assert themselves."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))
RUN = "from nbclient.cli import main; main()"


def test_there_are_three_and_they_are_committed_without_outputs() -> None:
    assert len(NOTEBOOKS) == 3
    cells = [cell for path in NOTEBOOKS for cell in nbformat.read(path, as_version=4).cells]
    assert [cell.source for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_results_show_themselves(path: Path, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", RUN, str(path), f"--output={tmp_path / 'run.ipynb'}", "--timeout=300"],
        env={**os.environ, "IPYTHONDIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    cells = nbformat.read(tmp_path / "run.ipynb", as_version=4).cells
    shown = [found.data.get("text/html", "") for cell in cells for found in cell.get("outputs", ()) if "data" in found]
    assert any("<table>" in html for html in shown)
