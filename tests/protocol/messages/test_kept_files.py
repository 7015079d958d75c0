"""Files that were written before are read, and the same content gives the same bytes: known answers of every format.

Studies, cards and vaults are kept for years. A change of these figures makes files that exist unreadable, or gives one study
two fingerprints: the format's number must change with it.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mooring.protocol.crypto.derivation import Stream, derive
from mooring.protocol.crypto.keys import Secret, derive_key, unlock, unlock_with_passphrase
from mooring.protocol.messages.card import Member, card_fingerprint, proof_text, read_card, write_card
from mooring.protocol.messages.signed_file import write_signed
from mooring.protocol.messages.study import Study
from mooring.protocol.storage.vault import Floors, Vault
from mooring.tables.schema import Column, Label
from tests.keys import fixed_key, keyed_member, sealing_key_of
from tests.permissions import has_mode
from tests.study_settings import make_study

SIGNER = fixed_key(7)
NORTH = keyed_member("north", SIGNER)


def study() -> Study:
    participants = (NORTH, keyed_member("south", fixed_key(8)))
    return make_study(
        "kept",
        "0123456789abcdef" * 2,
        (Column("größe", "number", 0, 2.5), Column("sex", "category", categories=("f", "m"))),
        Label("ill", "classes", ("no", "yes")),
        "aa-i-gdp-anchor-noise",
        3,
        12,
        anchor_noise_scale=0.1,
        participants=participants,
        analyst=Member("lab", fixed_key(9).public),
    )


def test_a_study_has_the_digest_that_it_always_had() -> None:
    assert study().digest == "71a5cb7d0c4179690fd9869362e8afe961f1163865daadc33b28e786c1966daa"
    draft = replace(study(), participants=(), analyst=None, label=Label(), smallest_class=3)
    assert draft.digest == "eadbced78d978b048116cdc4428c85ed71133dfc401be7243fa262c8845d58e0"


def test_a_card_has_the_bytes_that_it_always_had(tmp_path: Path) -> None:
    combining = sealing_key_of(fixed_key(10)).public
    proof = SIGNER.sign(proof_text("combining", combining)).hex()
    member = replace(NORTH, combining_key=combining, combining_proof=proof)
    write_card(tmp_path / "card", role="participant", member=member, signer=SIGNER)
    assert (
        hashlib.sha256((tmp_path / "card").read_bytes()).hexdigest()
        == "e4825da96f0c08e8a054091f4e4771c114951ff0ed8f0bcf1eb1ae94889140c2"
    )
    assert read_card(tmp_path / "card") == ("participant", member)
    assert card_fingerprint("participant", member) == "vx6w-gndt-n4k3-w2hp-4ajb-wd5v-6k6v"


def test_a_signed_file_has_the_bytes_that_it_always_had(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([7, 8, 9], dtype=np.uint8)}
    digest = write_signed(tmp_path / "f", kind="bundle", fields={"study": "s", "rows": 2}, arrays=arrays, signer=SIGNER)
    assert (
        digest
        == hashlib.sha256((tmp_path / "f").read_bytes()).hexdigest()
        == "c50aa8d3ae7192a7499883d4f287c913205b44f90ad602724aa2009314377f00"
    )
    assert has_mode(tmp_path / "f", 0o644)  # a bundle is for others, unless its writer says that it is not


IDENTITY = {
    "format": 1,
    "signing": "07" * 32,
    "sealing": "01" * 96,
    "master": "02" * 32,
    "ledger": "03" * 32,
    "floors": {
        "anchor_noise": 0.02,
        "data_noise": 0.3,
        "without_noise": False,
        "most_epsilon": 4.0,
        "most_pooled_epsilon": 500.0,
        "threshold": 3,
        "n_colluders": 2,
    },
}


def test_a_vault_that_was_made_before_is_opened(tmp_path: Path) -> None:
    content = json.dumps(IDENTITY, sort_keys=True, separators=(",", ":"))
    check = hashlib.sha256(b"mooring identity\n" + content.encode()).hexdigest()
    (tmp_path / "identity.json").write_text(json.dumps({**IDENTITY, "check": check}))
    vault = Vault.open(tmp_path)
    assert vault.signing_key.public == SIGNER.public
    assert vault.floors == Floors(0.02, 0.3, False, 4.0, 500.0, 3, 2)
    assert (vault.sealing_key.seeds, vault.master, vault.ledger_key) == tuple(
        Secret(bytes([k]) * n) for k, n in ((1, 96), (2, 32), (3, 32))
    )
    assert vault._combining_file("public").name == f"{hashlib.sha256(b'public').hexdigest()[:32]}.key"


def test_what_was_locked_before_is_unlocked() -> None:
    """With a key, and with a passphrase that scrypt stretches."""
    assert (
        unlock(bytes.fromhex("67c0e2fc751389bcb3dd8786ec7febaf74f1d3c7b6dd71abae85d17cb71f0cba"), Secret(bytes(32)))
        == b"kept"
    )
    assert (
        unlock_with_passphrase(
            bytes.fromhex(
                "354a190bc9336722c3f986379006e28e51738ce3cf986a0ea6e35453167d018d2d1b8fa4813322c114df5f8850efcf1b"
            ),
            "horse",
        )
        == b"kept"
    )


def test_keys_and_numbers_follow_from_a_secret_as_they_always_did() -> None:
    """Otherwise the same rows would be given different noise, by which it could be averaged away."""
    secret = Secret(bytes(range(32)))
    assert (
        derive_key(secret, "combining keys").reveal().hex()
        == "e7700cd36baa2739e66c11920816f8bbedf64657b9d6b5260c40cf9c656e3045"
    )
    key = derive(secret, "data noise", {"shape": [2, 3], "scale": 0.5})
    assert key.reveal().hex() == "73385795047ba37f543a810d1165d1873cac0ec9acad71d6575a8bdb1b194f2e"
    stream = Stream(key)
    assert stream.normals(5, 3) == pytest.approx(
        [-0.9053102965145414, 1.2376131156793324, 1.249765342711111], rel=1e-12
    )
    assert stream.normals(2**16 - 2, 4) == pytest.approx(
        [-0.4674182600549549, 0.09218677380484251, -0.8783254898295859, -0.11461174974522069], rel=1e-12
    )
    assert stream.permutation(8).tolist() == [7, 6, 5, 0, 4, 1, 3, 2]
