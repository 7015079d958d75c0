"""Changes of the code that `make mutants` builds into a copy of it, each behind a switch."""

import ast
import sys
from types import ModuleType

import pytest

from tests.mutants import SWITCH, build_in

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
