"""Envelopes: a file for one member, sealed to its key and signed by its sender, so that any carrier will do.

The content is encrypted in blocks of 1 MiB with a key that is used for nothing else, by ChaCha20-Poly1305 in the STREAM
construction (Hoang, Reyhanitabar, Rogaway and Vizár, 2015), as in the file format of the tool age. The nonce of a block
states the block's number and whether the block is the last, so that blocks cannot be exchanged, left out or cut off. The key
is sealed to the recipient (HPKE).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from mooring.atomic_io import open_atomically, open_plain_file
from mooring.errors import InputError, RefusedError
from mooring.protocol.crypto.keys import BOX_OVERHEAD, Secret, SigningKey, seal_box
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.signed_file import (
    Fields,
    TensorSpec,
    encode_signed_header,
    measure_signed_header,
    read_signed_header,
    require_header,
)
from mooring.protocol.messages.study import Study
from mooring.protocol.storage.vault import Vault

KIND, SUFFIX = "envelope", ".sealed"
FIELDS = ("study", "recipient", "name", "bytes")
_WHAT = "the envelope"
_BLOCK, _TAG, _KEY_BYTES = 2**20, 16, 32
_MOST_BYTES = 2**50


def seal_file(
    source: Path, target: Path, *, study: Study, recipient: Member, signer: SigningKey, name: str = ""
) -> None:
    """Write the envelope of a file for a member of a study; `name` is the content's name, by default that of `source`."""
    if not recipient.holds_sealing_key:
        problem = f"Nothing can be sealed to {recipient.name!r}: its card in the roster has no sealing key."
        raise InputError(
            "study", problem=problem, cure="Have a new card enrolled in a new study: 'mooring join' writes it."
        )
    key, name = Secret.draw(), name or source.name
    with open_plain_file(source, what=_WHAT) as content, open_atomically(target, mode=0o600, what=_WHAT) as file:
        n_bytes = content.seek(0, 2)
        content.seek(0)
        fields: dict[str, str | int] = {
            "study": study.digest,
            "recipient": recipient.signing_key,
            "name": name,
            "bytes": n_bytes,
        }
        tensors, data = _tensors(n_bytes), hashlib.sha256()
        file.seek(measure_signed_header(KIND, fields, tensors))
        box = seal_box(key.reveal(), recipient.sealing_key, info=_context(signer.public, fields))
        for part in (box, *_encrypt(content, n_bytes, key)):
            file.write(part)
            data.update(part)
        file.seek(0)
        file.write(encode_signed_header(KIND, fields, tensors, data.hexdigest(), signer))


def open_envelope(source: Path, target: Path, *, study: Study, reader: Vault, name: str, senders: set[str]) -> None:
    """Write the content of an envelope to `target`, or refuse it with a reason and leave `target` as it was.

    `reader` is the vault of the member to whom the envelope must be sealed, `name` is the name that the content must have,
    and `senders` are the signing keys that may have signed the envelope.
    """
    with open_plain_file(source, what=_WHAT) as file:
        header, fields = read_signed_header(file, kind=KIND, fields=FIELDS, what=_WHAT)
        n_bytes, signer = fields["bytes"], str(fields["signer"])
        if signer not in senders:
            raise _refuse("it is signed by somebody else, not by the member that should have sent it")
        study.require_same({"study": fields["study"]}, what=_WHAT)
        if fields["recipient"] != reader.signing_key.public:
            raise _refuse("it is for another member")
        if fields["name"] != name:
            raise _refuse("it holds a file of another name")
        if not isinstance(n_bytes, int) or not 0 <= n_bytes <= _MOST_BYTES:
            raise _refuse("it claims a size that it cannot have")
        require_header(header, _tensors(n_bytes), what=_WHAT)
        box = file.read(BOX_OVERHEAD + _KEY_BYTES)
        content_key = reader.sealing_key.open(box, info=_context(signer, fields))
        data = hashlib.sha256(box)
        with open_atomically(target, mode=0o600, what=_WHAT) as plain:
            for block in _decrypt(file, n_bytes, Secret(content_key), data.update):
                plain.write(block)
            if data.hexdigest() != fields["data"]:
                raise _refuse("its content is not the one that was signed")


def envelope_of(path: Path) -> Path:
    """Return the path of a file's envelope, which lies beside the file."""
    return path.with_name(f"{path.name}{SUFFIX}")


def open_beside(path: Path, *, study: Study, reader: Vault, senders: set[str]) -> bool:
    """Open the envelope of a file unless the file is there or has no envelope; return whether an envelope was opened."""
    sealed = envelope_of(path)
    if path.exists() or not sealed.is_file():
        return False
    open_envelope(sealed, path, study=study, reader=reader, name=path.name, senders=senders)
    return True


def _tensors(n_bytes: int) -> dict[str, TensorSpec]:
    sealed = n_bytes + _TAG * _count_blocks(n_bytes)
    return {"key": TensorSpec("U8", (BOX_OVERHEAD + _KEY_BYTES,)), "sealed": TensorSpec("U8", (sealed,))}


def _count_blocks(n_bytes: int) -> int:
    return max(1, -(-n_bytes // _BLOCK))


def _context(signer: str, fields: Fields) -> bytes:
    """Return the context for which the key is sealed: study, sender and recipient."""
    return b"mooring envelope key\n" + bytes.fromhex(f"{fields['study']}{signer}{fields['recipient']}")


def _nonce(index: int, n_blocks: int) -> bytes:
    return index.to_bytes(11, "big") + (b"\1" if index == n_blocks - 1 else b"\0")


def _encrypt(content: BinaryIO, n_bytes: int, key: Secret) -> Iterator[bytes]:
    cipher, n_blocks, left = ChaCha20Poly1305(key.reveal()), _count_blocks(n_bytes), n_bytes
    for index in range(n_blocks):
        block = content.read(min(_BLOCK, left))
        left -= len(block)
        if len(block) < _BLOCK and left:
            raise RefusedError("the file", reason="it became shorter while it was read", cure="Try again.")
        yield cipher.encrypt(_nonce(index, n_blocks), block, None)


def _decrypt(file: BinaryIO, n_bytes: int, key: Secret, tell: Callable[[bytes], None]) -> Iterator[bytes]:
    cipher, n_blocks, left = ChaCha20Poly1305(key.reveal()), _count_blocks(n_bytes), n_bytes
    for index in range(n_blocks):
        sealed = file.read(min(_BLOCK, left) + _TAG)
        tell(sealed)
        try:
            block = cipher.decrypt(_nonce(index, n_blocks), sealed, None)
        except (InvalidTag, ValueError):
            raise _refuse("its content was changed, or is incomplete") from None
        left -= len(block)
        yield block


def _refuse(reason: str) -> RefusedError:
    return RefusedError(_WHAT, reason=reason, cure="Ask its sender to send it again.")
