"""The face model sees images as it was made for, and its vectors have length one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mooring_studies.data.onnx_embedding import onnx_embedding, resize_bilinear

Refused = Callable[..., None]
MODEL = {"image_shape": (4, 4, 3), "input_size": (4, 4), "scale": 2.0, "offset": -1.0}


@dataclass
class FakeSession:
    """Gives back the pixels it was fed, and remembers them."""

    shape: tuple[Any, ...] = ("batch", 3, 4, 4)
    fed: list[np.ndarray] = field(default_factory=list)

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="pixels", shape=list(self.shape))]

    def run(self, names: None, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        (pixels,) = feed.values()
        assert list(feed) == ["pixels"]
        assert pixels.dtype == np.float32
        self.fed.append(pixels)
        return [pixels.reshape(len(pixels), -1)]


@pytest.mark.parametrize("size", [(8, 8), (13, 5), (3, 4), (1, 1), (5, 7)])
def test_resizing_is_bilinear_between_pixel_centres(
    size: tuple[int, int], rng: np.random.Generator, torch: ModuleType
) -> None:
    images = rng.random((2, 5, 7, 3))
    channels_first = torch.as_tensor(images.transpose(0, 3, 1, 2))
    expected = torch.nn.functional.interpolate(channels_first, size=size, mode="bilinear", align_corners=False)
    assert np.allclose(resize_bilinear(images, size), expected.numpy().transpose(0, 2, 3, 1))


def test_a_model_is_fed_scaled_pixels_with_channels_in_its_order(rng: np.random.Generator) -> None:
    images = rng.random((3, 4, 4, 3))
    rows = images.reshape(3, -1)
    for first in (True, False):
        for flip in (True, False):
            session = FakeSession(("batch", 3, 4, 4) if first else ("batch", 4, 4, 3))
            onnx_embedding(session, **MODEL, channels_first=first, flip_channels=flip)(rows)
            expected = images[..., ::-1] if flip else images
            expected = expected.transpose(0, 3, 1, 2) if first else expected
            assert np.allclose(session.fed[0], 2 * expected - 1, atol=1e-6)


def test_pixels_are_clamped_before_anything_else() -> None:
    session = FakeSession()
    onnx_embedding(session, **MODEL)(np.array([[-5.0] * 24 + [7.0] * 24]))
    assert sorted(set(session.fed[0].ravel().tolist())) == [-1.0, 1.0]


def test_images_are_resized_to_what_the_model_takes(rng: np.random.Generator) -> None:
    session = FakeSession((None, 1, 6, 8))
    options = {"image_shape": (3, 4), "input_size": (6, 8), "scale": 1.0, "offset": 0.0}
    images = rng.random((2, 3, 4))
    onnx_embedding(session, **options)(images.reshape(2, -1))
    assert np.allclose(session.fed[0][:, 0], resize_bilinear(images[..., None], (6, 8))[..., 0], atol=1e-6)


@pytest.mark.parametrize(("fixed", "sizes"), [("batch", [3, 3, 1]), (5, [5, 5]), (1, [1] * 7)])
def test_batches_change_nothing_and_vectors_have_length_one(
    fixed: Any, sizes: list[int], rng: np.random.Generator
) -> None:
    rows = rng.random((7, 48))
    session = FakeSession((fixed, 3, 4, 4))
    vectors = onnx_embedding(session, **MODEL, batch_size=3)(rows)
    pixels = (2 * rows - 1).reshape(7, 4, 4, 3).transpose(0, 3, 1, 2).reshape(7, -1)
    assert [len(batch) for batch in session.fed] == sizes
    assert np.allclose(vectors, pixels / np.linalg.norm(pixels, axis=1, keepdims=True), atol=1e-6)
    assert vectors.dtype == np.float64


def test_a_model_that_takes_other_images_is_refused(refused: Refused) -> None:
    for session in (FakeSession(("batch", 3, 5, 4)), FakeSession(("batch", 1, 4, 4)), FakeSession(("batch", 48))):
        refused(lambda s=session: onnx_embedding(s, **MODEL), "input_size", str(session.shape[1:]), "(3, 4, 4)")


@pytest.mark.parametrize(
    ("rows", "expected", "got"),
    [(np.ones((2, 47)), "48", "47"), (np.ones(48), "", "(48,)"), (np.full((1, 48), np.nan), "finite", "")],
)
def test_rows_that_are_no_images_are_refused(rows: np.ndarray, expected: str, got: str, refused: Refused) -> None:
    refused(lambda: onnx_embedding(FakeSession(), **MODEL)(rows), "rows", expected, got)
