"""The face auditor: a frozen recognition model in an ONNX file, from rows of 64×64 colour images to unit vectors.

The paper's auditor (Inception-ResNet-v1, trained on VGGFace2) is not the one used here: this is ArcFace's MobileFaceNet
(w600k_mbf.onnx), which takes 112×112 pixels, red first, scaled from −1 to 1. It is for non-commercial research only.

ONNX Runtime runs it on the CPU. On a GPU, a frozen network of the six kinds of layers that MobileFaceNet has is read from
the same file and computed by PyTorch. Before it is used it must agree with ONNX Runtime; a model with other layers stays on
the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mooring.typing import Array
from mooring_studies.data.downloads import cut_short, missing
from mooring_studies.data.faces import IMAGE_SHAPE
from mooring_studies.data.onnx_embedding import OnnxEmbedding, onnx_embedding

FILE_NAME = "w600k_mbf.onnx"
REFERENCE_CHECKSUM = "9cc6e4a75f0e2bf0b1aed94578f144d15175f357bdc05e815e5c4a02b319eb4f"
INPUT_SIZE = (112, 112)

Layer = Callable[..., Array]

_PROBES = 8
_REPEATS = 4  # many at once take other ways through a GPU's libraries than one
_MOST_APART = 1e-4  # in any coordinate of a unit vector; float32 rounds to about 1e-6 here


def open_face_model(path: Path, *, n_threads: int | None = None) -> OnnxEmbedding:
    """Return a face model on the CPU, which turns rows of 64 × 64 × 3 pixels in [0, 1] into unit vectors."""
    return onnx_embedding(
        _open(Path(path), n_threads),
        image_shape=IMAGE_SHAPE,
        input_size=INPUT_SIZE,
        scale=2.0,  # (x − 127.5) / 127.5 on bytes is 2 x − 1 on pixels from 0 to 1
        offset=-1.0,
    )


def _open(path: Path, n_threads: int | None) -> Any:
    import onnxruntime

    if not path.is_file():
        raise missing(f"faces/{FILE_NAME}", looked_in=str(path))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # a library does not write to its user's terminal; failures are raised
    if n_threads is not None:
        options.intra_op_num_threads = n_threads
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception:  # ONNX Runtime has no common class for what it raises on a damaged file
        raise cut_short(path, "faces", reason="it is no ONNX model, or one without its end") from None


@dataclass(frozen=True, eq=False)
class FaceModelOnGpu:
    """A face model whose layers PyTorch computes; made by `face_model_on_gpu`."""

    steps: list[tuple[Layer, list[str], str, list[str]]] = field(repr=False)
    """In the order of the file; names stand for what passes between layers."""
    first: str
    last: str
    """Names of the pixels that go in and of the vectors that come out."""
    faces_at_once: int = 1024
    """How many faces go through the layers together."""

    def __call__(self, images: Array) -> Array:
        """Turn images of shape (n, 12288), float32 in [0, 1], into unit vectors of shape (n, k), on their device."""
        import torch

        every_digit = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)  # TF32 keeps ten bits of twenty-three
        with torch.no_grad(), every_digit:
            parts = [self._vectors(part) for part in images.split(self.faces_at_once)]
            vectors = torch.cat(parts)
            return vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True)

    def _vectors(self, images: Array) -> Array:
        from torch.nn.functional import interpolate

        pixels = images.reshape(-1, *IMAGE_SHAPE).movedim(3, 1)
        held = {self.first: interpolate(pixels, INPUT_SIZE, mode="bilinear", align_corners=False) * 2 - 1}
        for layer, inputs, output, done in self.steps:
            held[output] = layer(*(held[name] for name in inputs))
            for name in done:
                del held[name]
        return held[self.last].flatten(1)


def face_model_on_gpu(path: Path, *, like: OnnxEmbedding, device: str) -> FaceModelOnGpu | None:
    """Return a face model for a GPU; None if it has other kinds of layers, or other vectors than the one on the CPU."""
    import torch

    probes = np.random.default_rng(0).random((_PROBES, int(np.prod(IMAGE_SHAPE))), dtype=np.float32)
    expected = like(np.asarray(probes, dtype=np.float64))
    try:
        model = _read(path, device)
        if model is None:
            return None
        on_gpu = model(torch.as_tensor(np.tile(probes, (_REPEATS, 1)), device=device)).cpu().numpy()
    except (
        RuntimeError,
        TypeError,
        ValueError,
    ):  # layers of a known kind that are put together as PyTorch does not allow
        return None
    expected = np.tile(expected, (_REPEATS, 1))
    agree = on_gpu.shape == expected.shape and bool((np.abs(on_gpu - expected) <= _MOST_APART).all())
    return model if agree else None


def _read(path: Path, device: str) -> FaceModelOnGpu | None:
    import onnx
    import torch

    graph = onnx.load(path).graph
    weights = {
        tensor.name: torch.as_tensor(np.array(onnx.numpy_helper.to_array(tensor)), device=device)
        for tensor in graph.initializer
    }
    free = [tensor.name for tensor in graph.input if tensor.name not in weights]
    if len(free) != 1:
        return None
    last_use = {name: k for k, node in enumerate(graph.node) for name in node.input}
    steps = []
    for k, node in enumerate(graph.node):
        settings = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        inputs = [name for name in node.input if name not in weights]
        given = [weights[name] for name in node.input if name in weights]
        make = _LAYERS.get(node.op_type)
        layer = None if make is None or node.domain or len(node.output) != 1 else make(given, settings, len(inputs))
        if layer is None:
            return None
        done = [name for name in dict.fromkeys(inputs) if last_use[name] == k and name != graph.output[0].name]
        steps.append((layer, inputs, node.output[0], done))
    return FaceModelOnGpu(steps, free[0], graph.output[0].name)


def _convolution(weights: list[Array], settings: dict[str, Any], n_inputs: int) -> Layer | None:
    """A convolution in two dimensions; one without groups as a product of matrices, which no GPU rounds to fewer digits."""
    from torch.nn import functional

    pads = tuple(settings.get("pads", (0, 0, 0, 0)))
    padded = settings.get("auto_pad", b"NOTSET") != b"NOTSET"
    if n_inputs != 1 or not weights or weights[0].ndim != 4 or pads[:2] != pads[2:] or padded:
        return None
    kernel, bias = weights[0], weights[1] if len(weights) > 1 else None
    how: dict[str, Any] = {
        "stride": tuple(settings.get("strides", (1, 1))),
        "padding": pads[:2],
        "dilation": tuple(settings.get("dilations", (1, 1))),
    }
    groups = int(settings.get("group", 1))
    if groups > 1:
        return partial(functional.conv2d, weight=kernel, bias=bias, groups=groups, **how)
    return partial(_as_product, kernel=kernel, bias=bias, **how)


def _as_product(images: Array, *, kernel: Array, bias: Array | None, stride: Any, padding: Any, dilation: Any) -> Array:
    from torch.nn.functional import unfold

    size = kernel.shape[2:]
    plain = tuple(size) == (1, 1) and stride == (1, 1) and padding == (0, 0)
    patches = images.flatten(2) if plain else unfold(images, size, dilation=dilation, padding=padding, stride=stride)
    product = kernel.flatten(1) @ patches
    if bias is not None:
        product += bias[:, None]
    across = [
        (extent + 2 * pad - gap * (side - 1) - 1) // step + 1
        for extent, pad, gap, side, step in zip(images.shape[2:], padding, dilation, size, stride, strict=True)
    ]
    return product.reshape(len(images), kernel.shape[0], *across)


def _prelu(weights: list[Array], settings: dict[str, Any], n_inputs: int) -> Layer | None:
    from torch.nn.functional import prelu

    if n_inputs != 1 or len(weights) != 1:
        return None
    slope = weights[0]
    return partial(prelu, weight=slope.flatten()) if slope.shape[1:].numel() == 1 else None


def _sum(weights: list[Array], settings: dict[str, Any], n_inputs: int) -> Layer | None:
    import torch

    return torch.add if n_inputs == 2 else None


def _flatten(weights: list[Array], settings: dict[str, Any], n_inputs: int) -> Layer | None:
    return (lambda images: images.flatten(1)) if n_inputs == 1 and settings.get("axis", 1) == 1 else None


def _linear(weights: list[Array], settings: dict[str, Any], n_inputs: int) -> Layer | None:
    from torch.nn.functional import linear

    plain = settings.get("alpha", 1.0) == settings.get("beta", 1.0) == 1.0 and not settings.get("transA", 0)
    if n_inputs != 1 or len(weights) != 2 or not plain:
        return None
    matrix, bias = weights
    return partial(linear, weight=matrix if settings.get("transB", 0) else matrix.T, bias=bias)


def _normalisation(weights: list[Array], settings: dict[str, Any], n_inputs: int) -> Layer | None:
    from torch.nn.functional import batch_norm

    if n_inputs != 1 or len(weights) != 4 or settings.get("training_mode", 0):
        return None
    scale, shift, mean, variance = weights
    how = {"weight": scale, "bias": shift, "running_mean": mean, "running_var": variance}
    return partial(batch_norm, **how, eps=settings.get("epsilon", 1e-5))


_LAYERS: dict[str, Callable[[list[Array], dict[str, Any], int], Layer | None]] = {
    "Conv": _convolution,
    "PRelu": _prelu,
    "Add": _sum,
    "Flatten": _flatten,
    "Gemm": _linear,
    "BatchNormalization": _normalisation,
}
