"""The notebooks of examples/ run from the first cell to the last; what they claim, they assert themselves."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))
IN_JUPYTER = "audit_your_table"  # one is enough; the others run here, where audits are shorter
RUN = "from nbclient.cli import main; main()"


def test_there_are_three_and_they_are_committed_without_outputs() -> None:
    assert len(NOTEBOOKS) == 3
    cells = [cell for path in NOTEBOOKS for cell in nbformat.read(path, as_version=4).cells]
    assert [cell.source for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


def show_in_jupyter(path: Path, folder: Path) -> list[str]:
    """Run a notebook in a kernel; return its outputs as HTML."""
    ended = subprocess.run(
        [sys.executable, "-c", RUN, str(path), f"--output={folder / 'run.ipynb'}", "--timeout=300"],
        env={**os.environ, "IPYTHONDIR": str(folder), "JUPYTER_RUNTIME_DIR": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    cells = nbformat.read(folder / "run.ipynb", as_version=4).cells
    return [found.data.get("text/html", "") for cell in cells for found in cell.get("outputs", ()) if "data" in found]


def show_here(path: Path) -> list[str]:
    """Run a notebook's cells in this process; return as HTML what the last line of each is."""
    names: dict[str, object] = {}
    shown = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        parsed = ast.parse(cell.source)
        last = parsed.body.pop() if isinstance(parsed.body[-1], ast.Expr) else None
        exec(compile(parsed, path.name, "exec"), names)
        if last is not None:
            found = eval(compile(ast.Expression(last.value), path.name, "eval"), names)
            shown.append(found._repr_html_() if hasattr(found, "_repr_html_") else "")
    return shown


@pytest.mark.usefixtures("fewer_features")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_results_show_themselves(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shown = show_in_jupyter(path, tmp_path) if path.stem == IN_JUPYTER else show_here(path)
    assert any("<table>" in html for html in shown)
