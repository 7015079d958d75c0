import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mooring import clip_rows, gaussian_projection, make_anchor, public_svd_projection

seeds = st.integers(0, 2**32 - 1)
rows_of_any_length = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.floats(-1e100, 1e100)
)


@given(rows_of_any_length, st.floats(1e-6, 1e6))
def test_clipped_rows_never_exceed_the_norm_and_keep_their_direction(rows: np.ndarray, clipping_norm: float) -> None:
    clipped = clip_rows(rows, clipping_norm)
    before, after = np.linalg.norm(rows, axis=1), np.linalg.norm(clipped, axis=1)
    assert np.all(after <= clipping_norm * (1 + 1e-14))
    assert np.allclose(after, np.minimum(before, clipping_norm), rtol=1e-12, atol=0)
    assert np.array_equal(np.sign(clipped[np.abs(clipped) > 0]), np.sign(rows[np.abs(clipped) > 0]))
    short = before <= clipping_norm * (1 - 1e-12)
    assert np.array_equal(clipped[short], rows[short])
    assert np.allclose(clip_rows(clipped, clipping_norm), clipped, rtol=1e-14, atol=0)  # twice is once


@given(st.integers(1, 8), st.integers(1, 8), seeds)
def test_projections_undo_themselves_on_their_column_space(n_features: int, n_components: int, seed: int) -> None:
    """Rows F^† c decode what they encode, whatever c; everything else loses what is at right angles to them."""
    n_features = max(n_features, n_components)
    rng = np.random.default_rng(seed)
    for projection in (
        gaussian_projection(n_features, n_components, rng=rng),
        public_svd_projection(rng.standard_normal((3 * n_features, n_features)), n_components, rng=rng),
    ):
        scale = np.linalg.cond(projection.matrix)
        inside = projection.decode(rng.standard_normal((5, n_components)))
        assert np.allclose(projection.decode(projection.encode(inside)), inside, rtol=1e-9 * scale, atol=1e-12 * scale)
        rows = rng.standard_normal((5, n_features))
        left_over = rows - projection.decode(projection.encode(rows))
        assert np.allclose(projection.encode(left_over), 0.0, atol=1e-11 * scale)


@given(st.integers(1, 6), st.integers(1, 30), seeds)
def test_anchors_of_every_shape_are_centred_and_orthonormal(n_components: int, extra: int, seed: int) -> None:
    A = make_anchor(n_components + extra, n_components, rng=np.random.default_rng(seed))
    assert A.shape == (n_components + extra, n_components)
    assert np.max(np.abs(A.sum(axis=0))) < 1e-13
    assert np.max(np.abs(A.T @ A - np.eye(n_components))) < 1e-13
