"""A process that is killed, or whose disk fails, at any of its writes: nothing torn, no second noise, secrets kept."""

import ctypes
import errno
import hashlib
import os
import random
import shutil
import signal
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mooring.atomic_io import copy_atomically
from mooring.errors import InputError, StorageError
from mooring.protocol.messages.bundle import verify_bundle
from mooring.protocol.participant.membership import deal_anchor, open_anchor
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Vault
from tests.raising import raising

pytestmark = pytest.mark.posix
KILLED = 77
MOST_POINTS = 400
WRITES = {"open", "write", "flush", "truncate", "fsync", "replace", "link", "mkdir", "chmod"}
CHANGES = WRITES | {
    *("close", "rename", "unlink", "connect", "execute", "commit", "__enter__", "__exit__"),
}  # with SQLite's


def at_each(names: set[str], nth: int, do: Callable[[Any], None]) -> Callable[[Any, str, Any], None]:
    """A profiler that counts C functions that change the disk, and does something just before the n-th."""
    seen = 0

    def hook(frame: Any, event: str, function: Any) -> None:
        nonlocal seen
        if event == "c_call" and function.__name__ in names and is_of_the_disk(function):
            seen += 1
            if seen == nth:
                do(function)

    return hook


def is_of_the_disk(function: Any) -> bool:
    owner = type(getattr(function, "__self__", None)).__module__
    module = getattr(function, "__module__", None) or ""
    return "sqlite3" in owner + module or module in ("posix", "nt") or owner in ("_io", "sqlite3")


def killed_at(nth: int, action: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        sys.setprofile(at_each(CHANGES, nth, lambda _: os._exit(KILLED)))
        action()

    return run


def every_kill(exit_code: Callable[..., int], action: Callable[[int], Callable[[], object]]) -> Iterator[int]:
    """Kill an action at its first write, at its second, …, until it finishes; the test looks after each kill."""
    for nth in range(1, MOST_POINTS):
        code = exit_code(killed_at(nth, action(nth)))
        assert code in (0, KILLED), f"the action failed by itself at point {nth}"
        yield nth
        if code == 0:
            return
    raise AssertionError("the action never finished")


def require_whole(vault: Vault, study: Any, digest: str) -> None:
    """A vault after a share that was not disturbed: one entry, nothing half-written, everything its owner's only."""
    (entry,) = Ledger(vault.folder).entries()
    assert (entry.study, entry.bundle) == (study.digest, digest)
    assert not list(vault.folder.rglob("*.partial"))
    for path in vault.folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path.name


@pytest.fixture
def whole(small_study) -> bytes:
    """The bundle of a share that was not disturbed, by a copy of the vault."""
    small_study.share(small_study.copy_of_vault("reference"), output=small_study.folder / "reference.bundle")
    return (small_study.folder / "reference.bundle").read_bytes()


def take_up_again(small_study: Any, vault: Vault, output: Path, whole: bytes) -> None:
    """Share again after a disturbance: the bundle is the undisturbed one, then and now, and no file stays half-written."""
    assert not output.exists() or output.read_bytes() == whole
    small_study.share(vault, output=output)
    assert output.read_bytes() == whole
    assert not list(vault.folder.rglob("*.partial"))
    output.unlink()


def test_a_share_killed_at_every_write_is_taken_up_again_to_the_same_bytes(small_study, exit_code, whole):
    """The rerun would differ in every byte of the noise if anything were drawn afresh."""
    identity = (small_study.vaults[1].folder / "identity.json").read_bytes()
    data, output = small_study.table(1), small_study.folder / "out.bundle"
    points, issued_first, digest = 0, 0, hashlib.sha256(whole).hexdigest()

    def action(nth: int) -> Callable[[], object]:
        vault = small_study.copy_of_vault("killed")
        return lambda: small_study.share(vault, data, output=output)

    for points in every_kill(exit_code, action):  # noqa: B007
        vault = Vault.open(small_study.folder / "killed")
        if output.exists():
            issued_first += 1
            assert [entry.bundle for entry in Ledger(vault.folder).entries()] == [digest]  # known before it could leave
        assert len(Ledger(vault.folder).entries()) <= 1
        take_up_again(small_study, vault, output, whole)
        assert (vault.folder / "identity.json").read_bytes() == identity
        require_whole(vault, small_study.study, digest)
    print("kill points of a share", points)
    assert points >= 60
    assert issued_first >= 2  # some kills came after the bundle had been handed out


def test_a_share_killed_twice_is_taken_up_again_to_the_same_bytes(small_study, exit_code, whole):
    data, output = small_study.table(1), small_study.folder / "out.bundle"
    for first in range(3, 110, 13):
        vault = small_study.copy_of_vault("killed")
        for nth in (first, 1 + first * 37 % 101):  # the second kill falls anywhere
            assert exit_code(killed_at(nth, lambda: small_study.share(vault, data, output=output))) in (0, KILLED)  # noqa: B023
            assert not output.exists() or output.read_bytes() == whole
        take_up_again(small_study, vault, output, whole)
        require_whole(vault, small_study.study, hashlib.sha256(whole).hexdigest())


def test_a_share_killed_and_begun_with_other_rows_leaves_one_upload(small_study, exit_code):
    """Before the ledger says that the bundle is finished, nothing has left, so other rows may take its place; not after."""
    first, other = small_study.table(1), small_study.table(2)
    output, second = small_study.folder / "out.bundle", small_study.folder / "second.bundle"
    refusals = 0
    for nth in range(1, 115, 6):
        vault = small_study.copy_of_vault("killed")
        exit_code(killed_at(nth, lambda: small_study.share(vault, first, output=output)))  # noqa: B023
        handed_out = output.exists()
        code = exit_code(lambda: small_study.share(vault, other, output=second))  # noqa: B023
        assert code in (0, 3)
        assert not (handed_out and code == 0)
        refusals += code == 3
        output.unlink(missing_ok=True)
        second.unlink(missing_ok=True)
    assert refusals >= 2


def test_a_share_killed_from_outside_at_any_time_is_taken_up_again(small_study, start, whole):
    data, output, killed = small_study.table(1), small_study.folder / "out.bundle", 0
    chance = random.Random(7)
    for _ in range(15):
        vault = small_study.copy_of_vault("killed")
        pid = start(lambda: small_study.share(vault, data, output=output))  # noqa: B023
        time.sleep(chance.uniform(0.0, 0.03))
        os.kill(pid, signal.SIGKILL)
        killed += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        take_up_again(small_study, vault, output, whole)
    assert killed >= 3


def test_joining_killed_at_every_write_leaves_no_vault_or_a_whole_one(folder, exit_code):
    folder, points, there = folder / "vault", 0, 0

    def action(nth: int) -> Callable[[], object]:
        shutil.rmtree(folder, ignore_errors=True)
        return lambda: Vault.create(folder)

    for points in every_kill(exit_code, action):  # noqa: B007
        for left in folder.rglob(".*.partial"):
            assert stat.S_IMODE(left.stat().st_mode) == 0o600
        if (folder / "identity.json").exists():
            there += 1
            before = Vault.open(folder)
            with raising(InputError, "vault", got="one that has one"):
                Vault.create(folder)
            assert Vault.open(folder) == before
        else:
            assert Vault.create(folder) == Vault.open(folder)
    print("kill points of joining", points)
    assert points >= 8
    assert there >= 2


def test_dealing_killed_at_every_write_deals_the_same_anchor_again(small_study, exit_code):
    study, receiver, path = small_study.study, small_study.vaults[2], small_study.folder / "again.anchor"
    expected = open_anchor(receiver, study, small_study.anchor).digest
    shutil.rmtree(small_study.vaults[0].folder / "studies")
    points = 0

    def action(nth: int) -> Callable[[], object]:
        path.unlink(missing_ok=True)
        vault = small_study.copy_of_vault("killed", 0)
        return lambda: deal_anchor(vault, study, path)

    for points in every_kill(exit_code, action):  # noqa: B007
        vault = Vault.open(small_study.folder / "killed")
        handed_out = path.read_bytes() if path.exists() else None
        if handed_out is not None:
            assert open_anchor(receiver, study, path).digest == expected
        digest = deal_anchor(vault, study, path)
        assert handed_out in (None, path.read_bytes())  # sealing is random: what was handed out must be kept
        assert deal_anchor(vault, study, path) == digest
        assert open_anchor(receiver, study, path).digest == expected
        assert not list(vault.folder.rglob("*.partial"))
    print("kill points of dealing", points)
    assert points >= 15


def failing(hook: Callable[[Any, str, Any], None], action: Callable[[], object]) -> StorageError | None:
    """Run an action whose calls fail as the hook says; None if it went well."""
    sys.setprofile(hook)
    try:
        action()
    except StorageError as problem:
        return problem
    finally:
        sys.setprofile(None)
    return None


DISK = [OSError(code, os.strerror(code)) for code in (errno.ENOSPC, errno.EROFS, errno.EIO)]
LEDGER = sqlite3.OperationalError("database or disk is full")


@pytest.mark.parametrize("fault", [*DISK, LEDGER], ids=str)
def test_a_disk_that_fails_at_every_write_gives_a_clear_error_and_loses_nothing(small_study, fault, whole):
    names, least = ({"connect", "execute"}, 10) if fault is LEDGER else (WRITES, 20)
    data, output, points = small_study.table(1), small_study.folder / "out.bundle", 0

    def fail(function: Any) -> None:
        raise fault

    for nth in range(1, MOST_POINTS):
        vault = small_study.copy_of_vault("failing")
        problem = failing(at_each(names, nth, fail), lambda: small_study.share(vault, data, output=output))  # noqa: B023
        if problem is None:
            break
        points += 1
        assert str(small_study.folder) not in str(problem)
        assert problem.cure.endswith(".")
        assert fault is not DISK[0] or "disk is full" in problem.reason
        take_up_again(small_study, vault, output, whole)
    assert points >= least


@pytest.mark.parametrize("room", [0, 1, 100, 511, 600, 1500, 4096, 9000])
def test_files_that_may_not_grow_give_a_clear_error_and_lose_nothing(small_study, exit_code, room, whole):
    """The system's own limit on the size of files, so SQLite's writes fail as well."""
    vault, output = small_study.copy_of_vault("failing"), small_study.folder / "out.bundle"
    data = small_study.table(1)

    def share() -> None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        small_study.share(vault, data, output=output)

    code = exit_code(share)
    assert code in (0, 4)
    assert code == 4 or room > 600  # the bundle alone is longer
    take_up_again(small_study, vault, output, whole)


def give_up_privileges() -> None:
    """Root writes where it may not; without its capabilities it obeys the permissions like everybody else."""
    if os.geteuid() == 0:
        header, nothing = (ctypes.c_uint32 * 2)(0x2008_0522, 0), (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None, use_errno=True).capset(header, nothing) == 0


@pytest.mark.parametrize("which", ["vault", "output"])
def test_read_only_folders_give_a_clear_error_and_lose_nothing(small_study, exit_code, which, whole):
    vault, data = small_study.copy_of_vault("read-only"), small_study.table(1)
    output = small_study.folder / "outgoing" / "out.bundle"
    output.parent.mkdir()
    folder = vault.folder if which == "vault" else output.parent

    def share() -> None:
        give_up_privileges()
        small_study.share(vault, data, output=output)

    folder.chmod(0o500)
    try:
        assert exit_code(share) == 4
        assert not output.exists()
    finally:
        folder.chmod(0o700)
    assert exit_code(share) == 0  # so the permissions were the only obstacle
    assert output.read_bytes() == whole


def test_joining_in_a_read_only_folder_gives_a_clear_error(tmp_path, exit_code):
    def join() -> None:
        give_up_privileges()
        Vault.create(tmp_path / "closed" / "vault")

    (tmp_path / "closed").mkdir(mode=0o500)
    assert exit_code(join) == 4
    (tmp_path / "closed").chmod(0o700)
    assert exit_code(join) == 0


def test_a_large_bundle_is_linked_or_copied_to_the_same_bytes(tmp_path, monkeypatch):
    source, target = tmp_path / "kept", tmp_path / "out" / "target"
    source.write_bytes(b"bundle")
    target.parent.mkdir()
    monkeypatch.setattr("mooring.atomic_io._WORTH_LINKING", 1)
    copy_atomically(source, target)
    assert target.read_bytes() == b"bundle"

    def no_links(*_: object) -> None:
        raise OSError(errno.EXDEV, "another disk")

    monkeypatch.setattr(os, "link", no_links)
    target.unlink()
    copy_atomically(source, target)
    assert (target.read_bytes(), target.samefile(source)) == (b"bundle", False)
    assert [path.name for path in Path(target.parent).iterdir()] == ["target"]


def test_what_was_handed_out_is_a_bundle_that_the_analyst_takes(small_study):
    output = small_study.folder / "out.bundle"
    shared = small_study.share(output=output)
    bundle = verify_bundle(output, small_study.study)
    assert (bundle.member.name, bundle.digest, bundle.n_rows) == ("hospital-1", shared.bundle_digest, 20)
