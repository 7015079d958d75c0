"""A study's file: TOML that people read, with the same meaning whatever its layout."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from mooring.atomic_io import read_bounded
from mooring.errors import InputError, StorageError
from mooring.mechanisms.sums.settings import SECURE_SUM, settings_from
from mooring.protocol.messages.card import Member
from mooring.serialization import count_noun
from mooring.tables.schema import Column, Label, count_days, require_day, require_known, require_width

FORMAT, FORMATS = 2, (1, 2)

_MOST_BYTES = 2**20
_MOST_ENTRIES = 90_000  # by signs that begin or end one
_LARGEST_WHOLE = 2**63
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){16}""")
TODO = "# TODO:"
"""Marks the lines of a draft that are still open."""
_OPEN = {
    "range": f"[]  {TODO} the lowest and highest value that can be, for example [0, 120]; of words: kind and categories",
    "days": f'[]  {TODO} the first and last day that can be, for example ["2000-01-01", "2026-12-31"]',
    "at": f'""  {TODO} a public day at which ages are counted, for example "2026-01-01"',
    "categories": f'[]  {TODO} every word that can stand there, for example ["female", "male"]',
    "classes": f'[]  {TODO} every class, for example ["no", "yes"]',
}
_HEAD = """\
# A study of mooring: everybody who takes part holds this file, and nothing in it is secret.
# Compare its fingerprint by telephone before you share: mooring study show --study FILE
"""
_SUMS = """\
# Sums instead of rows. epsilon = "none" adds no noise and gives no guarantee. colluders: how many participants may help the
# analyst. combiners hold shares (nobody named: the first 15 of the roster), threshold of them open the total (0: the
# least allowed), of quorum participants at least (0: nine tenths). person: a column that names persons and is not shared;
# rows_per_person = "mean" adds the mean of each person's rows. Features of pictures may be fitted to public ones:
# mooring study project PUBLIC
"""
_METHOD = """\
# data_noise_scale is per encoded number, which lies between -1 and 1, once map and projection are undone.
"""
_ROWS = """\
# missing_words stand for a missing value in every column, besides "?", "NA", "NaN", "null" and nothing at all.
# ids name rows: they are never shared, and appear beside predictions.
# A participant with fewer rows of a class than smallest_class (but some) does not share.
"""
_LIMITS = "# What attacks on an upload ('mooring check') and on the model ('mooring deliver') may find.\n"
_NO_LIMITS = """
# [limits] may state what attacks find at most: of an upload ('mooring check'), uploads = ["error at least 0.5"] or, of sums,
# ["epsilon at most 1"]; of the model ('mooring deliver'), model = "membership at most 5 %".
"""
_LABEL = """\
# What is predicted: kind = "classes" with their names, "number" with a range, or "none". {}.
"""
_COLUMNS = """\
# Columns, in the order of the encoded rows. Ranges and categories follow from what a column means, not from anybody's
# data. missing = "refuse", "fill" (the middle) or "indicate" (and a further column tells); outside = "refuse" or "clip".
# missing_words of a column count there only. kind = "date" has a range of days, ["2000-01-01", "2026-12-31"]; kind = "age"
# is a date of birth, taken as the age in years at a public day: at = "2026-01-01", range = [0, 110].
"""
_ROSTER = """\
# Who takes part, by public keys: from the cards that 'mooring join' writes, entered by 'mooring study enrol'.
"""


def read_plain(path: Path) -> dict[str, Any]:
    """Read a study's file without asking what it means."""
    return parse_study(read_text(path))


def read_text(path: Path) -> str:
    """Read a study's file as text."""
    what = "the study's file"
    try:
        return read_bounded(path, _MOST_BYTES, what=what).decode("utf-8")
    except UnicodeDecodeError:
        raise StorageError(what, reason="it is no text", cure="Check the path.") from None


def parse_study(text: str) -> dict[str, Any]:
    """The tables of a study's text, whose bounds let a parser read it in about a second."""
    require_size(text)
    if _LONG_KEY.search(text):  # a parser takes time that grows with the square of a key's parts
        raise InputError("study", expected="without keys of many parts", got="one of 16", cure="Correct the study.")
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise InputError("study", expected="TOML", got=f"a mistake: {problem}", cure="Correct that line.") from None
    except ValueError:  # a whole number of thousands of digits
        raise InputError("study", expected="TOML", got="a number that is too large", cure="Correct it.") from None


def require_size(text: str) -> None:
    """Refuse a study's text that is larger than one may be, or has more entries."""
    cure = "Declare columns alike by one 'names'."
    if len(text) > _MOST_BYTES or len(text.encode()) > _MOST_BYTES:
        raise InputError("study", expected="a file of at most 1 MB", got="a larger one", cure=cure)
    if sum(map(text.count, ",=[{.")) > _MOST_ENTRIES:
        raise InputError("study", expected=f"at most {_MOST_ENTRIES} entries", got="more", cure=cure)


def render_study(plain: Mapping[str, Any], *, above_method: str = "", below_method: str = "") -> str:
    """What `Study.as_dict` gave, as commented TOML that `Study.read` reads as the same study.

    Parameters
    ----------
    plain : mapping
        Of a draft, a range, categories or classes that are still open are an empty list.
    above_method, below_method : str
        Comments around the entries of [method].
    """
    uses_sums = plain["method"]["name"] == SECURE_SUM
    parts = [
        _HEAD,
        render_table({key: plain[key] for key in ("format", "name", "nonce", "dealer") if key in plain}),
        f"\n[method]\n{_SUMS if uses_sums else _METHOD}{above_method}",
        render_table(plain["method"]) + below_method,
        f"\n[rows]\n{_ROWS}",
        render_table(plain["rows"]),
        "\n[label]\n" + _LABEL.format("It is not shared" if uses_sums else "The analyst sees it"),
        render_declaration(plain["label"]),
        *([f"\n[limits]\n{_LIMITS}", render_table(plain["limits"])] if "limits" in plain else [_NO_LIMITS]),
        f"\n{_COLUMNS}",
    ]
    for _, alike in groupby(enumerate(plain["columns"]), key=_likeness):
        group = [column for _, column in alike]
        names = {"names": [column["name"] for column in group]} if len(group) > 1 else {"name": group[0]["name"]}
        parts += ["\n[[columns]]\n", render_declaration(names | _without_name(group[0]))]
    parts.append(f"\n{_ROSTER}")
    parts += [render_member("[[participants]]", member) for member in plain["participants"]]
    if "analyst" in plain:
        parts.append(render_member("[analyst]", plain["analyst"]))
    return "".join(parts)


def _likeness(numbered: tuple[int, Mapping[str, Any]]) -> tuple[int, dict[str, Any]]:
    """Columns alike share an entry, except open ones: each needs an answer of its own."""
    place, column = numbered
    return (place if [] in column.values() else -1), _without_name(column)


def _without_name(column: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in column.items() if key != "name"}


def render_declaration(table: Mapping[str, Any]) -> str:
    """The entries of a column or of the label, open ones marked."""
    is_date = table.get("kind") == "date"
    open_entries = _OPEN | ({"range": _OPEN["days"]} if is_date else {})
    return "".join(
        f"{key} = {open_entries[key] if value == [] else render_value(value)}\n" for key, value in table.items()
    )


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
    require_known("study", plain, known | {"limits"})
    if type(plain.get("format")) is not int or plain["format"] not in FORMATS:
        got, cure = repr(plain.get("format")), "This mooring reads no other; use the version the study was made with."
        raise InputError("format of the study", expected=" or ".join(map(str, FORMATS)), got=got, cure=cure)
    method, rows = _take(plain, "method", _TABLE, {}), _take(plain, "rows", _TABLE, {})
    uses_sums = method.get("name") == SECURE_SUM
    known_method = {"name", "components", "anchor_rows", "data_noise_scale", "anchor_noise_scale", "projection"}
    require_known("method", method, {"name", *_SUM_ENTRIES} if uses_sums else known_method | {"projection_digest"})
    require_known("rows", rows, {"missing_words", "smallest_class", "image_shape", "ids"})
    limits = _limits_from(_take(plain, "limits", _TABLE)) if "limits" in plain else {}
    columns = declared_columns(plain)
    width = sum(column.width for column in columns)
    projection: Any = _take(method, "projection", _WORD, "none")
    n_components = _take(method, "components", _WHOLE, width if projection == "none" else None)
    if uses_sums:
        for key in set(method) - {"name"}:
            _take(method, key, _SUM_ENTRIES[key])
    return {
        "sums": settings_from(method) if uses_sums else None,
        "format": plain["format"],
        "name": _take(plain, "name", _WORD),
        "nonce": _take(plain, "nonce", _WORD),
        "columns": columns,
        "label": _label_from(_take(plain, "label", _TABLE, {})),
        "method": _take(method, "name", _WORD),
        "n_components": n_components,
        "n_anchor_rows": _take(method, "anchor_rows", _WHOLE, 0 if uses_sums else 4 * n_components),
        "data_noise_scale": float(_take(method, "data_noise_scale", _NUMBER, 0.0)),
        "anchor_noise_scale": float(_take(method, "anchor_noise_scale", _NUMBER, 0.0)),
        "projection": projection,
        "projection_digest": _take(method, "projection_digest", _WORD, ""),
        "missing_words": tuple(_take(rows, "missing_words", _WORDS, [])),
        "ids": tuple(_take(rows, "ids", _WORDS, [])),
        **limits,
        "smallest_class": _take(rows, "smallest_class", _WHOLE, 3),
        "image_shape": tuple(_take(rows, "image_shape", _SIDES, [])),
        "participants": tuple(_member(entry) for entry in _take(plain, "participants", _TABLES, [])),
        "analyst": _member(_take(plain, "analyst", _TABLE)) if "analyst" in plain else None,
        "dealer": _take(plain, "dealer", _WORD, ""),
    }


def _limits_from(plain: Mapping[str, Any]) -> dict[str, Any]:
    from mooring.audit import LeakageLimit  # which a study without limits does not load

    require_known("limits", plain, {"uploads", "model"})
    uploads, model = tuple(_take(plain, "uploads", _WORDS, [])), _take(plain, "model", _WORD, "")
    parsed = [LeakageLimit.parse(words) for words in (*uploads, *([model] if model else []))]
    if model and not parsed[-1].measure.startswith("membership_at"):
        problem = f"The limit of the model must be one of membership, and it is one of {parsed[-1].measure}."
        raise InputError("limits", problem=problem, cure="Correct 'model' in [limits].")
    return {"upload_limits": uploads, "model_limit": model}


def declared_columns(plain: Mapping[str, Any]) -> tuple[Column, ...]:
    """Read the [[columns]] of a study or a header, within bounds."""
    columns: list[Column] = []
    width, n_letters = 0, 0
    entries = _take(plain, "columns", _TABLES, [])
    unfilled = [one for one in entries if [] in (one.get("range"), one.get("categories"))]
    if still_open := [repr(one["name"]) for one in unfilled if "name" in one]:  # a draft's, which share no entry
        raise InputError(
            "columns",
            expected="filled in",
            got=f"{len(still_open)} open: {', '.join(still_open[:10])}{', …' * (len(still_open) > 10)}",
            cure='Give each its range; to one of words, kind = "category" and categories = ["…", "…"].',
        )
    for entry in entries:
        columns += (added := _columns_from(entry))
        width += sum(column.width for column in added)
        n_letters += len(added) * sum(map(len, added[0].categories))
        require_width(width, n_letters)
    return tuple(columns)


def _columns_from(plain: Mapping[str, Any]) -> tuple[Column, ...]:
    """Read one [[columns]] table; `names` in place of `name` declares many columns alike."""
    names: Any = plain["names"] if "names" in plain else [plain.get("name")]
    fine = isinstance(names, list) and names and all(isinstance(name, str) and name.strip() == name for name in names)
    if not fine or "" in names or ("name" in plain and "names" in plain):
        got = "both" if "name" in plain and "names" in plain else "neither, or an empty or padded one"
        raise InputError("a column", expected='name = "…" or names = ["…", …]', got=got, cure="Name every column.")
    where, kind = f"column {names[0]!r}", plain.get("kind", "number")
    known = {"name", "names", "kind", "range", "categories", "missing", "outside", "missing_words"}
    require_known(where, plain, known | ({"at"} if kind == "age" else set()))
    low, high, day = 0.0, 0.0, plain.get("at", "")
    if kind == "date":
        day, high = _days_of(where, plain)
    elif kind != "category":
        low, high = _range_of(where, plain)
    categories = _words_in(where, plain, "categories")
    require_width(len(names) * max(1, len(categories)), len(names) * sum(len(str(word)) for word in categories))
    shared = {
        "kind": kind,
        "low": low,
        "high": high,
        "categories": categories,
        "missing": plain.get("missing", "refuse"),
        "outside": plain.get("outside", "refuse"),
        "missing_words": _words_in(where, plain, "missing_words"),
        "day": day,
    }
    return tuple(Column(name, **shared) for name in names)


def _label_from(plain: Mapping[str, Any]) -> Label:
    require_known("label", plain, {"column", "kind", "classes", "range"})
    kind = plain.get("kind", "none")
    low, high = _range_of("label", plain) if kind == "number" else (0.0, 0.0)
    column = plain.get("column", "")
    if not isinstance(column, str) or column != column.strip():
        got = "text with spaces around it" if isinstance(column, str) else _describe_value(column)
        raise InputError("column of the label", expected="a word in quotes", got=got, cure="Correct the study.")
    return Label(column, kind, _words_in("the label", plain, "classes"), low, high)


def _words_in(where: str, plain: Mapping[str, Any], what: str) -> tuple[Any, ...]:
    words = plain.get(what, [])
    if not isinstance(words, list):
        expected = 'a list of words, ["…", "…"]'
        got = _describe_value(words)
        raise InputError(f"{what} of {where}", expected=expected, got=got, cure="Correct the study.")
    return tuple(words)


def _range_of(where: str, plain: Mapping[str, Any]) -> tuple[float, float]:
    ends = plain.get("range")
    if not (isinstance(ends, list) and len(ends) == 2 and all(type(end) in (int, float) for end in ends)):
        raise InputError(
            f"range of {where}",
            expected="two numbers, [lowest, highest]",
            got=_describe_value(ends),
            cure="Declare the range that the values can take, from what the column means and not from the data.",
        )
    try:
        return float(ends[0]), float(ends[1])
    except OverflowError:  # whole numbers have no end in TOML
        got = "a number that is too large"
        raise InputError(f"range of {where}", expected="finite", got=got, cure="Correct the study.") from None


def _days_of(where: str, plain: Mapping[str, Any]) -> tuple[str, float]:
    """The first day of a range of days, and how many there are to the last."""
    ends = plain.get("range")
    ends = ends if isinstance(ends, list) and len(ends) == 2 else [None, None]
    for end in ends:
        require_day(f"both ends of the range of {where}", end)
    return ends[0], float(count_days(ends[1]) - count_days(ends[0]))


def _member(plain: Mapping[str, Any]) -> Member:
    require_known("member", plain, set(_MEMBER))
    return Member(*(_take(plain, name, _WORD, default) for name, default in _MEMBER.items()))


class _Kind(NamedTuple):
    """What an entry must be, in words and as a test of its value."""

    expected: str
    fits: Callable[[Any], bool]


def _list_of(one: _Kind, expected: str) -> _Kind:
    return _Kind(expected, lambda value: isinstance(value, list) and all(map(one.fits, value)))


_MEMBER = {"name": None, "signing_key": None, "sealing_key": "", "combining_key": "", "combining_proof": ""}
_WORD = _Kind("a word in quotes", lambda value: isinstance(value, str))
_WHOLE = _Kind("a whole number", lambda value: type(value) is int and abs(value) <= _LARGEST_WHOLE)
_NUMBER = _Kind(  # whole numbers have no end in TOML
    "a number", lambda value: type(value) is float or (type(value) is int and abs(value) <= sys.float_info.max)
)
_TABLE = _Kind("a table, [{name}]", lambda value: isinstance(value, Mapping))
_TABLES = _list_of(_TABLE, "tables, [[{name}]]")
_WORDS = _list_of(_WORD, "a list of words in quotes")
_EPSILON = _Kind('a number, or "none"', lambda value: value == "none" or _NUMBER.fits(value))
_SUM_ENTRIES = {
    "epsilon": _EPSILON,
    **dict.fromkeys(("delta", "product_share"), _NUMBER),
    **dict.fromkeys(("colluders", "threshold", "quorum", "n_features", "hats", "least_rows"), _WHOLE),
    "rows_per_person": _Kind('a whole number, or "mean"', lambda value: value == "mean" or _WHOLE.fits(value)),
    **dict.fromkeys(("combiners", "log_scaled"), _WORDS),
    **dict.fromkeys(("features", "features_digest", "person"), _WORD),
}
_SIDES = _Kind(
    "up to three whole numbers",
    lambda value: isinstance(value, list) and len(value) <= 3 and all(map(_WHOLE.fits, value)),
)


def _take(plain: Mapping[str, Any], name: str, kind: _Kind, default: Any = None) -> Any:
    """Return the value of an entry, or its default; raise an `InputError` if it is not of this kind."""
    value = plain.get(name, default)
    if not kind.fits(value):
        expected = kind.expected.format(name=name)
        raise InputError(name, expected=expected, got=_describe_value(value), cure="Correct the study.")
    return value


def _describe_value(value: Any) -> str:
    """Return the kind of a TOML value in words, without quoting it."""
    if isinstance(value, list):
        return f"a list of {count_noun(len(value), 'value')}"
    kinds = {bool: "true or false", int: "a whole number", float: "a number", str: "text", dict: "a table"}
    return "nothing" if value is None else kinds.get(type(value), type(value).__name__)
