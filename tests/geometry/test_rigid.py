from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mooring import RigidMap
from mooring.geometry import orthogonality_defect
from mooring.geometry.backend import to_numpy

Refused = Callable[..., None]
REFLECTION = np.array([[0.0, 1.0], [1.0, 0.0]])
QUARTER_TURN = np.array([[0.0, 1.0], [-1.0, 0.0]])


def test_apply_multiplies_from_the_right_then_translates_and_invert_undoes_it() -> None:
    """S O + 1 Ψᵀ with a quarter turn: (1, 2) → (-2, 1) → (8, 21). Oᵀ instead of O would give (12, 19)."""
    secret = RigidMap(QUARTER_TURN, np.array([10.0, 20.0]))
    assert np.array_equal(secret.apply(np.array([[1.0, 2.0]])), [[8.0, 21.0]])
    assert np.array_equal(secret.invert(np.array([[8.0, 21.0]])), [[1.0, 2.0]])
    assert np.linalg.det(RigidMap(REFLECTION, np.zeros(2)).orthogonal) == pytest.approx(-1.0)  # a rigid map too


def test_invert_undoes_apply(rng: np.random.Generator, on_backend: Callable[[Any], Any]) -> None:
    rows = on_backend(rng.standard_normal((7, 4)))
    secret = RigidMap.sample(4, rng=rng).moved_to(rows)
    assert np.allclose(to_numpy(secret.invert(secret.apply(rows))), to_numpy(rows), atol=1e-13)


def test_translations_are_standard_normal() -> None:
    """20,000 coordinates: mean within 0.03 (four spreads), variance within 0.04 (four spreads)."""
    translations = RigidMap.sample(4, rng=np.random.default_rng(1), batch_shape=(5000,)).translation
    assert abs(translations.mean()) < 0.03
    assert abs(translations.var() - 1.0) < 0.04


def test_a_batch_of_maps_acts_map_by_map(rng: np.random.Generator) -> None:
    maps, others = (RigidMap.sample(3, rng=rng, batch_shape=(4,)) for _ in range(2))
    rows = rng.standard_normal((4, 6, 3))
    for i in range(4):
        rigid_map = RigidMap(maps.orthogonal[i], maps.translation[i])
        other = RigidMap(others.orthogonal[i], others.translation[i])
        assert np.allclose(maps.apply(rows)[i], rigid_map.apply(rows[i]))
        assert np.allclose(maps.invert(rows)[i], rigid_map.invert(rows[i]))
        assert np.allclose(maps.inverse().apply(rows)[i], rigid_map.inverse().apply(rows[i]))
        assert np.allclose(maps.compose(others).apply(rows)[i], rigid_map.compose(other).apply(rows[i]))


def test_a_batch_of_maps_acts_on_the_same_rows_and_composes_with_one_map(rng: np.random.Generator) -> None:
    rigid_map, many, rows = (
        RigidMap.sample(3, rng=rng),
        RigidMap.sample(3, rng=rng, batch_shape=(4,)),
        rng.random((6, 3)),
    )
    assert many.apply(rows).shape == (4, 6, 3)
    assert np.allclose(many.invert(many.apply(rows)), rows)
    assert np.allclose(rigid_map.compose(many).apply(rows), many.apply(rigid_map.apply(rows)))
    assert np.allclose(many.compose(rigid_map).apply(rows), rigid_map.apply(many.apply(rows)))


def test_moved_to_keeps_the_numbers_and_stays_in_float64(rng: np.random.Generator, torch: ModuleType) -> None:
    secret = RigidMap.sample(3, rng=rng)
    moved = secret.moved_to(torch.zeros(1, dtype=torch.float32))
    assert moved.orthogonal.dtype == torch.float64
    assert np.array_equal(to_numpy(moved.orthogonal), secret.orthogonal)
    assert np.array_equal(moved.moved_to(np.zeros(1)).translation, secret.translation)


def test_single_precision_maps_and_rows_are_brought_to_float64() -> None:
    secret = RigidMap(QUARTER_TURN.astype(np.float32), np.zeros(2, dtype=np.float32))
    assert secret.orthogonal.dtype == np.float64
    assert secret.apply(np.ones((2, 2), dtype=np.float32)).dtype == np.float64


def test_the_identity_changes_nothing_and_leaves_its_rows_alone(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((5, 3))
    before = rows.copy()
    image = RigidMap.identity(3).apply(rows)
    assert np.array_equal(image, rows)
    image += 1.0
    assert np.array_equal(rows, before)


def test_the_printed_form_shows_the_shape_and_no_secret(rng: np.random.Generator) -> None:
    assert repr(RigidMap.sample(3, rng=rng)) == "RigidMap(n_components=3)"
    assert repr(RigidMap.sample(3, rng=rng, batch_shape=(2, 5))) == "RigidMap(n_components=3, batch_shape=(2, 5))"
    assert str(RigidMap.identity(2)) == "RigidMap(n_components=2)"


def test_a_long_chain_of_maps_stays_rigid(rng: np.random.Generator) -> None:
    chain = RigidMap.identity(4)
    for _ in range(200):
        chain = chain.compose(RigidMap.sample(4, rng=rng))
    assert orthogonality_defect(chain.orthogonal) < 1e-12


NOT_FINITE, SQUARE, WIDE = "NaN or Inf", "square, of shape (..., d, d)", "of shape (..., m, 3), as wide as the map"


@pytest.mark.parametrize(
    ("call", "what", "expected", "got"),
    [
        *((lambda s=s: RigidMap(np.zeros(s), np.zeros(3)), "orthogonal", SQUARE, s) for s in ((3,), (3, 2), (4, 3, 2))),
        *((lambda s=s: RigidMap(np.eye(3), np.zeros(s)), "translation", "(3,)", s) for s in ((2,), (1, 3), (3, 1), ())),
        *((lambda s=s: RigidMap.identity(3).apply(np.zeros(s)), "rows", WIDE, s) for s in ((3,), (5, 2), (2, 5, 4))),
        *((lambda s=s: RigidMap.identity(3).invert(np.zeros(s)), "rows", WIDE, s) for s in ((3,), (5, 4), (2, 5, 4))),
        *(
            (lambda v=v: RigidMap(np.eye(2), np.array([0.0, v])), "translation", "finite", NOT_FINITE)
            for v in (np.nan, np.inf)
        ),
        *(
            (lambda v=v: RigidMap(np.diag([v, 1.0]), np.zeros(2)), "orthogonal", "finite", NOT_FINITE)
            for v in (np.nan, np.inf)
        ),
        *(
            (lambda M=M: RigidMap(M, np.zeros(2)), "orthogonal", "orthogonal to 1e-08", "|OᵀO − I| up to")
            for M in (2 * np.eye(2), np.eye(2) + 1e-7)
        ),
        (lambda: RigidMap.identity(3).compose(RigidMap.identity(4)), "then", "", ""),
        (lambda: RigidMap.identity(0), "n_components", "", ""),
    ],
)
def test_what_is_no_rigid_map_or_does_not_fit_one_is_refused(
    call: Callable[[], Any], what: str, expected: str, got: Any, refused: Refused
) -> None:
    refused(call, what, expected, f"shape {got}" if isinstance(got, tuple) else got)
