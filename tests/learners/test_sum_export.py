"""The ONNX model of sums says what the fitted one says, whatever the columns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.learners.sum_export import sums_to_onnx
from mooring.learners.sums import SumModel
from mooring.mechanisms.sums.feature_map import TableFeatures
from mooring.mechanisms.sums.picture_features import PictureFeatures
from mooring.mechanisms.sums.random_fourier import FourierFeatures
from mooring.protocol.messages.model import Model
from mooring.tables.schema import Column, Schema

KINDS = {
    "number": lambda name, missing: Column(name, "number", 0, 10, missing=missing),
    "two": lambda name, missing: Column(name, "category", categories=("a", "b"), missing=missing),
    "four": lambda name, missing: Column(name, "category", categories=("a", "b", "c", "d"), missing=missing),
}


def draw_rows(schema: Schema, n: int, rng: np.random.Generator) -> np.ndarray:
    parts = []
    for column in schema.columns:
        flag = rng.integers(2, size=(n, 1)) if column.missing == "indicate" else np.zeros((n, 0))
        if column.kind == "category":
            part = np.eye(len(column.categories))[rng.integers(len(column.categories), size=n)]
            part = part * (1 - flag) if flag.size else part
        else:
            part = rng.uniform(-1, 1, size=(n, 1))
        parts += [part, flag]
    return np.hstack(parts)


@settings(max_examples=6, deadline=None)
@given(
    columns=st.lists(st.tuples(st.sampled_from(list(KINDS)), st.booleans(), st.booleans()), min_size=1, max_size=5),
    n_hats=st.sampled_from([0, 3, 5]),
    n_classes=st.sampled_from([0, 2, 3]),
    seed=st.integers(0, 99),
)
def test_the_written_model_predicts_what_the_fitted_one_does(
    columns: list[tuple[str, bool, bool]], n_hats: int, n_classes: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    made = [KINDS[kind](f"c{k}", "indicate" if missing else "refuse") for k, (kind, missing, _) in enumerate(columns)]
    logs = frozenset(one.name for one, (_, _, log) in zip(made, columns, strict=True) if log and one.kind == "number")
    features = TableFeatures(Schema(tuple(made)), logs, n_hats)
    width = n_classes if n_classes > 2 else 1
    weights, logistic = rng.normal(size=(features.n_features - 1, width)), n_classes > 0 and seed % 2 == 0
    model = SumModel(weights, rng.normal(size=width), n_classes, is_logistic=logistic)
    rows = draw_rows(features.schema, 60, rng).astype(np.float32).astype(np.float64)
    data = sums_to_onnx(model, features, limits=(-0.5, 0.75))
    kind = "classes" if n_classes else "number"
    loaded = Model.load(data, n_components=rows.shape[1], kind=kind, n_classes=n_classes)
    found, shares = loaded.predict_with_probabilities(rows)
    expected = model.probabilities(features.apply(rows))
    assert (shares is None) == (expected is None) == (not logistic)
    if shares is not None and expected is not None:
        np.testing.assert_allclose(shares, expected, atol=1e-5)
    scores = model.scores(features.apply(rows))
    if n_classes:
        assert (found == model.predict(features.apply(rows))).mean() > 0.98
    else:
        np.testing.assert_allclose(found, np.clip(scores[:, 0], -0.5, 0.75), atol=1e-5)


def test_features_that_are_not_moorings_are_refused() -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - an InputError is one
        sums_to_onnx(SumModel(np.zeros((1, 1)), np.zeros(1), 2), object())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "features",
    [
        PictureFeatures(8, 8, n_components=24),
        PictureFeatures(8, 8, n_channels=3, n_components=24),
        FourierFeatures(5, 12),
    ],
)
def test_pictures_and_fourier_features_are_written_too(features: PictureFeatures | FourierFeatures) -> None:
    rng = np.random.default_rng(0)
    model = SumModel(rng.normal(size=(features.n_features - 1, 1)), rng.normal(size=1), 0)
    rows = rng.uniform(-1, 1, size=(40, features.n_inputs))
    rows[0] = 0.25  # a picture without contrast
    found = Model.load(sums_to_onnx(model, features, limits=(-9, 9)), n_components=rows.shape[1], kind="number")
    np.testing.assert_allclose(found.predict(rows), model.scores(features.apply(rows))[:, 0], atol=2e-4)
