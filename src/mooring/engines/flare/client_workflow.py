"""What a site does in a job: deal the anchor, share once, check and keep its result. No FLARE in here.

Everything that it uses is its own: study, vault, table and consent come from its settings. A task tells a ticket, and sizes
and digests of what can be fetched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mooring.atomic_io import (
    LockHeldError,
    clear_partial_files,
    copy_atomically,
    hash_file,
    hold_lock,
    make_folder,
)
from mooring.engines.flare.chunks import Ask, Message, fetch_file, send_file
from mooring.engines.flare.settings import SiteSettings, opened_vault
from mooring.errors import InputError, StorageError
from mooring.protocol.messages.anchor import most_anchor_bytes
from mooring.protocol.messages.bundle import SUFFIX
from mooring.protocol.messages.result import MAP_FILE, MODEL_FILE, Result, bound_result_files, read_result
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import open_anchor
from mooring.protocol.participant.prediction import require_own_map
from mooring.protocol.participant.role import Participant
from mooring.protocol.participant.secrets import Perturbation
from mooring.protocol.participant.upload import used_anchor
from mooring.typing import Progress

_COMMAND = "mooring flare"
_ARRIVING, _LOCK = ".arriving", ".flare.lock"
_CLEARING_SECONDS = 60.0


class NoAnchorError(StorageError):
    """There is no anchor to share with, yet."""


@dataclass(frozen=True)
class ClientWorkflow:
    """One participant in a job.

    Parameters
    ----------
    settings : SiteSettings
        The site's own.
    name : str
        What FLARE calls the site; it must be the participant's name in the roster.
    digest : str
        Of the study that the job says it is for.
    tell : callable
        Given words about progress, for the site's own log.
    """

    settings: SiteSettings
    name: str
    digest: str
    tell: Callable[[str], None] = field(default=lambda words: None, repr=False)

    def do(self, task: str, told: Message, ask: Ask) -> dict[str, Any]:
        """Do a task of the job, and say in plain values what was done."""
        participant = self._participant(told)
        make_folder(self.settings.folder, mode=0o700, what="the site's folder")
        with _tidied(self.settings.folder, self.settings.folder / _ARRIVING, self.settings.result):
            match task:
                case "mooring.anchor":
                    return self._deal(participant, told, ask)
                case "mooring.share":
                    return self._share(participant, told, ask)
                case "mooring.result":
                    return self._keep_result(participant, told, ask)
        raise InputError("task", expected="one of mooring's", got="another", cure="Use the same version of mooring.")

    def _participant(self, told: Message) -> Participant:
        study = Study.read(self.settings.study)
        study.require_roster()
        for digest in (self.digest, told.get("study")):
            study.require_same({"study": digest}, what="the job")
        participant = Participant(study, opened_vault(self.settings.vault))
        if participant.member.name != self.name:
            raise InputError(
                "name of the site",
                expected=f"{participant.member.name!r}, as in the study's roster",
                got="another",
                cure="Provision FLARE with the roster's names, or open the vault of this site.",
            )
        return participant

    def _deal(self, participant: Participant, told: Message, ask: Ask) -> dict[str, Any]:
        path = self.settings.folder / f"{participant.study.name}.anchor"
        participant.deal(path)
        return {"digest": send_file(path, _ticket(told), ask)}

    def _share(self, participant: Participant, told: Message, ask: Ask) -> dict[str, Any]:
        study = participant.study
        if study.label.kind != "none" and not self.settings.labels:
            raise InputError(
                "consent for labels",
                expected="given",
                got="none",
                cure=f"The analyst sees the column {study.label.column!r} of every row as it is. If you may share that, "
                "write labels = true in the site's mooring.toml.",
            )
        path = self.settings.folder / f"{self.name}{SUFFIX}"
        anchor = self.settings.anchor or self._fetched_anchor(study, told, ask)
        shared = participant.share(
            self.settings.data,
            anchor=anchor,
            output=path,
            ignore=self.settings.ignore,
            progress=_in_tenths("shared", self.tell),
        )
        record = {"command": _COMMAND, **shared.as_dict()}
        participant.vault.write(study.folder_name, "share.json", json.dumps(record).encode())
        if hash_file(path, what="the bundle") != shared.bundle_digest:
            raise StorageError(
                "the bundle", reason="it changed on the disk since it was written", cure="Submit the job again."
            )
        send_file(path, _ticket(told), ask, progress=_in_tenths("sent", self.tell))
        return {"digest": shared.bundle_digest, "rows": shared.n_rows, "reissued": int(shared.reissued)}

    def _fetched_anchor(self, study: Study, told: Message, ask: Ask) -> Path:
        if "anchor.size" not in told:
            raise NoAnchorError(
                "the anchor",
                reason="the dealer has not sent it to the server, and mooring.toml names none",
                cure="Submit the job again when the dealer's site is up, or name an anchor that came another way.",
            )
        path = self.settings.folder / f"{study.name}.anchor"
        announced, most = _announced(told, "anchor"), most_anchor_bytes(study)
        fetch_file("anchor", path, _ticket(told), ask, **announced, most=most, what="the anchor file")
        return path

    def _keep_result(self, participant: Participant, told: Message, ask: Ask) -> dict[str, Any]:
        study, vault = participant.study, participant.vault
        arriving = self.settings.folder / _ARRIVING
        make_folder(arriving, mode=0o700, what="the site's folder")
        for name, most in bound_result_files(study).items():
            if f"{name}.size" in told:
                announced = _announced(told, name)
                fetch_file(name, arriving / name, _ticket(told), ask, **announced, most=most, what="the result")
        delivered = read_result(arriving, study, participant.member)
        anchor = open_anchor(vault, study, used_anchor(vault, study))
        require_own_map(delivered, Perturbation(study, anchor, vault), vault)
        self._keep(delivered, arriving)
        return {"model": delivered.model_digest}

    def _keep(self, delivered: Result, arriving: Path) -> None:
        make_folder(self.settings.result, mode=0o700, what="the folder of the result")
        names = (MODEL_FILE, MAP_FILE) if delivered.model is not None else (MAP_FILE,)
        for name in names:
            copy_atomically(arriving / name, self.settings.result / name, what="the result")
        for name in (MODEL_FILE, MAP_FILE):
            with suppress(OSError):
                (arriving / name).unlink()
        with suppress(OSError):
            arriving.rmdir()


@contextmanager
def _tidied(folder: Path, *others: Path) -> Iterator[None]:
    """Remove what a killed job left of files that it was writing, unless another job is at work here."""
    with suppress(LockHeldError), hold_lock(folder / _LOCK, what="the site's folder"):
        for each in (folder, *others):
            clear_partial_files(each)
    with hold_lock(folder / _LOCK, what="the site's folder", wait_seconds=_CLEARING_SECONDS, shared=True):
        yield  # while this job is at work, nobody clears


def _ticket(told: Message) -> str:
    ticket = told.get("ticket")
    return ticket if isinstance(ticket, str) else ""


def _announced(told: Message, name: str) -> dict[str, Any]:
    size, digest = told.get(f"{name}.size"), told.get(f"{name}.digest")
    if not isinstance(size, int) or not isinstance(digest, str):
        raise InputError("task", expected=f"one that tells of the {name}", got="none", cure="Ask the analyst.")
    return {"size": size, "digest": digest}


def _in_tenths(what: str, tell: Callable[[str], None]) -> Progress:
    """Progress as words, each tenth once."""
    said = [0]

    def progress(done: float, total: float, _what: str = "", /) -> None:
        tenth = int(10 * done / total) if total else 0
        if tenth > said[0]:
            said[0] = tenth
            tell(f"{what} {10 * tenth} %")

    return progress
