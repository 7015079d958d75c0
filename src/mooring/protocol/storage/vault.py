"""The vault: a private folder with the keys, secrets, ledger and bundles of one member.

Only its owner can read it. The identity file holds the private signing and sealing keys, the secret from which map, noise
and order of rotation are derived, and the key of the ledger's fingerprints. With a passphrase, this file is encrypted at
rest. A backup of the vault restores all of these, and therefore the same noise of rotation. The noise of secure sums is not
stored anywhere.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from mooring.atomic_io import clear_partial_files, hold_lock, make_folder, read_bounded, write_atomically
from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.crypto.keys import (
    SealingKey,
    Secret,
    SigningKey,
    derive_key,
    lock,
    lock_with_passphrase,
    unlock,
    unlock_with_passphrase,
)

FORMAT = 1
_PLAIN, _LOCKED, _COMBINING = "identity.json", "identity.locked", "combining"
_MOST_BYTES = 2**20
_Gone = Literal["combined", "revoked"]


@dataclass(frozen=True)
class Floors:
    """What a participant demands of a study: least noise, largest ε, and how many must pool keys to open a contribution."""

    anchor_noise: float = 0.01
    """Minimum v of a method with anchor noise."""
    data_noise: float = 0.05
    """Minimum σ of a method with private-data noise, in units of encoded numbers, which lie between −1 and 1."""
    without_noise: bool = False
    """Whether a method without any noise is accepted."""
    most_epsilon: float = 8.0
    """Maximum ε that this vault may spend in all studies of secure sums together."""
    most_pooled_epsilon: float = 1000.0
    """Maximum ε of this participant's contribution if as many combiners as the threshold pool their keys."""
    threshold: int = 2
    """Minimum number of combiners that together could open a contribution."""
    n_colluders: int = 1
    """Minimum number of participants that the study assumes may collude with the analyst."""

    def __post_init__(self) -> None:
        for name in vars(self):
            if not (
                math.isfinite(value := getattr(self, name)) and value >= 0
            ):  # no noise would be below a floor of NaN
                expected, cure = "a finite number of 0 or above", "Leave it out to use the default."
                raise InputError(name.replace("_", " "), expected=expected, got=f"{value:g}", cure=cure)


@dataclass(frozen=True)
class Vault:
    """An opened vault."""

    folder: Path
    signing_key: SigningKey
    sealing_key: SealingKey
    master: Secret
    """The secret from which map, noise and order of rotation are derived, and the key that encrypts combining keys."""
    ledger_key: Secret
    """The key of the fingerprints of rows."""
    floors: Floors
    wait_seconds: float = 24 * 3600.0
    """How long to wait at most while another process changes the vault."""

    @classmethod
    def create(cls, folder: Path, *, passphrase: str | None = None, floors: Floors | None = None) -> Vault:
        """Create a vault with new keys; refuse a folder that has a vault already."""
        if passphrase is not None and not passphrase:
            raise InputError(
                "passphrase", problem="The passphrase is empty.", cure="Leave it out for a vault without one."
            )
        _require_no_vault(folder)
        make_folder(folder, mode=0o700, what="the vault", tighten=True)
        signing = SigningKey.generate()
        vault = cls(folder, signing, SealingKey.generate(), Secret.draw(), Secret.draw(), floors or Floors())
        text = json.dumps(vault._contents()).encode()
        with vault.lock():  # of two processes that join in one folder at once, one gets an error
            _require_no_vault(folder)
            path, data = (folder / _PLAIN, text)
            if passphrase is not None:
                path, data = folder / _LOCKED, lock_with_passphrase(text, passphrase)
            write_atomically(path, data, mode=0o600, what="the vault")
        return vault

    @classmethod
    def open(cls, folder: Path, *, passphrase: str | None = None) -> Vault:
        """Open an existing vault."""
        locked = folder / _LOCKED
        path = locked if locked.exists() else folder / _PLAIN
        if not path.exists():
            cure = "Create one with 'mooring join', or give its folder with --vault."
            raise StorageError("the vault", reason="there is none in this folder", cure=cure)
        data = read_bounded(path, _MOST_BYTES, what="the vault")
        if path is locked:
            if passphrase is None:
                problem = "This vault is encrypted, and no passphrase was given."
                raise InputError("passphrase", problem=problem, cure="Set MOORING_PASSPHRASE.")
            data = unlock_with_passphrase(data, passphrase)
        return cls._from_contents(folder, data)

    @classmethod
    def open_or_create(
        cls, folder: Path, *, passphrase: str | None = None, floors: Mapping[str, float | bool] | None = None
    ) -> tuple[Vault, bool]:
        """Open an existing vault or create one. Returns the vault and whether it is new.

        An existing vault is refused if it does not have the given floors, or if a passphrase is given and it has none.
        """
        requested = floors or {}
        if not has_vault(folder):
            return cls.create(folder, passphrase=passphrase, floors=Floors(**requested)), True  # type: ignore[arg-type]
        opened = cls.open(folder, passphrase=passphrase)
        differs = any(getattr(opened.floors, name) != value for name, value in requested.items())
        if differs or (passphrase is not None and not is_encrypted(folder)):
            problem = f"The vault already exists, with {'different floors' if differs else 'no passphrase'}."
            cure = (
                "Leave the options out to use it as it is. Floors and passphrase are set once, when a vault is created."
            )
            raise InputError("vault", problem=problem, cure=cure)
        return opened, False

    def study_path(self, folder_name: str) -> Path:
        """Return the folder of a study in this vault, whether or not it exists."""
        return self.folder / "studies" / folder_name

    def study_folder(self, folder_name: str) -> Path:
        """Return the folder of a study in this vault, which is created if missing."""
        folder = self.study_path(folder_name)
        make_folder(folder.parent, mode=0o700, what="the vault")
        make_folder(folder, mode=0o700, what="the vault")
        return folder

    def write(self, folder_name: str, name: str, data: bytes) -> Path:
        """Write a file of a study into the vault once no other process changes the vault, and return the file's path."""
        with self.lock():
            path = self.study_folder(folder_name) / name
            write_atomically(path, data, mode=0o600, what="the vault")
        return path

    def draw_combining_key(self) -> str:
        """Create a key for the shares of one study, store its private half in this vault, and return the public half."""
        key = SealingKey.generate()
        with self.lock():
            make_folder(self.folder / _COMBINING, mode=0o700, what="the vault")
            locked = lock(key.seeds.reveal(), self._lock_key)
            write_atomically(self._combining_file(key.public), locked, mode=0o600, what="the vault")
        return key.public

    def combining_key(self, public: str) -> SealingKey | None:
        """Return the private half of a combining key; None if this vault does not hold it (`why_gone` says why)."""
        path = self._combining_file(public)
        if not path.exists():
            return None
        seeds = unlock(read_bounded(path, _MOST_BYTES, what="the vault"), self._lock_key)
        if seeds is None:
            reason, cure = "the file of a combining key is damaged", "Restore it from a backup."
            raise RefusedError("the vault", reason=reason, cure=cure)
        return SealingKey(Secret(seeds))

    @property
    def _lock_key(self) -> Secret:
        """The key that combining keys are encrypted with, so that a passphrase protects them, too."""
        return derive_key(self.master, "combining keys")

    def destroy_combining_key(self, public: str) -> None:
        """Remove the private half of a key. Only an older copy of the vault can then open what was sealed to the key."""
        self._remove(self._combining_file(public), "combined")

    def revoke_combining_keys(self, *, used: Collection[str]) -> int:
        """Remove the private halves of all combining keys but the `used` ones, and return their number."""
        kept, n_revoked = {self._combining_file(public) for public in used}, 0
        with self.lock():
            for path in sorted((self.folder / _COMBINING).glob("*.key")):
                if path not in kept:
                    self._remove(path, "revoked")
                    n_revoked += 1
        return n_revoked

    def why_gone(self, public: str) -> Literal["combined", "revoked", "unknown"]:
        """Return why this vault does not hold a combining key: it has combined with it, revoked it, or never had it."""
        file, reasons = self._combining_file(public), get_args(_Gone)
        return next((reason for reason in reasons if file.with_suffix(f".{reason}").exists()), "unknown")

    def _remove(self, path: Path, reason: _Gone) -> None:
        if path.exists():
            write_atomically(path.with_suffix(f".{reason}"), b"", mode=0o600, what="the vault")
            path.unlink()

    def _combining_file(self, public: str) -> Path:
        return self.folder / _COMBINING / f"{hashlib.sha256(public.encode()).hexdigest()[:32]}.key"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Wait until no other process changes this vault, then hold its lock. A process that dies releases it."""
        with hold_lock(self.folder / "lock", what="the vault", wait_seconds=self.wait_seconds):
            clear_partial_files(self.folder)
            for folder in (*(self.folder / "studies").glob("*/"), self.folder / _COMBINING):
                clear_partial_files(folder)
            yield

    def _contents(self) -> dict[str, Any]:
        plain = {
            "format": FORMAT,
            "signing": self.signing_key.seed.reveal().hex(),
            "sealing": self.sealing_key.seeds.reveal().hex(),
            "master": self.master.reveal().hex(),
            "ledger": self.ledger_key.reveal().hex(),
            "floors": vars(self.floors),
        }
        return plain | {"check": _check_of(plain)}

    @classmethod
    def _from_contents(cls, folder: Path, data: bytes) -> Vault:
        try:
            plain = json.loads(data)
            if plain["format"] != FORMAT or plain.pop("check") != _check_of(plain):
                raise ValueError
            return cls(
                folder,
                SigningKey(Secret(bytes.fromhex(plain["signing"]))),
                SealingKey(Secret(bytes.fromhex(plain["sealing"]))),
                Secret(bytes.fromhex(plain["master"])),
                Secret(bytes.fromhex(plain["ledger"])),
                Floors(**plain["floors"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        raise RefusedError(
            "the vault",
            reason="its identity file is damaged or was written by a different version of mooring",
            cure="Restore it from a backup.",
        )


def _check_of(contents: dict[str, Any]) -> str:
    """Return a checksum of an identity, because one wrong digit of a secret would give the same rows different noise."""
    plain = json.dumps(contents, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(b"mooring identity\n" + plain.encode()).hexdigest()


def has_vault(folder: Path) -> bool:
    """Return whether there is a vault in a folder."""
    return (folder / _PLAIN).exists() or is_encrypted(folder)


def is_encrypted(folder: Path) -> bool:
    """Return whether the vault in a folder has a passphrase."""
    return (folder / _LOCKED).exists()


def _require_no_vault(folder: Path) -> None:
    if has_vault(folder):
        raise InputError("vault", problem="This folder already has a vault.", cure="Choose another folder.")
