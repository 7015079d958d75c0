"""Sealing keys: boxes open with the right key and purpose only, and a library without the algorithm is named."""

import base64
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import mlkem

from mooring.errors import RefusedError, StorageError
from mooring.protocol.crypto import keys
from mooring.protocol.crypto.keys import (
    BOX_OVERHEAD,
    LOCK_OVERHEAD,
    SealingKey,
    Secret,
    derive_key,
    is_sealing_key,
    lock,
    lock_with_passphrase,
    seal_box,
    unlock,
    unlock_with_passphrase,
)
from tests.raising import raising


def test_a_box_opens_with_its_key_and_purpose_only_and_not_when_a_bit_is_changed() -> None:
    key, other = SealingKey.generate(), SealingKey.generate()
    box = seal_box(b"share", key.public, info=b"study")
    assert len(box) == BOX_OVERHEAD + 5
    assert SealingKey(key.seeds).open(box, info=b"study") == b"share"
    assert box != seal_box(b"share", key.public, info=b"study")
    for bad in (box[:-1], b"", *(box[:at] + bytes([box[at] ^ 1]) + box[at + 1 :] for at in (0, 1087, 1088, 1119, -1))):
        with raising(RefusedError, "the box"):
            key.open(bad, info=b"study")
    for opener, info in ((other, b"study"), (key, b"another study")):
        with raising(RefusedError, "the box"):
            opener.open(box, info=info)


def test_what_is_locked_opens_with_its_key_or_passphrase_and_unchanged_only() -> None:
    key, other = Secret.draw(), Secret.draw()
    locked = lock(b"seeds", key)
    assert (unlock(locked, key), unlock(locked, other), len(locked)) == (b"seeds", None, LOCK_OVERHEAD + 5)
    assert locked != lock(b"seeds", key)
    for bad in (b"", locked[:-1], *(locked[:at] + bytes([locked[at] ^ 1]) + locked[at + 1 :] for at in (0, 12, 20))):
        assert unlock(bad, key) is None
    assert derive_key(key, "one purpose") not in (key, derive_key(key, "another"), derive_key(other, "one purpose"))
    closed = lock_with_passphrase(b"identity", "correct horse")
    assert unlock_with_passphrase(closed, "correct horse") == b"identity"
    for bad, passphrase in ((closed, "another"), (closed[:-1], "correct horse")):
        with raising(RefusedError, "the vault", reason="passphrase"):
            unlock_with_passphrase(bad, passphrase)


def test_keys_that_nothing_can_be_sealed_to_are_told() -> None:
    public = SealingKey.generate().public
    assert is_sealing_key(public)
    raw = base64.b64decode(public)
    of_small_order = base64.b64encode(raw[:1184] + bytes(32)).decode()
    another_text = public[:-3] + chr(ord(public[-3]) + 1) + "=="  # unused bits of the last letter
    assert base64.b64decode(another_text) == raw
    for text in ("", public[:-4], public + "AAAA", of_small_order, another_text, "ü" * 1624, "!" * 1624):
        assert not is_sealing_key(text)


@pytest.fixture
def without_lattice() -> Iterator[None]:
    keys._load_suite.cache_clear()
    with patch.object(mlkem, "MLKEM768PrivateKey") as lacking:
        lacking.from_seed_bytes.side_effect = UnsupportedAlgorithm("ML-KEM")
        yield
    keys._load_suite.cache_clear()


@pytest.mark.usefixtures("without_lattice")
def test_a_library_without_the_algorithm_is_named_with_a_cure() -> None:
    with raising(StorageError, "sealing", reason="no ML-KEM-768", cure="cryptography>=50"):
        _ = SealingKey.generate().public
