"""Cards: what they hold, and that none can be changed."""

import tomllib
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from mooring.errors import InputError, RefusedError
from mooring.mechanisms.sums.settings import SumSettings
from mooring.protocol.crypto.keys import SealingKey, SigningKey
from mooring.protocol.designer.revision import enrol_cards
from mooring.protocol.messages.card import Member, Role, read_card, require_name, write_card
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import issue_card
from mooring.protocol.storage.vault import Vault
from tests.protocol.support import AGREED, message, write_member_card
from tests.raising import raising

SUMS = replace(AGREED, mechanism=SumSettings(combiners=("p0", "p1")))


def test_a_card_reads_back_and_holds_public_keys_only(tmp_path: Path) -> None:
    for name, role in (("north", "participant"), ("analyst", "analyst")):
        path, member = write_member_card(tmp_path, name, role)
        assert read_card(path) == (role, member)


def test_no_changed_card_is_read(tmp_path: Path) -> None:
    path, _ = write_member_card(tmp_path, "north")
    good = path.read_bytes()
    start = good.index(b"format")
    for at in range(start, len(good) - 1, 3):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises((InputError, RefusedError)):
            read_card(path)
    for content in (b"", good + b"more = 1\n", good * 40, b"\xff", b"format = 1\n", b"a = " + b"[" * 3000):
        path.write_bytes(content)
        with pytest.raises((InputError, RefusedError)):
            read_card(path)


@pytest.mark.parametrize("name", ["everybody", "con", "nul.hospital", "north.", "North", "../north", ""])
def test_no_member_has_a_name_that_stands_for_something_else_where_files_are_exchanged(name: str) -> None:
    """All members read files for 'everybody'; Windows has devices of some names, and drops a dot at the end of others."""
    with raising(InputError, "name"):
        require_name("name", name)
    require_name("name", "con-sortium")


@pytest.mark.parametrize("port", ["com", "lpt"])
def test_the_ten_ports_of_windows_are_no_names(port: str) -> None:
    for k in range(10):
        with raising(InputError, "name"):
            require_name("name", f"{port}{k}")
    require_name("name", f"{port}10")


@pytest.mark.parametrize("format", ["true", "2", "1.0", '"1"'])
def test_a_card_of_a_different_format_is_refused(tmp_path: Path, format: str) -> None:
    path, _ = write_member_card(tmp_path, "north")
    path.write_text(path.read_text().replace("format = 1\n", f"format = {format}\n"))
    with raising(InputError, "format"):
        read_card(path)


def test_a_card_cannot_put_its_writers_sealing_key_beside_anothers_signing_key(tmp_path: Path) -> None:
    path, member = write_member_card(tmp_path, "north")
    mine = SealingKey.generate().public
    path.write_text(path.read_text().replace(member.sealing_key, mine))
    assert "proof" in message(lambda: read_card(path), RefusedError)
    with pytest.raises(InputError):
        write_card(path, role="participant", member=member, signer=SigningKey.generate())


def test_a_card_cannot_name_the_sealing_key_of_another(tmp_path: Path) -> None:
    """With one's own signing key: the dealer would seal to the victim, and the victim could not be enrolled."""
    _, victim = write_member_card(tmp_path, "north")
    signer = SigningKey.generate()
    forged = Member("south", signer.public, victim.sealing_key, victim.sealing_proof)
    path = tmp_path / "forged.card.toml"
    with raising(RefusedError, "the card of 'south'", reason="sealing key"):
        write_card(path, role="participant", member=forged, signer=signer)
    with patch.object(Member, "holds_sealing_key", True):
        write_card(path, role="participant", member=forged, signer=signer)
    with raising(RefusedError, "the card of 'south'", reason="sealing key"):
        read_card(path)


def test_participants_and_the_analyst_have_a_sealing_key_and_no_other_role_is_known(tmp_path: Path) -> None:
    signer = SigningKey.generate()
    for role, sealing in (
        ("participant", ""),
        ("analyst", ""),
        ("helper", SealingKey.generate().public),
        ("dealer", ""),
    ):
        with raising(InputError, "card"):
            write_card(tmp_path / "c", role=role, member=Member("a", signer.public, sealing), signer=signer)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", [0, 7])
@pytest.mark.parametrize("change", ["a digit", "another's", "no key"])
def test_a_card_whose_combining_key_is_not_proved_is_refused(change: str, place: int, tmp_path: Path) -> None:
    path = tmp_path / "a.card.toml"
    member = issue_card(Vault.create(tmp_path / "vault"), path, name="a")
    assert read_card(path) == ("participant", member)
    lines = path.read_text().splitlines()
    keys = [k for k, line in enumerate(lines) if line.startswith("    [")]
    assert len(keys) == 20
    key, proof = tomllib.loads(f"pair = {lines[keys[place]].rstrip(',')}")["pair"]
    if change == "a digit":
        proof = proof[:-1] + ("0" if proof[-1] != "0" else "1")
    elif change == "another's":
        key = SealingKey.generate().public
    else:
        key = key[:-8]
    lines[keys[place]] = f'    ["{key}", "{proof}"],'
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises((RefusedError, InputError)):
        read_card(path)


def test_a_study_of_sums_takes_a_key_from_the_card_of_each_combiner_until_none_is_left(tmp_path: Path) -> None:
    cards = [tmp_path / f"{name}.card.toml" for name in ("p0", "p1", "p2", "lab")]
    vaults = [Vault.create(tmp_path / card.name.split(".")[0]) for card in cards]
    for card, vault in zip(cards, vaults, strict=True):
        role: Role = "analyst" if card.name.startswith("lab") else "participant"
        issue_card(vault, card, name=card.name.split(".")[0], role=role)
    used = set()
    for number in range(20):
        study = replace(SUMS, nonce=f"{number:032x}")
        study.write(path := tmp_path / "study.toml")
        enrolled = enrol_cards(path, cards)
        assert Study.read(path) == enrolled
        keys = [member.combining_key for member in enrolled.participants]
        assert keys[2] == ""  # p2 does not combine
        used |= set(keys[:2])
    assert len(used) == 40
    SUMS.write(path)
    with raising(InputError, "card 'p0.card.toml'", problem="no combining key left"):
        enrol_cards(path, cards)
    issue_card(vaults[0], cards[0], name="p0")
    issue_card(vaults[1], cards[1], name="p1")
    assert len(used | {member.combining_key for member in enrol_cards(path, cards).participants[:2]}) == 42
    AGREED.write(path)  # by rotation
    before = cards[0].read_bytes()
    assert not any(member.combining_key for member in enrol_cards(path, cards).participants)
    assert cards[0].read_bytes() == before
