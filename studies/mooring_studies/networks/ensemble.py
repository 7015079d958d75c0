"""The paper's small convolutional network, trained for many data sets at once.

A study trains hundreds of networks that differ in their data only: same architecture, same first weights, same order of
minibatches. Here they train side by side, each parameter carrying a leading axis of members. What one member learns does
not depend on the others, up to rounding.

Legend
------
E members, n and m rows, h features, B rows of a minibatch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring import InputError, MissingExtraError, Streams
from mooring.geometry import is_out_of_memory
from mooring.learners import balanced_accuracy
from mooring.typing import Array
from mooring_studies.networks.convolution import Architecture, Network, initial_parameters

_ROWS_AT_ONCE = 512  # of each member, in prediction: less memory than a training step of 256 needs


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trained networks, each at its best epoch."""

    architecture: Architecture
    parameters: dict[str, Array]
    """By the names of `Architecture.shapes`, with a leading axis of members."""
    best_epoch: npt.NDArray[np.int64]
    """From 1; the earliest of those with the best validation score."""
    validation_balanced_accuracy: npt.NDArray[np.float64]
    """At that epoch."""

    def __len__(self) -> int:
        return int(self.best_epoch.size)

    def predict(self, rows: Array) -> npt.NDArray[np.int64]:
        """Predict classes, of shape (E, m), of each member's own rows (E, m, h) or of rows that all share (m, h)."""
        shared = rows.ndim == 2
        rows = rows[None] if shared else rows
        _check_rows("rows", rows, self.architecture, None if shared else len(self))
        return _predicted(self.architecture, self.parameters, rows)

    def __getitem__(self, member: int) -> Ensemble:
        """One member, as an ensemble of its own."""
        if not -len(self) <= member < len(self):
            raise IndexError(f"There is no member {member} in an ensemble of {len(self)}.")
        at = slice(member % len(self), member % len(self) + 1)
        parameters = {name: values[at] for name, values in self.parameters.items()}
        return Ensemble(self.architecture, parameters, self.best_epoch[at], self.validation_balanced_accuracy[at])


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train. The defaults are the paper's."""

    epochs: int = 15
    batch_size: int = 256
    """The last minibatch of an epoch may be shorter."""
    learning_rate: float = 1e-3
    """Adam's; its other settings are torch's defaults."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                got = str(getattr(self, name))
                raise InputError(name, expected="at least 1", got=got, cure="The paper's are 15 epochs of 256.")
        if not 0 < self.learning_rate < float("inf"):
            got = str(self.learning_rate)
            raise InputError("learning_rate", expected="positive", got=got, cure="The paper's is 0.001.")


def train_ensemble(
    train_rows: Array,
    train_labels: Array,
    validation_rows: Array,
    validation_labels: Array,
    *,
    architecture: Architecture,
    streams: Streams,
    schedule: Schedule | None = None,
) -> Ensemble:
    """Train one network a member, all at once, and keep each at its best epoch.

    Rows have shape (E, n, h); labels have shape (n,), the same for all members, or (E, n).

    Random numbers come from NumPy, so every device starts from the same weights in the same order; results then differ by
    the rounding of its arithmetic. Where memory does not suffice, the members are trained in halves, one after the other.

    Examples
    --------
    >>> import torch
    >>> from mooring_studies.networks import DIGITS
    >>> rows = torch.zeros(2, 20, 100)
    >>> rows[:, 10:] = 1.0
    >>> labels = torch.arange(20) // 10
    >>> trained = train_ensemble(
    ...     rows, labels, rows, labels, architecture=DIGITS, streams=Streams.for_experiment(0), schedule=Schedule(epochs=40)
    ... )
    >>> trained.validation_balanced_accuracy.tolist()
    [1.0, 1.0]
    """
    torch, schedule = _torch(), schedule or Schedule()
    _check_rows("train_rows", train_rows, architecture, None)
    _check_rows("validation_rows", validation_rows, architecture, train_rows.shape[0])
    if (validation_rows.dtype, validation_rows.device) != (train_rows.dtype, train_rows.device):
        got = f"{validation_rows.dtype} on {validation_rows.device}"
        expected = f"{train_rows.dtype} on {train_rows.device}, like train_rows"
        raise InputError("validation_rows", expected=expected, got=got, cure="Convert them with .to(train_rows).")
    codes = _checked_labels("train_labels", train_labels, train_rows.shape[:2], architecture)
    truth = _checked_labels("validation_labels", validation_labels, validation_rows.shape[:2], architecture)
    on_device = torch.as_tensor(codes, device=train_rows.device)

    def trained(first: int, end: int) -> list[Ensemble]:
        rows = slice(first, end)
        data = (
            train_rows[rows],
            on_device if on_device.ndim == 1 else on_device[rows],
            validation_rows[rows],
            truth if truth.ndim == 1 else truth[rows],
        )
        try:
            return [_trained(*data, architecture=architecture, streams=streams, schedule=schedule)]
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if end - first == 1:
                raise InputError(
                    "batch_size",
                    expected="small enough for one member's training step to fit into memory",
                    got=str(schedule.batch_size),
                    cure="Use a device with more memory, pass fewer members' rows at a time, or fewer rows a minibatch "
                    "(in the file of a study, batch_size under [network]).",
                ) from error
        # Outside the handler: the error keeps the failed step's tensors alive until it is gone.
        if train_rows.device.type == "cuda":
            torch.cuda.empty_cache()
        middle = (first + end) // 2
        return trained(first, middle) + trained(middle, end)

    return _joined(trained(0, train_rows.shape[0]))


def _trained(
    train_rows: Array,
    train_labels: Array,
    validation_rows: Array,
    validation_labels: npt.NDArray[np.int64],
    *,
    architecture: Architecture,
    streams: Streams,
    schedule: Schedule,
) -> Ensemble:
    """Train all members at once, whatever memory that takes."""
    torch = _torch()
    E, n = train_rows.shape[:2]
    on_gpu = train_rows.device.type == "cuda"
    network = Network(architecture, train_rows)
    parameters = {
        name: torch.as_tensor(values).to(train_rows).repeat(E, *[1] * values.ndim).requires_grad_()
        for name, values in initial_parameters(architecture, streams.named("initialisation")).items()
    }
    best = {name: values.detach().clone() for name, values in parameters.items()}
    best_epoch, best_score = np.zeros(E, dtype=np.int64), np.full(E, -1.0)
    optimizer = torch.optim.Adam(parameters.values(), lr=schedule.learning_rate, fused=on_gpu, capturable=on_gpu)

    def step(batch: Array) -> None:
        optimizer.zero_grad()
        logits = network.logits(train_rows.index_select(1, batch), network.laid_out(parameters))
        logits.backward(_loss_gradient(logits.detach(), train_labels[..., batch]))
        optimizer.step()

    take_step = _RecordedStep(step) if on_gpu else step
    order = streams.named("order")
    for epoch in range(1, schedule.epochs + 1):
        chosen = torch.as_tensor(order.permutation(n), device=train_rows.device)
        for batch in chosen.split(schedule.batch_size):
            take_step(batch)
        score = balanced_accuracy(_predicted(architecture, parameters, validation_rows), validation_labels)
        better = score > best_score  # strictly: the earliest epoch wins a tie
        best_score[better], best_epoch[better] = score[better], epoch
        where = torch.as_tensor(np.flatnonzero(better), device=train_rows.device)
        for name, values in best.items():
            values[where] = parameters[name].detach()[where]
    return Ensemble(architecture, best, best_epoch, best_score)


class _RecordedStep:
    """A training step on a GPU, recorded as a graph for each length of minibatch and replayed from then on.

    A step is some sixty kernels. Launched one by one, a few small networks wait for the host most of the time.
    """

    def __init__(self, step: Callable[[Array], None]) -> None:
        self._step = step
        self._recorded: dict[int, tuple[Any, Array]] = {}  # graph and the minibatch that it reads, by length
        self._stream = _torch().cuda.Stream()
        # The thread that computes gradients has no CUDA context yet, of which cuBLAS, but no other kernel, would warn.
        _torch().zeros(1, device="cuda", requires_grad=True).exp().sum().backward()

    def __call__(self, batch: Array) -> None:
        """Take the step; the first of each length is launched as usual, which the recording needs to be set up."""
        torch, current = _torch(), _torch().cuda.current_stream()
        if len(batch) in self._recorded:
            graph, place = self._recorded[len(batch)]
            place.copy_(batch)
            graph.replay()
            return
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            self._step(batch)
        current.wait_stream(self._stream)
        graph, place = torch.cuda.CUDAGraph(), batch.clone()
        # The auditor may use the GPU from a thread of its own meanwhile.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            self._step(place)
        self._recorded[len(batch)] = graph, place


def _loss_gradient(logits: Array, labels: Array) -> Array:
    """The gradient at logits (E, outputs, B) of the sum over members of the mean cross-entropy over rows.

    With a sum over members each gets its own gradient. The loss itself is not needed. Labels are (B,) or (E, B).
    """
    if logits.shape[1] == 1:
        return (logits.sigmoid() - labels.unsqueeze(-2)) / labels.shape[-1]
    wanted = _torch().nn.functional.one_hot(labels, logits.shape[1]).transpose(-1, -2)
    return (logits.softmax(dim=1) - wanted) / labels.shape[-1]


def _predicted(architecture: Architecture, parameters: dict[str, Array], rows: Array) -> npt.NDArray[np.int64]:
    torch, like = _torch(), parameters["output.weight"]
    E, m = like.shape[0], rows.shape[1]
    predicted = torch.empty((E, m), dtype=torch.uint8, device=like.device)  # small, for the way to the host
    network = Network(architecture, like)
    with torch.no_grad():
        ready = network.laid_out(parameters)
        for first in range(0, m, _ROWS_AT_ONCE):
            part = slice(first, first + _ROWS_AT_ONCE)
            logits = network.logits(rows[:, part].to(like).expand(E, -1, -1), ready)
            predicted[:, part] = logits[:, 0] > 0 if architecture.n_outputs == 1 else logits.argmax(dim=1)
    return np.asarray(predicted.cpu().numpy().astype(np.int64))


def _joined(parts: list[Ensemble]) -> Ensemble:
    if len(parts) == 1:
        return parts[0]
    names = parts[0].parameters
    return Ensemble(
        parts[0].architecture,
        {name: _torch().cat([part.parameters[name] for part in parts]) for name in names},
        np.concatenate([part.best_epoch for part in parts]),
        np.concatenate([part.validation_balanced_accuracy for part in parts]),
    )


def _check_rows(what: str, rows: Array, architecture: Architecture, n_members: int | None) -> None:
    torch, h = _torch(), architecture.n_features
    members = "members" if n_members is None else str(n_members)
    is_tensor = isinstance(rows, torch.Tensor)
    fits = is_tensor and rows.ndim == 3 and rows.shape[2] == h and 0 not in rows.shape
    if not fits or rows.shape[0] != (n_members or rows.shape[0]) or not rows.is_floating_point():
        raise InputError(
            what,
            expected=f"a float tensor of shape ({members}, rows, {h}), with at least one row",
            got=f"{str(rows.dtype).removeprefix('torch.')} of shape {tuple(rows.shape)}"
            if is_tensor
            else type(rows).__name__,
            cure=f"The architecture {architecture.name!r} reads {h} features as a {architecture.side} × "
            f"{architecture.side} picture.",
        )


def _checked_labels(
    what: str, labels: Any, shape: tuple[int, int], architecture: Architecture
) -> npt.NDArray[np.int64]:
    codes = np.asarray(labels.cpu() if hasattr(labels, "cpu") else labels)
    whole = codes.dtype.kind in "iub" and tuple(codes.shape) in (shape[1:], tuple(shape))
    if not whole or codes.min() < 0 or codes.max() >= architecture.n_classes:
        raise InputError(
            what,
            expected=f"{shape[1]} integers from 0 to {architecture.n_classes - 1}, one a row",
            got=f"{codes.dtype} of shape {codes.shape}" + (" with other values" if whole else ""),
            cure="Number the classes from 0; all members share the labels, or each has a row of its own.",
        )
    return codes.astype(np.int64)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError(needed_for="training the paper's networks", package="torch", extra="torch") from None
    return torch
