"""Keys: boxes open with the right key and purpose only, keys of small order are known, and a library that lacks an algorithm
is named.
"""

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
    SigningKey,
    derive_key,
    is_of_small_order,
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
    closed = lock_with_passphrase(b"identity", "correct horse")  # which vaults with a passphrase open again
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


SMALL_ORDER = (  # every encoding of a y whose point has an order of eight or less, as libsodium lists them
    "00" * 32,
    "01" + "00" * 31,
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "ec" + "ff" * 30 + "7f",
    "ed" + "ff" * 30 + "7f",
    "ee" + "ff" * 30 + "7f",
)


def test_the_fourteen_encodings_of_small_order_are_known_and_no_neighbour_of_them_is() -> None:
    """With either sign of x, which is the highest bit."""
    for public in SMALL_ORDER:
        y = int.from_bytes(bytes.fromhex(public), "little")
        assert [is_of_small_order((y + sign).to_bytes(32, "little").hex()) for sign in (0, 2**255)] == [True, True]
        for other in {y - 1, y + 1} - {-1} - {int.from_bytes(bytes.fromhex(text), "little") for text in SMALL_ORDER}:
            assert not is_of_small_order(other.to_bytes(32, "little").hex())
    assert not is_of_small_order(SigningKey.generate().public)


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
