"""Training many small networks: one at a time with torch's own modules, against all at once."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from mooring_studies.networks import DIGITS, Schedule, train_ensemble
from mooring_studies.networks.convolution import Architecture, initial_parameters

from mooring.learners import balanced_accuracy
from mooring.randomness import Streams


def module(architecture: Architecture) -> Any:
    """The network in torch's own modules, as the paper's table reads."""
    from torch import nn

    side = ((architecture.side + 2 * architecture.padding - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Unflatten(1, (1, architecture.side, architecture.side)),
        nn.ZeroPad2d(architecture.padding),
        nn.Conv2d(1, 10, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(10, 20, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(20 * side**2, 50),
        nn.ReLU(),
        nn.Linear(50, 1 if architecture.n_classes == 2 else architecture.n_classes),
    )


def one_at_a_time(
    rows: Any,
    labels: Any,
    validation_rows: Any,
    validation_labels: Any,
    *,
    architecture: Architecture,
    streams: Streams,
    schedule: Schedule,
) -> tuple[list[dict[str, Any]], np.ndarray, np.ndarray]:
    """Train member after member by a plain loop: best checkpoints, best epochs (from 1), best validation scores.

    Checkpoints have the names of `mooring_studies.networks.convolution.Architecture.shapes`.
    """
    import torch

    start = initial_parameters(architecture, streams.named("initialisation"))
    binary = architecture.n_classes == 2
    loss = torch.nn.BCEWithLogitsLoss() if binary else torch.nn.CrossEntropyLoss()
    targets = labels.to(rows.dtype) if binary else labels
    checkpoints, best_epochs, best_scores = [], [], []
    for mine, validation in zip(rows, validation_rows, strict=True):
        network = module(architecture).to(rows)
        with torch.no_grad():
            for parameter, values in zip(network.parameters(), start.values(), strict=True):
                parameter.copy_(torch.as_tensor(values))
        optimizer = torch.optim.Adam(network.parameters(), lr=schedule.learning_rate)
        order = streams.named("order")
        checkpoint, best_epoch, best_score = {}, 0, -1.0
        for epoch in range(1, schedule.epochs + 1):
            for batch in torch.as_tensor(order.permutation(len(mine)), device=rows.device).split(schedule.batch_size):
                optimizer.zero_grad()
                logits = network(mine[batch])
                loss(logits[:, 0] if binary else logits, targets[batch]).backward()
                optimizer.step()
            score = _score(predicted(network, validation), validation_labels)
            if score > best_score:
                weights = [parameter.detach().clone() for parameter in network.parameters()]
                checkpoint, best_epoch, best_score = dict(zip(start, weights, strict=True)), epoch, score
        checkpoints.append(checkpoint)
        best_epochs.append(best_epoch)
        best_scores.append(best_score)
    return checkpoints, np.array(best_epochs), np.array(best_scores)


def predicted(network: Any, rows: Any) -> np.ndarray:
    """Classes that a module predicts."""
    import torch

    with torch.no_grad():
        logits = network(rows)
    return np.asarray((logits[:, 0] > 0 if logits.shape[1] == 1 else logits.argmax(dim=1)).cpu().numpy())


def _score(predictions: np.ndarray, labels: Any) -> float:
    truth = labels.cpu().numpy()
    return float(np.mean([np.mean(predictions[truth == label] == label) for label in np.unique(truth)]))


def blobs(architecture: Architecture, n_members: int, n_rows: int, *, seed: int, device: str) -> tuple[Any, Any]:
    """Rows around one centre a class, noisier from member to member, and their labels: a task that can be learned."""
    import torch

    rng = np.random.default_rng(seed)
    generator = torch.Generator(device=device).manual_seed(seed)
    labels = rng.integers(architecture.n_classes, size=n_rows)
    centres = rng.standard_normal((architecture.n_classes, architecture.n_features), dtype=np.float32)
    rows = torch.empty(n_members, n_rows, architecture.n_features, device=device)
    for member, scale in enumerate(np.linspace(1, 4, n_members)):  # one after the other: no second copy of them all
        rows[member].normal_(0, float(scale), generator=generator).add_(torch.as_tensor(centres[labels], device=device))
    return rows, torch.as_tensor(labels, device=device)


def measured(
    *,
    n_members: int | None = None,
    n_rows: int | None = None,
    epochs: int = 3,
    device: str | None = None,
    architecture: Architecture = DIGITS,
    n_alone: int | None = None,
) -> dict[str, Any]:
    """Seconds of both ways for the same members, their ratio, and the largest difference of balanced accuracy.

    On a GPU the obvious way is timed on `n_alone` members only, and its time is taken in proportion.
    """
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device.startswith("cuda")
    n_members, n_rows = n_members or (600 if on_gpu else 8), n_rows or (50_000 if on_gpu else 2_000)
    n_alone = min(n_members, n_alone or (2 if on_gpu else n_members))
    rows, labels = blobs(architecture, n_members, n_rows + n_rows // 5, seed=0, device=device)
    parts = (rows[:, :n_rows], labels[:n_rows], rows[:, n_rows:], labels[n_rows:])
    few = (parts[0][:n_alone], parts[1], parts[2][:n_alone], parts[3])
    settings: dict[str, Any] = {"architecture": architecture, "streams": Streams.for_experiment(0)}
    schedule = Schedule(epochs=epochs)
    small = (rows[:1, :512], labels[:512], rows[:1, :512], labels[:512])
    one_at_a_time(*small, schedule=Schedule(epochs=1), **settings)  # warms the libraries up, for both alike
    train_ensemble(*small, schedule=Schedule(epochs=1), **settings)
    times: list[float] = []
    checkpoints, _, _ = _timed(lambda: one_at_a_time(*few, schedule=schedule, **settings), times, device)
    ensemble = _timed(lambda: train_ensemble(*parts, schedule=schedule, **settings), times, device)
    truth = parts[3].cpu().numpy()
    together = balanced_accuracy(ensemble.predict(parts[2]), truth)[:n_alone]
    alone = []
    for checkpoint, validation in zip(checkpoints, few[2], strict=True):
        network = module(architecture).to(rows)
        torch.nn.utils.vector_to_parameters(torch.cat([v.flatten() for v in checkpoint.values()]), network.parameters())
        alone.append(_score(predicted(network, validation), parts[3]))
    obvious = times[0] * n_members / n_alone
    return {
        "architecture": architecture.name,
        "members": n_members,
        "rows": n_rows,
        "epochs": epochs,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "threads": torch.get_num_threads(),
        "members_timed_alone": n_alone,
        "one_at_a_time_seconds": obvious,
        "ensemble_seconds": times[1],
        "ratio": times[1] / obvious,
        "largest_difference": float(np.abs(together - np.array(alone)).max()),
        "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
    }


def _timed(work: Any, times: list[float], device: str) -> Any:
    import torch

    began = time.perf_counter()
    found = work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    times.append(time.perf_counter() - began)
    return found


if __name__ == "__main__":
    print(measured())
