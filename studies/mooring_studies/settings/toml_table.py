"""A table of a TOML file, read key by key: each value is checked, and a key that nobody asked for is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from mooring.errors import InputError

_TRY = "Correct the study's file."


class SpecTable:
    """One table of a study's file.

    Parameters
    ----------
    name : str
        How messages call the table, such as "[data]".
    values : mapping
        What the file has there.

    Examples
    --------
    >>> table = SpecTable("[network]", {"epochs": 15})
    >>> table.whole("epochs", least=1)
    15
    >>> table.finish()
    """

    def __init__(self, name: str, values: Any) -> None:
        if not isinstance(values, Mapping):
            raise InputError(name, expected="a table", got=_kind(values), cure=f"Write {name} and keys below it.")
        self.name, self.values = name, values
        self._asked: list[str] = []

    def whole(self, key: str, default: int | None = None, *, least: int = 0) -> int:
        """A whole number."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self._wrong(key, f"a whole number, {least} or more", value)
        return value

    def number(self, key: str, default: float | None = None, *, above: float = -math.inf) -> float:
        """A finite number above a limit."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= above:
            raise self._wrong(key, "a number" if above == -math.inf else f"a number above {above:g}", value)
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        """Some words."""
        value = self._take(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a text in quotation marks", value)
        return value

    def choice(self, key: str, among: Sequence[str], default: str | None = None) -> str:
        """One of a few words."""
        value = self._take(key, default)
        if value not in among:
            raise self._wrong(key, f"one of {', '.join(among)}", value, nearest_to(str(value), among))
        return str(value)

    def wholes(self, key: str, default: Sequence[int] | None = None, *, least: int = 1) -> tuple[int, ...]:
        """One whole number or a list of them, each only once."""
        value = self._take(key, default)
        listed = list(value) if isinstance(value, list | tuple) else [value]
        fitting = all(isinstance(one, int) and not isinstance(one, bool) and one >= least for one in listed)
        if not fitting or len(set(listed)) < len(listed):
            raise self._wrong(key, f"a whole number, {least} or more, or a list of different ones", value)
        return tuple(listed)

    def texts(self, key: str, default: Sequence[str] = ()) -> tuple[str, ...]:
        """A list of words."""
        value = self._take(key, list(default))
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self._wrong(key, "a list of texts", value)
        return tuple(value)

    def anything(self, key: str, default: Any) -> Any:
        """A value that the caller checks."""
        return self._take(key, default)

    def table(self, key: str) -> SpecTable:
        """A table below this one; an empty one where there is none."""
        name = f"[{key}]" if self.name == "the study's file" else f"{self.name[:-1]}.{key}]"
        return SpecTable(name, self._take(key, {}))

    def tables(self, key: str) -> list[SpecTable]:
        """A list of tables below this one."""
        value = self._take(key, [])
        if not isinstance(value, list):
            raise self._wrong(key, "a list of tables", value, f"Write [[{self.name.strip('[]')}.{key}]].")
        return [SpecTable(f"[[{self.name.strip('[]')}.{key}]] number {k + 1}", one) for k, one in enumerate(value)]

    def finish(self) -> None:
        """Refuse keys that nobody asked for."""
        for key in self.values:
            if key not in self._asked:
                raise InputError(
                    f"a key of {self.name}",
                    expected=f"one of {', '.join(self._asked)}",
                    got=repr(key),
                    cure=nearest_to(key, self._asked) or _TRY,
                )

    def _take(self, key: str, default: Any) -> Any:
        self._asked.append(key)
        value = self.values.get(key, default)
        if value is None:
            nearest = nearest_to(
                key, [other for other in self.values if isinstance(other, str)], "Perhaps it is called {}."
            )
            raise InputError(f"{key} of {self.name}", expected="given", got="nothing", cure=nearest or _TRY)
        return value

    def _wrong(self, key: str, expected: str, value: Any, cure: str = "") -> InputError:
        return InputError(f"{key} of {self.name}", expected=expected, got=_shown(value), cure=cure or _TRY)


def nearest_to(word: str, among: Sequence[str], words: str = "Perhaps {} is meant.") -> str:
    """A sentence that names the nearest known word; empty where none is near.

    Examples
    --------
    >>> nearest_to("epoch", ["epochs", "batch_size"])
    "Perhaps 'epochs' is meant."
    """
    near = get_close_matches(word, among, n=1)
    return words.format(repr(near[0])) if near else ""


def overridden(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """One nested table over another: tables are merged, everything else, lists too, is replaced.

    Examples
    --------
    >>> overridden({"a": {"x": 1, "y": 2}, "b": [1, 2]}, {"a": {"y": 3}, "b": [4]})
    {'a': {'x': 1, 'y': 3}, 'b': [4]}
    """
    merged = dict(base)
    for key, value in override.items():
        below = merged.get(key)
        nested = isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[key] = overridden(below, value) if nested else value  # type: ignore[arg-type]
    return merged


def _kind(value: Any) -> str:
    return {bool: "yes or no", int: "a number", float: "a number", str: "a text", list: "a list"}.get(
        type(value), type(value).__name__
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
