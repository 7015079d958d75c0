"""Keys and secrets: Ed25519 to sign, age to seal, and bytes that do not print, pickle or travel."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import xor
from typing import NoReturn

import pyrage
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from mooring.errors import RefusedError

SECRET_BYTES = 32


class Secret:
    """Bytes that must not leave: redacted in print, compared in constant time, neither pickled nor copied into files.

    Examples
    --------
    >>> Secret(bytes(32))
    Secret(redacted)
    """

    __slots__ = ("__value",)

    def __init__(self, value: bytes) -> None:
        self.__value = bytes(value)

    @classmethod
    def draw(cls) -> Secret:
        """256 bits of the operating system's entropy."""
        return cls(secrets.token_bytes(SECRET_BYTES))

    def reveal(self) -> bytes:
        """The bytes themselves, for a primitive that needs them."""
        return self.__value

    def __repr__(self) -> str:
        return "Secret(redacted)"

    def __format__(self, _: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self.__value, other.reveal())

    def __hash__(self) -> NoReturn:
        raise TypeError("a secret is no key of a dictionary")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")


@dataclass(frozen=True)
class SigningKey:
    """An Ed25519 key pair.

    Examples
    --------
    >>> key = SigningKey.generate()
    >>> verify(key.public, key.sign(b"text"), b"text"), verify(key.public, key.sign(b"text"), b"other text")
    (True, False)
    """

    seed: Secret

    @classmethod
    def generate(cls) -> SigningKey:
        """A new key from the operating system's entropy."""
        return cls(Secret.draw())

    @property
    def public(self) -> str:
        """The public key, in hexadecimal."""
        return self._key().public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> bytes:
        """64 bytes; the same for the same message."""
        return self._key().sign(message)

    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seed.reveal())


def is_of_small_order(public: str) -> bool:
    """Whether a public key is one of the few under which one signature fits every eighth message or all."""
    y = int.from_bytes(bytes.fromhex(public), "little") % 2**255  # without the sign
    return y % _FIELD in _SMALL_ORDER


_FIELD = 2**255 - 19
_Y8 = 2707385501144840649318225287225658788936804267575313519463743609750303402022
_SMALL_ORDER = frozenset({0, 1, _FIELD - 1, _Y8, _FIELD - _Y8})


def verify(public: str, signature: bytes, message: bytes) -> bool:
    """Whether the holder of a public key signed a message."""
    try:
        if is_of_small_order(public):
            return False
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True)
class SealingKey:
    """An age key pair: what is sealed to its public half, only its holder can open.

    It is a signing key in its other form (X25519): anybody can tell the public half from the public signing key, so a
    signature proves that its maker holds both. One key may serve both uses: Thormarker, IACR ePrint 2021/509.

    Examples
    --------
    >>> signing = SigningKey.generate()
    >>> SealingKey.of(signing).public == sealing_key_of(signing.public)
    True
    """

    identity: Secret

    @classmethod
    def of(cls, signing: SigningKey) -> SealingKey:
        """The sealing key of whoever holds a signing key."""
        scalar = hashlib.sha512(signing.seed.reveal()).digest()[:32]  # RFC 8032, 5.1.5; X25519 prunes it the same way
        return cls(Secret(_to_bech32("age-secret-key-", scalar).upper().encode()))

    @classmethod
    def generate(cls) -> SealingKey:
        """A key of its own, from the operating system's entropy: for what must be possible to destroy."""
        return cls(Secret(str(pyrage.x25519.Identity.generate()).encode()))

    @property
    def public(self) -> str:
        """The recipient that others seal to."""
        return str(self._identity().to_public())

    def open(self, sealed: bytes) -> bytes:
        """Open what was sealed to this key."""
        try:
            return bytes(pyrage.decrypt(sealed, [self._identity()]))
        except (pyrage.DecryptError, ValueError):
            raise RefusedError(
                "the sealed file",
                reason="it is not sealed to this key, or it is damaged",
                cure="Check that your card is in the study's roster, and ask the dealer for the file again.",
            ) from None

    def _identity(self) -> pyrage.x25519.Identity:
        return pyrage.x25519.Identity.from_str(self.identity.reveal().decode())


@lru_cache(maxsize=8192)  # as many as a study's file can hold
def sealing_key_of(public: str) -> str:
    """The recipient to seal to, from the public signing key in hexadecimal: u = (1 + y) / (1 - y), RFC 7748, 4.1."""
    y = int.from_bytes(bytes.fromhex(public), "little") % 2**255 % _FIELD
    u = (1 + y) * (pow(1 - y, -1, _FIELD) if y != 1 else 0) % _FIELD
    return _to_bech32("age", u.to_bytes(32, "little"))


_GENERATORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_REMAINDERS = tuple(reduce(xor, (one for k, one in enumerate(_GENERATORS) if top >> k & 1), 0) for top in range(32))


def _to_bech32(prefix: str, data: bytes) -> str:
    """Text with a checksum, as age writes keys: BIP 173, without its limit of length."""
    bits = int.from_bytes(data) << (-8 * len(data) % 5)
    n = -(-8 * len(data) // 5)
    values = [bits >> 5 * (n - 1 - k) & 31 for k in range(n)]
    spread = [*(ord(letter) >> 5 for letter in prefix), 0, *(ord(letter) & 31 for letter in prefix)]
    check = 1
    for value in [*spread, *values, *[0] * 6]:
        check = (check & 0x1FFFFFF) << 5 ^ value ^ _REMAINDERS[check >> 25]
    values += [(check ^ 1) >> 5 * (5 - k) & 31 for k in range(6)]
    return f"{prefix}1" + "".join("qpzry9x8gf2tvdw0s3jn54khce6mua7l"[value] for value in values)


def is_sealing_key(text: str) -> bool:
    """Whether anything can be sealed to this recipient."""
    try:
        pyrage.x25519.Recipient.from_str(text)
    except (pyrage.RecipientError, ValueError):
        return False
    return True


def seal(data: bytes, recipients: Sequence[str]) -> bytes:
    """Seal to every recipient: each can open it, and nobody else."""
    return bytes(pyrage.encrypt(data, [pyrage.x25519.Recipient.from_str(one) for one in recipients]))


def lock_with_passphrase(data: bytes, passphrase: str) -> bytes:
    """Encrypt with a passphrase (age's scrypt recipient)."""
    return bytes(pyrage.passphrase.encrypt(data, passphrase))


def unlock_with_passphrase(data: bytes, passphrase: str) -> bytes:
    """Decrypt what `lock_with_passphrase` gave."""
    try:
        return bytes(pyrage.passphrase.decrypt(data, passphrase))
    except (pyrage.DecryptError, ValueError):
        raise RefusedError(
            "the vault", reason="the passphrase does not open it", cure="Try again; it cannot be recovered."
        ) from None
