"""A fuzz target, and what targets share: files to write to, and signatures made anew."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mooring.errors import MooringError
from mooring.protocol.crypto.keys import SigningKey
from tests.protocol.hostile import World, canonical, packed, parts


@dataclass(frozen=True)
class Target:
    """One reader."""

    name: str
    read: Callable[[bytes], object]
    """Reads bytes; returns, or raises a MooringError."""
    seeds: tuple[bytes, ...]
    """Good inputs, from which mutation starts."""

    def survives(self, data: bytes) -> bool:
        """Whether the bytes were read; False if they were refused. Any other exception is a finding."""
        try:
            self.read(data)
        except MooringError:
            return False
        return True


def sign_again(data: bytes, kind: str, signer: SigningKey) -> bytes:
    """The same file with a good signature over whatever it says; as it is where no header can be read."""
    try:
        header, arrays = parts(data)
        fields = json.loads(header["__metadata__"]["manifest"])
        fields |= {"signer": signer.public, "data": hashlib.sha256(arrays).hexdigest()}
        manifest = canonical(fields)
    except (ValueError, KeyError, TypeError, RecursionError):
        return data
    signature = signer.sign(b"mooring " + kind.encode() + b" signature\n" + manifest.encode())
    header["__metadata__"] |= {"manifest": manifest, "signature": signature.hex()}
    return packed(header, arrays)


def make_place(world: World, name: str) -> Path:
    """A folder of a target's own."""
    place = world.folder / "fuzz" / name.replace(" ", "-")
    place.mkdir(parents=True, exist_ok=True)
    return place


def write_file(path: Path, data: bytes) -> Path:
    """Write a file, and return its path."""
    path.write_bytes(data)
    return path
