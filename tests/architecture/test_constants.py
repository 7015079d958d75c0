"""Numbers that a module states (limits, tuning constants, defaults, what its classes hide when shown) are as on record.

Other parties meet the limits, documentation states the defaults, and published figures hang on the rest. Most have a test
of what they do; this one notices a slip of the hand in the others. Whoever means a change renews the record and reads the
difference: `RENEW_RECORDS=1 python -m pytest tests/architecture/test_constants.py`.
"""

import ast
import dataclasses
import importlib
import inspect
import json
import os
import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import mooring

RECORD = Path(__file__).with_name("constants.json")
PACKAGES = ("alignment", "attacks", "audit", "mechanisms", "metrics", "protocol")
MODULES = [
    module.name
    for module in pkgutil.walk_packages(mooring.__path__, "mooring.")
    if module.name.split(".")[1] in PACKAGES and not module.ispkg
]


def numbers_in(value: Any) -> Iterator[float]:
    """The numbers of a value, in order; of an array how many, and their sum."""
    if isinstance(value, bool | int | float | np.generic):
        yield float(value) if float(value) == value else value  # a prime is no float
    elif isinstance(value, np.ndarray):
        yield from (float(value.size), float(f"{value.sum():.9g}"))
    elif isinstance(value, Mapping):
        yield from (number for pair in value.items() for number in numbers_in(pair))
    elif isinstance(value, tuple | list | range | set | frozenset):
        found = [number for part in value for number in numbers_in(part)]
        yield from sorted(found) if isinstance(value, set | frozenset) else found
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from (number for part in dataclasses.fields(value) for number in numbers_in(getattr(value, part.name)))


def stated_in(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Names and values of a module's constants, of the flags of its classes, and of the defaults of its functions."""
    body = ast.parse(inspect.getsource(module)).body
    of_the_machine = {"os"}  # and what follows from it, such as the number of cores: no record can hold that
    for node in (node for node in body if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        if any(isinstance(part, ast.Name) and part.id in of_the_machine for part in ast.walk(node.value)):
            of_the_machine.update(names)
        else:
            yield from ((name, getattr(module, name)) for name in names if name == name.upper())
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__ or not callable(value):
            continue
        parts = {
            name: value,
            **({f"{name}.{own}": part for own, part in vars(value).items()} if isinstance(value, type) else {}),
        }
        if dataclasses.is_dataclass(value):
            flags = [(one.repr, one.compare) for one in dataclasses.fields(value)]
            yield f"{name}, not shown or not compared", [(k, *pair) for k, pair in enumerate(flags) if not all(pair)]
        for place, part in parts.items():
            function = getattr(part, "__func__", part)  # of a class method
            if isinstance(part, bool) and "._" not in place:
                yield place, part
            if inspect.isfunction(function):
                arguments = inspect.signature(function).parameters.values()
                yield from ((f"{place}({one.name})", one.default) for one in arguments if one.default is not one.empty)


def test_constants_and_defaults_are_as_on_record() -> None:
    found = {}
    for name in MODULES:
        own = {key: list(numbers_in(value)) for key, value in stated_in(importlib.import_module(name))}
        found[name.removeprefix("mooring.")] = {key: numbers for key, numbers in own.items() if numbers}
    if os.environ.get("RENEW_RECORDS"):
        lines = (f"{json.dumps(name)}: {json.dumps(own)}" for name, own in sorted(found.items()) if own)
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    for name in record.keys() | found.keys():
        assert found.get(name, {}) == record.get(name, {}), (
            f"{name}: found, and recorded; RENEW_RECORDS=1 if it is meant"
        )


def test_what_the_protocol_writes_is_its_owners_only() -> None:
    """Files 0600 and folders 0700, wherever the code names a mode; signed files for others say so by their default."""
    folder, modes = Path(mooring.__file__).parent / "protocol", set()
    for path in folder.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            given = call.keywords if isinstance(call, ast.Call) else []
            modes |= {
                (ast.unparse(call.func), one.value.value)
                for one in given
                if one.arg == "mode" and isinstance(one.value, ast.Constant) and isinstance(one.value.value, int)
            }
    assert {mode for name, mode in modes if name == "make_folder"} == {0o700}
    assert {mode for name, mode in modes if name != "make_folder"} == {0o600}
