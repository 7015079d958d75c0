"""Tables are read in bounded memory; reading ahead changes nothing but the time it takes."""

import gzip
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from mooring.errors import InputError
from mooring.tables.encoder import read_encoded
from mooring.tables.files import open_table
from mooring.tables.reader import read_ahead, read_columns, table_batches
from mooring.tables.schema import Column, Schema
from tests.raising import raising

SCHEMA = Schema((Column("x", "category", categories=("f", "m")),))


def test_an_error_is_raised_after_the_items_before_it() -> None:
    damage = LookupError()

    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise damage

    ahead = read_ahead(items())
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(LookupError) as caught:
        next(ahead)
    assert caught.value is damage


def test_no_more_is_read_than_asked_for_and_leaving_early_ends_the_thread() -> None:
    made = []

    def items() -> Iterator[int]:
        for item in range(10_000):
            made.append(item)
            yield item

    before = threading.active_count()
    ahead = read_ahead(items(), at_most=2)
    assert next(ahead) == 0
    ahead.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert len(made) <= 5


def write_parquet(path: Path, columns: dict[str, Any], **settings: Any) -> Path:
    pa.parquet.write_table(pa.table(columns), path, compression="zstd", store_schema=False, **settings)
    return path


def repeated(word: str | bytes, n_rows: int = 65_536) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n_rows, np.int32)), pa.array([word]))


@pytest.mark.parametrize("long", ["1" * 75_000, b"1" * 75_000])
@pytest.mark.parametrize("column", [Column("x", "category", categories=("f",)), Column("x", "number", 0, 1)])
def test_a_long_word_that_stands_in_every_row_of_parquet_is_held_once(
    column: Column, long: str | bytes, tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "t.parquet", {"x": repeated(long)})
    assert path.stat().st_size < 1000
    (batch,) = table_batches(open_table(path), ["x"])
    assert batch.nbytes < 2**20  # 4.9 GB as plain text
    with raising(InputError, "row 1, column 'x'"):
        read_encoded(Schema((column,)), path)


@pytest.mark.parametrize(
    ("columns", "settings", "got"),
    [
        ({"x": pa.array(np.zeros(5_000_000))}, {}, "more rows"),
        ({"x": pa.array(["a" * 75_000] * 4000)}, {"use_dictionary": False}, "grows too much"),
        (
            {"x": pa.array(["a" * 1000] * 100)},
            {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}},
            "DELTA_BYTE_ARRAY",
        ),
    ],
)
def test_a_small_parquet_file_that_would_grow_without_bounds_is_refused(
    columns: dict[str, Any], settings: dict[str, Any], got: str, tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "t.parquet", columns, **settings)
    assert path.stat().st_size < 2**16
    with raising(InputError, "data file", got=got):
        read_encoded(Schema((Column("x", "category", categories=("a",)),)), path)


@pytest.mark.parametrize("values", [[[1.0], [2.0]], [{"a": 1}, {"a": 2}]])
def test_nested_columns_of_parquet_are_refused_unread(
    values: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_parquet(tmp_path / "t.parquet", {"x": values})
    monkeypatch.setattr("mooring.tables.encoder.table_batches", None)
    with raising(InputError, "column 'x'"):
        read_encoded(Schema((Column("x", "number", 0, 1),)), path)


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", None])
def test_text_of_parquet_is_the_same_in_every_encoding_and_batch(encoding: str | None, tmp_path: Path) -> None:
    words = [f"w{k % 7}" if k % 5 else None for k in range(1000)]
    settings = {"use_dictionary": False, "column_encoding": {"x": encoding}} if encoding else {}
    path = write_parquet(tmp_path / "t.parquet", {"x": words, "y": np.arange(1000.0)}, row_group_size=300, **settings)
    words_read = [
        word
        for batch in table_batches(open_table(path), ["x", "y"], rows_at_once=70)
        for word in batch.column("x").to_pylist()
    ]
    assert words_read == words


@pytest.mark.parametrize("read", [lambda path: read_encoded(SCHEMA, path), lambda path: read_columns(open_table(path))])
@pytest.mark.parametrize("n_words", [1, 5])
def test_text_of_parquet_that_is_not_utf8_is_refused_by_its_row(
    n_words: int, read: Callable[[Path], Any], tmp_path: Path
) -> None:
    raw = [b"f", b"m"] * 3 + [b"\xff" * n_words]
    wrong = pa.Array.from_buffers(pa.string(), len(raw), pa.array(raw).buffers())
    with raising(InputError, "row 7, column 'x'", expected="UTF-8"):
        read(write_parquet(tmp_path / "t.parquet", {"x": wrong}))


def test_columns_of_parquet_with_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    with raising(InputError, "data file"):
        open_table(tmp_path / "t.parquet", agreed=False)


def without_metadata(path: Path, chunk: int, encrypted: bool) -> Path:
    """A table of two row groups and two columns of which one part has no metadata, or claims encrypted ones."""
    whole = write_parquet(path, {"x": ["f", "m"] * 2, "y": [1.0, 2.0] * 2}, row_group_size=2).read_bytes()
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    at = [match.end() - 2 for match in re.finditer(rb"\x26..?\x1c\x15", whole[start:-8], re.DOTALL)][chunk] + start
    # Thrift: field 8 holds the keys of an encrypted part, field 3 its metadata, and a field 17 is not known.
    fields = bytes.fromhex("6c2c190800000c06" if encrypted else "fc")
    footer = whole[start:at] + fields + whole[at + 1 : -8]
    path.write_bytes(whole[:start] + footer + len(footer).to_bytes(4, "little") + whole[-4:])
    return path


@pytest.mark.parametrize("encrypted", [True, False])
@pytest.mark.parametrize("chunk", range(4))
def test_parts_of_parquet_without_metadata_are_refused_and_do_not_end_the_process(
    chunk: int, encrypted: bool, tmp_path: Path
) -> None:
    table = open_table(without_metadata(tmp_path / "t.parquet", chunk, encrypted))
    for rows_at_once in (1, 4):  # one at a time, the other columns would move against one that ends early
        with raising(InputError, "data file"):
            list(table_batches(table, ["y", "x"], rows_at_once=rows_at_once))


def test_batches_of_a_compressed_text_file_with_long_words_end_early(tmp_path: Path) -> None:
    line = b"x" * 100_000 + b"\n"
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"word\n" + line * 1500, compresslevel=1))
    sizes = [(batch.num_rows, batch.nbytes) for batch in table_batches(open_table(tmp_path / "t.csv.gz"), ["word"])]
    assert sum(n_rows for n_rows, _ in sizes) == 1500
    assert max(n_bytes for _, n_bytes in sizes) < 2**27 + 2**22


def test_rows_before_and_after_a_cell_with_a_line_break_are_read_alike(tmp_path: Path) -> None:
    schema = Schema((Column("y", "number", 0, 99_999), Column("x", "category", categories=("f", "m"))))
    rows = [f"{k},f" for k in range(60_000)] + ['60000,"\nm"'] + [f"{k},f" for k in range(60_001, 70_000)]
    (tmp_path / "t.csv").write_text("y,x\n" + "\n".join(rows) + "\n")
    encoded = read_encoded(schema, tmp_path / "t.csv")
    assert np.array_equal(encoded.values[:, 0], np.arange(70_000))
    assert np.flatnonzero(encoded.rows[:, 2]).tolist() == [60_000]
