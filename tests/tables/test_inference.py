"""The one inference of what columns hold, which audits, headers and drafts share."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mooring.tables.inference import InferredColumn, choose_encoding, infer_column, kind_of_type


def infer(cells: Any, **options: Any) -> InferredColumn:
    return infer_column("x", cells if isinstance(cells, pa.Array) else pa.array(cells), **options)


@pytest.mark.parametrize(
    ("words", "kind", "likely"),
    [
        (["1", " 2 ", "NA"], "integer", "number"),
        (["1", "2.5"], "number", "number"),
        (["1,5", "2,5", "x"], "category", "number"),
        (["<0.1", "3 mg", "4"], "category", "number"),
        (["2020-01-01", "2020-01-02", "?"], "time", "date"),
        (["1.2.2020", "3.4.2020"], "category", "date"),
        (["10:30", "11:45"], "time", "category"),
        (["TRUE", "false"], "category", "category"),
        ([f"p{k}" for k in range(11)], "category", "id"),
        ([f"word {chr(97 + k)}" for k in range(11)], "category", "text"),
        (["", "NA"], "empty", ""),
    ],
)
def test_every_cell_decides_the_kind_and_most_words_decide_the_likely_kind(
    words: list[str], kind: str, likely: str
) -> None:
    column = infer(words, is_text=True)
    assert (column.kind, column.likely_kind) == (kind, likely)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (pa.array([1, 2]), "integer"),
        (pa.array([1.5, 2.0]), "number"),
        (pa.array(["1", "2"]), "category"),
        (pa.array([1, 2]).dictionary_encode(), "category"),
        (pa.array([True, None]), "category"),
        (pa.array([0, 1], pa.date32()), "time"),
        (pa.array([0, 1], pa.duration("s")), "time"),
        (pa.array([[1], [2]]), "other"),
        (pa.nulls(2), "empty"),
    ],
)
def test_the_kind_of_a_type_is_the_kind_of_its_cells(cells: Any, kind: str) -> None:
    assert kind_of_type(cells.type) == infer(cells).kind == kind


def test_chunks_with_dictionaries_of_their_own_are_one_column() -> None:
    chunks = [pa.array(words).dictionary_encode() for words in (["b", "a"], ["c", "a", None])]
    column = infer_column("x", pa.chunked_array(chunks))
    assert column.word_counts == {"a": 2, "b": 1, "c": 1}
    assert column.n_missing == 1
    encoding, note = choose_encoding(column.keep(np.array([True, True, False, True, False])))
    assert (encoding.categories, note) == (("a", "b"), "")


def test_days_are_those_of_text_and_of_types_alike() -> None:
    days = [18_000, None, 18_001]
    for cells in (pa.array(days, pa.date32()), pa.array(days, pa.date32()).cast(pa.timestamp("s"))):
        text = cells.cast(pa.string()).fill_null("NA")
        for column in (infer(cells), infer(text, is_text=True)):
            np.testing.assert_array_equal(column.days, [18_000, np.nan, 18_001])
    assert infer(pa.array([1, 2], pa.time32("s"))).days.size == 0


def test_no_cell_is_shown_when_a_column_is_printed() -> None:
    assert "8642" not in repr(infer(["8642.1357", "x"]))
