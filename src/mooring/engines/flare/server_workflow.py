"""The steps of the server in a job: ask sites, accept files, align or add up, train and deliver.

This module does not import FLARE. The work folder is that of 'mooring align', so any command can continue from where a
job stopped. It also holds the sealed anchor, which the server has no key to open. In a study of secure sums the inbox
holds sealed shares, receipts and shares of the total.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from mooring.atomic_io import LockHeldError, hash_file, hold_lock, make_folder, open_plain_file, write_atomically
from mooring.engines.flare.chunks import FileExchange, IncomingFile
from mooring.engines.flare.configuration import ANCHOR_TASK, COMBINE_TASK, RECEIPT_TASK, RESULT_TASK, SHARE_TASK
from mooring.engines.flare.settings import ServerSettings, opened_vault
from mooring.errors import InputError, MooringError, RefusedError
from mooring.protocol.analyst.delivery import deliver
from mooring.protocol.analyst.intake import Intake, collect, try_verify
from mooring.protocol.analyst.trained_model import TRAINING_FILE
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.exchange import Exchange
from mooring.protocol.exchange_types import AlignMode, GatherOptions, TrainOptions
from mooring.protocol.messages.bundle import SUFFIX
from mooring.protocol.messages.signed_file import read_signed_header
from mooring.protocol.messages.study import Study
from mooring.protocol.registry import exchange_of
from mooring.protocol.rotation.anchor import FIELDS, KIND, most_anchor_bytes
from mooring.protocol.rotation.scheme import dealing_member
from mooring.protocol.sums.answers import (
    LIST_FILE,
    RECEIPT,
    SHARE,
    SUFFIXES,
    most_answer_bytes,
    read_closing_list,
    read_combined_share,
    read_receipt,
)
from mooring.protocol.sums.bundle import SumBundle, write_extract
from mooring.protocol.sums.scheme import sum_scheme
from mooring.protocol.transport.addresses import make_printable
from mooring.protocol.transport.transfer import check_parcel
from mooring.serialization import count_noun

INBOX, RESULTS, RECORD, LOCK = "inbox", "results", "flare.json", "flare.lock"
_PARTS = ".parts"  # what single combiners get of bundles, while they are asked
_COMMAND = "mooring flare"
_ANSWER_FIELDS = ("outcome", "digest", "rows", "reissued", "model")
_SILENT = {"outcome": "no answer"}
_SUBMIT_AGAIN = "Files that arrived are kept. Submit the job again when the other sites are running."
TaskMessage = dict[str, str | int]
Answers = dict[str, dict[str, Any]]
AskSites = Callable[[str, Mapping[str, TaskMessage], Answers], None]
"""Gives each site the named task with its message, and adds the sites' answers until they time out."""


class JobAbortedError(MooringError):
    """Raised when the job is aborted while sites are asked."""


@dataclass(frozen=True, eq=False)
class ServerWorkflow:
    """The analyst in a job."""

    settings: ServerSettings
    study: Study
    signing_key: SigningKey = field(repr=False)
    tell: Callable[[str], None] = field(default=lambda words: None, repr=False)
    """Writes a line to the server's log."""
    counter: FileExchange = field(default_factory=FileExchange, repr=False)
    lock: ExitStack = field(default_factory=ExitStack, repr=False)
    answers: dict[str, Answers] = field(default_factory=dict, repr=False)
    """The answers of each site, by step."""
    left_out: dict[str, str] = field(default_factory=dict, repr=False)
    """Reasons by participant, for participants whose bundle is missing or not used."""
    job: str = ""
    """FLARE's identifier of the job."""

    @classmethod
    def opened(cls, folder: Path, digest: object, tell: Callable[[str], None], job: str = "") -> ServerWorkflow:
        """Read the settings in a kit's local folder, and lock the work folder until `close`.

        A job for a different study is refused, and so is a job while another one runs in the same folder.
        """
        settings = ServerSettings.read(folder)
        study = Study.read(settings.study)
        study.require_roster()
        study.require_same({"study": digest}, what="the job")
        key = opened_vault(settings.vault).signing_key
        if study.analyst is None or key.public != study.analyst.signing_key:
            raise RefusedError(
                "the job",
                reason="the server's vault does not belong to the study's analyst",
                cure="In the server's mooring.toml, name the vault that the analyst joined with.",
            )
        settings.require_learner(study)
        make_folder(settings.folder, mode=0o700, what="the work folder")
        make_folder(settings.folder / INBOX, mode=0o700, what="the work folder")
        part = cls(settings, study, key, tell, job=job)
        try:
            part.lock.enter_context(hold_lock(settings.folder / LOCK, what="the work folder"))
        except LockHeldError:
            reason = "another job is running in the analyst's folder"
            raise RefusedError("the job", reason=reason, cure="Submit it again when that job has ended.") from None
        return part

    def close(self) -> None:
        """Release the work folder. A process that dies releases it too."""
        self.lock.close()

    @property
    def exchange(self) -> Exchange:
        """The exchange of the study's mechanism."""
        return exchange_of(self.study)

    def _has_step(self, name: str) -> bool:
        """Whether the study's mechanism has a step of its own with this name."""
        return any(step.name == name for step in self.exchange.steps)

    @property
    def anchor(self) -> Path:
        """The path of the sealed anchor."""
        return self.settings.folder / f"{self.study.name}.anchor"

    def bundle(self, name: str) -> Path:
        """Return the path of a participant's bundle."""
        return self.settings.folder / INBOX / f"{name}{SUFFIX}"

    def answer(self, name: str, kind: str) -> Path:
        """Return the path of a combiner's receipt or share of the total."""
        return self.settings.folder / INBOX / f"{name}{SUFFIXES[kind]}"

    def run(self, connected: Iterable[str], ask: AskSites) -> tuple[str, ...]:
        """Run the whole job with the connected sites in the roster, and record their answers.

        Returns the participants who were not connected or did not complete a step. `ask` raises a `JobAbortedError` if the
        job is aborted.
        """
        sites = self.known(connected)
        self.tell(f"connected sites of the study: {', '.join(sites) or 'none'}")
        self.record("running")
        try:
            delivered = self._run_sums(sites, ask) if self._has_step("combine") else self._run_rows(sites, ask)
            for name in (name for name in self._contributors(sites) if name not in delivered):
                self.left_out.setdefault(name, "it has no valid bundle")
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
        """Participants who did not complete a step, were not asked, or were left out, and helpers whose share is missing."""
        outcomes = {name: {answer.get("outcome") for answer in steps.values()} for name, steps in self.answers.items()}
        names = [member.name for member in self.study.participants]
        missing = [name for name in names if outcomes.get(name) != {"done"} or name in self.left_out]
        helpers = [helper.name for helper in self.study.helpers if not self.answer(helper.name, SHARE).exists()]
        return *missing, *helpers

    def _run_rows(self, sites: Sequence[str], ask: AskSites) -> tuple[str, ...]:
        if self._has_step("deal") and not self.anchor.exists():
            dealer = dealing_member(self.study).name
            self._ask(ANCHOR_TASK, [name for name in sites if name == dealer], lambda _: self.for_dealer(), ask)
            if not self.anchor.exists():
                self.tell(f"{dealer} has not sent the anchor: only sites that have one of their own can share")
        self._ask(SHARE_TASK, sites, self.for_participant, ask)
        return self.analysed()

    def _run_sums(self, sites: Sequence[str], ask: AskSites) -> tuple[str, ...]:
        """Collect bundles, have them tested, close the list, collect shares of the total, train, and deliver the model.

        A list is closed once. After that nobody is asked to share, which would spend privacy budget for nothing.
        """
        study, folder, inbox = self.study, self.settings.folder, self.settings.folder / INBOX
        combiners = [name for name in sum_scheme(study).combiners if name in sites]
        is_closed = (folder / LIST_FILE).exists()
        if not is_closed:
            self._ask(SHARE_TASK, self._contributors(sites), self.for_participant, ask)
        intake = self._collect(0 if is_closed else max(self.settings.least_sites, sum_scheme(study).quorum))
        if not is_closed:
            self._collect_receipts(combiners, cast(Sequence[SumBundle], intake.bundles), ask)
            self._gather(intake, GatherOptions(receipts=inbox, signing_key=self.signing_key, command=_COMMAND))
        closed = read_closing_list(folder / LIST_FILE, study)
        listed = set(closed.digests.values())
        bundles = [bundle for bundle in cast(Sequence[SumBundle], intake.bundles) if bundle.header_digest in listed]
        missing = [name for name in combiners if not self.answer(name, SHARE).exists()]
        self._ask_combiners(COMBINE_TASK, missing, SHARE, bundles, ask)
        self._train(shares=inbox)
        return self._deliver()

    def _collect_receipts(self, combiners: Sequence[str], bundles: Sequence[SumBundle], ask: AskSites) -> None:
        """Have combiners test the bundles. Closing the study's only list needs a threshold of receipts."""
        for name in sum_scheme(self.study).combiners:
            self.answer(name, RECEIPT).unlink(missing_ok=True)  # an earlier job's receipt covers fewer bundles
        self._ask_combiners(RECEIPT_TASK, combiners, RECEIPT, bundles, ask)
        n_receipts = sum(self.answer(name, RECEIPT).exists() for name in combiners)
        if n_receipts < (least := sum_scheme(self.study).threshold.threshold):
            problem = f"{count_noun(n_receipts, 'receipt')} came, and {least} are needed."
            raise InputError("receipts", problem=problem, cure=_SUBMIT_AGAIN)

    def _ask_combiners(
        self, task: str, names: Sequence[str], kind: str, bundles: Sequence[SumBundle], ask: AskSites
    ) -> None:
        """Give each combiner its part of the bundles, and accept receipts or, with the closing list, shares."""
        most, folder = most_answer_bytes(self.study, kind), self.settings.folder
        shutil.rmtree(parts := folder / _PARTS, ignore_errors=True)

        def make_message(name: str) -> TaskMessage:
            files = {LIST_FILE: folder / LIST_FILE} if kind == SHARE else {}
            point = sum_scheme(self.study).combiners.index(name) + 1
            make_folder(parts, mode=0o700, what="the work folder")
            for bundle in bundles:
                files[f"{bundle.member.name}{SUFFIX}"] = part = parts / f"{bundle.member.name}-{point}"
                write_extract(bundle, self.study, point, part)
            arrival = IncomingFile(
                self.answer(name, kind),
                most,
                lambda path: self._accept_answer(name, kind, path),
                self.counter.piece_size,
            )
            return self._hand_ticket(files, arrival) | _described(files)

        try:
            self._ask(task, names, make_message, ask)
        finally:
            shutil.rmtree(parts, ignore_errors=True)

    def _ask(self, task: str, names: Iterable[str], make_message: Callable[[str], TaskMessage], ask: AskSites) -> None:
        """Ask sites and keep their answers. A site that did not answer an earlier step is not asked again."""
        messages = {name: make_message(name) for name in names if _SILENT not in self.answers.get(name, {}).values()}
        answers: Answers = dict.fromkeys(messages, _SILENT)
        try:
            ask(task, messages, answers)
        finally:
            for name, message in messages.items():
                self.counter.close(str(message["ticket"]))
                self.answers.setdefault(name, {})[task.removeprefix("mooring.")] = answers[name]

    def for_dealer(self) -> TaskMessage:
        """Return the message of the dealer's task."""
        arrival = IncomingFile(self.anchor, most_anchor_bytes(self.study), self._accept_anchor, self.counter.piece_size)
        return self._hand_ticket({}, arrival)

    def for_participant(self, name: str) -> TaskMessage:
        """Return the message of a participant's task, with a ticket to fetch the anchor and to send its bundle.

        If the server has no anchor, sites that already have it can still share; the others report that they have none.
        """
        most = self.exchange.most_bundle_bytes(self.study)
        arrival = IncomingFile(
            self.bundle(name), most, lambda path: self._accept_bundle(name, path), self.counter.piece_size
        )
        files = {"anchor": self.anchor} if self.anchor.exists() else {}
        return self._hand_ticket(files, arrival) | _described(files)

    def for_result(self, name: str) -> TaskMessage:
        """Return the message of the task by which a participant fetches its result."""
        place = self.settings.folder / RESULTS / name
        names = self.exchange.result_files(self.study)
        files = {file: place / file for file in names if (place / file).is_file()}
        return self._hand_ticket(files) | _described(files)

    def _hand_ticket(self, files: Mapping[str, Path], arrival: IncomingFile | None = None) -> TaskMessage:
        """Return a message with the study and a ticket for files that may be read and for one that may be sent."""
        return {"study": self.study.digest, "ticket": self.counter.ticket(arrival=arrival, files=files)}

    def analysed(self) -> tuple[str, ...]:
        """Check, align, train and write results from all bundles that have arrived, and return who gets a result.

        With `late` in the settings and an earlier alignment, its participants keep their maps, and the model does not
        change.
        """
        folder, settings = self.settings.folder, self.settings
        intake = self._collect(settings.least_sites)
        late = settings.late and (folder / f"{self.exchange.gather_record}.json").is_file()
        mode: AlignMode = "late" if late else "again"
        self._gather(intake, GatherOptions(mode, signing_key=self.signing_key, command=_COMMAND))
        if self.study.label.kind != "none" and not (late and (folder / TRAINING_FILE).is_file()):
            self._train()
        return self._deliver()

    def _gather(self, intake: Intake, options: GatherOptions) -> None:
        gathered = self.exchange.gather(self.study, intake.bundles, self.settings.folder, options)
        self.left_out.update(gathered.list_left_out())
        for sentence in (*gathered.describe(), *(finding.words for finding in gathered.list_findings())):
            self.tell(sentence)

    def _train(self, shares: Path | None = None) -> None:
        options = TrainOptions(self.settings.learner, self.settings.seed, shares, _COMMAND)
        trained = self.exchange.train(self.study, self.settings.folder, options)
        for sentence in (str(trained), *trained.state_warnings()):
            self.tell(sentence)

    def _deliver(self) -> tuple[str, ...]:
        folder = self.settings.folder
        return deliver(self.study, folder, folder / RESULTS, self.signing_key, command=_COMMAND).delivered

    def _collect(self, least: int) -> Intake:
        intake = collect(self.study, self.settings.folder / INBOX, self.settings.folder, command=_COMMAND)
        for entry in intake.set_aside:
            self.tell(f"set aside {entry.file}: {entry.reason}")
        self.tell(f"valid bundles: {len(intake.bundles)}; missing: {', '.join(intake.missing) or 'none'}")
        if (n_bundles := len(intake.bundles)) < least:
            problem = (
                f"{count_noun(n_bundles, 'valid bundle has', 'valid bundles have')} arrived, and {least} are needed."
            )
            raise InputError("bundles", problem=problem, cure=_SUBMIT_AGAIN)
        return intake

    def record(self, outcome: str, reason: str | None = None) -> None:
        """Record the state of the job and the answers of each site."""
        record = {
            "study": self.study.digest,
            "job": self.job,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "outcome": outcome,
            "reason": reason,
            "missing": () if outcome == "running" else self.missing,
            "left_out": self.left_out,
            "sites": {name: self.answers.get(name, {}) for name in self._list_sites()},
        }
        text = json.dumps(record, indent=2, ensure_ascii=False).encode()
        write_atomically(self.settings.folder / RECORD, text, what="the record")

    def known(self, sites: Iterable[str]) -> list[str]:
        """Return the connected sites that take part in the study, in the roster's order."""
        here = set(sites)
        return [name for name in self._list_sites() if name in here]

    def _list_sites(self) -> list[str]:
        return [member.name for member in (*self.study.participants, *self.study.helpers)]

    def _contributors(self, sites: Sequence[str]) -> list[str]:
        """The sites that contribute rows, which helpers do not."""
        return [name for name in sites if name not in {helper.name for helper in self.study.helpers}]

    def _accept_anchor(self, path: Path) -> None:
        with open_plain_file(path, what="the anchor file") as file:
            _, fields = read_signed_header(file, kind=KIND, fields=FIELDS, what="the anchor file")
            check_parcel(path, file)  # an accepted file is kept, and damaged arrays would stop everybody
        if fields["signer"] != dealing_member(self.study).signing_key:
            raise RefusedError("the anchor file", reason="the dealer did not sign it", cure="Ask the dealer.")
        self.study.require_same(fields, what="the anchor file")

    def _accept_bundle(self, name: str, path: Path) -> None:
        """Refuse a bundle that is damaged or not from this participant. An accepted bundle is kept, so this comes first."""
        verified = try_verify(path, self.study)
        reason = verified if isinstance(verified, str) else f"{name} did not sign it for this study"
        if isinstance(verified, str) or verified.member.name != name:
            raise RefusedError("the bundle", reason=reason, cure="Ask the participant.")

    def _accept_answer(self, name: str, kind: str, path: Path) -> None:
        read = read_receipt if kind == RECEIPT else read_combined_share
        if read(path, self.study).member.name != name:
            reason = f"{name} did not sign it for this study"
            raise RefusedError(f"the {kind}", reason=reason, cure="Ask the participant.")


def answer_of(reply: Mapping[str, Any]) -> TaskMessage:
    """Return the known entries of a site's reply, safe to write into a record that people read."""
    answer: TaskMessage = {}
    for name in _ANSWER_FIELDS:
        value = reply.get(name)
        if isinstance(value, str):
            answer[name] = make_printable(value)
        elif isinstance(value, int):
            answer[name] = value
    return answer


def _described(files: Mapping[str, Path]) -> TaskMessage:
    entries: TaskMessage = {}
    for name, path in files.items():
        entries[f"{name}.size"] = path.stat().st_size
        entries[f"{name}.digest"] = hash_file(path, what="the file")
    return entries
