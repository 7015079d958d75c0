"""A participant's sums as a file: one sealed box a combiner, of a size that follows from the study alone, and nothing else.

Whoever carries the file can open none of it. The first t − 1 boxes hold a seed of 32 bytes, which stands for a uniform
share; the others hold a share. Encryption binds no context, so every box begins with what it belongs to: study, sender,
combiner, k, t, prime and length, which the combiner compares before it uses the share. A box whose context differs is
somebody else's, copied.

The vector that is shared is the noisy sums and one further element u, uniform, from which combiners make the values that
show whether a bundle's shares fit each other (`check_shares`).
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mooring.atomic_io import open_plain_file
from mooring.errors import RefusedError
from mooring.mechanisms.sums.prime_field import PRIME, Elements, Words, draw_elements, require_elements
from mooring.mechanisms.sums.secret_sharing import check_value, split
from mooring.protocol.crypto.derivation import Stream
from mooring.protocol.crypto.keys import SealingKey, Secret, SigningKey, seal
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.signed_file import (
    MOST_HEADER_BYTES,
    TensorSpec,
    read_signed_header,
    require_header,
    write_signed,
)
from mooring.protocol.messages.study import Study
from mooring.protocol.sums.scheme import sum_scheme

KIND = "sum bundle"
FIELDS = ("study", "nonce")
_WHAT = "the bundle"
_SEED_BYTES = 32
_CONTEXT = struct.Struct("<16s32s32sIIIQQ")
_MAGIC = b"mooring sum box\n"
_ROOM = 1024  # age adds a header whose length varies at random, far below this
_AGE_BLOCK, _AGE_TAG = 2**16, 16
_BLOCK_BYTES = 2**22


@dataclass(frozen=True, eq=False)
class SumBundle:
    """A bundle of sealed shares that was verified; nothing of it can be opened without a combiner's key."""

    member: Member
    """Who signed it."""
    digest: str
    """SHA-256 of the file."""
    path: Path
    _data_start: int

    @property
    def n_rows(self) -> None:
        """An exact number of rows beside noisy sums would tell of one record's presence."""


def words_of(key: Secret) -> Words:
    """A stream of uniform words from a key, each used once."""
    stream, chunk = Stream(key), -1

    def take(count: int) -> Elements:
        nonlocal chunk
        chunk += 1
        return stream.words(chunk, count).astype(np.uint64)

    return take


def sum_bundle_tensors(study: Study) -> dict[str, TensorSpec]:
    """Exactly the arrays of a bundle, whatever it holds."""
    threshold = sum_scheme(study).threshold
    seeds, shares = (_slot_bytes(n) for n in (_SEED_BYTES, 8 * _length(study)))
    t, k = threshold.threshold, threshold.n_combiners
    tensors = {"seeds": TensorSpec("U8", (t - 1, seeds)), "shares": TensorSpec("U8", (k - t + 1, shares))}
    return {name: spec for name, spec in tensors.items() if spec.shape[0]}


def most_sum_bundle_bytes(study: Study) -> int:
    """How large a study's bundles of sealed shares can be."""
    return sum(spec.n_bytes for spec in sum_bundle_tensors(study).values()) + MOST_HEADER_BYTES + 8


def write_sum_bundle(path: Path, study: Study, sums: Elements, signer: SigningKey) -> str:
    """Share a vector among the study's combiners, and return the SHA-256 of the file.

    Polynomials and u are fresh from the operating system's entropy: reused with another vector, a combiner's two shares
    would tell the difference of the vectors.

    Parameters
    ----------
    sums : array of elements
        Noise and all.
    """
    scheme = sum_scheme(study)
    threshold, t = scheme.threshold, scheme.threshold.threshold
    secret = np.concatenate([sums, draw_elements(words_of(Secret.draw()), 1)])
    seeds = [Secret.draw() for _ in range(t - 1)]
    shares = split(secret, threshold, [words_of(seed) for seed in seeds])
    payloads = [seed.reveal() for seed in seeds] + [share.astype("<u8").tobytes() for share in shares]
    tensors = sum_bundle_tensors(study)
    slots = {name: np.zeros(spec.shape, dtype=np.uint8) for name, spec in tensors.items()}
    for j, payload in enumerate(payloads, start=1):
        key = study.member(scheme.combiners[j - 1]).combining_key
        box = seal(_context(study, signer.public, j) + payload, [key])
        name, place = _place(j, t)
        row = slots[name][place]
        row[: 4 + len(box)] = np.frombuffer(len(box).to_bytes(4, "little") + box, dtype=np.uint8)
    fields = {"study": study.digest, "nonce": study.nonce}
    return write_signed(path, kind=KIND, fields=fields, arrays=slots, signer=signer, mode=0o600)


def verify_sum_bundle(path: Path, study: Study) -> SumBundle:
    """Read a bundle of sealed shares from somebody who is not trusted, or refuse it with a reason."""
    with open_plain_file(path, what=_WHAT) as file:
        header, fields = read_signed_header(file, kind=KIND, fields=FIELDS, what=_WHAT)
        member = study.require_signer(fields, what=_WHAT)
        require_header(header, sum_bundle_tensors(study), what=_WHAT)
        whole, arrays = hashlib.sha256(header.raw), hashlib.sha256()
        while block := file.read(_BLOCK_BYTES):
            whole.update(block)
            arrays.update(block)
    if arrays.hexdigest() != fields["data"]:
        raise _refuse("its arrays are not those that were signed")
    return SumBundle(member, whole.hexdigest(), path, header.data_start)


def open_share(bundle: SumBundle, study: Study, combiner: int, key: SealingKey) -> Elements:
    """Open a combiner's share, u last, or refuse a box that is damaged or belongs elsewhere.

    Parameters
    ----------
    combiner : int
        Its point, 1 to k.
    key : SealingKey
        Its own, of this study.
    """
    t, length = sum_scheme(study).threshold.threshold, _length(study)
    name, place = _place(combiner, t)
    start = bundle._data_start
    for other, spec in sum_bundle_tensors(study).items():
        if other == name:
            start += place * spec.shape[1]
            slot = spec.shape[1]
            break
        start += spec.n_bytes
    row = _read_again(bundle, start, slot)
    size = int.from_bytes(row[:4], "little")
    if not 0 < size <= slot - 4:
        raise _refuse("a box of it is damaged")
    try:
        opened = key.open(row[4 : 4 + size])
    except RefusedError:
        raise _refuse(f"the box of combiner {combiner} does not open with its key") from None
    context, payload = opened[: _CONTEXT.size], opened[_CONTEXT.size :]
    if context != _context(study, bundle.member.signing_key, combiner):
        raise _refuse("a box of it was made for another study, sender or combiner: it is a copy")
    if len(payload) != (_SEED_BYTES if name == "seeds" else 8 * length):
        raise _refuse("a box of it holds something else than a share")
    if name == "seeds":
        return draw_elements(words_of(Secret(payload)), length)
    try:
        return require_elements("share", np.frombuffer(payload, dtype="<u8").astype(np.uint64))
    except ValueError:
        raise _refuse("a box of it holds something else than a share") from None


def _read_again(bundle: SumBundle, start: int, size: int) -> bytes:
    """A part of a verified file; one that was exchanged since, in a folder that others write to, is refused."""
    whole, found, position = hashlib.sha256(), bytearray(), 0
    with open_plain_file(bundle.path, what=_WHAT) as file:
        while block := file.read(_BLOCK_BYTES):
            whole.update(block)
            found += block[max(0, start - position) : max(0, start + size - position)]
            position += len(block)
    if whole.hexdigest() != bundle.digest:
        raise _refuse("it was changed after it was verified")
    return bytes(found)


def check_share(bundle: SumBundle, share: Elements) -> int:
    """The value that a combiner publishes of its share: all k of them fit one polynomial if the shares do.

    u hides the share; the weights follow from the bundle, after it was made.
    """
    weights = draw_elements(words_of(Secret(bytes.fromhex(bundle.digest))), share.size - 1)
    return check_value(share[:-1], int(share[-1]), weights)


def _length(study: Study) -> int:
    return sum_scheme(study).layout.size + 1


def _slot_bytes(payload: int) -> int:
    n = _CONTEXT.size + payload
    return 4 + _ROOM + n + _AGE_TAG * (n // _AGE_BLOCK + 1)


def _place(combiner: int, t: int) -> tuple[str, int]:
    return ("seeds", combiner - 1) if combiner < t else ("shares", combiner - t)


def _context(study: Study, sender: str, combiner: int) -> bytes:
    threshold = sum_scheme(study).threshold
    return _CONTEXT.pack(
        _MAGIC,
        bytes.fromhex(study.digest),
        bytes.fromhex(sender),
        combiner,
        threshold.n_combiners,
        threshold.threshold,
        PRIME,
        _length(study),
    )


def _refuse(reason: str) -> RefusedError:
    return RefusedError(_WHAT, reason=reason, cure="Ask the participant to send its bundle again.")
