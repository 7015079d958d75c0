"""A model written as ONNX says in ONNX Runtime what it says here: for hospitals that score elsewhere."""

import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.errors import InputError, MissingExtraError
from mooring.learners import LEARNERS, Kind, Model, train_learner
from mooring.learners.models import LinearFunction, ModelSpec, QuadraticFunction
from mooring.mechanisms.onnx_export import to_onnx
from mooring.mechanisms.sums.features.columns import TableFeatures
from mooring.mechanisms.sums.features.fourier import FourierFeatures
from mooring.mechanisms.sums.features.pictures import PictureFeatures
from mooring.mechanisms.sums.general.features import LevelFeatures
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.tables.schema import Column, Schema
from tests.learners.test_models import H, draw_encoded, feature_maps, rows_and_labels, sum_model
from tests.raising import raising


def run_onnx(model: Model, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(to_onnx(model), options, providers=["CPUExecutionProvider"])
    values, *shares = session.run(None, {"rows": rows.astype(np.float32)})
    return values, shares[0] if shares else None


@pytest.mark.parametrize("name", [name for name, learner in LEARNERS.items() if learner.delivers])
@pytest.mark.parametrize("kind", ["classes", "number"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_delivered_model_predicts_the_same_as_onnx(kind: Kind, n_classes: int, name: str) -> None:
    rows, labels = rows_and_labels(kind, n_classes)
    model = train_learner(name, rows, labels, kind=kind, seed=0).to_model(n_classes + 1 if kind == "classes" else 0)
    new = np.random.default_rng(1).uniform(0, 10, (500, H)).astype(np.float32).astype(np.float64)
    (expected, probabilities), (predicted, shares) = model.predict_with_probabilities(new), run_onnx(model, new)
    assert (shares is None) == (probabilities is None) == (kind == "number")
    if shares is None or probabilities is None:
        np.testing.assert_allclose(predicted, expected, rtol=1e-5)
    else:
        assert np.array_equal(predicted, expected)
        np.testing.assert_allclose(shares, probabilities, atol=1e-6)


@settings(max_examples=8, deadline=None)
@given(feature_maps(), st.sampled_from([0, 2, 3]), st.integers(0, 99))
def test_models_of_sums_are_written_with_their_features(drawn: Any, n_classes: int, seed: int) -> None:
    features, rows = drawn
    _, model = sum_model(features, n_classes, seed, (-0.5, 0.75))
    rows = rows.astype(np.float32).astype(np.float64)
    (expected, probabilities), (predicted, shares) = model.predict_with_probabilities(rows), run_onnx(model, rows)
    assert (shares is None) == (probabilities is None)
    if shares is not None and probabilities is not None:
        np.testing.assert_allclose(shares, probabilities, atol=2e-4)  # filters of pictures are in single precision
    if n_classes:
        assert (predicted == expected).mean() > 0.97
    else:
        np.testing.assert_allclose(predicted, expected, atol=2e-4)


COLUMNS = [
    column
    for missing in ("refuse", "indicate")
    for column in (
        Column(f"any {missing}", "number", -3, 11, missing=missing),
        Column(f"positive {missing}", "number", 2, 50, missing=missing),
        Column(f"from zero {missing}", "number", 0, 8, missing=missing),
        Column(f"from below zero {missing}", "number", -2, 6, missing=missing),
        Column(f"few {missing}", "integer", 1, 5, missing=missing),
        Column(f"many {missing}", "integer", 0, 90, missing=missing),
        Column(f"two {missing}", "category", categories=("a", "b"), missing=missing),
        Column(f"three {missing}", "category", categories=("a", "b", "c"), missing=missing),
    )
]
TABLE = Schema(tuple(COLUMNS))
LOGS = frozenset(column.name for column in COLUMNS if column.name.startswith(("positive", "from")))
FEATURES: dict[str, Any] = {
    **{f"table, {n} hats": TableFeatures(TABLE, LOGS, n) for n in (0, 3, 5)},
    "a table without scales": TableFeatures(TABLE, frozenset(), 4, 0.4),
    "levels": LevelFeatures(make_workload(TABLE, log_scaled=LOGS), TABLE),
    "pictures": PictureFeatures(8, 8, n_channels=3, n_components=24),
    "gray pictures": PictureFeatures(9, 8, n_components=16),
    "Fourier": FourierFeatures(5, 12),
}


@pytest.mark.parametrize("name", FEATURES)
def test_every_kind_of_column_is_written_as_it_is_read(name: str) -> None:
    """One column of each kind, with and without missing values, at the ends of its range and beyond; blank pictures."""
    features, rng = FEATURES[name], np.random.default_rng(2)
    rows = rng.uniform(-1, 1, (60, features.n_inputs))
    rows[:2] = [[0.25], [-1.0]]  # without contrast
    if isinstance(features, TableFeatures | LevelFeatures):
        rows = draw_encoded(TABLE, 60, rng)
        numbers = np.cumsum([0, *(column.width for column in COLUMNS)])[:-1][[c.kind != "category" for c in COLUMNS]]
        rows[:4, numbers] = (
            np.array([[-1], [1], [-1.2], [1.2]]) if "levels" in name else np.array([[-1], [1], [0], [0]])
        )
        rows[4] = 0.0
    rows = rows.astype(np.float32).astype(np.float64)
    for n_classes, bounds in ((0, (-9.0, 9.0)), (0, (-0.2, 0.3)), (3, (0.0, 1.0))):
        for seed in range(2):
            _, model = sum_model(features, n_classes, seed, bounds)
            (expected, probabilities), (values, shares) = model.predict_with_probabilities(rows), run_onnx(model, rows)
            if probabilities is not None and shares is not None:
                np.testing.assert_allclose(shares, probabilities, atol=2e-5)
            if n_classes == 0:
                np.testing.assert_allclose(values, expected, atol=2e-5)
            else:
                assert (values == expected).mean() > 0.98


def test_normal_densities_are_written_as_they_are_evaluated() -> None:
    rng, spec = np.random.default_rng(3), ModelSpec(3, 2)
    function = QuadraticFunction(rng.normal(size=(3, 6)), rng.normal(size=6), rng.normal(size=2))
    model = Model(spec, function, "softmax", np.arange(2, dtype=np.int32), np.array([0.3, 0.7]))
    rows = rng.normal(size=(50, 3)).astype(np.float32).astype(np.float64)
    (expected, probabilities), (values, shares) = model.predict_with_probabilities(rows), run_onnx(model, rows)
    assert np.array_equal(values, expected)
    np.testing.assert_allclose(shares, probabilities, atol=1e-6)


def test_features_that_are_not_moorings_are_refused() -> None:
    class Constant:
        n_inputs, n_features, constant_share, unit_length = 1, 2, 0.3, False

    spec = ModelSpec(1, 0, Constant())  # type: ignore[arg-type]
    model = Model(spec, LinearFunction(np.zeros((1, 1)), np.zeros(1)), "none", np.zeros(1, dtype=np.int32), np.ones(1))
    with raising(InputError, "features", got="Constant"):
        to_onnx(model)


def test_a_file_has_the_format_of_the_middle_of_2022_which_later_runtimes_read() -> None:
    rows, labels = rows_and_labels("classes")
    model = onnx.load_from_string(to_onnx(train_learner("linear", rows, labels, kind="classes", seed=0).to_model()))
    (release,) = [versions for name, *versions in onnx.helper.VERSION_TABLE if name == "1.12.0"]
    assert [model.ir_version, *(operators.version for operators in model.opset_import)] == release[:2]


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    rows, labels = rows_and_labels("classes")
    with raising(MissingExtraError, extra="onnx"):
        to_onnx(train_learner("linear", rows, labels, kind="classes", seed=0).to_model())
