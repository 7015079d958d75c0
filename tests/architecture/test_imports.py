"""Imports go one way, the core stays light, and nothing draws on global randomness, prints or warns."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import mooring

PACKAGE = Path(mooring.__file__).parent
LAYERS = (
    {"errors", "randomness", "version"},
    {"geometry", "measures", "datasets"},
    {"anchors", "projection", "guarantee", "theory", "mechanisms"},
    {"alignment"},
    {"collaboration", "attacks", "estimators"},
    {"simulation", "learners"},
    {"audit"},
    {"protocol"},
    {""},  # mooring itself: the public names
    {"engines"},
    {"apps"},
    {"__main__"},
)
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}
FOR_THE_PROTOCOL = {"cryptography", "pyrage", "onnx", "fsspec", "safetensors"}
HEAVY = {"typer", "rich", "plotly", "pydantic", "pickle", "joblib", "matplotlib"}
OPTIONAL = {
    "torch",
    "dp_accounting",
    "skimage",
    "onnxruntime",
    "PIL",
    "flint",
    "dask",
    "distributed",
    "s3fs",
    "xgboost",
}
ALLOWED_RANDOM = {"Generator", "BitGenerator", "SeedSequence", "default_rng"}
MAX_LINES = 350


def module_name(path: Path) -> str:
    parts = ("mooring", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
CORE = {name: path for name, path in SOURCES.items() if not name.startswith("mooring.apps")}


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(tree: ast.AST, *, inside_functions: bool) -> Iterator[ast.AST]:
    """Every node of a tree; without `inside_functions`, only those that run when the module is imported."""
    for node in ast.iter_child_nodes(tree):
        if not inside_functions and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if not inside_functions and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from statements(node, inside_functions=inside_functions)


def imported(tree: ast.Module, name: str, *, inside_functions: bool = True, is_package: bool = False) -> set[str]:
    """The modules, by full dotted name, that the module called `name` imports."""
    found = set()
    for node in statements(tree, inside_functions=inside_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = name.split(".")
            base = base[: len(base) - node.level + is_package] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            members = [f"{source}.{alias.name}" for alias in node.names]
            found |= {member if member in SOURCES else source for member in members}
    return found


def imports_of(name: str, *, inside_functions: bool = True) -> set[str]:
    path = SOURCES[name]
    is_package = path.name == "__init__.py"
    return imported(parsed(path), name, inside_functions=inside_functions, is_package=is_package)


def part_of(module: str) -> str | None:
    """The top-level part of mooring that holds `module`: None for another library, "" for mooring itself."""
    first, _, rest = module.partition(".")
    return rest.partition(".")[0] if first == "mooring" else None


def global_randomness(tree: ast.Module) -> list[str]:
    """Uses of random state that nobody passed in: numpy.random's functions, unseeded generators, the random module."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in ("random", "numpy.random")]
        elif isinstance(node, ast.ImportFrom) and node.module in ("random", "numpy.random"):
            found += [alias.name for alias in node.names if alias.name not in ALLOWED_RANDOM]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("np.random", "numpy.random"):
            found += [node.attr] if node.attr not in ALLOWED_RANDOM else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("default_rng") and not node.args:
            found.append("default_rng()")
    return found


def noise_to_the_user(tree: ast.Module) -> list[str]:
    """Calls of print and of warnings.warn."""
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    imported_names = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "warnings"
        for alias in node.names
    ]
    return [call for call in calls if call in ("print", "warnings.warn", "sys.stdout.write")] + imported_names


def test_every_module_was_found() -> None:
    assert {"mooring", "mooring.errors", "mooring.geometry.rigid", "mooring.alignment.solve"} <= SOURCES.keys()


@pytest.mark.parametrize("name", SOURCES)
def test_imports_go_one_way(name: str) -> None:
    part = part_of(name)
    assert part in RANK, f"{name} has no place in the order of imports; give it one in LAYERS"
    for other in imports_of(name):
        if part_of(other) is not None:
            assert RANK[part_of(other)] <= RANK[part], f"{name} imports {other}, which is on its right"


def test_theory_imports_geometry_and_errors_at_most() -> None:
    assert {part_of(name) for name in imports_of("mooring.theory")} - {None} <= {"geometry", "errors"}


@pytest.mark.parametrize("name", [name for name in SOURCES if part_of(name) == "datasets"])
def test_datasets_import_errors_at_most(name: str) -> None:
    assert {part_of(other) for other in imports_of(name)} - {None} <= {"datasets", "errors"}


@pytest.mark.parametrize("name", [name for name in SOURCES if part_of(name) == "measures"])
def test_measures_import_errors_at_most(name: str) -> None:
    assert {part_of(other) for other in imports_of(name)} - {None} <= {"measures", "errors"}


def test_there_is_no_import_cycle() -> None:
    """Static order fails on a cycle; this covers the modules within alignment and within every other part."""
    graph = {name: {other for other in imports_of(name) if other in SOURCES} for name in SOURCES}
    order = list(TopologicalSorter(graph).static_order())
    assert sorted(order) == sorted(SOURCES)


@pytest.mark.parametrize("name", CORE)
def test_the_core_imports_nothing_heavy(name: str) -> None:
    at_import = {other.partition(".")[0] for other in imports_of(name, inside_functions=False)}
    assert not at_import & HEAVY


@pytest.mark.parametrize("name", [name for name in SOURCES if part_of(name) != "protocol"])
def test_only_the_protocol_imports_what_it_alone_needs(name: str) -> None:
    at_import = {other.partition(".")[0] for other in imports_of(name, inside_functions=False)}
    assert not at_import & FOR_THE_PROTOCOL


@pytest.mark.parametrize("name", [name for name in SOURCES if part_of(name) in ("", "apps")])
def test_the_protocol_is_loaded_only_when_it_is_used(name: str) -> None:
    assert not [m for m in imports_of(name, inside_functions=False) if part_of(m) == "protocol"]


def test_mooring_and_its_help_load_no_cryptography() -> None:
    """What runs on a machine without these libraries must import there."""
    code = (
        "import sys, mooring; from mooring.apps.cli.app import app; "
        f"print(sorted({FOR_THE_PROTOCOL!r} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("name", SOURCES)
def test_optional_libraries_are_imported_only_inside_functions(name: str) -> None:
    assert not {other.partition(".")[0] for other in imports_of(name, inside_functions=False)} & OPTIONAL


@pytest.mark.parametrize("name", SOURCES)
def test_nothing_uses_global_randomness(name: str) -> None:
    assert global_randomness(parsed(SOURCES[name])) == []


@pytest.mark.parametrize("name", SOURCES)
def test_nothing_prints_or_warns(name: str) -> None:
    assert noise_to_the_user(parsed(SOURCES[name])) == []


@pytest.mark.parametrize("name", SOURCES)
def test_every_module_is_short(name: str) -> None:
    n_lines = len(SOURCES[name].read_text(encoding="utf-8").splitlines())
    assert n_lines < MAX_LINES, f"{name} has {n_lines} lines; split it by concept"


def test_there_is_no_drawer_for_everything() -> None:
    assert not [name for name in SOURCES if name.rpartition(".")[2] in ("utils", "helpers")]


def test_every_public_name_exists_and_is_listed_once() -> None:
    assert all(hasattr(mooring, name) for name in mooring.__all__)
    assert len(set(mooring.__all__)) == len(mooring.__all__)


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np\nnp.random.seed(0)",
        "import numpy as np\nx = np.random.randn(3)",
        "import numpy\nx = numpy.random.normal()",
        "import random",
        "from numpy.random import rand",
        "import numpy as np\nrng = np.random.default_rng()",
    ],
)
def test_the_check_sees_global_randomness(source: str) -> None:
    assert global_randomness(ast.parse(source))


@pytest.mark.parametrize("source", ["print(1)", "import warnings\nwarnings.warn('x')", "from warnings import warn"])
def test_the_check_sees_printing_and_warning(source: str) -> None:
    assert noise_to_the_user(ast.parse(source))


def test_the_check_tells_module_level_imports_from_those_inside_functions() -> None:
    tree = ast.parse("try:\n    import rich\nexcept ImportError:\n    pass\ndef f():\n    import torch\n")
    assert imported(tree, "mooring.x", inside_functions=False) == {"rich"}
    assert imported(tree, "mooring.x") == {"rich", "torch"}


def test_the_check_resolves_relative_and_member_imports() -> None:
    assert imported(ast.parse("from . import errors"), "mooring.anchors") == {"mooring.errors"}
    assert imported(ast.parse("from .rigid import RigidMap"), "mooring.geometry", is_package=True) == {
        "mooring.geometry.rigid"
    }
    assert imported(ast.parse("from mooring import theory"), "mooring.anchors") == {"mooring.theory"}
    assert imported(ast.parse("from mooring import align"), "mooring.anchors") == {"mooring"}
