import math
from collections.abc import Callable
from typing import Any

import pytest

from mooring import METHODS
from mooring.audit import OperatingPoint, PointGrid, RotationPoint, point_with_noise

Refused = Callable[..., None]


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_is_a_point_with_the_noise_it_has_and_refuses_the_noise_it_has_not(
    name: str, refused: Refused
) -> None:
    method = METHODS[name]
    for noise, used in (("anchor_noise_scale", method.anchor_noise), ("data_noise_level", method.data_noise)):
        assert getattr(RotationPoint(name, 3, 12), noise) == 0.0
        if used:
            assert getattr(RotationPoint(name, 3, 12, **{noise: 0.2}), noise) == 0.2
        else:
            refused(lambda noise=noise: RotationPoint(name, 3, 12, **{noise: 0.2}), noise, "0", "0.2")


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
@pytest.mark.parametrize("noise", ["anchor_noise_scale", "data_noise_level"])
def test_noise_that_is_no_scale_is_refused(noise: str, value: float, refused: Refused) -> None:
    refused(lambda: RotationPoint("aa-i-gdp-both-noise", 3, 12, **{noise: value}), noise, "zero or more", str(value))


def test_unknown_methods_are_refused(refused: Refused) -> None:
    refused(lambda: RotationPoint("dp-sgd", 3, 12), "method", "c-gdp", "'dp-sgd'")
    refused(lambda: PointGrid(["x"]).points(3), "method", "c-gdp", "'x'")


def test_a_point_of_a_mechanism_that_is_not_loaded_is_kept_and_no_study_uses_it(refused: Refused) -> None:
    plain = {"mechanism": "shuffling", "rounds": 3}
    point: Any = OperatingPoint.from_dict(plain)
    assert point.as_dict() == plain
    assert point.title_on(None) == "shuffling, rounds = 3"
    assert not point.is_usable_with(None)
    assert point.recommend(None, 0.0) is None
    assert point.settled_for(None) is point
    refused(lambda: point.with_epsilon(1.0), "epsilon", "", "")


def test_titles_name_the_method_and_the_noise_it_has() -> None:
    assert RotationPoint("c-gdp", 3, 12).title_with(0.0) == "C-GDP"
    assert RotationPoint("aa-i-gdp-anchor-noise", 3, 12, 0.05).title_with(0.0) == "AA-I-GDP (anchor noise), v = 0.05"
    both = RotationPoint("aa-i-gdp-both-noise", 3, 12, 0.05, 0.3).title_with(0.71)
    assert both == "AA-I-GDP (both noises), σ = 0.71, v = 0.05"


def test_a_grid_of_noise_itself_needs_rows_to_measure_it_by(refused: Refused) -> None:
    grid = PointGrid(["aa-i-gdp-data-noise"], data_noise_scales=[0.5, 1.0])
    assert [point.data_noise_level for point in grid.points(3, lambda h: h / 12)] == [2, 4]
    for rms in (None, lambda h: 0.0):
        refused(lambda rms=rms: grid.points(3, rms), "data_noise_scales", "not all zero", "zeros")


def test_the_grid_is_every_method_with_every_noise_it_has_and_none_twice() -> None:
    scales, levels = (0.1, 0.2, 0.1), (0.3, 0.5, 0.8)
    points = PointGrid([*METHODS, "c-gdp"], None, 12, anchor_noise_scales=scales, data_noise_levels=levels).points(3)
    expected = {
        (name, v, level)
        for name, method in METHODS.items()
        for v in (scales if method.anchor_noise else (0.0,))
        for level in (levels if method.data_noise else (0.0,))
    }
    assert {(point.method, point.anchor_noise_scale, point.data_noise_level) for point in points} == expected
    assert len(points) == len(expected) == 3 + 3 + 3 + 2 + 6
    assert {(point.n_components, point.n_anchor_rows) for point in points} == {(3, 12)}


@pytest.mark.parametrize(
    ("v", "level", "name"),
    [
        (0.0, 0.0, "aa-i-gdp"),
        (0.1, 0.0, "aa-i-gdp-anchor-noise"),
        (0.0, 0.3, "aa-i-gdp-data-noise"),
        (0.1, 0.3, "aa-i-gdp-both-noise"),
    ],
)
def test_a_point_with_noise_is_the_corner_that_has_it(v: float, level: float, name: str) -> None:
    point = point_with_noise(v, level, n_components=3, n_anchor_rows=12)
    assert point == RotationPoint(name, 3, 12, v, level) == OperatingPoint.from_dict(point.as_dict())
