"""A participant's sums as a file: one sealed box per combiner, and a signed manifest that proves the shares consistent.

The vector that is shared consists of the sums, with noise if the study has any, and three masks: uniform elements of the
prime field. With the threshold t, each of the first t − 1 boxes holds a seed of 32 bytes, from which a uniform share is
drawn; every other box holds a share. A box is sealed for one study, one sender and one combiner, and does not open for any
other.

**The proof.** Let f_e be the polynomial of entry e, u the polynomial of a mask, and r_e weights that follow from the study,
the sender and the digests of all boxes, so that the weights are known only once the boxes are made. For each of the three
masks, with weights of its own, the manifest states the polynomial g = u + Σ r_e f_e by the values of g at 0, …, t − 1. The
combiner at the point j tests, alone, whether its share gives g(j). If the shares of two combiners lay on different
polynomials, all tests would pass with a probability of 2⁻¹⁸³ only. The masks are used nowhere else, so g is uniform whatever
the sums are (docs/privacy.md).

The manifest holds the digest of every box, and the closing list names the digest of the header, which contains the manifest.
So a combiner needs only the header and its own box, and never reads other boxes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from mooring.atomic_io import open_plain_file, write_atomically
from mooring.errors import InputError, RefusedError, StorageError
from mooring.mechanisms.sums.prime_field import PRIME, Elements, Words, draw_elements, require_elements
from mooring.mechanisms.sums.secret_sharing import Threshold, interpolate, split, weigh
from mooring.protocol.crypto.derivation import Stream
from mooring.protocol.crypto.keys import BOX_OVERHEAD, SealingKey, Secret, SigningKey, seal_box
from mooring.protocol.messages.bundle import SUFFIX
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.signed_file import (
    MOST_HEADER_BYTES,
    Fields,
    Header,
    TensorSpec,
    encode_header,
    measure_signed_header,
    read_signed_header,
    require_header,
    write_signed,
)
from mooring.protocol.messages.study import Study
from mooring.protocol.sums.scheme import sum_scheme
from mooring.protocol.transport.inbox import list_files
from mooring.protocol.transport.object_stores import Part

KIND = "sum bundle"
KEPT = "upload" + SUFFIX
"""The name of a participant's own bundle in its vault."""
FIELDS = ("study", "nonce", "boxes", "proof")
N_TESTS = 3
"""Number of masks, each with a test of its own. About 2⁶¹ tries, which are feasible, would pass a single test."""
_WHAT = "the bundle"
_SEED_BYTES = 32
_CONTEXT = struct.Struct("<16s32s32sIIIQQ")


@dataclass(frozen=True, eq=False)
class SumBundle:
    """A bundle of sealed shares that was verified; nothing of it can be opened without a combiner's key."""

    member: Member
    """Who signed it."""
    digest: str
    """SHA-256 of the file."""
    path: Path
    header_digest: str
    """SHA-256 of the header, by which a closing list names the bundle."""

    @property
    def n_rows(self) -> None:
        """None: an exact number of rows beside noisy sums would disclose whether one record is present."""


@dataclass(frozen=True, eq=False)
class Box:
    """One combiner's box of a bundle, and what the bundle's sender signed about it."""

    member: Member
    """Who signed the bundle."""
    header_digest: str
    combiner: int
    """The point of the combiner, 1 to k."""
    fields: Fields
    """The manifest."""
    sealed: bytes


def words_of(key: Secret) -> Words:
    """Return a function that draws uniform words from a key's stream, new ones at every call."""
    stream, chunk = Stream(key), -1

    def take(count: int) -> Elements:
        nonlocal chunk
        chunk += 1
        return stream.words(chunk, count).astype(np.uint64)

    return take


def sum_bundle_tensors(study: Study) -> dict[str, TensorSpec]:
    """Return the type and shape of each array of a bundle; these do not depend on the sums."""
    threshold = sum_scheme(study).threshold
    seeds, shares = (BOX_OVERHEAD + n for n in (_SEED_BYTES, 8 * _length(study)))
    t, k = threshold.threshold, threshold.n_combiners
    tensors = {"seeds": TensorSpec("U8", (t - 1, seeds)), "shares": TensorSpec("U8", (k - t + 1, shares))}
    return {name: spec for name, spec in tensors.items() if spec.shape[0]}


def most_sum_bundle_bytes(study: Study) -> int:
    """Return the largest possible size, in bytes, of a study's bundles of sealed shares."""
    return sum(spec.n_bytes for spec in sum_bundle_tensors(study).values()) + MOST_HEADER_BYTES + 8


def write_sum_bundle(path: Path, study: Study, sums: Elements, signer: SigningKey) -> str:
    """Share sums among the study's combiners, write the bundle, and return the file's SHA-256.

    Polynomials and masks are drawn anew from the operating system's entropy. If they were reused with other sums, a
    combiner's two shares would disclose the difference of the sums.
    """
    scheme = sum_scheme(study)
    secret = np.concatenate([sums, draw_elements(words_of(Secret.draw()), N_TESTS)])
    seeds = [Secret.draw() for _ in range(scheme.threshold.threshold - 1)]
    shares = split(secret, scheme.threshold, [words_of(seed) for seed in seeds])
    payloads = [seed.reveal() for seed in seeds] + [share.astype("<u8").tobytes() for share in shares]
    boxes = [
        seal_box(payload, study.member(name).combining_key, info=_context(study, signer.public, j))
        for j, (name, payload) in enumerate(zip(scheme.combiners, payloads, strict=True), start=1)
    ]
    digests = "".join(hashlib.sha256(box).hexdigest() for box in boxes)
    fields: dict[str, str | int] = {"study": study.digest, "nonce": study.nonce, "boxes": digests}
    known = [secret, *(draw_elements(words_of(seed), secret.size) for seed in seeds)]
    values = [weigh(vector, weights) for weights in _weights(study, fields, signer.public) for vector in known]
    fields["proof"] = np.array(values, dtype="<u8").tobytes().hex()
    data, arrays = np.frombuffer(b"".join(boxes), dtype=np.uint8), {}
    for name, spec in sum_bundle_tensors(study).items():
        arrays[name], data = data[: spec.n_bytes].reshape(spec.shape), data[spec.n_bytes :]
    return write_signed(path, kind=KIND, fields=fields, arrays=arrays, signer=signer, mode=0o600)


def verify_sum_bundle(path: Path, study: Study) -> SumBundle:
    """Read a bundle of sealed shares from somebody who is not trusted, or refuse it with a reason."""
    with open_plain_file(path, what=_WHAT) as file:
        header, fields, member = _read_header(file, study)
        require_header(header, sum_bundle_tensors(study), what=_WHAT)
        whole, arrays, boxes = hashlib.sha256(header.raw), hashlib.sha256(), ""
        for size in _box_sizes(study):
            box = file.read(size)
            whole.update(box)
            arrays.update(box)
            boxes += hashlib.sha256(box).hexdigest()
    if arrays.hexdigest() != fields["data"] or boxes != fields["boxes"]:
        raise _refuse("its boxes are not those that were signed")
    return SumBundle(member, whole.hexdigest(), path, _digest_header(header))


def read_box(file: BinaryIO, study: Study, combiner: int) -> Box:
    """Read a combiner's box from a bundle, or from this combiner's extract of a bundle, or refuse the file with a reason."""
    header, fields, member = _read_header(file, study)
    sizes = _box_sizes(study)
    size = sizes[combiner - 1]
    if header.raw != encode_header(sum_bundle_tensors(study), header.metadata):
        raise _refuse("its boxes are not of the number and size that the study asks for")
    if header.size == header.data_start + sum(sizes):
        file.seek(header.data_start + sum(sizes[: combiner - 1]))
    elif header.size != header.data_start + size:
        raise _refuse("its length is neither that of a bundle nor that of your part of one")
    sealed = file.read(size)
    if hashlib.sha256(sealed).hexdigest() != str(fields["boxes"])[64 * (combiner - 1) : 64 * combiner]:
        raise _refuse(f"the box of combiner {combiner} is not the one that was signed")
    return Box(member, _digest_header(header), combiner, fields, sealed)


def list_header_digests(folder: Path, study: Study) -> set[str]:
    """Return the header digests of the study's bundles in a folder; all other files are left out."""
    digests = set[str]()
    for path in list_files(folder) if folder.is_dir() else ():
        with suppress(RefusedError, StorageError), open_plain_file(path, what=_WHAT) as file:
            digests.add(_digest_header(_read_header(file, study)[0]))
    return digests


def find_part(study: Study, combiner: int) -> Part:
    """Return the stretches of a bundle that one combiner downloads: the header, whose length is known, and its own box."""
    threshold, sizes = sum_scheme(study).threshold, _box_sizes(study)
    fields: dict[str, str | int] = {"study": study.digest, "nonce": study.nonce}
    fields |= {name: "0" * 2 * n_bytes for name, n_bytes in _proof_sizes(threshold).items()}
    header = measure_signed_header(KIND, fields, sum_bundle_tensors(study))
    return (0, header), (header + sum(sizes[: combiner - 1]), sizes[combiner - 1])


def write_extract(bundle: SumBundle, study: Study, combiner: int, path: Path) -> None:
    """Write what one combiner needs of a bundle: its header, and the combiner's box."""
    with open_plain_file(bundle.path, what=_WHAT) as file:
        box = read_box(file, study, combiner)
        file.seek(0)
        header, *_ = _read_header(file, study)
    if box.header_digest != bundle.header_digest:
        raise _refuse("it was changed after it was verified")
    write_atomically(path, header.raw + box.sealed, mode=0o600, what=_WHAT)


def open_box(box: Box, study: Study, key: SealingKey) -> Elements:
    """Open a box with the combiner's key of this study, test the share in it, and return the share without the masks.

    A box is refused if it is damaged, was sealed for another combiner, study or sender, or holds a share that fails a test.
    """
    threshold, length, j = sum_scheme(study).threshold, _length(study), box.combiner
    try:
        payload = key.open(box.sealed, info=_context(study, box.member.signing_key, j))
    except RefusedError:
        raise _refuse(f"the box of combiner {j} was not sealed to its key, for this study and by this sender") from None
    if j < threshold.threshold:
        share = draw_elements(words_of(Secret(payload)), length)
    else:
        try:
            share = require_elements("share", np.frombuffer(payload, dtype="<u8").astype(np.uint64))
        except InputError:
            raise _refuse(f"the box of combiner {j} does not hold a share") from None
    proof = np.frombuffer(bytes.fromhex(str(box.fields["proof"])), dtype="<u8").reshape(N_TESTS, -1)
    for values, weights in zip(proof.tolist(), _weights(study, box.fields, box.member.signing_key), strict=True):
        if interpolate(values, at=j) != weigh(share, weights):
            raise _refuse(f"the share of combiner {j} does not fit those of the others")
    return share[:-N_TESTS]


def _read_header(file: BinaryIO, study: Study) -> tuple[Header, Fields, Member]:
    """Return a bundle's header, manifest and signer, after checking the signature and the form of digests and proof."""
    header, fields = read_signed_header(file, kind=KIND, fields=FIELDS, what=_WHAT)
    member = study.require_signer(fields, what=_WHAT)
    for name, n_bytes in _proof_sizes(sum_scheme(study).threshold).items():
        text = fields[name]
        try:
            is_whole = isinstance(text, str) and bytes.fromhex(text).hex() == text and len(text) == 2 * n_bytes
        except ValueError:
            is_whole = False
        if not is_whole:
            raise _refuse("its manifest does not hold the digests and values that prove its shares")
    return header, fields, member


def _proof_sizes(threshold: Threshold) -> dict[str, int]:
    """Return the size in bytes of the two fields of the manifest by which shares are tested: digests of boxes, and proof."""
    return {"boxes": 32 * threshold.n_combiners, "proof": 8 * N_TESTS * threshold.threshold}


def _digest_header(header: Header) -> str:
    return hashlib.sha256(header.raw).hexdigest()


def _weights(study: Study, fields: Fields, sender: str) -> Iterator[Elements]:
    """Yield the weights of each test, which nobody knows before all boxes are made."""
    known = b"".join(map(bytes.fromhex, (study.digest, sender, str(fields["boxes"]))))
    for number in range(N_TESTS):
        seed = hashlib.sha256(b"mooring sum proof\n" + bytes([number]) + known).digest()
        # The masks come last: each test gives its own mask the weight 1, and the other masks 0.
        masks = np.eye(N_TESTS, dtype=np.uint64)[number]
        yield np.concatenate([draw_elements(words_of(Secret(seed)), _length(study) - N_TESTS), masks])


def _length(study: Study) -> int:
    return sum_scheme(study).layout.size + N_TESTS


def _box_sizes(study: Study) -> list[int]:
    return [size for spec in sum_bundle_tensors(study).values() for size in [spec.shape[1]] * spec.shape[0]]


def _context(study: Study, sender: str, combiner: int) -> bytes:
    """Return the context for which a box is sealed; HPKE opens the box only with the same `info`."""
    threshold = sum_scheme(study).threshold
    return _CONTEXT.pack(
        b"mooring sum box\n",
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
