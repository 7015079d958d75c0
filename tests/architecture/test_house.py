"""Rules of the code that no linter checks. Import order: import-linter, in pyproject.toml."""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import mooring
from mooring.protocol.registry import list_own_steps

ROOT = Path(__file__).parents[2]
# Windows has none of these, or another thing of that name.
POSIX = {
    *("fcntl", "grp", "pwd", "resource", "termios", "fork", "geteuid", "getuid", "killpg", "mkfifo", "setsid"),
    *("sysconf", "statvfs", "pread", "chown", "O_DIRECTORY", "O_NOFOLLOW", "SIGKILL", "SIGHUP", "SIGALRM"),
    *("SIGXFSZ", "AF_UNIX"),
}
POSIX_IN_TESTS = POSIX | {"S_IMODE", "st_mode", "symlink_to", "umask", "capset"}
MECHANISM_PARENTS = ("mechanisms", "attacks", "audit", "protocol")
OF_ONE_MECHANISM = ("Settings", "Point", "Simulation", "View", "Bundle", "Training", "Exchange")
FOR_THE_PROTOCOL = {"cryptography", "onnx", "fsspec", "safetensors"}


def sources(folder: str) -> list[Path]:
    return [path for path in sorted((ROOT / folder).rglob("*.py")) if "build" not in path.parts]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def mentioning(paths: Iterable[Path], words: Iterable[str]) -> list[Path]:
    """The files with one of these words in their text: the others need not be parsed and walked."""
    any_word = re.compile("|".join(map(re.escape, words)))
    return [path for path in paths if any_word.search(text_of(path))]


def statements(path: Path) -> Iterator[ast.stmt]:
    """All statements of a file, in any block; not the expressions in them, which are most of what `ast.walk` visits."""
    blocks: list[ast.AST] = [parsed(path)]
    while blocks:
        for child in ast.iter_child_nodes(blocks.pop()):
            if isinstance(child, ast.stmt):
                yield child
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                blocks.append(child)


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in statements(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def names_in(tree: ast.AST) -> set[str]:
    """Attributes and imported modules."""
    items: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            items.add(node.attr)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            items |= {name.name for name in node.names} | {getattr(node, "module", None) or ""}
    return items


def parameters_section(docstring: str) -> re.Match[str] | None:
    return re.search(r"^Parameters\n-{10}\n(.*?)(?=\n\n|\Z)", docstring, re.S | re.M)


@pytest.mark.parametrize("name", mooring.__all__)
def test_a_public_function_of_three_arguments_and_more_describes_them(name: str) -> None:
    function = getattr(mooring, name)
    if inspect.isfunction(function) and len(inspect.signature(function).parameters) > 2:
        assert parameters_section(inspect.getdoc(function) or "")


@pytest.mark.parametrize("folder", ["src/mooring", "studies"])
def test_a_parameters_section_lists_parameters_that_the_function_has(folder: str) -> None:
    unknown = []
    for path in mentioning(sources(folder), ["Parameters\n"]):
        for node in functions(path):
            section = parameters_section(ast.get_docstring(node) or "")
            if section is None:
                continue
            heads = [line.partition(" : ")[0] for line in section[1].splitlines() if line[:1].strip()]
            listed = {name.strip(" *") for head in heads for name in head.split(",")}
            arguments = {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}
            unknown += [f"{path.relative_to(ROOT)}:{node.name}: {name}" for name in sorted(listed - arguments)]
    assert unknown == []


def test_the_studies_use_public_names_of_mooring_alone() -> None:
    """`mooring` itself and its packages, by the names in their `__all__`; never a module inside one."""
    used = []
    for path in sources("studies"):
        for node in statements(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "mooring":
                module = __import__(node.module, fromlist=["__all__"])
                private = [
                    name.name
                    for name in node.names
                    if name.name not in (*getattr(module, "__all__", ()), "__version__")
                ]
                used += [f"{path.relative_to(ROOT)}: {node.module}.{name}" for name in private]
    assert used == []


def conditions(tree: ast.AST) -> Iterator[ast.AST]:
    """Conditions of branches, and the classes that cases match."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.match_case):
            yield node.pattern


def test_nothing_outside_a_mechanisms_folders_asks_which_mechanism_it_is() -> None:
    package = ROOT / "src/mooring"
    folders = [package / parent / name for parent in MECHANISM_PARENTS for name in ("rotation", "sums")]
    paths = sources("src")
    inside = {path for path in paths if any(folder in path.parents for folder in folders)}
    classes = {node.name for path in inside for node in parsed(path).body if isinstance(node, ast.ClassDef)}
    names_of_one = {name for name in classes if name.endswith(OF_ONE_MECHANISM)} | {*list_own_steps(), "SECURE_SUM"}
    assert {"RotationSettings", "SumPoint", "RowBundle", "secure-sum"} <= names_of_one
    asking = [
        f"{path.relative_to(package)}:{condition.lineno}"
        for path in mentioning(paths, names_of_one)
        if path not in inside
        for condition in conditions(parsed(path))
        for node in ast.walk(condition)
        if {getattr(node, "id", None), getattr(node, "attr", None)} & names_of_one
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names_of_one)
    ]
    assert asking == []


def test_an_attacker_is_shown_what_a_simulation_shows() -> None:
    """One function makes views, so that audits, plans and studies attack the same thing."""
    made = [
        path.name
        for folder in ("src/mooring", "studies")
        for path in sources(folder)
        if "CollusionView(" in text_of(path)
    ]
    assert made == ["simulation.py"]


def test_nothing_is_used_that_windows_lacks() -> None:
    paths = mentioning([*sources("src/mooring"), *sources("studies")], POSIX)
    assert {path.name: posix_names for path in paths if (posix_names := POSIX & names_in(parsed(path)))} == {}


def test_tests_that_windows_must_skip_are_marked() -> None:
    unmarked = []
    for path in [path for path in sources("tests") if "distributed" not in path.parts]:
        text = text_of(path)
        is_marked = "pytestmark = pytest.mark.posix" in text or not any(name in text for name in POSIX_IN_TESTS)
        for node in () if is_marked else parsed(path).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and POSIX_IN_TESTS & names_in(node):
                forks = {"start", "exit_code"} & {argument.arg for argument in node.args.args}
                marked = any(ast.unparse(decorator) == "pytest.mark.posix" for decorator in node.decorator_list)
                unmarked += [] if forks or marked else [f"{path.relative_to(ROOT)}:{node.name}"]
    assert unmarked == []


def test_packages_are_loaded_by_those_who_use_them() -> None:
    """mooring imports where there is no cryptography; scikit-learn takes a second, and only training and attacks need it."""
    code = (
        "import sys, mooring; from mooring.cli.app import app; "
        f"print(sorted(({FOR_THE_PROTOCOL!r} | {{'mooring.protocol.crypto'}}) & set(sys.modules))); "
        "from mooring.protocol.registry import list_exchanges; list_exchanges(); "
        "print(sorted({'mooring.attacks', 'mooring.audit'} & set(sys.modules))); "
        "import mooring.protocol.analyst.delivery, mooring.protocol.participant.prediction, mooring.report.study_page; "
        "print(sorted({'onnx', 'pandas', 'scipy.stats', 'sklearn'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["[]", "[]", "[]"]


def test_every_generator_has_a_seed() -> None:
    unseeded = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("src/mooring", "studies")
        for path in mentioning(sources(folder), ["default_rng"])
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("default_rng") and not node.args
    ]
    assert unseeded == []


def test_every_public_name_exists_and_is_listed_once() -> None:
    assert all(hasattr(mooring, name) for name in mooring.__all__)
    assert len(set(mooring.__all__)) == len(mooring.__all__)


def test_what_the_protocol_writes_is_its_owners_only() -> None:
    """Files 0600 and folders 0700, wherever the code names a mode; signed files for others say so by their default."""
    folder, modes = Path(mooring.__file__).parent / "protocol", set()
    for path in mentioning(folder.rglob("*.py"), ["mode="]):
        for call in ast.walk(parsed(path)):
            given = call.keywords if isinstance(call, ast.Call) else []
            modes |= {
                (ast.unparse(call.func), item.value.value)
                for item in given
                if item.arg == "mode" and isinstance(item.value, ast.Constant) and isinstance(item.value.value, int)
            }
    assert {mode for name, mode in modes if name == "make_folder"} == {0o700}
    assert {mode for name, mode in modes if name != "make_folder"} == {0o600}
