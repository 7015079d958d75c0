"""Coefficients from sums: those of the rows, in the columns' own units, with errors that repetition bears out."""

import numpy as np
import pytest

from mooring.errors import InputError
from mooring.learners.sums import Sums
from mooring.mechanisms.sums.coefficients import fit_coefficients
from mooring.mechanisms.sums.feature_map import TableFeatures
from mooring.tables.schema import Column, Schema
from tests.raising import raising

COLUMNS = (
    Column("age", "number", 0, 100),
    Column("sex", "category", categories=("f", "m")),
    Column("ward", "category", categories=("a", "b", "c")),
)
FEATURES = TableFeatures(Schema(COLUMNS), n_hats=0)


def draw_sums(rng: np.random.Generator, n: int, noise: tuple[float, float] = (0.0, 0.0)) -> Sums:
    """Rows of which a year adds .01 to a label between −1 and 3, being male .5, ward c .3."""
    age, sex, ward = rng.uniform(0, 100, n), rng.integers(2, size=n), rng.integers(3, size=n)
    label = 0.01 * age + 0.5 * sex + 0.3 * (ward == 2) + rng.normal(0, 0.3, n)
    rows = np.column_stack([age / 50 - 1, np.eye(2)[sex], np.eye(3)[ward]])
    phi, y = FEATURES.apply(rows), ((label - 1) / 2)[:, None]
    D = phi.shape[1]
    bent = rng.normal(0, noise[0] / np.sqrt(2), (D, D))
    bent = np.triu(bent, 1) + np.triu(bent, 1).T + np.diag(rng.normal(0, noise[0], D))
    return Sums(phi.T @ phi + bent, phi.T @ y + rng.normal(0, noise[1], (D, 1)), FEATURES.constant_share, 0, noise)


def test_coefficients_are_those_of_the_rows_in_the_columns_units() -> None:
    found = {one.name: one for one in fit_coefficients(draw_sums(np.random.default_rng(0), 20_000), FEATURES, spread=4)}
    assert found["age"].value == pytest.approx(0.01, rel=0.05)
    assert found["sex=m"].value == pytest.approx(0.5, rel=0.05)
    assert found["ward=c"].value - found["ward=a"].value == pytest.approx(0.3, rel=0.1)
    assert all(one.noise_error == 0 < one.standard_error for one in found.values())
    assert found["age"].per == "one more"
    assert found["sex=m"].per == "instead of f"


def test_errors_are_those_of_repetition() -> None:
    """200 repetitions tell a standard deviation to 5 %; that of rows is an upper bound, since Σy² is not shared."""
    rng = np.random.default_rng(1)
    noise = (4.0, 2.0)
    tables = [fit_coefficients(draw_sums(rng, 1500, noise), FEATURES, spread=4) for _ in range(200)]
    values = np.array([[one.value for one in table] for table in tables])
    stated = np.array([[one.standard_error for one in table] for table in tables]).mean(axis=0)
    of_noise = np.array([[one.noise_error for one in table] for table in tables]).mean(axis=0)
    spread = values.std(axis=0, ddof=1)
    assert (spread < 1.15 * stated).all()
    assert (of_noise < 1.15 * spread).all()
    assert (of_noise[:2] > 0.5 * spread[:2]).all()


def test_hats_and_more_classes_have_no_coefficients() -> None:
    sums = draw_sums(np.random.default_rng(0), 100)
    with raising(InputError, "features"):
        fit_coefficients(sums, TableFeatures(Schema(COLUMNS)))
