"""The server's part of a FLARE job. A site that dies or does not answer does not stop the others."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from mooring.engines.flare.chunks import TOPIC, plain_values
from mooring.engines.flare.configuration import TASK
from mooring.engines.flare.server_workflow import Answers, JobAbortedError, ServerWorkflow, TaskMessage, answer_of
from mooring.errors import MooringError

_LOOK_SECONDS = 0.5


class MooringController(Controller):  # type: ignore[misc]
    """Gives each site its task, runs `ServerWorkflow.run`, and answers the sites' requests about files.

    `study` is the digest of the job's study, which must be that of the server's own settings.
    """

    def __init__(self, study: str) -> None:
        super().__init__()
        self._study = study
        self._part: ServerWorkflow | None = None

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Open the server's settings and register the handler of sites' requests."""
        folder = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_site_config_dir())
        try:
            self._part = ServerWorkflow.opened(
                folder, self._study, lambda words: self.log_info(fl_ctx, words), fl_ctx.get_job_id()
            )
        except MooringError as problem:
            self.system_panic(str(problem), fl_ctx)
            return
        self._let_nobody_end_the_job(fl_ctx)
        fl_ctx.get_engine().register_aux_message_handler(TOPIC, self._answered)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the job."""
        part = self._part
        if part is None:
            return
        connected = [client.name for client in fl_ctx.get_engine().get_clients()]
        try:
            missing = part.run(connected, _SiteTasks(self, abort_signal, fl_ctx))
        except MooringError as problem:
            self.system_panic(str(problem), fl_ctx)
            return
        if (
            missing and not abort_signal.triggered
        ):  # the others have their results, but FLARE's status must show the failure
            self.system_panic(f"Finished, but without {', '.join(missing)}.", fl_ctx)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Release the analyst's folder."""
        if self._part is not None:
            self._part.close()

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """Log an answer that came too late."""
        self.log_info(fl_ctx, f"{client.name} answered {task_name} too late")

    def _let_nobody_end_the_job(self, fl_ctx: FLContext) -> None:
        """Keep the job running if one site answers that it does not know the task or the job."""
        runner = fl_ctx.get_prop(FLContextKey.RUNNER)
        if runner is not None:
            runner.ABORT_RETURN_CODES = []

    def _answered(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        """Answer a request about a file."""
        reply = make_reply(ReturnCode.OK)
        if self._part is not None:
            reply.update(self._part.place.answer(plain_values(request)))
        return reply


@dataclass(eq=False)
class _SiteTasks:
    """The tasks of a job's sites at FLARE."""

    controller: MooringController
    abort_signal: Signal
    fl_ctx: FLContext
    _running: dict[str, Task] = field(default_factory=dict)
    _answers: Answers = field(default_factory=dict)

    def start(self, messages: Mapping[str, TaskMessage]) -> None:
        """Give each site its task, which has no time limit of its own."""
        for name, message in messages.items():
            data = Shareable()
            data.update(message)
            self._running[name] = Task(TASK, data, result_received_cb=self._receive)
            self.controller.send(self._running[name], self.fl_ctx, targets=[name])

    def wait(self) -> Answers:
        """Wait a moment, and return the answers of sites whose task ended meanwhile."""
        time.sleep(_LOOK_SECONDS)
        if self.abort_signal.triggered:
            raise JobAbortedError
        ended = [name for name, task in self._running.items() if task.completion_status is not None]
        for name in ended:
            del self._running[name]
        return {name: self._answers.get(name, {"outcome": "no answer"}) for name in ended}

    def _receive(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        reply = client_task.result
        is_fine = reply.get_return_code() == ReturnCode.OK
        self._answers[client_task.client.name] = answer_of(reply) if is_fine else {"outcome": "failed"}
