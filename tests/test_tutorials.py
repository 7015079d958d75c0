"""The tutorials of docs/tutorials: `make site` runs them all; what runs them and what they may hold is tested here."""

import ast
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from mkdocs.exceptions import PluginError

import mooring

DOCS = Path(__file__).parents[1] / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.py"))
PLAIN = (ast.Import, ast.ImportFrom, ast.Assign, ast.AugAssign, ast.Expr, ast.For, ast.FunctionDef, ast.Try, ast.With)
"""Statements that a cell may consist of."""


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tutorials_hook", DOCS / "tutorials.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_tutorial_is_listed_by_the_hook_and_in_the_navigation(hook: ModuleType) -> None:
    navigation = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    assert sorted(hook.NAMES) == [path.stem for path in TUTORIALS]
    assert re.findall(r"tutorials/([\w-]+)\.md", navigation) == list(hook.NAMES)
    assert re.findall(r"examples/([\w-]+)\.md", navigation) == list(hook.EXAMPLES)
    assert sorted(hook.EXAMPLES) == sorted(path.parent.name for path in DOCS.parent.glob("examples/*/README.md"))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_cells_are_plain_and_use_public_names_only(hook: ModuleType, path: Path) -> None:
    cells = hook.read_cells(path.read_text(encoding="utf-8"))
    assert cells[0].text.startswith("# ")
    for cell in cells:
        if not cell.is_code:
            assert "```" not in cell.text  # nothing that looks like code or its output is typed
            continue
        parsed = ast.parse(cell.text)
        assert all(isinstance(statement, PLAIN) for statement in parsed.body), cell.text
        assert len(cell.text.splitlines()) <= 40, cell.text
        for node in ast.walk(parsed):
            name = getattr(node, "attr", getattr(node, "id", ""))
            assert name == "_" or not name.startswith("_"), cell.text
            if isinstance(node, ast.ImportFrom) and node.module == "mooring":
                assert {name.name for name in node.names} <= set(mooring.__all__)


WELL = """# %% [markdown]
# # A title
#
# A sentence that [leads on](../audit.md). More.

# %%
total = 1 + 1
print("a < b")
total

# %% alt="a line"
from matplotlib import pyplot as plt

plt.plot([0, 1])
plt.title("upwards")
"""


def test_what_cells_print_give_and_draw_is_shown_and_nothing_else(hook: ModuleType) -> None:
    run = hook.run_cells("well", hook.read_cells(WELL))
    assert run.outputs["2"] == ["<pre>a &lt; b\n</pre>", "<pre>2</pre>"]
    (figure,) = run.outputs["3"]
    assert figure.startswith('<svg role="img" aria-label="a line"')
    assert "#222222" not in figure
    assert run.pictures == [figure]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import warnings\nwarnings.warn('old')", "UserWarning"),
        ("from matplotlib import pyplot as plt\nplt.plot([1])", "without words"),
    ],
)
def test_a_cell_that_fails_warns_or_draws_without_words_ends_the_build_and_is_named(
    hook: ModuleType, code: str, problem: str
) -> None:
    with pytest.raises(PluginError, match=f"(?s)Tutorial ill, cell 4 .*{problem}"):
        hook.run_cells("ill", hook.read_cells(f"{WELL}\n# %%\n{code}\n"))


def test_the_notebook_has_the_cells_and_no_links_to_pages(hook: ModuleType) -> None:
    notebook = json.loads(hook.make_notebook(hook.read_cells(hook.LINK.sub(r"\1", WELL))))
    text, code, drawing = notebook["cells"]
    assert text["source"] == "# A title\n\nA sentence that leads on. More."
    assert code["source"].splitlines() == ["total = 1 + 1", 'print("a < b")', "total"]
    assert drawing["cell_type"] == "code"
    assert notebook["nbformat"] == 4


@pytest.mark.posix
def test_a_run_is_recalled_until_the_tutorial_changes(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("src", "constraints.txt"):
        (tmp_path / place).symlink_to(DOCS.parent / place)
    monkeypatch.setattr(hook, "ROOT", tmp_path)
    source = "# %% [markdown]\n# # Time\n\n# %%\nimport time\n\nprint(time.time())\n"
    first = hook.run_or_recall("time", source)
    assert hook.run_or_recall("time", source) == first
    assert hook.run_or_recall("time", source + "\n# %%\n1\n").outputs["2"] != first.outputs["2"]
