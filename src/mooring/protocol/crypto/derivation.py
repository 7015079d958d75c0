"""From one secret of the operating system's entropy to every random number a participant needs.

HKDF-SHA256 turns the secret and everything that the numbers are for (purpose, study, anchor, scale, shape, digest of the
matrix they are added to, format) into a key, and ChaCha20 turns the key into a stream. The same circumstances give the same
numbers, after a crash or from a restored backup; any other circumstance gives unrelated ones.

A normal number is the inverse distribution function of one word of the stream: 63 bits of magnitude and a sign, no word used
twice, up to 9.2 standard deviations. Version 1 made pairs of numbers from a radius of 53 bits and an angle of 24 (Box and
Muller): who guesses two rows can tell from the angle's few values whether the guess is right, whatever the noise scale. It
remains to derive the maps of studies of format 1, in which nothing new is shared.
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

_CHUNK, _AT_ONCE = 2**16, 2**14  # numbers of a chunk, and as many as the processor's cache holds


def derive(secret: Secret, purpose: str, circumstances: Mapping[str, Any], *, version: int = 2) -> Secret:
    """A key for one purpose in these circumstances."""
    info = json.dumps(
        {"mooring": version, "purpose": purpose, **circumstances},
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
    )
    return Secret(HKDF(SHA256(), 32, salt=b"mooring", info=info.encode()).derive(secret.reveal()))


@dataclass(frozen=True)
class Stream:
    """Random numbers that follow from a key, any stretch of which can be had at once.

    Examples
    --------
    >>> stream = Stream(Secret(bytes(32)))
    >>> bool((stream.normals(70_000, 10) == stream.normals(0, 70_010)[70_000:]).all())
    True
    """

    key: Secret
    version: int = 2

    def words(self, chunk: int, count: int, *, start: int = 0) -> npt.NDArray[np.uint64]:
        """The words of 64 bits `start` to `start + count` of a chunk; chunks are independent."""
        nonce = (start // 8).to_bytes(4, "little") + chunk.to_bytes(12, "little")  # the first four bytes count blocks
        stream = Cipher(ChaCha20(self.key.reveal(), nonce), mode=None).encryptor().update(bytes(8 * count))
        return np.frombuffer(stream, dtype="<u8")

    def normals(self, start: int, count: int) -> Matrix:
        """Standard normal numbers `start` to `start + count` of the stream."""
        found, step = np.empty(count), _CHUNK if self.version == 1 else _AT_ONCE
        for first in range(start - start % step, start + count, step):
            begin, end, before = max(start, first), min(start + count, first + step), first - first % _CHUNK
            found[begin - start : end - start] = self._part(before // _CHUNK, begin - before, end - before)
        return found

    def permutation(self, count: int) -> npt.NDArray[np.int64]:
        """A uniformly random order of 0 … count − 1."""
        words, step = np.empty(count, dtype=np.uint64), 2**20
        for chunk in range(-(-count // step)):
            part = words[chunk * step : (chunk + 1) * step]
            part[:] = self.words(chunk, part.size)
        return np.argsort(words)

    def _part(self, chunk: int, begin: int, end: int) -> Matrix:
        if self.version == 1:  # numbers of a pair stand half a chunk apart
            return _paired_normals(self.words(chunk, _CHUNK))[begin:end]
        skipped = begin % 8
        return _normals(self.words(chunk, end - begin + skipped, start=begin - skipped))[skipped:]


def _normals(words: npt.NDArray[np.uint64]) -> Matrix:
    """One standard normal number a word, by inversion."""
    tail = (words >> np.uint64(1)).astype(np.float64)
    tail += 0.5  # in (0, 1/2] after the next line: the inverse is finite, and finest where it is steep
    tail *= 2.0**-64
    ndtri(tail, out=tail)  # zero or less
    signs = (words << np.uint64(63)) ^ tail.view(np.uint64)
    return signs.view(np.float64)


def _paired_normals(words: npt.NDArray[np.uint64]) -> Matrix:
    """Version 1: Box and Muller's pairs, half a chunk apart."""
    half = words.size // 2
    radius = np.sqrt(-2.0 * np.log(((words[:half] >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53))
    angle = (words[half:] >> np.uint64(40)).astype(np.float32) * np.float32(2 * np.pi * 2.0**-24)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])


class SecretMap:
    """A participant's own rigid map: it can be applied to rows, and that is all.

    Examples
    --------
    >>> SecretMap.derive(Secret(bytes(32)), n_components=2)
    SecretMap(redacted)
    """

    __slots__ = ("__map",)

    def __init__(self, map: RigidMap) -> None:
        self.__map = map

    @classmethod
    def derive(cls, key: Secret, *, n_components: int, version: int = 2) -> SecretMap:
        """Draw O from the Haar measure and Ψ from the standard normal, both from the key."""
        numbers = Stream(key, version).normals(0, n_components * (n_components + 1))
        gaussian = numbers[: n_components**2].reshape(n_components, n_components)
        return cls(RigidMap(orthogonal_from_gaussian(gaussian), numbers[n_components**2 :]))

    def apply(self, rows: Matrix) -> Matrix:
        """S O + 1 Ψᵀ."""
        return np.asarray(self.__map.apply(rows))

    def __repr__(self) -> str:
        return "SecretMap(redacted)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret map is not pickled")
