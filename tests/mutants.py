"""`make mutants`: random mutants of the core modules, each against the tests of its package; which ones nobody notices.

A mutant changes one operator, constant or guard of one module. It counts as killed if a test fails that passes without the
change, or if the tests do not end in time. Which survivors are equivalent to the original is judged by people, in the file
of results.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "mutants.json"
PACKAGES = ("mechanisms", "alignment", "attacks", "metrics", "audit", "protocol")
EXTRA_TESTS = {
    "mechanisms": ("theorems", "test_estimators.py", "learners/test_sums.py", "protocol/rotation", "protocol/sums"),
    "alignment": ("theorems", "protocol/rotation"),
    "attacks": ("audit/test_decoding.py", "audit/test_release.py"),
    "protocol": (
        *("cli/test_study.py", "cli/test_engine_options.py", "cli/test_analyst.py"),
        *("cli/test_send.py", "cli/test_whole_way.py"),
    ),
}
NEAR = 5  # test files that are run first: most mutants end there
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: str
    """Path below src/mooring."""
    line: int
    change: str
    """What became what."""
    source: str
    """The changed module."""


def make_mutant(path: Path, index: int) -> Mutant:
    """The mutant that changes the node of this index in the walk over a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node: ast.AST = next(node for k, node in enumerate(ast.walk(tree)) if k == index)
    before = ast.unparse(node)
    _mutate(node)
    module = path.relative_to(ROOT / "src" / "mooring").as_posix()
    return Mutant(module, node.lineno, f"{before[:60]} → {ast.unparse(node)[:60]}", ast.unparse(tree))  # type: ignore[attr-defined]


def _mutate(node: ast.AST) -> bool:
    """Change a node in place, if it is one to change."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in SWAPS:
            node.ops = [SWAPS[type(operator)]()]  # type: ignore[list-item]
        case ast.BinOp(op=operator) if type(operator) in SWAPS:
            node.op = SWAPS[type(operator)]()  # type: ignore[assignment]
        case ast.BoolOp(op=operator):
            node.op = SWAPS[type(operator)]()  # type: ignore[assignment]
        case ast.Constant(value=bool(value)):
            node.value = not value
        case ast.Constant(value=int(value) | float(value)):
            node.value = value + 1 if isinstance(value, int) else value * 1.5 or 1.0
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand) if not isinstance(operand, ast.Constant):
            node.op = ast.UAdd() if isinstance(node.op, ast.USub) else ast.Not()
            node.operand = operand if isinstance(node.op, ast.UAdd) else ast.UnaryOp(ast.Not(), operand)
        case ast.If(body=[ast.Raise()], orelse=[]):
            node.body = [ast.Pass()]
        case _:
            return False
    return True


def sample_mutants(count: int, seed: int) -> list[Mutant]:
    """Mutants drawn without replacement from all of the packages' modules."""
    paths = sorted(path for package in PACKAGES for path in (ROOT / "src" / "mooring" / package).rglob("*.py"))
    places = []
    for path in paths:
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))  # a change moves what is walked after it
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]  # how a dataclass compares is no behaviour
        aside = {id(part) for node in classes for decorator in node.decorator_list for part in ast.walk(decorator)}
        places += [(path, index) for index, node in enumerate(nodes) if id(node) not in aside and _mutate(node)]
    return [make_mutant(*place) for place in random.Random(seed).sample(places, min(count, len(places)))]


def find_tests(module: str) -> list[str]:
    """The tests of a module's package, those that name most of what it defines first."""
    package, *below = Path(module).with_suffix("").parts
    places = [f"tests/{package}", *(f"tests/{extra}" for extra in EXTRA_TESTS.get(package, ()))]
    files = [path for place in places for path in sorted((ROOT / place).rglob("test_*.py"))]
    files += [ROOT / place for place in places if place.endswith(".py")]
    source = ROOT / "src" / "mooring" / module
    body = ast.parse(source.read_text(encoding="utf-8")).body
    defined = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)} | {source.stem}
    names = defined | {name.replace("_", "-") for name in defined}  # attacks are run by name

    def distance(path: Path) -> tuple[bool, int, bool]:
        own = bool(below[:-1]) and below[0] in path.parts
        text = path.read_text(encoding="utf-8")
        return source.stem not in path.stem, -sum(name in text for name in names), not own

    return [path.relative_to(ROOT).as_posix() for path in sorted(dict.fromkeys(files), key=distance)]


def run_tests(sources: Path, tests: list[str], *options: str, limit: float | None = None) -> list[str] | None:
    """Run tests against a copy of the sources; return the failing ones, or None beyond the time limit."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", *options, *tests]
    paths = (str(sources), str(ROOT / "studies"), str(ROOT), os.environ.get("PYTHONPATH", ""))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "STRICT_RECORDS": "1"}
    try:
        ran = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    lines = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return [line.split(" ", 1)[1].split(" - ")[0] for line in lines] or (["pytest itself"] if ran.returncode else [])


def find_killer(place: Path, tests: list[str], limit: float) -> str:
    """Return the first test that fails against a copy of the sources and passes without a change; "" if there is none."""
    skipped: list[str] = []
    while True:
        failed = run_tests(place, tests, "-x", *(f"--deselect={test}" for test in skipped), limit=limit)
        if failed is None:
            return "time limit"
        if not failed:
            return ""
        test = failed[0]
        if test == "pytest itself" or not run_tests(ROOT / "src", [test]):
            return test
        skipped.append(test)


def try_mutant(mutant: Mutant, copies: SimpleQueue[Path], limit: float) -> dict[str, object]:
    """Run the tests against one mutant, in one of the copies of the sources."""
    place = copies.get()
    target = place / "mooring" / mutant.module
    original = target.read_bytes()
    began, tests = time.monotonic(), find_tests(mutant.module)
    try:
        target.write_text(mutant.source, encoding="utf-8")
        by = find_killer(place, tests[:NEAR], limit) or (tests[NEAR:] and find_killer(place, tests[NEAR:], limit)) or ""
    finally:
        target.write_bytes(original)
        copies.put(place)
    plain = {name: value for name, value in asdict(mutant).items() if name != "source"}
    outcome = "killed" if by else "survived"
    return plain | {"outcome": outcome, "by": by, "seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    """Try a sample of mutants, and write what became of them."""
    parser = argparse.ArgumentParser(description="Which mutants of the core modules do the tests notice?")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="one that was not used before")
    parser.add_argument("--seconds", type=int, default=3600, help="no mutant is started after that")
    parser.add_argument(
        "--limit", type=int, default=1800, help="seconds of tests, after which a mutant counts as killed"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    chosen = sample_mutants(given.count, given.seed)
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.processes) as threads:
        copies: SimpleQueue[Path] = SimpleQueue()
        for k in range(given.processes):
            shutil.copytree(ROOT / "src", Path(folder) / str(k))
            copies.put(Path(folder) / str(k))

        def tried(mutant: Mutant) -> dict[str, object] | None:
            return try_mutant(mutant, copies, given.limit) if time.monotonic() < end else None

        for one in threads.map(tried, chosen):
            if one is not None:
                found.append(one)
                print(f"{one['outcome']:<9} {one['module']}:{one['line']}  {one['change']}", flush=True)
                content = {"date": datetime.now(UTC).date().isoformat(), "seed": given.seed, "mutants": found}
                given.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    killed = sum(one["outcome"] == "killed" for one in found)
    print(f"{killed} of {len(found)} mutants were killed.")


if __name__ == "__main__":
    main()
