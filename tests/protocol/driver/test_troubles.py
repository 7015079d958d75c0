"""Half-written files, old copies, places that are away or rolled back, second runs and second devices do no harm."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.driver import Given
from mooring.protocol.driver.journal import Journal
from mooring.protocol.messages.card import read_card
from mooring.protocol.messages.envelope import open_envelope, seal_file
from mooring.protocol.participant.membership import revoke_cards
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Vault
from mooring.protocol.transport.place import Place
from tests.protocol.driver.support import ANALYST, Town, draft, write_table
from tests.raising import raising

TRIO = ("north", "south", "east")


def agreed(folder: Path, mechanism: str) -> Town:
    """A town whose members have agreed on the study; nobody has shared."""
    town = Town.found(folder, draft(mechanism), names=TRIO)
    for name in town.names:
        town.answers[name, "share"] = None
    for _ in range(3):
        for name in town.everybody:
            town.advance(name)
    town.answers.clear()
    return town


@pytest.fixture(scope="module")
def towns(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Town]:
    """Towns that have agreed, by their mechanism."""
    return {mechanism: agreed(tmp_path_factory.mktemp(mechanism), mechanism) for mechanism in ("rotation", "sums")}


@pytest.fixture
def town(towns: dict[str, Town], folder: Path) -> Town:
    """A copy of the town that agreed on secure sums."""
    return moved(towns["sums"], folder / "town")


def moved(town: Town, root: Path) -> Town:
    """A copy of a town in another folder; the names of records depend on the place's address, which is relative to it."""
    shutil.copytree(town.root, root)
    for name in town.everybody:
        (runs,) = (root / name / "vault" / "runs").iterdir()
        runs.rename(runs.with_name(replaced_place(town, root).driver(name).post.journal.folder.name))
    return replaced_place(town, root)


def replaced_place(town: Town, root: Path) -> Town:
    return Town(root, replace(town.place, address=str(root / "post")), town.names, town.helpers)


def snapshot(town: Town) -> dict[str, bytes]:
    """The files at the place."""
    post = town.root / "post"
    return {str(path.relative_to(post)): path.read_bytes() for path in sorted(post.rglob("*")) if path.is_file()}


def roll_back(town: Town, files: dict[str, bytes]) -> None:
    shutil.rmtree(town.root / "post")
    for name, content in files.items():
        path = town.root / "post" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def test_a_table_that_is_exchanged_after_its_check_is_checked_again_before_it_is_shared(
    towns: dict[str, Town], folder: Path
) -> None:
    """What was found of other rows is no advice on these."""
    town = moved(towns["rotation"], folder / "town")
    town.answers["north", "share"] = None
    town.advance("north")
    assert "See what would be disclosed" not in town.took("north")  # it was taken before
    write_table(town.root / "north/patients.csv", 7, 60)
    for _ in range(2):
        town.advance("north")
        assert town.took("north").count("See what would be disclosed") == 1


def test_half_a_file_is_set_aside_and_taken_once_it_is_whole(town: Town) -> None:
    for name in town.names:
        town.advance(name)
    path = town.root / "post" / "south" / "everybody" / "south.bundle"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    town.advance(ANALYST)
    assert not (town.root / ANALYST / "inbox" / "south.bundle").exists()
    assert [event.kind for event in town.events[ANALYST]].count("refused") == 1
    town.advance("south")  # puts the whole file over its beginning
    town.advance(ANALYST)
    assert (town.root / ANALYST / "inbox" / "south.bundle").read_bytes() == whole


def test_a_place_that_is_rolled_back_gets_what_it_lost_and_nothing_newer_is_replaced(town: Town) -> None:
    before = snapshot(town)
    for name in (*town.names, ANALYST):
        town.advance(name)
    early = snapshot(town)
    for name in (*town.names, ANALYST):
        town.advance(name)
    newest = (town.root / ANALYST / "inbox" / "north.receipt").read_bytes()
    roll_back(town, early | {"north/lab/north.receipt.sealed": early["north/lab/north.receipt.sealed"]})
    town.advance(ANALYST)
    assert (town.root / ANALYST / "inbox" / "north.receipt").read_bytes() == newest
    roll_back(town, before)
    shares = [Ledger(town.root / name / "vault").entries() for name in town.names]
    town.go_round()
    assert [Ledger(town.root / name / "vault").entries() for name in town.names] == shares
    for name in town.names:
        assert town.took(name).count("Share") == 1


def test_a_combiner_waits_for_a_listed_bundle_that_comes_after_the_list(town: Town) -> None:
    """As where the place is a folder that a program keeps alike on several machines, in no order."""
    for _ in range(2):
        for name in (*town.names, ANALYST):
            town.advance(name)
    assert (town.root / "post/lab/everybody/closing.list").is_file()
    (town.root / "north/inbox/south.bundle").unlink()
    late = (at_place := town.root / "post/south/everybody/south.bundle").rename(town.root / "late")
    turn = town.advance("north")
    assert [waiting.members for waiting in turn.waits if waiting.step == "combine"] == [("south",)]
    late.rename(at_place)
    town.advance("north")
    assert "Combine" in town.took("north")


def test_a_bundle_that_is_sealed_anew_stays_as_it_was_put(towns: dict[str, Town], folder: Path) -> None:
    town = moved(towns["rotation"], folder / "town")
    town.go_round()
    before = snapshot(town)
    for path in (town.root / "south").glob("south.bundle*"):
        path.unlink()
    assert town.advance("south").is_finished
    assert (town.root / "south" / "south.bundle.sealed").read_bytes() != before["south/lab/south.bundle.sealed"]
    assert snapshot(town) == before


def test_a_table_may_lie_outside_the_folder(towns: dict[str, Town], folder: Path) -> None:
    town = moved(towns["rotation"], folder / "town")
    (folder / "tables").mkdir()
    for name in town.names:
        for table in ("patients.csv", "new.csv"):
            (town.root / name / table).rename(folder / "tables" / f"{name}-{table}")

    def given(town: Town, name: str, **rest: Any) -> Given:
        data = {"data": folder / "tables" / f"{name}-patients.csv"}
        return Given({"check": data, "share": data}, is_analyst=name == ANALYST, share="yes", **rest)

    with patch.object(Town, "given", given):
        town.go_round()
    assert snapshot(town).keys() >= {f"{name}/lab/{name}.bundle.sealed" for name in town.names}


@pytest.mark.parametrize("written", ["../post", "{root}/post/", "{root}/north/../post"])
def test_a_place_that_is_written_differently_is_the_same_place(
    written: str, town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    town.advance("north")
    monkeypatch.chdir(town.root / "north")
    shared = [event for event in town.events["north"] if event.words == "Share"]
    again = replace(town, place=Place(written.format(root=town.root)))
    assert not again.driver("north").look().questions  # nor is a vault taken for a copy of itself
    again.advance("north")
    assert [event for event in town.events["north"] if event.words == "Share"] == shared


def test_times_do_not_matter(town: Town) -> None:
    chance = random.Random(0)
    for _ in range(8):
        for name in town.everybody:
            for path in town.root.rglob("*"):
                if path.is_file() and path.suffix != ".sqlite":
                    when = time.time() + chance.uniform(-(10**8), 10**8)
                    os.utime(path, (when, when))
            town.advance(name)
    assert all(town.took(name).count("Share") == 1 and "Predict" in town.took(name) for name in town.names)


def test_a_second_run_on_a_vault_is_refused_and_a_killed_one_leaves_no_lock(
    town: Town, start: Callable[[Callable[[], object]], int]
) -> None:
    reading, writing = os.pipe()

    def hold() -> None:
        with town.driver("north").lock():
            os.write(writing, b"1")
            time.sleep(60)

    pid = start(hold)
    os.read(reading, 1)
    with raising(RefusedError, "the run"):
        town.advance("north")
    town.advance("south")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert not town.advance("north").away


def test_a_run_waits_while_the_place_is_away_and_goes_on_afterwards(town: Town) -> None:
    (town.root / "post").rename(town.root / "elsewhere")
    for name in town.everybody:
        turn = town.advance(name)
        assert turn.away
        assert not turn.is_finished
    assert not any("Share" in town.took(name) for name in town.names)  # what is made must be comparable with the place
    (town.root / "elsewhere").rename(town.root / "post")
    town.go_round()


def test_a_copy_of_a_vault_on_a_second_device_shares_nothing_and_replaces_nothing(town: Town) -> None:
    shutil.copytree(town.root / "north", second := town.root / "second")
    town.advance("north")
    before = snapshot(town)
    shutil.move(town.root / "north", town.root / "first")
    shutil.move(second, town.root / "north")
    with raising(RefusedError, "the vault", reason="did not put it there"):
        town.advance("north")
    assert snapshot(town) == before
    assert Ledger(town.root / "north" / "vault").entries() == ()


def test_a_revoked_key_is_an_error_that_says_so_and_the_others_lose_nothing(town: Town) -> None:
    revoke_cards(Vault.open(town.root / "south" / "vault"))
    with raising((RefusedError, StorageError)):
        town.advance("south")
    for name in ("north", "east", ANALYST):
        town.advance(name)
    assert not (town.root / ANALYST / "analysis" / "closing.list").exists()
    assert town.advance(ANALYST).waits[0].members == ("south",)


def test_a_card_whose_keys_are_used_up_is_named_and_a_new_one_replaces_it(folder: Path) -> None:
    town = Town.found(folder, draft("sums"), names=TRIO)
    for name in town.names:
        town.advance(name)
    card = folder / "south" / "south.card.toml"
    whole, path = card.read_text(), folder / "post" / "south" / "everybody" / "south.card.toml"
    path.write_text(whole[: whole.index("combining_keys")] + "combining_keys = []\n")
    with raising(InputError, "card 'south.card.toml'"):
        town.advance(ANALYST)
    assert not town.study().participants
    path.write_text(whole)
    town.advance(ANALYST)
    assert len(town.study().participants) == 3


def test_files_of_others_in_a_members_name_are_not_taken(towns: dict[str, Town], folder: Path) -> None:
    town = moved(towns["rotation"], folder / "town")
    folder = town.root
    for name in town.names:
        town.advance(name)
    study, vaults = town.study(), {name: Vault.open(folder / name / "vault") for name in town.everybody}
    for name in town.names:  # all have the anchor now
        town.advance(name)
    bundles = {name: folder / name / f"{name}.bundle" for name in town.names}
    at_place, inbox = folder / "post" / "south" / ANALYST / "south.bundle.sealed", folder / ANALYST / "inbox"
    honest = at_place.read_bytes()
    shutil.rmtree(inbox, ignore_errors=True)
    lab = study.analyst
    assert lab is not None
    forged = folder / "forged"
    for content, signer, name in (("north", "north", "south.bundle"), ("south", "south", "other.bundle")):
        seal_file(bundles[content], forged, study=study, recipient=lab, signer=vaults[signer].signing_key, name=name)
        shutil.copy(forged, at_place)
        town.advance(ANALYST)
        assert not (inbox / "south.bundle").exists()
    shutil.copy(bundles["south"], at_place)  # not sealed
    town.advance(ANALYST)
    assert not (inbox / "south.bundle").exists()
    at_place.write_bytes(honest)
    town.advance(ANALYST)
    assert (inbox / "south.bundle").read_bytes() == bundles["south"].read_bytes()


def test_a_bundle_of_sums_in_anothers_name_is_not_taken(town: Town) -> None:
    for name in town.names:
        town.advance(name)
    at_place, taken = town.root / "post/south/everybody/south.bundle", town.root / ANALYST / "inbox" / "south.bundle"
    honest = at_place.read_bytes()
    shutil.copy(town.root / "north" / "north.bundle", at_place)
    town.advance(ANALYST)
    assert not taken.exists()
    at_place.write_bytes(honest)
    town.advance(ANALYST)
    assert taken.read_bytes() == honest


class KilledError(BaseException):
    """The process ends here."""


@contextmanager
def killed_at(n_writes: int, *, after: bool) -> Iterator[None]:
    """End a run at its n-th write of a file: before the new content has the file's name, or immediately afterwards."""
    real, count = os.replace, 0

    def rename(source: object, target: object) -> None:
        nonlocal count
        count += 1
        if count == n_writes and not after:
            raise KilledError
        real(source, target)  # type: ignore[arg-type]
        if count == n_writes:
            raise KilledError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "replace", rename)
        yield


@pytest.mark.parametrize("mechanism", ["rotation", "sums"])
def test_a_participant_that_is_killed_at_every_write_shares_once_and_the_same_bytes(
    mechanism: str, towns: dict[str, Town], folder: Path
) -> None:
    town = moved(towns[mechanism], folder / "town")
    north, sent, n_killed, n_writes, is_finished = town.root / "north", set[bytes](), 0, 1, False
    while not is_finished:
        try:
            with killed_at(n_writes // 2 + 1, after=bool(n_writes % 2)):
                is_finished = town.advance("north").is_finished
        except KilledError:
            n_killed, n_writes = n_killed + 1, n_writes + 1
        else:
            n_writes = 1
            for name in ("south", "east", ANALYST):
                town.advance(name)
        sent |= {path.read_bytes() for path in (north / "north.bundle",) if path.is_file()}
    assert n_killed > 10
    assert len(sent) == 1
    (entry,) = Ledger(north / "vault").entries()
    assert entry.bundle is not None
    assert (town.root / ANALYST / "inbox" / "north.bundle").read_bytes() == (north / "north.bundle").read_bytes()
    assert (north / "predictions.csv").is_file()


def test_a_member_that_is_killed_while_it_joins_has_one_vault_and_one_card(folder: Path) -> None:
    town = Town.found(folder, draft("rotation"), names=TRIO)
    for n_writes in (1, 2, 3, 20, 22):
        with pytest.raises(KilledError), killed_at(n_writes, after=bool(n_writes % 2)):
            town.advance("north")
    town.advance("north")
    (card,) = (folder / "post" / "north" / "everybody").iterdir()
    assert read_card(card)[1].signing_key == Vault.open(folder / "north" / "vault").signing_key.public


def test_an_envelope_opens_for_its_recipient_its_name_and_its_sender_only(town: Town, folder: Path) -> None:
    study, vaults = town.study(), {name: Vault.open(town.root / name / "vault") for name in town.everybody}
    lab, content, sealed = study.analyst, folder / "content", folder / "sealed"
    assert lab is not None
    for size in (0, 1, 2**20, 2**20 + 1):
        content.write_bytes(random.Random(size).randbytes(size))
        seal_file(content, sealed, study=study, recipient=lab, signer=vaults["north"].signing_key)

        def read(name: str = "lab", title: str = "content", sender: str = "north") -> bytes:
            open_envelope(
                sealed,
                folder / "opened",
                study=study,
                reader=vaults[name],
                name=title,
                senders={vaults[sender].signing_key.public},
            )
            return (folder / "opened").read_bytes()

        assert read() == content.read_bytes()
        assert size < 2 or content.read_bytes()[:64] not in sealed.read_bytes()
        for wrong in (("south",), ("lab", "other"), ("lab", "content", "south")):
            with pytest.raises(RefusedError):
                read(*wrong)
    whole = sealed.read_bytes()
    for at in (len(whole) - 1, len(whole) // 2, 3000):
        sealed.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        (folder / "opened").write_bytes(b"before")
        with pytest.raises(RefusedError):
            read()
        assert (folder / "opened").read_bytes() == b"before"


def test_a_wait_is_as_long_as_since_it_was_first_noted_and_no_time_where_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, now = Journal(tmp_path, ""), [1000.0]
    monkeypatch.setattr("mooring.protocol.driver.journal.time.time", lambda: now[0])
    with journal.lock():
        waits = []
        for seconds, note in ((0, False), (5, True), (7, True), (9, False), (-100, True), (3, True)):
            now[0] += seconds
            waits.append(journal.measure_wait("inbox/a.bundle", note=note))
    assert waits == [0.0, 0.0, 7.0, 16.0, 0.0, 3.0]
