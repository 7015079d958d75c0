"""The site's part of a FLARE job: a class installed at the site, which a job can name but not change."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from mooring.engines.flare.chunks import TOPIC, Message, plain_values
from mooring.engines.flare.client_workflow import AbsentMembersError, ClientWorkflow
from mooring.engines.flare.configuration import TASK
from mooring.engines.flare.guard import is_guarded
from mooring.engines.flare.settings import SiteSettings
from mooring.errors import InputError, MooringError, RefusedError, StorageError

_ANSWER_SECONDS, _TRIES = 60.0, 5
_PAUSE_SECONDS = 1.0


class MooringExecutor(Executor):  # type: ignore[misc]
    """Runs a site's steps, as 'mooring run' does, until the server says that the job is over.

    `study` is the digest of the job's study. Everything else comes from the site's own mooring.toml.
    """

    def __init__(self, study: str) -> None:
        super().__init__()
        self._study = study

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Run the task. The server gets a short reason for a failure; the site's log has the full error."""
        reply = make_reply(ReturnCode.OK)
        try:
            reply.update(self._run(task_name, plain_values(shareable), fl_ctx, abort_signal))
            reply["outcome"] = "done"
        except MooringError as problem:
            self.log_error(fl_ctx, str(problem), fire_event=False)
            reply["outcome"] = _word_for(problem)
        except Exception as problem:  # the message of a library may quote a record
            self.log_error(fl_ctx, f"unexpected {type(problem).__name__}", fire_event=False)
            reply["outcome"] = "failed: a fault of mooring"
        return reply

    def _run(self, task_name: str, message: Message, fl_ctx: FLContext, abort_signal: Signal) -> dict[str, Any]:
        if not is_guarded():
            raise RefusedError(
                "the job",
                reason="this process runs without mooring's guard, which protects it from a modified server",
                cure="Run 'mooring flare site' again, and restart FLARE.",
            )
        if task_name != TASK:
            cure = "Use the same version of mooring at the server and at all sites."
            raise InputError("task", expected=TASK, got=repr(task_name[:80]), cure=cure)
        settings = SiteSettings.read(Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_site_config_dir()))
        part = ClientWorkflow.opened(
            settings,
            str(fl_ctx.get_identity_name()),
            self._study,
            message,
            lambda request: self._asked(request, fl_ctx, abort_signal),
            lambda words: self.log_info(fl_ctx, words),
        )
        with part.lock():
            while not part.advance():
                time.sleep(_PAUSE_SECONDS)
            return part.answer()

    def _asked(self, request: Message, fl_ctx: FLContext, abort_signal: Signal) -> dict[str, Any]:
        """Send a request to the server, and repeat it if no answer comes. Every request may be repeated."""
        for _ in range(_TRIES):
            if abort_signal.triggered:
                raise InputError("the job", problem="The job was aborted.", cure="Submit it again.")
            asked = Shareable()
            asked.update(request)
            replies = fl_ctx.get_engine().send_aux_request(
                targets=None, topic=TOPIC, request=asked, timeout=_ANSWER_SECONDS, fl_ctx=fl_ctx
            )
            for reply in replies.values():
                if reply.get_return_code() == ReturnCode.OK:
                    return dict(reply)
        raise StorageError("the server", reason="it does not answer", cure="Submit the job again when it is running.")


def _word_for(problem: MooringError) -> str:
    """Return the reason that the server gets, without rows, columns or paths of the site."""
    match problem:
        case AbsentMembersError():
            return f"failed: {problem.reason}"
        case RefusedError():
            return "refused; the site's log says why"
        case StorageError():
            return "failed: a problem with a file, a disk or the connection; see the site's log"
        case _:
            return "failed: the settings or the table cannot be used; see the site's log"
