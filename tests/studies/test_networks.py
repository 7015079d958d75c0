"""Many networks at once learn what each would learn alone, by torch's own modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mooring_studies.networks import DIGITS, FACES, Architecture, Ensemble, Schedule, train_ensemble
from mooring_studies.networks import ensemble as ensembles
from mooring_studies.networks.convolution import PooledConvolution

from benchmarks.training import module, one_at_a_time, predicted
from mooring.randomness import Streams

torch = pytest.importorskip("torch")
Refused = Callable[..., None]
STREAMS = Streams.for_experiment(5)
BOTH = pytest.mark.parametrize("architecture", [DIGITS, FACES], ids=lambda architecture: architecture.name)


def problem(
    architecture: Architecture, *, members: int = 3, n: int = 200, m: int = 90, spread: float = 3.0, dtype: Any = None
) -> tuple[Any, Any, Any, Any]:
    """Rows of their own for every member around one centre a class, with labels; the numbers of classes differ."""
    rng = np.random.default_rng(11)
    centres = rng.standard_normal((architecture.n_classes, architecture.n_features))
    chances = np.arange(1, architecture.n_classes + 1) / np.arange(1, architecture.n_classes + 1).sum()
    labels = rng.choice(architecture.n_classes, size=n + m, p=chances)
    noise = rng.standard_normal((members, n + m, architecture.n_features))
    rows = torch.as_tensor(centres[labels] + spread * noise, dtype=dtype or torch.float64)
    labels = torch.as_tensor(labels)
    return rows[:, :n], labels[:n], rows[:, n:], labels[n:]


def blank(rows: Any, side: int) -> Any:
    """Only four rows and four columns of the picture are kept: most patches are all zeros, and tie."""
    pictures = rows.reshape(*rows.shape[:2], side, side).clone()
    pictures[..., :2, :] = pictures[..., 6:, :] = pictures[..., :3] = pictures[..., 7:] = 0
    return pictures.reshape(rows.shape)


def largest_difference(ensemble: Ensemble, checkpoints: list[dict[str, Any]]) -> float:
    return max(
        float((ensemble.parameters[name][member] - values).abs().max())
        for member, checkpoint in enumerate(checkpoints)
        for name, values in checkpoint.items()
    )


def same(left: Ensemble, right: Ensemble, *, within: float = 1e-12) -> bool:
    close = all(
        torch.allclose(left.parameters[name], right.parameters[name], rtol=0, atol=within) for name in left.parameters
    )
    scores = np.array_equal(left.validation_balanced_accuracy, right.validation_balanced_accuracy)
    return close and scores and np.array_equal(left.best_epoch, right.best_epoch)


@BOTH
@pytest.mark.parametrize(
    ("zeros", "dtype", "within"), [(False, "float64", 1e-9), (True, "float64", 1e-9), (False, "float32", 1e-4)]
)
def test_members_learn_what_torch_modules_learn_one_at_a_time(
    architecture: Architecture, zeros: bool, dtype: str, within: float
) -> None:
    rows, labels, validation, truth = problem(architecture, members=2, n=120, m=60, dtype=getattr(torch, dtype))
    if zeros:
        rows, validation = blank(rows, architecture.side), blank(validation, architecture.side)
    settings: dict[str, Any] = {"architecture": architecture, "streams": STREAMS, "schedule": Schedule(2, 64)}
    together = train_ensemble(rows, labels, validation, truth, **settings)
    checkpoints, best_epochs, best_scores = one_at_a_time(rows, labels, validation, truth, **settings)
    assert together.parameters["output.bias"].dtype == rows.dtype
    assert largest_difference(together, checkpoints) < within
    assert together.best_epoch.tolist() == best_epochs.tolist()
    np.testing.assert_allclose(together.validation_balanced_accuracy, best_scores, atol=1e-12)
    for member, checkpoint in enumerate(checkpoints):
        network = module(architecture).to(rows)
        torch.nn.utils.vector_to_parameters(torch.cat([v.flatten() for v in checkpoint.values()]), network.parameters())
        assert np.array_equal(together.predict(validation)[member], predicted(network, validation[member]))


@pytest.mark.parametrize("in_strips", [True, False])
@pytest.mark.parametrize(("in_channels", "side", "padding"), [(1, 10, 3), (10, 6, 0), (1, 20, 0), (10, 8, 0)])
def test_a_layer_and_its_gradients_are_those_of_torch_also_where_values_tie(
    in_channels: int, side: int, padding: int, in_strips: bool
) -> None:
    """Small whole numbers have no rounding and tie often: the first of the pooling window gets the gradient."""
    rng = np.random.default_rng(2)
    whole = [
        torch.as_tensor(rng.integers(-1, 2, size), dtype=torch.float64)
        for size in ((2, 4, in_channels, side, side), (2, 6, in_channels, 5, 5), (2, 6))
    ]
    inputs, filters, bias = theirs = [values.clone().requires_grad_() for values in whole]
    expected = [
        torch.nn.functional.max_pool2d(torch.nn.functional.conv2d(*member, padding=padding).relu(), 2)
        for member in zip(inputs, filters, bias, strict=True)
    ]
    towards = torch.as_tensor(rng.integers(1, 9, (2, *expected[0].shape)), dtype=torch.float64)
    torch.stack(expected).backward(towards)
    layer = PooledConvolution(in_channels, 6, side, padding, in_strips)
    inputs, filters, bias = ours = [values.clone().requires_grad_() for values in whole]
    matrix = layer.matrix(filters, torch.as_tensor(layer.places()))
    permuted = layer.apply(inputs.permute(0, 2, 3, 4, 1), matrix, bias).permute(0, 4, 1, 2, 3)
    permuted.backward(towards)
    assert torch.equal(permuted, torch.stack(expected))
    assert all(torch.equal(mine.grad, their.grad) for mine, their in zip(ours, theirs, strict=True))


@BOTH
def test_a_member_alone_learns_what_it_learns_among_others(architecture: Architecture) -> None:
    rows, labels, validation, truth = problem(architecture)
    settings: dict[str, Any] = {"architecture": architecture, "streams": STREAMS, "schedule": Schedule(2, 64)}
    together = train_ensemble(rows, labels, validation, truth, **settings)
    others = torch.cat([rows[:1] * 40, rows[1:2], rows[2:] - 3])
    among_others = train_ensemble(others, labels, validation, truth, **settings)
    alone = train_ensemble(rows[1:2], labels, validation[1:2], truth, **settings)
    assert same(together[1], alone)
    assert same(together[1], among_others[1])
    assert not same(together[0], among_others[0])


@BOTH
def test_members_with_labels_of_their_own_learn_what_they_learn_alone(architecture: Architecture) -> None:
    rows, labels, validation, truth = problem(architecture, members=2, n=120, m=60)
    stacked, own_truth = torch.stack([labels, labels.flip(0)]), torch.stack([truth, truth.flip(0)])
    settings: dict[str, Any] = {"architecture": architecture, "streams": STREAMS, "schedule": Schedule(2, 50)}
    together = train_ensemble(rows, stacked, validation, own_truth, **settings)
    for k in range(2):
        alone = train_ensemble(rows[k : k + 1], stacked[k], validation[k : k + 1], own_truth[k], **settings)
        assert same(together[k], alone)
    assert not torch.allclose(together.parameters["output.bias"][0], together.parameters["output.bias"][1])


def test_the_best_checkpoint_is_the_earliest_on_ties() -> None:
    """An easy task is solved long before the last epoch; what is kept is what was there when it was first solved."""
    data = problem(DIGITS, members=2, n=160, m=60, spread=0.1)
    settings: dict[str, Any] = {"architecture": DIGITS, "streams": STREAMS}
    long = train_ensemble(*data, schedule=Schedule(14, 16), **settings)
    assert (long.validation_balanced_accuracy == 1).all()
    assert (long.best_epoch < 13).all()
    for member, epoch in enumerate(long.best_epoch):
        stopped = train_ensemble(*data, schedule=Schedule(int(epoch), 16), **settings)
        assert same(long[member], stopped[member], within=0)
        before = train_ensemble(*data, schedule=Schedule(int(epoch) - 1, 16), **settings)
        assert before.validation_balanced_accuracy[member] < 1


GOOD = problem(DIGITS, n=20, m=10)


@pytest.mark.parametrize(
    ("place", "bad", "what", "expected", "got"),
    [
        (0, GOOD[0][0], "train_rows", "a float tensor of shape (members, rows, 100)", "float64 of shape (20, 100)"),
        (0, GOOD[0][:, :, :99], "train_rows", "", "(3, 20, 99)"),
        (0, GOOD[0].long(), "train_rows", "a float tensor", "int64"),
        (0, GOOD[0].numpy(), "train_rows", "a float tensor", "ndarray"),
        (0, GOOD[0][:0], "train_rows", "", "(0, 20, 100)"),
        (1, GOOD[1][:19], "train_labels", "20 integers from 0 to 9, one a row", "int64 of shape (19,)"),
        (1, GOOD[1] + 1, "train_labels", "", "with other values"),
        (1, GOOD[1].double(), "train_labels", "", "float64"),
        (2, GOOD[2][:2], "validation_rows", "a float tensor of shape (3, rows, 100)", ""),
        (2, GOOD[2][:, :0], "validation_rows", "at least one row", "float64 of shape (3, 0, 100)"),
        (2, GOOD[2].float(), "validation_rows", "torch.float64 on cpu, like train_rows", "torch.float32"),
        (3, GOOD[3] - 9, "validation_labels", "", "with other values"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(
    place: int, bad: Any, what: str, expected: str, got: str, refused: Refused
) -> None:
    data = [*GOOD[:place], bad, *GOOD[place + 1 :]]
    refused(lambda: train_ensemble(*data, architecture=DIGITS, streams=STREAMS), what, expected, got)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@BOTH
def test_steps_recorded_on_a_gpu_are_those_that_are_launched(architecture: Architecture, monkeypatch: Any) -> None:
    data = [tensor.cuda() for tensor in problem(architecture, n=600, dtype=torch.float32)]
    recorded = train_ensemble(*data, architecture=architecture, streams=STREAMS, schedule=Schedule(epochs=3))
    monkeypatch.setattr(ensembles, "_RecordedStep", lambda step: step)
    launched = train_ensemble(*data, architecture=architecture, streams=STREAMS, schedule=Schedule(epochs=3))
    for name, values in launched.parameters.items():
        assert torch.equal(recorded.parameters[name], values)
