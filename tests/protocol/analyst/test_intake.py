"""Bundles that come in: what is taken, and what is set aside."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.analyst.intake import (
    INTAKE_FILE,
    MOST_BYTES,
    Intake,
    Register,
    RejectedBundle,
    _check_local,
    collect,
)
from mooring.protocol.registry import exchange_of
from mooring.protocol.transport.object_stores import TOO_LARGE
from tests.permissions import has_mode
from tests.protocol.rotation.support import send, sent
from tests.raising import raising
from tests.sites import numeric_study


@pytest.mark.posix
def test_what_holds_up_is_taken_and_everything_else_is_set_aside_with_its_reason(tmp_path: Path) -> None:
    study = numeric_study(p=5)
    inbox = tmp_path / "inbox"
    sites = sent(study, inbox, [0, 1])
    torn = send(study, sites[2], 2, inbox)
    torn.write_bytes(torn.read_bytes()[:-1])
    send(study, replace(sites[3], anchor_representation=1000 * sites[3].anchor_representation), 3, inbox)
    send(numeric_study(p=5, v=0.06), sites[4], 4, inbox)
    send(study, sites[4], 7, inbox, "stranger.bundle")
    (inbox / "folder.bundle").mkdir()
    (inbox / "nowhere.bundle").symlink_to(inbox / "nothing")
    (inbox / "letter.txt").write_text("not looked at")
    (inbox / "new\nline\x1b[31m.bundle").write_text("no bundle")
    intake = collect(study, inbox, tmp_path / "work")
    assert [bundle.member.name for bundle in intake.bundles] == ["site-0", "site-1"]
    assert intake.missing == ("site-2", "site-3", "site-4")
    reasons = {entry.file: entry.reason for entry in intake.set_aside}
    assert "length" in reasons["site-2.bundle"]
    assert "another study" in reasons["site-4.bundle"]
    assert "roster" in reasons["stranger.bundle"]
    assert reasons["folder.bundle"] == "it is a folder"
    assert "not there" in reasons["nowhere.bundle"]
    assert "new?line?[31m.bundle" in reasons
    assert len(reasons) == 7
    record = json.loads((tmp_path / "work" / "intake.json").read_text())
    assert record["missing"] == ["site-2", "site-3", "site-4"]
    assert record["accepted"][0]["name"] == "site-0"


def test_a_copy_counts_once_and_of_two_different_bundles_none(tmp_path: Path) -> None:
    study, inbox = numeric_study(), tmp_path / "inbox"
    sites = sent(study, inbox)
    send(study, sites[0], 0, inbox, "copy.bundle")
    send(study, replace(sites[1], rows=sites[1].rows[::-1]), 1, inbox, "again.bundle")
    intake = collect(study, inbox, tmp_path / "work")
    assert [bundle.member.name for bundle in intake.bundles] == ["site-0", "site-2", "site-3"]
    assert sorted(entry.file for entry in intake.set_aside) == ["again.bundle", "copy.bundle", "site-1.bundle"]
    assert intake.missing == ("site-1",)


def test_the_first_bundle_that_was_accepted_stays(tmp_path: Path) -> None:
    study, inbox, work = numeric_study(), tmp_path / "inbox", tmp_path / "work"
    sites = sent(study, inbox, [0, 1])
    first = collect(study, inbox, work).bundles[0].digest
    send(study, replace(sites[0], rows=-sites[0].rows), 0, inbox, "a-second.bundle")
    again = collect(study, inbox, work)
    assert again.bundles[0].digest == first
    assert [entry.file for entry in again.set_aside] == ["a-second.bundle"]
    (inbox / "site-0.bundle").unlink()
    gone = collect(study, inbox, work)
    assert [bundle.member.name for bundle in gone.bundles] == ["site-1"]
    assert gone.gone == ("site-0",)
    assert gone.missing == ("site-0", "site-2", "site-3")
    send(study, sites[0], 0, inbox)
    assert collect(study, inbox, work).bundles[0].digest == first


def test_bundles_come_from_any_address_and_too_large_ones_stay_there(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    study, inbox = numeric_study(), tmp_path / "inbox"
    sent(study, inbox, [0, 1])
    memory = fsspec.filesystem("memory")
    for path in inbox.iterdir():
        memory.pipe(f"/mooring-test/{path.name}", path.read_bytes())
    memory.pipe("/mooring-test/site-9.bundle", bytes(200_000))
    memory.pipe("/mooring-test/deeper/site-2.bundle", b"not looked at")
    intake = collect(study, "memory://mooring-test", tmp_path / "work", most_bytes=100_000)
    assert [bundle.member.name for bundle in intake.bundles] == ["site-0", "site-1"]
    assert [(entry.file, entry.reason) for entry in intake.set_aside] == [("site-9.bundle", TOO_LARGE)]
    assert len(list((tmp_path / "work" / "received").iterdir())) == 2
    assert has_mode(tmp_path / "work", 0o700)
    with raising(StorageError, "the source of bundles"):
        collect(study, "memory://nothing-here", tmp_path / "work")


def test_a_stream_without_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe("/mooring-endless/site-0.bundle", bytes(10))

    class Endless:
        def __enter__(self) -> "Endless":
            return self

        def __exit__(self, *_: object) -> None: ...

        def read(self, size: int) -> bytes:
            return bytes(size)

    monkeypatch.setattr(type(memory), "open", lambda *_: Endless())
    intake = collect(numeric_study(), "memory://mooring-endless", tmp_path / "work", most_bytes=10_000_000)
    assert "larger" in intake.set_aside[0].reason
    assert list((tmp_path / "work" / "received").iterdir()) == []


def test_an_inbox_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    with raising(StorageError, "the folder of bundles"):
        collect(numeric_study(), tmp_path / "nothing", tmp_path / "work")


@pytest.mark.parametrize(("n", "n_kept"), [(10_000, 10_000), (10_001, 10_000)])
def test_up_to_ten_thousand_refused_files_are_recorded(n: int, n_kept: int, tmp_path: Path) -> None:
    refused = (RejectedBundle("x", "y"),) * n
    intake = Register(tmp_path, numeric_study(), {}, {}).write(Intake((), refused, ()), "")
    assert intake.record is not None
    assert (len(intake.set_aside), len(intake.record.set_aside)) == (n, n_kept)


@pytest.mark.parametrize(("n_bytes", "is_read"), [(2**28, True), (2**28 + 1, False)])
def test_a_record_of_bundles_is_read_up_to_256_mb(
    n_bytes: int, is_read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Register(tmp_path, numeric_study(), {}, {}).write(Intake((), (), ()), "")
    content = (tmp_path / INTAKE_FILE).read_bytes()

    def read(path: Path, most_bytes: int, *, what: str) -> bytes:
        """Read the file as if it had so many bytes."""
        if n_bytes > most_bytes:
            raise RefusedError(what, reason="it is too large", cure="Check it.")
        return content

    monkeypatch.setattr("mooring.serialization.read_bounded", read)
    if is_read:
        assert Register.read(tmp_path, numeric_study()).remembered == {}
    else:
        with raising(InputError, "the record of bundles", got="too large"):
            Register.read(tmp_path, numeric_study())


def test_an_inbox_takes_bundles_as_large_as_they_can_be(tmp_path: Path) -> None:
    study, path = numeric_study(), tmp_path / "a.bundle"
    assert exchange_of(study).most_bundle_bytes(study) == MOST_BYTES
    path.write_bytes(b"12345")
    assert (_check_local(path, 5), _check_local(path, 4)) == (path, TOO_LARGE)
