"""`auto` is one learner: what the audit measures is what `train` trains on the same rows."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score

from mooring import RotationPoint, make_anchor, run_audit
from mooring.audit import AuditSettings, Deployment, References, simulate_rows
from mooring.audit.utility import Alone, measure_utility
from mooring.errors import InputError, RefusedError, StorageError
from mooring.learners import AUTO, CANDIDATES, LEARNERS, train_learner
from mooring.protocol.analyst.trained_model import read_training
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.analyst.alignment import align_bundles
from mooring.protocol.rotation.analyst.alignment_state import read_space
from mooring.protocol.rotation.analyst.collaboration_matrix import read_blocks
from mooring.protocol.rotation.analyst.training import (
    LabelledRows,
    _can_learn_alone,
    convert_model,
    score_participants,
    train,
)
from mooring.protocol.rotation.analyst.training_record import Training
from mooring.protocol.rotation.bundle import verify_bundle
from mooring.protocol.rotation.result import specify_model
from mooring.tables import Partition
from tests.raising import raising
from tests.sites import KEYS, numeric_study, write_site
from tests.study_settings import change

pytestmark = pytest.mark.usefixtures("fewer_features")

P, R, V = 5, 40, 0.02
POINT = "aa-i-gdp-anchor-noise"


def uploaded(folder: Path, rows: np.ndarray, labels: np.ndarray, *, noise: float = 0.0) -> Study:
    """A study whose p participants have every p-th of these rows, with so much noise in them already, aligned."""
    h, rng = rows.shape[1], np.random.default_rng(1)
    study = numeric_study(P, h, R, V, kind="number" if labels.dtype.kind == "f" else "classes")
    if noise:
        study = change(study, method="aa-i-gdp-both-noise", data_noise_scale=noise)
    anchor, paths = make_anchor(R, h, rng=rng), [folder / f"{k}.bundle" for k in range(P)]
    for k, path in enumerate(paths):
        write_site(path, study, KEYS[k], rows[k::P], labels[k::P], anchor, rng)
    align_bundles(study, [verify_bundle(path, study) for path in paths], folder, certify=False)
    return study


def rows_of(n: int, h: int = 4) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (n, h))


TASKS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "straight classes": (lambda rows: (rows[:, 0] + rows[:, 1] > 0).astype(np.int64), "linear"),
    "curved classes": (lambda rows: ((rows[:, :2] ** 2).sum(axis=1) > 0.6).astype(np.int64), "random-fourier"),
    "straight number": (lambda rows: 20 * rows[:, 0], "linear"),
    "curved number": (lambda rows: 20 * (rows[:, :2] ** 2).sum(axis=1), "random-fourier"),
}


@pytest.mark.parametrize("task", TASKS)
def test_audit_and_train_choose_the_same_learner(task: str, tmp_path: Path) -> None:
    label, expected = TASKS[task]
    rows = rows_of(300)
    labels = label(rows)
    study = uploaded(tmp_path, rows, labels)
    assert train(study, tmp_path).learner == expected
    parts = [rows[k::P] for k in range(P)], [labels[k::P] for k in range(P)]
    point = RotationPoint(POINT, 4, R, V, 0.0)
    audit = run_audit(*parts, points=[point], settings=AuditSettings(attacks=["procrustes"]))
    assert audit.points[0].learner == audit.references.learner == expected


def test_on_the_same_rows_the_choice_is_the_same_also_where_it_is_close(tmp_path: Path) -> None:
    """Labels that nothing tells apart: which learner scores better depends on the seed, for both alike."""
    rng, rows = np.random.default_rng(9), rows_of(200)
    study = uploaded(tmp_path, rows, rng.integers(0, 2, 200))
    blocks = list(read_blocks(tmp_path, study, read_space(tmp_path, study)))
    aligned, labels = [block.astype(np.float64) for _, block, _ in blocks], [block for _, _, block in blocks]
    partition = Partition.from_parts(aligned, labels, rng=rng, test_share=0.0)
    # Nothing is held out, so that rows are the analyst's; scores are of the training rows then.
    partition = Partition(**{**vars(partition), "test": partition.train, "test_labels": partition.train_labels})
    simulation = simulate_rows(aligned, aligned, labels, rng=rng)
    alone = Alone(References(None, None, 0), None)
    chosen = {
        seed: measure_utility(
            simulation, Deployment(partition, AuditSettings(seed=seed)), learner=AUTO, alone=alone
        ).learner
        for seed in range(4)
    }
    assert set(chosen.values()) == set(CANDIDATES)
    assert {seed: train(study, tmp_path, seed=seed).learner for seed in chosen} == chosen


@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_auto_predicts_a_number_as_well_as_linear(noise: float, tmp_path: Path) -> None:
    """Diabetes at five participants: with this noise on the rows, random features alone score an R² below 0."""
    data = load_diabetes()
    rows = data.data / data.data.std() / 5
    rows = rows + noise / 5 * np.random.default_rng(0).standard_normal(rows.shape)
    study = uploaded(tmp_path, rows, data.target.astype(np.float64), noise=noise / 5)
    scores = {name: train(study, tmp_path, learner=name).score.value for name in (AUTO, *CANDIDATES)}
    assert scores[AUTO] == max(scores.values()) > 0.1
    if noise:
        assert scores["random-fourier"] < -0.05


@pytest.mark.parametrize(
    ("labels", "kind", "can"),
    [
        (np.arange(10) % 2, "classes", True),
        (np.arange(9) % 2, "classes", False),
        (np.zeros(10), "classes", False),
        (np.zeros(10), "number", True),
    ],
)
def test_a_model_alone_needs_ten_rows_and_two_classes(labels: np.ndarray, kind: Any, can: bool) -> None:
    assert _can_learn_alone(labels, kind) == can


def test_each_participant_is_scored_on_its_own_rows() -> None:
    truth, owners = np.array([0, 1, 0, 1, 0, 1]), np.array([0, 0, 2, 2, 2, 2])
    data, predicted = LabelledRows(owners, np.zeros((6, 1)), truth), np.array([0, 1, 0, 0, 0, 0])
    shares = np.array([0.2, 0.9, 0.1, 0.1, 0.3, 0.2])
    given = predicted, np.column_stack([1 - shares, shares])
    overall, each = score_participants("abc", data, given, kind="classes", rng=np.random.default_rng(0))
    assert [(name, part.value, part.n, part.balanced_accuracy) for name, part in each] == [
        ("a", 1.0, 2, 1.0),
        ("c", 0.375, 4, 0.5),
    ]
    assert (overall.metric, overall.n) == ("AUC", 6)
    assert overall.value == pytest.approx(roc_auc_score(truth, shares))
    assert overall.balanced_accuracy == pytest.approx((1 + 1 / 3) / 2)


@pytest.mark.parametrize("task", ["straight classes", "straight number"])
def test_the_model_that_is_delivered_predicts_the_labels_of_the_rows_that_it_was_trained_on(
    task: str, tmp_path: Path
) -> None:
    """All scores are of models that were cross-validated; the model of all rows is fitted last, and nothing scores it."""
    rows = rows_of(300)
    labels = TASKS[task][0](rows)
    study = uploaded(tmp_path, rows, labels)
    train(study, tmp_path, learner="linear")
    model, _ = read_training(tmp_path, Training, study, partial(specify_model, study))
    blocks = list(read_blocks(tmp_path, study, read_space(tmp_path, study)))
    predicted = np.concatenate([model.predict(block.astype(np.float64)) for _, block, _ in blocks])
    truth = np.concatenate([block_labels for _, _, block_labels in blocks])
    if task == "straight classes":
        assert (predicted == truth).mean() > 0.95
    else:
        assert ((predicted - truth) ** 2).mean() < 0.01 * truth.var()


def test_a_model_whose_arrays_say_something_else_than_the_learner_is_refused() -> None:
    rows, study = np.random.default_rng(0).standard_normal((40, 6)), numeric_study()
    labels = (rows[:, 0] > 0).astype(np.int64)
    data = LabelledRows(np.zeros(40, dtype=np.int64), rows, labels)
    fitted = train_learner("linear", rows, labels, kind="classes", seed=0)
    assert convert_model(study, fitted, data, 0).spec.n_classes == 2
    turned = train_learner("linear", rows, 1 - labels, kind="classes", seed=0)
    wrong = SimpleNamespace(kind="classes", predict=turned.predict, to_model=fitted.to_model)
    with raising(RefusedError, "the model"):
        convert_model(study, wrong, data, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("spread", [100.0, 0.0])
@pytest.mark.parametrize(("off", "fine"), [(0.9e-6, True), (1.1e-6, False), (-0.9e-6, True), (-1.1e-6, False)])
def test_numbers_of_a_model_are_the_learners_to_a_millionth_of_their_range(
    off: float, fine: bool, spread: float
) -> None:
    """Labels that are all alike are predicted to a millionth."""
    data = LabelledRows(np.zeros(2, dtype=np.int64), np.zeros((2, 6)), np.array([7.0, 7.0 + spread]))
    model = SimpleNamespace(predict=lambda rows: np.full(len(rows), off * (spread or 1.0)))
    fitted: Any = SimpleNamespace(kind="number", predict=lambda rows: np.zeros(len(rows)), to_model=lambda _: model)
    if fine:
        assert convert_model(numeric_study(kind="number"), fitted, data, 0) is model
    else:
        with raising(RefusedError, "the model"):
            convert_model(numeric_study(kind="number"), fitted, data, 0)


@pytest.mark.parametrize(("n", "n_compared"), [(4999, 4999), (5001, 5000)])
def test_a_model_is_compared_with_its_learner_on_up_to_5000_rows(n: int, n_compared: int) -> None:
    compared = list[int]()
    model = SimpleNamespace(predict=lambda rows: np.zeros(len(rows)))
    fitted: Any = SimpleNamespace(
        kind="number", predict=lambda rows: compared.append(len(rows)) or np.zeros(len(rows)), to_model=lambda _: model
    )
    data = LabelledRows(np.zeros(n, dtype=np.int64), np.zeros((n, 1)), np.zeros(n))
    assert convert_model(numeric_study(kind="number"), fitted, data, 0) is model
    assert compared == [n_compared]


def test_a_learner_of_ones_own_is_trained_and_named(tmp_path: Path) -> None:
    study = numeric_study()
    learner = replace(LEARNERS["forest"], name="shallow", make=lambda kind, *, shape, seed: RandomForestClassifier(5))
    with raising(StorageError, "the alignment"):  # the learner itself is taken
        train(study, tmp_path, learner=learner)
    with raising(InputError, "learner", got="shallow"):
        train(study, tmp_path, learner=replace(learner, delivers=False))
