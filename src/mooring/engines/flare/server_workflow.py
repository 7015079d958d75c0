"""What the server does in a job: take what arrives, align, train, deliver. No FLARE in here.

The work folder is that of 'mooring align': any command goes on from what a job left there. A sealed anchor lies beside the
inbox, and the server holds no key that opens it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mooring.atomic_io import LockHeldError, hash_file, hold_lock, make_folder, open_plain_file, write_atomically
from mooring.engines.flare.chunks import FileExchange, IncomingFile
from mooring.engines.flare.settings import ServerSettings, opened_vault
from mooring.errors import InputError, RefusedError
from mooring.protocol.analyst.alignment import align_bundles
from mooring.protocol.analyst.alignment_state import STATE_FILE
from mooring.protocol.analyst.delivery import deliver
from mooring.protocol.analyst.intake import MOST_BYTES, collect
from mooring.protocol.analyst.training import TRAINING_FILE, train
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.anchor import FIELDS, KIND, most_anchor_bytes
from mooring.protocol.messages.bundle import SUFFIX, verify_bundle
from mooring.protocol.messages.result import MAP_FILE, MODEL_FILE
from mooring.protocol.messages.signed_file import read_signed_header
from mooring.protocol.messages.study import Study
from mooring.protocol.transport.addresses import make_printable
from mooring.protocol.transport.transfer import check_parcel

INBOX, RESULTS, RECORD, LOCK = "inbox", "results", "flare.json", "flare.lock"
_COMMAND = "mooring flare"
_TOLD = ("outcome", "digest", "rows", "reissued", "model")


@dataclass(frozen=True, eq=False)
class ServerWorkflow:
    """The analyst in a job.

    Parameters
    ----------
    settings : ServerSettings
        The server's own.
    study : Study
    signing_key : SigningKey
        The analyst's.
    tell : callable
        Given words about progress, for the server's log.
    """

    settings: ServerSettings
    study: Study
    signing_key: SigningKey = field(repr=False)
    tell: Callable[[str], None] = field(default=lambda words: None, repr=False)
    counter: FileExchange = field(default_factory=FileExchange, repr=False)
    lock: ExitStack = field(default_factory=ExitStack, repr=False)

    @classmethod
    def opened(cls, folder: Path, digest: object, tell: Callable[[str], None]) -> ServerWorkflow:
        """Read the settings in a kit's local folder, and hold the work folder till `close`.

        A job of another study is refused, and so is one while another is at work in the same folder.
        """
        settings = ServerSettings.read(folder)
        study = Study.read(settings.study)
        study.require_roster()
        study.require_same({"study": digest}, what="the job")
        key = opened_vault(settings.vault).signing_key
        if study.analyst is None or key.public != study.analyst.signing_key:
            raise RefusedError(
                "the job",
                reason="the vault at the server is not that of the study's analyst, whose results alone count",
                cure="Name the vault that the analyst joined with in the server's mooring.toml.",
            )
        make_folder(settings.folder, mode=0o700, what="the work folder")
        make_folder(settings.folder / INBOX, mode=0o700, what="the work folder")
        part = cls(settings, study, key, tell)
        try:
            part.lock.enter_context(hold_lock(settings.folder / LOCK, what="the work folder"))
        except LockHeldError:
            raise RefusedError(
                "the job",
                reason="another one is at work in the analyst's folder",
                cure="Submit it again when that is over.",
            ) from None
        return part

    def close(self) -> None:
        """Let go of the work folder; a process that dies does, too."""
        self.lock.close()

    @property
    def anchor(self) -> Path:
        """Where the sealed anchor lies."""
        return self.settings.folder / f"{self.study.name}.anchor"

    def bundle(self, name: str) -> Path:
        """Where a participant's bundle lies."""
        return self.settings.folder / INBOX / f"{name}{SUFFIX}"

    def for_dealer(self) -> dict[str, str | int]:
        """What the dealer's task says."""
        arrival = IncomingFile(self.anchor, most_anchor_bytes(self.study), self._accept_anchor)
        return {"study": self.study.digest, "ticket": self.counter.ticket(arrival=arrival)}

    def for_participant(self, name: str) -> dict[str, str | int]:
        """What a participant's task says: a ticket to send its bundle with, and to fetch the anchor with.

        Without an anchor here, a site that has one of its own can share all the same; the others say that they have none.
        """
        arrival = IncomingFile(self.bundle(name), MOST_BYTES, lambda path: self._accept_bundle(name, path))
        files = {"anchor": self.anchor} if self.anchor.exists() else {}
        ticket = self.counter.ticket(arrival=arrival, files=files)
        return {"study": self.study.digest, "ticket": ticket, **_described(files)}

    def for_result(self, name: str) -> dict[str, str | int]:
        """What the task says by which a participant fetches its result."""
        place = self.settings.folder / RESULTS / name
        files = {file: place / file for file in (MAP_FILE, MODEL_FILE) if (place / file).is_file()}
        return {"study": self.study.digest, "ticket": self.counter.ticket(files=files), **_described(files)}

    def analysed(self) -> tuple[str, ...]:
        """Check, align, train and write results of everything that has arrived, now or before; who gets one.

        With `late` in the settings, and an alignment from before, those who are in it keep their maps, and the model stays.
        """
        study, folder, settings = self.study, self.settings.folder, self.settings
        intake = collect(study, folder / INBOX, folder, command=_COMMAND)
        for entry in intake.set_aside:
            self.tell(f"set aside {entry.file}: {entry.reason}")
        self.tell(f"{len(intake.bundles)} bundles hold up; missing: {', '.join(intake.missing) or 'none'}")
        if len(intake.bundles) < settings.least_sites:
            raise InputError(
                "bundles",
                expected=f"{settings.least_sites} or more",
                got=str(len(intake.bundles)),
                cure="What came is kept. When the others are up, submit the job again.",
            )
        late = settings.late and (folder / STATE_FILE).is_file()
        aligned = align_bundles(study, intake.row_bundles, folder, mode="late" if late else "again", command=_COMMAND)
        if late:
            self.tell(f"admitted late: {', '.join(aligned.newcomers) or 'nobody'}")
        self.tell(
            f"aligned {len(aligned.space.names)} participants; set aside: {', '.join(aligned.set_aside) or 'none'}"
        )
        if study.label.kind != "none" and not (late and (folder / TRAINING_FILE).is_file()):
            trained = train(study, folder, learner=settings.learner, seed=settings.seed, command=_COMMAND)
            self.tell(f"trained {trained.learner} on {trained.rows_used} rows")
        return deliver(study, folder, folder / RESULTS, self.signing_key, command=_COMMAND).delivered

    def record(self, sites: Mapping[str, Mapping[str, Any]], outcome: str) -> None:
        """Write down what each site answered."""
        record = {"study": self.study.digest, "outcome": outcome, "sites": {name: dict(sites[name]) for name in sites}}
        text = json.dumps(record, indent=2, ensure_ascii=False).encode()
        write_atomically(self.settings.folder / RECORD, text, what="the record")

    def known(self, sites: Iterable[str]) -> list[str]:
        """Those of the connected sites that take part in the study, in the roster's order."""
        here = set(sites)
        return [member.name for member in self.study.participants if member.name in here]

    def _accept_anchor(self, path: Path) -> None:
        with open_plain_file(path, what="the anchor file") as file:
            _, fields = read_signed_header(file, kind=KIND, fields=FIELDS, what="the anchor file")
            check_parcel(path, file)  # what is taken stays: one with damaged arrays would shut everybody out
        if fields["signer"] != self.study.dealing_member.signing_key:
            raise RefusedError("the anchor file", reason="it is not the dealer's", cure="Ask the dealer.")
        self.study.require_same(fields, what="the anchor file")

    def _accept_bundle(self, name: str, path: Path) -> None:
        """Whose it is, and whole: what is taken stays, and a damaged one would shut out the one that it should be."""
        if verify_bundle(path, self.study).member.name != name:
            raise RefusedError("the bundle", reason=f"it is not {name}'s, of this study", cure="Ask the participant.")


def answer_of(reply: Mapping[str, Any]) -> dict[str, str | int]:
    """What a site may say of itself, and no more: it goes into a record that people read."""
    told: dict[str, str | int] = {}
    for name in _TOLD:
        value = reply.get(name)
        if isinstance(value, str):
            told[name] = make_printable(value)
        elif isinstance(value, int):
            told[name] = value
    return told


def _described(files: Mapping[str, Path]) -> dict[str, str | int]:
    told: dict[str, str | int] = {}
    for name, path in files.items():
        told[f"{name}.size"] = path.stat().st_size
        told[f"{name}.digest"] = hash_file(path, what="the file")
    return told
