"""The paper's convolutional network, and the forward pass of many of them at once as few large matrix products.

A GPU is slow at many small convolutions and fast at batches of matrix products. So a layer's filters are laid out as a
matrix: one column an input cell, one row an output cell, a filter's weight where the one reaches the other, zero
elsewhere. A third to four fifths of the products are with zeros; in exchange hardly any memory is moved, which is what
such a layer waits for. Rows are ordered by their place in the pooling window, so that pooling is a maximum of four slices.
The minibatch is the last axis throughout: what one layer gives is, without a copy, what the next one takes.

Legend
------
E members, O and C channels out and in, B rows of a minibatch, S the places of the taps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.typing import Array

FILTER = 5
"""Side of a filter."""
_POOL = 2
_FILTERS, _HIDDEN = (10, 20), 50


@dataclass(frozen=True)
class PooledConvolution:
    """The plan of one layer: which input cells its matrix sees, and where the filter's weights stand in it."""

    in_channels: int
    out_channels: int
    side: int
    """Side of the square input."""
    padding: int
    """Zeros around the input."""
    in_strips: bool
    """With True the matrix computes one pooled column from the six input columns under it, and is used once a
    pooled column. With False it computes all of them from the whole input: more zeros, but no overlapping
    copies."""

    @property
    def pooled_side(self) -> int:
        """Side of what comes out."""
        return (self.side + 2 * self.padding - FILTER + 1) // _POOL

    @property
    def n_strips(self) -> int:
        """How often the matrix is used on one input."""
        return self.pooled_side if self.in_strips else 1

    @property
    def window(self) -> int:
        """Columns of the padded input that the matrix sees."""
        return _POOL + FILTER - 1 if self.in_strips else self.side + 2 * self.padding

    def places(self) -> npt.NDArray[np.float64]:
        """S of shape (25, cells): 1 where a tap joins an input cell to an output cell.

        Cells are ordered (window row, window column, pooled row, pooled column; input row, input column). Padding above
        and below the input has no cells: products with it are left out.
        """
        columns = self.pooled_side // self.n_strips
        dy, dx, i, j, y, x = np.ogrid[:_POOL, :_POOL, : self.pooled_side, :columns, : self.side, : self.window]
        tap_row, tap_column = y + self.padding - (_POOL * i + dy), x - (_POOL * j + dx)
        inside = (tap_row >= 0) & (tap_row < FILTER) & (tap_column >= 0) & (tap_column < FILTER)
        taps = np.where(inside, tap_row * FILTER + tap_column, -1).reshape(-1)
        return np.asarray(np.arange(FILTER * FILTER)[:, None] == taps, dtype=np.float64)

    def matrix(self, filters: Array, places: Array) -> Array:
        """Lay filters of shape (E, O, C, 5, 5) out as (E, 4·outputs, inputs), given `places` as a tensor."""
        E, O, C = filters.shape[:3]
        # A product with 0 and 1 rather than an index: exact, and its gradient needs no unordered sums on a GPU.
        laid = (filters.reshape(E, O * C, FILTER * FILTER) @ places).reshape(
            E, O, C, _POOL * _POOL, -1, self.side * self.window
        )
        return laid.permute(0, 3, 1, 4, 2, 5).reshape(E, -1, C * self.side * self.window)

    def apply(self, inputs: Array, matrix: Array, bias: Array) -> Array:
        """Convolve, pool, add the bias and rectify: (E, C, side, side, B) to (E, O, pooled, pooled, B)."""
        import torch

        E, B, O = inputs.shape[0], inputs.shape[-1], self.out_channels
        if self.padding:
            inputs = torch.nn.functional.pad(inputs, (0, 0, self.padding, self.padding))
        if self.in_strips:
            inputs = inputs.unfold(3, self.window, _POOL).permute(0, 1, 2, 5, 3, 4)
        sums = torch.bmm(matrix, inputs.reshape(E, matrix.shape[2], self.n_strips * B))
        pooled = _pooling().apply(sums.view(E, _POOL * _POOL, O, -1), bias)
        return pooled.view(E, O, self.pooled_side, self.pooled_side, B)


@dataclass(frozen=True)
class Architecture:
    """The network's shape: two layers of 5×5 filters with pooling, a hidden layer of 50, and the output."""

    name: str
    side: int
    """A row of side² features is read as a square picture."""
    padding: int
    """Zeros put around it."""
    n_classes: int
    """Classes, numbered from 0. Two classes have one logit and binary cross-entropy."""

    @property
    def n_features(self) -> int:
        """Features of a row, h."""
        return self.side**2

    @property
    def n_outputs(self) -> int:
        """Logits."""
        return 1 if self.n_classes == 2 else self.n_classes

    @property
    def layers(self) -> tuple[PooledConvolution, PooledConvolution]:
        """Both convolutions. The second has little to gain from strips, and without them needs no copies."""
        first = PooledConvolution(1, _FILTERS[0], self.side, self.padding, in_strips=True)
        return first, PooledConvolution(*_FILTERS, first.pooled_side, 0, in_strips=False)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every parameter's shape in one member, in the order in which they are drawn."""
        flat = _FILTERS[1] * self.layers[1].pooled_side ** 2
        return {
            "convolution1.weight": (_FILTERS[0], 1, FILTER, FILTER),
            "convolution1.bias": (_FILTERS[0],),
            "convolution2.weight": (_FILTERS[1], _FILTERS[0], FILTER, FILTER),
            "convolution2.bias": (_FILTERS[1],),
            "hidden.weight": (_HIDDEN, flat),
            "hidden.bias": (_HIDDEN,),
            "output.weight": (self.n_outputs, _HIDDEN),
            "output.bias": (self.n_outputs,),
        }


DIGITS = Architecture("digits", 10, 3, 10)
"""The paper's network for MNIST, on 100 features."""
FACES = Architecture("faces", 20, 0, 2)
"""The paper's network for CelebA, on 400 features."""


def initial_parameters(architecture: Architecture, rng: np.random.Generator) -> dict[str, npt.NDArray[np.float64]]:
    """Draw one network's parameters by torch's default scheme: uniform within ±1/√fan_in, weights and biases alike."""
    drawn, bound = {}, 0.0
    for name, shape in architecture.shapes().items():
        if name.endswith("weight"):  # the bias that follows has its weight's bound
            bound = 1 / math.sqrt(math.prod(shape[1:]))
        drawn[name] = rng.uniform(-bound, bound, shape)
    return drawn


class Network:
    """Forward passes of many members: an architecture, with what it needs on a device."""

    def __init__(self, architecture: Architecture, like: Array) -> None:
        import torch

        self._layers = architecture.layers
        self._places = [torch.as_tensor(layer.places()).to(like) for layer in self._layers]
        self._side = architecture.side

    def laid_out(self, parameters: dict[str, Array]) -> dict[str, Array]:
        """Parameters with both layers' filters as matrices: once for any number of forward passes."""
        ready = dict(parameters)
        for number, (layer, places) in enumerate(zip(self._layers, self._places, strict=True), start=1):
            ready[f"convolution{number}.weight"] = layer.matrix(parameters[f"convolution{number}.weight"], places)
        return ready

    def logits(self, rows: Array, ready: dict[str, Array]) -> Array:
        """Logits of shape (E, outputs, B) from rows of shape (E, B, h) and what `laid_out` gave."""
        import torch

        E, B, _ = rows.shape
        maps = rows.transpose(1, 2).contiguous().view(E, 1, self._side, self._side, B)
        for number, layer in enumerate(self._layers, start=1):
            maps = layer.apply(maps, ready[f"convolution{number}.weight"], ready[f"convolution{number}.bias"])
        hidden = torch.baddbmm(ready["hidden.bias"][:, :, None], ready["hidden.weight"], maps.reshape(E, -1, B)).relu()
        return torch.baddbmm(ready["output.bias"][:, :, None], ready["output.weight"], hidden)


@cache
def _pooling() -> Any:
    """The maximum over the pooling window, plus the bias, rectified: a torch function with its own gradient.

    The bias and ReLU come after the maximum: both are monotone, so the result is the same and a quarter of the work.
    Among equal values the first of the window gets the gradient, as in torch's MaxPool2d.
    """
    import torch

    class Pooling(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, sums: Array, bias: Array) -> Array:
            largest = sums.amax(dim=1)
            outputs = (largest + bias[:, :, None]).relu_()
            context.save_for_backward(sums, largest, outputs)
            return outputs

        @staticmethod
        def backward(context: Any, *gradients: Array) -> Any:
            sums, largest, outputs = context.saved_tensors
            gradient = torch.where(outputs > 0, gradients[0], 0.0)
            first = sums == largest[:, None]
            taken = first[:, 0]
            for place in range(1, _POOL * _POOL):
                here = first[:, place]
                here &= ~taken
                taken = taken | here
            return torch.where(first, gradient[:, None], 0.0), gradient.sum(dim=2)

    return Pooling
