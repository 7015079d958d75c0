"""A desk that runs in this process, and requests to it as a browser sends them."""

import http.client
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from urllib.parse import urlencode

from mooring.desk.app import DeskApplication, make_desk, make_server

BOUNDARY = "------mooring"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str


@dataclass(frozen=True)
class Running:
    """A desk that is being served; requests carry what its own page would send, but for what a test changes."""

    application: DeskApplication

    def ask(
        self, method: str, path: str, body: bytes | None = None, *, root: str | None = None, **changed: str | None
    ) -> Answer:
        session = self.application.session
        headers: dict[str, str | None] = {"host": f"127.0.0.1:{session.port}", "cookie": session.cookie.split(";")[0]}
        headers |= {"sec-fetch-site": "same-origin"}
        if method == "POST":
            headers |= {"origin": f"http://127.0.0.1:{session.port}", "content-length": str(len(body or b""))}
            headers |= {"content-type": "application/x-www-form-urlencoded"}
        headers |= {name.replace("_", "-"): value for name, value in changed.items()}
        talk = http.client.HTTPConnection("127.0.0.1", session.port, timeout=300)
        talk.putrequest(method, (session.path if root is None else root) + path, skip_host=True)
        for name, value in headers.items():
            if value is not None:
                talk.putheader(name, value)
        talk.endheaders(body)
        response = talk.getresponse()
        answer = Answer(
            response.status,
            {name.lower(): value for name, value in response.getheaders()},
            response.read().decode(errors="replace"),
        )
        talk.close()
        return answer

    def take(self, step: str, **values: str | list[str]) -> str:
        """Send a step's form, wait for its end, and return the panel with its outcome or problem."""
        form = {"form_token": self.application.session.form_token, "sure": "yes"} | values
        assert self.ask("POST", f"/step/{step}", urlencode(form, doseq=True).encode()).status == 303
        job = self.application.jobs.last
        assert job is not None
        if job.thread is not None:
            job.thread.join(600)
        answer = re.search(
            r'<div class="(?:good|warn|plain)" id="((?:outcome|problem).*?)</div>\n',
            self.ask("GET", "/").text,
            re.DOTALL,
        )
        assert answer is not None
        return answer.group(1)

    def upload(self, files: Mapping[str, bytes], *, replace: bool = False, token: str | None = None) -> str:
        """Send files, and return the panel."""
        given = self.application.session.form_token if token is None else token
        parts = [("form_token", "", given.encode()), *([("replace", "", b"yes")] if replace else [])]
        parts += [("files", f'; filename="{name}"', data) for name, data in files.items()]
        head = '--{}\r\ncontent-disposition: form-data; name="{}"{}\r\n\r\n'
        body = b"".join(head.format(BOUNDARY, name, more).encode() + data + b"\r\n" for name, more, data in parts)
        body += f"--{BOUNDARY}--\r\n".encode()
        kind = f"multipart/form-data; boundary={BOUNDARY}"
        assert self.ask("POST", "/upload", body, content_type=kind).status == 303
        return self.ask("GET", "/").text


@contextmanager
def serving(folder: Path, place: str = "") -> Iterator[Running]:
    listener, application = make_desk(folder, announce=lambda address: None)
    application.guide.first_wait, application.guide.longest_wait = 0.2, 0.5
    server = make_server(application)
    thread = Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        with application.guide.running(place):
            yield Running(application)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
