"""Changes of the code that `make mutants` builds into a copy of it, each behind a switch."""

import ast
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants import DEFINITIONS, SWITCH, Mutant, Sample, TimedTest, build_in, find_aside, split_batches

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


def test_what_is_no_behaviour_is_not_changed() -> None:
    source = """
@dataclass(frozen=True)
class Pair:
    first: int = field(compare=False, repr=False)

    @lru_cache(maxsize=4)
    def rows(self):
        with open(self.path, mode=0o600):
            return zip(self.a, self.b[:2], strict=True)
"""
    nodes = list(ast.walk(ast.parse(source)))
    aside = {part for top in find_aside(nodes) for part in ast.walk(top)}
    changed = [node.value for node in nodes if isinstance(node, ast.Constant) and node not in aside]
    assert changed == [False, 2]


def test_batches_hold_the_quickest_tests_up_to_the_limit() -> None:
    tests = [TimedTest(str(k), seconds, frozenset()) for k, seconds in enumerate([1.0, 2.0, 9.0, 20.0, 30.0, 400.0])]
    batches = [[test.name for test in batch] for batch in split_batches(tests, limit=100)]
    assert batches == [["0", "1", "2"], ["3", "4"]]
    assert list(split_batches(tests[-1:], limit=100)) == [tests[-1:]]


class SampleWithoutPytest(Sample):
    """A sample whose runs of pytest end as a table says: for each test, with which mutants it fails."""

    def __init__(self, folder: Path, failing: dict[str, set[int]]) -> None:
        super().__init__(folder, [])
        self.failing = failing

    def run_pytest(self, arguments: list[str], reached: Path, *, mutant: int = -1, limit: int | None = None) -> int:
        for name in arguments:
            if mutant in self.failing.get(name, set()):
                line = {"test": name, "seconds": 0.1, "failed": True, "reached": []}
                (reached / "1.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
                return pytest.ExitCode.TESTS_FAILED
        return pytest.ExitCode.OK


def test_a_mutant_is_killed_by_a_test_that_fails_with_it_and_passes_alone_without_it(tmp_path: Path) -> None:
    tests = [TimedTest(name, 0.1, frozenset()) for name in ("fails alone", "notices 1", "notices nothing")]
    sample = SampleWithoutPytest(tmp_path, {"fails alone": {-1, 0, 1}, "notices 1": {1}})
    assert sample.find_killer(1, tests) == "notices 1"
    assert sample.find_killer(0, tests) == ""


class SampleOutOfTime(Sample):
    """A sample whose runs of pytest all end at their limit."""

    def run_pytest(self, *_: object, **__: object) -> None:
        return None


def test_a_mutant_whose_tests_do_not_come_to_their_end_without_it_either_is_left_for_the_next_run(
    tmp_path: Path,
) -> None:
    tests = [TimedTest("slow", 0.1, frozenset([0]))]
    sample = SampleOutOfTime(tmp_path, [Mutant("module.py", 1, "5 → 6", 0)])
    sample.try_mutant(0, tests, limit=60)
    assert sample.find_killer(0, tests) is None
    assert sample.outcomes == {}


def test_a_change_that_no_test_reaches_meets_those_of_its_module_and_those_of_definitions(tmp_path: Path) -> None:
    reached = {"of the module": "module.py", "of definitions": DEFINITIONS, "of another": "other.py"}
    tests = [TimedTest(name, 0.1, frozenset([place])) for name, place in reached.items()]
    sample = SampleWithoutPytest(tmp_path, {"of definitions": {0}, "of another": {0}})
    sample.mutants = [Mutant("module.py", 1, "5 → 6", 0)]
    sample.try_mutant(0, tests, limit=60)
    assert (sample.outcomes[0]["by"], sample.outcomes[0]["reaching"]) == ("of definitions", 2)
