"""Combinations of words that a study declares as impossible: read, refused with a sentence, and kept by synthetic rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.errors import InputError
from mooring.mechanisms.sums.answers.synthesis import synthesize
from mooring.mechanisms.sums.general.impossible import find_combination, read_combination
from mooring.mechanisms.sums.general.total import sum_exactly
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.mechanisms.sums.settings import SumSettings, make_general_workload
from mooring.tables.schema import Column, Label, Schema
from mooring.testing.answers import draw_total

COLUMNS = (
    Column("age", "number", 0, 100),
    Column("births", "integer", 0, 2),
    Column("sex", "category", categories=("f", "m")),
    Column("ward", "category", categories=("a", "b", "c"), missing="indicate"),
)
SCHEMA = Schema(COLUMNS, Label("ill", "classes", ("no", "yes")))
EXACT = {levels.name: levels.names for levels in make_workload(SCHEMA).columns if levels.is_exact}


@st.composite
def declared(draw: st.DrawFn) -> dict[str, str]:
    """Words of two or more of the columns that have words, or whole numbers with few values."""
    names = draw(st.lists(st.sampled_from(sorted(EXACT)), min_size=2, unique=True))
    return {name: draw(st.sampled_from(EXACT[name])) for name in names}


@given(declared(), st.sampled_from([",", ", ", " , "]))
def test_a_declared_combination_is_read_as_the_levels_that_it_names(words: dict[str, str], comma: str) -> None:
    text = comma.join(f"{name}={word}" for name, word in words.items())
    assert read_combination(text) == words
    workload = make_workload(SCHEMA, impossible=[text])
    (combination,) = workload.impossible
    assert {workload.columns[k].name: workload.columns[k].names[level] for k, level in combination.items()} == words
    assert workload.narrow(["sex"]).impossible == ()


@given(
    st.text('sex=m, ward\t\0"é→😀', max_size=30)  # all of Unicode takes Hypothesis seconds to list
    | st.sampled_from(["sex=m", "sex=m,ward", "sex=,ward=a", "sex=m,sex=f", "age=50,sex=m", "x=1,sex=m"])
)
def test_text_that_names_no_two_declared_words_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        make_workload(SCHEMA, impossible=[text])
    assert caught.value.what == "impossible"


def test_a_refusal_names_the_columns_that_a_combination_can_have() -> None:
    for columns, expected in ((SCHEMA.columns, {"births", "sex", "ward"}), (COLUMNS[:1], {"no column"})):
        with pytest.raises(InputError) as caught:
            find_combination(make_workload(Schema(columns)).columns, {"age": "50", "sex ": "m"})
        names = {"age", "births", "sex", "ward", "no column"}
        assert {name for name in names if name in caught.value.cure} == expected


@settings(max_examples=4, deadline=None)
@given(st.lists(declared(), min_size=1, max_size=2), st.integers(0, 3))
def test_synthetic_rows_have_none_of_the_combinations_that_a_study_declares(
    combinations: list[dict[str, str]], seed: int
) -> None:
    texts = [", ".join(f"{name}={word}" for name, word in words.items()) for words in combinations]
    workload, rng = make_workload(SCHEMA, impossible=texts), np.random.default_rng(seed)
    words = [np.eye(n)[rng.integers(n, size=400)] for n in (2, 4)]
    rows = np.column_stack([rng.uniform(-1, 1, 400), rng.integers(-1, 2, 400), *words])
    total = sum_exactly(workload, rows, rng.integers(0, 2, 400)).with_noise(rng, workload.noise_variance(2.0) / 10)
    frame = synthesize(total, 600, seed=seed).to_frame()
    for combination in combinations:
        present = [
            frame[name].isna() if word == "missing" else frame[name].astype(str) == word
            for name, word in combination.items()
        ]
        assert not np.logical_and.reduce(present).any()


def test_margins_hardly_move_where_a_combination_does_not_occur_in_the_rows() -> None:
    """Noise and smoothing put a little of the model into such a combination; leaving it out moves shares by less."""
    total = draw_total(3, 1.0, 6_000)
    workload = total.workload
    combination = find_combination(workload.columns, {"ward": "c", "children": "4"})  # 1 row in 100, and none of these:
    factors = [workload.indicator("ward", "c"), workload.indicator("children", "4")]
    cell = total.estimate(workload.product(*factors))
    moved = replace(total, matrix=total.matrix - cell * _unit_of(workload.product(*factors)))
    free, kept = (
        synthesize(replace(moved, workload=replace(workload, impossible=given)), 50_000).to_frame()
        for given in ((), (combination,))
    )
    assert ((free.ward == "c") & (free.children == 4)).any()
    assert not ((kept.ward == "c") & (kept.children == 4)).any()
    for name, word in (("ward", "c"), ("children", 4), ("sex", "m"), ("ill", "yes")):
        assert abs((kept[name] == word).mean() - (free[name] == word).mean()) < 0.01


def _unit_of(matrix: np.ndarray) -> np.ndarray:
    """The smallest change of a total by which this reading of it falls by one."""
    return matrix / np.vdot(matrix, matrix)


def test_combinations_that_leave_no_row_are_refused() -> None:
    everything = [{"sex": sex, "ill": ill} for sex in ("f", "m") for ill in ("no", "yes")]
    with pytest.raises(InputError) as caught:
        synthesize(draw_total(3, 1.0, 6_000), 100, impossible=everything)
    assert caught.value.what == "impossible"


def test_a_study_for_one_model_has_no_impossible_combinations() -> None:
    given = {"impossible": ("sex=m, births=1",)}
    assert make_general_workload(SumSettings(questions=("model", "tables"), **given), SCHEMA).impossible
    with pytest.raises(InputError) as caught:
        SumSettings(**given)
    assert caught.value.what == "impossible"
