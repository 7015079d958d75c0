"""The paper's digit auditor: a small convolutional network, trained once on clean images of digits and then frozen.

The embedding is the last hidden layer, 128 values scaled to length one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mooring.errors import InputError, MissingExtraError
from mooring.metrics.validation import finite_rows, image_rows, require_length, require_minimum, unit_rows
from mooring.typing import Matrix

_EMBEDDING_SIZE = 128
_SMALLEST_SIDE = 4
_BATCH = 1024


@dataclass(frozen=True, eq=False)
class DigitAuditor:
    """The frozen embedding of the digit auditor, made by `train_digit_auditor`."""

    image_side: int
    """Height and width of the images in pixels."""
    validation_accuracy: float
    """Balanced accuracy of the kept checkpoint on the validation images."""
    best_epoch: int
    """The epoch of the kept checkpoint, counted from 1."""
    device: str
    _network: Any = field(repr=False)

    def __call__(self, rows: Matrix, /) -> Matrix:
        """Return one unit vector per row, or zeros where all units of the last layer are zero."""
        torch = _torch()
        images = image_rows("rows", rows, (self.image_side, self.image_side))[..., 0]
        parts = [
            self.embedded(torch.as_tensor(images[start : start + _BATCH], dtype=torch.float32, device=self.device))
            for start in range(0, len(images), _BATCH)
        ]
        return np.asarray(unit_rows(np.concatenate([part.double().cpu().numpy() for part in parts])), dtype=np.float64)

    def embedded(self, images: Any) -> Any:
        """Return unit vectors for a float32 tensor of clamped images, on the auditor's device and in batches."""
        torch = _torch()
        with torch.inference_mode():
            pictures = images.reshape(-1, 1, self.image_side, self.image_side)
            vectors = torch.cat([self._network(part) for part in pictures.split(_BATCH)])
            return torch.nn.functional.normalize(vectors, dim=1)


def train_digit_auditor(
    images: ArrayLike,
    labels: ArrayLike,
    *,
    seed: int,
    device: str | None = None,
    epochs: int = 10,
    batch_size: int = 256,
    learning_rate: float = 1e-3,
    validation_fraction: float = 1 / 6,
) -> DigitAuditor:
    """Train the paper's linkage auditor on clean square images and freeze it (Table mnist_privacy_auditor).

    Training uses Adam and cross-entropy without augmentation. The earliest checkpoint with the best balanced accuracy on a
    stratified validation set is kept. Global random state is not changed.

    Parameters
    ----------
    images : array of shape (n, s · s)
        Clean images of at least 4 × 4 pixels, with values from 0 to 1.
    labels : array of shape (n,)
        Digits that the images show.
    seed : int
        Seed of the validation set, the initial weights and the order of batches.
    device : str, optional
        Device for training and inference; by default CUDA if available, otherwise the CPU.
    epochs, batch_size, learning_rate
        The training schedule; the defaults are the paper's.
    validation_fraction : float
        Share of the images in the validation set, which selects the checkpoint.
    """
    from sklearn.model_selection import train_test_split

    torch = _torch()
    rows = finite_rows("images", images)
    side = math.isqrt(rows.shape[1])
    if side**2 != rows.shape[1] or side < _SMALLEST_SIDE:
        expected = f"square, of at least {_SMALLEST_SIDE} × {_SMALLEST_SIDE} pixels"
        raise InputError("images", expected=expected, got=f"{rows.shape[1]} pixels", cure="Pass each image as one row.")
    for what, value, least in (("seed", seed, 0), ("epochs", epochs, 1), ("batch_size", batch_size, 1)):
        require_minimum(what, value, least)
    names, codes = np.unique(require_length("labels", labels, n_rows=len(rows)), return_inverse=True)
    n_held_out = round(validation_fraction * len(rows))
    if len(names) < 2 or np.bincount(codes).min() < 2 or not len(names) <= n_held_out <= len(rows) - len(names):
        raise InputError(
            "labels",
            expected="of two or more digits, each with enough images for training and validation",
            got=f"{len(names)} digits on {len(rows)} images, {n_held_out} held out",
            cure="Pass more images of at least two digits, or change validation_fraction.",
        )
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    kept, held_out = train_test_split(np.arange(len(rows)), test_size=n_held_out, stratify=codes, random_state=seed)
    clamped = torch.as_tensor(rows.clip(0.0, 1.0).reshape(-1, 1, side, side), dtype=torch.float32)
    embedding, head = _untrained_network(torch, side, len(names), seed)
    network = torch.nn.Sequential(embedding, head).to(device)
    x, y = clamped[kept].to(device), torch.as_tensor(codes[kept], device=device)
    x_held_out = clamped[held_out].to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)
    order = torch.Generator().manual_seed(seed)
    best, best_epoch, checkpoint = -math.inf, 0, {}
    for epoch in range(1, epochs + 1):
        for batch in torch.randperm(len(x), generator=order).to(device).split(batch_size):
            optimiser.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
            optimiser.step()
        with torch.inference_mode():
            answers = torch.cat([network(part).argmax(dim=1) for part in x_held_out.split(_BATCH)]).cpu().numpy()
        right = np.bincount(codes[held_out], weights=answers == codes[held_out]) / np.bincount(codes[held_out])
        if right.mean() > best:
            best, best_epoch = float(right.mean()), epoch
            checkpoint = {name: value.detach().clone() for name, value in embedding.state_dict().items()}
    embedding.load_state_dict(checkpoint)
    return DigitAuditor(side, best, best_epoch, device, embedding.eval().requires_grad_(False))


def _untrained_network(torch: Any, side: int, n_classes: int, seed: int) -> tuple[Any, Any]:
    """Return the paper's layers with PyTorch's default initialisation, always drawn on the CPU."""
    nn, pooled = torch.nn, side // 2 // 2
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        embedding = nn.Sequential(
            *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(64 * pooled**2, _EMBEDDING_SIZE), nn.ReLU()),
        )
        return embedding, nn.Linear(_EMBEDDING_SIZE, n_classes)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError(needed_for="The digit auditor", package="torch", extra="torch") from None
    return torch
