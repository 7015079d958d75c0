import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.spatial.distance import pdist

from mooring import RigidMap
from mooring.geometry import orthogonality_defect, polar_factor, sample_orthogonal

seeds = st.integers(0, 2**32 - 1)
dimensions = st.integers(1, 6)
numbers = st.floats(-1e3, 1e3, allow_nan=False, allow_infinity=False)


def maps(dimension: int, seed: int, n_maps: int = 1) -> list[RigidMap]:
    rng = np.random.default_rng(seed)
    return [RigidMap.sample(dimension, rng=rng) for _ in range(n_maps)]


@st.composite
def rows_and_seed(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    shape = draw(st.tuples(st.integers(1, 8), dimensions))
    return draw(hnp.arrays(np.float64, shape, elements=numbers)), draw(seeds)


@given(rows_and_seed())
def test_distances_are_preserved_and_invert_and_apply_undo_each_other(case: tuple[np.ndarray, int]) -> None:
    rows, seed = case
    (secret,) = maps(rows.shape[1], seed)
    assert np.allclose(pdist(secret.apply(rows)), pdist(rows), rtol=1e-9, atol=1e-9)
    assert np.allclose(secret.invert(secret.apply(rows)), rows, rtol=0, atol=1e-9)
    assert np.allclose(secret.apply(secret.invert(rows)), rows, rtol=0, atol=1e-9)


@given(rows_and_seed())
def test_compose_agrees_with_apply_and_is_associative(case: tuple[np.ndarray, int]) -> None:
    rows, seed = case
    first, second, third = maps(rows.shape[1], seed, 3)
    expected = third.apply(second.apply(first.apply(rows)))
    assert np.allclose(first.compose(second).compose(third).apply(rows), expected, rtol=0, atol=1e-9)
    assert np.allclose(first.compose(second.compose(third)).apply(rows), expected, rtol=0, atol=1e-9)


@given(dimensions, seeds)
def test_a_map_and_its_inverse_compose_to_the_identity(dimension: int, seed: int) -> None:
    (secret,) = maps(dimension, seed)
    for nothing in (secret.compose(secret.inverse()), secret.inverse().compose(secret)):
        assert np.allclose(nothing.orthogonal, np.eye(dimension), atol=1e-12)
        assert np.allclose(nothing.translation, 0.0, atol=1e-12)


@given(dimensions, seeds, st.integers(0, 6), st.floats(-6, 6))
def test_the_polar_factor_is_orthogonal_and_nearest(dimension: int, seed: int, rank: int, log_scale: float) -> None:
    """No nearer than a hundred random orthogonal matrices, nor than a small turn away; rank-poor input included."""
    rng = np.random.default_rng(seed)
    rank = min(rank, dimension)
    matrix = 10**log_scale * rng.standard_normal((dimension, rank)) @ rng.standard_normal((rank, dimension))
    factor = polar_factor(matrix)
    assert orthogonality_defect(factor) < 1e-12
    distance = np.linalg.norm(factor - matrix)
    turned = factor @ polar_factor(np.eye(dimension) + 0.05 * rng.standard_normal((20, dimension, dimension)))
    for rivals in (sample_orthogonal(dimension, rng=rng, batch_shape=(100,)), turned):
        assert distance <= np.min(np.linalg.norm(rivals - matrix, axis=(1, 2))) * (1 + 1e-12)


@given(dimensions, seeds)
def test_the_polar_factor_turns_with_its_matrix(dimension: int, seed: int) -> None:
    """Π(P M Q) = P Π(M) Q for orthogonal P and Q, and an orthogonal matrix is its own factor."""
    rng = np.random.default_rng(seed)
    P, Q = sample_orthogonal(dimension, rng=rng, batch_shape=(2,))
    matrix = P @ np.diag(rng.uniform(0.5, 2.0, dimension)) @ sample_orthogonal(dimension, rng=rng)
    assert np.allclose(polar_factor(P @ matrix @ Q), P @ polar_factor(matrix) @ Q, atol=1e-12)
    assert np.allclose(polar_factor(P), P, atol=1e-13)
