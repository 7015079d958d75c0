"""The steps of a site in a job: deal the anchor, share, combine secure sums, and check and store the result.

This module does not import FLARE. Study, vault, table and consent come from the site's own settings. A task only carries a
ticket, and sizes and digests of files to fetch.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mooring.atomic_io import LockHeldError, clear_partial_files, copy_atomically, hash_file, hold_lock, make_folder
from mooring.engines.flare.chunks import PIECE_SIZE, Ask, Message, fetch_file, send_file
from mooring.engines.flare.configuration import ANCHOR_TASK, COMBINE_TASK, RECEIPT_TASK, RESULT_TASK, SHARE_TASK
from mooring.engines.flare.settings import SiteSettings, opened_vault
from mooring.errors import InputError, StorageError
from mooring.protocol.messages.bundle import SUFFIX
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import find_member
from mooring.protocol.participant.role import Participant
from mooring.protocol.registry import exchange_of
from mooring.protocol.rotation.anchor import most_anchor_bytes
from mooring.protocol.rotation.participant.upload import require_label_consent
from mooring.protocol.sums.answers import LIST, LIST_FILE, RECEIPT, SHARE, SUFFIXES, most_answer_bytes
from mooring.protocol.sums.bundle import most_sum_bundle_bytes
from mooring.typing import Progress

_COMMAND = "mooring flare"
_ARRIVING, _BUNDLES, _LOCK = ".arriving", "bundles", ".flare.lock"
_CLEARING_SECONDS = 60.0


class NoAnchorError(StorageError):
    """Raised when a site has no anchor to share with yet."""


@dataclass(frozen=True)
class ClientWorkflow:
    """One participant or helper in a job."""

    settings: SiteSettings
    name: str
    """FLARE's name of the site, which must be its name in the roster."""
    digest: str
    """Digest of the study that the job is for."""
    tell: Callable[[str], None] = field(default=lambda words: None, repr=False)
    """Writes a line to the site's log."""
    piece_size: int = PIECE_SIZE
    """Number of bytes that are transferred at a time; the server uses the same."""

    def do(self, task: str, message: Message, ask: Ask) -> dict[str, Any]:
        """Run a task of the job and return its result as plain values."""
        participant = self._participant(message)
        steps = {
            ANCHOR_TASK: self._deal,
            SHARE_TASK: self._share,
            RECEIPT_TASK: self._check_boxes,
            COMBINE_TASK: self._combine,
            RESULT_TASK: self._keep_result,
        }
        if task not in steps:
            cure = "Use the same version of mooring at the server and at all sites."
            raise InputError("task", expected=f"one of {', '.join(steps)}", got=repr(task[:80]), cure=cure)
        folder = self.settings.folder
        make_folder(folder, mode=0o700, what="the site's folder")
        with _tidied(folder, folder / _ARRIVING, folder / _BUNDLES, self.settings.result):
            return steps[task](participant, message, ask)

    def _participant(self, message: Message) -> Participant:
        study = Study.read(self.settings.study)
        study.require_roster()
        for digest in (self.digest, message.get("study")):
            study.require_same({"study": digest}, what="the job")
        participant = Participant(study, opened_vault(self.settings.vault))
        member = find_member(participant.vault, study)
        if member.name != self.name:
            raise InputError(
                "name of the site",
                expected=f"{member.name!r}, as in the study's roster",
                got=repr(self.name),
                cure="Provision FLARE with the roster's names, or use the vault of this site.",
            )
        return participant

    def _deal(self, participant: Participant, message: Message, ask: Ask) -> dict[str, Any]:
        path = self.settings.folder / f"{participant.study.name}.anchor"
        participant.take("deal", output=path)
        return {"digest": send_file(path, _ticket(message), ask, piece_size=self.piece_size)}

    def _share(self, participant: Participant, message: Message, ask: Ask) -> dict[str, Any]:
        study, path = participant.study, self.settings.folder / f"{self.name}{SUFFIX}"
        data, anchor = self.settings.data, self.settings.anchor
        if data is None:
            problem = "The settings of this site name no table to share."
            raise InputError("data", problem=problem, cure="Write them again with 'mooring flare site --data TABLE'.")
        if any(step.name == "deal" for step in exchange_of(study).steps):
            require_label_consent(study, self.settings.labels)  # before the anchor is requested from the server
            anchor = anchor or self._fetched_anchor(study, message, ask)
        shared = participant.share(
            data,
            output=path,
            anchor=anchor,
            labels=self.settings.labels,
            ignore=self.settings.ignore,
            command=_COMMAND,
            progress=_in_tenths("shared", self.tell),
        )
        if hash_file(path, what="the bundle") != shared.bundle_digest:
            raise StorageError(
                "the bundle", reason="it changed on disk after it was written", cure="Submit the job again."
            )
        send_file(path, _ticket(message), ask, piece_size=self.piece_size, progress=_in_tenths("sent", self.tell))
        answer = {"digest": shared.bundle_digest, "reissued": int(shared.reissued)}
        # Beside noisy sums, the exact number of rows would reveal whether one record is present.
        return answer | ({"rows": shared.n_rows} if study.mechanism.shows_labels else {})

    def _check_boxes(self, participant: Participant, message: Message, ask: Ask) -> dict[str, Any]:
        path = self.settings.folder / f"{self.name}{SUFFIXES[RECEIPT]}"
        participant.take("combine", output=path, bundles=self._fetched_bundles(participant.study, message, ask))
        return {"digest": send_file(path, _ticket(message), ask, piece_size=self.piece_size)}

    def _combine(self, participant: Participant, message: Message, ask: Ask) -> dict[str, Any]:
        study, folder = participant.study, self.settings.folder
        closing, most = folder / LIST_FILE, most_answer_bytes(study, LIST)
        fetch_file(
            LIST_FILE,
            closing,
            _ticket(message),
            ask,
            piece_size=self.piece_size,
            **_announced(message, LIST_FILE),
            most=most,
            what="the closing list",
        )
        bundles, path = self._fetched_bundles(study, message, ask), folder / f"{self.name}{SUFFIXES[SHARE]}"
        progress = _in_tenths("combined", self.tell)
        participant.take("combine", output=path, progress=progress, bundles=bundles, list=closing)
        digest = send_file(path, _ticket(message), ask, piece_size=self.piece_size)
        shutil.rmtree(bundles, ignore_errors=True)  # everybody's; whoever needs the share again has it in the vault
        return {"digest": digest}

    def _fetched_bundles(self, study: Study, message: Message, ask: Ask) -> Path:
        """Return the folder of the bundles that the server has; bundles that are here already are not fetched again."""
        folder, most = self.settings.folder / _BUNDLES, most_sum_bundle_bytes(study)
        make_folder(folder, mode=0o700, what="the site's folder")
        for name in (f"{member.name}{SUFFIX}" for member in study.participants):
            if f"{name}.size" not in message:
                continue
            path, announced = folder / name, _announced(message, name)
            if not path.exists() or hash_file(path, what="the bundle") != announced["digest"]:
                fetch_file(
                    name,
                    path,
                    _ticket(message),
                    ask,
                    piece_size=self.piece_size,
                    **announced,
                    most=most,
                    what="the bundle",
                )
        return folder

    def _fetched_anchor(self, study: Study, message: Message, ask: Ask) -> Path:
        if "anchor.size" not in message:
            raise NoAnchorError(
                "the anchor",
                reason="the dealer has not sent it to the server, and mooring.toml does not name one",
                cure="Submit the job again when the dealer's site is running, or name an anchor file in mooring.toml.",
            )
        path = self.settings.folder / f"{study.name}.anchor"
        announced, most = _announced(message, "anchor"), most_anchor_bytes(study)
        fetch_file(
            "anchor",
            path,
            _ticket(message),
            ask,
            piece_size=self.piece_size,
            **announced,
            most=most,
            what="the anchor file",
        )
        return path

    def _keep_result(self, participant: Participant, message: Message, ask: Ask) -> dict[str, Any]:
        study, vault, exchange = participant.study, participant.vault, exchange_of(participant.study)
        arriving = self.settings.folder / _ARRIVING
        make_folder(arriving, mode=0o700, what="the site's folder")
        for name, most in exchange.result_files(study).items():
            if f"{name}.size" in message:
                announced = _announced(message, name)
                fetch_file(
                    name,
                    arriving / name,
                    _ticket(message),
                    ask,
                    piece_size=self.piece_size,
                    **announced,
                    most=most,
                    what="the result",
                )
        digest = exchange.open_result(vault, study, arriving).model_digest
        make_folder(self.settings.result, mode=0o700, what="the folder of the result")
        for name in exchange.result_files(study):
            if name == exchange.required_result_file(study) or digest:
                copy_atomically(arriving / name, self.settings.result / name, what="the result")
        shutil.rmtree(arriving, ignore_errors=True)
        return {"model": digest}


@contextmanager
def _tidied(folder: Path, *others: Path) -> Iterator[None]:
    """Remove temporary files of a killed job, unless another job is running here."""
    with suppress(LockHeldError), hold_lock(folder / _LOCK, what="the site's folder"):
        for each in (folder, *others):
            clear_partial_files(each)
    with hold_lock(folder / _LOCK, what="the site's folder", wait_seconds=_CLEARING_SECONDS, shared=True):
        yield  # temporary files of this job are safe while it holds the shared lock


def _ticket(message: Message) -> str:
    ticket = message.get("ticket")
    return ticket if isinstance(ticket, str) else ""


def _announced(message: Message, name: str) -> dict[str, Any]:
    size, digest = message.get(f"{name}.size"), message.get(f"{name}.digest")
    if not isinstance(size, int) or not isinstance(digest, str):
        problem = f"The task does not announce the size and digest of the {name}."
        raise InputError("task", problem=problem, cure="Ask the analyst.")
    return {"size": size, "digest": digest}


def _in_tenths(what: str, tell: Callable[[str], None]) -> Progress:
    """Return a progress callback that writes one line per ten percent."""
    reported = [0]

    def progress(done: float, total: float, _what: str = "", /) -> None:
        tenth = int(10 * done / total) if total else 0
        if tenth > reported[0]:
            reported[0] = tenth
            tell(f"{what} {10 * tenth} %")

    return progress
