"""The guard before FLARE's own functions, in processes of their own; and a site's strange answer, which ends no job."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nvflare")

from nvflare.apis.client import Client
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.private.fed.server.server_runner import ServerRunner

from mooring.engines.flare import controller as controllers
from mooring.engines.flare.controller import MooringController
from mooring.engines.flare.executor import MooringExecutor

BEGIN = """
import sys
from pathlib import Path
import nvflare
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.utils import fobs
from nvflare.private.admin_defs import Message
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.utils.fed_utils import fobs_initialize
from mooring.engines.flare.guard import ServerGuard, SiteGuard, is_guarded
from mooring.errors import RefusedError
fobs_initialize()
path = Path(sys.argv[1])
datum = {"datum_id": "12345678-1234-1234-1234-123456789012", "datum_type": 3, "dot": 0, "value": str(path)}
DATUM = "nvflare.fuel.utils.fobs.datum.Datum"
hostile = fobs.dumps({"x": {"__fobs_type__": DATUM, "__fobs_data__": {"data": datum}}})
def goes_through(payload):
    try:
        return fobs.loads(payload)
    except ValueError:
        return None
before = CoreCell.process_message
"""
SITE = """
assert path.read_bytes() in fobs.dumps(fobs.loads(hostile))  # FLARE reads the file, and sends it on
SiteGuard()
assert is_guarded() and CoreCell.process_message is not before
assert goes_through(hostile) is None
import os
from argparse import Namespace
from nvflare.fuel.utils.fobs.datum import Datum
from nvflare.apis.signal import Signal
os.environ["NVFLARE_DATUM_DIR"] = str(path.parent / "written")
for strange in (Namespace(x=1), Signal(), {1, 2}, "x" * 2**24, Datum.file_datum(str(path))):
    assert goes_through(fobs.dumps({"x": strange})) is None, strange
assert not (path.parent / "written").exists()
task = Shareable({"ticket": "x", "piece": b"y" * 2**22, "pair": (1, 2)})
task.set_peer_context(FLContext())
assert goes_through(fobs.dumps(task))["piece"] == task["piece"]
assert goes_through(fobs.dumps(Message("topic", {"a": 1}))).body == {"a": 1}
import random
from mooring.engines.flare.guard import _OBJECTS
def kinds(made):
    yield type(made)
    inner = made if isinstance(made, list | tuple) else made.values() if isinstance(made, dict) else ()
    for one in [*inner, *(vars(made).values() if isinstance(made, Message) else ())]:
        yield from kinds(one)
chance, built = random.Random(0), set()
small = Shareable({"ticket": "x", "piece": b"y", "pair": (1, 2)})
small.set_peer_context(FLContext())
seeds = [hostile, fobs.dumps(small), fobs.dumps(Message("topic", {"a": [1, None, 2.5]}))]
for _ in range(2000):  # bytes of a server that was altered
    content = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 4)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    try:
        built |= set(kinds(fobs.loads(bytes(content))))
    except Exception:
        pass  # it is refused
names = {f"{one.__module__}.{one.__qualname__}".removeprefix("builtins.") for one in built}
plain = {"NoneType", "bool", "int", "float", "str", "bytes", "list", "dict", "msgpack.ext.ExtType", "msgpack.ext.Timestamp"}
assert "nvflare.apis.shareable.Shareable" in names and names <= _OBJECTS | plain, names
"""
SERVER = """
from nvflare.apis.shareable import make_reply
from nvflare.private.aux_runner import AuxRunner
runner = AuxRunner(None)
runner.register_aux_message_handler("mooring", lambda topic, request, fl_ctx: make_reply("OK"))
asked = Shareable()
asked.set_peer_props({"name": "south"})
asked.set_cookie_jar({"x": {"__fobs_type__": DATUM, "__fobs_data__": {"data": datum}}})
sent = fobs.dumps(asked)
answer = fobs.dumps(runner.dispatch("mooring", fobs.loads(sent), FLContext()))
assert path.read_bytes() in answer  # what a site sent as a cookie came back to it as a file of the server's
ServerGuard()
assert goes_through(sent) is None
assert not is_guarded()
from types import SimpleNamespace as Thing
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message as CellMessage
passed = []
cell = Thing(_process_received_msg=lambda endpoint, connection, message: passed.append(endpoint.name))
for peer, origin in (("south", "server"), ("south", "server.x"), ("south", "south.x"), ("server.x", "server.x")):
    CoreCell.process_message(cell, Thing(name=peer), None, 1, CellMessage({MessageHeaderKey.ORIGIN: origin}, b""))
assert passed == ["south", "server.x"]  # a site does not speak in the server's name
assert goes_through(hostile) is None
assert goes_through(fobs.dumps({"x": {1, 2}})) == {"x": {1, 2}}
"""
UNKNOWN = """
def newer():
    nvflare.__version__ = "2.9.1"
def without():
    nvflare.__version__ = "2.9.0"
    del FedAdminAgent._dispatch_request
for alter, word in ((newer, "this is 2.9.1"), (without, "_dispatch_request")):
    alter()
    for guard in (SiteGuard, ServerGuard):
        try:
            guard()
        except RefusedError as problem:
            assert word in str(problem) and "nothing is started" in str(problem)
        else:
            raise AssertionError(guard)
        assert not is_guarded() and CoreCell.process_message is before and goes_through(hostile) is not None
"""


@pytest.mark.parametrize("script", [SITE, SERVER, UNKNOWN], ids=["site", "server", "unknown"])
def test_a_process_with_a_guard_builds_no_object_that_reads_a_file(script: str, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.write_bytes(b"known to nobody else")
    words = [sys.executable, "-c", BEGIN + script, str(private)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_job_does_nothing_in_a_process_without_a_guard() -> None:
    reply = MooringExecutor("0" * 64).execute("mooring.run", Shareable(), FLContext(), Signal())
    assert reply["outcome"].startswith("refused")


class Engine:
    """As much of FLARE's engine as its runner and our controller touch."""

    def register_aux_message_handler(self, topic: str, message_handle_func: Any) -> None:
        pass

    def fire_event(self, event_type: str, fl_ctx: FLContext) -> None:
        pass


@pytest.mark.parametrize("code", [ReturnCode.TASK_UNKNOWN, ReturnCode.RUN_MISMATCH, ReturnCode.UNSAFE_JOB])
def test_a_site_that_answers_strangely_ends_the_job_for_nobody_else(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    context, peer, panics = FLContext(), FLContext(), []
    runner = ServerRunner(config=SimpleNamespace(), job_id="job", engine=Engine())
    monkeypatch.setattr(runner, "system_panic", lambda reason, fl_ctx: panics.append(reason))
    peer.put(ReservedKey.RUN_NUM, "job", private=False, sticky=False)
    context.set_peer_context(peer)
    context.put(ReservedKey.ENGINE, Engine(), private=True, sticky=False)
    context.set_prop(FLContextKey.RUNNER, runner, private=True, sticky=True)
    context.set_prop(
        FLContextKey.WORKSPACE_OBJECT, SimpleNamespace(get_site_config_dir=lambda: "."), private=True, sticky=True
    )

    def answers() -> None:
        runner._process_submission(Client("south", "token"), "mooring.run", "1", make_reply(code), context)

    answers()
    assert len(panics) == 1  # so FLARE does
    monkeypatch.setattr(controllers.ServerWorkflow, "opened", lambda *_: None)
    MooringController("x").start_controller(context)
    answers()
    assert len(panics) == 1
    assert ServerRunner.ABORT_RETURN_CODES  # another job's runner is as it was
