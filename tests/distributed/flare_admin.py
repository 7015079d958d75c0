"""FLARE's administrator as a process of its own: a request a line in, an answer a line out, both JSON."""

import json
import sys
import time
from typing import Any

MARK = "answer "


def answered(session: Any, request: dict[str, str]) -> Any:
    match request["do"]:
        case "sites":
            return [client.name for client in session.get_system_info().client_info]
        case "submit":
            return session.submit_job(request["job"])
        case "meta":
            return session.get_job_meta(request["job"])
        case "look":
            return session.ls_target(request["site"])
    raise ValueError(request["do"])


def main(user: str, kit: str) -> None:
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    session, end = None, time.monotonic() + 60
    while session is None:
        try:
            session = new_secure_session(user, kit, timeout=5.0)
        except Exception:  # the server may still be starting
            if time.monotonic() > end:
                raise
    sys.stdout.write(f'{MARK}"ready"\n')
    sys.stdout.flush()
    for line in sys.stdin:
        try:
            answer = {"answer": answered(session, json.loads(line))}
        except Exception as problem:
            answer = {"problem": f"{type(problem).__name__}: {problem}"}
        sys.stdout.write(f"{MARK}{json.dumps(answer, default=str)}\n")
        sys.stdout.flush()
    session.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
