"""A vault: its owner's only, kept whatever happens, and shut to the wrong passphrase."""

import json
import math
import os
import stat
import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mooring.atomic_io import LockHeldError, hold_lock
from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.crypto.keys import SealingKey, Secret, SigningKey
from mooring.protocol.messages.signed_file import write_signed
from mooring.protocol.storage.vault import Floors, Vault, _check_of
from tests.permissions import has_mode
from tests.raising import raising

PASSPHRASE = "correct horse battery staple"


def secrets_of(vault: Vault) -> list[bytes]:
    """All of them, as they are and as the identity's file writes them."""
    raw = [vault.signing_key.seed, vault.sealing_key.seeds, vault.master, vault.ledger_key]
    return [*(secret.reveal() for secret in raw), *(secret.reveal().hex().encode() for secret in raw)]


def test_a_vault_opens_to_what_was_made(folder):
    made = Vault.create(folder / "vault", floors=Floors(0.02, 0.4, True))
    assert Vault.open(folder / "vault") == made
    for name, value in (("data_noise", math.nan), ("anchor_noise", -0.1), ("most_epsilon", math.inf)):
        with raising(InputError, name.replace("_", " "), got=f"{value:g}"):
            Floors(**{name: value})


@pytest.mark.posix
def test_everything_in_a_vault_is_its_owners_only(small_study):
    """Also with a umask that lets everybody read."""
    before = os.umask(0)
    try:
        vault = Vault.create(small_study.folder / "open-minded")
        small_study.share(output=small_study.folder / "out.bundle")
    finally:
        os.umask(before)
    for each in (vault, *small_study.vaults):
        assert has_mode(each.folder, 0o700)
        for path in each.folder.rglob("*"):
            assert has_mode(path, 0o700 if path.is_dir() else 0o600), path.name


def test_a_vault_is_never_overwritten(folder):
    made = Vault.create(folder / "vault")
    for passphrase in (None, PASSPHRASE):
        with raising(InputError, "vault", problem="already has a vault"):
            Vault.create(folder / "vault", passphrase=passphrase)
    assert Vault.open(folder / "vault") == made


def test_of_many_that_join_in_one_folder_at_once_one_has_the_vault(folder, at_once):
    """Every process that reports that it joined must hold the keys that the vault keeps."""
    for attempt in range(5):
        shared = folder / f"vault-{attempt}"

        def join(shared: Path = shared) -> None:
            vault = Vault.create(shared)
            (folder / f"{shared.name}-{os.getpid()}.card").write_text(vault.signing_key.public)

        assert sorted(at_once([join] * 6)) == [0, 5, 5, 5, 5, 5]
        (card,) = folder.glob(f"{shared.name}-*.card")
        assert card.read_text() == Vault.open(shared).signing_key.public


def test_a_passphrase_locks_the_vault(folder):
    made = Vault.create(folder / "vault", passphrase=PASSPHRASE)
    assert [path.name for path in (folder / "vault").glob("identity*")] == ["identity.locked"]
    locked = (folder / "vault" / "identity.locked").read_bytes()
    assert not [secret for secret in secrets_of(made) if secret in locked]
    assert has_mode(folder / "vault" / "identity.locked", 0o600)
    assert Vault.open(folder / "vault", passphrase=PASSPHRASE) == made
    with raising(RefusedError, "the vault", reason="passphrase does not open it") as caught:
        Vault.open(folder / "vault", passphrase="incorrect horse")
    assert "horse" not in str(caught.value)
    with raising(InputError, "passphrase"):
        Vault.open(folder / "vault")
    for damaged in (locked[:40], b"", locked[:-1] + bytes([locked[-1] ^ 1])):
        (folder / "vault" / "identity.locked").write_bytes(damaged)
        with raising(RefusedError, "the vault"):
            Vault.open(folder / "vault", passphrase=PASSPHRASE)


def test_an_empty_passphrase_is_refused_before_anything_is_made(folder):
    with raising(InputError, "passphrase", problem="empty"):
        Vault.create(folder / "vault", passphrase="")
    assert not list(folder.rglob("identity*"))
    Vault.create(folder / "vault")


def damaged_identities(good: bytes) -> dict[str, bytes]:
    plain = json.loads(good)
    bad = {
        "nothing": b"",
        "cut short": good[: len(good) // 2],
        "zeros": bytes(len(good)),
        "no text": bytes(range(256)),
        "another thing": b"[1, 2, 3]",
        "a word": b'"identity"',
        "too deep": b"[" * 100_000,
        "another version": json.dumps(plain | {"format": 2}).encode(),
    }
    for name in ("signing", "sealing", "master", "ledger", "floors"):
        bad[f"no {name}"] = json.dumps({key: value for key, value in plain.items() if key != name}).encode()
        bad[f"{name} a number"] = json.dumps(plain | {name: 7}).encode()
    for name in ("signing", "sealing", "master", "ledger"):
        bad[f"a short {name}"] = json.dumps(plain | {name: plain[name][:-2]}).encode()
        other = "0" if plain[name][5] != "0" else "1"
        bad[f"one digit of {name}"] = json.dumps(plain | {name: plain[name][:5] + other + plain[name][6:]}).encode()
    bad["a floor taken away"] = json.dumps(plain | {"floors": plain["floors"] | {"data_noise": 0.0}}).encode()
    unlimited = {key: value for key, value in plain.items() if key != "check"} | {"floors": {"data_noise": math.nan}}
    bad["a floor that is no number"] = json.dumps(unlimited | {"check": _check_of(unlimited)}).encode()
    return bad


def test_a_damaged_identity_is_refused_and_left_as_it_is(folder):
    """One wrong digit would be other noise for the same rows, or a ledger that knows none of them."""
    made = Vault.create(folder / "vault")
    path = folder / "vault" / "identity.json"
    good = path.read_bytes()
    for damaged in damaged_identities(good).values():
        path.write_bytes(damaged)
        with raising(RefusedError, "the vault", reason="damaged or was written") as caught:
            Vault.open(folder / "vault")
        assert not [secret for secret in secrets_of(made) if secret.hex() in str(caught.value)]
        with raising(InputError, "vault", problem="already has a vault"):
            Vault.create(folder / "vault")
        assert path.read_bytes() == damaged
    path.write_bytes(good)
    assert Vault.open(folder / "vault") == made


def test_an_identity_of_unbelievable_size_is_not_read(folder):
    Vault.create(folder / "vault")
    for n_bytes, reason in ((2**20, "damaged"), (2**20 + 1, "larger"), (2**33, "larger")):
        os.truncate(folder / "vault" / "identity.json", n_bytes)
        with raising(RefusedError, "the vault", reason=reason):
            Vault.open(folder / "vault")


def test_a_folder_without_a_vault_is_a_clear_error(folder):
    with raising(StorageError, "the vault", cure="mooring join"):
        Vault.open(folder)
    (folder / "identity.json").mkdir()
    with pytest.raises(StorageError):
        Vault.open(folder)


def test_a_sealing_key_that_is_none_is_refused_without_being_quoted():
    key = SealingKey(Secret(b"CANARY"))
    for use in (lambda: key.public, lambda: key.open(b"sealed", info=b"")):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            use()
        assert "CANARY" not in repr(caught.value) + str(caught.value)


def test_a_vault_with_other_keys_than_the_roster_says_is_refused(small_study):
    stranger = Vault.create(small_study.folder / "stranger")
    for vault, reason in ((stranger, "not in its roster"), (small_study.analyst, "the analyst's")):
        with raising(RefusedError, "the study", reason=reason):
            small_study.share(vault, output=small_study.folder / "out.bundle")


def test_a_lock_is_held_against_processes_and_threads(small_study):
    """While one process holds it, neither another nor a second thread's attempt lets anybody in."""
    vault, log = small_study.vaults[1], small_study.folder / "log"
    script = (  # a process of its own and no fork, which would inherit what SQLite knows of this one's locks
        "import sys; from pathlib import Path; from mooring.protocol.storage.vault import Vault\n"
        "vault = Vault.open(Path(sys.argv[1])); print('ready', flush=True)\n"
        "with vault.lock(): Path(sys.argv[2]).open('a').write('other\\n')\n"
    )

    def enter() -> None:
        with vault.lock(), log.open("a") as file:
            file.write("other\n")

    command = [sys.executable, "-c", script, str(vault.folder), str(log)]
    with vault.lock():
        waiting = threading.Thread(target=enter)
        waiting.start()
        waiting.join(0.2)  # by now it has tried; that must not have opened the door
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            threading.Event().wait(0.5)
            entered = log.exists()
            process.kill()
    waiting.join(300)
    assert not entered
    subprocess.run(command, check=True, timeout=300)
    assert log.read_text() == "other\n" * 2


def test_records_can_be_written_while_others_take_the_lock(small_study, start):
    """Whoever takes the lock clears unfinished files away; a record that is being written must not be one of them."""
    vault, study = small_study.vaults[1], small_study.study

    done = small_study.folder / "done"

    def write() -> None:
        try:
            for k in range(100):
                vault.write(study.folder_name, "check.json", str(k).encode())
        finally:
            done.touch()

    def lock() -> None:
        while not done.exists():
            with vault.lock():
                pass

    pids = [start(action) for action in (write, lock, lock)]
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0, 0, 0]
    assert (vault.study_folder(study.folder_name) / "check.json").read_bytes() == b"99"


@pytest.mark.parametrize(("first", "second", "fine"), [(True, True, True), (True, False, False), (False, True, False)])
def test_a_lock_is_shared_only_by_those_who_share_it(tmp_path, first, second, fine):
    held, asked = (hold_lock(tmp_path / "lock", what="the folder", shared=shared) for shared in (first, second))
    with held, nullcontext() if fine else pytest.raises(LockHeldError), asked:
        pass
    with hold_lock(tmp_path / "lock", what="the folder", shared=second):
        pass


def test_a_process_that_dies_lets_go_of_the_lock(small_study, exit_code):
    vault = small_study.vaults[1]

    def die() -> None:
        with vault.lock():
            os._exit(9)

    assert exit_code(die) == 9
    with vault.lock():
        pass


def test_what_a_study_leaves_in_the_vault_is_kept_by_study(small_study):
    other = replace(small_study.study, nonce="f" * 32)
    vault = small_study.vaults[1]
    first, second = (
        vault.write(small_study.study.folder_name, "note.json", b"1"),
        vault.write(other.folder_name, "note.json", b"2"),
    )
    assert (first.read_bytes(), second.read_bytes()) == (b"1", b"2")


def test_a_folder_that_others_could_read_is_closed_to_them(folder):
    (folder / "vault").mkdir(mode=0o755)
    assert has_mode(Vault.create(folder / "vault").folder, 0o700)


@pytest.mark.posix
def test_a_signed_file_is_for_nobody_else_to_write(folder):
    """Also with a umask that lets everybody write."""
    before = os.umask(0)
    try:
        write_signed(folder / "file", kind="map", fields={}, arrays={"a": np.zeros(2)}, signer=SigningKey.generate())
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "file").stat().st_mode) & ~0o644 == 0
