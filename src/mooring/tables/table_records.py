"""Tables of numbers and words, from text or Parquet files, as rows to study."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.tables.files import PARQUET_SUFFIXES, listed, read_table_file
from mooring.tables.inference import Column, classes_of, clean, features_of, labels_of
from mooring.tables.records import Labels, Records
from mooring.typing import Indices


def read_table(
    path: str | Path,
    *,
    label: str | None = None,
    group_by: str | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> Records:
    r"""Read a table as rows of numbers.

    Parameters
    ----------
    path : path
        A text file with separators (.csv, .tsv, .data, .txt, each also with .gz) or a Parquet file (.parquet). The
        separator may be a comma, a semicolon or a tab. A first line that fits in with the rows beneath it and holds a
        number is a row, and the columns are then named "column 1", "column 2", ...
    label : str, optional
        The column to predict. Words, booleans and at most 20 different whole numbers are classes; other numbers are
        numbers. Rows without a label are dropped.
    group_by : str, optional
        The column that says which participant, or which person, a row belongs to. It is no feature. Rows without a
        value there are dropped.
    drop : sequence of str
        Columns to leave out.
    categorical : sequence of str
        Columns whose numbers are names of categories.
    missing : sequence of str
        What stands for a missing value besides "?", "NA", "NaN", "null" and nothing at all; "-9", for example.

    Returns
    -------
    Records
        Its `notes` say which columns were left out and why, and how many rows were dropped.

    Notes
    -----
    Numbers are standardised to mean 0 and standard deviation 1 over the table given. In a real study no participant
    knows the pooled mean; ranges declared beforehand take its place. A missing number becomes the median, and where
    more than 1 % are missing a column of zeros and ones tells which. Words become one column of zeros and ones a
    category, "missing" being one of them; a column with more than 50 categories is left out. So are constant columns,
    dates and times.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "patients.csv"
    ...     _ = path.write_text("age,smoker,ill\n40,yes,no\n50,no,yes\n60,no,no\n")
    ...     records = read_table(path, label="ill")
    >>> records.feature_names, records.label_names
    (('age', 'smoker=no', 'smoker=yes'), ('no', 'yes'))
    >>> records.rows.round(2).tolist()
    [[-1.22, 0.0, 1.0], [0.0, 1.0, 0.0], [1.22, 1.0, 0.0]]
    """
    path = Path(path)
    table, notes = read_table_file(path, missing=[str(word) for word in missing])
    names = list(table.column_names)
    for what, wanted in (("drop", drop), ("categorical", categorical)):
        for name in wanted:
            require_column(what, name, names)
    for what, wanted_name in (("label", label), ("group_by", group_by)):
        if wanted_name is not None:
            require_column(what, wanted_name, names)
            if wanted_name in drop:
                raise InputError(what, expected="a column that is kept", got="one in drop", cure="Take it out of drop.")
    if label is not None and label == group_by:
        raise InputError(
            "group_by", expected="another column than label", got="the same", cure="Choose one of the two."
        )
    words_may_be_numbers = path.suffix.lower() not in PARQUET_SUFFIXES
    columns = {
        name: clean(
            table.column(name),
            missing=missing,
            words_may_be_numbers=words_may_be_numbers,
            as_category=name in categorical,
        )
        for name in names
        if name not in drop
    }
    special = special_columns(
        None if label is None else columns.pop(label),
        None if group_by is None else columns.pop(group_by),
        keep=np.ones(table.num_rows, dtype=np.bool_),
    )
    features = [features_of(name, column, special.keep) for name, column in columns.items()]
    if not any(part.columns for part in features):
        reasons = "; ".join(note for part in features for note in part.notes) or "no column besides the label"
        raise InputError(
            "path", expected="a table with a column that can be used", got=reasons, cure="Add columns that vary."
        )
    return Records(
        rows=np.column_stack([x for part in features for x in part.columns]),
        labels=special.labels,
        feature_names=tuple(name for part in features for name in part.names),
        feature_kinds=tuple(kind for part in features for kind in part.kinds),
        label_names=special.label_names,
        groups=special.groups,
        group_names=special.group_names,
        notes=(*notes, *special.notes, *(note for part in features for note in part.notes)),
        centres=np.array([x for part in features for x in part.centres]),
        scales=np.array([x for part in features for x in part.scales]),
    )


@dataclass(frozen=True, eq=False)
class SpecialColumns:
    """The labels and groups of the rows that have them, and which rows those are."""

    keep: npt.NDArray[np.bool_]
    labels: Labels | None
    label_names: tuple[str, ...]
    groups: Indices | None
    group_names: tuple[str, ...]
    notes: tuple[str, ...]


def special_columns(
    label: Column | None, group: Column | None, *, keep: npt.NDArray[np.bool_], any_integer_is_a_class: bool = False
) -> SpecialColumns:
    """Read labels and groups, and drop the rows without them."""
    notes = []
    for what, column in (("label", label), ("group_by", group)):
        if column is None:
            continue
        if column.trouble:
            raise InputError(
                what,
                expected="a column of numbers or words",
                got=f"one that cannot be used: {column.trouble}",
                cure="Choose another column.",
            )
        n_missing = int(np.count_nonzero(keep & column.missing))
        if n_missing:
            what_is_missing = "label" if what == "label" else "group"
            notes.append(f"{n_missing} rows without a {what_is_missing} are dropped")
        keep = keep & ~column.missing
        if not keep.any():
            raise InputError(
                what, expected="a column with values", got="none in any row", cure="Choose another column."
            )
    limit = {"max_integer_classes": None} if any_integer_is_a_class else {}
    labels, label_names = (None, ()) if label is None else labels_of(label, keep, **limit)
    groups, group_names = (None, ()) if group is None else classes_of(group, keep)
    return SpecialColumns(keep, labels, label_names, groups, group_names, tuple(notes))


def require_column(what: str, name: str, names: Collection[str]) -> None:
    """Refuse a column name that is not there, and say which come near."""
    if name in names:
        return
    folded = {other.casefold(): other for other in names}
    near = [folded[found] for found in get_close_matches(str(name).casefold(), folded, n=3, cutoff=0.5)]
    cure = f"Nearest to it: {listed(near)}." if near else f"There are {listed(list(names))}."
    raise InputError(what, expected="the name of a column", got=f"{name!r}, which is none", cure=cure)
