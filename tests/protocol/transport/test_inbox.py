"""Bundles at a store: what stays accepted, and what is downloaded again."""

import errno
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mooring.atomic_io import open_atomically
from mooring.errors import StorageError
from mooring.protocol.analyst.intake import collect
from mooring.protocol.transport import inbox as inbox_module
from mooring.protocol.transport import object_stores as stores
from mooring.protocol.transport.inbox import Candidate, Copy, download_bundles, hash_listing
from tests.protocol.transport.support import Cut, make_study, raises
from tests.raising import raising


def names(intake: Any) -> list[str]:
    return [bundle.member.name for bundle in intake.bundles]


def test_what_was_accepted_is_not_downloaded_again(
    inbox: Callable[..., bytes], memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, work = make_study(), tmp_path / "work"
    memory.pipe_file("/inbox/._site-0.bundle", b"what a system leaves beside a copy")
    opened: list[str] = []
    really = type(memory).open
    monkeypatch.setattr(
        type(memory), "open", lambda self, path, *rest, **more: opened.append(path) or really(self, path, *rest, **more)
    )
    assert names(collect(study, "memory://inbox", work)) == ["site-0", "site-1", "site-2"]
    assert len(opened) == 3
    again = collect(study, "memory://inbox", work)
    assert names(again) == ["site-0", "site-1", "site-2"]
    assert again.set_aside == ()
    assert len(opened) == 3
    damaged = sorted((work / "received").iterdir())[0]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")  # the copy here is not what was accepted any more
    assert names(collect(study, "memory://inbox", work)) == ["site-0", "site-1", "site-2"]
    assert len(opened) == 4
    sorted((work / "received").iterdir())[0].unlink()
    assert names(collect(study, "memory://inbox", work)) == ["site-0", "site-1", "site-2"]
    assert len(opened) == 5
    record = json.loads((work / "intake.json").read_text())
    for entry in record["copies"].values():
        entry["mark"] = ""  # a listing that told no more than a size
    (work / "intake.json").write_text(json.dumps(record))
    assert names(collect(study, "memory://inbox", work)) == ["site-0", "site-1", "site-2"]
    assert len(opened) == 8


def test_another_bundle_at_the_same_address_does_not_undo_the_first(
    inbox: Callable[..., bytes], tmp_path: Path, memory: Any
) -> None:
    study, work = make_study(), tmp_path / "work"
    first = {bundle.member.name: bundle.digest for bundle in collect(study, "memory://inbox", work).bundles}
    inbox(1, seed=9)
    for _ in range(2):
        intake = collect(study, "memory://inbox", work)
        assert {bundle.member.name: bundle.digest for bundle in intake.bundles} == first
        (entry,) = intake.set_aside
        assert (entry.file, entry.reason.partition(" of ")[0]) == ("site-1.bundle", "another bundle")
        assert len(intake.bundles[1].representation()) == 30
    inbox(1)  # the first bytes again, at another time
    intake = collect(study, "memory://inbox", work)
    assert intake.set_aside == ()
    assert names(intake) == ["site-0", "site-1", "site-2"]
    memory.rm_file("/inbox/site-1.bundle")  # who takes a bundle back is not counted any more
    intake = collect(study, "memory://inbox", work)
    assert names(intake) == ["site-0", "site-2"]
    assert intake.gone == ("site-1",)


@pytest.mark.parametrize("problem", [None, OSError("reset")], ids=["short", "broken"])
def test_half_a_file_is_fetched_again_and_then_set_aside(
    problem: Exception | None, inbox: Callable[..., bytes], memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "time", SimpleNamespace(sleep=lambda seconds: None))
    study, work, data = make_study(), tmp_path / "work", memory.cat_file("/inbox/site-1.bundle")
    really, faults = type(memory).open, [2]

    def opened(self: Any, path: str, *rest: Any, **more: Any) -> Any:
        if "site-1" in path and faults[0] > 0:
            faults[0] -= 1
            return Cut(data, problem)
        return really(self, path, *rest, **more)

    monkeypatch.setattr(type(memory), "open", opened)
    intake = collect(study, "memory://inbox", tmp_path / "other")
    assert (names(intake), intake.set_aside, faults) == (["site-0", "site-1", "site-2"], (), [0])
    faults[0] = 4
    intake = collect(study, "memory://inbox", work)
    assert names(intake) == ["site-0", "site-2"]
    assert [(entry.file, entry.reason) for entry in intake.set_aside] == [("site-1.bundle", stores.IN_PART)]
    assert len(list((work / "received").iterdir())) == 2
    intake = collect(study, "memory://inbox", work)  # nothing is lost: the next run takes it
    assert (names(intake), intake.set_aside) == (["site-0", "site-1", "site-2"], ())
    inbox(1)  # written again, so it is fetched again; what was accepted stays
    faults[0] = 4
    intake = collect(study, "memory://inbox", work)
    assert names(intake) == ["site-0", "site-1", "site-2"]
    assert [entry.reason for entry in intake.set_aside] == [stores.IN_PART]


def test_what_is_not_taken_does_not_stay(inbox: Callable[..., bytes], memory: Any, tmp_path: Path) -> None:
    study, work = make_study(), tmp_path / "work"
    memory.pipe_file("/inbox/noise.bundle", bytes(1000))
    memory.pipe_file("/inbox/site-1.bundle", memory.cat_file("/inbox/site-1.bundle")[:-1])
    for _ in range(2):
        intake = collect(study, "memory://inbox", work)
        assert names(intake) == ["site-0", "site-2"]
        assert {entry.file for entry in intake.set_aside} == {"noise.bundle", "site-1.bundle"}
        assert len(list((work / "received").iterdir())) == 2
    inbox(1)
    inbox(2, seed=9)  # and a second one of the same site, which does not count
    intake = collect(study, "memory://inbox", work)
    assert names(intake) == ["site-0", "site-1", "site-2"]
    assert len(list((work / "received").iterdir())) == 3
    assert all(len(bundle.representation()) == 30 for bundle in intake.bundles)


def test_one_file_that_fills_the_disk_does_not_keep_the_others_out(
    inbox: Callable[..., bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, really, trouble = make_study(), inbox_module.download, [errno.ENOSPC]

    def full(system: Any, name: str, target: Path, **rest: Any) -> str | None:
        if "site-1" in name:
            with open_atomically(target, what=rest["what"]):
                raise OSError(trouble[0], "")
        return really(system, name, target, **rest)

    monkeypatch.setattr(inbox_module, "download", full)
    for trouble[0], reason in ((errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "the quota is used up")):
        intake = collect(study, "memory://inbox", tmp_path / "work")
        assert names(intake) == ["site-0", "site-2"]
        (entry,) = intake.set_aside
        assert (entry.file, entry.reason.partition(": ")[2]) == ("site-1.bundle", reason)
    trouble[0] = errno.EROFS  # which concerns all of them
    with raising(StorageError, "the work folder", reason="read-only"):
        collect(study, "memory://inbox", tmp_path / "work")


def test_a_store_that_does_not_hand_out_or_list(
    inbox: Callable[..., bytes], memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, work = make_study(), tmp_path / "work"
    asked: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(type(memory), "open", raises(PermissionError("5ec2e7"), asked))
        intake = collect(study, "memory://inbox", work)
    assert {entry.reason for entry in intake.set_aside} == {stores.NOT_GIVEN}
    assert len(asked) == 3
    for trouble, reason in (
        (PermissionError("5ec2e7"), "refuses access"),
        (FileNotFoundError("5ec2e7"), "(404)"),
        (RuntimeError("5ec2e7"), "could not be reached"),
    ):
        monkeypatch.setattr(type(memory), "ls", raises(trouble))
        with raising(StorageError, "the source of bundles", reason=reason) as caught:
            collect(study, "memory://inbox", work)
        assert "memory://inbox" in str(caught.value)
        assert "5ec2e7" not in str(caught.value)


def test_each_version_that_was_accepted_is_kept_beside_the_others(memory: Any, tmp_path: Path) -> None:
    received, copies = tmp_path / "received", dict[str, Copy]()
    object_name = hashlib.sha256(b"/inbox/a.bundle").hexdigest()[:32]

    def fetch() -> Candidate:
        (candidate,) = download_bundles("memory://inbox", received, copies, most_bytes=10)
        return candidate

    for number, content in enumerate((b"first", b"second", b"third"), start=1):
        memory.pipe_file("/inbox/a.bundle", content)
        candidate = fetch()
        target = received / f"{object_name}{f'-{number}' if number > 1 else ''}.bundle"
        assert (candidate.shown, candidate.path_or_reason) == ("a.bundle", target)
        assert candidate.kept == tuple(received / name for name in copies)
        assert target.read_bytes() == content
        assert candidate.origin is not None
        copies[target.name] = Copy(*candidate.origin, hashlib.sha256(content).hexdigest())
    assert fetch() == replace(candidate, kept=candidate.kept)  # it has not changed
    memory.pipe_file("/inbox/a.bundle", b"larger than ten")
    assert (fetch().path_or_reason, len(fetch().kept)) == (stores.TOO_LARGE, 3)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"size": 5}, ""),
        ({}, ""),
        ({"size": 5, "ETag": None}, ""),
        ({"size": 5, "ETag": '"x"', "LastModified": "today"}, '["5", {"etag": "\\"x\\""}]'),
        ({"size": 5, "checksum": "c", "etag": "x"}, '["5", {"checksum": "c", "etag": "x"}]'),
        ({"size": 5, "created": 1.5}, '["5", {"created": "1.5"}]'),
    ],
)
def test_a_version_is_known_by_its_tags_or_else_its_times_and_by_no_size_alone(
    entry: dict[str, Any], text: str
) -> None:
    assert hash_listing(entry) == (hashlib.sha256(text.encode()).hexdigest() if text else "")
