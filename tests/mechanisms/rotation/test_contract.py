"""One contract that every method keeps. A test counts that all are in it."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mooring import METHODS, Method, RigidMap, SimulationSettings, Streams, Upload, make_anchor, represent, simulate
from mooring.geometry.backend import to_numpy
from mooring.mechanisms.rotation.kernel import add_noise

SIGMA, V = 0.7, 0.03
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((6, 3))
ANCHOR = make_anchor(15, 3, rng=RNG)
SECRET = RigidMap.sample(3, rng=RNG)

# What each method must do, said here once more and apart from its own description: noise on the data, an anchor
# representation, noise on that.
CONTRACT = {
    "c-gdp": (False, False, False),
    "c-gdp-data-noise": (True, False, False),
    "i-gdp": (False, False, False),
    "aa-i-gdp": (False, True, False),
    "aa-i-gdp-data-noise": (True, True, False),
    "aa-i-gdp-anchor-noise": (False, True, True),
    "aa-i-gdp-both-noise": (True, True, True),
}


@pytest.fixture(params=CONTRACT)
def method(request: pytest.FixtureRequest) -> Method:
    return METHODS[request.param]


def test_every_method_is_under_this_contract() -> None:
    assert CONTRACT.keys() == METHODS.keys()
    assert len(CONTRACT) == 7


def test_a_method_describes_itself_as_the_contract_does(method: Method) -> None:
    assert (method.data_noise, method.uses_anchor, method.anchor_noise) == CONTRACT[method.name]


def made(method: Method, *, seed: int = 1, noisy: bool = True, **options: Any) -> Upload:
    """An upload of this method with every noise it has."""
    arguments = {
        "private_data": ROWS,
        "secret": SECRET,
        "noise": np.random.default_rng(seed),
        "anchor": ANCHOR if method.uses_anchor else None,
        "data_noise_scale": SIGMA if method.data_noise and noisy else 0.0,
        "anchor_noise_scale": V if method.anchor_noise and noisy else 0.0,
    }
    return represent(method, **arguments | options)


def arrays(upload: Upload) -> list[Any]:
    return [array for array in (upload.representation, upload.anchor_representation) if array is not None]


def test_uploads_have_the_shape_of_what_they_represent(method: Method) -> None:
    upload = made(method)
    assert upload.representation.shape == ROWS.shape
    assert (upload.anchor_representation is not None) == method.uses_anchor
    if method.uses_anchor:
        assert upload.anchor_representation.shape == ANCHOR.shape


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_uploads_are_in_float64(method: Method, dtype: type) -> None:
    upload = made(method, private_data=np.ones((2, 3), dtype=dtype))
    assert all(array.dtype == np.float64 for array in arrays(upload))


def test_an_upload_shares_no_memory_with_its_input_and_leaves_it_alone(method: Method, on_backend: Callable) -> None:
    """With the identity for a secret and no noise, an upload that is not a copy would be the data itself."""
    rows, anchor = on_backend(ROWS.copy()), on_backend(ANCHOR.copy())
    secret = RigidMap.identity(3).moved_to(rows)
    for noisy in (False, True):
        given = anchor if method.uses_anchor else None
        for array in arrays(made(method, private_data=rows, secret=secret, anchor=given, noisy=noisy)):
            array += 1.0
        assert np.array_equal(to_numpy(rows), ROWS)
        assert np.array_equal(to_numpy(anchor), ANCHOR)
        assert np.array_equal(to_numpy(secret.orthogonal), np.eye(3))
        assert np.array_equal(to_numpy(secret.translation), np.zeros(3))


def test_an_upload_repeats_with_its_stream_and_another_gives_other_noise_where_there_is_noise(method: Method) -> None:
    first, again, second = made(method, seed=1), made(method, seed=1), made(method, seed=2)
    assert all(np.array_equal(array, same) for array, same in zip(arrays(first), arrays(again), strict=True))
    assert np.array_equal(first.representation, second.representation) != method.data_noise
    if method.uses_anchor:
        same = np.array_equal(first.anchor_representation, second.anchor_representation)
        assert same != method.anchor_noise


def test_other_streams_give_another_collaboration(method: Method) -> None:
    """Secrets and noise all come from the streams: the same ones repeat everything, others change every upload."""

    def run(seed: int) -> list[Upload]:
        scales = {"data_noise_scale": 0.1 * method.data_noise, "anchor_noise_scale": 0.1 * method.anchor_noise}
        settings = SimulationSettings(anchor=ANCHOR)
        streams = Streams.for_experiment(seed)
        return list(simulate([ROWS, ROWS], method=method, rng=streams, settings=settings, **scales).uploads)

    for first, again, other in zip(run(1), run(1), run(2), strict=True):
        assert np.array_equal(first.representation, again.representation)
        assert not np.allclose(first.representation, other.representation)


def test_without_noise_an_upload_is_the_rigid_image_and_nothing_else(method: Method) -> None:
    upload = made(method, noisy=False)
    assert np.array_equal(upload.representation, SECRET.apply(ROWS))
    if method.uses_anchor:
        assert np.array_equal(upload.anchor_representation, SECRET.apply(ANCHOR))


def test_without_noise_a_method_equals_its_noiseless_namesake(method: Method) -> None:
    plain = METHODS["aa-i-gdp" if method.uses_anchor else "c-gdp" if method.transform == "common" else "i-gdp"]
    for expected, got in zip(arrays(made(plain)), arrays(made(method, noisy=False)), strict=True):
        assert np.array_equal(expected, got)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_data_and_anchors_that_are_not_finite_are_refused(
    method: Method, value: float, on_backend: Callable, refused: Callable
) -> None:
    good = {"private_data": ROWS, **({"anchor": ANCHOR} if method.uses_anchor else {})}
    for what, array in good.items():
        broken = array.copy()
        broken[2, 1] = value
        options = {name: on_backend(part) for name, part in {**good, what: broken}.items()}
        secret = SECRET.moved_to(options["private_data"])
        refused(lambda o=options, s=secret: made(method, secret=s, **o), what, "finite", "NaN or Inf")


def test_torch_gives_torch_with_the_same_numbers(method: Method, torch: ModuleType) -> None:
    rows = torch.as_tensor(ROWS)
    anchor = torch.as_tensor(ANCHOR) if method.uses_anchor else None
    upload = made(method, private_data=rows, secret=SECRET.moved_to(rows), anchor=anchor)
    for expected, got in zip(arrays(made(method)), arrays(upload), strict=True):
        assert isinstance(got, torch.Tensor)
        assert got.dtype == torch.float64
        assert np.allclose(to_numpy(got), expected, rtol=0, atol=1e-14)


def test_noise_has_mean_zero_the_stated_scale_and_the_normal_shape(method: Method) -> None:
    """12,000 draws each. Bounds are 4.5 spreads: of the mean 0.0091, of the variance 0.0129, of the kurtosis 0.045."""
    rows, anchor = np.zeros((4000, 3)), make_anchor(4000, 3, rng=np.random.default_rng(3))
    upload = made(method, private_data=rows, anchor=anchor if method.uses_anchor else None, seed=4)
    noises = []
    if method.data_noise:
        noises.append((upload.representation - SECRET.apply(rows)) / SIGMA)
    if method.anchor_noise:
        noises.append((upload.anchor_representation - SECRET.apply(anchor)) / V)
    assert len(noises) == method.data_noise + method.anchor_noise
    for noise in noises:
        assert abs(noise.mean()) < 0.041
        assert abs(noise.var() - 1.0) < 0.058
        assert abs(np.mean(noise**4) - 3.0) < 0.4
        assert np.max(np.abs(np.corrcoef(noise, rowvar=False) - np.eye(3))) < 0.071
        assert abs(np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]) < 0.041


def test_noise_of_some_scale_needs_a_stream(refused: Callable[..., None]) -> None:
    refused(lambda: add_noise(ROWS, 0.1, None), "noise", "", "")
    assert np.array_equal(add_noise(ROWS, 0, None), ROWS)
