"""An envelope: of any length, for one reader and one name, and of one sender; and none of its blocks elsewhere."""

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from mooring.errors import InputError, MooringError, RefusedError
from mooring.protocol.crypto.keys import Secret
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.envelope import KIND, _encrypt, envelope_of, open_beside, open_envelope, seal_file
from mooring.protocol.messages.signed_file import encode_signed_header
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import make_member
from mooring.protocol.storage.vault import Vault
from tests.keys import fixed_key
from tests.raising import raising
from tests.sites import vaulted_study

MIB = 2**20
OVERHEAD = 1088 + 32 + 16 + 32  # of the sealed key


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Vault:
    return Vault.create(tmp_path_factory.mktemp("reader") / "vault")


@pytest.fixture(scope="module")
def sender(tmp_path_factory: pytest.TempPathFactory) -> Vault:
    return Vault.create(tmp_path_factory.mktemp("sender") / "vault")


@pytest.fixture(scope="module")
def analyst(tmp_path_factory: pytest.TempPathFactory) -> Vault:
    return Vault.create(tmp_path_factory.mktemp("analyst") / "vault")


@pytest.fixture(scope="module")
def study(reader: Vault, sender: Vault, analyst: Vault) -> Study:
    return vaulted_study({"north": reader, "south": sender}, analyst, 2, 8)


class Sealed:
    """A file that was sealed by the sender for the reader, and how it is opened."""

    def __init__(self, folder: Path, study: Study, reader: Vault, sender: Vault) -> None:
        self.source, self.target, self.sealed = folder / "a.bundle", folder / "opened", folder / "x.sealed"
        self.study, self.reader, self.signer = study, reader, sender.signing_key

    def seal(self, data: bytes, **options: Any) -> bytes:
        self.source.write_bytes(data)
        recipient = make_member("north", self.reader)
        seal_file(self.source, self.sealed, study=self.study, recipient=recipient, signer=self.signer, **options)
        return self.sealed.read_bytes()

    def open(self, **options: Any) -> bytes:
        usual = {"study": self.study, "reader": self.reader, "name": "a.bundle", "senders": {self.signer.public}}
        open_envelope(self.sealed, self.target, **(usual | options))
        return self.target.read_bytes()


@pytest.fixture
def envelope(tmp_path: Path, study: Study, reader: Vault, sender: Vault) -> Sealed:
    return Sealed(tmp_path, study, reader, sender)


@pytest.mark.parametrize(
    ("size", "n_blocks"), [(0, 1), (1, 1), (MIB - 1, 1), (MIB, 1), (MIB + 1, 2), (2 * MIB, 2), (2 * MIB + 1, 3)]
)
def test_a_file_of_any_length_comes_out_as_it_went_in(size: int, n_blocks: int, envelope: Sealed) -> None:
    """A block is of 1 MiB, and each has a tag of sixteen bytes."""
    data = bytes(k % 251 for k in range(1000)) * (size // 1000 + 1)
    raw = envelope.seal(data[:size])
    assert envelope.open() == data[:size]
    header = 8 + int.from_bytes(raw[:8], "little")
    assert len(raw) == header + OVERHEAD + size + 16 * n_blocks


CHANGES: dict[str, Callable[[bytes, int], bytes]] = {
    "a bit of the last block": lambda raw, _: raw[:-1] + bytes([raw[-1] ^ 1]),
    "a bit of the first block": lambda raw, at: raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :],
    "the last byte": lambda raw, _: raw[:-1],
    "a byte more": lambda raw, _: raw + b"\0",
    "blocks in another order": lambda raw, at: (
        raw[:at] + raw[at + MIB + 16 : at + 2 * MIB + 32] + raw[at : at + MIB + 16] + raw[at + 2 * MIB + 32 :]
    ),
    "a bit of the sealed key": lambda raw, at: raw[: at - 1] + bytes([raw[at - 1] ^ 1]) + raw[at:],
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_on_the_way_is_refused_and_nothing_is_written(change: str, envelope: Sealed) -> None:
    raw = envelope.seal(bytes(range(256)) * (MIB // 100))
    envelope.target.write_bytes(b"as it was")
    begin = 8 + int.from_bytes(raw[:8], "little") + OVERHEAD
    envelope.sealed.write_bytes(CHANGES[change](raw, begin))
    with raising(RefusedError):
        envelope.open()
    assert envelope.target.read_bytes() == b"as it was"


def test_an_envelope_is_for_one_reader_under_one_name_and_of_one_sender(
    envelope: Sealed, reader: Vault, sender: Vault, analyst: Vault
) -> None:
    envelope.seal(b"rows")
    other = vaulted_study({"north": reader, "south": sender}, analyst, 3, 12)
    for changes, reason in (
        ({"reader": sender}, "another member"),
        ({"name": "b.bundle"}, "another name"),
        ({"senders": {fixed_key(3).public}}, "somebody else"),
        ({"study": other}, "another study"),
    ):
        with raising(RefusedError, "the envelope", reason=reason):
            envelope.open(**changes)
    assert envelope.open() == b"rows"
    envelope.seal(b"rows", name="north.bundle")
    assert envelope.open(name="north.bundle") == b"rows"
    with pytest.raises(MooringError):
        envelope.open()


def test_nothing_is_sealed_to_a_member_without_a_key_for_it(envelope: Sealed, study: Study) -> None:
    with raising(InputError, "study", problem="'aunt'"):
        seal_file(
            envelope.source,
            envelope.sealed,
            study=study,
            recipient=Member("aunt", fixed_key(1).public),
            signer=envelope.signer,
        )


def test_an_envelope_beside_a_file_is_opened_while_the_file_is_not_there(envelope: Sealed) -> None:
    envelope.seal(b"rows")
    path = envelope.source
    envelope.sealed.rename(envelope_of(path))
    who = {"study": envelope.study, "reader": envelope.reader, "senders": {envelope.signer.public}}
    assert not open_beside(path, **who)  # type: ignore[arg-type]
    path.unlink()
    assert open_beside(path, **who)  # type: ignore[arg-type]
    assert path.read_bytes() == b"rows"
    assert not open_beside(path.with_name("none.bundle"), **who)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [5, MIB, MIB + 5])
def test_a_block_is_encrypted_under_its_number_and_whether_it_is_the_last(size: int) -> None:
    """As the STREAM construction says: eleven bytes of the number, and one that ends the file."""
    key, data = bytes(range(32)), bytes(size)
    blocks = list(_encrypt(io.BytesIO(data), size, Secret(key)))
    for index, block in enumerate(blocks):
        nonce = index.to_bytes(11, "big") + bytes([index == len(blocks) - 1])
        part = data[index * MIB : (index + 1) * MIB]
        assert ChaCha20Poly1305(key).decrypt(nonce, block, None) == part


@pytest.mark.parametrize(("size", "said"), [(3, 5), (MIB, MIB + 5), (MIB + 3, MIB + 5)])
def test_a_file_that_becomes_shorter_while_it_is_sealed_is_refused(size: int, said: int) -> None:
    with raising(RefusedError, "the file", reason="shorter"):
        list(_encrypt(io.BytesIO(bytes(size)), said, Secret(bytes(32))))


@pytest.mark.parametrize("size", ["9", -1, 2**50 + 1])
def test_a_size_that_no_file_has_is_refused(size: Any, envelope: Sealed, reader: Vault) -> None:
    recipient = reader.signing_key.public
    fields: Any = {"study": envelope.study.digest, "recipient": recipient, "name": "a.bundle", "bytes": size}
    header = encode_signed_header(KIND, fields, {}, hashlib.sha256().hexdigest(), envelope.signer)
    envelope.sealed.write_bytes(header)
    with raising(RefusedError, "the envelope", reason="a size"):
        envelope.open()
