"""Stores, bundles and ports that the tests of transport use."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.loopback import serving
from tests.protocol.transport.support import Store, handle_by, make_bundle


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    with serving(handle_by(store)) as store.port:
        yield store


@pytest.fixture
def memory() -> Iterator[Any]:
    """The file system in memory, empty."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """The bundle of the first site."""
    make_bundle(tmp_path / "a.bundle", 0)
    return tmp_path / "a.bundle"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def refusing_port() -> int:
    """A port on which nobody listens."""
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def inbox(memory: Any, tmp_path: Path) -> Callable[..., bytes]:
    def fill(k: int, **rest: Any) -> bytes:
        data = make_bundle(tmp_path / "made", k, **rest)
        memory.pipe_file(f"/inbox/site-{k}.bundle", data)
        return data

    for k in range(3):
        fill(k)
    return fill
