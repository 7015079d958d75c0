"""One source of entropy, and from it any number of named, independent streams.

Nothing in mooring touches global random state: whatever is random takes a `numpy.random.Generator`. A participant's
secrets start from the operating system's entropy; a seed is for experiments and tests, and the name says so.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field

import numpy as np

from mooring.errors import InputError

_ENTROPY_BITS = 256


@dataclass(frozen=True)
class Streams:
    """Named random streams that all derive from one secret.

    The same secret and the same name give the same stream; different names give independent streams. The secret is kept
    out of `repr`.

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
        """Streams from 256 bits of the operating system's entropy: the only kind fit for real secrets."""
        return cls(secrets.randbits(_ENTROPY_BITS))

    @classmethod
    def for_experiment(cls, seed: int) -> Streams:
        """Repeatable streams. A seed can be guessed: never use this for records that matter."""
        if seed < 0:
            raise InputError("seed", expected="a non-negative integer", got=str(seed), cure="Pass 0 or more.")
        return cls(seed)

    def named(self, name: str) -> np.random.Generator:
        """Return the stream called `name`, at its beginning."""
        digest = hashlib.sha256(name.encode()).digest()
        words = tuple(int.from_bytes(digest[start : start + 4], "little") for start in range(0, len(digest), 4))
        return np.random.default_rng(np.random.SeedSequence(self.entropy, spawn_key=words))
