"""`make mutants`: random mutants of the core modules, each against the tests that run its line; which ones nobody notices.

A mutant changes one operator, constant or guard of one module. All of the sample are built into one copy of the sources,
each behind a switch that is off, and each file of tests runs against this copy once, as it is. A test that reaches a switch
is run again with that switch on, in a fork of the process as it was before the test. The mutant is killed if the test fails
then, and passes in another fork with all switches off. What no fork noticed runs against whole files that reach it, each in
a new process: there the change is on while modules are imported and while fixtures are made. Which survivors are equivalent
to the original is judged by people, in the file of results. An interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

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
SWITCH = '''
"""Which mutant is switched on, and which ones were reached."""

import os

active = int(os.environ.get("MUTANT", "-1"))
reached = set()


def changed(k):
    reached.add(k)
    return k == active
'''
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
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]  # how a dataclass compares is no behaviour
        aside = {id(part) for node in classes for decorator in node.decorator_list for part in ast.walk(decorator)}
        places += [(path, index) for index, node in enumerate(nodes) if id(node) not in aside and _mutate(node)]
    return [make_mutant(*place) for place in random.Random(seed).sample(places, min(count, len(places)))]


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


def _run_pytest(place: Path, arguments: list[str], plugin: Any, mutant: int, output: Path) -> None:
    """Run pytest against the copy of the sources in a process of its own, and write what the plugin noted."""
    os.setpgid(0, 0)
    os.chdir(ROOT)
    paths = [str(place), str(ROOT / "studies"), str(ROOT)]
    sys.path[:] = paths + [path for path in sys.path if path not in ("", str(ROOT / "src"), *paths)]
    sys.pycache_prefix = str(place.parent / "bytecode")
    os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONPYCACHEPREFIX": sys.pycache_prefix}
    os.environ |= {"MUTANT": str(mutant), "STRICT_RECORDS": "1"}
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    options = ["-q", "-p", "no:cacheprovider", "--tb=no", "--assert=plain", "--capture=sys"]
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        pytest.main([*options, f"--basetemp={folder}/tests", *arguments], plugins=[plugin])
    output.write_text(json.dumps(plugin.noted()), encoding="utf-8")


def run_pytest(place: Path, arguments: list[str], plugin: Any, *, mutant: int = -1, limit: float | None = None) -> Any:
    """Run pytest in a fork of a process that has loaded other projects' modules.

    Returns what the plugin noted; None if the process took longer than the limit, or ended otherwise.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "noted.json"
        process = FORKS.Process(target=_run_pytest, args=(place, arguments, plugin, mutant, output))
        process.start()
        process.join(limit)
        if process.is_alive():
            os.killpg(process.pid or 0, signal.SIGKILL)
            process.join()
        return json.loads(output.read_text(encoding="utf-8")) if output.exists() else None


class Trial:
    """A pytest plugin that runs each test of a file as it is, and then again with the mutants that it reached.

    A mutant meets the quickest tests first. Until then each test has a snapshot of the process as it was before it.

    Parameters
    ----------
    alive : list of int
        The mutants that nobody has noticed so far.
    """

    def __init__(self, alive: list[int]) -> None:
        self._reached: set[int | str] = set()
        self._killed: dict[int, str] = {}
        self._alive, self._n_tried = alive, dict.fromkeys(alive, 0)
        self._failing: list[str] = []
        self._trials: list[tuple[float, str, Snapshot, set[int | str]]] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Make the folder of temporary files now: a snapshot without it would make it again."""
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        import mutant_switch  # type: ignore[import-not-found]  # of the copy of the sources

        self._reached |= mutant_switch.reached  # on import, or by fixtures that end
        mutant_switch.reached.clear()
        snapshot, began = Snapshot(item), time.process_time()
        reports = runtestprotocol(item, log=False, nextitem=nextitem or Sibling(item))  # type: ignore[arg-type]
        seconds = time.process_time() - began
        self._reached |= mutant_switch.reached
        self._trials.append((seconds, item.nodeid, snapshot, set(mutant_switch.reached)))
        if any(report.failed for report in reports):
            self._failing.append(item.nodeid)
        if nextitem is None:
            self._try_mutants()
            item.session._setupstate.teardown_exact(None)
        return True

    def _try_mutants(self) -> None:
        """Run the tests again, while the files of their fixtures are still there."""
        unsuited = set(self._failing)
        for k in self._alive:
            for seconds, name, snapshot, reached in sorted(self._trials, key=lambda trial: trial[0]):
                if k not in reached or name in unsuited:
                    continue
                self._n_tried[k] += 1
                limit = 10 + round(10 * seconds)
                if snapshot.fails(k, limit):
                    if snapshot.fails(-1, limit) is False:
                        self._killed[k] = name
                        break
                    unsuited.add(name)
        for *_, snapshot, _ in self._trials:
            snapshot.close()
        for *_, snapshot, _ in self._trials:
            snapshot.wait()

    def noted(self) -> dict[str, Any]:
        """Return what became of the mutants, what was reached, and which tests fail without a change."""
        reached = sorted(k for k in self._reached if isinstance(k, int))
        modules = sorted(name for name in self._reached if isinstance(name, str))
        noted = {"killed": self._killed, "reached": reached, "modules": modules}
        seconds = sum(spent for spent, *_ in self._trials)
        return noted | {"seconds": seconds, "tried": self._n_tried, "failing": self._failing}


class Snapshot:
    """A fork of this process that waits, and runs a test in forks of itself when it is asked to."""

    def __init__(self, item: pytest.Item) -> None:
        asked, self._asking = os.pipe()
        self._answers, answering = os.pipe()
        self._process = _fork()
        if self._process:
            os.close(asked)
            os.close(answering)
            return
        os.close(self._asking)
        while request := os.read(asked, 64):
            mutant, limit = json.loads(request)
            os.write(answering, _run_in_fork(lambda k=mutant: _run_with(item, k), limit))
        os._exit(0)

    def fails(self, mutant: int, limit: int) -> bool | None:
        """Return whether the test fails with a mutant, or as it is for -1; None beyond a limit of processor seconds."""
        os.write(self._asking, json.dumps([mutant, limit]).encode())
        return {b"0": False, b"1": True}.get(os.read(self._answers, 1))

    def close(self) -> None:
        """Let the fork end, once all forks that came after it have ended."""
        os.close(self._asking)
        os.close(self._answers)

    def wait(self) -> None:
        """Wait for that."""
        os.waitpid(self._process, 0)


class Sibling:
    """Another test of the same file as a test: where it comes next, the file's fixtures are not ended.

    Parameters
    ----------
    item : pytest.Item
    """

    def __init__(self, item: pytest.Item) -> None:
        self._item = item

    def listchain(self) -> list[Any]:
        """Return what pytest asks for: the nodes that are still needed."""
        return [*self._item.listchain()[:-1], self]


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        return os.fork()


def _run_in_fork(action: Callable[[], bool], limit: int) -> bytes:
    """Return 0 if an action in a fork returns true, 1 if not or if it ends the process, 2 beyond the limit.

    The limit is in seconds of the processor, so that it is the same on a busy machine; one that only waits has longer.
    """
    process = _fork()
    if not process:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        good = False
        try:
            good = action()
        finally:
            os._exit(0 if good else 1)
    end = time.monotonic() + 20 * limit
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended and os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
            return b"2"
        if ended:
            return b"1" if status else b"0"
        if time.monotonic() > end:
            os.killpg(process, signal.SIGKILL)
        time.sleep(0.004)


def _run_with(item: pytest.Item, mutant: int) -> bool:
    """Return whether a test passes with a mutant."""
    import mutant_switch

    mutant_switch.active = mutant
    os.environ["MUTANT"] = str(mutant)  # of processes that the test starts
    reports = runtestprotocol(item, log=False, nextitem=Sibling(item))  # type: ignore[arg-type]
    return not any(report.failed for report in reports)


class Failures:
    """A pytest plugin that notes which tests failed, and which files of tests could not be read."""

    def __init__(self) -> None:
        self._failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed.append(report.nodeid)

    def noted(self) -> list[str]:
        """Return their names."""
        return self._failed


class Run:
    """One sample of mutants, what became of them so far, and what each file of tests reached.

    Parameters
    ----------
    chosen : list of Mutant
    seed : int
    progress : Path
        What an interrupted run left; it is used if it is of the same sample.
    """

    def __init__(self, chosen: list[Mutant], seed: int, progress: Path) -> None:
        self.chosen, self.seed, self._progress = chosen, seed, progress
        self.files: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.again: list[list[Any]] = []
        """Each number of a mutant and file of tests that ran in a new process, which test failed there, and its seconds."""
        named = [[mutant.module, mutant.index, mutant.change] for mutant in chosen]
        if progress.exists():
            kept = json.loads(progress.read_text(encoding="utf-8"))
            if kept["sample"] == named:
                self.files, self.again = kept["files"], kept["again"]
        self._named = named

    def write(self, output: Path) -> None:
        """Write the progress and the results."""
        with self._lock:
            kept = {"sample": self._named, "files": self.files, "again": self.again}
            self._progress.parent.mkdir(parents=True, exist_ok=True)
            self._progress.write_text(json.dumps(kept, indent=1), encoding="utf-8")
            killers = self.killers()
            results = [
                {"module": mutant.module, "line": mutant.line, "change": mutant.change}
                | {"outcome": "killed" if k in killers else "survived", "by": killers.get(k, "")}
                | {"tests": sum(file["tried"].get(str(k), 0) for file in list(self.files.values()))}
                | {"files": sum(number == k for number, *_ in self.again)}
                for k, mutant in enumerate(self.chosen)
            ]
            content = {"date": datetime.now(UTC).date().isoformat(), "seed": self.seed, "mutants": results}
            output.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def killers(self) -> dict[int, str]:
        """The test that noticed each mutant that was noticed."""
        by_fork = {int(k): test for file in list(self.files.values()) for k, test in file["killed"].items()}
        return {k: test for k, _, test, _ in self.again if test} | by_fork

    def alive(self) -> list[int]:
        """The mutants that nobody has noticed so far."""
        killers = self.killers()
        return [k for k in range(len(self.chosen)) if k not in killers]

    def left(self, k: int) -> list[str]:
        """The files of tests that reach a mutant and have not been run with it from the beginning, the nearest first."""
        mutant, done = self.chosen[k], {name for number, name, *_ in self.again if number == k}
        has_functions = any(mutant.module in file["modules"] for file in self.files.values())
        near = [
            name
            for name, file in self.files.items()
            if name not in done and k in file["reached"] and (mutant.module in file["modules"] or not has_functions)
        ]
        return sorted(near, key=lambda name: (len(self.files[name]["modules"]), self.files[name]["seconds"]))


class Queue:
    """Files of tests that have not run, of which those come first that name what the living mutants' modules define.

    Parameters
    ----------
    run : Run
    """

    def __init__(self, run: Run) -> None:
        self._run, self._lock = run, threading.Lock()
        paths = sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py"))
        names = [path.as_posix() for path in paths if path.parts[1] not in ASIDE]
        words = {name: set(re.findall(r"\w+", (ROOT / name).read_text(encoding="utf-8"))) for name in names}
        defined = [defined_in(mutant.module) for mutant in run.chosen]
        self._near = [[name for name in names if words[name] & of_module] for of_module in defined]
        self._left = [name for name in names if name not in run.files]

    def __iter__(self) -> Iterator[str]:
        """Iterate over what is left; several threads may do so."""
        while True:
            with self._lock:
                if not self._left:
                    return
                worth = dict.fromkeys(self._left, 0.0)
                for k in self._run.alive():
                    for name in self._near[k]:
                        if name in worth:
                            worth[name] += 1 / len(self._near[k])
                name = max(self._left, key=lambda name: worth[name])
                self._left.remove(name)
            yield name


def defined_in(module: str) -> set[str]:
    """The names of a module's functions and classes, and its own."""
    tree = ast.parse((ROOT / "src" / "mooring" / module).read_text(encoding="utf-8"))
    return {part.name for part in tree.body if isinstance(part, ast.FunctionDef | ast.ClassDef)} | {Path(module).stem}


def main() -> None:
    """Try a sample of mutants, and write what became of them; go on with a sample that was interrupted."""
    parser = argparse.ArgumentParser(description="Which mutants of the core modules do the tests notice?")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="one that was not used before")
    parser.add_argument("--seconds", type=int, default=3600, help="no file of tests is started after that")
    parser.add_argument(
        "--limit", type=int, default=600, help="seconds of whole files for a mutant that no fork noticed"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    FORKS.set_forkserver_preload(list(LOADED))
    chosen = sample_mutants(given.count, given.seed)
    run = Run(chosen, given.seed, ROOT / "build" / f"mutants-{given.seed}.json")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.processes) as threads:
        place = Path(folder) / "src"
        copy_sources(place, chosen)

        def try_files(queue: Queue) -> None:
            for name in queue:
                if time.monotonic() > end:
                    return
                noted = run_pytest(place, [name], Trial(run.alive()))
                if noted is None:
                    print(f"{name}: pytest ended", flush=True)
                    continue
                run.files[name] = noted
                n_killed, n_failing = len(noted["killed"]), len(noted["failing"])
                print(f"{name}: {n_killed} killed, {n_failing} fail anyway, {len(run.alive())} left", flush=True)
                run.write(given.output)

        def try_again(k: int) -> None:
            for name in run.left(k):
                seconds = sum(spent for number, *_, spent in run.again if number == k)
                if time.monotonic() > end or seconds > given.limit:
                    return
                began = time.monotonic()
                options = [f"--deselect={test}" for test in run.files[name]["failing"]]
                failed = run_pytest(place, [name, "-x", *options], Failures(), mutant=k, limit=given.limit)
                run.again.append([k, name, failed[0] if failed else "", time.monotonic() - began])
                if failed:
                    return

        list(threads.map(try_files, [Queue(run)] * given.processes))
        for _ in threads.map(try_again, run.alive()):
            run.write(given.output)
    alive = run.alive()
    for k in alive:
        print(f"survived  {chosen[k].module}:{chosen[k].line}  {chosen[k].change}")
    print(f"{len(chosen) - len(alive)} of {len(chosen)} mutants were killed.")


if __name__ == "__main__":
    main()
