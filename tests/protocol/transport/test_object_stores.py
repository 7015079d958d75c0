"""Stores that break off, refuse, or keep half; results through a store."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import fsspec
import numpy as np
import pytest

from mooring.errors import InputError, MissingExtraError, StorageError
from mooring.protocol.analyst.delivery import deliver
from mooring.protocol.analyst.intake import collect
from mooring.protocol.participant.prediction import fetch_result
from mooring.protocol.rotation.analyst.alignment import align_bundles
from mooring.protocol.rotation.result import read_result
from mooring.protocol.transport import object_stores as stores
from mooring.protocol.transport.transfer import send_file
from tests.permissions import has_mode
from tests.protocol.transport.support import QUICK, Cut, make_bundle, make_study, raises
from tests.raising import raising
from tests.sites import ANALYST


@pytest.mark.parametrize("seeks", [True, False])
@pytest.mark.parametrize("start", [10, 20, 3 * 2**16, 2**20 - 5, 2**20])
def test_a_part_of_a_file_is_downloaded_whether_or_not_the_store_can_skip(
    tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch, start: int, seeks: bool
) -> None:
    data = np.random.default_rng(0).bytes(2**20)
    memory.pipe("/large", data)
    stream, n_read = io.BytesIO(data), list[int]()
    actual = stream.read

    def count(size: int) -> bytes:
        n_read.append(size)
        return actual(size)

    def refuse(*_: Any) -> int:
        raise ValueError("Cannot seek streaming HTTP file")

    monkeypatch.setattr(type(memory), "open", lambda *_, **__: stub)
    stub = mock.MagicMock(read=count, seek=stream.seek if seeks else refuse)
    stub.__enter__.return_value = stub
    rest: dict[str, Any] = {"size": None, "most_bytes": 2**21, "what": "it", "waits": QUICK}
    part = ((0, 10), (start, 100))
    assert stores.download(memory, "/large", tmp_path / "part", part=part, **rest) is None
    assert (tmp_path / "part").read_bytes() == data[:10] + data[start : start + 100]
    if seeks:
        assert sum(n_read) == 110


def test_a_store_that_breaks_off_or_keeps_half_gets_it_again(
    tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0)
    put, steps = type(memory).put_file, ["break", "half", "whole"]

    def faulty(self: Any, source: str, target: str, **rest: Any) -> None:
        match steps.pop(0):
            case "break":
                raise OSError("connection reset, token=5ec2e7")
            case "half":
                self.pipe_file(target, data[: len(data) // 2])
            case _:
                put(self, source, target, **rest)

    monkeypatch.setattr(type(memory), "put_file", faulty)
    assert send_file(tmp_path / "a.bundle", "memory://inbox/", waits=QUICK).tries == 3
    assert memory.cat_file("/inbox/a.bundle") == data
    for trouble, reason, tries in (
        (PermissionError("5ec2e7"), "refuses access", 1),
        (FileNotFoundError("5ec2e7"), "(404)", 1),
        (type("NoCredentialsError", (Exception,), {})("5ec2e7"), "no credentials", 1),
        (OSError("5ec2e7"), "connection broke", 4),
    ):
        asked: list[int] = []
        memory.store.clear()
        monkeypatch.setattr(type(memory), "put_file", raises(trouble, asked))
        with raising(StorageError, "the upload", reason=reason) as caught:
            send_file(tmp_path / "a.bundle", "memory://inbox/", waits=QUICK)
        assert "5ec2e7" not in str(caught.value)
        assert len(asked) == tries


@pytest.mark.parametrize(
    ("size", "most", "reason"),
    [
        (None, 9, stores.TOO_LARGE),
        (11, 10, stores.TOO_LARGE),
        (None, 10, None),
        (10, 10, None),
        (9, 10, None),
        (11, 11, stores.IN_PART),
    ],
)
def test_a_download_is_whole_and_within_its_limit(
    size: int | None, most: int, reason: str | None, tmp_path: Path, memory: Any
) -> None:
    memory.pipe_file("/ten", b"0123456789")
    target = tmp_path / "ten"
    assert stores.download(memory, "/ten", target, size=size, most_bytes=most, what="it", waits=QUICK) == reason
    assert (target.read_bytes() if reason is None else target.exists()) == (b"0123456789" if reason is None else False)


def test_a_kind_of_address_that_is_not_installed_or_not_known(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raising(InputError, "address", expected="fsspec knows"):
        send_file(bundle, "nonsense://x/")
    monkeypatch.setattr(fsspec.core, "url_to_fs", raises(ImportError))
    with raising(MissingExtraError, extra="s3"):
        send_file(bundle, "s3://ward/inbox/")
    with raising(InputError, "address", cure="Install the fsspec package"):
        collect(make_study(), "gs://ward/inbox", tmp_path / "work")


def test_no_try_relies_on_what_a_listing_told_before(
    inbox: Callable[..., bytes], memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(type(memory), "invalidate_cache", lambda *_: steps.append("forget"))
    monkeypatch.setattr(type(memory), "open", lambda *_, **__: steps.append("open") or Cut(b"xx", OSError("reset")))
    reason = stores.download(
        memory, "/inbox/site-0.bundle", tmp_path / "x", size=None, most_bytes=10, what="x", waits=QUICK
    )
    assert reason == stores.IN_PART
    assert steps == ["forget", "open"] * 4


def test_results_travel_through_a_store_unchanged(
    inbox: Callable[..., bytes], memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, work = make_study(), tmp_path / "work"
    align_bundles(study, collect(study, "memory://inbox", work).bundles, work)
    deliver(study, work, tmp_path / "results", ANALYST)
    done: list[tuple[float, float]] = []
    deliver(study, work, "memory://results/", ANALYST, progress=lambda *now: done.append(now))
    assert done == [(1, 3), (2, 3), (3, 3)]
    for member in study.participants:
        file = tmp_path / "results" / member.name / "map.safetensors"
        assert memory.cat_file(f"/results/{member.name}/map.safetensors") == file.read_bytes()
    with fetch_result("memory://results/site-1", study) as place:
        assert has_mode(place, 0o700)
        assert [path.name for path in place.iterdir()] == ["map.safetensors"]
        result = read_result(place, study, study.participants[1])
    assert not place.exists()
    here = read_result(tmp_path / "results" / "site-1", study, study.participants[1])
    assert np.array_equal(result.orthogonal, here.orthogonal)
    with fetch_result(tmp_path / "results" / "site-1", study) as place:
        assert place == tmp_path / "results" / "site-1"
    for address, name in (
        ("memory://results/nobody", "it is not at the store (404)"),
        ("memory://large", "larger than such a file may be"),
    ):
        memory.pipe_file("/large/map.safetensors", bytes(100_000))
        with raising(StorageError, "the result", reason=name), fetch_result(address, study):
            pass
    for call in (
        lambda: deliver(study, work, "https://store.example/results", ANALYST),
        lambda: fetch_result("https://store.example/results", study).__enter__(),
    ):
        with raising(InputError, "address", got="presigned address of one file"):
            call()
    monkeypatch.setattr(type(memory), "put_file", raises(PermissionError("5ec2e7")))
    (work / "delivery.json").unlink()
    with raising(StorageError, "the result", reason="memory://results/site-0/map.safetensors cannot be written"):
        deliver(study, work, "memory://results", ANALYST)
    assert not (work / "delivery.json").exists()


class Answer(Exception):
    """A store's error with a status."""

    def __init__(self, status: int) -> None:
        self.status = status


@pytest.mark.parametrize(
    ("problem", "denied", "absent"),
    [
        (Answer(401), True, False),
        (Answer(403), True, False),
        (Answer(402), False, False),
        (Answer(404), False, True),
        (Answer(500), False, False),
        (PermissionError(), True, False),
        (FileNotFoundError(), False, True),
        (TimeoutError(), False, False),
    ],
)
def test_what_a_stores_answer_means(problem: Exception, denied: bool, absent: bool) -> None:
    assert (stores.is_denied(problem), stores.is_absent(problem)) == (denied, absent)
    assert stores.is_transient(problem) == (not denied and not absent)
    while_asking, because = OSError(), OSError()
    while_asking.__context__, because.__cause__, problem.__context__ = problem, problem, because  # and a circle
    for wrapped in (while_asking, because):
        assert (stores.is_denied(wrapped), stores.is_absent(wrapped)) == (denied, absent)


def test_another_try_waits_as_long_as_its_turn_or_the_store_says(monkeypatch: pytest.MonkeyPatch) -> None:
    waited, problems = list[float](), list[Exception]()
    monkeypatch.setattr(stores.time, "sleep", waited.append)

    def attempt() -> str:
        if problems:
            raise problems.pop()
        return "done"

    for broken, waits, tries in ([], [], 1), ([0.0], [0.0], 2), ([0.0, 0.0], [0.0, 0.25], 3), ([3.0], [3.0], 2):
        problems += [stores.TransientError("broken", wait) if wait else stores.TransientError("x") for wait in broken]
        waited.clear()
        assert stores.retry(attempt, waits=(0.0, 0.25)) == ("done", tries)
        assert waited == waits
    problems.extend([stores.TransientError("broken")] * 3)
    with pytest.raises(stores.TransientError):
        stores.retry(attempt, waits=(0.0, 0.25))
    assert problems == []
