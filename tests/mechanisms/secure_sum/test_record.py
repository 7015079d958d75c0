"""Features of tables, and noise for sums, on record (see tests/record.py): what travels hangs on each of these numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.mechanisms.secure_sum.feature_map import RowFeatures, TableFeatures
from mooring.mechanisms.secure_sum.guarantee import SumPrivacy, calibrate_sums
from mooring.mechanisms.secure_sum.sums import Outcome, SumLayout
from tests.mechanisms.secure_sum.test_sums import SCHEMA, promised_epsilon
from tests.record import check_record

RECORD = Path(__file__).parent / "record.json"
ROWS = np.array(
    [
        [0.3, 0.0, -0.4, 1.0, 0.0, 0.0, 1.0, 0.0],
        [-1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0],
        [0.0, 1.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0],
    ]
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"log_scaled": frozenset({"income"})},
        {"n_hats": 0, "log_scaled": frozenset({"income"})},
        {"n_hats": 3, "constant_share": 0.5},
        {"n_hats": 4, "log_scaled": frozenset({"age", "income"})},
    ],
    ids=["default", "log", "no hats", "three hats", "both log"],
)
def test_features_of_a_table_are_as_on_record(options: dict[str, Any]) -> None:
    features = TableFeatures(SCHEMA, **options)
    told = features.describe()
    arrays = [told.linear, told.offset, told.at, *(list(vars(curve).values()) for curve in told.curves)]
    found = [features.apply(ROWS), list(features.names), features.n_features, features.n_inputs, features.largest_norm]
    settings = [features.n_hats, features.constant_share, *sorted(features.log_scaled)]
    check_record(RECORD, f"features, {settings}", [found, arrays])


def test_features_of_rows_are_the_rows_at_one_length() -> None:
    rows = RowFeatures(2, 0.19).apply(np.array([[3.0, 4.0], [0.0, 0.0]]))
    assert np.allclose(rows, [[0.54, 0.72, 0.19**0.5], [0.0, 0.0, 0.19**0.5]])


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_noise_and_what_it_promises_are_as_on_record(n_classes: int) -> None:
    layout, found = SumLayout(12, Outcome(n_classes)), []
    for options in ({}, {"n_colluders": 0}, {"quorum": 9, "rows_per_person": 2}, {"product_share": 0.5}):
        privacy = SumPrivacy(**({"epsilon": 2.0, "delta": 1e-6, "quorum": 5, "n_colluders": 1} | options))
        noise = calibrate_sums(layout, privacy)
        found.append([float(noise.on_products), float(noise.on_outcomes), promised_epsilon(layout, noise, privacy)])
    check_record(RECORD, f"noise, {n_classes}", [found, layout.n_products, layout.outcome.width, layout.resolution])
