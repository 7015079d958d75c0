"""Feature maps, exact sums and the promise on them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtr

from mooring.errors import InputError
from mooring.mechanisms.sums.features.columns import TableFeatures
from mooring.mechanisms.sums.guarantee import SumNoise, SumPrivacy, calibrate_sums, round_up
from mooring.mechanisms.sums.settings import SumSettings
from mooring.mechanisms.sums.sums import (
    Outcome,
    SumAccumulator,
    SumLayout,
    count_rows_of_persons,
    quantise,
    rank_rows_of_persons,
)
from mooring.tables.schema import Column, Schema
from tests.mechanisms.sums.test_secret_sharing import words_of
from tests.raising import raising

SCHEMA = Schema(
    (
        Column("age", "number", 0, 100, missing="indicate"),
        Column("income", "number", 0, 1e6),
        Column("sex", "category", categories=("f", "m")),
        Column("ward", "category", categories=("a", "b", "c"), missing="fill"),
    )
)
FEATURES = TableFeatures(SCHEMA, log_scaled=frozenset({"income"}))


def promised_epsilon(layout: SumLayout, noise: SumNoise, privacy: SumPrivacy) -> float:
    """The exact ε at the promise's δ of Gaussian noise, for m √(B⁴/σ_S² + R² Y²/σ_T²) of the least honest ones."""
    honest, m = privacy.quorum - privacy.n_colluders, privacy.rows_per_person
    on_T = layout.outcome_resolution**2 * layout.outcome.largest_norm_squared / noise.on_outcomes
    squared = m**2 * (layout.resolution**4 / noise.on_products + on_T) / honest
    loss = GaussianPrivacyLoss(1 / math.sqrt(squared))
    return float(brentq(lambda epsilon: loss.get_delta_for_epsilon(epsilon) - privacy.delta, 1e-3, 30))


@st.composite
def encoded_rows(draw: st.DrawFn) -> np.ndarray:
    numbers = st.floats(-1, 1)
    age, income, missing = draw(numbers), draw(numbers), draw(st.booleans())
    sex, ward = draw(st.integers(0, 1)), draw(st.integers(0, 3))
    return np.array([[age, float(missing), income, *np.eye(2)[sex], *np.eye(4)[ward][:3]]])


@given(encoded_rows())
def test_features_have_norm_one_and_pass_as_integers(row: np.ndarray) -> None:
    phi = FEATURES.apply(row)
    assert phi.shape == (1, FEATURES.n_features)
    assert float(np.sum(phi**2)) == pytest.approx(1, abs=1e-12)
    assert phi[0, -1] == pytest.approx(math.sqrt(0.2))
    quantise(phi, 2**12)


def test_hats_make_piecewise_linear_curves_and_levels_are_told_apart() -> None:
    """Before the scaling, any curve through the centres of hats is linear in the features, and no feature is redundant."""
    x = np.linspace(-1, 1, 41)
    rows = np.column_stack([x, 0 * x, x, 0 * x + 1, 0 * x, 0 * x, 0 * x + 1, 0 * x])
    *curves, flag = next_parts(rows, 0)
    assert np.linalg.matrix_rank(np.column_stack([*curves, np.ones(41)])) == len(curves) + 1 == 5
    for target in (x, np.interp(x, np.linspace(-1, 1, 5), [4, 1, 0, 1, 4])):
        fitted = np.linalg.lstsq(np.column_stack([*curves, np.ones(41)]), target, rcond=None)
        assert fitted[1] == pytest.approx(0, abs=1e-20)
    assert (flag == -0.5).all()
    logs = next_parts(rows, 1)
    z = 2 * np.log1p(9999 * (x + 1) / 2) / np.log(1e4) - 1
    assert np.linalg.lstsq(np.column_stack([*logs, np.ones(41)]), z, rcond=None)[1] == pytest.approx(0, abs=1e-20)
    assert next_parts(rows, 2)[0].tolist() == [-0.5] * 41
    levels = np.array([part[0] for part in next_parts(rows, 3)])
    assert (levels**2).sum() == pytest.approx(2 / 3)


@given(st.floats(-1, 1), st.floats(-1, 1), st.sampled_from([3, 5, 8]))
def test_features_keep_the_inner_products_of_numbers_with_their_centred_hats(x: float, z: float, n_hats: int) -> None:
    centres, step = np.linspace(-1, 1, n_hats), 2 / (n_hats - 1)

    def redundant(number: float) -> np.ndarray:
        hats = np.clip(1 - np.abs(number - centres) / step, 0, 1)
        means = np.where(np.abs(centres) == 1, step / 4, step / 2)  # over the range, whose length is two
        return np.array([number, *(hats - means)])

    schema = Schema((Column("a", "number", -1, 1),))
    u = np.zeros((1, n_hats - 1, 2))
    TableFeatures(schema, n_hats=n_hats)._write(schema.columns[0], np.array([[[x, z]]]), u)
    assert u[0, :, 0] @ u[0, :, 1] == pytest.approx(redundant(x) @ redundant(z), abs=1e-9)


def next_parts(rows: np.ndarray, column: int) -> list[np.ndarray]:
    starts = np.cumsum([0, *(column.width for column in SCHEMA.columns)])
    declared, phi = SCHEMA.columns[column], np.empty((1, FEATURES._width(SCHEMA.columns[column]), len(rows)))
    FEATURES._write(declared, rows.T[None, starts[column] : starts[column + 1]], phi)
    return list(phi[0])


@pytest.mark.parametrize("n_hats", [0, 5])
def test_features_of_a_column_do_not_depend_on_the_columns_beside_it(n_hats: int) -> None:
    """Columns of one form that stand side by side are written at once."""
    rng = np.random.default_rng(0)
    alike = [replace(column, name=f"{column.name} {k}") for column in SCHEMA.columns for k in "123"]
    values = {column.name: rng.uniform(-1, 1, size=(9, column.width)) for column in alike}

    def phi_of(columns: list[Column]) -> dict[str, list[float]]:
        features = TableFeatures(Schema(tuple(columns)), frozenset({"income 1", "income 3"}), n_hats)
        phi = features.apply(np.hstack([values[column.name] for column in columns]))
        names = [f"{column.name} {k}" for column in columns for k in range(features._width(column))]
        return dict(zip([*names, "constant"], phi.T.round(12).tolist(), strict=True))

    assert phi_of(alike) == phi_of([alike[k] for k in rng.permutation(len(alike))])


@pytest.mark.parametrize(
    "options", [{"log_scaled": frozenset({"sex"})}, {"constant_share": 0.0}, {"constant_share": 1.0}, {"n_hats": 2}]
)
def test_feature_maps_that_cannot_be_are_refused(options: dict) -> None:
    with raising(InputError, next(iter(options))):
        TableFeatures(SCHEMA, **options)
    with raising(InputError, "rows"):
        FEATURES.apply(np.zeros((2, 3)))


@pytest.mark.parametrize("n_classes", [0, 2, 5])
def test_sums_are_exact_whatever_the_blocks(n_classes: int) -> None:
    rng, layout = np.random.default_rng(0), SumLayout(6, Outcome(n_classes))
    phi = rng.standard_normal((300, 6))
    phi /= np.linalg.norm(phi, axis=1, keepdims=True)
    labels = rng.uniform(-1, 1, 300) if n_classes == 0 else rng.integers(0, n_classes, 300)
    whole, parts = SumAccumulator(layout), SumAccumulator(layout)
    whole.add(phi, labels)
    for start in range(0, 300, 7):
        parts.add(phi[start : start + 7], labels[start : start + 7])
    q = [[math.trunc(x * 2**12) for x in row] for row in phi.tolist()]
    y = layout.outcome.encode(labels).tolist()
    S = [sum(a[i] * a[j] for a in q) for i in range(6) for j in range(i, 6)]
    factor = layout.outcome_resolution // layout.resolution
    T = [
        factor * sum(a[i] * b[k] for a, b in zip(q, y, strict=True))
        for i in range(6)
        for k in range(layout.outcome.width)
    ]
    assert whole.vector.tolist() == parts.vector.tolist() == S + T
    products, outcomes = layout.unpack(whole.vector)
    assert np.allclose(products, phi.T @ phi, atol=300 * 2.0**-11)
    assert np.allclose(products, products.T)
    codes = {0: lambda: labels[:, None], 2: lambda: 2 * labels[:, None] - 1, 5: lambda: np.eye(5)[labels] - 0.2}
    assert np.allclose(outcomes, phi.T @ codes[n_classes](), atol=300 * 2.0**-11)


@pytest.mark.parametrize("n_classes", [0, 2, 5])
def test_one_row_moves_the_sums_by_no_more_than_the_promise_says(n_classes: int) -> None:
    """In integers: ‖q qᵀ‖ ≤ B², ‖F q yᵀ‖ ≤ RY, and entries above the diagonal count twice."""
    layout, rng = SumLayout(4, Outcome(n_classes), resolution=64), np.random.default_rng(3)
    for k in range(200):
        phi = rng.standard_normal((1, 4)) if k else np.array([[1.0, 0, 0, 0]])
        phi /= np.linalg.norm(phi)
        sums = SumAccumulator(layout)
        sums.add(phi, np.array([rng.choice([-1.0, 1.0]) if n_classes == 0 else rng.integers(n_classes)]))
        S, T = sums.vector[:10], sums.vector[10:]
        doubled = np.where(np.equal(*np.triu_indices(4)), 1, 2)
        assert int((doubled * S**2).sum()) <= 64**4
        assert (
            sum(number**2 for number in T.tolist())
            <= layout.outcome_resolution**2 * layout.outcome.largest_norm_squared
        )
    assert max(int((layout.outcome.encode(np.array([c])) ** 2).sum()) for c in range(max(2, n_classes))) == (
        layout.outcome.largest_norm_squared
    )


def sum_of_means(layout: SumLayout, phi: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """What means over the rows of persons would add to T without rounding of features, after as many zeros as S has."""
    T = layout.outcome_resolution * (phi / counts[:, None]).T @ layout.outcome.encode(labels)
    return np.concatenate([np.zeros(layout.n_products), T.reshape(-1)])


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 2**32 - 1), st.sampled_from([0, 2, 3]))
def test_the_mean_of_a_person_moves_the_sums_no_more_than_a_row(rows: list[int], seed: int, n_classes: int) -> None:
    """Whatever blocks its rows come in; and it is the mean of what its rows would add, up to rounding."""
    layout, rng = SumLayout(4, Outcome(n_classes), resolution=256), np.random.default_rng(seed)
    persons = rng.permutation(np.repeat(np.arange(len(rows)) + 0.5, rows))
    phi = rng.standard_normal((len(persons), 4))
    phi /= np.linalg.norm(phi, axis=1, keepdims=True)
    labels = rng.uniform(-1, 1, len(persons)) if n_classes == 0 else rng.integers(0, n_classes, len(persons))
    counts, sums = count_rows_of_persons(persons), SumAccumulator(layout)
    for block in np.array_split(np.arange(len(persons)), 2):
        sums.add(phi[block], labels[block], counts[block])
    whole, expected = np.zeros(layout.size, dtype=np.int64), np.zeros(layout.size)
    for person in np.unique(persons):
        is_predicted, alone, plain = persons == person, SumAccumulator(layout), SumAccumulator(layout)
        alone.add(phi[is_predicted], labels[is_predicted], counts[is_predicted])
        plain.add(phi[is_predicted], labels[is_predicted])
        S, T = alone.vector[: layout.n_products], alone.vector[layout.n_products :]
        doubled = np.where(np.equal(*np.triu_indices(4)), 1, 2)
        assert int((doubled * S**2).sum()) <= 256**4
        assert (
            sum(number**2 for number in T.tolist())
            <= layout.outcome_resolution**2 * layout.outcome.largest_norm_squared
        )
        whole += alone.vector
        expected += plain.vector / is_predicted.sum()
    assert (sums.vector == whole).all()
    units = np.full(layout.size, layout.resolution**2)
    units[layout.n_products :] = layout.outcome_resolution * math.isqrt(layout.outcome.largest_norm_squared)
    assert (np.abs(whole - expected) / units).max() < 10 / 256 * len(persons)
    lost = np.abs(whole - sum_of_means(layout, phi, labels, counts))[layout.n_products :]
    assert lost.max() <= len(persons) * math.isqrt(layout.outcome.largest_norm_squared)  # a unit of T a row


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=20), st.integers(1, 3))
def test_which_rows_of_a_person_are_used_depends_on_that_person_alone(rows: list[tuple[int, int]], most: int) -> None:
    persons = np.array([person for person, _ in rows], dtype=np.float64)
    keys = np.array([key for _, key in rows], dtype=np.uint64)
    used = rank_rows_of_persons(persons, keys) < most
    for person in np.unique(persons):
        his = persons == person
        assert used[his].sum() == min(most, his.sum())
        assert keys[his & used].max() <= keys[his & ~used].min(initial=6)
        alone = rank_rows_of_persons(persons[his], keys[his]) < most
        assert (used[his] == alone).all()
    with raising(InputError, "divisors"):
        SumAccumulator(SumLayout(2, Outcome(2))).add(np.eye(2), np.zeros(2), np.array([1, 0]))


def test_rows_and_labels_beyond_the_bounds_are_refused() -> None:
    sums = SumAccumulator(SumLayout(2, Outcome(2)))
    with raising(InputError, "features", problem="norm above one"):
        sums.add(np.array([[0.8, 0.61]]), np.array([0]))
    with raising(InputError, "features", got="NaN"):
        sums.add(np.array([[0.8, np.nan]]), np.array([0]))
    with raising(InputError, "features"):
        sums.add(np.array([[0.8, 0.6]]), np.array([0, 1]))
    for labels in ([2], [-1], [0.5]):
        with raising(InputError, "labels"):
            sums.add(np.array([[0.8, 0.6]]), np.array(labels))
    with raising(InputError, "labels"):
        SumAccumulator(SumLayout(2, Outcome(0))).add(np.array([[0.8, 0.6]]), np.array([1.01]))
    assert (sums.vector == 0).all()
    layout = SumLayout(1, Outcome(2), resolution=2**29)
    coarse, most = SumAccumulator(layout), layout.most_rows
    coarse.add(np.ones((most, 1)), np.zeros(most))
    with raising(InputError, "rows"):
        coarse.add(np.ones((1, 1)), np.zeros(1))
    with raising(InputError, "n_features"):
        SumLayout(5000, Outcome(2))


@pytest.mark.parametrize(("epsilon", "multiplier"), [(8, 0.600), (4, 1.081), (2, 1.994), (1, 3.731)])
@pytest.mark.parametrize(("n_classes", "persons"), [(2, 1), (10, 1), (0, 3)])
def test_the_noise_is_that_of_the_formula(epsilon: float, multiplier: float, n_classes: int, persons: int) -> None:
    """ρ = ½ m² (B⁴/σ_S² + R²Y²/σ_T²), split by a, on quorum − c contributions."""
    layout = SumLayout(20, Outcome(n_classes))
    privacy = SumPrivacy(epsilon, 1e-5, quorum=6, n_colluders=2, rows_per_person=persons, product_share=0.25)
    noise = calibrate_sums(layout, privacy)
    B, R, Y2 = layout.resolution, layout.outcome_resolution, layout.outcome.largest_norm_squared
    rho_S, rho_T = persons**2 * B**4 / (8 * noise.on_products), persons**2 * R**2 * Y2 / (8 * noise.on_outcomes)
    assert rho_S / (rho_S + rho_T) == pytest.approx(0.25, rel=1e-6)
    assert 1 / math.sqrt(2 * (rho_S + rho_T)) == pytest.approx(multiplier, abs=5e-4)
    assert promised_epsilon(layout, noise, privacy) == pytest.approx(epsilon, rel=1e-5)
    assert promised_epsilon(layout, noise, privacy) <= epsilon * (1 + 1e-6)
    half = SumNoise(noise.on_products // 2, noise.on_outcomes // 2)
    assert promised_epsilon(layout, half, privacy) > 1.3 * epsilon


@pytest.mark.parametrize("sigma", [4.0, 5.3, 20.0])
def test_a_discrete_gaussian_is_as_close_to_a_rounded_one_as_the_accounting_says(sigma: float) -> None:
    k = np.arange(-400, 401)
    discrete = np.exp(-(k**2) / (2 * sigma**2))
    rounded = ndtr((k + 0.5) / sigma) - ndtr((k - 0.5) / sigma)
    distance = np.abs(discrete / discrete.sum() - rounded).sum() / 2
    assert 0.3 / (24 * sigma**2) < distance < 1 / (24 * sigma**2)


@pytest.mark.parametrize("epsilon", [15.0, 30.0])  # at 15, (1 + e^ε) τ is more than a hundredth of δ
def test_a_guarantee_beyond_the_exact_accounting_is_that_of_zcdp(epsilon: float) -> None:
    layout, privacy = SumLayout(20, Outcome(2)), SumPrivacy(epsilon, 1e-5, quorum=2, n_colluders=1)
    noise = calibrate_sums(layout, privacy)
    on_T = layout.outcome_resolution**2 / noise.on_outcomes
    rho = (layout.resolution**4 / noise.on_products + on_T) / 2
    assert rho + 2 * math.sqrt(-rho * math.log(1e-5)) == pytest.approx(epsilon, rel=1e-5)


def test_noise_is_drawn_with_these_variances() -> None:
    """60 vectors: each mean square within 4 standard errors, which tells σ from σ² and S's two variances."""
    layout, noise, words = SumLayout(12, Outcome(3)), SumNoise(10_000, 400), words_of(4)
    drawn = np.array([noise.draw(layout, words) for _ in range(60)]).astype(float)
    rows, columns = np.triu_indices(12)
    for part, variance in (
        (drawn[:, :78][:, rows == columns], 10_000),
        (drawn[:, :78][:, rows != columns], 5_000),
        (drawn[:, 78:], 400),
    ):
        assert np.mean(part**2) == pytest.approx(variance, rel=4 * math.sqrt(2 / part.size))
    assert noise.scales(layout, 9) == pytest.approx((300 / 2**24, 60 / layout.outcome_resolution / 3))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("epsilon", {"epsilon": 0.0}),
        ("epsilon", {"epsilon": math.inf}),
        ("delta", {"delta": 0.0}),
        ("quorum", {"n_colluders": 5}),
        ("rows_per_person", {"rows_per_person": 0}),
        ("product_share", {"product_share": 1.0}),
    ],
)
def test_promises_that_cannot_be_kept_are_refused(name: str, options: dict) -> None:
    good = {"epsilon": 1.0, "delta": 1e-5, "quorum": 5, "n_colluders": 1}
    with raising(InputError, name):
        SumPrivacy(**good | options)
    with raising(InputError, "resolution"):
        calibrate_sums(SumLayout(3, Outcome(2), resolution=8), SumPrivacy(8, 1e-5, quorum=300, n_colluders=1))


def test_sums_of_a_mean_over_a_persons_rows_count_it_as_one_row() -> None:
    """S of rows that n share is divided by n, T as well: together they are those of one row."""
    layout = SumLayout(2, Outcome(2), resolution=2**10)
    phi, once, shared = np.array([[0.6, 0.8]]), SumAccumulator(layout), SumAccumulator(layout)
    once.add(phi, np.array([1]))
    shared.add(np.repeat(phi, 4, axis=0), np.ones(4, dtype=np.int64), np.full(4, 4))
    np.testing.assert_allclose(shared.vector, once.vector, rtol=5e-3)
    mean = SumSettings(2.0, person="who", rows_per_person="mean")
    assert (
        mean.privacy(quorum=4).rows_per_person,
        replace(mean, rows_per_person=3).privacy(quorum=4).rows_per_person,
    ) == (1, 3)


@pytest.mark.parametrize(
    ("value", "written"), [(2.7183, "2.72"), (2.7101, "2.72"), (0.01231, "0.0124"), (27.11, "27.2"), (1234.5, "1,235")]
)
def test_a_bound_is_never_written_lower_than_it_is(value: float, written: str) -> None:
    assert round_up(value) == written
