"""What the server does in a job: ask sites, take what arrives, align or add up, train, deliver. No FLARE in here.

The work folder is that of 'mooring align': any command goes on from what a job left there. A sealed anchor lies beside the
inbox, and the server holds no key that opens it. In a study of secure sums, so do sealed shares, confirmations and shares of
the total in the inbox.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mooring.atomic_io import LockHeldError, hash_file, hold_lock, make_folder, open_plain_file, write_atomically
from mooring.engines.flare.chunks import FileExchange, IncomingFile
from mooring.engines.flare.configuration import ANCHOR_TASK, COMBINE_TASK, CONFIRM_TASK, RESULT_TASK, SHARE_TASK
from mooring.engines.flare.settings import ServerSettings, opened_vault
from mooring.errors import InputError, MooringError, RefusedError
from mooring.protocol.analyst.alignment import align_bundles
from mooring.protocol.analyst.alignment_state import STATE_FILE, TRAINING_FILE
from mooring.protocol.analyst.delivery import deliver
from mooring.protocol.analyst.intake import MOST_BYTES, Intake, collect, try_verify
from mooring.protocol.analyst.sum_total import close_list
from mooring.protocol.analyst.sum_training import train_sums
from mooring.protocol.analyst.training import train
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.anchor import FIELDS, KIND, most_anchor_bytes
from mooring.protocol.messages.bundle import SUFFIX
from mooring.protocol.messages.result import bound_result_files
from mooring.protocol.messages.signed_file import read_signed_header
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.sums.answers import (
    CONFIRMATION,
    LIST_FILE,
    SHARE,
    SUFFIXES,
    most_answer_bytes,
    read_closing_list,
    read_combined_share,
    read_confirmation,
)
from mooring.protocol.messages.sums.bundle import SumBundle, most_sum_bundle_bytes
from mooring.protocol.transport.addresses import make_printable
from mooring.protocol.transport.transfer import check_parcel

INBOX, RESULTS, RECORD, LOCK = "inbox", "results", "flare.json", "flare.lock"
_COMMAND = "mooring flare"
_TOLD = ("outcome", "digest", "rows", "reissued", "model")
_SILENT = {"outcome": "no answer"}
_MISFIT = "its anchor representation does not fit the others', or cannot be aligned"
_SUBMIT_AGAIN = "What came is kept. When the others are up, submit the job again."
Told = dict[str, str | int]
Answers = dict[str, dict[str, Any]]
AskSites = Callable[[str, Mapping[str, Told], Answers], None]
"""Gives each site a task of a name, with what it is told, and fills in what each answers till its time is over."""


class JobAbortedError(MooringError):
    """The job was aborted while sites were asked."""


@dataclass(frozen=True, eq=False)
class ServerWorkflow:
    """The analyst in a job."""

    settings: ServerSettings
    study: Study
    signing_key: SigningKey = field(repr=False)
    tell: Callable[[str], None] = field(default=lambda words: None, repr=False)
    """Given words about progress, for the server's log."""
    counter: FileExchange = field(default_factory=FileExchange, repr=False)
    lock: ExitStack = field(default_factory=ExitStack, repr=False)
    answers: dict[str, Answers] = field(default_factory=dict, repr=False)
    """Of each site, what it answered to each step."""
    left_out: dict[str, str] = field(default_factory=dict, repr=False)
    """Participants without a bundle that is used, and why."""
    job: str = ""
    """FLARE's name of the job."""

    @classmethod
    def opened(cls, folder: Path, digest: object, tell: Callable[[str], None], job: str = "") -> ServerWorkflow:
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
        settings.require_learner(study)
        make_folder(settings.folder, mode=0o700, what="the work folder")
        make_folder(settings.folder / INBOX, mode=0o700, what="the work folder")
        part = cls(settings, study, key, tell, job=job)
        try:
            part.lock.enter_context(hold_lock(settings.folder / LOCK, what="the work folder"))
        except LockHeldError:
            reason = "another one is at work in the analyst's folder"
            raise RefusedError("the job", reason=reason, cure="Submit it again when that is over.") from None
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

    def answer(self, name: str, kind: str) -> Path:
        """Where a combiner's confirmation, or share of the total, lies."""
        return self.settings.folder / INBOX / f"{name}{SUFFIXES[kind]}"

    def run(self, connected: Iterable[str], ask: AskSites) -> tuple[str, ...]:
        """Do the whole job with the connected sites that are in the roster, and write down what each answered.

        Participants who were not connected, or did not do a step, are returned. `ask` raises JobAbortedError if the job is
        aborted.
        """
        sites = self.known(connected)
        self.tell(f"sites of the study that are here: {', '.join(sites) or 'none'}")
        self.record("running")
        try:
            delivered = self._run_rows(sites, ask) if self.study.sums is None else self._run_sums(sites, ask)
            for name in (name for name in sites if name not in delivered):
                self.left_out.setdefault(name, "there is no bundle of it that holds up")
            self._ask(RESULT_TASK, [name for name in sites if name in delivered], self.for_result, ask)
        except JobAbortedError:
            self.record("aborted")
        except MooringError as problem:
            self.record("failed", str(problem))
            raise
        else:
            self.record("incomplete" if self.missing else "done")
        return self.missing

    @property
    def missing(self) -> tuple[str, ...]:
        """Participants who have not done a step, were not asked for any, or were left out."""
        asked = {name: {one.get("outcome") for one in said.values()} for name, said in self.answers.items()}
        names = [member.name for member in self.study.participants]
        return tuple(name for name in names if asked.get(name) != {"done"} or name in self.left_out)

    def _run_rows(self, sites: Sequence[str], ask: AskSites) -> tuple[str, ...]:
        dealer = self.study.dealing_member.name
        if not self.anchor.exists():
            self._ask(ANCHOR_TASK, [name for name in sites if name == dealer], lambda _: self.for_dealer(), ask)
        if not self.anchor.exists():
            self.tell(f"{dealer} has not sent the anchor: only sites that have one of their own can share")
        self._ask(SHARE_TASK, sites, self.for_participant, ask)
        return self.analysed()

    def _run_sums(self, sites: Sequence[str], ask: AskSites) -> tuple[str, ...]:
        """Collect and confirm bundles, close the list, collect shares of its total, train; everybody gets the model.

        A study is closed once: afterwards nobody is asked to share, which would spend a guarantee for nothing.
        """
        study, folder, inbox = self.study, self.settings.folder, self.settings.folder / INBOX
        combiners = [name for name in study.sum_scheme.combiners if name in sites]
        is_closed = (folder / LIST_FILE).exists()
        if not is_closed:
            self._ask(SHARE_TASK, sites, self.for_participant, ask)
        intake = self._collect(0 if is_closed else max(self.settings.least_sites, study.sum_scheme.quorum))
        if not is_closed:
            self._confirm(combiners, intake.sum_bundles, ask)
            closing = close_list(
                study, intake.sum_bundles, folder, self.signing_key, confirmations=inbox, command=_COMMAND
            )
            self.left_out.update(closing.left_out)
            for name, reason in closing.left_out.items():
                self.tell(f"left out the bundle of {name}: {reason}")
            for name in closing.doubted:
                self.tell(f"the confirmation of {name} contradicts the others'")
        closed = read_closing_list(folder / LIST_FILE, study)
        listed = set(closed.digests.values())
        bundles = [one for one in intake.sum_bundles if one.digest in listed]
        self.tell(f"the list is closed, with {len(listed)} bundles")
        missing = [name for name in combiners if not self.answer(name, SHARE).exists()]
        self._ask_combiners(COMBINE_TASK, missing, SHARE, {LIST_FILE: folder / LIST_FILE, **_by_sender(bundles)}, ask)
        trained = train_sums(study, folder, inbox, learner=self.settings.learner, command=_COMMAND)
        for name in trained.wrong:
            self.tell(f"left out the share of {name}: it does not fit the others'")
        for remark in trained.remarks:
            self.tell(remark)
        self.tell(f"trained {trained.learner} on sums of {len(trained.contributors)} participants")
        return deliver(study, folder, folder / RESULTS, self.signing_key, command=_COMMAND).delivered

    def _confirm(self, combiners: Sequence[str], bundles: Sequence[SumBundle], ask: AskSites) -> None:
        """Have combiners confirm the bundles; without a threshold of them, closing would use up the study's one list."""
        for name in self.study.sum_scheme.combiners:
            self.answer(name, CONFIRMATION).unlink(missing_ok=True)  # of an earlier job, about fewer bundles
        self._ask_combiners(CONFIRM_TASK, combiners, CONFIRMATION, _by_sender(bundles), ask)
        n_confirmed = sum(self.answer(name, CONFIRMATION).exists() for name in combiners)
        if n_confirmed < (least := self.study.sum_scheme.threshold.threshold):
            raise InputError(
                "combiners that confirm", expected=f"{least} or more", got=str(n_confirmed), cure=_SUBMIT_AGAIN
            )

    def _ask_combiners(
        self, task: str, names: Sequence[str], kind: str, files: Mapping[str, Path], ask: AskSites
    ) -> None:
        """Hand files to combiners, and take their confirmations or shares."""
        described, most = _described(files), most_answer_bytes(self.study, kind)

        def told(name: str) -> Told:
            arrival = IncomingFile(self.answer(name, kind), most, lambda path: self._accept_answer(name, kind, path))
            return self._hand_ticket(files, arrival) | described

        self._ask(task, names, told, ask)

    def _ask(self, task: str, names: Iterable[str], told_to: Callable[[str], Told], ask: AskSites) -> None:
        """Ask sites, and keep what they answer; one that did not answer before is not waited for again."""
        told = {name: told_to(name) for name in names if _SILENT not in self.answers.get(name, {}).values()}
        found: Answers = dict.fromkeys(told, _SILENT)
        try:
            ask(task, told, found)
        finally:
            for name, words in told.items():
                self.counter.close(str(words["ticket"]))
                self.answers.setdefault(name, {})[task.removeprefix("mooring.")] = found[name]

    def for_dealer(self) -> Told:
        """What the dealer's task says."""
        arrival = IncomingFile(self.anchor, most_anchor_bytes(self.study), self._accept_anchor)
        return self._hand_ticket({}, arrival)

    def for_participant(self, name: str) -> Told:
        """What a participant's task says: a ticket to send its bundle with, and to fetch the anchor with.

        Without an anchor here, a site that has one of its own can share all the same; the others say that they have none.
        """
        most = MOST_BYTES if self.study.sums is None else most_sum_bundle_bytes(self.study)
        arrival = IncomingFile(self.bundle(name), most, lambda path: self._accept_bundle(name, path))
        files = {"anchor": self.anchor} if self.anchor.exists() else {}
        return self._hand_ticket(files, arrival) | _described(files)

    def for_result(self, name: str) -> Told:
        """What the task says by which a participant fetches its result."""
        place = self.settings.folder / RESULTS / name
        files = {file: place / file for file in bound_result_files(self.study) if (place / file).is_file()}
        return self._hand_ticket(files) | _described(files)

    def _hand_ticket(self, files: Mapping[str, Path], arrival: IncomingFile | None = None) -> Told:
        """The study, and a ticket for files that may be read and for one that may come."""
        return {"study": self.study.digest, "ticket": self.counter.ticket(arrival=arrival, files=files)}

    def analysed(self) -> tuple[str, ...]:
        """Check, align, train and write results of everything that has arrived, now or before; who gets one.

        With `late` in the settings, and an alignment from before, those who are in it keep their maps, and the model stays.
        """
        study, folder, settings = self.study, self.settings.folder, self.settings
        intake = self._collect(settings.least_sites)
        late = settings.late and (folder / STATE_FILE).is_file()
        aligned = align_bundles(study, intake.row_bundles, folder, mode="late" if late else "again", command=_COMMAND)
        self.left_out.update(dict.fromkeys(aligned.set_aside, _MISFIT))
        if late:
            self.tell(f"admitted late: {', '.join(aligned.newcomers) or 'nobody'}")
        self.tell(
            f"aligned {len(aligned.space.names)} participants; set aside: {', '.join(aligned.set_aside) or 'none'}"
        )
        if study.label.kind != "none" and not (late and (folder / TRAINING_FILE).is_file()):
            trained = train(study, folder, learner=settings.learner, seed=settings.seed, command=_COMMAND)
            self.tell(f"trained {trained.learner} on {trained.rows_used} rows")
        return deliver(study, folder, folder / RESULTS, self.signing_key, command=_COMMAND).delivered

    def _collect(self, least: int) -> Intake:
        intake = collect(self.study, self.settings.folder / INBOX, self.settings.folder, command=_COMMAND)
        for entry in intake.set_aside:
            self.tell(f"set aside {entry.file}: {entry.reason}")
        self.tell(f"bundles that hold up: {len(intake.bundles)}; missing: {', '.join(intake.missing) or 'none'}")
        if (found := len(intake.bundles)) < least:
            raise InputError("bundles", expected=f"{least} or more", got=str(found), cure=_SUBMIT_AGAIN)
        return intake

    def record(self, outcome: str, reason: str | None = None) -> None:
        """Write down how far the job is, and what each site answered."""
        record = {
            "study": self.study.digest,
            "job": self.job,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "outcome": outcome,
            "reason": reason,
            "missing": () if outcome == "running" else self.missing,
            "left_out": self.left_out,
            "sites": {member.name: self.answers.get(member.name, {}) for member in self.study.participants},
        }
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
        found = try_verify(path, self.study)
        reason = found if isinstance(found, str) else f"it is not {name}'s, of this study"
        if isinstance(found, str) or found.member.name != name:
            raise RefusedError("the bundle", reason=reason, cure="Ask the participant.")

    def _accept_answer(self, name: str, kind: str, path: Path) -> None:
        read = read_confirmation if kind == CONFIRMATION else read_combined_share
        if read(path, self.study).member.name != name:
            raise RefusedError(f"the {kind}", reason=f"it is not {name}'s, of this study", cure="Ask the participant.")


def answer_of(reply: Mapping[str, Any]) -> Told:
    """What a site may say of itself, and no more: it goes into a record that people read."""
    told: Told = {}
    for name in _TOLD:
        value = reply.get(name)
        if isinstance(value, str):
            told[name] = make_printable(value)
        elif isinstance(value, int):
            told[name] = value
    return told


def _by_sender(bundles: Iterable[SumBundle]) -> dict[str, Path]:
    return {f"{one.member.name}{SUFFIX}": one.path for one in bundles}


def _described(files: Mapping[str, Path]) -> Told:
    told: Told = {}
    for name, path in files.items():
        told[f"{name}.size"] = path.stat().st_size
        told[f"{name}.digest"] = hash_file(path, what="the file")
    return told
