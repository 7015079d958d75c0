"""Sending and receiving: what may leave, what is tried again, what stays accepted, and what nobody gets to see."""

import datetime
import errno
import hashlib
import json
import shlex
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mooring import RigidMap, make_anchor
from mooring.atomic_io import open_atomically
from mooring.errors import InputError, MissingExtraError, RefusedError, StorageError
from mooring.protocol.analyst.alignment import align_bundles
from mooring.protocol.analyst.delivery import deliver
from mooring.protocol.analyst.intake import collect
from mooring.protocol.crypto.keys import SealingKey, SigningKey
from mooring.protocol.messages.bundle import write_bundle
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.result import read_result
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import deal_anchor
from mooring.protocol.participant.prediction import fetch_result
from mooring.protocol.storage.vault import Vault
from mooring.protocol.transport import inbox as receiving
from mooring.protocol.transport import object_stores as stores
from mooring.protocol.transport import presigned_upload as putting
from mooring.protocol.transport import transfer
from mooring.protocol.transport.addresses import (
    is_url,
    local_path,
    read_address,
    read_scheme,
    redact_address,
    redact_command,
    redact_word,
)
from mooring.protocol.transport.invitations import invite, parse_period
from mooring.protocol.transport.transfer import check_parcel, require_address, send_file
from mooring.tables.schema import Column, Label
from tests.loopback import Handler, serving

KEYS = [SigningKey.generate() for _ in range(3)]
SEALING = [SealingKey.generate().public for _ in range(3)]
ANALYST = SigningKey.generate()
H, R, V = 4, 16, 0.02
QUICK = (0.0, 0.0, 0.0)
SECRET = "X-Amz-Signature=5ec2e7"
DENIED = b"<Error><Code>AccessDenied</Code><StringToSign>" + SECRET.encode() + b"</StringToSign></Error>"
EXPIRED = b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"


def make_study() -> Study:
    return Study(
        name="trial",
        nonce="0" * 32,
        columns=tuple(Column(f"x{k}", "number", low=-1, high=1) for k in range(H)),
        label=Label("y", "classes", ("well", "ill")),
        method="aa-i-gdp-anchor-noise",
        n_components=H,
        n_anchor_rows=R,
        anchor_noise_scale=V,
        participants=tuple(Member(f"site-{k}", KEYS[k].public, SEALING[k]) for k in range(3)),
        analyst=Member("analyst", ANALYST.public),
    )


def make_bundle(path: Path, k: int, *, rows: int = 30, seed: int = 0) -> bytes:
    """Site k's bundle; another seed makes another bundle of the same site."""
    study, rng = make_study(), np.random.default_rng([seed, k])
    anchor = make_anchor(R, H, rng=np.random.default_rng(0))
    secret, table = RigidMap.sample(H, rng=rng), rng.uniform(-1, 1, (rows, H))
    write_bundle(
        path,
        study,
        representation=secret.apply(table),
        anchor_representation=secret.apply(anchor) + V * rng.standard_normal(anchor.shape),
        labels=(table[:, 0] > 0).astype(np.int64),
        signer=KEYS[k],
    )
    return path.read_bytes()


@dataclass
class Store:
    """A store on loopback that does what its script says, one entry a request, and then what it should.

    Attributes
    ----------
    script : list of str or (int, bytes)
        "drop": hang up half-way. "early": say 403 and hang up without reading. "silent": say nothing. "etag": take it, and
        tell another checksum.
        "away": send on to another path; an address: send on there. Or a status and a body, and how long to wait.
    taken : list of bytes
        What came whole.
    seen : list of (str, dict)
        Path and headers of every request.
    """

    port: int = 0
    script: list[Any] = field(default_factory=list)
    taken: list[bytes] = field(default_factory=list)
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/ward/inbox/site-0.bundle?X-Amz-Expires=600&{SECRET}"


def handler_of(store: Store) -> type[Handler]:
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
            elif step == "away":
                self.answer(307, b"", location=f"{self.path}&moved=1")
            else:
                store.taken.append(data)
                checksum = hashlib.md5(data if step == "take" else b"another").hexdigest()
                self.answer(200, b"", etag=f'"{checksum}"', **store.extra)

    return Scripted


@pytest.fixture
def store() -> Iterator[Store]:
    found = Store()
    with serving(handler_of(found)) as found.port:
        yield found


@pytest.fixture
def memory() -> Iterator[Any]:
    """The file system in memory, empty."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


# addresses


def test_what_is_shown_of_an_address_has_no_secret() -> None:
    address = "https://user:pass@store.example/b/k.bundle?X-Amz-Credential=AKIA&X-Amz-Signature=abc#here"
    assert redact_address(address) == "https://store.example/b/k.bundle"
    assert redact_command(f"mooring share t.csv --to '{address}' --labels") == (
        "mooring share t.csv --to 'https://store.example/b/k.bundle?…' --labels"
    )
    assert redact_command("mooring share t.csv --to s3://ward/inbox/") == "mooring share t.csv --to s3://ward/inbox/"
    assert redact_address("folder/what?.bundle") == "folder/what?.bundle"
    assert redact_address("sftp://bob@host/in") == "sftp://host/in"


ODD = {
    "sftp://bob:p@5ec2e7@host/in/x.bundle": ("sftp://host/in/x.bundle", "sftp://host/in/x.bundle"),
    "sftp://bob:it's5ec2e7@host/x": ("sftp://host/x", "sftp://host/x"),
    "ftp://bob:pa?5ec2e7@host": ("ftp://…", "ftp://…"),
    "ftp://bob:5ec2e7?ss@host": ("ftp://…", "ftp://…"),
    "https://h/x?a=5'5ec2e7&z=1 5ec2e7": ("https://h/x", "https://h/x?…"),
    "s3://KEY:se/5ec2e7@ward/in/": ("s3://…", "s3://…"),
    "s3://KEY:5ec2e7/cret@ward/in/": ("s3://…", "s3://…"),
    "https://h/x?for=a@b.example&sig=5ec2e7": ("https://…", "https://…"),
    "https://h/x#5ec2e7": ("https://h/x", "https://h/x?…"),
    "bob:5ec2e7@host://x": ("…", "…"),
    "simplecache::s3://KEY:5ec2e7@ward/in": ("simplecache::s3://ward/in", "simplecache::s3://ward/in"),
}


@pytest.mark.parametrize("address", ODD)
def test_odd_passwords_are_not_shown_either(address: str) -> None:
    """Neither in messages nor in records, in which other words stand around them."""
    message, record = ODD[address]
    assert redact_address(address) == message
    assert redact_word(f"--to={address}").removeprefix("--to=") == record
    words = ["mooring", "share", "it's.csv", "--to", address, "--labels"]
    found = redact_command(shlex.join(words))
    assert shlex.split(found) == [*words[:4], record, "--labels"]
    assert redact_command(found) == found
    if " " not in address:  # else nobody can say where it ends
        assert "5ec2e7" not in redact_command(f"mooring share --to '{address}")
        assert "5ec2e7" not in redact_command(f"mooring share --to {address}")
    assert "5ec2e7" not in read_scheme(address)


def test_an_address_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.address").write_text(" https://store.example/x?y=1\n")
    assert read_address(f"@{tmp_path / 'a.address'}") == "https://store.example/x?y=1"
    with pytest.raises(StorageError, match="after the @"):
        read_address(f"@{tmp_path / 'none'}")
    for content in (b"", b"https://a\nhttps://b", b"\xff\xfe", b"x" * 20_000):
        (tmp_path / "a.address").write_bytes(content)
        with pytest.raises(InputError, match="one line"):
            read_address(f"@{tmp_path / 'a.address'}")


def test_files_and_urls_are_told_apart() -> None:
    assert is_url("s3://b/k")
    assert not is_url("file:///tmp/a%20b")
    assert local_path("file:///tmp/a%20b") == Path("/tmp/a b")
    assert local_path("a%20b") == Path("a%20b")


# what may leave


def test_only_bundles_and_anchor_files_are_sent(tmp_path: Path, store: Store) -> None:
    Vault.create(tmp_path / "vault")
    (tmp_path / "table.csv").write_text("age,ill\n41,yes\n")
    for path in (tmp_path / "vault" / "identity.json", tmp_path / "table.csv"):
        with pytest.raises(RefusedError, match="nothing else is sent"):
            send_file(path, store.address)
    with pytest.raises(RefusedError, match="a vault never leaves"):
        send_file(tmp_path / "vault", store.address)
    with pytest.raises(StorageError, match="no plain file"):
        send_file(tmp_path / "nowhere.bundle", store.address)
    assert store.seen == []


@pytest.mark.parametrize("harm", ["cut", "longer", "bit"])
def test_a_bundle_that_is_not_whole_is_not_sent(harm: str, tmp_path: Path, store: Store) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0)
    changed = {"cut": data[:-1], "longer": data + b"\0", "bit": data[:-1] + bytes([data[-1] ^ 1])}[harm]
    (tmp_path / "a.bundle").write_bytes(changed)
    with pytest.raises(RefusedError, match="cut short, or not as it was signed"):
        send_file(tmp_path / "a.bundle", store.address)
    assert store.seen == []


def test_an_anchor_file_may_be_sent(tmp_path: Path, store: Store) -> None:
    vaults = [Vault.create(tmp_path / f"vault-{k}") for k in range(2)]
    study = make_study()
    study = Study(
        **{name: getattr(study, name) for name in ("name", "nonce", "columns", "label", "method", "n_components")},
        n_anchor_rows=R,
        anchor_noise_scale=V,
    ).with_members(
        [Member.from_vault(f"site-{k}", vault) for k, vault in enumerate(vaults)], Member("analyst", ANALYST.public)
    )
    deal_anchor(vaults[0], study, tmp_path / "trial.anchor")
    sent = send_file(tmp_path / "trial.anchor", store.address)
    assert sent.kind == "anchor"
    assert store.taken == [(tmp_path / "trial.anchor").read_bytes()]


# a presigned address


def test_a_put_carries_the_file_its_length_and_nothing_else(tmp_path: Path, store: Store) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0)
    done: list[tuple[float, float]] = []
    sent = send_file(tmp_path / "a.bundle", store.address, progress=lambda *now: done.append(now))
    assert store.taken == [data]
    assert (sent.bytes, sent.digest, sent.tries, sent.confirmed) == (
        len(data),
        hashlib.sha256(data).hexdigest(),
        1,
        True,
    )
    assert sent.to == f"http://127.0.0.1:{store.port}/ward/inbox/site-0.bundle"
    ((path, headers),) = store.seen
    assert path.endswith(SECRET)
    assert headers["Content-Length"] == str(len(data))
    assert {name.lower() for name in headers} == {"host", "accept-encoding", "content-length"}
    assert done[-1] == (len(data), len(data))


@pytest.mark.parametrize(
    "script",
    [
        [(503, b""), (503, b"")],
        ["drop"],
        ["drop", "drop", "drop"],
        [(429, b""), (500, b"")],
        [(400, b"<Code>RequestTimeout</Code>")],
        ["etag"],
        ["away"],
    ],
    ids=str,
)
def test_what_breaks_off_is_sent_again_whole_and_identical(script: list[Any], tmp_path: Path, store: Store) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0, rows=40_000)
    store.script, tries = list(script), len([step for step in script if step != "away"]) + 1
    sent = send_file(tmp_path / "a.bundle", store.address, waits=QUICK)
    assert sent.tries == tries
    assert store.taken[-1] == data
    assert sent.digest == hashlib.sha256(data).hexdigest()
    assert len(store.seen) == len(script) + 1


def test_it_waits_longer_each_time_and_as_long_as_it_is_asked_to(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bundle(tmp_path / "a.bundle", 0)
    waited: list[float] = []
    monkeypatch.setattr(stores.time, "sleep", waited.append)
    store.script = [(503, b"")] * 4
    with pytest.raises(StorageError, match="the store answered 503"):
        send_file(tmp_path / "a.bundle", store.address)
    assert waited == list(stores.WAITS)
    assert list(stores.WAITS) == sorted(stores.WAITS)
    assert len(store.seen) == 4
    assert store.taken == []
    waited.clear()
    store.script = [(503, b"", "7"), (429, b"", "100000"), (503, b"", "soon")]
    assert send_file(tmp_path / "a.bundle", store.address).tries == 4
    assert waited == [7.0, 60.0, stores.WAITS[2]]


def test_a_store_that_never_agrees_on_the_checksum_is_an_error(tmp_path: Path, store: Store) -> None:
    make_bundle(tmp_path / "a.bundle", 0)
    store.script = ["etag"] * 4
    with pytest.raises(StorageError, match="another checksum"):
        send_file(tmp_path / "a.bundle", store.address, waits=QUICK)
    store.extra, store.script = {"x_amz_server_side_encryption": "aws:kms"}, ["etag"]
    assert not send_file(tmp_path / "a.bundle", store.address, waits=QUICK).confirmed  # under a key, an ETag is no MD5


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((403, DENIED), "the store refuses it (403, AccessDenied)"),
        ((403, EXPIRED), "the address has expired (403, AccessDenied)"),
        ((404, b"<Code>NoSuchBucket</Code>"), "there is no such place (404, NoSuchBucket)"),
        ((400, b"\xff" * 100), "the store refuses it (400)"),
        ((400, b"<Code>EntityTooLarge</Code>"), "no file of this size in one piece"),
        ((301, b"<Code>PermanentRedirect</Code>"), "elsewhere (301, PermanentRedirect)"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_refusal_is_told_at_once_with_a_cure_and_without_a_secret(
    answer: tuple[int, bytes], told: str, tmp_path: Path, store: Store
) -> None:
    make_bundle(tmp_path / "a.bundle", 0)
    store.script = [answer]
    with pytest.raises(StorageError) as caught:
        send_file(tmp_path / "a.bundle", store.address)
    assert told in str(caught.value)
    assert "Ask the analyst" in caught.value.cure
    assert "X-Amz" not in str(caught.value)
    assert "5ec2e7" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(store.seen) == 1


def test_a_store_that_refuses_before_it_has_read_everything_is_heard(tmp_path: Path, store: Store) -> None:
    make_bundle(tmp_path / "a.bundle", 0, rows=400_000)  # more than the sockets hold
    store.script = ["early"]
    with pytest.raises(StorageError, match=r"refuses it \(403, AccessDenied\)"):
        send_file(tmp_path / "a.bundle", store.address, waits=())


def test_nobody_there_and_nobody_who_answers(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, refusing_port: int
) -> None:
    make_bundle(tmp_path / "a.bundle", 0)
    with pytest.raises(StorageError, match="the store cannot be reached"):
        send_file(tmp_path / "a.bundle", f"http://127.0.0.1:{refusing_port}/x?{SECRET}", waits=QUICK)
    monkeypatch.setattr(putting, "TIMEOUT", 0.1)
    store.script = ["silent"] * 4
    with pytest.raises(StorageError, match="did not answer in time"):
        send_file(tmp_path / "a.bundle", store.address, waits=QUICK)
    assert len(store.seen) == 4


def test_a_file_that_changes_on_its_way_is_not_called_sent(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, rows in ((1, 30), (0, 29)):
        make_bundle(tmp_path / "a.bundle", 0)
        other = make_bundle(tmp_path / "b.bundle", 0, seed=seed, rows=rows)
        with monkeypatch.context() as patched:
            patched.setattr(transfer, "check_parcel", afterwards(lambda: (tmp_path / "a.bundle").write_bytes(other)))  # noqa: B023
            with pytest.raises(StorageError, match="changed while it was sent"):
                send_file(tmp_path / "a.bundle", store.address, waits=())


def afterwards(action: Callable[[], Any]) -> Callable[..., Any]:
    """What checks a file, and something that happens right after it."""
    really = check_parcel

    def call(path: Path, file: Any) -> Any:
        parcel = really(path, file)
        action()
        return parcel

    return call


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
    tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bundle(tmp_path / "a.bundle", 0)
    other, put = make_bundle(tmp_path / "b.bundle", 0, seed=1), type(memory).put_file

    def changing(self: Any, source: str, target: str, **rest: Any) -> None:
        (tmp_path / "a.bundle").write_bytes(other)  # of the same size, so that the store's size tells nothing
        put(self, source, target, **rest)

    monkeypatch.setattr(type(memory), "put_file", changing)
    with pytest.raises(StorageError, match="changed while it was sent"):
        send_file(tmp_path / "a.bundle", "memory://inbox/", waits=QUICK)
    assert memory.store == {}


def test_only_the_file_that_was_meant_is_sent(tmp_path: Path, store: Store) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0)
    with pytest.raises(StorageError, match="changed before it was sent"):
        send_file(tmp_path / "a.bundle", store.address, digest="0" * 64)
    assert store.seen == []
    send_file(tmp_path / "a.bundle", store.address, digest=hashlib.sha256(data).hexdigest())
    assert store.taken == [data]


def test_a_store_on_this_machine_cannot_send_a_bundle_on_in_the_open(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{store.port}")  # all that is sent on would come here
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    elsewhere = f"http://store.invalid/y.bundle?{SECRET}"
    store.script = [elsewhere]
    with pytest.raises(RefusedError, match=r"http://store\.invalid, .*--allow-http") as caught:
        send_file(tmp_path / "a.bundle", store.address, waits=())
    assert "5ec2e7" not in str(caught.value)
    assert store.taken == []
    store.script = [elsewhere]
    sent = send_file(tmp_path / "a.bundle", store.address, allow_http=True, waits=())
    assert sent.to == "http://store.invalid/y.bundle"  # where it went in the end
    assert store.taken == [data]
    store.script = [elsewhere, (403, DENIED)]
    with pytest.raises(StorageError, match=r"http://store\.invalid/y\.bundle cannot be written"):
        send_file(tmp_path / "a.bundle", store.address, allow_http=True, waits=())


@pytest.mark.parametrize(
    "address",
    ["simplecache::http://store.invalid/inbox", "memory://x::http://store.invalid/inbox", "filecache::memory://inbox/"],
)
def test_an_address_made_of_several_is_refused(address: str, tmp_path: Path, memory: Any) -> None:
    make_bundle(tmp_path / "a.bundle", 0)
    for call in (lambda: send_file(tmp_path / "a.bundle", address), lambda: require_address(address, allow_http=True)):
        with pytest.raises(RefusedError, match="made of several"):
            call()
    assert memory.store == {}


def test_other_ways_in_the_open_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_bundle(tmp_path / "a.bundle", 0)
    asked: list[int] = []
    monkeypatch.setattr(fsspec.core, "url_to_fs", raises(OSError, asked))
    for address in ("ftp://bob:5ec2e7@store.invalid/in", "FTP://store.invalid/in", "webhdfs://store.invalid/in"):
        with pytest.raises(RefusedError, match="--allow-http") as caught:
            send_file(tmp_path / "a.bundle", address)
        assert "5ec2e7" not in str(caught.value)
    assert asked == []
    with pytest.raises(StorageError, match="could not be reached"):
        send_file(tmp_path / "a.bundle", "ftp://store.invalid/in", allow_http=True)


def test_a_stores_own_address_in_the_open_is_refused(
    tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bundle(tmp_path / "a.bundle", 0)
    for endpoint in ("http://minio.example:9000", "HTTP://10.0.0.1"):
        client = SimpleNamespace(meta=SimpleNamespace(endpoint_url=endpoint))
        monkeypatch.setattr(type(memory), "s3", client, raising=False)
        with pytest.raises(RefusedError, match="AWS_ENDPOINT_URL"):
            send_file(tmp_path / "a.bundle", "memory://inbox/")
    assert memory.store == {}
    for fine in ("https://minio.example", "http://127.0.0.1:9000"):
        client.meta.endpoint_url = fine
        send_file(tmp_path / "a.bundle", "memory://inbox/")
    client.meta.endpoint_url = "http://minio.example"
    send_file(tmp_path / "a.bundle", "memory://inbox/", allow_http=True)


@pytest.mark.parametrize("host", ["a..b", f"{'x' * 64}.example", ".example", "xn--a\x2e\x2e"])
def test_a_host_that_no_system_can_look_up_is_said_to_be_one(host: str, tmp_path: Path, store: Store) -> None:
    make_bundle(tmp_path / "a.bundle", 0)
    with pytest.raises(InputError, match="presigned address"):
        send_file(tmp_path / "a.bundle", f"https://{host}/x?{SECRET}", waits=())
    store.script = [f"https://{host}/x?{SECRET}"]
    with pytest.raises(StorageError, match=r"cannot be used|nothing can be sent"):
        send_file(tmp_path / "a.bundle", store.address, waits=())


@pytest.mark.parametrize("proxy", ["http://[5ec2e7", "http://me:5ec2e7@host:99999", "http://5ec2e7..b:80", "http://"])
def test_a_proxy_that_is_none_is_named_but_not_quoted(
    proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bundle(tmp_path / "a.bundle", 0)
    monkeypatch.setenv("https_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(StorageError, match="https_proxy names") as caught:
        send_file(tmp_path / "a.bundle", f"https://store.invalid/x?{SECRET}", waits=())
    assert "5ec2e7" not in str(caught.value)


def test_a_proxy_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusing_port: int
) -> None:
    make_bundle(tmp_path / "a.bundle", 0)
    monkeypatch.setenv("https_proxy", f"http://me:5ec2e7@127.0.0.1:{refusing_port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(StorageError, match="through the proxy that https_proxy names") as caught:
        send_file(tmp_path / "a.bundle", f"https://store.invalid/x?{SECRET}", waits=())
    assert "5ec2e7" not in str(caught.value)


def test_a_bundle_does_not_go_over_an_open_connection_unless_told(tmp_path: Path) -> None:
    make_bundle(tmp_path / "a.bundle", 0)
    with pytest.raises(RefusedError, match="--allow-http"):
        send_file(tmp_path / "a.bundle", f"http://store.invalid/x?{SECRET}")
    with pytest.raises(StorageError, match="cannot be reached"):
        send_file(tmp_path / "a.bundle", f"http://store.invalid/x?{SECRET}", allow_http=True, waits=())


@pytest.mark.parametrize("address", ["https://", "https://host:99999/x", "https://user:pw@host/x", "https://höst/x"])
def test_an_address_that_cannot_be_one(address: str, tmp_path: Path) -> None:
    make_bundle(tmp_path / "a.bundle", 0)
    with pytest.raises(InputError, match="presigned address") as caught:
        send_file(tmp_path / "a.bundle", address)
    assert "pw" not in str(caught.value)


def test_a_proxy_of_the_environment_is_used(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0)
    monkeypatch.setenv("http_proxy", f"http://me:pass@127.0.0.1:{store.port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    send_file(tmp_path / "a.bundle", f"http://store.invalid/x?{SECRET}", allow_http=True, waits=())
    assert store.taken == [data]
    ((path, headers),) = store.seen
    assert path == f"http://store.invalid/x?{SECRET}"
    assert headers["Host"] == "store.invalid"
    assert headers["Proxy-Authorization"].startswith("Basic ")


def certificate_in(folder: Path) -> Path:
    """A certificate of this machine's own, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    found = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "certificate.pem").write_bytes(found.public_bytes(serialization.Encoding.PEM) + secret)
    return folder / "certificate.pem"


def test_over_tls_a_certificate_must_be_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, pem, found = make_bundle(tmp_path / "a.bundle", 0), certificate_in(tmp_path), Store()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with serving(handler_of(found), tls=context) as port:
        address = f"https://localhost:{port}/x?{SECRET}"
        with pytest.raises(StorageError, match="certificate is not one that this machine trusts"):
            send_file(tmp_path / "a.bundle", address)
        assert found.seen == []
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        assert send_file(tmp_path / "a.bundle", address, waits=()).confirmed
        assert found.taken == [data]


# folders and stores


def test_a_folder_gets_a_copy_and_nobodys_file_is_written_over(tmp_path: Path) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0)
    (tmp_path / "inbox").mkdir()
    for to in ("inbox", "inbox/", "inbox/other.bundle"):
        sent = send_file(tmp_path / "a.bundle", tmp_path / to if to == "inbox" else f"{tmp_path}/{to}")
        assert Path(sent.to).read_bytes() == data
    assert sorted(path.name for path in (tmp_path / "inbox").iterdir()) == ["a.bundle", "other.bundle"]
    other = make_bundle(tmp_path / "inbox" / "a.bundle", 1)
    with pytest.raises(InputError, match="another file of this name"):
        send_file(tmp_path / "a.bundle", f"file://{tmp_path}/inbox/")
    assert (tmp_path / "inbox" / "a.bundle").read_bytes() == other
    with pytest.raises(StorageError, match="Check the path"):
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
    found = {}
    place = tmp_path / "inbox"
    to = {"folder": str(place), "file": f"file://{place}", "local": f"local://{place}"}.get(to, to)
    for k, name in ((0, "a.bundle"), (1, "plain")):  # the second one's name gets what align looks for
        found[f"a{k}.bundle" if k == 0 else "plain.bundle"] = make_bundle(tmp_path / name, k)
    (tmp_path / "a.bundle").rename(tmp_path / "a0.bundle")
    if to.startswith("memory"):
        for name in ("a0.bundle", "plain"):
            send_file(tmp_path / name, to)
        assert {path.rsplit("/", 1)[1]: memory.cat_file(path) for path in memory.store} == found
        return
    with pytest.raises(StorageError, match="folder is not there"):
        send_file(tmp_path / "a0.bundle", to)
    assert not place.exists()
    place.mkdir()
    for name in ("a0.bundle", "plain"):
        send_file(tmp_path / name, to)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == found


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
            with pytest.raises(InputError, match="another file of this name"):
                send_file(tmp_path / "a.bundle", to)
        assert memory.cat_file("/inbox/a.bundle") == others
    assert written == []
    memory.pipe_file("/inbox/a.bundle", data[:1000])  # what an upload leaves that broke off
    assert send_file(tmp_path / "a.bundle", "memory://inbox").tries == 1
    assert memory.cat_file("/inbox/a.bundle") == data
    assert send_file(tmp_path / "a.bundle", "memory://inbox").there_before
    assert len(written) == 1


def test_a_store_tells_what_it_holds_or_not(tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0)
    memory.pipe_file("/inbox/a.bundle", make_bundle(tmp_path / "b.bundle", 1))
    told: dict[str, Any] = {"name": "/inbox/a.bundle", "type": "file", "size": len(data)}
    monkeypatch.setattr(type(memory), "isdir", lambda *_: False)
    monkeypatch.setattr(type(memory), "info", lambda *_, **__: told)
    monkeypatch.setattr(type(memory), "open", raises(PermissionError))
    told["ETag"] = f'"{hashlib.md5(data).hexdigest()}"'
    assert send_file(tmp_path / "a.bundle", "memory://inbox/a.bundle").there_before
    told["ETag"] = '"' + "0" * 32 + '"'
    with pytest.raises(InputError, match="another file of this name"):
        send_file(tmp_path / "a.bundle", "memory://inbox/a.bundle")
    monkeypatch.undo()
    for trouble in (PermissionError("5ec2e7"), OSError("5ec2e7"), NotImplementedError):  # the store will not say: go on
        memory.pipe_file("/inbox/a.bundle", b"?")
        with monkeypatch.context() as patched:
            patched.setattr(type(memory), "info", raises(trouble))
            patched.setattr(type(memory), "isdir", raises(trouble))
            assert not send_file(tmp_path / "a.bundle", "memory://inbox/a.bundle", waits=()).confirmed
        assert memory.cat_file("/inbox/a.bundle") == data


@pytest.mark.parametrize("scheme", ["local://", "file://", "LOCAL://"])
def test_another_name_for_this_machine_changes_nothing(scheme: str, tmp_path: Path) -> None:
    make_bundle(tmp_path / "a.bundle", 0)
    (tmp_path / "inbox").mkdir()
    other = make_bundle(tmp_path / "inbox" / "a.bundle", 1)
    with pytest.raises(InputError):  # of one that fsspec does not know in capitals, that it is unknown
        send_file(tmp_path / "a.bundle", f"{scheme}{tmp_path}/inbox/a.bundle")
    assert (tmp_path / "inbox" / "a.bundle").read_bytes() == other


def test_a_store_that_breaks_off_or_keeps_half_gets_it_again(
    tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0)
    put, steps = type(memory).put_file, ["break", "half", "whole"]

    def faulty(self: Any, source: str, target: str, **rest: Any) -> None:
        match steps.pop(0):
            case "break":
                raise OSError("connection reset, token=5ec2e7")
            case "half":
                self.pipe_file(target, data[: len(data) // 2])
            case _:
                put(self, source, target, **rest)

    monkeypatch.setattr(type(memory), "put_file", faulty)
    assert send_file(tmp_path / "a.bundle", "memory://inbox/", waits=QUICK).tries == 3
    assert memory.cat_file("/inbox/a.bundle") == data
    for trouble, told, tries in (
        (PermissionError("5ec2e7"), r"refuses access \(403\)", 1),
        (FileNotFoundError("5ec2e7"), r"nothing is there \(404\)", 1),
        (type("NoCredentialsError", (Exception,), {})("5ec2e7"), "no credentials", 1),
        (OSError("5ec2e7"), "broke off", 4),
    ):
        asked: list[int] = []
        memory.store.clear()
        monkeypatch.setattr(type(memory), "put_file", raises(trouble, asked))
        with pytest.raises(StorageError, match=told) as caught:
            send_file(tmp_path / "a.bundle", "memory://inbox/", waits=QUICK)
        assert "5ec2e7" not in str(caught.value)
        assert len(asked) == tries


def test_a_kind_of_address_that_is_not_installed_or_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_bundle(tmp_path / "a.bundle", 0)
    with pytest.raises(InputError, match="fsspec knows"):
        send_file(tmp_path / "a.bundle", "nonsense://x/")
    monkeypatch.setattr(fsspec.core, "url_to_fs", raises(ImportError))
    with pytest.raises(MissingExtraError, match=r"pip install 'mooring\[s3\]'"):
        send_file(tmp_path / "a.bundle", "s3://ward/inbox/")
    with pytest.raises(InputError, match="Install the package"):
        collect(make_study(), "gs://ward/inbox", tmp_path / "work")


# intake


@pytest.fixture
def inbox(memory: Any, tmp_path: Path) -> Callable[..., bytes]:
    def fill(k: int, **rest: Any) -> bytes:
        data = make_bundle(tmp_path / "made", k, **rest)
        memory.pipe_file(f"/inbox/site-{k}.bundle", data)
        return data

    for k in range(3):
        fill(k)
    return fill


def names(intake: Any) -> list[str]:
    return [bundle.member.name for bundle in intake.bundles]


def test_what_was_accepted_is_not_downloaded_again(
    inbox: Callable[..., bytes], memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, work = make_study(), tmp_path / "work"
    opened: list[str] = []
    really = type(memory).open
    monkeypatch.setattr(
        type(memory), "open", lambda self, path, *rest, **more: opened.append(path) or really(self, path, *rest, **more)
    )
    assert names(collect(study, "memory://inbox", work)) == ["site-0", "site-1", "site-2"]
    assert len(opened) == 3
    again = collect(study, "memory://inbox", work)
    assert names(again) == ["site-0", "site-1", "site-2"]
    assert again.set_aside == ()
    assert len(opened) == 3
    damaged = sorted((work / "received").iterdir())[0]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")  # the copy here is not what was accepted any more
    assert names(collect(study, "memory://inbox", work)) == ["site-0", "site-1", "site-2"]
    assert len(opened) == 4
    record = json.loads((work / "intake.json").read_text())
    for entry in record["copies"].values():
        entry["mark"] = ""  # a listing that told no more than a size
    (work / "intake.json").write_text(json.dumps(record))
    assert names(collect(study, "memory://inbox", work)) == ["site-0", "site-1", "site-2"]
    assert len(opened) == 7


def test_another_bundle_at_the_same_address_does_not_undo_the_first(
    inbox: Callable[..., bytes], tmp_path: Path, memory: Any
) -> None:
    study, work = make_study(), tmp_path / "work"
    first = {bundle.member.name: bundle.digest for bundle in collect(study, "memory://inbox", work).bundles}
    inbox(1, seed=9)
    for _ in range(2):
        intake = collect(study, "memory://inbox", work)
        assert {bundle.member.name: bundle.digest for bundle in intake.bundles} == first
        assert [(entry.file, entry.reason) for entry in intake.set_aside] == [
            ("site-1.bundle", "another bundle of site-1 was accepted before, and the first one counts")
        ]
        assert len(intake.bundles[1].representation()) == 30
    inbox(1)  # the first bytes again, at another time
    intake = collect(study, "memory://inbox", work)
    assert intake.set_aside == ()
    assert names(intake) == ["site-0", "site-1", "site-2"]
    memory.rm_file("/inbox/site-1.bundle")  # who takes a bundle back is not counted any more
    intake = collect(study, "memory://inbox", work)
    assert names(intake) == ["site-0", "site-2"]
    assert intake.gone == ("site-1",)


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


@pytest.mark.parametrize("problem", [None, OSError("reset")], ids=["short", "broken"])
def test_half_a_file_is_fetched_again_and_then_set_aside(
    problem: Exception | None,
    inbox: Callable[..., bytes],
    memory: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stores, "WAITS", QUICK)
    study, work, data = make_study(), tmp_path / "work", memory.cat_file("/inbox/site-1.bundle")
    really, faults = type(memory).open, [2]

    def opened(self: Any, path: str, *rest: Any, **more: Any) -> Any:
        if "site-1" in path and faults[0] > 0:
            faults[0] -= 1
            return Cut(data, problem)
        return really(self, path, *rest, **more)

    monkeypatch.setattr(type(memory), "open", opened)
    intake = collect(study, "memory://inbox", tmp_path / "other")
    assert (names(intake), intake.set_aside, faults) == (["site-0", "site-1", "site-2"], (), [0])
    faults[0] = 4
    intake = collect(study, "memory://inbox", work)
    assert names(intake) == ["site-0", "site-2"]
    assert [(entry.file, entry.reason) for entry in intake.set_aside] == [("site-1.bundle", "it came only in part")]
    assert len(list((work / "received").iterdir())) == 2
    intake = collect(study, "memory://inbox", work)  # nothing is lost: the next run takes it
    assert (names(intake), intake.set_aside) == (["site-0", "site-1", "site-2"], ())
    inbox(1)  # written again, so it is fetched again; what was accepted stays
    faults[0] = 4
    intake = collect(study, "memory://inbox", work)
    assert names(intake) == ["site-0", "site-1", "site-2"]
    assert [entry.reason for entry in intake.set_aside] == ["it came only in part"]


def test_what_is_not_taken_does_not_stay(inbox: Callable[..., bytes], memory: Any, tmp_path: Path) -> None:
    study, work = make_study(), tmp_path / "work"
    memory.pipe_file("/inbox/noise.bundle", bytes(1000))
    memory.pipe_file("/inbox/site-1.bundle", memory.cat_file("/inbox/site-1.bundle")[:-1])
    for _ in range(2):
        intake = collect(study, "memory://inbox", work)
        assert names(intake) == ["site-0", "site-2"]
        assert {entry.file for entry in intake.set_aside} == {"noise.bundle", "site-1.bundle"}
        assert len(list((work / "received").iterdir())) == 2
    inbox(1)
    inbox(2, seed=9)  # and a second one of the same site, which does not count
    intake = collect(study, "memory://inbox", work)
    assert names(intake) == ["site-0", "site-1", "site-2"]
    assert len(list((work / "received").iterdir())) == 3
    assert all(len(bundle.representation()) == 30 for bundle in intake.bundles)


def test_one_file_that_fills_the_disk_does_not_keep_the_others_out(
    inbox: Callable[..., bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, really, trouble = make_study(), receiving.download, [errno.ENOSPC]

    def full(system: Any, name: str, target: Path, **rest: Any) -> str | None:
        if "site-1" in name:
            with open_atomically(target, what=rest["what"]):
                raise OSError(trouble[0], "")
        return really(system, name, target, **rest)

    monkeypatch.setattr(receiving, "download", full)
    for trouble[0], told in ((errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "the quota is used up")):
        intake = collect(study, "memory://inbox", tmp_path / "work")
        assert names(intake) == ["site-0", "site-2"]
        assert [(entry.file, entry.reason) for entry in intake.set_aside] == [
            ("site-1.bundle", f"there is no room for it here: {told}")
        ]
    trouble[0] = errno.EROFS  # which concerns all of them
    with pytest.raises(StorageError, match="read-only"):
        collect(study, "memory://inbox", tmp_path / "work")


def test_no_try_relies_on_what_a_listing_told_before(
    inbox: Callable[..., bytes], memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(type(memory), "invalidate_cache", lambda *_: steps.append("forget"))
    monkeypatch.setattr(type(memory), "open", lambda *_, **__: steps.append("open") or Cut(b"xx", OSError("reset")))
    reason = stores.download(
        memory, "/inbox/site-0.bundle", tmp_path / "x", size=None, most_bytes=10, what="x", waits=QUICK
    )
    assert reason == "it came only in part"
    assert steps == ["forget", "open"] * 4


def test_a_store_that_does_not_hand_out_or_list(
    inbox: Callable[..., bytes], memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, work = make_study(), tmp_path / "work"
    asked: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(type(memory), "open", raises(PermissionError("5ec2e7"), asked))
        intake = collect(study, "memory://inbox", work)
    assert {entry.reason for entry in intake.set_aside} == {"the store refuses to hand it out"}
    assert len(asked) == 3
    for trouble, told in (
        (PermissionError("5ec2e7"), r"refuses access \(403\)"),
        (FileNotFoundError("5ec2e7"), r"nothing is there \(404\)"),
        (RuntimeError("5ec2e7"), "could not be reached"),
    ):
        monkeypatch.setattr(type(memory), "ls", raises(trouble))
        with pytest.raises(StorageError, match=told) as caught:
            collect(study, "memory://inbox", work)
        assert "memory://inbox cannot be listed" in str(caught.value)
        assert "5ec2e7" not in str(caught.value)


# results


def test_results_travel_through_a_store_unchanged(
    inbox: Callable[..., bytes], memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, work = make_study(), tmp_path / "work"
    align_bundles(study, collect(study, "memory://inbox", work).bundles, work)
    deliver(study, work, tmp_path / "results", ANALYST)
    done: list[tuple[float, float]] = []
    deliver(study, work, "memory://results/", ANALYST, progress=lambda *now: done.append(now))
    assert done == [(1, 3), (2, 3), (3, 3)]
    for member in study.participants:
        file = tmp_path / "results" / member.name / "map.safetensors"
        assert memory.cat_file(f"/results/{member.name}/map.safetensors") == file.read_bytes()
    with fetch_result("memory://results/site-1", study) as place:
        assert place.stat().st_mode & 0o777 == 0o700
        assert [path.name for path in place.iterdir()] == ["map.safetensors"]
        found = read_result(place, study, study.participants[1])
    assert not place.exists()
    here = read_result(tmp_path / "results" / "site-1", study, study.participants[1])
    assert np.array_equal(found.orthogonal, here.orthogonal)
    with fetch_result(tmp_path / "results" / "site-1", study) as place:
        assert place == tmp_path / "results" / "site-1"
    for address, told in (
        ("memory://results/nobody", "it is not there any more"),
        ("memory://large", "larger than such a file may be"),
    ):
        memory.pipe_file("/large/map.safetensors", bytes(100_000))
        with pytest.raises(StorageError, match=told), fetch_result(address, study):
            pass
    for call in (
        lambda: deliver(study, work, "https://store.example/results", ANALYST),
        lambda: fetch_result("https://store.example/results", study).__enter__(),
    ):
        with pytest.raises(InputError, match="one for a single file"):
            call()
    monkeypatch.setattr(type(memory), "put_file", raises(PermissionError("5ec2e7")))
    (work / "delivery.json").unlink()
    with pytest.raises(StorageError, match=r"memory://results/site-0/map.safetensors cannot be written"):
        deliver(study, work, "memory://results", ANALYST)
    assert not (work / "delivery.json").exists()


# invitations


def test_periods_and_places_that_cannot_be_signed_for() -> None:
    assert [parse_period(period) for period in ("1m", "12h", "7d")] == [60, 43_200, 604_800]
    for period in ("8d", "0m", "7", "d", "-1d", "1w", ""):
        with pytest.raises(InputError, match="from 1m to 7d"):
            parse_period(period)
    for place in ("inbox", "memory://inbox", "file:///inbox"):
        with pytest.raises(InputError, match="presign"):
            invite(make_study(), place)
    with pytest.raises(InputError, match="one of the roster, got nobody"):
        invite(make_study(), "s3://ward/inbox", only=["nobody"])


def raises(problem: Exception | type[Exception], asked: list[int] | None = None) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        if asked is not None:
            asked.append(1)
        raise problem

    return call


@pytest.fixture
def refusing_port() -> int:
    """A port on which nobody listens."""
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
