from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring import Projection, gaussian_projection, no_projection, public_svd_projection
from mooring.mechanisms.rotation.projection import _block_reader

Refused = Callable[..., None]
READ_ONCE = iter([np.eye(9, 5)])


@pytest.fixture
def public_rows() -> np.ndarray:
    """Rows off the origin whose first four singular values stand well above the rest."""
    rng = np.random.default_rng(1)
    low_rank = rng.standard_normal((200, 4)) @ np.diag([40.0, 20.0, 10.0, 5.0]) @ rng.standard_normal((4, 30))
    return low_rank + 0.1 * rng.standard_normal((200, 30)) + 1.0


@pytest.fixture(params=["none", "gaussian", "public-svd"])
def projection(request: pytest.FixtureRequest, public_rows: np.ndarray, rng: np.random.Generator) -> Projection:
    match request.param:
        case "none":
            return no_projection(30)
        case "gaussian":
            return gaussian_projection(30, 6, rng=rng)
        case _:
            return public_svd_projection(public_rows, 4, rng=rng)


def projector(projection: Projection) -> np.ndarray:
    return projection.matrix @ projection.decoder


def test_no_projection_shares_the_rows_as_they_are(rng: np.random.Generator) -> None:
    projection, rows = no_projection(5), rng.standard_normal((7, 5))
    assert projection.kind == "none"
    assert np.array_equal(projection.encode(rows), rows)
    assert np.array_equal(projection.decode(rows), rows)


def test_a_gaussian_projection_is_onto_a_uniformly_random_subspace() -> None:
    """Orthonormal; over 400 draws of 3 of 8 directions, the share of each axis that is kept is 3/8 within 4.5 spreads."""
    projections = [gaussian_projection(8, 3, rng=np.random.default_rng(seed)) for seed in range(400)]
    assert {(each.kind, each.n_features, each.n_components) for each in projections} == {("gaussian", 8, 3)}
    for public in projections:
        public.require_orthonormal()
        np.testing.assert_allclose(public.decoder, public.matrix.T)
    kept = np.array([(projection.matrix**2).sum(axis=1) for projection in projections])
    assert np.abs(kept.mean(axis=0) - 3 / 8).max() < 4.5 * kept.std(axis=0).max() / np.sqrt(400)


def test_a_projection_with_other_columns_is_refused_where_noise_has_a_scale(
    rng: np.random.Generator, refused: Callable[..., None]
) -> None:
    F = rng.standard_normal((5, 2))
    stretched = Projection(F, np.linalg.pinv(F), "gaussian")
    refused(stretched.require_orthonormal, "projection", "orthonormal", "off by")


def test_a_public_svd_finds_the_top_singular_vectors(public_rows: np.ndarray, rng: np.random.Generator) -> None:
    """The same subspace as the full decomposition's, of the uncentred rows."""
    projection = public_svd_projection(public_rows, 4, rng=rng)
    V = np.linalg.svd(public_rows, full_matrices=False)[2][:4].T
    assert projection.kind == "public-svd"
    assert np.allclose(projector(projection), V @ V.T, atol=1e-8)
    assert np.allclose(projection.matrix.T @ projection.matrix, np.eye(4), atol=1e-14)


def test_each_pass_of_the_public_svd_is_one_step_of_subspace_iteration(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((40, 12))
    Q = np.linalg.qr(np.random.default_rng(1).standard_normal((12, 4)))[0]
    for n_passes in (1, 2, 3):
        projection = public_svd_projection(rows, 3, rng=np.random.default_rng(1), n_passes=n_passes, n_oversamples=1)
        V = Q @ np.linalg.svd(rows @ Q)[2][:3].T
        assert np.allclose(projector(projection), V @ V.T, atol=1e-10)
        Q = np.linalg.qr(rows.T @ rows @ Q)[0]


def test_the_public_svd_reads_the_data_four_times_for_sixteen_more_directions_unless_it_is_asked_otherwise() -> None:
    rows = np.random.default_rng(0).standard_normal((60, 40))
    passes = [0]

    def blocks() -> Iterator[np.ndarray]:
        passes[0] += 1
        yield rows

    projection = public_svd_projection(blocks, 3, rng=np.random.default_rng(1))
    assert passes == [2 + 4]  # two to check the data
    Q = np.linalg.qr(np.random.default_rng(1).standard_normal((40, 3 + 16)))[0]
    for _ in range(3):
        Q = np.linalg.qr(rows.T @ rows @ Q)[0]
    V = Q @ np.linalg.svd(rows @ Q)[2][:3].T
    assert np.allclose(projector(projection), V @ V.T, atol=1e-10)


def test_the_public_svd_does_not_centre(rng: np.random.Generator) -> None:
    """Rows far from the origin, with spread in another direction: the uncentred top direction is that of the mean."""
    rows = np.array([10.0, 0.0, 0.0]) + rng.standard_normal((50, 1)) * np.array([0.0, 1.0, 0.0])
    assert abs(public_svd_projection(rows, 1, rng=rng).matrix[0, 0]) > 0.99


def test_arrays_memory_maps_and_blocks_give_the_same_subspace(public_rows: np.ndarray, tmp_path: Path) -> None:
    stored = np.memmap(tmp_path / "rows", dtype=np.float64, mode="w+", shape=public_rows.shape)
    stored[:] = public_rows

    def blocks() -> Iterator[np.ndarray]:
        for start in range(0, 200, 33):
            yield public_rows[start : start + 33]

    def rows_one_by_one() -> Iterator[np.ndarray]:
        yield from public_rows

    expected = projector(public_svd_projection(public_rows, 4, rng=np.random.default_rng(2)))
    for source in (stored, blocks, rows_one_by_one, public_rows.tolist()):
        assert np.allclose(
            projector(public_svd_projection(source, 4, rng=np.random.default_rng(2))), expected, atol=1e-9
        )


def test_a_large_array_is_read_in_blocks() -> None:
    sizes = [block.shape for block in _block_reader(np.broadcast_to(0.0, (2**22 + 5, 8)))()]
    assert sizes == [(2**21, 8), (2**21, 8), (5, 8)]


def test_single_precision_integers_and_as_many_components_as_features_are_welcome(public_rows: np.ndarray) -> None:
    expected = projector(public_svd_projection(public_rows, 4, rng=np.random.default_rng(2)))
    single = public_svd_projection(public_rows.astype(np.float32), 4, rng=np.random.default_rng(2))
    assert single.matrix.dtype == np.float64
    assert np.allclose(projector(single), expected, atol=1e-5)
    counts = np.arange(12).reshape(4, 3) ** 2
    assert public_svd_projection(counts, 2, rng=np.random.default_rng(2)).n_components == 2
    whole = public_svd_projection(public_rows, 30, rng=np.random.default_rng(2))
    assert np.allclose(whole.decode(whole.encode(public_rows)), public_rows, atol=1e-9)


def test_decode_is_the_pseudoinverse_and_encode_undoes_it(projection: Projection, rng: np.random.Generator) -> None:
    projected = rng.standard_normal((3, projection.n_components))
    assert np.allclose(projection.decode(projected), projected @ np.linalg.pinv(projection.matrix), atol=1e-10)
    assert np.allclose(projection.encode(projection.decode(projected)), projected, atol=1e-10)


def test_encoding_and_decoding_is_the_orthogonal_projector_of_batches_too(projection: Projection) -> None:
    P = projection.decode(projection.encode(np.eye(30)))
    assert np.allclose(P, P.T, atol=1e-10)
    assert np.allclose(P @ P, P, atol=1e-10)
    assert np.trace(P) == pytest.approx(projection.n_components)
    assert np.allclose(P @ projection.matrix, projection.matrix, atol=1e-10)
    assert projection.encode(np.ones((2, 5, 30))).shape == (2, 5, projection.n_components)
    assert projection.decode(projection.encode(np.ones((2, 5, 30)))).shape == (2, 5, 30)


@pytest.mark.parametrize("shape", [(30,), (4, 29)])
def test_rows_of_another_width_are_refused(shape: tuple[int, ...], refused: Refused, rng: np.random.Generator) -> None:
    projection = gaussian_projection(30, 6, rng=rng)
    refused(lambda: projection.encode(np.zeros(shape)), "rows", "(..., m, 30)", f"shape {shape}")
    refused(lambda: projection.decode(np.zeros((4, 30))), "rows", "(..., m, 6)", "shape (4, 30)")


@pytest.mark.parametrize("n_components", [-1, 0, 6])
def test_more_components_than_features_or_none_of_either_are_refused(
    n_components: int, refused: Refused, rng: np.random.Generator
) -> None:
    expectation = {"what": "n_components", "expected": "between 1 and n_features = 5", "got": str(n_components)}
    refused(lambda: gaussian_projection(5, n_components, rng=rng), **expectation)
    refused(lambda: public_svd_projection(np.ones((9, 5)), n_components, rng=rng), **expectation)
    for call in (lambda: no_projection(0), lambda: gaussian_projection(0, 1, rng=rng)):
        refused(call, "n_features", "at least 1", "0")


@pytest.mark.parametrize(
    ("rows", "expected", "got"),
    [
        (np.eye(5)[:2], "at least n_components = 3 rows", "2 rows"),
        (np.zeros((4, 5, 5)), "a matrix of rows by features", "shape (4, 5, 5)"),
        *(
            (np.tile(np.eye(5)[:rank] if rank else np.zeros((1, 5)), (20, 1)), "rank 3", f"rank {rank}")
            for rank in range(3)
        ),
        *((np.where(np.eye(9, 5) > 0, value, 1.0), "finite", "NaN or Inf") for value in (np.nan, np.inf)),
        (lambda: iter([np.ones((4, 5)), np.ones((4, 6))]), "blocks of one width", "widths [5, 6]"),
        (lambda: iter([]), "blocks of one width", "no blocks"),
        (lambda: iter([np.ones((4, 6, 5))]), "", ""),
        (lambda: READ_ONCE, "", ""),
    ],
)
def test_public_rows_that_tell_no_subspace_are_refused(
    rows: Any, expected: str, got: str, refused: Refused, rng: np.random.Generator
) -> None:
    refused(lambda: public_svd_projection(rows, 3, rng=rng), "public_rows", expected, got)


def test_public_rows_of_too_low_a_rank_to_ten_digits_are_refused(refused: Refused, rng: np.random.Generator) -> None:
    steep = np.diag([1.0, 1e-11, 0.9e-11])  # of rank one to ten digits
    refused(lambda: public_svd_projection(steep, 2, rng=rng), "public_rows", "rank 2", "rank 1")
    near = np.diag([1.0, 1.1e-10, 0.9e-10])
    assert public_svd_projection(near, 2, rng=rng).n_components == 2
    refused(lambda: public_svd_projection(near, 3, rng=rng), "public_rows", "rank 3", "rank 2")
