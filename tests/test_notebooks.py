"""The notebooks of examples/ run from the first cell to the last; what they claim, they assert themselves."""

import ast
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def test_there_is_one_and_it_is_committed_without_outputs() -> None:
    assert len(NOTEBOOKS) == 1
    cells = [cell for path in NOTEBOOKS for cell in nbformat.read(path, as_version=4).cells]
    assert [cell.source for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


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
    shown = show_here(path)
    assert any("<table>" in html for html in shown)
