"""The site's part of a FLARE job: a class installed at the site, which a job can name but not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from mooring.engines.flare.chunks import TOPIC, Message, plain_values
from mooring.engines.flare.client_workflow import ClientWorkflow, NoAnchorError
from mooring.engines.flare.guard import is_guarded
from mooring.engines.flare.settings import SiteSettings
from mooring.errors import MooringError, RefusedError, StorageError

_ANSWER_SECONDS, _TRIES = 60.0, 5


class MooringExecutor(Executor):  # type: ignore[misc]
    """Runs a site's tasks: it sends the same bundle as 'mooring share' and stores the result.

    `study` is the digest of the job's study. Everything else comes from the site's own mooring.toml.
    """

    def __init__(self, study: str) -> None:
        super().__init__()
        self._study = study

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Run a task. The server gets a short reason for a failure; the site's log has the full error."""
        reply = make_reply(ReturnCode.OK)
        try:
            if not is_guarded():
                raise RefusedError(
                    "the job",
                    reason="this process runs without mooring's guard, which protects it from a modified server",
                    cure="Run 'mooring flare site' again, and restart FLARE.",
                )
            folder = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_site_config_dir())
            part = ClientWorkflow(
                SiteSettings.read(folder),
                str(fl_ctx.get_identity_name()),
                self._study,
                lambda words: self.log_info(fl_ctx, words),
            )
            message = plain_values(shareable)
            reply.update(part.do(task_name, message, lambda request: self._asked(request, fl_ctx, abort_signal)))
            reply["outcome"] = "done"
        except MooringError as problem:
            self.log_error(fl_ctx, str(problem), fire_event=False)
            reply["outcome"] = _word_for(problem)
        except Exception as problem:  # the message of a library may quote a record
            self.log_error(fl_ctx, f"unexpected {type(problem).__name__}", fire_event=False)
            reply["outcome"] = "failed: a fault of mooring"
        return reply

    def _asked(self, request: Message, fl_ctx: FLContext, abort_signal: Signal) -> dict[str, Any]:
        """Send a request to the server, and repeat it if no answer comes. Every request may be repeated."""
        for _ in range(_TRIES):
            if abort_signal.triggered:
                break
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
        case NoAnchorError():
            return "failed: the dealer's site has not sent the anchor"
        case RefusedError():
            return "refused; the site's log says why"
        case StorageError():
            return "failed: a problem with a file, a disk or the connection; see the site's log"
        case _:
            return "failed: the settings or the table cannot be used; see the site's log"
