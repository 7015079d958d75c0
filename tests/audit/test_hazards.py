from typing import Any

import numpy as np
import pytest

from mooring.audit import AuditSettings, EvaluationSpec, PointResult, RotationPoint
from mooring.audit.auditor import Auditor
from mooring.audit.hazards import count_duplicates, find_grids, find_hazards, separated_variances
from mooring.audit.results.point_result import AttackOutcome
from mooring.metrics import Figure, Interval
from mooring.tables import Partition
from tests.auditing import how_much


def split_rows(rows: np.ndarray, n_participants: int = 2) -> Partition:
    return Partition.from_parts(np.array_split(rows, n_participants), rng=np.random.default_rng(0), test_share=0.0)


def gaussian(n: int = 400, m: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, m))


def test_a_gaussian_table_with_equal_variances_has_none() -> None:
    for seed in range(5):
        assert find_hazards(split_rows(gaussian(seed=seed)), 5) == ()


def planted(kind: str) -> tuple[np.ndarray, int]:
    rng, rows = np.random.default_rng(1), gaussian()
    h = 5
    match kind:
        case "integers":
            rows[:, 1] = np.round(3 * rows[:, 1])
        case "standardised integers":
            rows[:, 1] = (np.round(rows[:, 1]).clip(-1, 1) - 0.37) / 0.7
        case "rare":
            rows[:, 1] = np.arange(400) % 100 == 0
        case "one-hot":
            rows[:, 2:] = np.eye(3)[rng.integers(0, 3, 400)] * np.sqrt(4.5)
        case "constant":
            rows = np.column_stack([gaussian(m=11), np.full(400, 0.1)])
            h = 12
        case "duplicates":
            rows[7] = rows[300]
        case "zero":
            rows[[3, 9]] = 0.0
        case "few rows":
            rows, h = rows[:8, :4], 4
        case "separated":
            rows = rows * [4.0, 1.0, 1.0, 1.0, 1.0]
    return rows, h


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("integers", "1 of 5 columns takes values on a grid"),
        ("standardised integers", "1 of 5 columns takes values on a grid"),
        ("rare", "whoever undoes the map sees these rows stand out"),
        ("one-hot", "3 of 5 columns take values on a grid"),
        ("constant", "1 of 12 columns is constant"),
        ("duplicates", "1 of 400 rows is a duplicate of another"),
        ("zero", "2 of 400 rows are zero throughout"),
        ("few rows", "2 participants have no more rows than the 4 components (fewest rows: 4)"),
        ("separated", "Of the 4 gaps between the largest variances 1 exceeds"),
    ],
)
def test_each_planted_hazard_is_found(kind: str, words: str) -> None:
    rows, h = planted(kind)
    hazards = find_hazards(split_rows(rows), h)
    assert any(words in hazard for hazard in hazards), hazards
    if kind in ("standardised integers", "constant", "duplicates", "separated"):
        assert len(hazards) == 1


def test_columns_of_an_audit_have_the_names_that_its_rows_have() -> None:
    rows, _ = planted("integers")
    names = tuple(f"name {k}" for k in range(rows.shape[1]))
    settings = AuditSettings(evaluation=EvaluationSpec(feature_names=names), attacks=["procrustes"])
    warning = Auditor.of(split_rows(rows), None, settings).result([]).warnings[0]
    assert "name 1" in warning
    assert "column 2" not in warning


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows[:, 0].__setitem__(slice(None), rows[:, 0].round(6)), "grid"),
        (lambda rows: rows[:, 0].__setitem__(slice(None, None, 2), 0.0), "constant"),
    ],
)
def test_near_misses_are_no_hazard(change: Any, words: str) -> None:
    """A grid too fine to help, and a column that is constant for half the rows only."""
    rows = gaussian()
    change(rows)
    assert not any(words in hazard for hazard in find_hazards(split_rows(rows), 5))


def test_a_projection_breaks_the_grid_and_one_row_more_than_components_is_no_hazard() -> None:
    rows, _ = planted("integers")
    assert not any("grid" in hazard for hazard in find_hazards(split_rows(rows), 3))
    assert not any("components" in hazard for hazard in find_hazards(split_rows(gaussian(10, 4)), 4))


def test_a_wide_grid_is_only_a_start() -> None:
    rng = np.random.default_rng(2)
    narrow, wide = (rng.integers(0, 9, (200, m)).astype(float) for m in (5, 41))
    assert any("within reach of lattice reduction" in hazard for hazard in find_hazards(split_rows(narrow), 5))
    assert any("a starting point for lattice reduction" in hazard for hazard in find_hazards(split_rows(wide), 41))


def test_duplicates_are_looked_for_in_tables_that_are_not_too_large() -> None:
    assert [count_duplicates(np.broadcast_to(0.0, (n, 2))) for n in (5, 25_000_001)] == [4, 0]


def test_rows_that_differ_by_rounding_are_duplicates_and_one_column_has_no_gaps() -> None:
    assert count_duplicates(np.array([[0.0], [4e-13], [2e-12]])) == 1
    assert separated_variances(gaussian(m=1)) == (0, 0)
    assert separated_variances(gaussian(m=3) * [1.0, 0.0, 0.0]) == (0, 0)


def test_hazards_never_quote_a_value() -> None:
    rows = gaussian()
    rows[:, 0] = 123.456
    rows[5] = rows[6] = 98.765
    rows[:, 0] = 123.456
    text = " ".join(find_hazards(split_rows(rows), 5))
    assert "123" not in text
    assert "98.7" not in text


def test_a_constant_column_does_not_hide_separated_variances() -> None:
    rows = gaussian() * [8.0, 4.0, 2.0, 1.0, 0.0]
    assert any("gaps between the largest variances" in hazard for hazard in find_hazards(split_rows(rows), 5))


def test_labels_of_one_row_are_a_hazard_and_shared_ones_are_not() -> None:
    parts = np.array_split(gaussian(), 2)
    for labels, words in (
        ([0, 1] * 100, None),
        ([0.5] * 198 + [1.25, 2.75], "4 of 400 rows have a label that no other"),
    ):
        given = Partition.from_parts(parts, [np.array(labels)] * 2, rng=np.random.default_rng(0), test_share=0.0)
        assert [words in hazard for hazard in find_hazards(given, 5)] == ([] if words is None else [True])


@pytest.mark.parametrize(("scale", "share"), [(0.1, 0.9873), (0.25, 0.6827), (1.0, 0.1974)])
def test_the_share_that_rounding_gives_back_is_what_noise_leaves(scale: float, share: float) -> None:
    """One step is 0.5; within half a step of 0.25, one standard deviation holds 68.27 %."""
    rng = np.random.default_rng(3)
    values = rng.integers(-2, 3, 100_000) / 2
    (grid,) = find_grids(values[:, None])
    twenty, more = (np.repeat(np.arange(n), [10] * (n - 1) + [1])[:, None].astype(float) for n in (20, 21))
    assert (find_grids(twenty)[0].rare_counts, find_grids(more)[0].rare_counts) == ((1,), ())
    assert grid.recovered_share(scale) == pytest.approx(share, abs=1e-3)
    inner = np.abs(values) < 1
    rounded = np.round((values + scale * rng.standard_normal(values.size)) * 2) / 2
    assert np.mean((rounded == values)[inner]) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(
    ("measure", "value", "chance", "control", "amount"),
    [
        ("centred_error", 0.9, None, 1.0, "little"),
        ("centred_error", 0.45, 1.0, 0.48, "little"),  # guessing is as near
        ("centred_error", 0.45, 0.48, None, "little"),
        ("centred_error", 0.9, 2.0, 2.0, "much"),  # guessing is further off than the spread
        ("centred_error", 0.6, None, None, "something"),
        ("exposed_row", 0.4, None, 1.0, "little"),  # nobody knows what chance gives
        ("centred_error", 0.45, None, None, "much"),  # nobody to guess from: relative to the spread
        ("linkage", 0.6, 0.1, 0.1, "much"),
        ("linkage", 0.6, 0.1, 0.6, "something"),
        ("linkage", 0.6, 0.1, 0.45, "something"),
        ("linkage", 1.0, 0.1, 1.0, "something"),
        ("linkage", 0.6, None, None, "much"),
        ("exposed_value", 1.0, 0.002, 0.002, "much"),
        ("exposed_value", 0.95, 0.3, 0.93, "something"),  # guessing finds nearly as many
        ("exposed_column", 0.45, None, 0.5, "little"),
        ("exposed_column", 0.45, None, 1.0, "much"),
        ("exposed_row", 0.4, 0.5, 1.0, "much"),
        ("exposed_row", 0.4, 0.3, 1.0, "little"),  # the least of many errors, by chance
    ],
)
def test_the_most_exposed_measure_decides(
    measure: str, value: float, chance: float | None, control: float | None, amount: str
) -> None:
    large = Figure("error", 0.99, Interval.unknown(), None, 1.0, None, 100, higher_is_worse=False)
    figure = Figure(
        measure, value, Interval.unknown(), chance, control, None, 4, measure in ("linkage", "exposed_value")
    )
    point = RotationPoint("aa-i-gdp", 5, 20, 0.0, 0.0)
    outcome = AttackOutcome("known-anchor", {"centred_error": large, measure: figure})
    assert how_much(PointResult(point, 0.3, outcomes=(outcome,))) == amount


@pytest.mark.parametrize(
    ("n_rows", "n_held", "is_rare"), [(900, 9, True), (900, 10, False), (2000, 10, True), (2000, 11, False)]
)
def test_a_value_is_rare_that_one_percent_of_the_rows_have_and_no_more_than_ten(
    n_rows: int, n_held: int, is_rare: bool
) -> None:
    (grid,) = find_grids((np.arange(n_rows) < n_held)[:, None].astype(float))
    assert grid.rare_counts == ((n_held,) if is_rare else ())


@pytest.mark.parametrize(("more", "is_grid"), [(1.08e-5, True), (1.12e-5, False)])
def test_steps_are_equal_up_to_rounding(more: float, is_grid: bool) -> None:
    values = np.array([0.0, 1.0, 2.0 + more])
    assert bool(find_grids(values[:, None])) == is_grid


@pytest.mark.parametrize(("n_rows", "n_wide"), [(1000, 1), (1001, 0), (2000, 0), (2001, 1)])
def test_variances_are_those_of_a_thousand_rows_at_most(n_rows: int, n_wide: int) -> None:
    """Every second row is long in one direction: with more than 1,000 rows they are left out, with more than 2,000 not."""
    rows = gaussian(n_rows, 2)
    rows[1::2, 0] *= 9.0
    assert separated_variances(rows) == (n_wide, 1)


@pytest.mark.parametrize(("share", "n_gaps"), [(1.2e-9, 1), (0.8e-9, 0)])
def test_variances_of_less_than_a_billionth_of_the_largest_are_rounding(share: float, n_gaps: int) -> None:
    short = share**0.5
    rows = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, short], [0.0, -short]])
    assert separated_variances(rows) == (n_gaps, n_gaps)
