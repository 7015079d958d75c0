"""A site's part of a FLARE job: it runs the site's steps, and exchanges files through the server's place.

This module does not import FLARE. Study, vault, table and consent come from the site's own settings. The task carries only
the study's digest and a ticket for the place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from mooring.atomic_io import clear_partial_files, copy_atomically, hold_lock
from mooring.engines.flare.chunks import PIECE_SIZE, SUBMIT_AGAIN, Ask, Message
from mooring.engines.flare.place import SitePlace
from mooring.engines.flare.settings import COMMAND, SiteSettings, Tell, open_workspace, report_event
from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.driver import Driver, Given
from mooring.protocol.participant.membership import find_member
from mooring.protocol.registry import exchange_of
from mooring.typing import Progress

_LOCK = ".flare.lock"
_LOCK_SECONDS = 60.0  # for a job that is about to end
_MOST_AWAY = 3


class AbsentMembersError(StorageError):
    """Raised when a site needs files of members who are absent from the job."""


@dataclass(eq=False)
class ClientWorkflow:
    """One participant or helper in a job."""

    settings: SiteSettings
    driver: Driver
    place: SitePlace
    _n_away: int = 0
    """How often in succession the server could not be reached."""

    @classmethod
    def opened(
        cls,
        settings: SiteSettings,
        name: str,
        digest: str,
        message: Message,
        ask: Ask,
        tell: Tell = lambda words: None,
        *,
        piece_size: int = PIECE_SIZE,
    ) -> ClientWorkflow:
        """Return the run of the site that FLARE names `name`, in a job for the study with this digest.

        The name must be that in the roster, and the task must be for the same study.
        """
        workspace = open_workspace(settings)
        study = workspace.study
        study.require_roster()
        for stated in (digest, message.get("study")):
            study.require_same({"study": stated}, what="the job")
        member = find_member(workspace.vault, study)
        if member.name != name:
            raise InputError(
                "name of the site",
                expected=f"{member.name!r}, as in the study's roster",
                got=repr(name),
                cure="Provision FLARE with the roster's names, or use the vault of this site.",
            )
        rows = {"data": settings.data, "ignore": settings.ignore, "labels": settings.labels}
        if settings.data is None and member in study.participants:
            problem = "The settings of this site name no table to share."
            raise InputError("data", problem=problem, cure="Write them again with 'mooring flare site --data TABLE'.")
        if settings.anchor is not None:
            copy_atomically(settings.anchor, settings.folder / f"{study.name}.anchor", what="the anchor file")
        ticket = message.get("ticket")
        place = SitePlace(
            study.digest,
            ticket if isinstance(ticket, str) else "",
            ask,
            _in_tenths("sent", tell),
            piece_size=piece_size,
        )
        driver = Driver(
            workspace,
            place,
            Given({"share": rows}, share="yes"),
            tell=lambda event: report_event(event, tell),
            progress=lambda title: nullcontext(_in_tenths(title, tell)),
            command=COMMAND,
        )
        return cls(settings, driver, place)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Wait for an earlier job of this site to end, and keep later ones away while the block runs."""
        folder = self.settings.folder
        with hold_lock(folder / _LOCK, what="the site's folder", wait_seconds=_LOCK_SECONDS), self.driver.lock():
            for each in (folder, folder / "inbox", self.settings.result):
                clear_partial_files(each)
            self.driver.post.journal.agree(self.driver.workspace.study.digest)
            yield

    def advance(self) -> bool:
        """Do what can be done now, and return whether the job is over. The lock must be held."""
        turn = self.driver.advance()
        self._n_away = self._n_away + 1 if turn.away else 0
        if self._n_away >= _MOST_AWAY:
            raise StorageError("the server", reason=turn.away, cure="Submit the job again when it is running.")
        if turn.away or self.place.is_over:
            return not turn.away
        senders = next((set(waiting.senders) for waiting in turn.waits if waiting.senders), set[str]())
        if senders and senders <= self.place.absent:
            reason = f"the files of {', '.join(sorted(senders))} did not come"
            raise AbsentMembersError("the job", reason=reason, cure=SUBMIT_AGAIN)
        return False

    def answer(self) -> dict[str, Any]:
        """Return the last message to the server: the digest of the model that this site received; empty without a model.

        A result that is refused, such as a result for another site, is removed, and the refusal is raised.
        """
        workspace, result = self.driver.workspace, self.settings.result
        study, exchange = workspace.study, exchange_of(workspace.study)
        digest = ""
        if (result / exchange.required_result_file(study)).is_file():
            try:
                digest = exchange.open_result(workspace.vault, study, result).model_digest
            except RefusedError:
                for name in exchange.result_files(study):
                    (result / name).unlink(missing_ok=True)
                raise
        return {"model": digest}


def _in_tenths(what: str, tell: Tell) -> Progress:
    """Return a progress callback that writes one line per ten percent."""
    reported = [0]

    def progress(done: float, total: float, _what: str = "", /) -> None:
        tenth = int(10 * done / total) if total else 0
        if tenth != reported[0]:
            reported[0] = tenth
            if tenth:
                tell(f"{what} {10 * tenth} %")

    return progress
