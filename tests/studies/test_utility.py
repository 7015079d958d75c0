"""Networks of an image study: those without protection get the best of every way; and what runs beside and in pieces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mooring_studies.images import utility
from mooring_studies.images.deployment import SPLITS, Deployment, deployed
from mooring_studies.images.execution import BackgroundTask, pieces_that_fit
from mooring_studies.images.utility import scored, trained, without_protection
from mooring_studies.networks import DIGITS, Schedule

from mooring.randomness import Streams

torch = pytest.importorskip("torch")
H = 100
TRAINING = Schedule(epochs=2, batch_size=20)


def deployment_of(train: Sequence[int]) -> Deployment:
    """Participants with so many training rows, of ten classes around centres of their own."""
    rng = np.random.default_rng(3)
    centres = 2 * rng.standard_normal((10, H))
    parts: dict[Any, list[Any]] = {}
    labels: dict[Any, list[Any]] = {}
    for split in SPLITS:
        sizes = train if split == "train" else [20] * len(train)
        labels[split] = [rng.permutation(np.arange(size) % 10) for size in sizes]
        parts[split] = [5 + centres[codes] + rng.standard_normal((len(codes), H)) for codes in labels[split]]
    streams = Streams.for_experiment(2)
    return deployed(parts, labels, np.arange(3), n_anchor_rows=H + 1, streams=streams, device="cpu")


class Trainer:
    """In place of training: remembers what it is given, and says which way validates best."""

    def __init__(self, validation: Sequence[float]) -> None:
        self.validation, self.calls = list(validation), list[SimpleNamespace]()
        self.predicted: list[Any] = []

    def __call__(
        self, train_rows: Any, train_labels: Any, validation_rows: Any, validation_labels: Any, **options: Any
    ) -> Any:
        self.calls.append(
            SimpleNamespace(
                train_rows=train_rows,
                train_labels=np.broadcast_to(np.asarray(train_labels), train_rows.shape[:2]),
                validation_rows=validation_rows,
                validation_labels=np.broadcast_to(np.asarray(validation_labels), validation_rows.shape[:2]),
                **options | vars(options["schedule"]),
            )
        )
        return _Members(self, list(range(len(train_rows))))


class _Members:
    def __init__(self, trainer: Trainer, members: list[int]) -> None:
        self.trainer, self.members = trainer, members
        values = [trainer.validation[k % len(trainer.validation)] for k in members]
        self.validation_balanced_accuracy, self.best_epoch = np.array(values), np.array(members)

    def __getitem__(self, k: int) -> _Members:
        return _Members(self.trainer, [self.members[k]])

    def predict(self, rows: Any) -> Any:
        self.trainer.predicted.append((self.members, rows))
        return np.zeros(rows.shape[:2], dtype=np.int64)


def one_way(deployment: Deployment, participants: Sequence[int], way: int) -> Any:
    """All rows as they are, turned, or scaled by what these participants know."""
    known = torch.cat([deployment.rows[deployment.own("train", i)] for i in participants])
    turned = (
        deployment.rows @ deployment.maps.orthogonal[participants[0]] + deployment.maps.translation[participants[0]]
    )
    scaled = (deployment.rows - known.mean(dim=0)) / known.std(dim=0, correction=0)
    return (deployment.rows, turned, scaled)[way].float()


@pytest.mark.parametrize("best", [0, 1, 2])
@pytest.mark.parametrize("participants", [[1], [0, 1, 2]])
def test_without_protection_the_way_that_validates_best_is_tested(
    participants: list[int], best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment, trainer = deployment_of([40, 40, 40]), Trainer([0.6 if k == best else 0.5 for k in range(3)])
    monkeypatch.setattr(utility, "train_ensemble", trainer)
    (measured,) = without_protection(deployment, [participants], architecture=DIGITS, schedule=TRAINING)
    assert measured["validation_balanced_accuracy"] == 0.6
    (call,) = trainer.calls
    places = {split: np.r_[tuple(deployment.own(split, i) for i in participants)] for split in SPLITS}
    for way in range(3):
        rows = one_way(deployment, participants, way)
        torch.testing.assert_close(call.train_rows[way], rows[places["train"]])
        torch.testing.assert_close(call.validation_rows[way], rows[places["validation"]])
        np.testing.assert_array_equal(call.train_labels[way], deployment.labels[places["train"]])
        np.testing.assert_array_equal(call.validation_labels[way], deployment.labels[places["validation"]])
    ((_, tested),) = trainer.predicted
    torch.testing.assert_close(tested[0], one_way(deployment, participants, best)[deployment.span("test")])
    assert measured["balanced_accuracy"] == measured["balanced_accuracy_clean"] == pytest.approx(0.1)


@pytest.mark.parametrize("train", [[40, 40, 40], [15, 41, 60]])
def test_who_trains_alone_takes_as_many_steps_as_the_joint_model(
    train: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment, trainer = deployment_of(train), Trainer([0.5])
    monkeypatch.setattr(utility, "train_ensemble", trainer)
    groups = [[0], [1], [2], [0, 1, 2]]
    measured = without_protection(deployment, groups, architecture=DIGITS, schedule=TRAINING)
    assert len(measured) == len(groups)
    joint = TRAINING.epochs * math.ceil(sum(train) / TRAINING.batch_size)
    for call in trainer.calls:
        each = math.ceil(call.train_rows.shape[1] / TRAINING.batch_size)
        assert joint <= call.epochs * each < joint + each  # whole epochs: never fewer steps
        assert (call.batch_size, call.learning_rate) == (TRAINING.batch_size, TRAINING.learning_rate)
        if call.train_rows.shape[1] == sum(train):
            assert call.epochs == TRAINING.epochs


def test_a_draw_is_scored_on_noisy_rows_as_in_the_paper_and_on_clean_ones_as_deployed() -> None:
    deployment = deployment_of([20, 20, 20])
    truth = torch.as_tensor(deployment.labels)
    clean = torch.zeros(len(truth), H)
    clean[:, 0] = truth
    noisy = clean.expand(2, -1, -1).clone()
    noisy[1, :, 0] = (truth + (truth < 5)) % 10  # every row of the classes below five is misread
    ensemble: Any = SimpleNamespace(
        predict=lambda rows: (rows if rows.ndim == 3 else rows[None].expand(2, -1, -1))[..., 0].numpy().astype(int),
        validation_balanced_accuracy=np.array([0.3, 0.4]),
        best_epoch=np.array([1, 2]),
    )
    for as_deployed in (clean, clean.expand(2, -1, -1)):
        first, second = scored(ensemble, noisy, as_deployed, deployment)
        assert (first["balanced_accuracy"], first["balanced_accuracy_clean"], first["accuracy"]) == (1, 1, 1)
        assert (second["balanced_accuracy"], second["balanced_accuracy_clean"], second["accuracy"]) == (0.5, 1, 0.5)
        assert (second["validation_balanced_accuracy"], second["best_epoch"]) == (0.4, 2)
    assert scored(ensemble, noisy, None, deployment)[1]["balanced_accuracy_clean"] == 0.5


def test_networks_learn_from_training_rows_and_are_chosen_on_validation_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment, trainer = deployment_of([20, 30, 40]), Trainer([0.5])
    monkeypatch.setattr(utility, "train_ensemble", trainer)
    rows = torch.stack([deployment.rows, 2 * deployment.rows])
    trained(rows, deployment, architecture=DIGITS, schedule=TRAINING)
    (call,) = trainer.calls
    assert torch.equal(call.train_rows, rows[:, :90])
    assert torch.equal(call.validation_rows, rows[:, 90:150])
    np.testing.assert_array_equal(call.train_labels[1], deployment.labels[:90])
    np.testing.assert_array_equal(call.validation_labels[0], deployment.labels[90:150])
    assert call.streams is deployment.streams
    assert call.schedule == TRAINING


# ------------------------------------------------------------------------------------------------- behind the main thread


def test_what_fails_behind_fails_where_the_next_is_given_and_that_does_not_run() -> None:
    done = list[int]()
    with BackgroundTask() as background:
        background.run(lambda: done.append(1))
        background.run(lambda: [][0])
        with pytest.raises(IndexError):
            background.run(lambda: done.append(2))
        background.run(lambda: done.append(3))  # told once: it goes on where somebody goes on
    assert done == [1, 3]


# -------------------------------------------------------------------------------------------------------- in pieces


def test_pieces_halve_when_memory_runs_out_and_stay_small() -> None:
    tried, room = list[int](), list[int]()

    def work(piece: Any) -> int:
        tried.append(len(piece))
        if len(piece) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return int(piece.sum())

    pieces = list(pieces_that_fit(work, np.arange(20), 8, make_room=lambda: room.append(1)))
    assert tried == [8, 4, *[2] * 10]
    assert len(room) == 2
    np.testing.assert_array_equal(np.concatenate([piece for piece, _ in pieces]), np.arange(20))
    assert [total for _, total in pieces] == [int(piece.sum()) for piece, _ in pieces]
    assert list(pieces_that_fit(work, np.arange(0), 8)) == []
