"""A study, its bundles, and a store on loopback that does what a test's script says."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mooring import make_anchor
from mooring.protocol.messages.study import Study
from tests.loopback import Handler
from tests.sites import KEYS, numeric_study, write_site

H, R, V = 4, 16, 0.02
QUICK = (0.0, 0.0, 0.0)
AWAY = {"away": 307, "moved": 308}
SECRET = "X-Amz-Signature=5ec2e7"
DENIED = b"<Error><Code>AccessDenied</Code><StringToSign>" + SECRET.encode() + b"</StringToSign></Error>"
EXPIRED = b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"


def make_study() -> Study:
    return numeric_study(3, H, R, V)


def make_bundle(path: Path, k: int, *, rows: int = 30, seed: int = 0) -> bytes:
    """Site k's bundle; another seed makes another bundle of the same site."""
    rng, anchor = np.random.default_rng([seed, k]), make_anchor(R, H, rng=np.random.default_rng(0))
    table = rng.uniform(-1, 1, (rows, H))
    write_site(path, make_study(), KEYS[k], table, (table[:, 0] > 0).astype(np.int64), anchor, rng)
    return path.read_bytes()


@dataclass
class Store:
    """A store on loopback that does what its script says, one entry a request, and then what it should."""

    port: int = 0
    script: list[Any] = field(default_factory=list)
    """"drop": hang up half-way. "early": say 403 and hang up without reading. "silent": say nothing. "etag": take it, and
    tell another checksum. "away", "moved": send on to another path, for now or for good; an address: send on there. Or a
    status and a body, and how long to wait."""
    taken: list[bytes] = field(default_factory=list)
    """What came whole."""
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and headers of every request."""
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/ward/inbox/site-0.bundle?X-Amz-Expires=600&{SECRET}"


def handle_by(store: Store) -> type[Handler]:
    class Scripted(Handler):
        def do_PUT(self) -> None:
            store.seen.append((self.path, dict(self.headers)))
            size, step = int(self.headers["Content-Length"]), store.script.pop(0) if store.script else "take"
            self.close_connection = True
            if step == "drop":
                self.rfile.read(size // 2)
                return
            if step == "early":
                self.answer(403, DENIED)
                time.sleep(0.1)
                return
            if step == "silent":
                time.sleep(0.3)
                return
            data = self.rfile.read(size)
            if isinstance(step, tuple):
                status, body, *later = step
                self.answer(status, body, **({"retry_after": later[0]} if later else {}))
            elif isinstance(step, str) and step.startswith("http"):
                self.answer(307, b"", location=step)
            elif step in AWAY:
                self.answer(AWAY[step], b"", location=f"{self.path}&moved=1")
            else:
                store.taken.append(data)
                checksum = hashlib.md5(data if step == "take" else b"another").hexdigest()
                self.answer(200, b"", etag=f'"{checksum}"', **store.extra)

    return Scripted


def raises(problem: Exception | type[Exception], asked: list[int] | None = None) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        if asked is not None:
            asked.append(1)
        raise problem

    return call


class Cut:
    """A stream that ends, or breaks, before its end."""

    def __init__(self, data: bytes, problem: Exception | None) -> None:
        self._parts, self._problem = [data[: len(data) // 2]], problem

    def __enter__(self) -> "Cut":
        return self

    def __exit__(self, *_: object) -> None: ...

    def read(self, _: int) -> bytes:
        if self._parts:
            return self._parts.pop()
        if self._problem:
            raise self._problem
        return b""
