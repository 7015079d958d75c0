"""Signing keys (Ed25519), keys to seal to (HPKE), and secrets that cannot be printed or pickled."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NoReturn

from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

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

    @cached_property
    def public(self) -> str:
        """The public key, in hexadecimal."""
        return self._key().public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, 64 bytes. Equal messages have equal signatures."""
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
class SealingKey:
    """A key pair to which data are sealed: HPKE (RFC 9180) with ML-KEM-768 and X25519. An attacker must break both.

    Examples
    --------
    >>> key = SealingKey.generate()
    >>> key.open(seal_box(b"share", key.public, info=b"study"), info=b"study")
    b'share'
    """

    seeds: Secret
    """64 bytes of ML-KEM-768 and 32 of X25519."""

    @classmethod
    def generate(cls) -> SealingKey:
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
                cure="Ask its sender to send it again.",
            ) from None

    def _keys(self) -> tuple[MLKEM768PrivateKey, X25519PrivateKey]:
        _load_suite()
        from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

        seeds = self.seeds.reveal()
        return MLKEM768PrivateKey.from_seed_bytes(seeds[:64]), X25519PrivateKey.from_private_bytes(seeds[64:])


BOX_OVERHEAD = 1088 + 32 + 16
"""Bytes that a box has beyond its content: the encapsulated keys of ML-KEM-768 and X25519, and a tag."""


def seal_box(data: bytes, public: str, *, info: bytes) -> bytes:
    """Return a box: data encrypted to a public sealing key. It opens only with the private key and the same `info`."""
    return bytes(_load_suite().encrypt(data, _read_sealing_key(public), info=info))


@lru_cache(maxsize=1024)
def is_sealing_key(public: str) -> bool:
    """Return whether the text is a public key that something can be sealed to."""
    try:
        seal_box(b"", public, info=b"")
        return base64.b64encode(base64.b64decode(public)).decode() == public  # a key has only one valid text
    except (ValueError, binascii.Error):
        return False


def _read_sealing_key(public: str) -> MLKEM768X25519PublicKey:
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
            "sealing",
            reason="the installed cryptography library has no ML-KEM-768",
            cure="Install cryptography 50 or newer from its wheel (pip install 'cryptography>=50').",
        ) from None


def lock(data: bytes, key: Secret) -> bytes:
    """Return data encrypted with a secret of 32 bytes, which must not be used for anything but `lock`."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + ChaCha20Poly1305(key.reveal()).encrypt(nonce, data, None)


LOCK_OVERHEAD = 12 + 16
"""Bytes that locked data has beyond its content: a nonce and a tag."""
_NONCE_BYTES, _SALT_BYTES = 12, 16


def unlock(data: bytes, key: Secret) -> bytes | None:
    """Return the data that `lock` encrypted with this secret; None if another secret was used, or the data are damaged."""
    try:
        return ChaCha20Poly1305(key.reveal()).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], None)
    except (InvalidTag, ValueError):
        return None


def lock_with_passphrase(data: bytes, passphrase: str) -> bytes:
    """Return data encrypted with a passphrase, from which scrypt makes the key."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return salt + lock(data, _stretch(passphrase, salt))


def unlock_with_passphrase(data: bytes, passphrase: str) -> bytes:
    """Return the data encrypted by `lock_with_passphrase`, or raise a `RefusedError`."""
    plain = unlock(data[_SALT_BYTES:], _stretch(passphrase, data[:_SALT_BYTES]))
    if plain is None:
        raise RefusedError(
            "the vault",
            reason="the passphrase does not open it",
            cure="Try again. A lost passphrase cannot be recovered.",
        )
    return plain


def _stretch(passphrase: str, salt: bytes) -> Secret:
    """Return a key from a passphrase. Each guess costs an attacker 128 MB of memory and about half a second."""
    return Secret(Scrypt(salt, 32, n=2**17, r=8, p=1).derive(passphrase.encode()))


def derive_key(secret: Secret, purpose: str) -> Secret:
    """Return the key that is derived from a secret for one purpose."""
    return Secret(HKDF(SHA256(), 32, salt=b"mooring", info=purpose.encode()).derive(secret.reveal()))
