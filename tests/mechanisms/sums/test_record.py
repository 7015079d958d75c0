"""Features of tables and pictures, and noise for sums, on record (see tests/record.py): what travels hangs on them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.mechanisms.sums.features.columns import RowFeatures, TableFeatures
from mooring.mechanisms.sums.features.fourier import FourierFeatures
from mooring.mechanisms.sums.features.pictures import PictureFeatures, filters_of, fit_to_public
from mooring.mechanisms.sums.general.features import extract_sums, select_schema
from mooring.mechanisms.sums.general.total import sum_exactly
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.mechanisms.sums.guarantee import SumPrivacy, calibrate_sums
from mooring.mechanisms.sums.sums import Outcome, SumLayout
from tests.mechanisms.sums.test_sums import SCHEMA, promised_epsilon
from tests.mechanisms.sums.test_workload import LOGS, draw_rows
from tests.mechanisms.sums.test_workload import SCHEMA as GENERAL
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
    figures = [features.apply(ROWS), features.n_features, features.n_inputs, features.largest_norm]
    settings = [features.n_hats, features.constant_share, *sorted(features.log_scaled)]
    check_record(RECORD, f"features, {settings}", figures)


@pytest.mark.parametrize("size", [(5, 9), (9, 10)])
def test_features_of_pictures_are_as_on_record(size: tuple[int, int]) -> None:
    features, filters = PictureFeatures(*size, n_components=6, seed=size[0]), filters_of(*size)
    rows = np.sin(np.arange(600 * features.n_inputs) ** 1.5).reshape(600, -1)
    fitted, z = fit_to_public(features, rows), filters.apply(rows[:2])
    contrasts = [filters.n_moduli, filters.n_responses, z[:, ::40], filters.contrast_orientations(z)[:, ::40]]
    check_record(RECORD, f"pictures, {size}", [features.apply(rows[-4:]), fitted.apply(rows[-4:]), contrasts])


def test_responses_to_faint_pictures_are_as_on_record() -> None:
    """Contrast of a millionth is about as large as what is added to squares."""
    filters, x = filters_of(5, 9), np.sin(np.arange(90) ** 1.5).reshape(2, -1)
    figures = {str(contrast): filters.apply(contrast * x)[:, ::16] for contrast in (1e-7, 1e-6, 1e-5)}
    check_record(RECORD, "pictures, faint", figures)


def test_random_fourier_features_are_as_on_record() -> None:
    rows = np.sin(np.arange(6) ** 1.5).reshape(2, 3)
    figures = [features.apply(rows)[:, ::11] for features in (FourierFeatures(3), FourierFeatures(3, 20, 0.4, seed=3))]
    check_record(RECORD, "fourier", figures)


def test_features_of_rows_are_the_rows_at_one_length() -> None:
    default = RowFeatures(2).apply(np.array([[3.0, 4.0]]))
    assert np.allclose(default, [[0.6 * 0.7**0.5, 0.8 * 0.7**0.5, 0.3**0.5]])
    rows = RowFeatures(2, 0.19).apply(np.array([[3.0, 4.0], [0.0, 0.0]]))
    assert np.allclose(rows, [[0.54, 0.72, 0.19**0.5], [0.0, 0.0, 0.19**0.5]])


@pytest.mark.parametrize("outcome", ["ill", "stage", "weight", "children", "age"])
def test_sums_of_models_from_the_general_total_are_as_on_record(outcome: str) -> None:
    """With outcomes of two levels, of three that may be missing, and numbers, of which one may be missing."""
    rows, _ = draw_rows(np.random.default_rng(2))
    workload = make_workload(GENERAL, log_scaled=LOGS)
    total = sum_exactly(workload, rows[:, :-1], rows[:, -1]).with_noise(np.random.default_rng(3), 4.0)
    schema = select_schema(workload, GENERAL, outcome)
    sums = extract_sums(total, schema)
    products = [np.diag(sums.products), sums.products @ np.sin(np.arange(len(sums.products)))]
    figures = [products, sums.outcomes, sums.noise_scales, sums.constant_share, sums.n_classes, sums.columns]
    kinds = [sums.unit_length, [column.name for column in schema.columns], schema.label.kind, schema.label.classes]
    check_record(RECORD, f"general, {outcome}", [*figures, kinds, schema.label.low, schema.label.high])


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_noise_and_what_it_promises_are_as_on_record(n_classes: int) -> None:
    layout, collected = SumLayout(12, Outcome(n_classes)), []
    for options in ({}, {"n_colluders": 0}, {"quorum": 9, "rows_per_person": 2}, {"product_share": 0.5}):
        privacy = SumPrivacy(**({"epsilon": 2.0, "delta": 1e-6, "quorum": 5, "n_colluders": 1} | options))
        noise = calibrate_sums(layout, privacy)
        collected.append([float(noise.on_products), float(noise.on_outcomes), promised_epsilon(layout, noise, privacy)])
    check_record(RECORD, f"noise, {n_classes}", [collected, layout.n_products, layout.outcome.width, layout.resolution])
