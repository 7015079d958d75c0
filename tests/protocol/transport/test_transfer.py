"""What may leave, what is sent, and that nobody's file is overwritten."""

import hashlib
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import fsspec
import pytest

from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.participant.membership import make_member
from mooring.protocol.rotation.anchor import deal_anchor
from mooring.protocol.storage.vault import Vault
from mooring.protocol.transport import object_stores as stores
from mooring.protocol.transport import transfer
from mooring.protocol.transport.place import _copy_bounded
from mooring.protocol.transport.presigned_upload import TIMEOUT, _connect
from mooring.protocol.transport.transfer import (
    ENVELOPE,
    Parcel,
    _copy,
    _is_beginning,
    check_parcel,
    measure_parcel,
    require_address,
    send_file,
)
from tests.protocol.transport.support import QUICK, Store, make_bundle, raises
from tests.raising import raising
from tests.sites import numeric_study


def test_only_bundles_and_anchor_files_are_sent(tmp_path: Path, store: Store) -> None:
    Vault.create(tmp_path / "vault")
    (tmp_path / "table.csv").write_text("age,ill\n41,yes\n")
    for path in (tmp_path / "vault" / "identity.json", tmp_path / "table.csv"):
        with raising(RefusedError, "the file", reason="only bundles, anchor files"):
            send_file(path, store.address)
    with raising(RefusedError, "the file", cure="a vault"):
        send_file(tmp_path / "vault", store.address)
    with raising(StorageError, "the file", reason="not a regular file"):
        send_file(tmp_path / "nowhere.bundle", store.address)
    assert store.seen == []


@pytest.mark.parametrize("harm", ["cut", "longer", "bit"])
def test_a_bundle_that_is_not_whole_is_not_sent(harm: str, tmp_path: Path, store: Store) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0)
    changed = {"cut": data[:-1], "longer": data + b"\0", "bit": data[:-1] + bytes([data[-1] ^ 1])}[harm]
    (tmp_path / "a.bundle").write_bytes(changed)
    with raising(RefusedError, "the file", reason="incomplete"):
        send_file(tmp_path / "a.bundle", store.address)
    assert store.seen == []


def test_an_anchor_file_may_be_sent(tmp_path: Path, store: Store) -> None:
    vaults = [Vault.create(tmp_path / f"vault-{k}") for k in range(2)]
    study = numeric_study(participants=[make_member(f"site-{k}", vault) for k, vault in enumerate(vaults)])
    deal_anchor(vaults[0], study, tmp_path / "trial.anchor")
    sent = send_file(tmp_path / "trial.anchor", store.address)
    assert sent.kind == "anchor"
    assert store.taken == [(tmp_path / "trial.anchor").read_bytes()]


def afterwards(action: Callable[[], Any]) -> Callable[..., Any]:
    """What checks a file, and something that happens right after it."""
    really = check_parcel

    def call(path: Path, file: Any) -> Any:
        parcel = really(path, file)
        action()
        return parcel

    return call


@pytest.mark.parametrize(("seed", "rows"), [(1, 30), (0, 29)])
def test_a_file_that_changes_on_its_way_is_not_called_sent(
    seed: int, rows: int, bundle: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_bundle(bundle.with_name("b.bundle"), 0, seed=seed, rows=rows)
    monkeypatch.setattr(transfer, "check_parcel", afterwards(lambda: bundle.write_bytes(other)))
    with raising(StorageError, "the file", reason="changed while it was sent"):
        send_file(bundle, store.address, waits=())


@pytest.mark.parametrize("to", ["presigned", "memory://inbox/", "folder"])
def test_what_was_checked_is_what_is_sent(
    to: str, tmp_path: Path, store: Store, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file takes its name between the check and the first try, and between tries."""
    data = make_bundle(tmp_path / "a.bundle", 0)
    other = make_bundle(tmp_path / "b.bundle", 1)
    (tmp_path / "folder").mkdir()

    def swap() -> None:
        (tmp_path / "c.bundle").write_bytes(other)
        (tmp_path / "c.bundle").replace(tmp_path / "a.bundle")

    monkeypatch.setattr(transfer, "check_parcel", afterwards(swap))
    store.script = ["drop"]
    address = {"presigned": store.address, "folder": tmp_path / "folder"}.get(to, to)
    sent = send_file(tmp_path / "a.bundle", address, waits=QUICK)
    assert sent.digest == hashlib.sha256(data).hexdigest()
    arrived = {
        "presigned": lambda: store.taken[-1],
        "folder": lambda: (tmp_path / "folder" / "a.bundle").read_bytes(),
    }.get(to, lambda: memory.cat_file("/inbox/a.bundle"))()
    assert arrived == data


def test_a_file_that_changes_on_its_way_to_a_store_is_not_called_sent(
    bundle: Path, tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, put = make_bundle(tmp_path / "b.bundle", 0, seed=1), type(memory).put_file

    def changing(self: Any, source: str, target: str, **rest: Any) -> None:
        (bundle).write_bytes(other)  # of the same size, so that the store's size tells nothing
        put(self, source, target, **rest)

    monkeypatch.setattr(type(memory), "put_file", changing)
    with raising(StorageError, "the file", reason="changed while it was sent"):
        send_file(bundle, "memory://inbox/", waits=QUICK)
    assert memory.store == {}


def test_only_the_file_that_was_meant_is_sent(tmp_path: Path, store: Store) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0)
    with raising(StorageError, "the file", reason="changed before it was sent"):
        send_file(tmp_path / "a.bundle", store.address, digest="0" * 64)
    assert store.seen == []
    send_file(tmp_path / "a.bundle", store.address, digest=hashlib.sha256(data).hexdigest())
    assert store.taken == [data]


@pytest.mark.parametrize(
    "address",
    ["simplecache::http://store.invalid/inbox", "memory://x::http://store.invalid/inbox", "filecache::memory://inbox/"],
)
def test_an_address_made_of_several_is_refused(address: str, bundle: Path, memory: Any) -> None:
    for call in (lambda: send_file(bundle, address), lambda: require_address(address, allow_http=True)):
        with raising(RefusedError, "the address", reason="several file systems"):
            call()
    assert memory.store == {}


def test_other_ways_in_the_open_are_refused(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(fsspec.core, "url_to_fs", raises(OSError, asked))
    for address in ("ftp://bob:5ec2e7@store.invalid/in", "FTP://store.invalid/in", "webhdfs://store.invalid/in"):
        with raising(RefusedError, "the bundle", cure="--allow-http") as caught:
            send_file(bundle, address)
        assert "5ec2e7" not in str(caught.value)
    assert asked == []
    with raising(StorageError, "the store", reason="could not be reached"):
        send_file(bundle, "ftp://store.invalid/in", allow_http=True)


def test_a_stores_own_address_in_the_open_is_refused(
    bundle: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for endpoint in ("http://minio.example:9000", "HTTP://10.0.0.1"):
        client = SimpleNamespace(meta=SimpleNamespace(endpoint_url=endpoint))
        monkeypatch.setattr(type(memory), "s3", client, raising=False)
        with raising(RefusedError, "the bundle", reason="AWS_ENDPOINT_URL"):
            send_file(bundle, "memory://inbox/")
    assert memory.store == {}
    for fine in ("https://minio.example", "http://127.0.0.1:9000"):
        client.meta.endpoint_url = fine
        send_file(bundle, "memory://inbox/")
    client.meta.endpoint_url = "http://minio.example"
    send_file(bundle, "memory://inbox/", allow_http=True)


def test_a_folder_gets_a_copy_and_nobodys_file_is_written_over(tmp_path: Path) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0)
    (tmp_path / "inbox").mkdir()
    for to, there in (("inbox", False), ("inbox/", True), ("inbox/other.bundle", False)):
        sent = send_file(tmp_path / "a.bundle", tmp_path / to if to == "inbox" else f"{tmp_path}/{to}")
        assert Path(sent.to).read_bytes() == data
        assert (sent.there_before, sent.tries) == (there, 0 if there else 1)
    assert sorted(path.name for path in (tmp_path / "inbox").iterdir()) == ["a.bundle", "other.bundle"]
    other = make_bundle(tmp_path / "inbox" / "a.bundle", 1)
    with raising(InputError, "address", problem="different file with this name"):
        send_file(tmp_path / "a.bundle", f"file://{tmp_path}/inbox/")
    assert (tmp_path / "inbox" / "a.bundle").read_bytes() == other
    with raising(StorageError, "the place to send to", cure="Check the path"):
        send_file(tmp_path / "a.bundle", tmp_path / "nowhere" / "x.bundle")


def test_a_url_gets_a_copy(tmp_path: Path, memory: Any) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0)
    done: list[tuple[float, float]] = []
    sent = send_file(tmp_path / "a.bundle", "memory://inbox/", progress=lambda *now: done.append(now))
    assert sent.to == "memory://inbox/a.bundle"
    assert sent.confirmed
    assert memory.cat_file("/inbox/a.bundle") == data
    assert done[-1] == (len(data), len(data))
    again = send_file(tmp_path / "a.bundle", "memory://inbox")
    assert (again.to, again.tries, again.there_before) == ("memory://inbox/a.bundle", 0, True)
    assert not sent.there_before
    send_file(tmp_path / "a.bundle", "memory://inbox/b.bundle")
    assert memory.cat_file("/inbox/b.bundle") == data


@pytest.mark.parametrize("to", ["memory://inbox", "memory://deep/er", "memory://inbox/", "folder", "file", "local"])
def test_a_folder_that_is_not_there_yet_is_still_a_folder(to: str, tmp_path: Path, memory: Any) -> None:
    """Two participants who name the same folder do not write over each other."""
    options = {}
    place = tmp_path / "inbox"
    to = {"folder": str(place), "file": f"file://{place}", "local": f"local://{place}"}.get(to, to)
    for k, name in ((0, "a.bundle"), (1, "plain")):  # the second one's name gets what align looks for
        options[f"a{k}.bundle" if k == 0 else "plain.bundle"] = make_bundle(tmp_path / name, k)
    (tmp_path / "a.bundle").rename(tmp_path / "a0.bundle")
    if to.startswith("memory"):
        for name in ("a0.bundle", "plain"):
            send_file(tmp_path / name, to)
        assert {path.rsplit("/", 1)[1]: memory.cat_file(path) for path in memory.store} == options
        return
    with raising(StorageError, "the place to send to", reason="folder does not exist"):
        send_file(tmp_path / "a0.bundle", to)
    assert not place.exists()
    place.mkdir()
    for name in ("a0.bundle", "plain"):
        send_file(tmp_path / name, to)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == options


def test_nobodys_file_at_a_store_is_written_over(tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data, put = make_bundle(tmp_path / "a.bundle", 0), type(memory).put_file
    written: list[str] = []
    monkeypatch.setattr(
        type(memory), "put_file", lambda self, *rest, **more: written.append(rest[1]) or put(self, *rest, **more)
    )
    for others in (
        make_bundle(tmp_path / "b.bundle", 1),  # of the same size
        make_bundle(tmp_path / "b.bundle", 1, rows=29),
        make_bundle(tmp_path / "b.bundle", 1, rows=31),
        b"?",
        data + b"\0",
    ):
        memory.pipe_file("/inbox/a.bundle", others)
        for to in ("memory://inbox", "memory://inbox/a.bundle"):
            with raising(InputError, "address", problem="different file with this name"):
                send_file(tmp_path / "a.bundle", to)
        assert memory.cat_file("/inbox/a.bundle") == others
    assert written == []
    memory.pipe_file("/inbox/a.bundle", data[:1000])  # what an upload leaves that broke off
    assert send_file(tmp_path / "a.bundle", "memory://inbox").tries == 1
    assert memory.cat_file("/inbox/a.bundle") == data
    assert send_file(tmp_path / "a.bundle", "memory://inbox").there_before
    assert len(written) == 1


def raises_on_reading(store: Any, problem: type[Exception]) -> Callable[..., Any]:
    """Return an `open` that writes files but does not read them."""
    really = type(store).open

    def open_file(self: Any, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode == "rb":
            raise problem
        return really(self, path, mode, **options)

    return open_file


def test_a_store_tells_what_it_holds_or_not(tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0)
    memory.pipe_file("/inbox/a.bundle", make_bundle(tmp_path / "b.bundle", 1))
    listing: dict[str, Any] = {"name": "/inbox/a.bundle", "type": "file", "size": len(data)}
    monkeypatch.setattr(type(memory), "isdir", lambda *_: False)
    monkeypatch.setattr(type(memory), "info", lambda *_, **__: listing)
    monkeypatch.setattr(type(memory), "open", raises(PermissionError))
    listing["ETag"] = f'"{hashlib.md5(data).hexdigest()}"'
    assert send_file(tmp_path / "a.bundle", "memory://inbox/a.bundle").there_before
    listing["ETag"] = '"' + "0" * 32 + '"'
    with raising(InputError, "address", problem="different file with this name"):
        send_file(tmp_path / "a.bundle", "memory://inbox/a.bundle")
    monkeypatch.undo()
    with monkeypatch.context() as patched:
        patched.setattr(type(memory), "open", raises_on_reading(memory, FileNotFoundError))  # removed meanwhile
        assert not send_file(tmp_path / "a.bundle", "memory://inbox/a.bundle").there_before
        patched.setattr(type(memory), "open", raises_on_reading(memory, PermissionError))
        sent_again = send_file(tmp_path / "a.bundle", "memory://inbox/a.bundle")  # it has the same size
        assert not sent_again.there_before
        memory.pipe_file("/inbox/a.bundle", data[:-1])
        with raising(InputError, "address", problem="different file with this name"):
            send_file(tmp_path / "a.bundle", "memory://inbox/a.bundle")
    for trouble in (PermissionError("5ec2e7"), OSError("5ec2e7"), NotImplementedError):  # the store will not say: go on
        memory.pipe_file("/inbox/a.bundle", b"?")
        with monkeypatch.context() as patched:
            patched.setattr(type(memory), "info", raises(trouble))
            patched.setattr(type(memory), "isdir", raises(trouble))
            assert not send_file(tmp_path / "a.bundle", "memory://inbox/a.bundle", waits=()).confirmed
        assert memory.cat_file("/inbox/a.bundle") == data


@pytest.mark.parametrize("scheme", ["local://", "file://", "LOCAL://"])
def test_another_name_for_this_machine_changes_nothing(scheme: str, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    other = make_bundle(tmp_path / "inbox" / "a.bundle", 1)
    with pytest.raises(InputError):  # of one that fsspec does not know in capitals, that it is unknown
        send_file(bundle, f"{scheme}{tmp_path}/inbox/a.bundle")
    assert (tmp_path / "inbox" / "a.bundle").read_bytes() == other


def test_a_store_that_does_not_answer_at_once_is_asked_what_it_holds_a_second_time_only(
    bundle: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, waited = list[int](), list[float]()
    monkeypatch.setattr(stores.time, "sleep", waited.append)
    monkeypatch.setattr(type(memory), "isdir", lambda *_: False)
    monkeypatch.setattr(type(memory), "info", raises(OSError, asked))
    monkeypatch.setattr(type(memory), "put_file", raises(PermissionError))
    with raising(StorageError, "the upload", reason="refuses access"):
        send_file(bundle, "memory://inbox/a.bundle")
    assert (len(asked), waited) == (2, [0.5])


class Watched(io.BytesIO):
    """A file that notes how much is asked of it at once."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.asked = list[int]()

    def read(self, size: int | None = -1) -> bytes:
        self.asked.append(-1 if size is None else size)
        return super().read(size)


def test_files_are_read_by_the_mebibyte_so_that_they_may_be_larger_than_a_memory(tmp_path: Path) -> None:
    """A store is asked for four of them at once."""

    def measure(file: Watched) -> Parcel:
        return measure_parcel(tmp_path / "a", file, ENVELOPE)

    def download(file: Watched) -> None:
        system: Any = SimpleNamespace(invalidate_cache=lambda: None, open=lambda *_: file)
        assert stores.download(system, "a", tmp_path / "x", size=None, most_bytes=2**30, what="x") is None

    parcel = measure(Watched(b"0123456789"))
    for action, most in (
        (measure, 2**20),
        (lambda file: _copy_bounded(file, tmp_path / "y", 100, "y"), 2**20),
        (lambda file: _is_beginning(file, io.BytesIO(b"0123456789")), 2**20),
        (lambda file: _copy(replace(parcel, file=file), tmp_path, True, False, None), 2**20),
        (download, 2**22),
    ):
        file = Watched(b"0123456789")
        action(file)
        assert max(file.asked) == most
    for via in (None, urlsplit("http://proxy.example")):
        assert _connect(urlsplit("https://store.example/x"), via, TIMEOUT)[0].blocksize == 2**20
