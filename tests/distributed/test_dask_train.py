"""Learners that take the matrix in pieces: close to, or the same as, the local ones; and the whole way through commands."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed")

from distributed import Client

from mooring.engines.dask import train_on_dask
from mooring.engines.dask.block_tasks import Moments, Piece, fit_ridge, moments_of, ridge_sums
from mooring.errors import InputError, StorageError
from mooring.learners import Model
from mooring.learners.models import Predicted
from mooring.protocol.analyst.intake import collect
from mooring.protocol.messages.model import read_model
from mooring.protocol.rotation.analyst.alignment import align_bundles
from mooring.protocol.rotation.analyst.alignment_state import read_space
from mooring.protocol.rotation.analyst.collaboration_matrix import read_blocks
from mooring.protocol.rotation.analyst.training import train
from mooring.protocol.rotation.bundle import verify_bundle
from tests.commands import flat, record_of, run
from tests.learners.test_models import require_no_mean
from tests.raising import raising
from tests.sites import KEYS, rewrite_bundle, specifier_of

from .dask_study import Made, align_on_dask, make

Prepared = tuple[Made, Path, Path]


def prepared(client: Client, folder: Path, kind: str) -> Prepared:
    """A study, and the folders in which this process and the cluster have aligned it."""
    made = make(folder, kind=kind)
    here, there = folder / "here", folder / "there"
    align_bundles(made.study, collect(made.study, made.inbox, here).bundles, here, certify=False)
    align_on_dask(client, made.study, made.inbox, there, rows_at_once=23, certify=False)
    return made, here, there


@pytest.fixture(scope="module")
def number(cluster: Client, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepared(cluster, tmp_path_factory.mktemp("number"), "number")


@pytest.fixture(scope="module")
def classes(cluster: Client, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepared(cluster, tmp_path_factory.mktemp("classes"), "classes")


def rows_and_labels(made: Made, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    blocks = list(read_blocks(folder, made.study, read_space(folder, made.study)))
    return np.concatenate([rows for _, rows, _ in blocks]), np.concatenate([labels for _, _, labels in blocks])


def model(made: Made, folder: Path) -> Model:
    model, _ = read_model(folder / "training.safetensors", specifier_of(made.study))
    require_no_mean(model, rows_and_labels(made, folder)[0].astype(np.float64))
    return model


@pytest.mark.parametrize("learner", ["linear", "random-fourier"])
def test_numbers_are_predicted_exactly_as_by_the_local_learner(client: Client, number: Prepared, learner: str) -> None:
    made, here, there = number
    collected: list[tuple[float, float]] = []
    training = train_on_dask(
        client, made.study, there, learner=learner, progress=lambda done, total: collected.append((done, total))
    )
    expected = train(made.study, here, learner=learner)
    assert collected[-1][0] == collected[-1][1]
    assert training.learner == expected.learner
    rows, labels = rows_and_labels(made, there)
    difference = np.abs(model(made, there).predict(rows) - model(made, here).predict(rows)).max()
    assert difference < 1e-3 * np.ptp(labels)
    assert training.score.value == pytest.approx(expected.score.value, abs=1e-4)
    assert training.score.n == expected.score.n == 2000
    for ours, theirs in zip(training.participants, expected.participants, strict=True):
        assert ours[0] == theirs[0]
        assert ours[1].value == pytest.approx(theirs[1].value, abs=1e-4)


@pytest.mark.parametrize("learner", ["linear", "random-fourier", "auto"])
def test_classes_are_predicted_nearly_as_well_as_by_the_local_learner(
    client: Client, classes: Prepared, learner: str
) -> None:
    made, here, there = classes
    training = train_on_dask(client, made.study, there, learner=learner)
    expected = train(made.study, here, learner=learner)
    assert training.learner == expected.learner
    assert training.rows == training.rows_used == 2000
    assert training.score.value > expected.score.value - 0.02
    rows, _ = rows_and_labels(made, there)
    assert np.mean(model(made, there).predict(rows) == model(made, here).predict(rows)) > 0.95
    if learner == "linear":
        again = train_on_dask(client, made.study, there, learner=learner)
        assert again.model_digest == training.model_digest


@pytest.mark.parametrize("learner", ["linear", "xgboost"])
def test_a_participant_is_scored_by_others_only(client: Client, tmp_path: Path, learner: str) -> None:
    """One of two participants has reversed labels: the other's model predicts it wrongly, and a model of both would not."""
    if learner == "xgboost":
        pytest.importorskip("xgboost")
    made = make(tmp_path, p=2)
    path = made.inbox / "site-1.bundle"
    rewrite_bundle(path, made.study, made.keys[1], labels=1 - verify_bundle(path, made.study).labels())
    align_on_dask(client, made.study, made.inbox, tmp_path / "work", certify=False)
    scores = dict(train_on_dask(client, made.study, tmp_path / "work", learner=learner).participants)
    assert [scores[name].value < 0.2 for name in ("site-0", "site-1")] == [True, True]


def test_one_class_only_is_what_is_predicted(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path, n=40)
    for k in range(5):
        rewrite_bundle(made.inbox / f"site-{k}.bundle", made.study, made.keys[k], labels=np.ones(40))
    align_on_dask(client, made.study, made.inbox, tmp_path / "work", certify=False)
    train_on_dask(client, made.study, tmp_path / "work")
    assert set(model(made, tmp_path / "work").predict(np.zeros((3, 6), dtype=np.float32))) == {1}


def test_what_cannot_be_learnt_in_pieces_is_told(client: Client, classes: Prepared, tmp_path: Path) -> None:
    made, here, there = classes
    with raising(InputError, "learner"):
        train_on_dask(client, made.study, there, learner="forest")
    assert train_on_dask(client, made.study, here, learner="linear").score.value > 0.9  # aligned in one process
    with raising(InputError, "passes", got="0"):
        train_on_dask(client, made.study, there, passes=0)
    with raising(StorageError, "the alignment", cure="mooring align"):
        train_on_dask(client, made.study, tmp_path / "nowhere")
    unlabelled = make(tmp_path / "none", kind="none")
    with raising(InputError, "study", expected="with a label"):
        train_on_dask(client, unlabelled.study, there)


def test_auto_chooses_by_the_rows_that_the_local_engine_chooses_by(
    client: Client, number: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training locally chooses by 600 of 2,000 rows; the cluster must find these in its parts."""
    made, here, there = number
    seen: list[tuple[np.ndarray, np.ndarray]] = []

    def choose(name: str, rows: np.ndarray, labels: np.ndarray, parts: np.ndarray, **options: Any) -> Predicted:
        seen.append((rows, parts))
        return np.zeros(len(labels)), None

    monkeypatch.setattr("mooring.learners.fitting.cross_validate", choose)
    assert train(made.study, here).learner == train_on_dask(client, made.study, there).learner
    (local, folds), _, (in_pieces, same_folds), _ = seen
    assert local.shape == (600, 6)
    assert np.array_equal(local, in_pieces)
    assert np.array_equal(folds, same_folds)


def test_sums_are_those_of_all_rows(number: Prepared) -> None:
    from mooring.engines.dask.block_tasks import Features
    from mooring.learners import train_learner
    from mooring.protocol.rotation.analyst.collaboration_matrix import list_parts

    made, _, there = number
    rows, labels = rows_and_labels(made, there)
    pieces = [Piece(path, 0, 0) for paths in list_parts(there).values() for path in paths]
    moments = moments_of(made.study, pieces)
    assert moments.count == len(rows)
    assert isinstance(moments, Moments)
    features = Features.of("linear", moments, seed=0)
    local = train_learner("linear", rows.astype(np.float64), labels, kind="number", seed=0)
    assert np.allclose(features.made_by.mean_, rows.mean(axis=0, dtype=np.float64) / local.scale)
    assert features.scale == pytest.approx(local.scale)
    weights, intercept = fit_ridge(ridge_sums(made.study, pieces, features)[0], alpha=1.0)
    scaled = features.made(rows.astype(np.float64))
    assert np.allclose(scaled @ weights + intercept, local.predict(rows), atol=1e-8)


def test_of_a_participant_with_too_many_rows_only_those_kept_are_learnt_from(number: Prepared) -> None:
    from dataclasses import replace

    from mooring.engines.dask.learners import _groups, _Job
    from mooring.protocol.rotation.analyst.training import Steps

    made, _, there = number
    space, folds = read_space(there, made.study), np.zeros(len(made.study.participants), dtype=np.int64)
    groups = _groups(there, space, folds)
    job = _Job(None, None, space, groups, folds, 0, Steps(1, None))
    assert job.limit(1.0).rows_used == job.rows_used  # all have the same number of rows
    entries = space.record.participants
    uneven = (replace(entries[0], rows=5), replace(entries[1], rows=5), *entries[2:])
    fewer = replace(job, space=replace(space, record=replace(space.record, participants=uneven[:3])), folds=folds[:3])
    fewer = replace(fewer, groups=[[piece for piece in group if piece.place < 3] for group in groups])
    limited = fewer.limit(2.0)
    kept = [piece for piece in limited.pieces if piece.place == 2]
    assert sum(piece.kept.size for piece in kept if piece.kept is not None) == 10
    assert all(piece.kept is None for piece in limited.pieces if piece.place < 2)
    moments = moments_of(made.study, kept)
    rows = [rows for name, rows, _ in read_blocks(there, made.study, space) if name == space.names[2]]
    chosen = np.concatenate([piece.start + piece.kept for piece in kept if piece.kept is not None])
    assert moments.count == 10
    assert np.allclose(moments.total, np.concatenate(rows)[chosen].sum(axis=0, dtype=np.float64))


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_what_every_task_needs_is_sent_once(
    client: Client, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mooring.engines.dask.block_tasks import Features

    made, _, there = request.getfixturevalue(kind)
    sent: list[str] = []
    submit = client.submit

    def notes(function: Any, *given: Any, **options: Any) -> Any:
        sent.extend(function.__name__ for each in given if isinstance(each, Features))
        return submit(function, *given, **options)

    monkeypatch.setattr(client, "submit", notes)
    train_on_dask(client, made.study, there, learner="random-fourier", passes=2)
    assert sent == ["_same"]


def test_the_commands_do_the_same(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path)
    study, work = tmp_path / "study.toml", tmp_path / "work"
    made.study.write(study)
    scheduler = client.scheduler.address
    common = ("--study", study, "--folder", work)
    dask = ("--engine", "dask", "--scheduler", scheduler)
    aligned = record_of("align", *common, "--bundles", made.inbox, *dask)
    assert len(aligned["alignment"]["participants"]) == 5
    assert (work / "collaboration").is_dir()
    assert aligned["alignment"]["is_certified"]
    trained = record_of("train", *common, "--learner", "linear", *dask, "--passes", "5")
    assert trained["score"]["value"] > 0.9
    assert record_of("export", "--folder", work, "--output", tmp_path / "all.parquet")["output"]
    (made.inbox / "junk.bundle").write_bytes(b"")
    record_of("align", *common, "--bundles", made.inbox, *dask, code=3)
    run("align", *common, "--bundles", made.inbox, "--workers", "2", code=2, what="--workers")
    run("align", *common, "--bundles", made.inbox, "--engine", "spark", code=2)
    run("train", *common, *dask, "--tls-ca", study, code=2, what="TLS")
    assert "the training ran on a cluster" in flat(run("train", *common, *dask, "--learner", "linear").output)
    for path in made.inbox.glob("site-*.bundle"):
        path.unlink()
    words = run("align", *common, "--bundles", made.inbox, *dask, code=2)
    assert "Set aside junk.bundle" in words.output  # told although nothing can be aligned


def test_who_is_left_out_is_the_same_as_locally(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path)
    who = made.study.participants[1].name
    path = next(path for path in made.inbox.iterdir() if verify_bundle(path, made.study).member.name == who)
    anchor = verify_bundle(path, made.study).anchor_representation
    rewrite_bundle(path, made.study, KEYS[1], anchor_representation=2 * anchor.mean(axis=0) - anchor)
    here, there = tmp_path / "here", tmp_path / "there"
    align_bundles(made.study, collect(made.study, made.inbox, here).bundles, here, certify=False)
    align_on_dask(client, made.study, made.inbox, there, rows_at_once=23, certify=False)
    expected, training = (
        train(made.study, here, learner="linear"),
        train_on_dask(client, made.study, there, learner="linear"),
    )
    assert [name for name, _ in training.left_out] == [name for name, _ in expected.left_out] == [who]
    assert [name for name, _ in training.participants] == [name for name, _ in expected.participants]
    assert (training.rows, training.score.n) == (expected.rows, expected.score.n)
    assert training.score.value > expected.score.value - 0.02
    assert training.left_out[0][1].value == pytest.approx(expected.left_out[0][1].value, abs=0.05)
