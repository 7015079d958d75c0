"""A process that is killed, or whose disk fails, at any of its writes: nothing torn, no second noise, secrets kept."""

import ctypes
import errno
import hashlib
import json
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
from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.results import CheckSummary, Consent
from mooring.protocol.rotation.anchor import deal_anchor, open_anchor
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Vault
from tests.raising import raising

pytestmark = pytest.mark.posix
KILLED = 77
MOST_POINTS = 400
WRITES = {"open", "write", "flush", "truncate", "fsync", "replace", "link", "mkdir", "chmod"}
CHANGES = WRITES | {
    *("close", "rename", "unlink", "connect", "execute", "commit", "__enter__", "__exit__")
}  # with SQLite's


def at_each(names: set[str], nth: int, do: Callable[[Any], None]) -> Callable[[Any, str, Any], None]:
    """A profiler that does something just before the n-th C function that changes the disk; before each, if n is 0."""
    seen = 0

    def hook(frame: Any, event: str, function: Any) -> None:
        nonlocal seen
        if event == "c_call" and function.__name__ in names and is_of_the_disk(function):
            seen += 1
            if nth in (0, seen):
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


def content_of(place: Path) -> dict[str, tuple[int, bytes]]:
    """Names, permissions and bytes of all that is in a folder."""
    paths = sorted(place.rglob("*"))
    return {str(path.relative_to(place)): (path.stat().st_mode, path.is_file() and path.read_bytes()) for path in paths}


def every_kill(place: Path, action: Callable[[], object], *, least: int) -> Iterator[None]:
    """Put into a folder, one after another, whatever different a kill before a change of the disk would leave there.

    The action runs once, and the folder is copied before each change: what is in memory is lost to a copy as to a kill.
    """
    points, content, left = 0, None, []

    def keep(function: Any) -> None:
        nonlocal points, content
        points += 1
        if content != (content := content_of(place)):
            left.append(place.parent / f"{place.name}-{points}")
            shutil.copytree(place, left[-1])

    failing(at_each(CHANGES, 0, keep), action)
    keep(None)
    assert points >= least
    for path in left:
        shutil.rmtree(place)
        shutil.copytree(path, place)
        yield


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


def share_in(small_study: Any, place: Path, data: Path, **rest: Any) -> Callable[[], object]:
    """A share by a copy of the vault in a folder, to a bundle beside it."""
    place.mkdir()
    vault = small_study.copy_of_vault(f"{place.name}/vault")
    return lambda: small_study.share(vault, data, output=place / "out.bundle", **rest)


def test_a_share_killed_at_every_write_keeps_who_overrode_a_limit_and_why(small_study, whole):
    place, limit, why = small_study.folder / "killed", "error at least 0.5", "Dr. Ash: agreed"
    (entry,) = Ledger(small_study.folder / "reference").entries()
    checked = CheckSummary(entry.rows_digest, {entry.rows_digest: (limit,)}, "Do not share.", True, "")
    study, given = small_study.another(upload_limits=(limit,)), {"consent": Consent(True, why, "mooring share")}
    study.vaults[1].write(study.study.folder_name, "checked.json", checked.to_json().encode())
    for _ in every_kill(place, share_in(study, place, study.table(1), **given), least=60):
        vault, output = Vault.open(place / "vault"), place / "out.bundle"
        record = vault.study_path(study.study.folder_name) / "share.json"
        kept = json.loads(record.read_bytes()) if output.exists() else {"override": why, "command": "mooring share"}
        assert (kept["override"], kept["command"]) == (why, "mooring share")
        is_issued = any(entry.bundle for entry in Ledger(vault.folder).entries())
        shared = study.share(vault, output=output, **({} if is_issued else given))
        assert (shared.override, shared.exceeded) == (why, (limit,))


def test_a_share_killed_at_every_write_is_taken_up_again_to_the_same_bytes(small_study, whole):
    """The rerun would differ in every byte of the noise if anything were drawn afresh."""
    identity = (small_study.vaults[1].folder / "identity.json").read_bytes()
    place, issued_first, digest = small_study.folder / "killed", 0, hashlib.sha256(whole).hexdigest()
    for _ in every_kill(place, share_in(small_study, place, small_study.table(1)), least=60):
        vault, output = Vault.open(place / "vault"), place / "out.bundle"
        if output.exists():
            issued_first += 1
            assert [entry.bundle for entry in Ledger(vault.folder).entries()] == [digest]  # known before it could leave
        assert len(Ledger(vault.folder).entries()) <= 1
        take_up_again(small_study, vault, output, whole)
        assert (vault.folder / "identity.json").read_bytes() == identity
        require_whole(vault, small_study.study, digest)
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


def test_a_share_killed_and_begun_with_other_rows_leaves_one_upload(small_study):
    """Before the ledger says that the bundle is finished, nothing has left, so other rows may take its place; not after."""
    place, other = small_study.folder / "killed", small_study.table(2)
    second, refusals, taken = small_study.folder / "second.bundle", 0, 0
    for _ in every_kill(place, share_in(small_study, place, small_study.table(1)), least=60):
        try:
            small_study.share(Vault.open(place / "vault"), other, output=second)
        except RefusedError:
            refusals += 1
        else:
            taken += 1
            assert not (place / "out.bundle").exists()
    assert min(refusals, taken) >= 2


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


def test_joining_killed_at_every_write_leaves_no_vault_or_a_whole_one(folder):
    place, there = folder / "place", 0
    place.mkdir()
    for _ in every_kill(place, lambda: Vault.create(place / "vault"), least=8):
        for left in place.rglob(".*.partial"):
            assert stat.S_IMODE(left.stat().st_mode) == 0o600
        if (place / "vault/identity.json").exists():
            there += 1
            before = Vault.open(place / "vault")
            with raising(InputError, "vault", problem="already has a vault"):
                Vault.create(place / "vault")
            assert Vault.open(place / "vault") == before
        else:
            assert Vault.create(place / "vault") == Vault.open(place / "vault")
    assert there >= 1


def test_dealing_killed_at_every_write_deals_the_same_anchor_again(small_study):
    study, receiver, place = small_study.study, small_study.vaults[2], small_study.folder / "killed"
    expected = open_anchor(receiver, study, small_study.anchor).digest
    shutil.rmtree(small_study.vaults[0].folder / "studies")
    place.mkdir()
    path, dealer = place / "again.anchor", small_study.copy_of_vault("killed/vault", 0)
    for _ in every_kill(place, lambda: deal_anchor(dealer, study, path), least=15):
        vault = Vault.open(place / "vault")
        handed_out = path.read_bytes() if path.exists() else None
        if handed_out is not None:
            assert open_anchor(receiver, study, path).digest == expected
        digest = deal_anchor(vault, study, path)
        assert handed_out in (None, path.read_bytes())  # sealing is random: what was handed out must be kept
        assert deal_anchor(vault, study, path) == digest
        assert open_anchor(receiver, study, path).digest == expected
        assert not list(vault.folder.rglob("*.partial"))


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


DISK, *OTHERS = (OSError(code, os.strerror(code)) for code in (errno.ENOSPC, errno.EROFS, errno.EIO))
LEDGER = sqlite3.OperationalError("database or disk is full")


@pytest.mark.parametrize("faults", [[DISK], OTHERS, [LEDGER]], ids=["full", "others", "ledger"])
def test_a_disk_that_fails_at_every_write_gives_a_clear_error_and_loses_nothing(small_study, faults, whole):
    names, least = ({"connect", "execute"}, 10) if LEDGER in faults else (WRITES, 20)
    data, output, points = small_study.table(1), small_study.folder / "out.bundle", 0

    def fail(function: Any) -> None:
        raise faults[points % len(faults)]

    for nth in range(1, MOST_POINTS):
        vault = small_study.copy_of_vault("failing")
        problem = failing(at_each(names, nth, fail), lambda: small_study.share(vault, data, output=output))  # noqa: B023
        if problem is None:
            break
        points += 1
        assert str(small_study.folder) not in str(problem)
        assert problem.cure.endswith(".")
        assert faults != [DISK] or "disk is full" in problem.reason
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
    content = b"bundle" + bytes(2**24)
    source.write_bytes(content)
    target.parent.mkdir()
    copy_atomically(source, target)
    assert target.samefile(source)

    def no_links(*_: object) -> None:
        raise OSError(errno.EXDEV, "another disk")

    monkeypatch.setattr(os, "link", no_links)
    target.unlink()
    copy_atomically(source, target)
    assert target.read_bytes() == content
    assert not target.samefile(source)
    assert [path.name for path in Path(target.parent).iterdir()] == ["target"]
