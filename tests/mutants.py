"""`make mutants`: random mutants of the core modules, each against the tests that run its line; which ones nobody notices.

A mutant changes one operator, constant or guard of one module. It counts as killed if a test fails that passes without the
change. Which tests run which line is measured first, by one run of the suite under coverage; tests that run little of
mooring come first, since they are the quickest and the nearest to the line. Which survivors are equivalent to the original
is judged by people, in the file of results. An interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from coverage import CoverageData

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "mutants.json"
PACKAGES = ("mechanisms", "alignment", "attacks", "metrics", "audit", "protocol")
ASIDE = ("architecture", "distributed", "installation", "studies")  # folders of tests that run no line of the core
FORKS = multiprocessing.get_context("forkserver")
LOADED = (  # in the process that is forked for each run of tests: what most tests import, and nothing of mooring
    "pytest", "hypothesis", "pandas", "scipy.stats", "scipy.optimize", "scipy.signal", "sklearn.ensemble",
    "sklearn.pipeline", "sklearn.linear_model", "sklearn.svm", "pyarrow.parquet", "onnxruntime", "typer", "jinja2", "fsspec",
    "dp_accounting.rdp",
)  # fmt: skip
TIME_LIMIT = "time limit"  # people judge whether the change makes a test run for ever
FIRST = 25  # tests that are run first, in a process of their own: most mutants end there
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
    statement: int
    """The first line of the statement that is changed."""
    change: str
    """What became what."""
    source: str
    """The changed module."""


def make_mutant(path: Path, index: int) -> Mutant:
    """The mutant that changes the node of this index in the walk over a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node: Any = next(node for k, node in enumerate(ast.walk(tree)) if k == index)
    line, before = node.lineno, ast.unparse(node)
    statements = [part for part in ast.walk(tree) if isinstance(part, ast.stmt) and part.lineno <= line]
    around = [part.lineno for part in statements if node is part or any(node is below for below in ast.walk(part))]
    _mutate(node)
    module = path.relative_to(ROOT / "src" / "mooring").as_posix()
    return Mutant(module, line, max(around), f"{before[:60]} → {ast.unparse(node)[:60]}", ast.unparse(tree))


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


def measure_coverage(folder: Path, processes: int) -> CoverageData:
    """Return which test runs which line, from one file for each folder of tests; those that are missing are measured first.

    An interrupted run leaves the files that it finished, and a later one goes on with the others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tests = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    parts = [path.relative_to(ROOT / "tests") for path in tests]
    parts = [part for part in parts if part.parts[:1] not in {(name,) for name in ASIDE}]
    parts.sort(key=lambda part: (part.parts[:1] not in {(name,) for name in PACKAGES}, part))  # those of the core first

    def measure(part: Path) -> None:
        finished = folder / ("-".join(("tests", *part.parts)) + ".sqlite")
        if finished.exists():
            return
        settings, unfinished = finished.with_suffix(".ini"), finished.with_suffix(".unfinished")
        settings.write_text(f"[run]\nsource = {ROOT / 'src' / 'mooring'}\ndata_file = {unfinished}\n", encoding="utf-8")
        options = [
            f"--cov={ROOT / 'src' / 'mooring'}",
            f"--cov-config={settings}",
            "--cov-context=test",
            "--cov-report=",
        ]
        began = time.monotonic()
        failed = run_tests(
            ROOT / "src", [str(path) for path in sorted((ROOT / "tests" / part).glob("test_*.py"))], *options
        )
        unfinished.replace(finished)
        print(f"{part}: {time.monotonic() - began:.0f} s, {len(failed or ())} failed", flush=True)

    with ThreadPoolExecutor(processes) as threads:
        list(threads.map(measure, parts))
    data = CoverageData(no_disk=True)
    for finished in sorted(folder.glob("*.sqlite")):
        part_data = CoverageData(finished)
        part_data.read()
        data.update(part_data)
    return data


class LineTests:
    """Which tests run a line, those that run least of mooring first.

    Parameters
    ----------
    data : coverage.CoverageData
        It has the name of a test as the context of each line.
    sources : Path
        The folder of the package that was measured.
    """

    def __init__(self, data: CoverageData, sources: Path) -> None:
        self._data, self._sources = data, sources
        self._n_lines: Counter[str] = Counter()
        for path in data.measured_files():
            for contexts in data.contexts_by_lineno(path).values():
                self._n_lines.update(contexts)

    def __call__(self, mutant: Mutant) -> list[str]:
        """Return the tests of a mutant's statement, or those of its module where the line runs on import only."""
        contexts = self._data.contexts_by_lineno(str(self._sources / mutant.module))
        lines = {*contexts.get(mutant.line, ()), *contexts.get(mutant.statement, ())} - {""}
        names = lines or {name for of_line in contexts.values() for name in of_line} - {""}
        tests = {name.rsplit("|", 1)[0] for name in names}
        return sorted(tests, key=lambda test: (self._n_lines[f"{test}|run"], test))


def run_tests(sources: Path, tests: list[str], *options: str, limit: float | None = None) -> list[str] | None:
    """Run tests against a copy of the sources; return the failing ones, or None beyond the time limit.

    A process that has loaded other projects' modules is forked for it, which saves most of the time of many short runs.
    """
    with tempfile.TemporaryDirectory() as folder:
        process = FORKS.Process(
            target=_run_in_process, args=(sources, [*options, *tests], Path(folder) / "failed.json")
        )
        process.start()
        process.join(limit)
        if process.is_alive():
            os.killpg(process.pid or 0, signal.SIGKILL)
            process.join()
            return None
        failed = Path(folder) / "failed.json"
        return json.loads(failed.read_text(encoding="utf-8")) if failed.exists() else ["pytest itself"]


def _run_in_process(sources: Path, arguments: list[str], failed: Path) -> None:
    """Run pytest in a process of its own, and write the names of the tests that failed."""
    os.setpgid(0, 0)
    os.chdir(ROOT)
    paths = [str(sources), str(ROOT / "studies"), str(ROOT)]
    sys.path[:] = paths + [path for path in sys.path if path not in ("", str(ROOT / "src"), *paths)]
    os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1", "STRICT_RECORDS": "1"}
    sys.dont_write_bytecode = True
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    seen = _Failures()
    ended = pytest.main(["-q", "-p", "no:cacheprovider", "--tb=no", "--assert=plain", *arguments], plugins=[seen])
    if ended != pytest.ExitCode.OK and not seen.tests:
        seen.tests.append("pytest itself")
    failed.write_text(json.dumps(seen.tests), encoding="utf-8")


class _Failures:
    """The names of tests that failed, and of files of tests that could not be read."""

    def __init__(self) -> None:
        self.tests: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.tests:
            self.tests.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.tests.append(report.nodeid)


@cache
def fails_anyway(test: str) -> bool:
    """Whether a test fails without a change."""
    return bool(run_tests(ROOT / "src", [test]))


def find_killer(place: Path, tests: list[str], limit: float) -> str:
    """Return the first test that fails against a copy of the sources and passes without a change; "" if there is none."""
    skipped: list[str] = []
    while True:
        failed = run_tests(place, tests, "-x", *(f"--deselect={test}" for test in skipped), limit=limit)
        if failed is None:
            return TIME_LIMIT
        if not failed:
            return ""
        test = failed[0]
        if test == "pytest itself":
            if run_tests(ROOT / "src", tests, "--collect-only"):
                raise RuntimeError(
                    "tests cannot be collected without the change: measure again which test runs which line"
                )
            return test
        if not fails_anyway(test):
            return test
        skipped.append(test)


def try_mutant(mutant: Mutant, tests: list[str], copies: SimpleQueue[Path], limit: float) -> dict[str, object]:
    """Run the tests against one mutant, in one of the copies of the sources."""
    place = copies.get()
    target = place / "mooring" / mutant.module
    original = target.read_bytes()
    began = time.monotonic()
    try:
        target.write_text(mutant.source, encoding="utf-8")
        parts = [part for part in (tests[:FIRST], tests[FIRST:]) if part]
        by = next(filter(None, (find_killer(place, part, limit) for part in parts)), "")
    finally:
        target.write_bytes(original)
        copies.put(place)
    plain = {name: value for name, value in asdict(mutant).items() if name != "source"}
    outcome = "survived" if by in ("", TIME_LIMIT) else "killed"
    return plain | {"outcome": outcome, "by": by, "tests": len(tests), "seconds": round(time.monotonic() - began, 1)}


def read_results(path: Path, chosen: list[Mutant]) -> list[dict[str, object]]:
    """Return the results of an interrupted run of the same sample, or none."""
    results = json.loads(path.read_text(encoding="utf-8"))["mutants"] if path.exists() else []
    same = all(
        (old["module"], old["change"]) == (new.module, new.change) for old, new in zip(results, chosen, strict=False)
    )
    return results if same and len(results) <= len(chosen) else []


def main() -> None:
    """Try a sample of mutants, and write what became of them; go on with a sample that was interrupted."""
    parser = argparse.ArgumentParser(description="Which mutants of the core modules do the tests notice?")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="one that was not used before")
    parser.add_argument("--seconds", type=int, default=3600, help="no mutant is started after that")
    parser.add_argument(
        "--limit",
        type=int,
        default=1800,
        help="seconds of tests; a mutant whose tests take longer has survived, by the time limit",
    )
    parser.add_argument("--coverage", type=Path, help="folder of which test runs which line; what it lacks is measured")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    FORKS.set_forkserver_preload(list(LOADED))
    chosen = sample_mutants(given.count, given.seed)
    results = read_results(given.output, chosen)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.processes) as threads:
        data = measure_coverage(given.coverage or Path(folder) / "coverage", given.processes)
        tests_of = LineTests(data, ROOT / "src" / "mooring")
        copies: SimpleQueue[Path] = SimpleQueue()
        for k in range(given.processes):
            shutil.copytree(ROOT / "src", Path(folder) / str(k))
            copies.put(Path(folder) / str(k))

        def tried(mutant: Mutant) -> dict[str, object] | None:
            if time.monotonic() > end:
                return None
            return try_mutant(mutant, tests_of(mutant), copies, given.limit)

        for result in threads.map(tried, chosen[len(results) :]):
            if result is not None:
                results.append(result)
                print(f"{result['outcome']:<9} {result['module']}:{result['line']}  {result['change']}", flush=True)
                content = {"date": datetime.now(UTC).date().isoformat(), "seed": given.seed, "mutants": results}
                given.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    killed = sum(result["outcome"] == "killed" for result in results)
    print(f"{killed} of {len(results)} mutants were killed.")


if __name__ == "__main__":
    main()
