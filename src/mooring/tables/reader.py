"""One door for every file: look at it, and hand it to the reader that knows it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mooring.errors import InputError
from mooring.tables.files import PARQUET_SUFFIXES, is_table_file, open_parquet
from mooring.tables.images.idx import is_idx_file
from mooring.tables.images.reader import image_columns, read_images
from mooring.tables.records import Records
from mooring.tables.table_records import read_table


def read_records(
    path: str | Path,
    *,
    label: str | None = None,
    group_by: str | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    missing: Sequence[str] = (),
    labels: str | Path | None = None,
    size: int | tuple[int, int] | None = None,
    image_column: str | None = None,
) -> Records:
    r"""Read a table or images, whichever the path holds.

    Parameters
    ----------
    path : path
        A folder, an .npz archive, an IDX file, or a Parquet file with a column of bytes whose name starts with "image":
        images. Any other .csv, .tsv, .data, .txt (also with .gz) or .parquet: a table.
    label, group_by : str, optional
        Columns of a table, or of a Parquet file with images.
    drop, categorical, missing : sequence of str
        For tables only: see `read_table`.
    labels, size, image_column
        For images only: see `read_images`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "patients.csv"
    ...     _ = path.write_text("age,ill\n40,no\n50,yes\n60,no\n")
    ...     read_records(path, label="ill").label_kind
    'classes'
    """
    path = Path(path)
    for_tables = {"drop": tuple(drop), "categorical": tuple(categorical), "missing": tuple(missing)}
    for_images = {"labels": labels, "size": size, "image_column": image_column}
    if not path.exists():
        raise InputError(
            "path",
            expected="a file or a folder",
            got=f"{str(path)!r}, which is not there",
            cure="Check the spelling and the folder you are in.",
        )
    if _holds_images(path, image_column):
        given = [what for what, value in for_tables.items() if value]
        _require_nothing(given, "images")
        return read_images(path, labels=labels, size=size, image_column=image_column, label=label, group_by=group_by)
    if not is_table_file(path):
        raise InputError(
            "path",
            expected="a table (.csv, .csv.gz, .parquet) or images (a folder, .npz, IDX, .parquet)",
            got=f"a file that ends in {path.suffix!r}",
            cure="Save it in one of these forms.",
        )
    _require_nothing([what for what, value in for_images.items() if value is not None], "a table")
    return read_table(path, label=label, group_by=group_by, **for_tables)


def _holds_images(path: Path, image_column: str | None) -> bool:
    if path.is_dir() or is_idx_file(path) or path.suffix.lower() == ".npz":
        return True
    if path.suffix.lower() not in PARQUET_SUFFIXES:
        return False
    return image_column is not None or bool(image_columns(open_parquet(path).schema_arrow))


def _require_nothing(given: list[str], found: str) -> None:
    if given:
        raise InputError(given[0], expected=f"left out for {found}", got="given", cure=f"Leave {given[0]} out.")
