"""What a site, and the server, decide for themselves: `mooring.toml` in the `local` folder of their FLARE kit.

A job names a study by its digest and nothing else. Which study that is, which table and vault are used, and whether labels
may be seen, is read from here.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mooring.atomic_io import write_atomically
from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import render_value
from mooring.protocol.storage.vault import Vault

SETTINGS_FILE = "mooring.toml"
_MOST_BYTES = 2**20
_SITE_HEAD = """\
# What this site shares over NVIDIA FLARE. Nothing that a job sends can change it. Paths count from this folder.
# labels = true: yes, the analyst may see every row's label. anchor = "" takes the sealed anchor through the server.
"""
_SERVER_HEAD = """\
# The analyst's part over NVIDIA FLARE. Paths count from this folder.
# A site that has not answered after wait_seconds is left out of this round; with fewer bundles than least_sites, no model.
# late = true: once there is an alignment, a job only admits newcomers; maps and model of the others stay as they are.
"""


@dataclass(frozen=True)
class SiteSettings:
    """A participant's own settings.

    Attributes
    ----------
    study, vault, data : Path
        The agreed study's file, the vault, and the table that is shared.
    labels : bool
        Whether the analyst may see every row's label.
    folder : Path
        Gets the bundle that was sent, and the result.
    anchor : Path or None
        A sealed anchor that came another way; None takes the one that comes through the server.
    ignore : tuple of str
        Columns that are not shared.
    """

    study: Path
    vault: Path
    data: Path
    labels: bool = False
    folder: Path = Path("mooring")
    anchor: Path | None = None
    ignore: tuple[str, ...] = ()

    @property
    def result(self) -> Path:
        """Where the result is kept."""
        return self.folder / "result"

    @classmethod
    def read(cls, folder: Path) -> SiteSettings:
        """Read a site's settings from its local folder."""
        plain = _read(folder)
        paths = _paths(plain, folder, ("study", "vault", "data", "folder", "anchor"), needed=("study", "vault", "data"))
        labels, ignore = plain.pop("labels", False), plain.pop("ignore", [])
        _require_none_left(plain)
        if not isinstance(labels, bool):
            raise _wrong("labels", "true or false")
        if not isinstance(ignore, list) or not all(isinstance(name, str) for name in ignore):
            raise _wrong("ignore", "a list of columns' names")
        return cls(
            paths["study"],
            paths["vault"],
            paths["data"],
            labels=labels,
            folder=paths.get("folder", folder / "mooring"),
            anchor=paths.get("anchor"),
            ignore=tuple(ignore),
        )

    def write(self, folder: Path) -> None:
        """Write them to a kit's local folder."""
        plain = {
            "study": str(self.study),
            "vault": str(self.vault),
            "data": str(self.data),
            "labels": self.labels,
            "folder": str(self.folder),
            "anchor": "" if self.anchor is None else str(self.anchor),
            "ignore": list(self.ignore),
        }
        _write(folder, _SITE_HEAD, plain)


@dataclass(frozen=True)
class ServerSettings:
    """The analyst's own settings.

    Attributes
    ----------
    study, vault : Path
        The agreed study's file, and the analyst's vault.
    folder : Path
        The work folder, as of 'mooring align'; what arrives is in its `inbox`, what goes back in its `results`.
    learner : str
    seed : int
    least_sites : int
        With fewer bundles there is no model.
    wait_seconds : int
        How long a site may take to answer a task.
    late : bool
        Once there is an alignment, admit newcomers only: everybody else keeps its map, and the model stays.
    """

    study: Path
    vault: Path
    folder: Path = Path("analysis")
    learner: str = "auto"
    seed: int = 0
    least_sites: int = 2
    wait_seconds: int = 3600
    late: bool = False

    @classmethod
    def read(cls, folder: Path) -> ServerSettings:
        """Read the server's settings from its local folder."""
        plain = _read(folder)
        paths = _paths(plain, folder, ("study", "vault", "folder"), needed=("study", "vault"))
        learner, late = plain.pop("learner", "auto"), plain.pop("late", False)
        from mooring.learners import (
            require_learner,  # a site, which reads its settings with this module, does not train
        )

        require_learner(learner, to_deliver=True)
        if not isinstance(late, bool):
            raise _wrong("late", "true or false")
        numbers = {}
        for name, fallback, least in (("seed", 0, 0), ("least_sites", 2, 2), ("wait_seconds", 3600, 1)):
            value = plain.pop(name, fallback)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise _wrong(name, f"a whole number, {least} or more")
            numbers[name] = value
        _require_none_left(plain)
        place = paths.get("folder", folder / "analysis")
        return cls(paths["study"], paths["vault"], place, learner, late=late, **numbers)

    def write(self, folder: Path) -> None:
        """Write them to a kit's local folder."""
        plain = {
            "study": str(self.study),
            "vault": str(self.vault),
            "folder": str(self.folder),
            "learner": self.learner,
            "seed": self.seed,
            "least_sites": self.least_sites,
            "wait_seconds": self.wait_seconds,
            "late": self.late,
        }
        _write(folder, _SERVER_HEAD, plain)


def require_same_study(own: Study, digest: object) -> None:
    """Refuse a job of another study than the one that is agreed here."""
    own.require_roster()
    if digest != own.digest:
        raise RefusedError(
            "the job",
            reason="it is for another study, or another version of it, than the one agreed here",
            cure="Compare fingerprints: 'mooring study show' prints them.",
        )


def opened_vault(folder: Path) -> Vault:
    """Open a vault where nobody can be asked for a passphrase: it is in the environment, or there is none."""
    return Vault.open(folder, passphrase=os.environ.get("MOORING_PASSPHRASE"))


def _read(folder: Path) -> dict[str, Any]:
    path = folder / SETTINGS_FILE
    cure = "'mooring flare site' or 'mooring flare server' writes it to the kit's local folder."
    try:
        with path.open("rb") as file:
            return tomllib.loads(file.read(_MOST_BYTES).decode("utf-8"))
    except OSError:
        raise StorageError("the settings", reason=f"there is no {SETTINGS_FILE} that can be read", cure=cure) from None
    except (ValueError, RecursionError):
        raise InputError("the settings", expected="TOML", got="something else", cure=cure) from None


def _write(folder: Path, head: str, plain: Mapping[str, Any]) -> None:
    words = {
        name: str(value).lower() if isinstance(value, bool) else render_value(value) for name, value in plain.items()
    }
    text = head + "".join(f"{name} = {word}\n" for name, word in words.items())
    write_atomically(folder / SETTINGS_FILE, text.encode(), mode=0o600, what="the settings")


def _paths(
    plain: dict[str, Any], folder: Path, names: tuple[str, ...], *, needed: tuple[str, ...]
) -> Mapping[str, Path]:
    """Take the paths out; those that are not absolute count from the settings' folder."""
    found = {}
    for name in names:
        value = plain.pop(name, "")
        if not isinstance(value, str) or (name in needed and not value):
            raise _wrong(name, "a path")
        if value:
            found[name] = folder / Path(value).expanduser()
    return found


def _require_none_left(plain: dict[str, Any]) -> None:
    if plain:
        raise InputError(
            "the settings",
            expected="without entries that have no meaning",
            got=repr(next(iter(plain)))[:80],
            cure="It may be a misspelt one that has.",
        )


def _wrong(name: str, expected: str) -> InputError:
    return InputError(f"{name} in {SETTINGS_FILE}", expected=expected, got="something else", cure="Correct it.")
