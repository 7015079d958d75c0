from typing import Any

import numpy as np
import pytest

from mooring.audit.hazards import find_hazards
from mooring.tables import Partition


def dealt(rows: np.ndarray, n_participants: int = 2) -> Partition:
    return Partition.from_parts(np.array_split(rows, n_participants), rng=np.random.default_rng(0), test_share=0.0)


def gaussian(n: int = 400, m: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, m))


def test_a_gaussian_table_with_equal_variances_has_none() -> None:
    for seed in range(5):
        assert find_hazards(dealt(gaussian(seed=seed)), 5) == ()


def planted(kind: str) -> tuple[np.ndarray, int]:
    rng, rows = np.random.default_rng(1), gaussian()
    h = 5
    match kind:
        case "integers":
            rows[:, 1] = np.round(3 * rows[:, 1])
        case "standardised integers":
            rows[:, 1] = (np.round(3 * rows[:, 1]) - 0.37) / 3.1
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
        ("integers", "1 of 5 columns take values on a grid"),
        ("standardised integers", "1 of 5 columns take values on a grid"),
        ("one-hot", "3 of 5 columns take values on a grid"),
        ("constant", "1 of 12 columns are constant"),
        ("duplicates", "1 of 400 rows are duplicates"),
        ("zero", "2 of 400 rows are zero throughout"),
        ("few rows", "2 participants have no more rows (4 at least) than components (4)"),
        ("separated", "1 of the 4 gaps between the largest variances"),
    ],
)
def test_each_planted_hazard_is_found(kind: str, words: str) -> None:
    rows, h = planted(kind)
    found = find_hazards(dealt(rows), h)
    assert any(words in one for one in found), found
    if kind in ("standardised integers", "constant", "duplicates", "separated"):
        assert len(found) == 1


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
    assert not any(words in one for one in find_hazards(dealt(rows), 5))


def test_a_projection_breaks_the_grid_and_one_row_more_than_components_is_no_hazard() -> None:
    rows, _ = planted("integers")
    assert not any("grid" in one for one in find_hazards(dealt(rows), 3))
    assert not any("components" in one for one in find_hazards(dealt(gaussian(10, 4)), 4))


def test_a_wide_grid_is_only_a_start() -> None:
    rng = np.random.default_rng(2)
    narrow, wide = (rng.integers(0, 9, (200, m)).astype(float) for m in (5, 41))
    assert any("within reach of lattice reduction" in one for one in find_hazards(dealt(narrow), 5))
    assert any("a start for lattice reduction" in one for one in find_hazards(dealt(wide), 41))


def test_hazards_never_quote_a_value() -> None:
    rows = gaussian()
    rows[:, 0] = 123.456
    rows[5] = rows[6] = 98.765
    rows[:, 0] = 123.456
    text = " ".join(find_hazards(dealt(rows), 5))
    assert "123" not in text
    assert "98.7" not in text


def test_a_constant_column_does_not_hide_separated_variances() -> None:
    rows = gaussian() * [8.0, 4.0, 2.0, 1.0, 0.0]
    assert any("gaps between the largest variances" in one for one in find_hazards(dealt(rows), 5))
