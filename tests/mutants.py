"""`make mutants`: random mutants of the core modules, each against the tests that run its line; which ones nobody notices.

A mutant changes one operator, constant or guard of one module. All of the sample are built into one copy of the sources,
each behind a switch that is off. The whole suite runs against this copy once and notes which tests reach which switch. Then
each mutant is switched on, in a new process, for the tests that reach it, the quickest first: it is killed if one of them
fails, or takes far longer than without it. A mutant that is reached while a module is imported, or while the fixture of
another test is made, runs against the tests that reach any function of its module, and those marked `definitions`. Which
survivors are equivalent to the original is judged by people, in the file of results. An interrupted run goes on where it
stopped.

Not drawn is what is no behaviour (how dataclasses compare, how much a cache keeps, and `strict=` of a zip, which only tells
of a mistake elsewhere), nor the modes of files, which a test in tests/architecture holds by reading the sources.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "mutants.json"
PACKAGES = ("mechanisms", "alignment", "attacks", "metrics", "audit", "protocol")
ASIDE = ("architecture", "distributed", "installation", "studies")  # folders of tests that run no line of the core
FORKS = multiprocessing.get_context("forkserver")
LOADED = (  # in the process that is forked for each run of pytest: what most tests import, and nothing of mooring
    "pytest", "hypothesis", "pandas", "scipy.stats", "scipy.optimize", "sklearn.ensemble", "sklearn.linear_model",
    "sklearn.pipeline", "pyarrow.parquet", "typer", "jinja2", "fsspec", "dp_accounting.rdp",
)  # fmt: skip
SWITCH = '''
"""Which mutant is switched on, and which ones were reached."""

import os

active = int(os.environ.get("MUTANT", "-1"))
reached = set()


def changed(k):
    reached.add(k)
    return k == active
'''
DEFINITIONS = "definitions"  # the marker of tests that look at what all modules define
NOT_DRAWN = ("compare", "maxsize", "mode", "strict")  # arguments of these names
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
    index: int
    """Which node changes, in the walk over the module."""


def make_mutant(path: Path, index: int) -> Mutant:
    """The mutant that changes the node of this index in the walk over a module."""
    node: Any = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))[index]
    line, before = node.lineno, ast.unparse(node)
    _mutate(node)
    module = path.relative_to(ROOT / "src" / "mooring").as_posix()
    return Mutant(module, line, f"{before[:60]} → {ast.unparse(node)[:60]}", index)


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
        aside = {id(part) for top in find_aside(nodes) for part in ast.walk(top)}
        places += [(path, index) for index, node in enumerate(nodes) if id(node) not in aside and _mutate(node)]
    return [make_mutant(*place) for place in random.Random(seed).sample(places, min(count, len(places)))]


def find_aside(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    """Yield what is not changed, with all that is in it."""
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            yield from node.decorator_list
        elif isinstance(node, ast.keyword) and node.arg in NOT_DRAWN:
            yield node.value


def copy_sources(place: Path, chosen: list[Mutant]) -> None:
    """Write a copy of the sources with all mutants built in, and the module of their switches."""
    shutil.copytree(ROOT / "src", place, ignore=shutil.ignore_patterns("__pycache__"))
    (place / "mutant_switch.py").write_text(SWITCH, encoding="utf-8")
    for module in {mutant.module for mutant in chosen}:
        path = place / "mooring" / module
        indices = {k: mutant.index for k, mutant in enumerate(chosen) if mutant.module == module}
        path.write_text(build_in(path.read_text(encoding="utf-8"), indices, module), encoding="utf-8")


def build_in(source: str, indices: dict[int, int], module: str) -> str:
    """Return the source of a module with mutants behind switches; its functions also say that the module is reached.

    Parameters
    ----------
    source : str
    indices : dict of int to int
        The number of each mutant, and the index of the node that it changes.
    module : str
        What its functions add to what is reached.
    """
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    place_of = {id(node): place for place, node in enumerate(nodes)}
    parent_of = {id(child): node for node in nodes for child in ast.iter_child_nodes(node)}
    changes: dict[int, list[tuple[int, ast.stmt]]] = {}
    for k, index in indices.items():
        statement = nodes[index]
        while not isinstance(statement, ast.stmt):
            statement = parent_of[id(statement)]
        copies: list[Any] = list(ast.walk(ast.parse(source)))
        changed = copies[place_of[id(statement)]]
        _mutate(copies[index])
        changes.setdefault(id(statement), []).append((k, changed))

    class Builder(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            of_node = changes.get(id(node), [])
            built: Any = self.generic_visit(node)
            if isinstance(built, ast.FunctionDef | ast.AsyncFunctionDef):
                has_text = ast.get_docstring(built) is not None
                built.body[has_text:has_text] = ast.parse(f"mutant_switch.reached.add({module!r})").body
            for k, changed in of_node:
                switch = ast.parse(f"mutant_switch.changed({k})", mode="eval").body
                built = ast.If(test=switch, body=[changed], orelse=[built])
            return built

    Builder().visit(tree)
    first = ast.get_docstring(tree) is not None
    while isinstance(tree.body[first], ast.ImportFrom) and tree.body[first].module == "__future__":  # type: ignore[attr-defined]
        first += 1
    tree.body[first:first] = ast.parse("import mutant_switch").body
    return ast.unparse(ast.fix_missing_locations(tree))


class Reached:
    """A pytest plugin that writes down which switches each test reached, and which tests fail while all are off.

    Parameters
    ----------
    folder : Path
        For one file a process: xdist runs several.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{os.getpid()}.jsonl"
        self._failed = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note what one test reaches, with the fixtures that are made for it."""
        import mutant_switch  # type: ignore[import-not-found]  # of the copy of the sources

        mutant_switch.reached.clear()
        self._failed, began = False, time.process_time()
        result = yield
        seconds = time.process_time() - began
        reached = [*mutant_switch.reached, *(marker.name for marker in item.iter_markers(DEFINITIONS))]
        line = {"test": item.nodeid, "seconds": seconds, "failed": self._failed, "reached": reached}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that a test failed."""
        self._failed |= report.failed


def pytest_configure(config: pytest.Config) -> None:
    """Note what tests reach, in a run of pytest that has this module as a plugin."""
    if folder := os.environ.get("MUTANTS_REACHED"):
        config.pluginmanager.register(Reached(Path(folder)))


@dataclass(frozen=True)
class TimedTest:
    """One test of the suite.

    Parameters
    ----------
    name : str
    seconds : float
        Of the processor, with the fixtures that were made for it.
    reached : frozenset of int and str
        The numbers of mutants whose switch it reached, the modules of which it called a function, and `DEFINITIONS` of a
        test with this marker.
    """

    name: str
    seconds: float
    reached: frozenset[int | str]


@dataclass
class Sample:
    """A sample of mutants, the copy of the sources that they are built into, and what became of them so far.

    Parameters
    ----------
    folder : Path
        Of the copy, of what the tests reached, and of what an interrupted run left.
    mutants : list of Mutant
    """

    folder: Path
    mutants: list[Mutant]
    outcomes: dict[int, dict[str, Any]] = field(default_factory=dict)

    def read_progress(self) -> bool:
        """Read what an interrupted run left; return whether it had begun with the same sample."""
        begun, drawn = self.folder / "sample.json", [asdict(mutant) for mutant in self.mutants]
        if not begun.exists() or json.loads(begun.read_text(encoding="utf-8")) != drawn:
            return False
        progress = self.folder / "outcomes.jsonl"
        for line in progress.read_text(encoding="utf-8").splitlines() if progress.exists() else ():
            outcome = json.loads(line)
            self.outcomes[outcome.pop("number")] = outcome
        return True

    def begin(self) -> None:
        """Write the copy of the sources."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "reached").mkdir(parents=True)
        copy_sources(self.folder / "src", self.mutants)
        drawn = [asdict(mutant) for mutant in self.mutants]
        (self.folder / "sample.json").write_text(json.dumps(drawn), encoding="utf-8")

    def run_pytest(
        self, arguments: list[str], reached: Path, *, mutant: int = -1, limit: int | None = None
    ) -> int | None:
        """Run pytest against the copy of the sources; return how it ended, and None beyond the limit.

        The limit is in seconds of the processor, so that it is the same on a busy machine; one that only waits has longer.
        """
        paths = [str(self.folder / "src"), str(ROOT / "studies"), str(ROOT)]
        variables = {"PYTHONPATH": os.pathsep.join(paths), "MUTANT": str(mutant), "MUTANTS_REACHED": str(reached)}
        process = FORKS.Process(target=_run_pytest, args=(arguments, variables, limit))
        process.start()
        process.join(limit and 20 * limit)
        if process.exitcode is None:
            os.killpg(process.pid or 0, signal.SIGKILL)
            process.join()
            return None
        return None if process.exitcode == -signal.SIGXCPU else process.exitcode

    def map_tests(self, processes: int) -> None:
        """Run the suite once with all switches off, and write what each test reaches."""
        files = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "tests").rglob("test_*.py"))]
        core = [name for name in files if name.split("/")[1] not in ASIDE]
        options = ["--numprocesses", str(processes), "--dist", "loadfile"]
        code = self.run_pytest([*options, *core], self.folder / "reached")
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            raise RuntimeError(f"pytest ended with {code} on the whole suite. Run `make unit`, which shows why.")
        (self.folder / "mapped").touch()

    def try_mutant(self, number: int, tests: list[TimedTest], limit: float) -> None:
        """Run the tests that reach one mutant with it switched on, until one fails, and write what became of it.

        Nothing is written for a mutant whose tests could not be run to their end without it: the next run tries it again.
        """
        reaching = [test for test in tests if number in test.reached]
        near = reaching or [test for test in tests if {self.mutants[number].module, DEFINITIONS} & test.reached]
        n_tried = 0
        killer: str | None = ""
        for batch in split_batches(near, limit):
            n_tried += len(batch)
            killer = self.find_killer(number, batch)
            if killer is None:
                print(f"undecided  {self.mutants[number].module}:{self.mutants[number].line}", flush=True)
                return
            if killer:
                break
        outcome = {"outcome": "killed" if killer else "survived", "by": killer, "tests": n_tried, "reaching": len(near)}
        self.outcomes[number] = outcome
        with (self.folder / "outcomes.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"number": number} | outcome) + "\n")
        mutant = self.mutants[number]
        print(f"{outcome['outcome']}  {mutant.module}:{mutant.line}  {mutant.change}  {outcome}", flush=True)

    def find_killer(self, number: int, batch: list[TimedTest]) -> str | None:
        """The test of a batch that fails with a mutant, and passes alone without it; '' if there is none.

        It is None if the tests do not come to their end, and do not without the mutant either.
        """
        left = batch
        while left:
            with tempfile.TemporaryDirectory() as folder:
                limit = 60 + round(10 * sum(test.seconds for test in left))
                names = [test.name for test in left]
                code = self.run_pytest(["-x", *names], Path(folder), mutant=number, limit=limit)
                if code == pytest.ExitCode.OK:
                    return ""
                failing = [test.name for test in read_tests(Path(folder), failed=True)]
                if not failing:  # the tests could not be imported, or took too long: do they without the mutant?
                    good = self.run_pytest(["-x", *names], Path(folder), limit=limit) == pytest.ExitCode.OK
                    return f"{'a limit of time' if code is None else 'an import'}" if good else None
                if self.run_pytest(failing[:1], Path(folder)) == pytest.ExitCode.OK:
                    return failing[0]
                left = [test for test in left if test.name != failing[0]]
        return ""


def _run_pytest(arguments: list[str], variables: dict[str, str], limit: int | None) -> None:
    """Run pytest in this process, which has loaded nothing of mooring, and end it with pytest's exit code."""
    os.setpgid(0, 0)
    os.chdir(ROOT)
    os.environ |= variables
    del sys.argv[1:]  # MPyC, which some tests import, would take them for its own
    if limit:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    paths = variables["PYTHONPATH"].split(os.pathsep)
    sys.path[:] = paths + [path for path in sys.path if path not in ("", str(ROOT / "src"), *paths)]
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    options = ["-q", "-p", "no:cacheprovider", "-p", "tests.mutants", "--tb=no", "--assert=plain"]
    sys.exit(pytest.main([*options, *arguments]))


def read_tests(folder: Path, *, failed: bool) -> list[TimedTest]:
    """The tests that a run of pytest noted in a folder as passing or as failing, the quickest first."""
    lines = [
        json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text(encoding="utf-8").splitlines()
    ]
    tests = [
        TimedTest(line["test"], line["seconds"], frozenset(line["reached"]))
        for line in lines
        if line["failed"] == failed
    ]
    return sorted(tests, key=lambda test: test.seconds)


def split_batches(tests: list[TimedTest], limit: float, first: float = 10.0) -> Iterator[list[TimedTest]]:
    """Split tests into batches, each of some four times the seconds of the one before, up to a limit in all.

    A test that takes longer than the limit alone is in the last batch if there is no other.
    """
    batch: list[TimedTest] = []
    in_batch, in_all = 0.0, 0.0
    for test in tests:
        if in_all and in_all + test.seconds > limit:
            break
        batch.append(test)
        in_batch, in_all = in_batch + test.seconds, in_all + test.seconds
        if in_batch > first:
            yield batch
            batch, in_batch, first = [], 0.0, 4 * first
    if batch:
        yield batch


def main() -> None:
    """Try a sample of mutants, and write what became of them; go on with a sample that was interrupted."""
    parser = argparse.ArgumentParser(description="Which mutants of the core modules do the tests notice?")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="one that was not used before")
    parser.add_argument("--seconds", type=int, default=7200, help="no mutant is tried after that")
    parser.add_argument("--limit", type=float, default=300, help="processor seconds of tests for one mutant")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    FORKS.set_forkserver_preload(list(LOADED))
    sample = Sample(ROOT / "build" / f"mutants-{given.seed}", sample_mutants(given.count, given.seed))
    if not sample.read_progress():
        sample.begin()
    if not (sample.folder / "mapped").exists():
        sample.map_tests(given.processes)
    tests = read_tests(sample.folder / "reached", failed=False)
    print(f"{len(tests)} tests pass with all mutants off.", flush=True)

    def try_in_time(number: int) -> None:
        if time.monotonic() < end:
            sample.try_mutant(number, tests, given.limit)

    with ThreadPoolExecutor(given.processes) as threads:
        list(threads.map(try_in_time, [k for k in range(len(sample.mutants)) if k not in sample.outcomes]))
    results = [
        {"module": mutant.module, "line": mutant.line, "change": mutant.change} | sample.outcomes[k]
        for k, mutant in enumerate(sample.mutants)
        if k in sample.outcomes
    ]
    content = {"date": datetime.now(UTC).date().isoformat(), "seed": given.seed, "mutants": results}
    given.output.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    n_killed = sum(result["outcome"] == "killed" for result in results)
    print(f"{n_killed} of {len(results)} mutants were killed.")


if __name__ == "__main__":
    main()
