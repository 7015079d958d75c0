"""A frozen model in an ONNX file, such as one that recognises faces, as an embedding of rows of pixels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mooring import InputError
from mooring.metrics import image_rows
from mooring.typing import Matrix


@dataclass(frozen=True, eq=False)
class OnnxEmbedding:
    """A frozen model in an ONNX file, as an embedding; made by `onnx_embedding`."""

    image_shape: tuple[int, ...]
    input_size: tuple[int, int]
    scale: float
    offset: float
    channels_first: bool
    flip_channels: bool
    batch_size: int
    _session: Any = field(repr=False)

    def __call__(self, rows: Matrix, /) -> Matrix:
        """Return one unit vector per row."""
        images = image_rows("rows", rows, self.image_shape)
        (declared, *_), parts = self._session.get_inputs(), []
        fixed = declared.shape[0] if isinstance(declared.shape[0], int) else None
        size = fixed or self.batch_size
        for start in range(0, len(images), size):
            batch = self._prepared(images[start : start + size])
            padding = fixed - len(batch) if fixed else 0
            padded = np.concatenate([batch, np.repeat(batch[-1:], padding, axis=0)]) if padding else batch
            vectors = np.asarray(self._session.run(None, {declared.name: padded})[0], dtype=np.float64)
            parts.append(vectors.reshape(len(padded), -1)[: len(batch)])
        vectors = np.concatenate(parts)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0))

    def _prepared(self, images: Matrix) -> Any:
        images = resize_bilinear(images, self.input_size) * self.scale + self.offset
        images = images[..., ::-1] if self.flip_channels else images
        images = images.transpose(0, 3, 1, 2) if self.channels_first else images
        return np.ascontiguousarray(images, dtype=np.float32)


def onnx_embedding(
    session: Any,
    *,
    image_shape: tuple[int, ...],
    input_size: tuple[int, int],
    scale: float,
    offset: float,
    channels_first: bool = True,
    flip_channels: bool = False,
    batch_size: int = 64,
) -> OnnxEmbedding:
    """Return the embedding of a model that ONNX Runtime has open.

    Images are resized to `input_size` by bilinear interpolation, and the model gets pixel · scale + offset, where pixels
    run from 0 to 1.
    """
    embedding = OnnxEmbedding(
        tuple(image_shape), input_size, scale, offset, channels_first, flip_channels, batch_size, session
    )
    n_channels = image_shape[2] if len(image_shape) == 3 else 1
    expected = (n_channels, *input_size) if channels_first else (*input_size, n_channels)
    takes = tuple(session.get_inputs()[0].shape[1:])
    if len(takes) != 3 or any(isinstance(b, int) and a != b for a, b in zip(expected, takes, strict=True)):
        raise InputError(
            "input_size",
            expected=f"such that images are of shape {takes}, as the model takes them",
            got=f"{expected}",
            cure="Set image_shape, input_size and channels_first to what the model was made for.",
        )
    return embedding


def resize_bilinear(images: Matrix, size: tuple[int, int]) -> Matrix:
    """Return images of shape (n, H, W, C) resized by bilinear interpolation between pixel centres.

    Shrinking samples the image and does not average over it.

    Examples
    --------
    >>> resize_bilinear(np.array([[0.0, 1.0]]).reshape(1, 1, 2, 1), (1, 4)).ravel()
    array([0.  , 0.25, 0.75, 1.  ])
    """
    down, across = (_interpolation(old, new) for old, new in zip(images.shape[1:3], size, strict=True))
    resized = np.einsum("ah,nhwc,bw->nabc", down, images, across, optimize=True)
    return np.asarray(resized, dtype=np.float64)


def _interpolation(old: int, new: int) -> Matrix:
    """Return the (new, old) matrix of linear interpolation between pixel centres, constant beyond the outermost ones."""
    centres = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0.0, old - 1.0)
    left = np.minimum(centres.astype(np.int64), max(old - 2, 0))
    weights = np.zeros((new, old))
    weights[np.arange(new), left] = 1.0 - (centres - left)
    weights[np.arange(new), np.minimum(left + 1, old - 1)] += centres - left
    return weights
