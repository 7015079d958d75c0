"""Derivation of random numbers from a secret: a participant's map, noise and order of rows in rotation, and the anchor.

HKDF-SHA256 derives a key from the secret and the context of the numbers (purpose, study, anchor, scale, shape, digest of the
matrix they are added to, format), and ChaCha20 turns the key into a stream. The same context gives the same numbers, also
after a crash or from a restored backup. A different context gives unrelated numbers. Secure sums use such streams of keys
that are drawn afresh.

A normal number is the inverse distribution function of one 64-bit word of the stream: 63 bits of magnitude and a sign, up to
9.2 standard deviations. No word is used twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from scipy.special import ndtri

from mooring.geometry.orthogonal import orthogonal_from_gaussian
from mooring.geometry.rigid import RigidMap
from mooring.protocol.crypto.keys import Secret
from mooring.typing import Matrix

_VERSION = 2
_CHUNK, _AT_ONCE = 2**16, 2**14  # numbers per chunk, and numbers that fit into the processor's cache


def derive(secret: Secret, purpose: str, context: Mapping[str, Any]) -> Secret:
    """Return the key for one purpose in a context, which consists of values that JSON can hold."""
    info = json.dumps(
        {"mooring": _VERSION, "purpose": purpose, **context},
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
    )
    return Secret(HKDF(SHA256(), 32, salt=b"mooring", info=info.encode()).derive(secret.reveal()))


@dataclass(frozen=True)
class Stream:
    """A stream of random numbers derived from a key, with random access to any part.

    Examples
    --------
    >>> stream = Stream(Secret(bytes(32)))
    >>> bool((stream.normals(70_000, 10) == stream.normals(0, 70_010)[70_000:]).all())
    True
    """

    key: Secret

    def words(self, chunk: int, count: int, *, start: int = 0) -> npt.NDArray[np.uint64]:
        """Return `count` 64-bit words of a chunk from the word `start` on, a multiple of 8. Chunks are independent."""
        nonce = (start // 8).to_bytes(4, "little") + chunk.to_bytes(
            12, "little"
        )  # the first four bytes count blocks of eight words
        stream = Cipher(ChaCha20(self.key.reveal(), nonce), mode=None).encryptor().update(bytes(8 * count))
        return np.frombuffer(stream, dtype="<u8")

    def normals(self, start: int, count: int) -> Matrix:
        """Return `count` standard normal numbers of the stream, from the number `start` on."""
        numbers, step = np.empty(count), _AT_ONCE
        for first in range(start - start % step, start + count, step):
            begin, end, before = max(start, first), min(start + count, first + step), first - first % _CHUNK
            numbers[begin - start : end - start] = self._part(before // _CHUNK, begin - before, end - before)
        return numbers

    def permutation(self, count: int) -> npt.NDArray[np.int64]:
        """Return a uniformly random permutation of 0 … count − 1."""
        words, step = np.empty(count, dtype=np.uint64), 2**20
        for chunk in range(-(-count // step)):
            part = words[chunk * step : (chunk + 1) * step]
            part[:] = self.words(chunk, part.size)
        return np.argsort(words)

    def _part(self, chunk: int, begin: int, end: int) -> Matrix:
        skipped = begin % 8
        return _normals(self.words(chunk, end - begin + skipped, start=begin - skipped))[skipped:]


def _normals(words: npt.NDArray[np.uint64]) -> Matrix:
    """Return one standard normal number per word, by inversion."""
    tail = (words >> np.uint64(1)).astype(np.float64)
    tail += 0.5  # in (0, 1/2] after the next line, so that the inverse is finite, and finest in the tail
    tail *= 2.0**-64
    ndtri(tail, out=tail)  # zero or less
    signs = (words << np.uint64(63)) ^ tail.view(np.uint64)
    return signs.view(np.float64)


class SecretMap:
    """A participant's secret rigid map. It can be applied to rows, but not read, printed or pickled.

    Examples
    --------
    >>> SecretMap.derive(Secret(bytes(32)), n_components=2)
    SecretMap(redacted)
    """

    __slots__ = ("__map",)

    def __init__(self, map: RigidMap) -> None:
        self.__map = map

    @classmethod
    def derive(cls, key: Secret, *, n_components: int) -> SecretMap:
        """Return the map of a key: O from the Haar measure and Ψ from the standard normal distribution."""
        numbers = Stream(key).normals(0, n_components * (n_components + 1))
        gaussian = numbers[: n_components**2].reshape(n_components, n_components)
        return cls(RigidMap(orthogonal_from_gaussian(gaussian), numbers[n_components**2 :]))

    def apply(self, rows: Matrix) -> Matrix:
        """Return rows X, mapped to X O + 1 Ψᵀ."""
        return np.asarray(self.__map.apply(rows))

    def __repr__(self) -> str:
        return "SecretMap(redacted)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A secret map cannot be pickled.")
