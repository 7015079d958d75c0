"""Boosted trees over workers: the model that one process would train, however rows are shared out and workers are lost."""

import os
import signal
import socket
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed")
pytest.importorskip("xgboost")

import xgboost
from distributed import Client, Semaphore

from mooring.engines.dask import train_on_dask
from mooring.engines.dask import xgboost_training as together
from mooring.engines.dask.block_tasks import Piece, blocks_of, moments_of, picked_rows
from mooring.engines.dask.cluster import explain_dask_errors, share_with_workers
from mooring.engines.dask.xgboost_training import load_share
from mooring.errors import InputError, MissingExtraError, StorageError
from mooring.learners import LEARNERS, Model, boosted_trees
from mooring.learners.boosted_trees import BoostingTask, find_cuts
from mooring.protocol.messages.model import read_model
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.analyst.collaboration_matrix import list_parts
from mooring.protocol.rotation.bundle import verify_bundle
from mooring.tables.schema import Label
from tests.commands import flat, run
from tests.learners.test_models import require_no_mean
from tests.raising import raising
from tests.sites import rewrite_bundle, specifier_of

from .dask_study import align_on_dask, make, matrix


@pytest.fixture(autouse=True)
def _few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boosted_trees, "ROUNDS", 40)


@dataclass(frozen=True, eq=False)
class World:
    study: Study
    folder: Path
    rows: np.ndarray
    labels: np.ndarray
    pieces: list[Piece]

    def model(self) -> Model:
        return read_model(self.folder / "training.safetensors", specifier_of(self.study))[0]


def world(client: Client, folder: Path, label: Label, p: int = 3, model_limit: str = "") -> World:
    """Rows of three participants whose label follows from two columns; nobody has the second of the four classes.

    Numbers are tiny, and their spread is tiny beside them.
    """
    made = make(folder, kind="number" if label.kind == "number" else "classes", p=p)
    study = replace(made.study, label=label, model_limit=model_limit)
    for k in range(p):
        path = made.inbox / f"site-{k}.bundle"
        bundle = verify_bundle(path, made.study)
        rows, labels_of_site = made.secrets[k].invert(bundle.representation()), bundle.labels()
        if label.kind == "classes":
            labels_of_site = np.digitize(rows[:, 0] - rows[:, 1], [-0.5, 0.4]) + 1
            labels_of_site[labels_of_site == 1] = 0
        else:
            labels_of_site = 3e-4 + 1e-6 * labels_of_site
        rewrite_bundle(path, study, made.keys[k], written_for=made.study, labels=labels_of_site)
    work = folder / "work"
    align_on_dask(client, study, made.inbox, work, rows_at_once=40, certify=False)
    whole = matrix(study, work)
    assert whole.labels is not None
    there = list_parts(work)
    pieces = [Piece(path, 0, 0) for member in study.participants for path in there[member.name]]
    return World(study, work, whole.rows.astype(np.float64), whole.labels, pieces)


@pytest.fixture(scope="module")
def classes(cluster: Client, tmp_path_factory: pytest.TempPathFactory) -> World:
    label = Label("y", "classes", ("low", "nobody", "middle", "high"))
    return world(cluster, tmp_path_factory.mktemp("classes"), label)


@pytest.fixture(scope="module")
def number(cluster: Client, tmp_path_factory: pytest.TempPathFactory) -> World:
    label = Label("y", "number", low=2e-4, high=4e-4)
    return world(cluster, tmp_path_factory.mktemp("number"), label, model_limit="membership at most 1 %")


def in_one_process(made: World) -> Any:
    """What XGBoost itself makes of all rows at once."""
    task = BoostingTask.describe(made.rows, made.labels, kind=made.study.label.kind)
    rows = task.scale_rows(made.rows)
    known, labels = np.unique(made.labels, return_inverse=True)
    mean, spread = np.mean(made.labels, dtype=np.float64), np.std(made.labels, dtype=np.float64)
    cuts = xgboost.QuantileDMatrix(find_cuts(rows), nthread=1)
    labels = labels if task.n_classes else (made.labels - mean) / spread
    matrix = xgboost.QuantileDMatrix(rows, labels, nthread=1, ref=cuts)
    predictions = xgboost.train(task.settings(0), matrix, task.n_rounds).predict(xgboost.DMatrix(rows, nthread=1))
    return known[predictions.argmax(axis=1)] if task.n_classes else mean + spread * predictions.astype(np.float64)


def test_the_model_is_the_one_of_all_rows_at_once_however_many_workers_share_them(
    client: Client, classes: World, number: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, expected_numbers = in_one_process(classes), in_one_process(number)
    far = 1e-3 * np.ptp(number.labels)
    for count in (2, 1):
        monkeypatch.setattr(together, "_workers", lambda client, count=count: sorted(client.nthreads())[:count])
        collected: list[tuple[float, float]] = []
        tell = lambda done, total, item=collected: item.append((done, total))  # noqa: E731
        training = train_on_dask(client, classes.study, classes.folder, learner="xgboost", progress=tell)
        assert collected[-1][0] == collected[-1][1]
        assert (training.learner, training.score.n) == ("xgboost", len(classes.rows))
        assert training.score.value > 0.75
        assert np.mean(classes.model().predict(classes.rows) == expected) >= 0.999
        training = train_on_dask(client, number.study, number.folder, learner="xgboost")
        assert training.score.value > 0.85
        assert np.mean(np.abs(number.model().predict(number.rows) - expected_numbers) < far) >= 0.999
        assert training.release is not None
        assert training.release.figures["membership_at_1_percent"].value > 0.02
    shadow = LEARNERS["xgboost"].fit(number.rows, number.labels, kind="number", seed=0)
    assert np.mean(np.abs(shadow.predict(number.rows) - expected_numbers) < far) >= 0.999
    shadow = LEARNERS["xgboost"].fit(classes.rows, classes.labels, kind="classes", seed=0)
    assert np.mean(shadow.predict(classes.rows) == expected) >= 0.999


def test_shares_are_even_and_nobody_goes_without(tmp_path: Path) -> None:
    pieces = []
    for k, size in enumerate([900, 100, 500, 400, 100, 100]):
        path = tmp_path / f"part-a-{k:06d}.parquet"
        path.write_bytes(b"." * size)
        pieces.append(Piece(path, 0, 0))
    shares = together.assign_shares(pieces, 2)
    assert [sum(each.path.stat().st_size for each in share) for share in shares] == [1100, 1000]
    assert sorted(str(each.path) for share in shares for each in share) == [str(each.path) for each in pieces]
    assert [len(share) for share in together.assign_shares(pieces[:3], 8)] == [1, 1, 1]


def test_rows_are_picked_from_parts_however_blocks_are_cut(number: World) -> None:
    positions = [np.array([], dtype=np.int64), *(np.array([0, 60, 61]) for _ in number.pieces[1:])]
    picked = picked_rows(number.study, number.pieces, positions)
    again = picked_rows(number.study, number.pieces, positions, rows_at_once=50)
    for piece, wanted, (rows, labels), other in zip(number.pieces, positions, picked, again, strict=True):
        block, joined = (np.concatenate(parts) for parts in zip(*blocks_of(number.study, piece), strict=True))
        assert np.array_equal(rows, block[wanted])
        assert np.array_equal(labels, joined[wanted])
        assert np.array_equal(rows, other[0])


def test_numbers_are_cut_where_it_is_said(number: World) -> None:
    moments = moments_of(number.study, number.pieces)
    task = BoostingTask.describe(number.rows, number.labels, kind="number")
    labels = number.labels.astype(np.float64)
    assert moments.unit == pytest.approx((labels.mean(), labels.std()), rel=1e-6)
    assert (task.centre, task.unit, task.scale) == pytest.approx((*moments.unit, moments.scale), rel=1e-6)
    assert replace(moments, count=3, number=np.array([6.0, 12.0])).unit == (2.0, 1.0)
    cuts = find_cuts(task.scale_rows(number.rows))
    _, there = load_share(number.study, task, cuts, number.pieces).get_quantile_cut()
    assert set(cuts[1:].ravel()) <= set(there)


def test_no_limit_of_a_tree_is_a_number_of_a_row(client: Client, number: World) -> None:
    train_on_dask(client, number.study, number.folder, learner="xgboost")
    model = number.model()
    require_no_mean(model, number.rows)
    limits = model.function.limit[model.function.feature >= 0]
    assert limits.size > 1000
    assert not np.isin(limits.astype(np.float32), number.rows.astype(np.float32)).any()


# what goes wrong


def halted(folder: str) -> None:
    """On a worker: say when the fourth tree is to be grown, and wait until a worker was killed."""
    update = xgboost.Booster.update

    @wraps(update)
    def waiting(self: Any, dtrain: Any, iteration: int, fobj: Any = None) -> None:
        if iteration == 3:
            Path(folder, "training").touch()
            until = time.monotonic() + 60
            while not Path(folder, "killed").exists() and time.monotonic() < until:
                time.sleep(0.01)
        update(self, dtrain, iteration, fobj)

    xgboost.Booster.update = waiting


def as_before() -> None:
    """On a worker: wait for nobody."""
    xgboost.Booster.update = getattr(xgboost.Booster.update, "__wrapped__", xgboost.Booster.update)


@pytest.mark.parametrize("count", [2, 1])
@pytest.mark.ends_workers
def test_a_training_whose_worker_is_killed_is_begun_again(
    client: Client, number: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """With two workers, the survivor reports the loss of the other; after the loss of a single worker, nobody does."""
    killed, tried = [], []
    client.run(halted, str(tmp_path))
    pids = client.run(os.getpid)
    victim = pids[min(pids)]
    once = together._once

    def kills() -> None:
        while not (tmp_path / "training").exists():
            time.sleep(0.01)
        os.kill(victim, signal.SIGKILL)
        killed.append(victim)
        (tmp_path / "killed").touch()

    def notes(*given: Any) -> bytes:
        tried.append(given[-1].tobytes())
        return once(*given)

    killer = threading.Thread(target=kills, daemon=True)
    killer.start()
    monkeypatch.setattr(together, "_once", notes)
    monkeypatch.setattr(together, "_workers", lambda client: sorted(client.nthreads())[:count])
    train_on_dask(client, number.study, number.folder, learner="xgboost")
    killer.join(60)
    client.run(as_before)
    assert killed == [victim]
    assert len(tried) > len(set(tried)) == 4  # three folds and everybody, one of them begun again
    far = 1e-3 * np.ptp(number.labels)
    assert np.mean(np.abs(number.model().predict(number.rows) - in_one_process(number)) < far) >= 0.999


def fails(*_: Any) -> None:
    raise xgboost.core.XGBoostError("the other end is closed")


def test_a_training_that_fails_again_and_again_is_told(
    client: Client, classes: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "train_share", fails)
    with raising(StorageError, "the training", reason="3 times"):
        train_on_dask(client, classes.study, classes.folder, learner="xgboost")


def hangs(*_: Any) -> None:
    time.sleep(600)


@pytest.mark.ends_workers
def test_a_training_whose_workers_do_not_find_each_other_is_told_and_workers_are_free_again(
    client: Client, classes: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = client.run(os.getpid)
    for name, value in {"train_share": hangs, "_BEGIN": 20, "_SETTLE": 0.5, "_TRIES": 1, "_RETURN": 5.0}.items():
        monkeypatch.setattr(together, name, value)
    monkeypatch.setattr(together, "_workers", lambda client: sorted(client.nthreads()))
    clock = iter(range(0, 10_000, 15))
    quick = type("Clock", (), {"monotonic": lambda: next(clock), "sleep": time.sleep})
    monkeypatch.setattr(together, "time", quick)
    with raising(StorageError, "the training", reason="1 times"):
        train_on_dask(client, classes.study, classes.folder, learner="xgboost")
    client.wait_for_workers(1, timeout=60)  # Dask at times gives up one of those that it starts again
    assert client.submit(abs, -1).result(timeout=60) == 1
    assert not set(before.values()) & set(client.run(os.getpid).values())


def test_a_part_that_cannot_be_read_is_told_at_once(client: Client, classes: World) -> None:
    task = BoostingTask.describe(classes.rows, classes.labels, kind="classes")
    given = (share_with_workers(client, each) for each in (classes.study, task))
    training = together.Boosting(*given, settings={}, rounds=1)
    part = classes.pieces[0].path
    kept = part.read_bytes()
    part.write_bytes(b"no part")
    try:
        with raising(StorageError, "the collaboration matrix", reason="cannot be read"):
            together.train_distributed(client, training, classes.pieces, np.eye(9, 6, dtype=np.float32))
    finally:
        part.write_bytes(kept)


def test_trainings_take_turns_on_a_cluster(
    client: Client, classes: World, number: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at once would each wait for a worker that the other holds."""
    inside, most, models = [], [], {}

    def train_once(_: Client, boosting: together.Boosting, *more: Any) -> bytes:
        inside.append(boosting)
        until = time.monotonic() + 0.5
        while len(inside) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        most.append(len(inside))
        inside.remove(boosting)
        if boosting.rounds == 1:
            raise StorageError("a part", reason="it was lost", cure="Look for it.")
        return b"done"

    def begin(cluster: Client, rounds: int) -> None:
        boosting = together.Boosting(None, None, {}, rounds)
        try:
            models[rounds] = together.train_distributed(cluster, boosting, classes.pieces, np.eye(9, 6))
        except StorageError as problem:
            models[rounds] = problem.reason

    monkeypatch.setattr(together, "_once", train_once)
    with Client(client.scheduler.address, set_as_default=False) as other:
        begun = [threading.Thread(target=begin, args=(cluster, k)) for k, cluster in enumerate((client, other, client))]
        for each in begun:
            each.start()
        for each in begun:
            each.join(60)
    assert models == {0: b"done", 1: "it was lost", 2: b"done"}
    assert most == [1, 1, 1]
    turn = Semaphore(name=together._TURN, scheduler_rpc=client.scheduler, loop=client.loop)
    assert turn.get_value() == 0  # given back, not only taken back after a while


def test_a_scheduler_that_is_lost_is_told(classes: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "_turn", nullcontext)

    class Lost:
        def nthreads(self) -> dict[str, int]:
            raise OSError("timed out")

    with raising(StorageError, "the scheduler"), explain_dask_errors():
        together.train_distributed(Lost(), together.Boosting(*[None] * 4), classes.pieces, np.eye(9, 6))


def test_what_cannot_be_boosted_is_told(client: Client, classes: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with raising(InputError, "passes", got="3"):
        train_on_dask(client, classes.study, classes.folder, learner="xgboost", passes=3)
    none = find_cuts(np.zeros((0, 6), dtype=np.float32))
    assert together.train_distributed(client, together.Boosting(*[None] * 4), [], none) == b""  # nobody is left


class Elsewhere:
    """A cluster of two workers, by what it says."""

    def __init__(self, address: str, *versions: str, workers: str = "10.0.0.6") -> None:
        self.scheduler = type("Scheduler", (), {"address": address})
        self._found = {f"tls://{workers}:{k}": each for k, each in enumerate(versions)}

    def run(self, function: Any, *given: str) -> dict[str, str]:
        return self._found

    def nthreads(self) -> dict[str, int]:
        return dict.fromkeys(self._found, 1)


def test_a_cluster_that_cannot_boost_or_should_not_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    here = xgboost.__version__
    for others in ("none", "1.7.6"):
        with raising(InputError, "workers", got="on some of them"):
            together.require_boosting_cluster(Elsewhere("tcp://10.0.0.5:8786", here, others))
    for scheduler in ("10.0.0.5", "127.0.0.1"):  # this machine's, with workers elsewhere
        with raising(InputError, "learner", got="not encrypted"):
            together.require_boosting_cluster(Elsewhere(f"tls://{scheduler}:8786", here, here))
        together.require_boosting_cluster(Elsewhere(f"tls://{scheduler}:8786", here))
        together.require_boosting_cluster(Elsewhere(f"tcp://{scheduler}:8786", here, here))
    together.require_boosting_cluster(Elsewhere("tls://127.0.0.1:8786", here, here, workers="127.0.0.1"))
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with raising(MissingExtraError, extra="xgboost"):
        together.require_boosting_cluster(Elsewhere("tcp://10.0.0.5:8786", here, here))


def test_workers_meet_where_all_of_them_reach_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    here, away, unknown = "tcp://127.0.0.1:1", "tcp://10.0.0.6:2", "tcp://known-to-others:3"
    assert together.own_address([here, "inproc://a", here]) == "127.0.0.1"
    assert together.is_here(here)
    assert together.is_here("inproc://a")

    def nowhere(*_: Any, **__: Any) -> None:
        raise socket.gaierror

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", nowhere)
        assert not together.is_here(unknown)
        assert together.own_address([unknown]) == "127.0.0.1"
    addresses = {here: "127.0.0.1", away: "10.0.0.7", unknown: None}
    monkeypatch.setattr(together, "_local_address_to", addresses.get)
    for others in ([here, away], [away, here], [unknown, here, away]):
        assert together.own_address(others) == "10.0.0.7"
    assert not together.is_here(away)


def test_the_command_trains_it_and_names_it(client: Client, number: World, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    number.study.write(study)
    dask = ("--engine", "dask", "--scheduler", client.scheduler.address)
    result = run("train", "--study", study, "--folder", number.folder, *dask, "--learner", "xgboost")
    assert "Trained 'xgboost'" in flat(result.output)
    assert "xgboost" in run("train", "--help").output
