"""Headless Chromium, driven by its DevTools protocol over a pipe: a browser context with its own cookies for each role."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update"
)
FLAGS += " --disable-sync --hide-scrollbars --disable-extensions --mute-audio --remote-debugging-pipe"


class DevToolsError(Exception):
    """A command that Chromium did not carry out, such as one to a page that is just being left."""


@dataclass
class Chromium:
    """One process; commands are sent one at a time, and events in between are dropped."""

    commands: Any
    answers: Any
    sent: int = 0

    def send(self, method: str, session: str | None = None, **given: Any) -> dict[str, Any]:
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": given} | ({"sessionId": session} if session else {})
        self.commands.write(json.dumps(message).encode() + b"\0")
        self.commands.flush()
        while True:
            record = json.loads(self._read())
            if record.get("id") == self.sent:
                if "error" in record:
                    raise DevToolsError(method, record["error"])
                return dict(record["result"])

    def _read(self) -> bytes:
        data = bytearray()
        while (byte := self.answers.read(1)) != b"\0":
            assert byte, "Chromium ended"
            data += byte
        return bytes(data)

    def open(self, address: str) -> "Tab":
        """A tab in a browser context of its own."""
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        tab = Tab(self, self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        tab.send("Page.navigate", url=address)
        return tab


@dataclass
class Tab:
    """One page of one role."""

    browser: Chromium
    session: str = field(repr=False)

    def send(self, method: str, **given: Any) -> dict[str, Any]:
        return self.browser.send(method, self.session, **given)

    def find(self, script: str) -> Any:
        """The value of an expression on the page; None while the page is being left."""
        try:
            return self.send("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")
        except DevToolsError:
            return None

    def wait_for(self, script: str, seconds: float = 600.0) -> Any:
        """Wait until an expression holds on the page that is loaded by then."""
        end = time.monotonic() + seconds
        while not (value := self.find(f"document.readyState === 'complete' && ({script})")):
            assert time.monotonic() < end, (script, self.find("document.body.innerText"))
            time.sleep(0.1)
        return value

    def submit(self, form: str, **values: str | bool) -> str:
        """Fill in a form as somebody would, send it, and return the panel that is there once it has ended."""
        self.send_form(form, f"{form} button", **values)
        return str(self.wait_for("!window.isOld && (document.querySelector('#outcome, #problem') || {}).innerText"))

    def send_form(self, form: str, button: str, **values: str | bool) -> None:
        """Fill in a form, and press a button of it."""
        self.wait_for(f"!!document.querySelector('{form}')")
        for name, value in values.items():
            entry = f"document.querySelector('{form} [name={name}]')"
            what = "checked" if isinstance(value, bool) else "value"
            self.find(f"{entry}.{what} = {json.dumps(value)}")
        self.find(f"window.isOld = true; document.querySelector('{button}').click()")

    def follow(self, link: str) -> None:
        """Follow a link of the page, and wait until another page has come."""
        self.find(f"window.isOld = true; document.querySelector('{link}').click()")
        self.wait_for("!window.isOld")

    def answer(self, kind: str) -> None:
        """Say yes to a question, as soon as the page asks it by itself."""
        form = f"#ask-{kind} form"
        self.send_form(form, f"{form} button[value=yes]", sure=True)
        self.wait_for(f"!window.isOld && !document.querySelector('{form}')")

    def upload(self, *paths: Path, replace: bool = False) -> str:
        """Put files in by the form for it."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector="#upload [type=file]")["nodeId"]
        self.send("DOM.setFileInputFiles", nodeId=node, files=[str(path) for path in paths])
        return self.submit("#upload", replace=replace)


@contextmanager
def open_chromium(program: str, profile: Path) -> Iterator[Chromium]:
    to_read, commands = os.pipe()
    answers, to_write = os.pipe()

    # Chromium reads from 3 and writes to 4.
    connect = f"import os, sys; os.dup2({to_read}, 3); os.dup2({to_write}, 4); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", connect, program, *FLAGS.split()]
    process = subprocess.Popen(
        [*command, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(to_read, to_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(to_write)
    with os.fdopen(commands, "wb") as writing, os.fdopen(answers, "rb") as reading:
        browser = Chromium(writing, reading)
        try:
            yield browser
            browser.send("Browser.close")
        finally:
            process.kill()
            process.wait()
