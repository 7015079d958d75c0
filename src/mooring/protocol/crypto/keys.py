"""Signing keys (Ed25519), keys to seal to (HPKE and age), and secrets that cannot be printed, pickled or uploaded."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import xor
from typing import TYPE_CHECKING, NoReturn

import pyrage
from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from mooring.errors import RefusedError, StorageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
    from cryptography.hazmat.primitives.hpke import MLKEM768X25519PublicKey, Suite

SECRET_BYTES = 32


class Secret:
    """Secret bytes: redacted when printed, compared in constant time, and not picklable.

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
        """Return 256 bits of the operating system's entropy."""
        return cls(secrets.token_bytes(SECRET_BYTES))

    def reveal(self) -> bytes:
        """Return the bytes, for a cryptographic primitive that needs them."""
        return self.__value

    def __repr__(self) -> str:
        return "Secret(redacted)"

    def __format__(self, _: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self.__value, other.reveal())

    def __hash__(self) -> NoReturn:
        raise TypeError("A secret cannot be hashed.")

    def __reduce__(self) -> NoReturn:
        raise TypeError("A secret cannot be pickled.")


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
        """Return a new key from the operating system's entropy."""
        return cls(Secret.draw())

    @property
    def public(self) -> str:
        """The public key, in hexadecimal."""
        return self._key().public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes; it is always the same for the same message."""
        return self._key().sign(message)

    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seed.reveal())


def is_of_small_order(public: str) -> bool:
    """Return whether a public key has small order, so that one signature would fit many messages."""
    y = int.from_bytes(bytes.fromhex(public), "little") % 2**255  # without the sign
    return y % _FIELD in _SMALL_ORDER


_FIELD = 2**255 - 19
_Y8 = 2707385501144840649318225287225658788936804267575313519463743609750303402022
_SMALL_ORDER = frozenset({0, 1, _FIELD - 1, _Y8, _FIELD - _Y8})


def verify(public: str, signature: bytes, message: bytes) -> bool:
    """Return whether the holder of a public key (in hexadecimal) signed a message."""
    try:
        if is_of_small_order(public):
            return False
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True)
class CombiningKey:
    """A key pair for the boxes of one study: HPKE (RFC 9180) with ML-KEM-768 and X25519, which must both be broken.

    Examples
    --------
    >>> key = CombiningKey.generate()
    >>> key.open(seal_box(b"share", key.public, info=b"study"), info=b"study")
    b'share'
    """

    seeds: Secret
    """64 bytes of ML-KEM-768 and 32 of X25519."""

    @classmethod
    def generate(cls) -> CombiningKey:
        """Return a new key from the operating system's entropy."""
        return cls(Secret(secrets.token_bytes(64 + 32)))

    @property
    def public(self) -> str:
        """The public key, 1,216 bytes in base64."""
        lattice, curve = self._keys()
        raw = lattice.public_key().public_bytes_raw() + curve.public_key().public_bytes_raw()
        return base64.b64encode(raw).decode()

    def open(self, sealed: bytes, *, info: bytes) -> bytes:
        """Return the content of a box that was sealed to this key with the same `info`, or raise a `RefusedError`."""
        from cryptography.hazmat.primitives.hpke import MLKEM768X25519PrivateKey

        try:
            return bytes(_load_suite().decrypt(sealed, MLKEM768X25519PrivateKey(*self._keys()), info=info))
        except (InvalidTag, ValueError):
            raise RefusedError(
                "the box",
                reason="it is not sealed to this key for this purpose, or it is damaged",
                cure="Ask the participant to send its bundle again.",
            ) from None

    def _keys(self) -> tuple[MLKEM768PrivateKey, X25519PrivateKey]:
        _load_suite()
        from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

        seeds = self.seeds.reveal()
        return MLKEM768PrivateKey.from_seed_bytes(seeds[:64]), X25519PrivateKey.from_private_bytes(seeds[64:])


BOX_OVERHEAD = 1088 + 32 + 16
"""Bytes that a box has beyond its content: the encapsulated keys of ML-KEM-768 and X25519, and a tag."""


def seal_box(data: bytes, public: str, *, info: bytes) -> bytes:
    """Return data encrypted to a combining key, so that it opens with the same `info` only."""
    return bytes(_load_suite().encrypt(data, _read_combining_key(public), info=info))


@lru_cache(maxsize=64)
def is_combining_key(public: str) -> bool:
    """Return whether the text is a public combining key that something can be sealed to."""
    try:
        seal_box(b"", public, info=b"")
        return base64.b64encode(base64.b64decode(public)).decode() == public  # one text a key
    except (ValueError, binascii.Error):
        return False


def _read_combining_key(public: str) -> MLKEM768X25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey
    from cryptography.hazmat.primitives.hpke import MLKEM768X25519PublicKey

    raw = base64.b64decode(public, validate=True)
    lattice = MLKEM768PublicKey.from_public_bytes(raw[:1184])
    return MLKEM768X25519PublicKey(lattice, X25519PublicKey.from_public_bytes(raw[1184:]))


@lru_cache(maxsize=1)
def _load_suite() -> Suite:
    """Return the algorithms of boxes, or raise a `StorageError` where the cryptography library lacks them."""
    try:
        from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
        from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

        MLKEM768PrivateKey.from_seed_bytes(bytes(64))
        return Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
    except (ImportError, AttributeError, UnsupportedAlgorithm):
        raise StorageError(
            "secure sums",
            reason="the installed cryptography library has no ML-KEM-768",
            cure="Install cryptography 50 or newer from its wheel (pip install 'cryptography>=50').",
        ) from None


@dataclass(frozen=True)
class SealingKey:
    """An age key pair: only the holder of the private key can open what is sealed to the public key.

    It is the X25519 form of a signing key. The public sealing key follows from the public signing key, so a signature proves
    that the signer holds both. Using one key for both purposes is secure: Thormarker, IACR ePrint 2021/509.

    Examples
    --------
    >>> signing = SigningKey.generate()
    >>> SealingKey.of(signing).public == sealing_key_of(signing.public)
    True
    """

    identity: Secret

    @classmethod
    def of(cls, signing: SigningKey) -> SealingKey:
        """Return the sealing key that belongs to a signing key."""
        scalar = hashlib.sha512(signing.seed.reveal()).digest()[
            :32
        ]  # RFC 8032, 5.1.5; X25519 clamps it in the same way
        return cls(Secret(_to_bech32("age-secret-key-", scalar).upper().encode()))

    @property
    def public(self) -> str:
        """The public key, an age recipient."""
        return str(self._identity().to_public())

    def open(self, sealed: bytes) -> bytes:
        """Return the content of data sealed to this key, or raise a `RefusedError`."""
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


@lru_cache(maxsize=8192)  # as many members as a study's file can hold
def sealing_key_of(public: str) -> str:
    """Return the age recipient of a public signing key in hexadecimal: u = (1 + y) / (1 - y), RFC 7748, 4.1."""
    y = int.from_bytes(bytes.fromhex(public), "little") % 2**255 % _FIELD
    u = (1 + y) * (pow(1 - y, -1, _FIELD) if y != 1 else 0) % _FIELD
    return _to_bech32("age", u.to_bytes(32, "little"))


_GENERATORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_REMAINDERS = tuple(reduce(xor, (g for k, g in enumerate(_GENERATORS) if top >> k & 1), 0) for top in range(32))


def _to_bech32(prefix: str, data: bytes) -> str:
    """Return data in Bech32, as age writes keys (BIP 173 without its length limit)."""
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
    """Return whether the text is a valid age recipient."""
    try:
        pyrage.x25519.Recipient.from_str(text)
    except (pyrage.RecipientError, ValueError):
        return False
    return True


def seal(data: bytes, recipients: Sequence[str]) -> bytes:
    """Return data encrypted so that each recipient, and nobody else, can open it."""
    return bytes(pyrage.encrypt(data, [pyrage.x25519.Recipient.from_str(recipient) for recipient in recipients]))


def lock_with_passphrase(data: bytes, passphrase: str) -> bytes:
    """Return data encrypted with a passphrase (age's scrypt recipient)."""
    return bytes(pyrage.passphrase.encrypt(data, passphrase))


def unlock_with_passphrase(data: bytes, passphrase: str) -> bytes:
    """Return the data encrypted by `lock_with_passphrase`, or raise a `RefusedError`."""
    try:
        return bytes(pyrage.passphrase.decrypt(data, passphrase))
    except (pyrage.DecryptError, ValueError):
        raise RefusedError(
            "the vault",
            reason="the passphrase does not open it",
            cure="Try again. A lost passphrase cannot be recovered.",
        ) from None
