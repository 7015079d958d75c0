"""Synthetic rows and odds ratios, which need a model of the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from mooring.errors import InputError
from mooring.mechanisms.sums.answers.description import describe
from mooring.mechanisms.sums.answers.odds_ratios import OddsRatios, estimate_odds_ratios
from mooring.mechanisms.sums.answers.synthesis import SyntheticHeader, SyntheticRows, _draw_times, synthesize
from mooring.mechanisms.sums.general.survival import Survival
from mooring.mechanisms.sums.general.total import PairwiseTotal, sum_exactly
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.tables.schema import Column, Schema
from mooring.testing.answers import draw_total, population
from tests.mechanisms.sums.answers.test_record import invent_mixture


@pytest.fixture(scope="module")
def synthetic() -> SyntheticRows:
    return synthesize(draw_total(0, 1.0, 6_000), 20_000, impossible=[{"sex": "m", "ward": "c"}])


def test_margins_of_synthetic_rows_are_within_their_intervals(synthetic: SyntheticRows) -> None:
    rows, answer = synthetic.to_frame(), describe(draw_total(0, 1.0, 6_000))
    values = answer.list_estimates()
    for name, level in (("ill", "yes"), ("sex", "f"), ("ward", "b")):  # moved a little by the impossible combination
        _, low, high = values[f"share of {name} {level} (all)"]
        assert low - 0.06 < (rows[name] == level).mean() < high + 0.06
    for name in ("age", "bmi", "children"):
        _, low, high = values[f"mean of {name}  (all)"]
        width = population().workload.column(name).high - population().workload.column(name).low
        assert low - 0.02 * width < rows[name].mean() < high + 0.02 * width
        assert rows[name].std() == pytest.approx(values[f"sd of {name}  (all)"][0], rel=0.15)


def test_synthetic_rows_keep_to_ranges_kinds_and_what_is_possible(synthetic: SyntheticRows) -> None:
    rows = synthetic.to_frame()
    assert not ((rows.sex == "m") & (rows.ward == "c")).any()
    assert set(rows.ill) == {"no", "yes"}
    assert rows.age.dtype.kind == rows.children.dtype.kind == "i"
    assert rows.age.between(18, 90).all()
    assert rows.crp.between(0.1, 300).all()
    assert rows.months.between(0, 60).all()
    assert set(rows.status) == {"alive", "dead"}
    assert rows.bmi.nunique() > 1_000


def test_whole_times_stay_in_their_interval_whatever_its_edges() -> None:
    edges = (0.0, 10.5, 20.25, 40.0)
    columns = (Column("days", "integer", 0, 60), Column("status", "category", categories=("alive", "dead")))
    workload = make_workload(Schema(columns), survival=Survival("days", "status", "dead", edges))
    levels = np.repeat(np.arange(7), 500)  # died and left in each of three intervals, and later
    drawn = _draw_times(workload, levels, np.zeros(len(levels), dtype=bool), np.random.default_rng(0))
    interval = np.searchsorted(edges, drawn["days"].to_numpy(), side="left") - 1
    np.testing.assert_array_equal(interval, levels // 2)
    np.testing.assert_array_equal(drawn["status"].to_numpy(zero_copy_only=False) == "dead", np.isin(levels, (0, 2, 4)))


def test_the_file_says_that_its_rows_are_synthetic(synthetic: SyntheticRows, tmp_path: Path) -> None:
    synthetic.write(tmp_path / "rows.parquet")
    metadata = pq.read_schema(tmp_path / "rows.parquet").metadata
    header = SyntheticHeader.from_json(metadata[b"mooring"])
    assert header == synthetic.header
    assert json.loads(metadata[b"mooring"])["synthetic"] is True
    assert (header.source.epsilon, header.source.delta, header.source.unit) == (1.0, 1e-5, "row")


def draw_kinds(n_rows: int) -> PairwiseTotal:
    """Rows of which nine in ten are of the first kind, and all of the first size."""
    workload = make_workload(
        Schema(tuple(Column(name, "category", categories=("a", "b")) for name in ("kind", "size")))
    )
    kinds = np.eye(2)[(np.arange(n_rows) % 10 == 9).astype(int)]
    return sum_exactly(workload, np.hstack([kinds, np.tile([1.0, 0.0], (n_rows, 1))]))


def test_by_default_there_are_as_many_rows_as_the_total_has_and_the_seed_is_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mooring.mechanisms.sums.answers.synthesis.fit_mixture", invent_mixture)
    total = draw_kinds(120)
    rows = synthesize(total)
    assert len(rows.table) == 120
    assert rows.header.seed == 0
    assert rows.table.equals(synthesize(total, seed=0).table)
    assert not rows.table.equals(synthesize(total, seed=1).table)
    assert len(synthesize(total, 1).table) == 1


def test_rows_are_drawn_again_twenty_times_before_they_are_left_out() -> None:
    rows = synthesize(draw_kinds(1_000), 40_000, impossible=[{"kind": "a", "size": "a"}])
    assert (rows.to_frame().kind == "b").mean() > 0.99
    assert len(rows.table) == pytest.approx(40_000 * (1 - 0.9**21), abs=200)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"n_rows": 0}, "rows"),
        ({"n_rows": 10**7 + 1}, "rows"),
        ({"impossible": [{"sex": "x"}]}, "impossible"),
        ({"impossible": [{"bmi": "15"}]}, "impossible"),
    ],
)
def test_rows_that_cannot_be_drawn_are_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError) as caught:
        synthesize(draw_total(0, 1.0, 6_000), **options)
    assert caught.value.what == what


def test_odds_ratios_are_near_those_of_statsmodels() -> None:
    """Coefficients differ by a tenth of a standard error of 6,000 rows at most."""
    from statsmodels.discrete.discrete_model import Logit

    rng = np.random.default_rng(0)
    answer, rows = (
        estimate_odds_ratios(population().draw(rng), "ill ~ age + log(crp) + sex"),
        population().frame(np.random.default_rng(0)),
    )
    terms = np.column_stack([np.ones(len(rows)), rows.age, np.log(rows.crp), rows.sex == "m"]).astype(float)
    fitted = Logit((rows.ill == "yes").to_numpy().astype(float), terms).fit(disp=0)
    assert [entry.term for entry in answer.ratios] == ["age", "log(crp)", "sex"]
    distance = np.log([entry.odds_ratio for entry in answer.ratios]) - fitted.params[1:]
    assert (np.abs(distance) < 0.15 * fitted.bse[1:]).all()
    widths = [np.log(entry.high / entry.low) / 3.92 for entry in answer.ratios]
    np.testing.assert_allclose(widths, fitted.bse[1:], rtol=0.03)
    assert OddsRatios.from_json(answer.to_json()) == answer


def test_odds_ratios_of_a_number_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        estimate_odds_ratios(draw_total(0, 1.0, 6_000), "bmi ~ age")
    assert caught.value.what == "formula"


def sum_arms(n_ill: int) -> PairwiseTotal:
    """A total of 1,000 rows of two arms, of whom this many are ill whatever their arm, with noise."""
    columns = (Column("arm", "category", categories=("a", "b")), Column("ill", "category", categories=("no", "yes")))
    rng = np.random.default_rng(3)
    arm, ill = rng.integers(2, size=1_000), (np.arange(1_000) < n_ill).astype(int)
    rows = np.hstack([np.eye(2)[arm], np.eye(2)[ill]])
    return sum_exactly(make_workload(Schema(columns)), rows).with_noise(rng, 20.0)


def test_odds_ratios_that_noise_leaves_unknown_are_refused() -> None:
    """Where nobody is ill, the interval would reach from 10⁻⁴⁷ to 10⁴⁷."""
    (ratio,) = estimate_odds_ratios(sum_arms(300), "ill ~ arm").ratios
    assert 0.5 < ratio.low < 1 < ratio.high < 2
    with pytest.raises(InputError) as caught:
        estimate_odds_ratios(sum_arms(0), "ill ~ arm")
    assert caught.value.what == "formula"
