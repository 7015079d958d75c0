"""A study's file: TOML that people read, with the same meaning whatever its layout."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from mooring.errors import InputError, StorageError
from mooring.protocol.messages.card import Member
from mooring.tables.schema import Column, columns_from, label_from, require_known, require_width

FORMAT = 1

_MOST_BYTES = 16 * 2**20
_LARGEST_WHOLE = 2**63
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){16}""")
HEAD = """\
# A study of mooring: everybody who takes part holds this file, and nothing in it is secret.
# Compare its fingerprint by telephone before you share: mooring study show --study FILE
"""
METHOD = """\
# data_noise_scale is in the units of the encoded rows, whose numbers lie between -1 and 1.
"""
ROWS = """\
# missing_words stand for a missing value, besides "?", "NA", "NaN", "null" and nothing at all.
# A participant with fewer rows of a class than smallest_class (but some) does not share.
"""
LABEL = """\
# What is predicted: kind = "classes" with their names, "number" with a range, or "none". The analyst sees it.
"""
COLUMNS = """\
# Columns, in the order of the encoded rows. Ranges and categories follow from what a column means, not from anybody's
# data. missing = "refuse", "fill" (the middle) or "indicate" (and a further column tells); outside = "refuse" or "clip".
"""
ROSTER = """\
# Who takes part, by public keys: from the cards that 'mooring join' writes, entered by 'mooring study enrol'.
"""


def read_plain(path: Path) -> dict[str, Any]:
    """Read a study's file without asking what it means."""
    return parse_study(read_text(path))


def read_text(path: Path) -> str:
    """Read a study's file as text."""
    try:
        if not path.is_file():  # a pipe would be waited for
            raise FileNotFoundError
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise InputError("study", expected="a small text file", got="a large one", cure="Check the path.")
        return content.decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise StorageError("the study's file", reason="it cannot be read", cure="Check the path.") from None


def parse_study(text: str) -> dict[str, Any]:
    """The tables of a study's text."""
    if _LONG_KEY.search(text):  # a parser takes time that grows with the square of a key's parts
        raise InputError("study", expected="without keys of many parts", got="one of 16", cure="Correct the study.")
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise InputError("study", expected="TOML", got=f"a mistake: {problem}", cure="Correct that line.") from None
    except ValueError:  # a whole number of thousands of digits
        raise InputError("study", expected="TOML", got="a number that is too large", cure="Correct it.") from None


def render_study(plain: Mapping[str, Any]) -> str:
    """What `Study.as_dict` gave, as commented TOML that `Study.read` reads as the same study."""
    parts = [
        HEAD,
        render_table({key: plain[key] for key in ("format", "name", "nonce", "dealer") if key in plain}),
        f"\n[method]\n{METHOD}",
        render_table(plain["method"]),
        f"\n[rows]\n{ROWS}",
        render_table(plain["rows"]),
        f"\n[label]\n{LABEL}",
        render_table(plain["label"]),
        f"\n{COLUMNS}",
    ]
    for _, alike in groupby(plain["columns"], key=_without_name):
        group = list(alike)
        names = {"names": [column["name"] for column in group]} if len(group) > 1 else {"name": group[0]["name"]}
        parts += ["\n[[columns]]\n", render_table(names | _without_name(group[0]))]
    parts.append(f"\n{ROSTER}")
    parts += [render_member("[[participants]]", member) for member in plain["participants"]]
    if "analyst" in plain:
        parts.append(render_member("[analyst]", plain["analyst"]))
    return "".join(parts)


def _without_name(column: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in column.items() if key != "name"}


def render_member(header: str, member: Mapping[str, str]) -> str:
    """A member's entry in the roster."""
    return f"\n{header}\n{render_table(member)}"


def render_table(table: Mapping[str, Any]) -> str:
    """The entries of a table, one a line."""
    return "".join(f"{key} = {render_value(value)}\n" for key, value in table.items())


def render_value(value: Any) -> str:
    r"""A value as TOML; a long list is wrapped.

    Examples
    --------
    >>> render_value(["a", 'b"c']), render_value([0.0, 0.5]), render_value(3)
    ('["a", "b\\"c"]', '[0, 0.5]', '3')
    """
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 and str(value) != "-0.0" else repr(value)
    if isinstance(value, list):
        words = [render_value(entry) for entry in value]
        line = f"[{', '.join(words)}]"
        if len(line) <= 100:
            return line
        return "[\n" + "".join(f"    {word},\n" for word in _wrap(words)) + "]"
    return str(int(value))


def _wrap(words: Sequence[str]) -> list[str]:
    """Words in lines of a hundred signs, each line without its last comma."""
    lines, line = [], ""
    for word in words:
        if line and len(line) + len(word) > 100:
            lines.append(line)
            line = ""
        line += f", {word}" if line else word
    return [*lines, line]


def study_entries(plain: Mapping[str, Any]) -> dict[str, Any]:
    """What a study is made of, from what `Study.as_dict` gave or the tables of a study's file."""
    known = {"format", "name", "nonce", "method", "rows", "label", "columns", "participants", "analyst", "dealer"}
    require_known("study", plain, known)
    if plain.get("format") != FORMAT:
        raise InputError(
            "format of the study",
            expected=str(FORMAT),
            got=repr(plain.get("format")),
            cure="This mooring reads no other; use the version the study was made with.",
        )
    method, rows = _table(plain, "method"), _table(plain, "rows")
    known_method = {"name", "components", "anchor_rows", "data_noise_scale", "anchor_noise_scale", "projection"}
    require_known("method", method, known_method | {"projection_digest"})
    require_known("rows", rows, {"missing_words", "smallest_class", "image_shape"})
    columns: list[Column] = []
    width = 0
    for entry in _tables(plain, "columns"):
        columns += (added := columns_from(entry))
        width += sum(column.width for column in added)
        require_width(width)
    projection: Any = _word(method, "projection", "none")
    n_components = _whole(method, "components", width if projection == "none" else None)
    return {
        "name": _word(plain, "name"),
        "nonce": _word(plain, "nonce"),
        "columns": tuple(columns),
        "label": label_from(_table(plain, "label")),
        "method": _word(method, "name"),
        "n_components": n_components,
        "n_anchor_rows": _whole(method, "anchor_rows", 4 * n_components),
        "data_noise_scale": _number(method, "data_noise_scale"),
        "anchor_noise_scale": _number(method, "anchor_noise_scale"),
        "projection": projection,
        "projection_digest": _word(method, "projection_digest", ""),
        "missing_words": _list(rows, "missing_words", str),
        "smallest_class": _whole(rows, "smallest_class", 3),
        "image_shape": _list(rows, "image_shape", int),
        "participants": tuple(_member(entry) for entry in _tables(plain, "participants")),
        "analyst": _member(_table(plain, "analyst")) if "analyst" in plain else None,
        "dealer": _word(plain, "dealer", ""),
    }


def _member(plain: Mapping[str, Any]) -> Member:
    require_known("member", plain, {"name", "signing_key", "sealing_key"})
    return Member(_word(plain, "name"), _word(plain, "signing_key"), _word(plain, "sealing_key", ""))


def _table(plain: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = plain.get(name, {})
    if not isinstance(value, Mapping):
        raise InputError(name, expected=f"a table, [{name}]", got="something else", cure="Correct the study.")
    return value


def _tables(plain: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    value = plain.get(name, [])
    if not (isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value)):
        raise InputError(name, expected=f"tables, [[{name}]]", got="something else", cure="Correct the study.")
    return value


def _list(plain: Mapping[str, Any], name: str, kind: type) -> tuple[Any, ...]:
    value = plain.get(name, [])
    if not (isinstance(value, list) and all(type(entry) is kind for entry in value)):
        kinds = "words in quotes" if kind is str else "whole numbers"
        raise InputError(name, expected=f"a list of {kinds}", got="something else", cure="Correct the study.")
    return tuple(value)


def _word(plain: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = plain.get(name, default)
    if not isinstance(value, str):
        raise InputError(name, expected="a word in quotes", got="something else", cure="Correct the study.")
    return value


def _whole(plain: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = plain.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _LARGEST_WHOLE:
        raise InputError(name, expected="a whole number", got="something else", cure="Correct the study.")
    return value


def _number(plain: Mapping[str, Any], name: str) -> float:
    value = plain.get(name, 0.0)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(name, expected="a number", got="something else", cure="Correct the study.")
    try:
        return float(value)
    except OverflowError:  # whole numbers have no end in TOML
        raise InputError(name, expected="a number", got="one too large", cure="Correct the study.") from None
