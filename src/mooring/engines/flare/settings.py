"""The settings of a site or of the server, in `mooring.toml` in the `local` folder of their FLARE kit.

A job only carries the digest of a study. The study's file, the table, the vault and the consent for labels come from here.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field

from mooring.atomic_io import make_folder, write_atomically
from mooring.errors import InputError, StorageError
from mooring.protocol.driver import Event
from mooring.protocol.inspection import Inspection
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_text import render_value
from mooring.protocol.registry import exchange_of
from mooring.protocol.storage.vault import Vault
from mooring.protocol.workspace import Outcome, Workspace
from mooring.serialization import Count, Record, read_entries

SETTINGS_FILE, COMMAND = "mooring.toml", "mooring flare"
Tell = Callable[[str], None]
"""Writes a line to the log."""
_MOST_BYTES = 2**20
_SITE_HEAD = """\
# What this site shares over NVIDIA FLARE. A job cannot change these settings. Paths are relative to this folder.
# labels = true: the analyst may see the label of every row. anchor = "": the server provides the sealed anchor.
# A study that does not show labels ignores 'labels', and a study without an anchor ignores 'anchor'.
"""
_SERVER_HEAD = """\
# The analyst's settings for NVIDIA FLARE. Paths are relative to this folder.
# A site is left out if wait_seconds pass without a new file from any site. A model needs at least least_sites bundles.
# late = true: once there is an alignment, a job only admits late joiners; maps and model of the others do not change.
"""


@dataclass(frozen=True)
class SiteSettings(Record):
    """The settings of a participant, or of a helper, who has no table."""

    study: Path
    """The agreed study's file."""
    vault: Path
    """The site's vault."""
    data: Path | None = None
    """The table that is shared; None for a helper."""
    labels: bool = False
    """Whether the analyst may see every row's label."""
    folder: Path = Path("mooring")
    """The folder in which the site's steps run. It holds what was sent, what was received, and the result."""
    anchor: Path | None = None
    """A sealed anchor file that is here already; None if the server provides it."""
    ignore: tuple[str, ...] = ()

    @property
    def result(self) -> Path:
        """The folder of the result."""
        return self.folder / "result"

    @classmethod
    def read(cls, folder: Path) -> SiteSettings:
        """Read a site's settings from its local folder."""
        return _read(cls, folder)

    def write(self, folder: Path) -> None:
        """Write the settings to a kit's local folder."""
        _write(self, folder, _SITE_HEAD)


@dataclass(frozen=True)
class ServerSettings(Record):
    """The settings of the analyst."""

    study: Path
    """The agreed study's file."""
    vault: Path
    """The analyst's vault."""
    folder: Path = Path("mooring")
    """The folder in which the analyst's steps run: `analysis` is the work folder, as for 'mooring align', and `place` holds
    the files that members exchange."""
    learner: str = "auto"
    seed: Count = 0
    least_sites: Annotated[int, Field(ge=2)] = 2
    """Minimum number of bundles. Secure sums also need the study's quorum."""
    wait_seconds: Annotated[int, Field(ge=1)] = 3600
    late: bool = False
    """Whether a job, once there is an alignment, admits late joiners and leaves maps and model of the others unchanged."""

    @classmethod
    def read(cls, folder: Path) -> ServerSettings:
        """Read the server's settings from its local folder."""
        return _read(cls, folder)

    def require_learner(self, study: Study) -> None:
        """Raise an `InputError` for a learner that the study cannot train or deliver, before any work is done."""
        exchange_of(study).require_learner(study, self.learner)

    def write(self, folder: Path) -> None:
        """Write the settings to a kit's local folder."""
        _write(self, folder, _SERVER_HEAD)


Settings = TypeVar("Settings", SiteSettings, ServerSettings)


class _NoPages:
    """Writes no pages: nobody is there to read them."""

    def write_check(self, study: Study, inspection: Inspection, output: Path) -> None:
        """Write nothing."""

    def write_report(
        self, study: Study | None, records: Path, output: Path, *, audit: Path | None = None, examples: bool = True
    ) -> Outcome:
        """Refuse a step that no run takes by itself."""
        raise InputError("report", problem="A job writes no report.", cure="Run 'mooring report' afterwards.")


def open_workspace(settings: SiteSettings | ServerSettings) -> Workspace:
    """Return the folder in which the steps of a site or the server run."""
    make_folder(settings.folder, mode=0o700, what="the folder")
    vault, folder = opened_vault(settings.vault), settings.folder
    return Workspace(folder, settings.study, settings.vault, folder / "analysis", _NoPages(), opened=vault)


def report_event(event: Event, tell: Tell) -> None:
    """Write what a run did to the log."""
    outcome = event.outcome
    for words in (event.words, *(() if outcome is None else (*outcome.lines, *outcome.notes))):
        tell(words)


def opened_vault(folder: Path) -> Vault:
    """Open a vault with the passphrase from the environment, if any, because nobody can be asked for it."""
    return Vault.open(folder, passphrase=os.environ.get("MOORING_PASSPHRASE"))


def _read(kind: type[Settings], folder: Path) -> Settings:
    """Read a settings file. Relative paths start at the file's folder, and an empty entry counts as left out."""
    cure = "'mooring flare site' or 'mooring flare server' writes it to the kit's local folder."
    try:
        with (folder / SETTINGS_FILE).open("rb") as file:
            plain = tomllib.loads(file.read(_MOST_BYTES).decode("utf-8"))
    except OSError:
        raise StorageError("the settings", reason=f"there is no {SETTINGS_FILE} that can be read", cure=cure) from None
    except (ValueError, RecursionError):
        problem = f"{SETTINGS_FILE} is not valid TOML."
        raise InputError("the settings", problem=problem, cure=cure) from None
    entries = {name: value for name, value in plain.items() if value != ""}
    settings = read_entries(kind, entries, what=SETTINGS_FILE, within=SETTINGS_FILE, cure="Correct this entry.")
    paths: dict[str, Any] = {
        name: folder / path.expanduser() for name, path in vars(settings).items() if isinstance(path, Path)
    }
    return replace(settings, **paths)


def _write(settings: SiteSettings | ServerSettings, folder: Path, head: str) -> None:
    entries = {name: "" if value is None else value for name, value in settings.as_dict().items()}
    text = head + "".join(
        f"{name} = {str(value).lower() if isinstance(value, bool) else render_value(value)}\n"
        for name, value in entries.items()
    )
    write_atomically(folder / SETTINGS_FILE, text.encode(), mode=0o600, what="the settings")
