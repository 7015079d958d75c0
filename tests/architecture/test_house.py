"""The size and the layering of the code that no linter checks. Import order: import-linter, in pyproject.toml."""

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import mooring

ROOT = Path(__file__).parents[2]
# Reached; the aim was 26,000, 9,000, 28,000, and 6,000 more for secure sums, the audit's measures of them and a desk: secure
# sums and their audit took 6,700, and 4,500 of tests; a solver whose iterations a GPU repeats 350; tests that notice
# random mutants 2,700; a study of secure sums 600, one of what other ways give away 880; the desk 1,200, and 580 of
# tests, a driver of Chromium among them; Parameters sections of the functions that had none 1,270, and 830 of
# studies.
LINES = {"src/mooring": 46_580, "studies": 14_770, "tests": 46_560}
MODULES_IN_A_FOLDER, MODULE_LINES, FUNCTION_LINES, PARAMETERS = 12, 400, 60, 8
ONE_FILE_EACH = ("cli", "attacks")  # a command each, an attack each
# Windows has none of these, or another thing of that name.
POSIX = {
    *("fcntl", "grp", "pwd", "resource", "termios", "fork", "geteuid", "getuid", "killpg", "mkfifo", "setsid"),
    *("sysconf", "statvfs", "pread", "chown", "O_DIRECTORY", "O_NOFOLLOW", "SIGKILL", "SIGHUP", "SIGALRM"),
    *("SIGXFSZ", "AF_UNIX"),
}
POSIX_IN_TESTS = POSIX | {"S_IMODE", "st_mode", "symlink_to", "umask", "capset"}
FOR_THE_PROTOCOL = {"cryptography", "pyrage", "onnx", "fsspec", "safetensors"}


def sources(folder: str) -> list[Path]:
    return [path for path in sorted((ROOT / folder).rglob("*.py")) if "build" not in path.parts]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def n_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    own = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return len([one for one in own if one.arg not in ("self", "cls")])


def names_in(tree: ast.AST) -> set[str]:
    """Attributes and imported modules."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {one.name for one in node.names} | {getattr(node, "module", None) or ""}
    return found


def n_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("folder", LINES)
def test_the_code_keeps_to_its_budget_of_lines(folder: str) -> None:
    total = sum(n_lines(path) for path in sources(folder))
    print(f"{folder}: {total:,} lines of {LINES[folder]:,}")
    assert total <= LINES[folder]


@pytest.mark.parametrize("folder", ["src/mooring", "studies"])
def test_folders_and_modules_stay_small(folder: str) -> None:
    paths = [path for path in sources(folder) if path.name != "__init__.py"]
    crowded = Counter(path.parent for path in paths if path.parent.name not in ONE_FILE_EACH)
    assert [f"{path}: {n}" for path, n in crowded.items() if n > MODULES_IN_A_FOLDER] == []
    assert [f"{path}: {n_lines(path)}" for path in paths if n_lines(path) > MODULE_LINES] == []


@pytest.mark.parametrize("folder", ["src/mooring", "studies"])
def test_functions_stay_short_and_take_few_parameters(folder: str) -> None:
    long, wide = [], []
    for path in sources(folder):
        for node in functions(path):
            where = f"{path.relative_to(ROOT)}:{node.name}"
            is_command = path.parent.name == "cli"  # options of a command are its parameters
            n_docstring = len((ast.get_docstring(node) or "").splitlines())
            length = (node.end_lineno or node.lineno) - node.lineno + 1 - n_docstring
            long += [f"{where}: {length}"] if length > FUNCTION_LINES and not is_command else []
            wide += [f"{where}: {n_parameters(node)}"] if n_parameters(node) > PARAMETERS and not is_command else []
    assert long == []
    assert wide == []


def public_functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Of a module and of its public classes, but for commands, whose docstring is their help."""
    classes = [one for one in parsed(path).body if isinstance(one, ast.ClassDef) and not one.name.startswith("_")]
    own = [one for part in (parsed(path), *classes) for one in part.body if isinstance(one, ast.FunctionDef)]
    is_command = {one.name: path.parent.name == "cli" and "Annotated[" in ast.unparse(one.args) for one in own}
    return [one for one in own if not one.name.startswith("_") and not is_command[one.name]]


@pytest.mark.parametrize("folder", ["src/mooring", "studies"])
def test_three_arguments_and_more_have_a_parameters_section_of_names_that_there_are(folder: str) -> None:
    without, unknown = [], []
    for path in sources(folder):
        for node in public_functions(path):
            where = f"{path.relative_to(ROOT)}:{node.name}"
            every = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
            section = re.search(r"^Parameters\n-{10}\n(.*?)(?=\n\n|\Z)", ast.get_docstring(node) or "", re.S | re.M)
            if section is None:
                without += [where] if n_parameters(node) > 2 else []
                continue
            heads = [line.partition(" : ")[0] for line in section[1].splitlines() if line[:1].strip()]
            listed = {name.strip(" *") for head in heads for name in head.split(",")}
            unknown += [f"{where}: {name}" for name in sorted(listed - every)]
    assert without == []
    assert unknown == []


def test_the_studies_use_public_names_of_mooring_alone() -> None:
    """`mooring` itself and its packages, by the names in their `__all__`; never a module inside one."""
    used = []
    for path in sources("studies"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "mooring":
                module = __import__(node.module, fromlist=["__all__"])
                private = [
                    one.name for one in node.names if one.name not in (*getattr(module, "__all__", ()), "__version__")
                ]
                used += [f"{path.relative_to(ROOT)}: {node.module}.{name}" for name in private]
    assert used == []


def test_an_attacker_is_shown_what_a_simulation_shows() -> None:
    """One function makes views, so that audits, plans and studies attack the same thing."""
    made = [
        path.name
        for folder in ("src/mooring", "studies")
        for path in sources(folder)
        if "CollusionView(" in path.read_text(encoding="utf-8")
    ]
    assert made == ["simulation.py"]


def test_what_windows_lacks_is_used_where_the_system_is_known() -> None:
    paths = [*sources("src/mooring"), *sources("studies")]
    used = {path.name: found for path in paths if (found := POSIX & names_in(parsed(path)))}
    assert used == {"model_process.py": {"resource", "sysconf"}}  # behind sys.platform


def test_tests_that_windows_must_skip_are_marked() -> None:
    unmarked = []
    for path in [path for path in sources("tests") if "distributed" not in path.parts]:
        text = path.read_text("utf-8")
        is_marked = "pytestmark = pytest.mark.posix" in text or not any(name in text for name in POSIX_IN_TESTS)
        for node in () if is_marked else parsed(path).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and POSIX_IN_TESTS & names_in(node):
                forks = {"start", "exit_code"} & {one.arg for one in node.args.args}
                marked = any(ast.unparse(one) == "pytest.mark.posix" for one in node.decorator_list)
                unmarked += [] if forks or marked else [f"{path.relative_to(ROOT)}:{node.name}"]
    assert unmarked == []


def test_packages_are_loaded_by_those_who_use_them() -> None:
    """mooring imports where there is no cryptography; scikit-learn takes a second, and only training and attacks need it."""
    code = (
        "import sys, mooring; from mooring.cli.app import app; "
        f"print(sorted(({FOR_THE_PROTOCOL!r} | {{'mooring.protocol'}}) & set(sys.modules))); "
        "import mooring.protocol.analyst.delivery, mooring.protocol.participant.prediction, mooring.report.study_page; "
        "print(sorted({'onnx', 'pandas', 'scipy.stats', 'sklearn'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["[]", "[]"]


def test_every_generator_has_a_seed() -> None:
    unseeded = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("src/mooring", "studies")
        for path in sources(folder)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("default_rng") and not node.args
    ]
    assert unseeded == []


def test_every_public_name_exists_and_is_listed_once() -> None:
    assert all(hasattr(mooring, name) for name in mooring.__all__)
    assert len(set(mooring.__all__)) == len(mooring.__all__)
