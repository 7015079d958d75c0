"""The server's part of a FLARE job. A site that dies or does not answer does not stop the others."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from mooring.engines.flare.chunks import TOPIC, plain_values
from mooring.engines.flare.server_workflow import Answers, JobAbortedError, ServerWorkflow, TaskMessage, answer_of
from mooring.errors import MooringError

_LOOK_SECONDS = 0.2


class MooringController(Controller):  # type: ignore[misc]
    """Gives sites the tasks of `ServerWorkflow.run`, and answers their requests about files.

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

        def ask(task: str, messages: Mapping[str, TaskMessage], answers: Answers) -> None:
            self._ask(part, task, messages, answers, abort_signal, fl_ctx)

        try:
            missing = part.run([client.name for client in fl_ctx.get_engine().get_clients()], ask)
        except MooringError as problem:
            self.system_panic(str(problem), fl_ctx)
            return
        if (
            missing and not abort_signal.triggered
        ):  # the others have their results, but FLARE's status must show the failure
            self.system_panic(f"Finished, but without {', '.join(missing)}.", fl_ctx)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Release the work folder."""
        if self._part is not None:
            self._part.close()

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """Log an answer that came too late. Its ticket is no longer valid."""
        self.log_info(fl_ctx, f"{client.name} answered {task_name} too late")

    def _let_nobody_end_the_job(self, fl_ctx: FLContext) -> None:
        """Keep the job running if one site answers that it does not know the task or the job."""
        runner = fl_ctx.get_prop(FLContextKey.RUNNER)
        if runner is not None:
            runner.ABORT_RETURN_CODES = []

    def _ask(
        self,
        part: ServerWorkflow,
        task_name: str,
        messages: Mapping[str, TaskMessage],
        answers: Answers,
        abort_signal: Signal,
        fl_ctx: FLContext,
    ) -> None:
        """Give each site its task and wait until all have answered or timed out."""

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            reply, name = client_task.result, client_task.client.name
            fine = reply.get_return_code() == ReturnCode.OK
            answers[name] = answer_of(reply) if fine else {"outcome": "failed"}
            part.tell(f"{name}, {task_name}: {answers[name].get('outcome')}")

        tasks = []
        for name, message in messages.items():
            data = Shareable()
            data.update(message)
            task = Task(task_name, data, timeout=part.settings.wait_seconds, result_received_cb=received)
            self.send(task, fl_ctx, targets=[name])
            tasks.append(task)
        while any(task.completion_status is None for task in tasks) and not abort_signal.triggered:
            time.sleep(_LOOK_SECONDS)
        if abort_signal.triggered:
            raise JobAbortedError

    def _answered(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        """Answer a request about a file."""
        reply = make_reply(ReturnCode.OK)
        if self._part is not None:
            reply.update(self._part.counter.answer(plain_values(request)))
        return reply
