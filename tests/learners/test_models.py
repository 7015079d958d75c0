"""Models are arrays: they predict what the trained estimator predicts, to the class and to the sixth digit."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mooring.errors import InputError, RefusedError
from mooring.learners import LEARNERS, EstimatorLearner, Kind, Model, train_learner
from mooring.learners.models import MOST_LEVELS, FourierFunction, LinearFunction, ModelSpec, TreeFunction
from mooring.learners.sums import SumModel
from mooring.learners.trees import Tree, lay_out_trees, read_xgboost, unscale_limits, widen_limits
from mooring.mechanisms.sums.features.columns import TableFeatures
from mooring.mechanisms.sums.features.fourier import FourierFeatures
from mooring.mechanisms.sums.features.pictures import PictureFeatures
from mooring.mechanisms.sums.general.features import LevelFeatures
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.tables.schema import Column, Schema
from tests.raising import raising

H = 3
DELIVERED = [name for name, learner in LEARNERS.items() if learner.delivers]


def rows_and_labels(kind: str, n_classes: int = 3, n: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, H)).astype(np.float32).astype(np.float64) * 2 + 5
    signal = rows[:, 0] - 5 + (rows[:, 1] - 5) ** 2 / 2 + 0.3 * rng.standard_normal(n)
    if kind == "number":
        return rows, 100 + 7 * signal
    return rows, np.digitize(signal, np.quantile(signal, np.sqrt(np.arange(1, n_classes) / n_classes)))


def small_trees(kind: str, *, shape: tuple[int, int], seed: int) -> Any:
    forest = RandomForestClassifier if kind == "classes" else RandomForestRegressor
    return forest(50, max_leaf_nodes=20, random_state=seed)


def scale_and_fit(kind: str, *, shape: tuple[int, int], seed: int) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression() if kind == "classes" else Ridge())


def fit_as_they_are(kind: str, *, shape: tuple[int, int], seed: int) -> Any:
    features = StandardScaler(with_mean=False, with_std=False)
    return make_pipeline(features, LogisticRegression() if kind == "classes" else Ridge())


OF_ONES_OWN = [
    EstimatorLearner("small", "trees with a limit on leaves", small_trees),
    EstimatorLearner("scaled", "a linear model of scaled rows", scale_and_fit),
    EstimatorLearner("plain", "a linear model of rows as they are", fit_as_they_are),
]


@pytest.mark.parametrize("name", [*DELIVERED, *OF_ONES_OWN])
@pytest.mark.parametrize("kind", ["classes", "two classes", "number"])
def test_every_delivered_model_predicts_what_its_learner_does(kind: str, name: str | EstimatorLearner) -> None:
    n_classes = 2 if kind == "two classes" else 3
    rows, labels = rows_and_labels("number" if kind == "number" else "classes", n_classes)
    fitted = train_learner(name, rows, labels, kind="number" if kind == "number" else "classes", seed=0)
    new = np.concatenate([rows, np.random.default_rng(1).uniform(0, 10, (2000, H))])
    expected = fitted.predict(new)
    model = fitted.to_model(0 if kind == "number" else n_classes)
    predicted, shares = model.predict_with_probabilities(new)
    if kind == "number":
        assert (predicted.dtype, shares) == (np.float64, None)
        np.testing.assert_allclose(predicted, expected, rtol=1e-6)
        return
    assert predicted.dtype == np.int64
    assert np.array_equal(predicted, expected)
    assert set(predicted) == set(range(n_classes))
    np.testing.assert_allclose(shares, fitted.probabilities(new, n_classes), atol=1e-6)


@pytest.mark.parametrize("name", DELIVERED)
def test_a_rare_class_is_predicted_from_its_share_on(name: str) -> None:
    """With a threshold of one half, a model of 6 % positives that overlap with the others would predict hardly any."""
    rng = np.random.default_rng(0)
    labels = (np.arange(600) % 17 == 0).astype(np.int64)
    rows = rng.standard_normal((600, H)) + 0.7 * labels[:, None]
    model = train_learner(name, rows, labels, kind="classes", seed=0).to_model(2)
    predicted, shares = model.predict_with_probabilities(rows)
    assert shares is not None
    assert np.array_equal(predicted, shares[:, 1] > labels.mean())
    assert (shares[labels == 1, 1] > labels.mean()).mean() > 0.6


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, np.nan])
def test_a_model_with_impossible_shares_of_classes_is_refused(share: float) -> None:
    function, classes = LinearFunction(np.zeros((H, 2)), np.zeros(2)), np.arange(2, dtype=np.int32)
    with raising(RefusedError, "the model", reason="shares"):
        Model(ModelSpec(H, 2), function, "softmax", classes, np.array([share, 0.5]))


@pytest.mark.parametrize("name", ["nystroem", "svm"])
@pytest.mark.parametrize("kind", ["classes", "number"])
@pytest.mark.filterwarnings("ignore:n_components > n_samples")
def test_a_model_that_would_hold_rows_is_not_made(kind: Kind, name: str) -> None:
    fitted = train_learner(name, *rows_and_labels(kind), kind=kind, seed=0)
    with raising(InputError, "learner", got={"nystroem": "Nystroem", "svm": "SV"}[name]):
        fitted.to_model()


@pytest.mark.parametrize("name", DELIVERED)
@pytest.mark.parametrize("kind", ["classes", "number"])
def test_no_model_holds_the_mean_of_its_rows(kind: Kind, name: str) -> None:
    rows, labels = rows_and_labels(kind)
    rows += [1.0, -2.0, 4.0]
    require_no_mean(train_learner(name, rows, labels, kind=kind, seed=0).to_model(), rows)


def require_no_mean(model: Model, rows: np.ndarray) -> None:
    """Require that no row or column of a model's arrays is the mean of the rows, in any unit or sign."""
    mean, h = rows.mean(axis=0), rows.shape[1]
    arrays = [getattr(model.function, array) for array in model.function.ARRAYS]
    for each in (turned for array in arrays for turned in (array, array.T) if array.ndim and turned.shape[-1] == h):
        lengths = np.linalg.norm(each, axis=-1) * np.linalg.norm(mean)
        assert (np.abs(each @ mean) < (1 - 1e-6) * np.where(lengths > 0, lengths, 1)).all()


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_a_leaf_of_a_forest_is_of_five_rows_at_least(kind: Kind) -> None:
    """With one row a leaf, every row's number to predict stood in the model."""
    estimator = train_learner("forest", *rows_and_labels(kind), kind=kind, seed=0).estimator
    trees = [estimator.tree_ for estimator in (estimator if kind == "classes" else estimator.regressor_).estimators_]
    assert min(tree.n_node_samples[tree.children_left < 0].min() for tree in trees) == 5


def test_classes_that_nobody_has_keep_their_numbers() -> None:
    rows = np.concatenate([np.zeros((10, H)), np.ones((10, H))]) + np.random.default_rng(0).normal(0, 0.1, (20, H))
    fitted = train_learner("linear", rows, np.repeat([1, 4], 10), kind="classes", seed=0)
    predicted, shares = fitted.to_model(6).predict_with_probabilities(rows)
    assert predicted.tolist() == [1] * 10 + [4] * 10
    assert shares is not None
    np.testing.assert_allclose(shares, fitted.probabilities(rows, 6), atol=1e-6)
    assert (shares[:, [0, 2, 3, 5]] == 0).all()


def test_rows_that_do_not_fit_are_refused_without_their_values() -> None:
    rows, labels = rows_and_labels("classes")
    model = train_learner("linear", rows, labels, kind="classes", seed=0).to_model()
    with raising(InputError, "rows", got="shape"):
        model.predict(rows[:, :2])
    with raising(InputError, "rows", expected="finite"):
        model.predict(np.full((1, H), np.inf))
    assert model.predict(np.zeros((0, H))).shape == (0,)


def test_many_rows_are_predicted_in_blocks_and_come_out_the_same() -> None:
    rows, labels = rows_and_labels("classes", n=300)
    model = train_learner("forest", rows, labels, kind="classes", seed=0).to_model()
    many = np.random.default_rng(2).uniform(0, 10, (20_000, H))
    assert np.array_equal(model.predict(many)[::997], np.concatenate([model.predict(row[None]) for row in many[::997]]))


# trees


@st.composite
def trees(draw: Any, depth: int = 6) -> Tree:
    """A random tree, its nodes in a random order behind the root."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    left, right, leaf, levels = [-1], [-1], [True], [0]
    for node in range(40):
        if node < len(leaf) and levels[node] < depth and rng.random() < 0.7:
            left[node], right[node], leaf[node] = len(leaf), len(leaf) + 1, False
            left += [-1, -1]
            right += [-1, -1]
            leaf += [True, True]
            levels += [levels[node] + 1] * 2
    n = len(leaf)
    order = np.r_[0, 1 + rng.permutation(n - 1)]
    place = np.argsort(order)
    lefts, rights = (np.where(np.array(side) < 0, -1, place[side])[order] for side in (left, right))
    limit = np.round(rng.standard_normal(n), 1)
    return Tree(lefts, rights, rng.integers(0, H, n), limit, np.array(leaf)[order], rng.standard_normal((n, 2)))


def walk(tree: Tree, row: np.ndarray) -> np.ndarray:
    node = 0
    while not tree.is_leaf[node]:
        node = tree.left[node] if row[tree.feature[node]] <= tree.limit[node] else tree.right[node]
    return tree.values[node]


@given(st.lists(trees(), min_size=1, max_size=5), st.integers(0, 2**32))
def test_trees_in_the_order_of_levels_lead_every_row_to_its_leaf(forest: list[Tree], seed: int) -> None:
    rows = np.round(np.random.default_rng(seed).standard_normal((30, H)), 1)
    function = lay_out_trees(forest, [0] * len(forest), intercepts=[1.0, -1.0], divisor=4.0)
    function.require_valid()
    expected = np.array([sum(walk(tree, row) for tree in forest) for row in rows]) / 4 + [1, -1]
    np.testing.assert_allclose(function.evaluate(rows), expected, atol=1e-12)


@given(st.lists(trees(), min_size=1, max_size=3), st.integers(0, 2**32))
def test_trees_with_a_node_changed_are_refused_or_still_end(forest: list[Tree], seed: int) -> None:
    """Whatever a file says: an evaluation takes at most as many steps as a tree may have levels, and stays in its arrays."""
    good, rng = lay_out_trees(forest, [0] * len(forest), intercepts=[0.0, 0.0]), np.random.default_rng(seed)
    feature = good.feature.copy()
    feature[rng.integers(feature.size, size=2)] = rng.integers(-1, H, size=2)
    changed = TreeFunction(feature, good.limit, good.values, good.first_output, good.divisor, good.intercepts)
    try:
        changed.require_valid()
    except RefusedError:
        return
    assert changed.n_levels <= MOST_LEVELS
    assert changed.evaluate(rng.standard_normal((5, H))).shape == (5, 2)


def test_a_tree_that_is_too_deep_is_refused() -> None:
    def chain(n_levels: int) -> TreeFunction:
        feature = np.array([0, *([0, -1] * (n_levels - 1)), -1, -1], dtype=np.int32)
        values = np.zeros((int((feature < 0).sum()), 1))
        zeros = np.zeros(1, dtype=np.int32)
        return TreeFunction(feature, np.zeros(feature.size), values, zeros, np.array(1.0), np.zeros(1))

    assert chain(MOST_LEVELS).n_levels == MOST_LEVELS
    chain(MOST_LEVELS).require_valid()
    with raising(RefusedError, "the model", reason="levels"):
        chain(MOST_LEVELS + 1).require_valid()


@pytest.mark.parametrize("n_classes", [0, 2, 10])
def test_trees_that_would_take_too_long_are_refused(n_classes: int) -> None:
    """A file names thousands of chains of trees in a few megabytes: a prediction would take minutes."""

    def chains(n_trees: int, n_levels: int = 50) -> Model:
        level = np.repeat(np.array([0, -1], dtype=np.int32)[None], n_trees, axis=0).ravel()
        feature = np.r_[np.zeros(n_trees), *([level] * (n_levels - 1)), -np.ones(2 * n_trees)].astype(np.int32)
        n_leaves, n_outputs = int((feature < 0).sum()), max(1, n_classes)
        outputs = np.zeros(n_trees, dtype=np.int32)
        function = TreeFunction(
            feature,
            np.zeros(feature.size),
            np.zeros((n_leaves, 1)),
            outputs,
            np.array(1.0),
            np.zeros(n_outputs),
        )
        link = "softmax" if n_classes else "none"
        classes, shares = np.arange(n_outputs, dtype=np.int32), np.full(n_outputs, 1 / n_outputs)
        return Model(ModelSpec(1, n_classes), function, link, classes, shares)

    most = 600 if n_classes == 10 else 400
    chains(most)
    with raising(RefusedError, "the model", reason="comparisons"):
        chains(most + 1)


@given(st.lists(st.floats(-1e30, 1e30), min_size=1), st.floats(1e-3, 1e3))
def test_limits_split_rows_as_the_library_splits_them(values: list[float], scale: float) -> None:
    limit = np.array(values)
    limits = unscale_limits(widen_limits(limit), scale)
    for rows in (limits, np.nextafter(limits, np.inf), np.nextafter(limits, -np.inf), limit * scale):
        assert np.array_equal(rows <= limits, (rows / scale).astype(np.float32) <= limit)


def document(**changed: Any) -> bytes:
    """XGBoost's JSON of two rounds for three classes: in the first round a tree of one split each, then a leaf each."""
    grown = {"left_children": [1, -1, -1], "right_children": [2, -1, -1], "split_indices": [1, 0, 0]}
    booster = [
        {**grown, "split_conditions": [0.5, 0.1 * k, -0.1 * k], "split_type": [0, 0, 0], "categories": []}
        for k in range(3)
    ]
    leaf = {"left_children": [-1], "right_children": [-1], "split_indices": [0], "split_type": [0], "categories": []}
    booster += [{**leaf, "split_conditions": [value]} for value in (0.0, 0.15, 0.0)]
    for tree in booster:
        tree["tree_param"] = {"size_leaf_vector": "1"}
    learner = {
        "learner_model_param": {"num_class": "3", "base_score": "[0.0,0.0,0.1]"},
        "objective": {"name": "multi:softprob"},
        "gradient_booster": {"name": "gbtree", "model": {"trees": booster, "tree_info": [0, 1, 2, 0, 1, 2]}},
    }
    return json.dumps({"learner": {**learner, **changed}}).encode()


def test_a_booster_is_read_from_its_document() -> None:
    trees, outputs, base = read_xgboost(document(), 1.0)
    function = lay_out_trees(trees, outputs, intercepts=base)
    model = Model(ModelSpec(H, 3), function, "softmax", np.arange(3, dtype=np.int32), np.full(3, 1 / 3))
    below = np.nextafter(np.float32(0.5), np.float32(0))
    # below 0.5 the classes have 0.0, 0.1 + 0.15 and 0.2 + 0.1; from 0.5 on 0.0, -0.1 + 0.15 and -0.2 + 0.1
    assert model.predict(np.array([[9, below, 9], [9, 0.5, 9]])).tolist() == [2, 1]


def test_a_booster_for_something_else_is_refused() -> None:
    with raising(InputError, "the booster", got="rank:pairwise"):
        read_xgboost(document(objective={"name": "rank:pairwise"}), 1.0)
    with raising(InputError, "the booster", got="dart"):
        read_xgboost(document(gradient_booster={"name": "dart"}), 1.0)


# models of sums

KINDS = {
    "number": lambda name, missing: Column(name, "number", 0, 10, missing=missing),
    "number from 30": lambda name, missing: Column(name, "number", 30, 70, missing=missing),
    "two": lambda name, missing: Column(name, "category", categories=("a", "b"), missing=missing),
    "four": lambda name, missing: Column(name, "category", categories=("a", "b", "c", "d"), missing=missing),
}


def draw_encoded(schema: Schema, n: int, rng: np.random.Generator) -> np.ndarray:
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


@st.composite
def feature_maps(draw: Any) -> Any:
    """A public feature map: of a table, of pictures or of random frequencies; and rows for it."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    other = draw(st.sampled_from([None, PictureFeatures(8, 8, n_channels=3, n_components=24), FourierFeatures(5, 12)]))
    if other is not None:
        rows = rng.uniform(-1, 1, size=(40, other.n_inputs))
        rows[0] = 0.25  # a picture without contrast
        return other, rows
    drawn = draw(
        st.lists(st.tuples(st.sampled_from(list(KINDS)), st.booleans(), st.booleans()), min_size=1, max_size=5)
    )
    columns = [KINDS[kind](f"c{k}", "indicate" if missing else "refuse") for k, (kind, missing, _) in enumerate(drawn)]
    logs = frozenset(
        each.name for each, (_, _, log) in zip(columns, drawn, strict=True) if log and each.kind == "number"
    )
    schema = Schema(tuple(columns))
    if draw(st.booleans()):
        features: Any = LevelFeatures(make_workload(schema, log_scaled=logs), schema)
    else:
        features = TableFeatures(schema, logs, draw(st.sampled_from([0, 3, 5])))
    return features, draw_encoded(schema, 40, rng)


def sum_model(features: Any, n_classes: int, seed: int, bounds: tuple[float, float]) -> tuple[SumModel, Model]:
    rng, width = np.random.default_rng(seed), n_classes if n_classes > 2 else 1
    logistic = n_classes > 0 and seed % 2 == 0
    weights = rng.normal(size=(features.n_features - 1, width))
    shares = rng.dirichlet(np.ones(n_classes)) if n_classes else np.ones(1)
    fitted = SumModel(weights, rng.normal(size=width), n_classes, shares, is_logistic=logistic)
    spec = ModelSpec(features.n_inputs, n_classes, features, None if n_classes else bounds)
    return fitted, fitted.to_model(spec)


@settings(max_examples=12, deadline=None)
@given(feature_maps(), st.sampled_from([0, 2, 3]), st.integers(0, 99))
def test_a_model_of_sums_predicts_what_the_fitted_one_does(drawn: Any, n_classes: int, seed: int) -> None:
    features, rows = drawn
    fitted, model = sum_model(features, n_classes, seed, (2.0, 6.0))
    predicted, shares = model.predict_with_probabilities(rows)
    phi = features.apply(rows)
    assert (shares is not None) == fitted.is_logistic
    if shares is not None:
        scores = fitted.scores(phi)
        expected = softmax(np.hstack([0 * scores, scores]) if n_classes == 2 else scores, axis=1)
        np.testing.assert_allclose(shares, expected, atol=1e-12)
    if n_classes:
        assert np.array_equal(predicted, fitted.predict(phi))
    else:
        np.testing.assert_allclose(predicted, 4 + 2 * fitted.predict(phi), atol=1e-12)


def test_functions_are_what_they_say() -> None:
    rows, W, b = np.array([[1.0, 2.0]]), np.array([[1.0], [3.0]]), np.array([0.5])
    assert LinearFunction(W, b).evaluate(rows) == 7.5
    expected = np.cos(1 * 0.1 + 2 * 0.2 + 0.3) * 2 + 0.5
    frequencies, offsets = np.array([[0.1], [0.2]]), np.array([0.3])
    assert FourierFunction(frequencies, offsets, np.array([[2.0]]), b).evaluate(rows) == pytest.approx(expected)
