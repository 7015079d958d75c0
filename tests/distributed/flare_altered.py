"""A server whose program was altered: it sends a site what FLARE's own would not, and tells what came back.

FLARE builds it from the server's resources.json. A request is a file in its folder, and so is the answer, both JSON.
"""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.message import Message as CellMessage
from nvflare.private.admin_defs import Message
from nvflare.private.defs import new_cell_message

DATUM = "nvflare.fuel.utils.fobs.datum.Datum"


class Altered(FLComponent):  # type: ignore[misc]
    """Parameters: the folder of requests and answers."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = Path(folder)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.SYSTEM_START:
            threading.Thread(target=self.serve, args=(fl_ctx.get_engine(),), daemon=True).start()

    def serve(self, engine: Any) -> None:
        while True:
            for path in sorted(self.folder.glob("*.ask")):
                try:
                    answer = {"answer": asked(engine.server.cell, json.loads(path.read_bytes()))}
                except Exception as problem:
                    answer = {"answer": f"{type(problem).__name__}: {problem}"}
                path.unlink()
                beside = path.with_suffix(".part")
                beside.write_text(json.dumps(answer, default=str))
                os.replace(beside, path.with_suffix(".answer"))
            time.sleep(0.1)


def asked(cell: Any, request: dict[str, Any]) -> Any:
    if request["do"] == "admin":
        return administered(cell, request["site"], request["topic"], request["body"], request.get("headers", {}))
    content = content_of(request["file"])
    reply = cell.core_cell.send_request(
        channel="_net_manager", topic="echo", target=request["site"], request=CellMessage(payload=content), timeout=4.0
    )
    return {"headers": reply.headers, "content": Path(reply.payload["x"].value).read_text() if reply.payload else None}


def administered(cell: Any, site: str, topic: str, body: Any, headers: dict[str, Any]) -> Any:
    """As an administrator's request, without the word that it must be checked."""
    message = Message(topic, body)
    message.set_headers(headers)
    reply = cell.send_request(
        channel="admin", topic=topic, target=site, request=new_cell_message({}, message), timeout=10.0
    )
    return reply.payload.body if isinstance(reply.payload, Message) else str(reply.headers)


def content_of(path: str) -> dict[str, Any]:
    """An object that FLARE builds where it arrives, and replaces by the content of the file when it sends it on."""
    datum = {"datum_id": "12345678-1234-1234-1234-123456789012", "datum_type": 3, "dot": 0, "value": path}
    kind = "nvflare.fuel.utils.fobs.decomposer.DataClassDecomposer"
    return {"x": {"__fobs_type__": DATUM, "__fobs_data__": {"data": datum}, "__fobs_dc__": kind}}
