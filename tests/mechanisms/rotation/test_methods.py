import dataclasses
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from mooring import METHODS, ArrayNoise, Method, RigidMap, Upload, UploadNoise, coupled_noise, make_anchor, represent
from mooring.mechanisms.rotation.methods import get_method

Refused = Callable[..., None]
WITH_DATA_NOISE = {"c-gdp-data-noise", "aa-i-gdp-data-noise", "aa-i-gdp-both-noise"}
WITH_ANCHOR_NOISE = {"aa-i-gdp-anchor-noise", "aa-i-gdp-both-noise"}
ROWS = np.arange(12.0).reshape(4, 3)
SECRET = RigidMap.sample(3, rng=np.random.default_rng(5))
ANCHOR = make_anchor(12, 3, rng=np.random.default_rng(6))


STATED = {"anchor": ANCHOR, "data_noise_scale": 0.0, "anchor_noise_scale": 0.0}


def made(method: Method | str, rows: object = ROWS, **options: object) -> Upload:
    """An upload without noise, unless options say otherwise."""
    return represent(method, rows, SECRET, **STATED | {"noise": np.random.default_rng(7)} | options)


@pytest.mark.parametrize("name", sorted(WITH_DATA_NOISE | WITH_ANCHOR_NOISE))
def test_noise_does_not_go_missing_by_omission(name: str, refused: Refused) -> None:
    argument = "data_noise_scale" if name in WITH_DATA_NOISE else "anchor_noise_scale"
    refused(lambda: made(name, **{argument: None}), argument, "", "")


def test_there_are_the_six_methods_of_the_paper_and_a_seventh_and_none_can_be_changed() -> None:
    aligned = [f"aa-i-gdp{noise}" for noise in ("", "-data-noise", "-anchor-noise", "-both-noise")]
    assert list(METHODS) == ["c-gdp", "c-gdp-data-noise", "i-gdp", *aligned]
    assert all(name == method.name for name, method in METHODS.items())
    assert len({method.title for method in METHODS.values()}) == 7
    with pytest.raises(dataclasses.FrozenInstanceError):
        METHODS["c-gdp"].data_noise = True  # type: ignore[misc]


def test_methods_say_who_shares_a_map_what_gets_noise_and_how_uploads_are_aligned() -> None:
    assert {name for name, method in METHODS.items() if method.transform == "common"} == {"c-gdp", "c-gdp-data-noise"}
    assert {name for name, method in METHODS.items() if method.data_noise} == WITH_DATA_NOISE
    assert {name for name, method in METHODS.items() if method.anchor_noise} == WITH_ANCHOR_NOISE
    assert {name for name, method in METHODS.items() if method.uses_anchor} == {
        n for n in METHODS if n.startswith("aa-")
    }
    assert {name for name, method in METHODS.items() if method.alignment == "procrustes"} == WITH_ANCHOR_NOISE


def test_a_method_can_be_given_by_its_own_name_or_as_itself(refused: Refused) -> None:
    by_name, by_value = made("aa-i-gdp"), made(METHODS["aa-i-gdp"])
    assert np.array_equal(by_name.representation, by_value.representation)
    for call in (lambda: get_method("AA-I-GDP"), lambda: made("AA-I-GDP")):
        refused(call, "method", "one of c-gdp, c-gdp-data-noise", "'AA-I-GDP'")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("what", ["data_noise_scale", "anchor_noise_scale"])
def test_scales_that_are_none_and_noise_that_the_method_lacks_are_refused(
    name: str, what: str, refused: Refused
) -> None:
    for scale in (-1.0, math.nan, math.inf):
        refused(lambda scale=scale: made(name, **{what: scale}), what, "zero or more, and finite", str(scale))
    if name not in (WITH_DATA_NOISE if what == "data_noise_scale" else WITH_ANCHOR_NOISE):
        refused(lambda: made(name, **{what: 0.1}), what, f"0 for {name}", "0.1")


@pytest.mark.parametrize("name", sorted(WITH_DATA_NOISE | WITH_ANCHOR_NOISE))
def test_each_noise_goes_where_it_belongs_and_nowhere_else(name: str) -> None:
    for what, among in (("data_noise_scale", WITH_DATA_NOISE), ("anchor_noise_scale", WITH_ANCHOR_NOISE)):
        if name in among:
            upload, on_data = made(name, **{what: 0.5}), what == "data_noise_scale"
            noise = 0.5 * np.random.default_rng(7).standard_normal((ROWS if on_data else ANCHOR).shape)
            assert np.allclose(upload.representation, SECRET.apply(ROWS) + (noise if on_data else 0), atol=1e-14)
            if upload.anchor_representation is not None:
                expected = SECRET.apply(ANCHOR) + (0 if on_data else noise)
                assert np.allclose(upload.anchor_representation, expected, atol=1e-14)


def test_the_two_noises_of_one_upload_are_not_the_same_draws() -> None:
    """With as many rows as the anchor, a stream started twice would give both the same noise."""
    rows = ANCHOR.copy()
    upload = made("aa-i-gdp-both-noise", rows, data_noise_scale=1.0, anchor_noise_scale=1.0)
    data_noise = upload.representation - SECRET.apply(rows)
    anchor_noise = upload.anchor_representation - SECRET.apply(ANCHOR)
    assert abs(np.corrcoef(data_noise.ravel(), anchor_noise.ravel())[0, 1]) < 0.5


def test_noise_that_is_given_is_used_and_scaled() -> None:
    given = np.arange(12.0).reshape(4, 3)
    upload = made("c-gdp-data-noise", data_noise_scale=0.5, noise=UploadNoise(ArrayNoise(given)))
    assert np.allclose(upload.representation, SECRET.apply(ROWS) + 0.5 * given)


def test_given_noise_of_another_shape_or_not_finite_is_refused(refused: Refused) -> None:
    short = UploadNoise(ArrayNoise(np.ones((1, 3))))
    call = partial(made, "c-gdp-data-noise", data_noise_scale=0.5, noise=short)
    refused(call, "noise", "at least 12 numbers", "shape (1, 3)")
    refused(lambda: ArrayNoise(np.full((4, 3), np.nan)), "noise", "finite", "NaN")


def test_coupled_noise_is_turned_into_the_reference_s_frame_and_back() -> None:
    """W̃ = W Oᵢᵀ Oₛ: noise that participant i adds, carried by its alignment map, is the noise C-GDP adds."""
    rng = np.random.default_rng(0)
    rigid_map, reference, noise = RigidMap.sample(3, rng=rng), RigidMap.sample(3, rng=rng), rng.standard_normal((5, 3))
    coupled = coupled_noise(noise, secret=rigid_map, reference=reference)
    assert np.allclose(coupled, noise @ rigid_map.orthogonal.T @ reference.orthogonal)
    assert np.allclose(coupled_noise(coupled, secret=reference, reference=rigid_map), noise)
    assert np.allclose(coupled_noise(noise, secret=rigid_map, reference=rigid_map), noise)


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].uses_anchor])
def test_a_method_with_an_anchor_asks_for_a_good_one(name: str, refused: Refused) -> None:
    refused(lambda: made(name, anchor=None), "anchor", "", "")
    refused(lambda: made(name, anchor=2 * ANCHOR), "anchor", "orthonormal columns", "a deviation")
    other = make_anchor(12, 4, rng=np.random.default_rng(0))
    refused(lambda: made(name, anchor=other), "rows", "as wide as the map", "shape (12, 4)")


@pytest.mark.parametrize("shape", [(3,), (0, 3), (2, 2, 3)], ids=["vector", "no rows", "stack"])
def test_data_that_is_no_matrix_of_rows_or_of_another_width_is_refused(
    shape: tuple[int, ...], refused: Refused
) -> None:
    refused(lambda: made("i-gdp", np.ones(shape)), "private_data", "a matrix with at least one row", f"shape {shape}")
    refused(lambda: made("i-gdp", np.ones((4, 2))), "rows", "as wide as the map", "shape (4, 2)")
