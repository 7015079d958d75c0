"""Named, independent random streams from one secret.

mooring never uses global random state: whatever is random takes a `numpy.random.Generator`. A participant's secrets come
from the operating system's entropy. Seeds are for experiments and tests only.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field

import numpy as np

from mooring.errors import InputError

__all__ = ["Streams", "require_generator"]

_ENTROPY_BITS = 256


def require_generator(rng: object) -> None:
    """Raise an `InputError` for anything but a generator.

    An integer seed passed to two functions would make their numbers equal where they must be independent.

    Examples
    --------
    >>> require_generator(np.random.default_rng(5))
    >>> require_generator(5)
    Traceback (most recent call last):
    mooring.errors.InputError: rng must be a numpy.random.Generator, got int. Pass numpy.random.default_rng(seed).
    """
    if not isinstance(rng, np.random.Generator):
        raise InputError(
            "rng",
            expected="a numpy.random.Generator",
            got=type(rng).__name__,
            cure="Pass numpy.random.default_rng(seed).",
        )


@dataclass(frozen=True)
class Streams:
    """Named random streams that all derive from one secret.

    The same secret and name always give the same stream. Streams of different names are independent, and a stream reveals
    nothing about another one or about the secret, which `repr` does not show.

    The numbers come from NumPy's default generator, which is not cryptographic: whoever sees enough raw output of a stream
    can predict the rest of that stream.

    Examples
    --------
    >>> streams = Streams.for_experiment(seed=7)
    >>> first = streams.named("participant/0/transform").standard_normal()
    >>> first == Streams.for_experiment(seed=7).named("participant/0/transform").standard_normal()
    True
    >>> first == streams.named("participant/1/transform").standard_normal()
    False
    """

    entropy: int = field(repr=False)

    @classmethod
    def from_system(cls) -> Streams:
        """Return streams from 256 bits of the operating system's entropy. Only these are fit for real secrets."""
        return cls(secrets.randbits(_ENTROPY_BITS))

    @classmethod
    def for_experiment(cls, seed: int) -> Streams:
        """Return repeatable streams. A seed can be guessed, so never use them to protect real records."""
        if seed < 0:
            raise InputError("seed", expected="a non-negative integer", got=str(seed), cure="Pass 0 or more.")
        return cls(seed)

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Streams:
        """Return streams whose secret is the generator's next 32 bytes."""
        require_generator(rng)
        return cls(int.from_bytes(rng.bytes(32), "little"))

    def named(self, name: str) -> np.random.Generator:
        """Return the stream called `name`, from its beginning."""
        length = max(_ENTROPY_BITS, self.entropy.bit_length() + 7) // 8
        digest = hashlib.sha256(self.entropy.to_bytes(length, "little") + name.encode()).digest()
        return np.random.default_rng(int.from_bytes(digest, "little"))
