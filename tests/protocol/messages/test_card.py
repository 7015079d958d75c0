"""Cards: what they hold, and that none can be changed."""

from pathlib import Path
from unittest.mock import patch

import pytest

from mooring.errors import InputError, RefusedError
from mooring.protocol.crypto.keys import SealingKey, Secret, SigningKey, _to_bech32, seal, sealing_key_of
from mooring.protocol.messages.card import Member, read_card, write_card
from mooring.protocol.participant.membership import issue_card
from mooring.protocol.storage.vault import Vault
from tests.protocol.support import message, write_member_card
from tests.raising import raising


def test_a_card_reads_back_and_holds_public_keys_only(tmp_path: Path) -> None:
    for name, role in (("north", "participant"), ("analyst", "analyst")):
        path, member = write_member_card(tmp_path, name, role)
        assert read_card(path) == (role, member)
    assert "AGE-SECRET" not in path.read_text().upper()


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


@pytest.mark.parametrize("format", ["true", "2", "1.0", '"1"'])
def test_a_card_of_a_different_format_is_refused(tmp_path: Path, format: str) -> None:
    path, _ = write_member_card(tmp_path, "north")
    path.write_text(path.read_text().replace("format = 1\n", f"format = {format}\n"))
    with raising(InputError, "format"):
        read_card(path)


def test_a_card_cannot_put_its_writers_sealing_key_beside_anothers_signing_key(tmp_path: Path) -> None:
    path, member = write_member_card(tmp_path, "north")
    mine = SealingKey.of(SigningKey.generate()).public
    path.write_text(path.read_text().replace(member.sealing_key, mine))
    assert "proof" in message(lambda: read_card(path), RefusedError)
    with pytest.raises(InputError):
        write_card(path, role="participant", member=member, signer=SigningKey.generate())


def test_a_card_cannot_name_the_sealing_key_of_another(tmp_path: Path) -> None:
    """With one's own signing key: the dealer would seal to the victim, and the victim could not be enrolled."""
    _, victim = write_member_card(tmp_path, "north")
    signer = SigningKey.generate()
    forged = Member("south", signer.public, victim.sealing_key)
    path = tmp_path / "forged.card.toml"
    with raising(RefusedError, "the card of 'south'", reason="sealing key"):
        write_card(path, role="participant", member=forged, signer=signer)
    with patch("mooring.protocol.messages.card.sealing_key_of", lambda _: victim.sealing_key):
        write_card(path, role="participant", member=forged, signer=signer)
    with raising(RefusedError, "the card of 'south'", reason="sealing key"):
        read_card(path)


def test_what_is_sealed_to_the_public_form_of_a_signing_key_its_holder_opens() -> None:
    for signing in (SigningKey.generate(), SigningKey(Secret(bytes(32)))):
        sealed = seal(b"anchor", [sealing_key_of(signing.public)])
        assert SealingKey.of(signing).open(sealed) == b"anchor"
    assert sealing_key_of("01" + "00" * 31) == _to_bech32("age", bytes(32))  # y = 1 has no u of its own


def test_a_participants_card_has_a_sealing_key_and_an_analysts_none(tmp_path: Path) -> None:
    signer = SigningKey.generate()
    for role, sealing in (("participant", ""), ("analyst", SealingKey.of(signer).public), ("dealer", "")):
        with raising(InputError, "card"):
            write_card(tmp_path / "c", role=role, member=Member("a", signer.public, sealing), signer=signer)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", ["a digit", "no proof", "a proof without a key"])
def test_a_card_whose_combining_key_is_not_proved_is_refused(change: str, tmp_path: Path) -> None:
    path = tmp_path / "a.card.toml"
    issue_card(Vault.create(tmp_path / "vault"), path, name="a", is_analyst=False)
    lines = path.read_text().splitlines()
    (place,) = [k for k, line in enumerate(lines) if line.startswith("combining_proof")]
    if change == "no proof":
        del lines[place]
    elif change == "a digit":
        lines[place] = lines[place][:-2] + ("0" if lines[place][-2] != "0" else "1") + '"'
    else:
        lines = [line for line in lines if not line.startswith("combining_key")]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises((RefusedError, InputError)):
        read_card(path)
