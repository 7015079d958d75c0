"""Defaults of parameters and fields: what has one name has one default, and the documentation states it; what prints."""

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import mooring

ROOT = Path(mooring.__file__).parent
CORE = ("mechanisms", "alignment", "attacks", "metrics", "audit", "protocol", "learners", "geometry")
Place = tuple[str, str]  # a package and a function or class in it

USUALLY_ON = {  # what is done, or is so, unless somebody says otherwise
    *("by_interval", "certify", "delivers", "examples", "has_label", "is_exact", "is_guaranteed", "is_whole"),
    *("shares_rows", "shrink", "usable", "with_labels", "with_noise"),
}

OF_ITS_OWN = {  # names of what depends on the function or class
    *("certify", "constant_share", "count", "is_whole", "level", "most", "most_numbers", "most_rows", "n_components"),
    *("n_features", "n_resamples", "resolution", "start", "threshold", "tolerance", "weight_limit", "with_labels"),
}


def definitions() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """The functions, methods and classes that each module of the core defines, with their package and name."""
    for package in CORE:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT.parent).with_suffix("").parts
            module = import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
            for name, value in vars(module).items():
                if getattr(value, "__module__", "") != module.__name__ or not callable(value):
                    continue
                yield package, name, value
                for own, method in vars(value).items() if isinstance(value, type) else ():
                    function = getattr(method, "__func__", method)
                    if inspect.isfunction(function) and own != "__init__":
                        yield package, f"{name}.{own}", function


@cache
def defaults() -> dict[str, dict[Place, Any]]:
    """The switches and numbers that are defaults, by the name of the parameter and where it is one."""
    collected: dict[str, dict[Place, Any]] = defaultdict(dict)
    for package, name, function in definitions():
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # a class of another project's making
            continue
        for parameter in parameters:
            if isinstance(parameter.default, bool | int | float):
                collected[parameter.name][package, name] = parameter.default
    return collected


@pytest.mark.definitions
def test_a_parameter_of_one_name_has_one_default() -> None:
    several = {name: found for name, found in defaults().items() if len(found) > 1 and name not in OF_ITS_OWN}
    assert len(several) > 50
    assert {name: found for name, found in several.items() if len(set(found.values())) > 1} == {}


@pytest.mark.definitions
def test_an_object_does_not_print_its_private_fields() -> None:
    shown = [
        (name, field.name)
        for _, name, value in definitions()
        if isinstance(value, type) and is_dataclass(value) and value.__dataclass_params__.repr  # type: ignore[attr-defined]
        for field in fields(value)
        if field.name.startswith("_") and field.repr
    ]
    assert shown == []


@pytest.mark.definitions
def test_a_default_is_the_one_that_the_documentation_states() -> None:
    form = re.compile(r"^([\w, ]+) : .*, default ([-\d.e]+|True|False)$", re.MULTILINE)
    stated = [
        (name, parameter, default, ast.literal_eval(words))
        for package, name, function in definitions()
        for names, words in form.findall(inspect.getdoc(function) or "")
        for parameter in names.split(", ")
        if (default := defaults()[parameter].get((package, name))) is not None
    ]
    assert len(stated) > 10
    assert [place for *place, default, words in stated if default != words] == []


@pytest.mark.definitions
def test_all_other_switches_are_off_unless_somebody_turns_them_on() -> None:
    switches = {
        name: {default for default in found.values() if isinstance(default, bool)} for name, found in defaults().items()
    }
    assert {name for name, found in switches.items() if True in found} == USUALLY_ON
    assert sum(found == {False} for found in switches.values()) > 50
