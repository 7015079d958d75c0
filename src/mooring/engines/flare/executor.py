"""The site's half of a FLARE job: a class that is installed at the site, and that a job can name but not change."""

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
    """Emits the bundle that 'mooring share' would, and keeps the result that comes back."""

    def __init__(self, study: str) -> None:
        super().__init__()
        self._study = study

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Do a task; what cannot be done is told to the server in a word, and in full to the site's own log."""
        reply = make_reply(ReturnCode.OK)
        try:
            if not is_guarded():
                raise RefusedError(
                    "the job",
                    reason="this process runs without mooring's guard, which keeps an altered server out",
                    cure="Run 'mooring flare site' again, and start FLARE anew.",
                )
            folder = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_site_config_dir())
            part = ClientWorkflow(
                SiteSettings.read(folder),
                str(fl_ctx.get_identity_name()),
                self._study,
                lambda words: self.log_info(fl_ctx, words),
            )
            told = plain_values(shareable)
            reply.update(part.do(task_name, told, lambda request: self._asked(request, fl_ctx, abort_signal)))
            reply["outcome"] = "done"
        except MooringError as problem:
            self.log_error(fl_ctx, str(problem), fire_event=False)
            reply["outcome"] = _word_for(problem)
        except Exception as problem:  # what a library says may quote a record
            self.log_error(fl_ctx, f"{type(problem).__name__} was not expected", fire_event=False)
            reply["outcome"] = "failed: a fault of mooring's own"
        return reply

    def _asked(self, request: Message, fl_ctx: FLContext, abort_signal: Signal) -> dict[str, Any]:
        """Ask the server, again if no answer comes: every request may be made twice."""
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
        raise StorageError("the server", reason="it does not answer", cure="Submit the job again when it is up.")


def _word_for(problem: MooringError) -> str:
    """What the server hears: nothing of the site's rows, columns or paths."""
    match problem:
        case NoAnchorError():
            return "failed: there is no anchor; the dealer's site has not sent it"
        case RefusedError():
            return "refused, to protect somebody; the site's log says why"
        case StorageError():
            return "failed: a file, a disk or the connection; the site's log says more"
        case _:
            return "failed: settings or a table that cannot be used; the site's log says more"
