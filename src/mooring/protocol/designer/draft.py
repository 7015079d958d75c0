"""The draft of a study, from the header of a table: names and declared types, never what stands in the rows.

What cannot be known from a header (ranges, categories, classes) stays open in the draft, and `Study.read` refuses the
file until somebody who knows what the columns mean has filled it in. Statistics of anybody's rows would tell of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa

from mooring.errors import InputError
from mooring.mechanisms.methods import get_method
from mooring.mechanisms.secure_sum.settings import SumSettings
from mooring.protocol.messages.card import require_name
from mooring.protocol.messages.study import ProjectionName, draw_nonce
from mooring.protocol.messages.study_file import FORMAT, TODO, render_study
from mooring.tables.cells import is_number
from mooring.tables.files import TableFile, open_table
from mooring.tables.schema import MissingRule

WIDEST_WITHOUT_PROJECTION = 30
"""Encoded rows that are wider are projected, unless a draft is told otherwise."""


@dataclass(frozen=True)
class DeclaredColumns:
    """What whoever drafts a study knows of its columns.

    Attributes
    ----------
    ranges : mapping from name to (lowest, highest)
    all_ranges : (lowest, highest), optional
        Of every number that `ranges` does not name.
    categories : mapping from name to words
    classes : sequence of str
        Of the label.
    label_range : (lowest, highest), optional
        If the label is a number.
    """

    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    all_ranges: tuple[float, float] | None = None
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    classes: Sequence[str] = ()
    label_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class DraftSettings:
    """What a draft declares besides its columns.

    Attributes
    ----------
    method : str
    components, anchor_rows : int, optional
        Default: the width of the encoded rows, or 30 and a Gaussian projection if they are wider; four times that.
    data_noise_scale, anchor_noise_scale : float
        Each counts only if the method has such noise.
    projection : {"none", "gaussian", "public-svd"}, optional
    smallest_class, image_shape, missing_words
        As in `Study`.
    missing : {"refuse", "fill", "indicate"}
        What a missing value is, in every column; people change it for single ones.
    nonce : str, optional
        Default: from the system's entropy.
    sums : SumSettings, optional
        Of the method "secure-sum", which uses none of components, anchor, noise and projection.
    """

    method: str = "aa-i-gdp-data-noise"
    components: int | None = None
    anchor_rows: int | None = None
    data_noise_scale: float = 0.5
    anchor_noise_scale: float = 0.1
    projection: ProjectionName | None = None
    smallest_class: int = 3
    image_shape: Sequence[int] = ()
    missing_words: Sequence[str] = ()
    missing: MissingRule = "refuse"
    nonce: str | None = None
    sums: SumSettings | None = None


def draft_study(
    path: str | Path,
    *,
    name: str = "study",
    label: str | None = None,
    drop: Sequence[str] = (),
    known: DeclaredColumns | None = None,
    settings: DraftSettings | None = None,
) -> str:
    """Draft a study's file from the header of a table.

    Parameters
    ----------
    path : path
        A text file or Parquet; of a text file only the first line is read, of Parquet only the schema.
    name : str
    label : str, optional
        The column to predict.
    drop : sequence of str
        Columns that are not part of the study.
    known : Known, optional
        Ranges, categories and classes; what is left out stays open.
    settings : DraftSettings, optional

    Returns
    -------
    str
        TOML. Each open entry has a line marked "TODO"; with none, `Study.read` reads it.
    """
    require_name("name of the study", name)
    known, settings = known or DeclaredColumns(), settings or DraftSettings()
    table = open_table(path)
    _require_names_among(table, [*drop, *known.ranges, *known.categories, *([label] if label is not None else [])])
    _require_header(table, drop)
    columns = [_describe_column(table, one, known) for one in table.names if one not in drop and one != label]
    if not columns:
        raise InputError("data file", expected="a table with columns to share", got="none", cure="Drop fewer.")
    rows: dict[str, Any] = {
        "missing_words": list(settings.missing_words),
        "smallest_class": settings.smallest_class,
    }
    if settings.image_shape:
        rows["image_shape"] = list(settings.image_shape)
    for column in columns:
        column |= {"missing": settings.missing, "outside": "refuse"}
    method, above, below = _describe_method(columns, settings)
    plain = {
        "format": FORMAT,
        "name": name,
        "nonce": settings.nonce or draw_nonce(),
        "method": method,
        "rows": rows,
        "label": _describe_label(table, label, known),
        "columns": columns,
        "participants": [],
    }
    return render_study(plain, above_method=above, below_method=below)


def _describe_method(columns: Sequence[Mapping[str, Any]], settings: DraftSettings) -> tuple[dict[str, Any], str, str]:
    """The entries of [method], and comments above and below them."""
    if settings.sums is not None:
        return settings.sums.as_dict(), "", ""
    described, components = get_method(settings.method), settings.components
    width = sum(len(column["categories"]) if column["kind"] == "category" else 1 for column in columns)
    width += len(columns) if settings.missing == "indicate" else 0
    needs_projection = width > WIDEST_WITHOUT_PROJECTION or components not in (None, width)
    projection = settings.projection or ("gaussian" if needs_projection else "none")
    if components is None and projection != "none":
        components = min(WIDEST_WITHOUT_PROJECTION, max(1, width))
    optional = {"components": components, "anchor_rows": settings.anchor_rows}
    method: dict[str, Any] = {"name": settings.method}
    method |= {key: value for key, value in optional.items() if value is not None}
    method["data_noise_scale"] = float(settings.data_noise_scale if described.data_noise else 0.0)
    method["anchor_noise_scale"] = float(settings.anchor_noise_scale if described.anchor_noise else 0.0)
    method["projection"] = projection
    remarks = {
        "components": "# components: as many as the encoded rows are wide, without a projection.\n",
        "anchor_rows": "# anchor_rows: four times the components.\n",
    }
    above = "".join(remarks[key] for key, value in optional.items() if value is None)
    if projection == "gaussian" and settings.projection is None:
        above += f'# projection: rows this wide go onto {components} random directions, for speed; "none" shares all.\n'
    below = (
        f"# projection_digest comes from: mooring study project  {TODO} run it\n" if projection == "public-svd" else ""
    )
    return method, above, below


def count_open_entries(text: str) -> int:
    """How many entries of a draft are still open."""
    return sum(1 for line in text.splitlines() if TODO in line)


def _describe_column(table: TableFile, name: str, known: DeclaredColumns) -> dict[str, Any]:
    """The entries of a column; an open one is an empty list."""
    kind = _infer_kind(table, name)
    if name in known.categories:
        kind = "category"
    elif name in known.ranges and kind == "category":
        kind = "number"
    if kind == "category":
        given = list(known.categories.get(name, ()))
        is_truth = table.schema is not None and pa.types.is_boolean(table.schema.field(name).type)
        return {"name": name, "kind": kind, "categories": given or (["false", "true"] if is_truth else [])}
    ends = known.ranges.get(name, known.all_ranges)
    return {"name": name, "kind": kind, "range": [] if ends is None else [float(end) for end in ends]}


def _infer_kind(table: TableFile, name: str) -> str:
    if table.schema is None:
        return "number"
    kind: Any = table.schema.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_integer(kind):
        return "integer"
    words = (pa.types.is_boolean, pa.types.is_null, pa.types.is_string, pa.types.is_large_string)
    if any(is_kind(kind) for is_kind in words):
        return "category"
    raise InputError(
        f"column {name!r}",
        expected="made of numbers or words",
        got=f"values of type {kind}",
        cure="Leave it out with --drop, or write it in another form.",
    )


def _describe_label(table: TableFile, label: str | None, known: DeclaredColumns) -> dict[str, Any]:
    """The entries of [label]; an open one is an empty list."""
    if label is None:
        return {"kind": "none"}
    is_float = table.schema is not None and pa.types.is_floating(table.schema.field(label).type)
    if known.label_range is not None or (is_float and not known.classes):
        return {"kind": "number", "column": label, "range": [float(end) for end in known.label_range or ()]}
    is_truth = table.schema is not None and pa.types.is_boolean(table.schema.field(label).type)
    classes = list(known.classes) or (["false", "true"] if is_truth else [])
    return {"kind": "classes", "column": label, "classes": classes}


def _require_names_among(table: TableFile, names: Sequence[str]) -> None:
    for name in names:
        if name not in table.names:
            near = get_close_matches(name, table.names, n=3)
            raise InputError(
                f"column {name!r}",
                expected="one that the header names",
                got="one that it does not",
                cure=f"Did you mean {', '.join(map(repr, near))}?" if near else "Check the spelling.",
            )


def _require_header(table: TableFile, drop: Sequence[str]) -> None:
    """Refuse a first line that may be a record: a draft is public, and names go into it."""
    kept = [name for name in table.names if name not in drop]
    counted = [str(k) for k in range(len(table.names) + 1)]
    is_count = list(table.names) in (counted[:-1], counted[1:])
    if not is_count and any(not name or is_number(name) for name in kept):
        at = next(k for k, name in enumerate(table.names) if name in kept and (not name or is_number(name)))
        raise InputError(
            "data file",
            expected="a table whose first line names the columns",
            got=f"a number or nothing as the name of column {at + 1}",
            cure="Write a header into the first line.",
        )
