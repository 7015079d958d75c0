"""Changes of the code that `make mutants` builds into a copy of it, each behind a switch."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants import ROOT, SWITCH, build_in

SOURCE = '''"""A module."""

from __future__ import annotations

LIMIT = 5


def count(rows):
    """Count the rows up to the limit."""
    n = 0
    for _ in rows[: LIMIT + 1]:
        if n < LIMIT:
            n += 1
        else:
            break
    return n
'''


@pytest.mark.parametrize(
    ("active", "counted"), [("-1", 5), ("0", 6), ("1", 6), ("2", 4), ("3", 5)], ids=["none", "5", "<", "+", "unused"]
)
def test_one_change_is_switched_on_and_the_rest_of_the_module_is_as_it_was(
    active: str, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUTANT", active)
    switch = ModuleType("mutant_switch")
    exec(SWITCH, switch.__dict__)
    monkeypatch.setitem(sys.modules, "mutant_switch", switch)
    nodes = list(ast.walk(ast.parse(SOURCE)))
    five = next(k for k, node in enumerate(nodes) if isinstance(node, ast.Constant) and node.value == 5)
    less = next(k for k, node in enumerate(nodes) if isinstance(node, ast.Compare))
    plus = next(k for k, node in enumerate(nodes) if isinstance(node, ast.BinOp))
    built = build_in(SOURCE, {0: five, 1: less, 2: plus}, "module.py")
    names: dict[str, object] = {}
    exec(built, names)
    assert names["__doc__"] == "A module."
    assert switch.reached == {0}
    count = names["count"]
    assert callable(count)
    assert count.__doc__ == "Count the rows up to the limit."
    assert count(range(9)) == counted
    assert switch.reached == {0, 1, 2, "module.py"} - ({1} if active == "2" else set())


TOY = """
import os

import pytest

import mutant_switch

MAIN = os.getpid()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")


def half(n):
    return n / 3 if mutant_switch.changed(0) else n / 2


def double(n):
    return n * 3 if mutant_switch.changed(1) else n * 2


def greet():
    return "oh" if mutant_switch.changed(2) else "hi"


def laugh():
    return "hoho" if mutant_switch.changed(3) else "haha"


def test_that_makes_a_file(folder):
    assert half(4) == 2
    assert len(greet()) == 2
    if os.getpid() == MAIN:  # what forks do in folders of their own leaves this file where it is
        (folder / "greeting").write_text("hi")


def test_of_half():
    assert half(4) == 2
    assert len(laugh()) == 4


def test_that_a_fork_does_not_suit():
    assert double(0) == 0
    assert os.getpid() == MAIN


def test_that_takes_long(folder):
    for _ in range(3 * 10**6):
        pass
    assert half(4) == 2
    assert greet() == (folder / "greeting").read_text()


def test_that_fails_anyway():
    assert not laugh()
"""


@pytest.mark.posix
def test_a_mutant_is_killed_by_the_quickest_test_that_fails_with_it_alone(tmp_path: Path) -> None:
    (tmp_path / "test_toy.py").write_text(TOY, encoding="utf-8")
    (tmp_path / "mutant_switch.py").write_text(SWITCH, encoding="utf-8")
    program = (
        "import json, sys, pytest; from tests.mutants import Trial; trial = Trial([0, 1, 2, 3]); "
        "pytest.main(['-q', '-p', 'no:cacheprovider', '-c', '/dev/null', '--basetemp=made', 'test_toy.py'], [trial]); "
        "print(json.dumps(trial.noted()))"
    )
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        check=True,
    )
    noted = json.loads(ran.stdout.splitlines()[-1])
    quick = {"test_toy.py::test_that_makes_a_file", "test_toy.py::test_of_half"}
    assert noted["killed"].pop("0") in quick
    assert noted["killed"] == {"2": "test_toy.py::test_that_takes_long"}
    assert noted["tried"] == {"0": 1, "1": 1, "2": 2, "3": 1}
    assert noted["reached"] == [0, 1, 2, 3]
    assert noted["failing"] == ["test_toy.py::test_that_fails_anyway"]
