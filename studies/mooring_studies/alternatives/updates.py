"""Federated averaging with a small network: what updates and gradients tell of the rows behind them.

Legend: x̃ = (x, 1) a row, h̃ = (h, 1) its hidden units, W₁ and W₂ the weights of both layers, biases as their last rows, δ the
derivative of a row's loss by what enters a layer. The gradient of a row is (x̃ δ₁ᵀ, h̃ δ₂ᵀ), so gradients of many rows are
compared without being formed: ⟨g_i, g_j⟩ = ⟨x̃_i, x̃_j⟩⟨δ₁_i, δ₁_j⟩ + ⟨h̃_i, h̃_j⟩⟨δ₂_i, δ₂_j⟩.

Inversion matches gradients by their cosine (Geiping et al. 2020), with total variation for pictures, and softmaxes for the
categories of tables (Vero et al. 2023). Membership goes by the loss (Yeom et al. 2018), by the alignment of a candidate's
gradient with the update (Nasr et al. 2019), and by a register of all candidates, solved for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve

from mooring.serialization import Record
from mooring.typing import Matrix
from mooring_studies.settings.sections import AtLeastOne, Positive, Scale

Codes = npt.NDArray[np.integer[Any]]
Weights = tuple[Any, Any]
"""W₁ of shape (d + 1, h) and W₂ of shape (h + 1, K), as tensors."""
Step = tuple[Weights, Weights]
"""Weights, and what an update takes off them, or a gradient there."""
EXACT = 1e-8
# Of a candidate's squared gradient: how far an update of several steps is off the one gradient that it is taken for.
_MISFITS = {"register": 1e-2, "register, closer": 1e-3}
_SMALL, _SMALLEST = 1e-8, 1e-300
_FIRST_SCALE, _STEP, _SHARPNESS = 0.3, 0.1, 4.0  # of an inversion: rows to begin with, step size, softmaxes


@dataclass(frozen=True)
class UpdateSettings(Record):
    """How participants train in a round, `small_batch` rows behind a gradient, and how updates are inverted."""

    n_hidden: AtLeastOne
    learning_rate: Positive
    epochs: AtLeastOne
    batch_size: AtLeastOne
    n_rounds: AtLeastOne
    small_batch: AtLeastOne
    n_iterations: AtLeastOne
    total_variation: Scale


@dataclass(frozen=True, eq=False)
class Backpropagated:
    """x̃, δ₁, h̃, δ₂, logits and loss of every row, with any leading axes."""

    inputs: Any
    hidden_errors: Any
    hidden: Any
    output_errors: Any
    logits: Any
    losses: Any

    def gradient(self) -> Weights:
        """The mean over the rows."""
        n = self.inputs.shape[-2]
        return self.inputs.mT @ self.hidden_errors / n, self.hidden.mT @ self.output_errors / n

    def products(self) -> Matrix:
        """⟨g_i, g_j⟩ of all pairs of rows."""
        parts = (self.inputs, self.hidden_errors, self.hidden, self.output_errors)
        first, second, third, fourth = (np.asarray(part @ part.mT) for part in parts)
        return np.asarray(first * second + third * fourth)

    def products_with(self, update: Weights) -> Matrix:
        """⟨g_i, U⟩ of every row."""
        first = ((self.inputs @ update[0]) * self.hidden_errors).sum(-1)
        return np.asarray(first + ((self.hidden @ update[1]) * self.output_errors).sum(-1))


def backpropagate(weights: Weights, rows: Any, codes: Any) -> Backpropagated:
    """Run rows of shape (..., n, d) with classes of shape (..., n), arrays or tensors, through the network and back."""
    import torch

    inputs, codes = _with_constant(torch.as_tensor(rows)), torch.as_tensor(codes)
    entering = inputs @ weights[0]
    hidden = _with_constant(torch.relu(entering))
    logits = hidden @ weights[1]
    logs = torch.log_softmax(logits, dim=-1)
    truth = torch.nn.functional.one_hot(codes, logs.shape[-1]).to(logs.dtype)
    output_errors = logs.exp() - truth
    hidden_errors = (output_errors @ weights[1][..., :-1, :].mT) * (entering > 0)
    return Backpropagated(inputs, hidden_errors, hidden, output_errors, logits, -(logs * truth).sum(-1))


@dataclass(frozen=True, eq=False)
class Round:
    """One round: the weights before it, everybody's after it with a leading axis of participants, and their mean."""

    before: Weights
    local: Weights
    after: Weights

    def step(self, who: Sequence[int]) -> Step:
        """What the mean of some participants' updates takes off the weights."""
        first, second = (
            before - local[list(who)].mean(0) for before, local in zip(self.before, self.local, strict=True)
        )
        return self.before, (first, second)


def federate(
    rows: Matrix, codes: Codes, n_classes: int, settings: UpdateSettings, rng: np.random.Generator
) -> tuple[Round, ...]:
    """Run all rounds of federated averaging over rows of shape (p, n, d) with classes of shape (p, n).

    The generator draws the first weights, which are public, and the order of rows.
    """
    import torch

    sizes, rounds = (rows.shape[2], settings.n_hidden, n_classes), []
    drawn = [
        rng.standard_normal((m + 1, n)) * np.sqrt(k / m) for m, n, k in zip(sizes, sizes[1:], (2, 1), strict=False)
    ]
    weights: Weights = (torch.from_numpy(drawn[0]), torch.from_numpy(drawn[1]))
    for part in weights:
        part[-1] = 0.0  # biases
    for _ in range(settings.n_rounds):
        local = _train_locally(weights, rows, codes, settings, rng)
        rounds.append(Round(weights, local, (local[0].mean(0), local[1].mean(0))))
        weights = rounds[-1].after
    return tuple(rounds)


def _train_locally(
    weights: Weights, rows: Matrix, codes: Codes, settings: UpdateSettings, rng: np.random.Generator
) -> Weights:
    """Everybody's weights after its epochs of stochastic gradient descent."""
    import torch

    p, n = codes.shape
    first, second = (part.expand(p, *part.shape) for part in weights)
    tensor, known = torch.from_numpy(rows), torch.from_numpy(codes)
    for _ in range(settings.epochs):
        order = torch.from_numpy(rng.permuted(np.tile(np.arange(n), (p, 1)), axis=1))
        for batch in torch.split(order, settings.batch_size, dim=1):
            batch_rows = tensor.take_along_dim(batch[..., None], 1), known.take_along_dim(batch, 1)
            step = backpropagate((first, second), *batch_rows).gradient()
            first, second = first - settings.learning_rate * step[0], second - settings.learning_rate * step[1]
    return first, second


def score_members(
    steps: Sequence[Step], rows: Matrix, codes: Codes, *, n_members: int, is_gradient: bool
) -> dict[str, Matrix]:
    """Scores of candidates by every attack on all steps together, higher for those taken for members.

    The register asks for candidates of whom `n_members` are all that are behind the steps. These are gradients, or the
    results of several of them.
    """
    products, seen, alignment = np.zeros((len(rows), len(rows))), np.zeros(len(rows)), np.zeros(len(rows))
    for weights, update in steps:
        backward = backpropagate(weights, rows, codes)
        of_rows, of_step = backward.products(), backward.products_with(update)
        alignment += of_step / np.sqrt(np.maximum(np.diag(of_rows), _SMALLEST))
        products += of_rows
        # As if the step were Σ w_i g_i, w_i being 0 or 1.
        seen += of_step * n_members * of_rows.sum() / (of_step.sum() * len(rows))
    (weights, update) = steps[-1]
    after = np.asarray(backpropagate((weights[0] - update[0], weights[1] - update[1]), rows, codes).losses)
    before = np.asarray(backpropagate(steps[0][0], rows, codes).losses)
    scores = {"loss": -after, "loss drop": before - after, "gradient alignment": alignment}
    misfits = {"register": EXACT} if is_gradient else _MISFITS
    return scores | {
        name: solve_register(products, seen, n_members / len(rows), misfit) for name, misfit in misfits.items()
    }


def solve_register(products: Matrix, seen: Matrix, share: float, misfit: float) -> Matrix:
    """Who of all candidates is in a sum of their vectors, by linear estimate, as `mooring.attacks.sums` has it for sums.

    `products` and `seen` are inner products of the candidates' vectors with each other and with the sum; `share` of the
    candidates are in it, and it may be off by `misfit` of their squared lengths.
    """
    noise = misfit * float(np.diag(products).mean()) / (share * (1 - share))
    left = seen - share * products.sum(axis=1)
    return np.asarray(share + solve(products + noise * np.eye(len(products)), left, assume_a="pos"))


@dataclass(frozen=True, eq=False)
class RowShape:
    """What rows can be: pictures of a shape, or tables with categories of some columns each; other numbers from −1 to 1."""

    image_shape: tuple[int, int] | None = None
    groups: tuple[slice, ...] = ()

    def relax(self, free: Any) -> Any:
        """Rows from free numbers."""
        import torch

        rows = torch.tanh(free)
        for group in self.groups:
            category = torch.softmax(_SHARPNESS * free[..., group], -1)
            rows = torch.cat([rows[..., : group.start], category, rows[..., group.stop :]], -1)
        return rows

    def roughness(self, rows: Any) -> Any:
        """Total variation of pictures: the mean over a group of rows, added up over groups."""
        if self.image_shape is None:
            return 0.0
        pictures = rows.reshape(*rows.shape[:-1], *self.image_shape)
        return sum(pictures.diff(dim=axis).abs().mean((1, 2, 3)).sum() for axis in (-1, -2))


def invert(
    steps: Sequence[Step], codes: Codes, shape: RowShape, settings: UpdateSettings, rng: np.random.Generator
) -> Matrix:
    """Rows of shape (groups, n, d) whose mean gradients point where the updates do, all from the same weights.

    The classes of each group's rows, of shape (groups, n), are taken to be known, in any order.
    """
    import torch

    weights = steps[0][0][0].float(), steps[0][0][1].float()  # half the time of double precision, for the same rows
    wanted = torch.stack([torch.cat([part.flatten() for part in update]) for _, update in steps]).float()
    wanted = wanted / wanted.norm(dim=1, keepdim=True)
    first = _FIRST_SCALE * rng.standard_normal((*codes.shape, weights[0].shape[0] - 1))
    free = torch.from_numpy(first.astype(np.float32))
    mean, square = torch.zeros_like(free), torch.zeros_like(free)
    for k in range(settings.n_iterations):  # Adam; that of torch.optim takes seconds to import
        free = free.detach().requires_grad_()
        rows = shape.relax(free)
        gradients = torch.cat([part.flatten(1) for part in backpropagate(weights, rows, codes).gradient()], 1)
        gaps = 1 - (gradients * wanted).sum(1) / gradients.norm(dim=1)
        (slope,) = torch.autograd.grad(gaps.sum() + settings.total_variation * shape.roughness(rows), free)
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        rate = _STEP * np.cos(np.pi * k / settings.n_iterations / 2) ** 2 / (1 - 0.9 ** (k + 1))
        free = free - rate * mean / (torch.sqrt(square / (1 - 0.999 ** (k + 1))) + _SMALL)
    return np.asarray(shape.relax(free.detach()).double())


def _with_constant(rows: Any) -> Any:
    import torch

    return torch.cat([rows, torch.ones_like(rows[..., :1])], dim=-1)
