"""What a site, and the server, decide for themselves: `mooring.toml` in the `local` folder of their FLARE kit.

A job names a study by its digest and nothing else. Which study that is, which table and vault are used, and whether labels
may be seen, is read from here.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from mooring.atomic_io import write_atomically
from mooring.errors import InputError, StorageError
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import render_value
from mooring.protocol.storage.vault import Vault

SETTINGS_FILE = "mooring.toml"
_MOST_BYTES = 2**20
_SITE_HEAD = """\
# What this site shares over NVIDIA FLARE. Nothing that a job sends can change it. Paths count from this folder.
# labels = true: yes, the analyst may see every row's label. anchor = "" takes the sealed anchor through the server.
# A study of secure sums has no use for either: labels do not leave, and there is no anchor.
"""
_SERVER_HEAD = """\
# The analyst's part over NVIDIA FLARE. Paths count from this folder.
# A site that has not answered after wait_seconds is left out of this round; with fewer bundles than least_sites, no model.
# late = true: once there is an alignment, a job only admits newcomers; maps and model of the others stay as they are.
# Of secure sums, the list is closed with least_sites bundles, or the study's quorum if that is more, and only once.
"""


@dataclass(frozen=True)
class SiteSettings:
    """A participant's own settings."""

    study: Path
    vault: Path
    data: Path
    """The agreed study's file, the vault, and the table that is shared."""
    labels: bool = False
    """Whether the analyst may see every row's label."""
    folder: Path = Path("mooring")
    """Gets the bundle that was sent, and the result."""
    anchor: Path | None = None
    """A sealed anchor that came another way; None takes the one that comes through the server."""
    ignore: tuple[str, ...] = ()

    @property
    def result(self) -> Path:
        """Where the result is kept."""
        return self.folder / "result"

    @classmethod
    def read(cls, folder: Path) -> SiteSettings:
        """Read a site's settings from its local folder."""
        return cls(**_read(cls, folder))

    def write(self, folder: Path) -> None:
        """Write them to a kit's local folder."""
        _write(self, folder, _SITE_HEAD)


@dataclass(frozen=True)
class ServerSettings:
    """The analyst's own settings."""

    study: Path
    vault: Path
    """The agreed study's file, and the analyst's vault."""
    folder: Path = Path("analysis")
    """The work folder, as of 'mooring align'; what arrives is in its `inbox`, what goes back in its `results`."""
    learner: str = "auto"
    seed: int = field(default=0, metadata={"least": 0})
    least_sites: int = field(default=2, metadata={"least": 2})
    """With fewer bundles there is no model."""
    wait_seconds: int = field(default=3600, metadata={"least": 1})
    late: bool = False
    """Once there is an alignment, admit newcomers only: everybody else keeps its map, and the model stays."""

    @classmethod
    def read(cls, folder: Path) -> ServerSettings:
        """Read the server's settings from its local folder."""
        return cls(**_read(cls, folder))

    def require_learner(self, study: Study) -> None:
        """Refuse a learner that the study cannot train or deliver, before any work."""
        # A site reads its settings with this module, and does not train.
        from mooring.learners.registry import require_learner, resolve_sum_learner

        if study.sums is None:
            require_learner(self.learner, to_deliver=True)
        elif study.label.kind != "none":
            resolve_sum_learner(self.learner, study.label.kind)

    def write(self, folder: Path) -> None:
        """Write them to a kit's local folder."""
        _write(self, folder, _SERVER_HEAD)


def opened_vault(folder: Path) -> Vault:
    """Open a vault where nobody can be asked for a passphrase: it is in the environment, or there is none."""
    return Vault.open(folder, passphrase=os.environ.get("MOORING_PASSPHRASE"))


def _read(kind: type[SiteSettings] | type[ServerSettings], folder: Path) -> dict[str, Any]:
    """The entries of a settings file as the fields of its class; an unknown or wrong one is an error."""
    path = folder / SETTINGS_FILE
    cure = "'mooring flare site' or 'mooring flare server' writes it to the kit's local folder."
    try:
        with path.open("rb") as file:
            plain = tomllib.loads(file.read(_MOST_BYTES).decode("utf-8"))
    except OSError:
        raise StorageError("the settings", reason=f"there is no {SETTINGS_FILE} that can be read", cure=cure) from None
    except (ValueError, RecursionError):
        raise InputError("the settings", expected="TOML", got="something else", cure=cure) from None
    found = {entry.name: _value_of(entry, plain.pop(entry.name, None), folder) for entry in fields(kind)}
    if plain:
        expected, got = "without entries that have no meaning", repr(next(iter(plain)))[:80]
        raise InputError("the settings", expected=expected, got=got, cure="It may be a misspelt one that has.")
    return found


def _value_of(entry: Field[Any], given: Any, folder: Path) -> Any:
    """The value of a field, or its default; a path that is not absolute counts from the settings' folder."""
    if given is None and entry.default is not MISSING:
        given = entry.default
    least = entry.metadata.get("least", 0)
    match entry.type:
        case "Path" | "Path | None":
            expected = "a path"
            if given == "" and entry.default is not MISSING:
                given = entry.default
            if given is None and entry.default is None:
                return None
            if given and isinstance(given, str | Path):
                return folder / Path(given).expanduser()
        case "tuple[str, ...]":
            expected = "a list of columns' names"
            if isinstance(given, list | tuple) and all(isinstance(name, str) for name in given):
                return tuple(given)
        case "int":
            expected = f"a whole number, {least} or more"
            if type(given) is int and given >= least:
                return given
        case kind:
            expected = "true or false" if kind == "bool" else "a word in quotes"
            if type(given).__name__ == kind:
                return given
    raise InputError(f"{entry.name} in {SETTINGS_FILE}", expected=expected, got="something else", cure="Correct it.")


def _write(settings: SiteSettings | ServerSettings, folder: Path, head: str) -> None:
    words = {}
    for name, value in vars(settings).items():
        plain = list(value) if isinstance(value, tuple) else "" if value is None else value
        plain = str(plain) if isinstance(plain, Path) else plain
        words[name] = str(plain).lower() if isinstance(plain, bool) else render_value(plain)
    text = head + "".join(f"{name} = {word}\n" for name, word in words.items())
    write_atomically(folder / SETTINGS_FILE, text.encode(), mode=0o600, what="the settings")
