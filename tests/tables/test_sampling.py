"""`mooring check` looks at a table of any size: every row is checked, a uniform sample is kept."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from mooring.protocol.rotation.participant.inspection import inspect
from mooring.tables.sampling import sample_rows
from mooring.tables.schema import Column, Label
from tests.study_settings import make_study

STUDY = make_study(
    "some",
    "0" * 32,
    (Column("place", "number", 0.0, 1.0), Column("b", "number", 0.0, 1.0)),
    Label("y", "classes", ("a", "b")),
    "aa-i-gdp-data-noise",
    2,
    8,
    0.5,
)


def table(path: Path, n_rows: int, *, last: float = 0.5) -> Path:
    places = np.arange(n_rows) / max(1, n_rows - 1)
    other = np.random.default_rng(0).random(n_rows)
    other[-1] = last
    words = np.where(np.arange(n_rows) % 4 == 0, "a", "b")
    pa.parquet.write_table(pa.table({"place": places, "b": other, "y": words}), path)
    return path


def test_a_small_table_is_kept_whole_and_in_order(tmp_path: Path) -> None:
    sample = sample_rows(STUDY.schema, table(tmp_path / "t.parquet", 50), at_most=50)
    assert sample.n_rows == 50
    assert np.array_equal(sample.encoded.rows[:, 0], np.sort(sample.encoded.rows[:, 0]))
    assert sample.encoded.rows.shape[0] == sample.encoded.labels.size == sample.encoded.values.shape[0] == 50


def test_a_sample_is_uniform_over_the_table(tmp_path: Path) -> None:
    """600 of 300,000 rows, over several batches: the mean place is off by less than 5 standard errors, 0.06."""
    sample = sample_rows(STUDY.schema, table(tmp_path / "t.parquet", 300_000), at_most=600, seed=1)
    places = (sample.encoded.rows[:, 0] + 1) / 2
    assert places.size == 600
    assert np.unique(places).size == 600
    assert abs(places.mean() - 0.5) < 0.06
    assert abs(places.std() - np.sqrt(1 / 12)) < 0.06
    assert sample.n_rows == 300_000
    assert sample.class_counts == {"a": 75_000, "b": 225_000}


def test_every_row_is_checked_also_those_that_are_not_kept(tmp_path: Path, refused: Callable[..., None]) -> None:
    path = table(tmp_path / "t.parquet", 200_000, last=7.0)
    refused(lambda: sample_rows(STUDY.schema, path, at_most=100), "row 200000, column 'b'", "", "")


def test_the_inspection_says_that_it_saw_a_sample_and_counts_everybody(tmp_path: Path) -> None:
    sample = sample_rows(STUDY.schema, table(tmp_path / "t.parquet", 5_000), at_most=300)
    seen = inspect(
        STUDY, sample.encoded, n_rows=sample.n_rows, class_counts=sample.class_counts, attacks=["procrustes"]
    )
    assert seen.n_rows == 5_000
    assert seen.class_counts == {"a": 1_250, "b": 3_750}
    assert any("300 of your 5,000 rows" in words for words in seen.warnings)
