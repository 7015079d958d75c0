"""The notebooks of examples/ run from the first cell to the last; what they claim, they assert themselves."""

from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def test_there_are_notebooks_and_they_are_committed_without_outputs() -> None:
    assert len(NOTEBOOKS) == 3
    cells = [cell for path in NOTEBOOKS for cell in nbformat.read(path, as_version=4).cells]
    assert [cell.source for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    manager = KernelManager(transport="ipc", ip=str(tmp_path / "kernel"), kernel_name="python3")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, km=manager, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [out.data for cell in notebook.cells for out in cell.get("outputs", ()) if "data" in out]
    assert any("<table>" in data.get("text/html", "") for data in shown)  # results of mooring show themselves
