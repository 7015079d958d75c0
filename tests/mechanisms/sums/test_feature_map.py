"""One contract for all feature maps, and what is particular to those of pictures and to random Fourier features."""

import math
from functools import lru_cache
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mooring.errors import InputError
from mooring.learners.models import FeatureMap
from mooring.mechanisms.sums.features import pictures as picture_features
from mooring.mechanisms.sums.features.columns import RowFeatures, TableFeatures, level_contrasts
from mooring.mechanisms.sums.features.fourier import FourierFeatures
from mooring.mechanisms.sums.features.pictures import PictureFeatures, draw_glyphs, fit_to_public
from mooring.mechanisms.sums.settings import SumSettings, make_features
from mooring.mechanisms.sums.sums import quantise
from mooring.tables.schema import Column, Schema
from tests.raising import raising

QUANTUM = 2.0**-12
NUMBERS = Schema(tuple(Column(name, "number", 0, 1) for name in "abc"))
PICTURES = PictureFeatures(8, 8, n_components=20)
MAPS: dict[str, FeatureMap] = {
    "table": TableFeatures(NUMBERS, log_scaled=frozenset({"b"})),
    "columns alone": TableFeatures(NUMBERS, n_hats=0),
    "rows": RowFeatures(4),
    "fourier": FourierFeatures(5, n_frequencies=6, length_scale=0.5),
    "fourier, the least": FourierFeatures(1, n_frequencies=1),
    "pictures": PICTURES,
    "wide": PictureFeatures(5, 9, n_components=4),
    "coloured": PictureFeatures(8, 8, 3, n_components=20),
}


@pytest.mark.parametrize("name", MAPS)
@settings(max_examples=15)
@given(data=st.data())
def test_every_feature_map_keeps_the_contract(name: str, data: st.DataObject) -> None:
    """Norm one, the constant last; a row's φ depends on nothing but the row; rows of another width are refused."""
    features = MAPS[name]
    rows = data.draw(arrays(np.float64, (5, features.n_inputs), elements=st.floats(-1, 1)))
    phi, before = features.apply(rows), rows.copy()
    assert phi.shape == (5, features.n_features)
    assert (rows == before).all()
    assert np.allclose(phi[:, -1], math.sqrt(features.constant_share))
    norms = np.linalg.norm(phi, axis=1)
    assert (norms <= 1 + 1e-12).all()
    quantise(phi, 2**12)
    assert features.unit_length == (name != "columns alone")
    assert features.is_dense == isinstance(features, FourierFeatures | PictureFeatures)
    if features.unit_length:
        known = (
            (np.abs(rows) > 1e-100).any(axis=1) if name == "rows" else np.full(5, fill_value=True)
        )  # squares underflow
        assert np.allclose(norms[known], 1, atol=1e-12)
    order = data.draw(st.permutations(range(5)))
    assert np.abs(features.apply(rows[order]) - phi[order]).max() < 1e-9
    assert np.abs(np.vstack([features.apply(rows[:2]), features.apply(rows[2:])]) - phi).max() < 1e-9
    for wrong in (rows[:, 1:], rows[0]):
        with raising(InputError, "rows"):
            features.apply(wrong)


@pytest.mark.parametrize(
    ("what", "make"),
    [
        ("height", lambda: PictureFeatures(3, 8)),
        ("width", lambda: PictureFeatures(8, 300)),
        ("n_channels", lambda: PictureFeatures(8, 8, 0)),
        ("seed", lambda: PictureFeatures(8, 8, seed=-1)),
        ("n_components", lambda: PictureFeatures(8, 8, n_components=0)),
        ("n_components", lambda: PictureFeatures(8, 8, n_components=1000)),
        ("n_inputs", lambda: FourierFeatures(0)),
        ("n_frequencies", lambda: FourierFeatures(3, 0)),
        ("length_scale", lambda: FourierFeatures(3, length_scale=math.inf)),
        ("constant_share", lambda: FourierFeatures(3, constant_share=1.0)),
    ],
)
def test_feature_maps_that_cannot_be_are_refused(what: str, make: object) -> None:
    with raising(InputError, what):
        make()  # type: ignore[operator]


@lru_cache
def all_glyphs() -> np.ndarray:
    return draw_glyphs(8, 8, 7)


def glyphs(n: int = 60) -> np.ndarray:
    return all_glyphs()[:n]


def test_pictures_in_large_numbers_go_in_blocks_and_colours_are_averaged() -> None:
    rows = np.vstack([glyphs(60)] * 10)
    phi = PICTURES.apply(rows)
    assert np.abs(phi[-60:] - PICTURES.apply(rows[:60])).max() < 1e-9
    coloured = np.repeat(rows[:60], 3, axis=1) + np.tile([0.2, -0.1, -0.1], 64)
    assert np.abs(MAPS["coloured"].apply(coloured) - phi[:60]).max() < 1e-9


@pytest.mark.parametrize(("side", "n_places"), [(4, 2), (9, 4), (13, 6), (14, 7), (18, 7)])
def test_filters_stand_at_every_other_pixel_and_in_seven_places_a_side_at_most(side: int, n_places: int) -> None:
    """Two wavelengths in eight orientations at each, and the picture in twice as many boxes a side."""
    filters = picture_features.filters_of(side, side + 3)
    assert filters.n_moduli == 2 * 8 * n_places**2
    assert filters.n_responses == 2 * 8 * n_places**2 + (2 * n_places) ** 2


def test_features_of_pictures_feel_neither_brightness_nor_contrast() -> None:
    rows = glyphs()
    assert np.abs(PICTURES.apply(0.3 * rows + 0.4) - PICTURES.apply(rows)).max() < 1e-6
    blank = PICTURES.apply(np.outer([0.1, 0.3, -0.7], np.ones(64)))
    assert np.abs(blank - PICTURES.apply(np.zeros((3, 64)))).max() < 1e-6


def test_a_projection_fitted_to_public_pictures_centres_pictures_of_their_kind() -> None:
    """Glyphs with one frame around all: fitted to others of them, features have a smaller mean."""
    framed = 0.5 * glyphs(1200).reshape(-1, 8, 8)
    framed[:, [0, -1]] = framed[:, :, [0, -1]] = 1
    framed = framed.reshape(-1, 64)
    fitted = fit_to_public(PICTURES, framed[600:])
    means = [np.linalg.norm(features.apply(framed[:600])[:, :-1].mean(axis=0)) for features in (PICTURES, fitted)]
    assert means[1] < 0.2 < 0.5 * means[0]
    assert np.allclose(np.linalg.norm(fitted.apply(framed), axis=1), 1, atol=1e-12)
    coloured = fit_to_public(MAPS["coloured"], np.repeat(framed[600:], 3, axis=1))
    assert np.abs(coloured.apply(np.repeat(framed[:9], 3, axis=1)) - fitted.apply(framed[:9])).max() < 1e-9
    with raising(InputError, "rows"):
        fit_to_public(PICTURES, framed[:, 1:])


def test_bent_copies_of_a_glyph_are_nearer_than_other_glyphs() -> None:
    phi = PICTURES.apply(glyphs(600))[:, :-1].reshape(120, 5, -1)
    same = np.einsum("gi,gi->g", phi[:, 0], phi[:, 1])
    other = np.einsum("gi,gi->g", phi[:, 0], np.roll(phi[:, 1], 1, axis=0))
    assert np.median(same) > 0.6
    assert abs(np.median(other)) < 0.2


def test_rounding_moves_the_map_of_pictures_by_far_less_than_the_quantum() -> None:
    """As another machine's sums would: all that the projection is fitted to, rounded to 10⁻¹³."""
    before, apply = PICTURES.apply(glyphs()), picture_features.Filters.apply
    with mock.patch.object(picture_features.Filters, "apply", lambda self, x: np.round(apply(self, x), 13)):
        picture_features._project_glyphs.cache_clear()
        after = PICTURES.apply(glyphs())
    picture_features._project_glyphs.cache_clear()
    assert 0 < np.abs(after - before).max() < 1e-9 < QUANTUM / 1e5


def test_fourier_features_approach_the_gaussian_kernel() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (30, 4))
    features = FourierFeatures(4, n_frequencies=4000, length_scale=0.7)
    phi = features.apply(rows)
    distances = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    assert np.abs(phi @ phi.T - 0.95 * np.exp(-distances / (2 * 0.7**2)) - 0.05).max() < 0.06
    assert not np.allclose(FourierFeatures(4, seed=1).frequencies, FourierFeatures(4).frequencies)


def test_frequencies_have_the_root_of_the_number_of_inputs_as_length_scale_unless_it_is_given() -> None:
    default = FourierFeatures(4).frequencies
    np.testing.assert_allclose(default, FourierFeatures(4, length_scale=2.0).frequencies)
    np.testing.assert_allclose(default, FourierFeatures(4, length_scale=1.0).frequencies / 2)


@pytest.mark.parametrize("n_hats", [0, 5])
def test_a_category_that_may_be_missing_has_one_more_feature(n_hats: int) -> None:
    """With levels only, features are longest where all numbers are at an end of their range; both flags add a quarter."""
    columns = (
        Column("sex", "category", categories=("f", "m"), missing="indicate"),
        Column("age", "number", 0, 1, missing="indicate"),
        Column("died", "category", categories=("no", "yes")),
    )
    features = TableFeatures(Schema(columns), n_hats=n_hats)
    rows = np.array([[1, 0, 0, 1, 0, 1, 0], [0, 1, 0, -1, 0, 0, 1], [0, 0, 1, 0, 1, 1, 0]], dtype=float)
    phi = features.apply(rows)
    if n_hats:
        assert phi.shape == (3, 2 + 5 + 1 + 1)
        np.testing.assert_allclose(np.linalg.norm(phi, axis=1), 1)
        return
    squares = 0.25 + 0.25 + 1 + 0.25 + 0.25
    u = [[-0.5, -0.5, 1, -0.5, -0.5], [0.5, -0.5, -1, -0.5, 0.5], [0, 0.5, 0, 0.5, -0.5]]
    np.testing.assert_allclose(phi[:, :-1], np.sqrt(0.8 / squares) * np.array(u))
    assert np.linalg.norm(phi, axis=1).max() == pytest.approx(1)


def test_directions_are_those_in_which_glyphs_differ_most_relative_to_their_copies() -> None:
    """B v = μ (W + κI) v with vᵀ(W + κI)v = μ/(1 + μ), the largest μ first, and nothing of those below zero."""
    rng, copies = np.random.default_rng(0), picture_features._COPIES
    means = rng.standard_normal((8, 6)) * np.array([3.0, 1.0, 0.5, 0.2, 0.1, 0.0])
    z = rng.standard_normal((8 * copies, 6)) + np.repeat(means, copies, axis=0)
    by_glyph = z.reshape(8, copies, 6)
    within = np.mean([np.cov(part, rowvar=False) for part in by_glyph], axis=0)
    between = np.cov(by_glyph.mean(axis=1), rowvar=False) - within / copies
    within += 0.01 * np.linalg.eigvalsh(within).max() * np.eye(6)
    directions = picture_features.discriminating_directions(z, 6)
    mu = np.linalg.eigvals(np.linalg.solve(within, between)).real
    mu = np.maximum(np.sort(mu)[::-1], 0)
    assert mu[0] > 1 > mu[2] > mu[-1] == 0
    np.testing.assert_allclose(directions.T @ within @ directions, np.diag(mu / (1 + mu)), atol=1e-9)
    np.testing.assert_allclose(between @ directions, within @ directions * mu, atol=1e-9)
    assert (directions.sum(axis=0) >= 0).all()


def test_what_all_glyphs_have_in_common_tells_them_apart_in_no_direction() -> None:
    rng, copies = np.random.default_rng(0), picture_features._COPIES
    z = rng.standard_normal((6 * copies, 5)) + np.repeat(3 * rng.standard_normal((6, 5)), copies, axis=0)
    directions, moved = (
        picture_features.discriminating_directions(z + common, 2) for common in (0.0, rng.standard_normal(5))
    )
    np.testing.assert_allclose(directions, moved, atol=1e-9)


def test_a_studys_settings_name_its_features() -> None:
    """A cosine and a sine of each frequency; of pictures, no more than there are responses of filters."""
    for n, frequencies in ((1, 1), (3, 1), (8, 4)):
        features = make_features(SumSettings(features="fourier", n_features=n), NUMBERS, ())
        assert features == FourierFeatures(3, frequencies)
    for shape, channels in (((8, 9), 1), ((8, 9, 3), 3)):
        features = make_features(SumSettings(features="pictures", n_features=20), NUMBERS, shape)
        assert features == PictureFeatures(8, 9, channels, n_components=20)
    many = make_features(SumSettings(features="pictures", n_features=10**4), NUMBERS, (8, 8))
    assert many.n_components == picture_features.filters_of(8, 8).n_responses  # type: ignore[attr-defined]
    for shape in ((), (8,), (1, 8, 8, 1)):
        with raising(InputError, "image_shape"):
            make_features(SumSettings(features="pictures"), NUMBERS, shape)


def test_a_name_that_holds_escapes_is_not_printed_as_it_is() -> None:
    with pytest.raises(InputError) as caught:
        TableFeatures(NUMBERS, log_scaled=frozenset({"\x1b[2Jfalse"}))
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("n_levels", [3, 4, 9])
def test_contrasts_of_levels_are_orthonormal_and_orthogonal_to_the_constant(n_levels: int) -> None:
    contrasts = level_contrasts(n_levels)
    np.testing.assert_allclose(contrasts @ contrasts.T, np.eye(n_levels - 1), atol=1e-12)
    np.testing.assert_allclose(contrasts.sum(axis=1), 0.0, atol=1e-12)
