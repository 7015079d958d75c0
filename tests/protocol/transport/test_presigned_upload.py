"""PUT to a presigned address: what is sent, what is tried again, and what nobody gets to see."""

import datetime
import hashlib
import http.client
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.transport import object_stores as stores
from mooring.protocol.transport import presigned_upload
from mooring.protocol.transport.object_stores import TransientError
from mooring.protocol.transport.presigned_upload import (
    TIMEOUT,
    Answer,
    _connect,
    _find_proxy,
    _follow_redirect,
    put_file,
)
from mooring.protocol.transport.transfer import send_file
from tests.loopback import serving
from tests.protocol.transport.support import AWAY, DENIED, EXPIRED, QUICK, SECRET, Store, handle_by, make_bundle
from tests.raising import raising


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
        [(400, b"<Code>SlowDown</Code>".rjust(2**14))],
        ["etag"],
        ["away", "moved"],
    ],
    ids=lambda script: " ".join(str(script).split()),
)
def test_what_breaks_off_is_sent_again_whole_and_identical(script: list[Any], tmp_path: Path, store: Store) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0, rows=40_000)
    store.script, tries = list(script), len([step for step in script if step not in AWAY]) + 1
    sent = send_file(tmp_path / "a.bundle", store.address, waits=QUICK)
    assert sent.tries == tries
    assert store.taken[-1] == data
    assert sent.digest == hashlib.sha256(data).hexdigest()
    assert len(store.seen) == len(script) + 1


def test_three_redirects_are_followed_and_no_more(bundle: Path, store: Store) -> None:
    store.script = ["moved"] * 3
    assert send_file(bundle, store.address, waits=QUICK).tries == 1
    store.script = ["moved"] * 4
    with raising(StorageError, "the upload", reason="redirects"):
        send_file(bundle, store.address, waits=QUICK)


def test_it_waits_longer_each_time_and_as_long_as_it_is_asked_to(
    bundle: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(stores.time, "sleep", waited.append)
    store.script = [(503, b"")] * 4
    with raising(StorageError, "the upload", reason="the store answered 503"):
        send_file(bundle, store.address)
    assert waited == [0.5, 2.0, 8.0]  # each four times as long as the one before
    assert len(store.seen) == 4
    assert store.taken == []
    waited.clear()
    store.script = [(503, b"", "7"), (429, b"", "100000"), (503, b"", "soon")]
    assert send_file(bundle, store.address).tries == 4
    assert waited == [7.0, 60.0, 8.0]


def test_a_store_that_never_agrees_on_the_checksum_is_an_error(bundle: Path, store: Store) -> None:
    store.script = ["etag"] * 4
    with raising(StorageError, "the upload", reason="different checksum"):
        send_file(bundle, store.address, waits=QUICK)
    store.extra, store.script = {"x_amz_server_side_encryption": "aws:kms"}, ["etag"]
    assert not send_file(bundle, store.address, waits=QUICK).confirmed  # under a key, an ETag is no MD5


@pytest.mark.parametrize(
    ("answer", "phrase"),
    [
        ((403, DENIED), "the store refuses it (403, AccessDenied)"),
        ((403, EXPIRED), "the address has expired (403, AccessDenied)"),
        ((401, EXPIRED), "the address has expired (401, AccessDenied)"),
        ((400, EXPIRED), "the address has expired (400, AccessDenied)"),
        ((404, EXPIRED), "does not exist (404, AccessDenied)"),
        ((404, b"<Code>NoSuchBucket</Code>"), "does not exist (404, NoSuchBucket)"),
        ((400, b"\xff" * 100), "the store refuses it (400)"),
        ((400, b"<Code>EntityTooLarge</Code>"), "a file of this size in one piece"),
        ((300, b""), "redirects the upload (300)"),
        ((307, b""), "redirects the upload (307)"),  # without saying where to
        ((301, b"<Code>PermanentRedirect</Code>"), "redirects the upload (301, PermanentRedirect)"),
        ((403, b"<Code>SlowDown</Code>".rjust(2**14 + 1)), "the store refuses it (403)"),  # beyond what is read of it
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_refusal_is_told_at_once_with_a_cure_and_without_a_secret(
    answer: tuple[int, bytes], phrase: str, bundle: Path, store: Store
) -> None:
    store.script = [answer]
    with pytest.raises(StorageError) as caught:
        send_file(bundle, store.address)
    assert phrase in str(caught.value)
    assert "Ask the analyst" in caught.value.cure
    assert "X-Amz" not in str(caught.value)
    assert "5ec2e7" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(store.seen) == 1


def test_a_store_that_refuses_before_it_has_read_everything_is_heard(tmp_path: Path, store: Store) -> None:
    make_bundle(tmp_path / "a.bundle", 0, rows=400_000)  # more than the sockets hold
    store.script = ["early"]
    with raising(StorageError, "the upload", reason="refuses it (403, AccessDenied)"):
        send_file(tmp_path / "a.bundle", store.address, waits=())


def test_nobody_there_and_nobody_who_answers(bundle: Path, store: Store, refusing_port: int) -> None:
    with raising(StorageError, "the upload", reason="the store cannot be reached"):
        send_file(bundle, f"http://127.0.0.1:{refusing_port}/x?{SECRET}", waits=QUICK)
    store.script = ["silent"]
    parts, size = urlsplit(store.address), bundle.stat().st_size
    with bundle.open("rb") as file, pytest.raises(TransientError):
        put_file(parts, file, size=size, digest="", timeout=0.1)
    assert len(store.seen) == 1


def test_a_store_may_be_silent_for_a_minute(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts: list[float] = []

    def connect(parts: Any, via: Any, timeout: float) -> Any:
        timeouts.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(presigned_upload, "_connect", connect)
    with raising(StorageError, "the upload", reason="did not answer in time"):
        send_file(bundle, f"http://127.0.0.1/x?{SECRET}", waits=())
    assert timeouts == [60.0]


def test_a_store_on_this_machine_cannot_send_a_bundle_on_in_the_open(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{store.port}")  # all that is sent on would come here
    elsewhere = f"http://store.invalid/y.bundle?{SECRET}"
    store.script = [elsewhere]
    with raising(RefusedError, "the file", reason="http://store.invalid,", cure="--allow-http") as caught:
        send_file(tmp_path / "a.bundle", store.address, waits=())
    assert "5ec2e7" not in str(caught.value)
    assert store.taken == []
    store.script = [elsewhere]
    sent = send_file(tmp_path / "a.bundle", store.address, allow_http=True, waits=())
    assert sent.to == "http://store.invalid/y.bundle"  # where it went in the end
    assert store.taken == [data]
    store.script = [elsewhere, (403, DENIED)]
    with raising(StorageError, "the upload", reason="http://store.invalid/y.bundle cannot be written"):
        send_file(tmp_path / "a.bundle", store.address, allow_http=True, waits=())


@pytest.mark.parametrize("host", ["a..b", f"{'x' * 64}.example", ".example", "xn--a\x2e\x2e"])
def test_a_host_that_no_system_can_look_up_is_said_to_be_one(host: str, bundle: Path, store: Store) -> None:
    with raising(InputError, "address", expected="presigned address"):
        send_file(bundle, f"https://{host}/x?{SECRET}", waits=())
    store.script = [f"https://{host}/x?{SECRET}"]
    with raising(StorageError, "the store"):
        send_file(bundle, store.address, waits=())


@pytest.mark.parametrize(
    "proxy", ["http://[5ec2e7", "http://me:5ec2e7@host:99999", "http://5ec2e7..b:80", "http://", "http://host:0"]
)
def test_a_proxy_that_is_none_is_named_but_not_quoted(
    proxy: str, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    with raising(StorageError, "the proxy", reason="https_proxy does not hold") as caught:
        send_file(bundle, f"https://store.invalid/x?{SECRET}", waits=())
    assert "5ec2e7" not in str(caught.value)


def test_a_proxy_that_is_not_there_is_named(bundle: Path, monkeypatch: pytest.MonkeyPatch, refusing_port: int) -> None:
    monkeypatch.setenv("https_proxy", f"http://me:5ec2e7@127.0.0.1:{refusing_port}")
    with raising(StorageError, "the upload", reason="through the proxy in https_proxy") as caught:
        send_file(bundle, f"https://store.invalid/x?{SECRET}", waits=())
    assert "5ec2e7" not in str(caught.value)


def test_a_bundle_does_not_go_over_an_open_connection_unless_told(bundle: Path) -> None:
    with raising(RefusedError, "the bundle", cure="--allow-http"):
        send_file(bundle, f"http://store.invalid/x?{SECRET}")
    with raising(StorageError, "the upload", reason="cannot be reached"):
        send_file(bundle, f"http://store.invalid/x?{SECRET}", allow_http=True, waits=())


def test_a_proxy_of_the_environment_is_used(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_bundle(tmp_path / "a.bundle", 0)
    monkeypatch.setenv("http_proxy", f"http://me:pass@127.0.0.1:{store.port}")
    send_file(tmp_path / "a.bundle", f"http://store.invalid/x?{SECRET}", allow_http=True, waits=())
    assert store.taken == [data]
    ((path, headers),) = store.seen
    assert path == f"http://store.invalid/x?{SECRET}"
    assert headers["Host"] == "store.invalid"
    assert headers["Proxy-Authorization"].startswith("Basic ")
    monkeypatch.setenv("no_proxy", "store.invalid")
    for host, proxied in (
        ("store.invalid", False),
        ("127.0.0.1", False),
        ("localhost", False),
        ("other.invalid", True),
    ):
        assert (_find_proxy(urlsplit(f"http://{host}/x")) is not None) == proxied


def certificate_in(folder: Path) -> Path:
    """A certificate of this machine's own, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
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
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + secret)
    return folder / "certificate.pem"


def test_over_tls_a_certificate_must_be_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, pem, store = make_bundle(tmp_path / "a.bundle", 0), certificate_in(tmp_path), Store()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with serving(handle_by(store), tls=context) as port:
        address = f"https://localhost:{port}/x?{SECRET}"
        with raising(StorageError, "the store", reason="does not trust its certificate"):
            send_file(tmp_path / "a.bundle", address)
        assert store.seen == []
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        assert send_file(tmp_path / "a.bundle", address, waits=()).confirmed
        assert store.taken == [data]


@pytest.mark.parametrize(
    ("answer", "again", "wait"),
    [
        ((408, "", {}), True, 0),
        ((425, "", {}), True, 0),
        ((429, "", {"retry-after": "17"}), True, 17),
        ((500, "", {"retry-after": "99999999"}), True, 99_999_999),
        ((503, "", {"retry-after": "999999999"}), True, 0),
        ((400, "SlowDown", {"retry-after": "soon"}), True, 0),
        ((430, "", {}), False, 0),
        ((499, "", {}), False, 0),
    ],
)
def test_which_answers_are_worth_another_try_and_when(answer: tuple[int, str, dict], again: bool, wait: float) -> None:
    status, code, headers = answer
    response = Answer(status, code, False, headers, "the store")
    assert (response.is_transient, response.retry_after) == (again, wait)


@pytest.mark.parametrize(
    ("headers", "is_known"),
    [
        ({}, True),
        ({"x-amz-server-side-encryption": "AES256"}, True),
        ({"x-amz-server-side-encryption": "aws:kms"}, False),
        ({"x-amz-server-side-encryption-customer-algorithm": "AES256"}, False),
        ({"etag": '"0123456789abcdef0123456789abcdef-2"'}, False),  # of a file in parts
        ({"etag": ""}, False),
    ],
)
def test_a_tag_is_the_checksum_of_a_file_that_no_key_of_a_customer_encrypts(headers: dict, is_known: bool) -> None:
    headers = {"etag": '"0123456789ABCDEF0123456789abcdef"'} | headers
    checksum = Answer(200, "", False, headers, "the store").checksum
    assert checksum == ("0123456789abcdef" * 2 if is_known else "")


@pytest.mark.parametrize(
    ("status", "words"),
    [(300, "redirects"), (399, "redirects"), (400, "refuses"), (404, "does not exist"), (413, "size")],
)
def test_what_a_refusal_is_said_to_mean(status: int, words: str) -> None:
    assert words in Answer(status, "", False, {}, "the store").explain().reason
    assert "expired" in Answer(status, "", True, {}, "the store").explain().reason


def test_where_a_store_may_send_us_on_to() -> None:
    for start, location, fine in (
        ("https://a.example/x", "https://b.example/y", True),
        ("https://a.example/x", "/y", True),
        ("https://a.example/x", "http://b.example/y", False),
        ("http://a.example/x", "https://b.example/y", True),
        ("https://a.example/x", "https://b.example:0/y", False),
        ("https://a.example/x", "mailto:y", False),
        ("https://a.example/x", "https://[b", False),
        ("https://a.example/x", "https://b.example/ÿ", False),
        ("https://a.example/x", "https://b.example/\x7f", False),
    ):
        if fine:
            assert _follow_redirect(urlsplit(start), location, allow_http=False).scheme == "https"
        else:
            with raising(StorageError, "the store"):
                _follow_redirect(urlsplit(start), location, allow_http=False)


def test_a_connection_goes_straight_or_through_a_proxy() -> None:
    parts = urlsplit("http://store.example:8080/k?sig=1")
    straight, target, headers = _connect(parts, None, TIMEOUT)
    assert (straight.host, straight.port, target, headers) == ("store.example", 8080, "/k?sig=1", {})
    through, target, headers = _connect(parts, urlsplit("http://u:p%40@proxy.example"), TIMEOUT)
    assert (through.host, through.port, target) == ("proxy.example", 80, "http://store.example:8080/k?sig=1")
    assert headers == {"Proxy-Authorization": "Basic dTpwQA=="}
    secure, target, _ = _connect(urlsplit("https://store.example"), urlsplit("http://proxy.example:3128"), TIMEOUT)
    assert (secure.port, secure._tunnel_host, secure._tunnel_port, target) == (3128, "store.example", 443, "/")
    other, _, _ = _connect(urlsplit("https://store.example:8443"), urlsplit("http://proxy.example"), TIMEOUT)
    assert other._tunnel_port == 8443
    _, _, headers = _connect(parts, urlsplit("http://u@proxy.example"), TIMEOUT)  # who has no password
    assert headers == {"Proxy-Authorization": "Basic dTo="}


@pytest.mark.parametrize(
    ("sending", "answer", "reason"),
    [
        (None, 200, ""),
        (BrokenPipeError(), 403, ""),  # a store that refuses need not read the file
        (ConnectionResetError(), 300, ""),
        (BrokenPipeError(), 200, "the connection broke"),  # it cannot have the whole file
        (BrokenPipeError(), 299, "the connection broke"),
        (BrokenPipeError(), OSError(), "the connection broke"),
        (None, OSError(), "cannot be reached"),
        (None, http.client.BadStatusLine(""), "the connection broke"),
        (OSError(), 200, "cannot be reached"),
        (TimeoutError(), 200, "in time"),
    ],
    ids=str,
)
def test_an_answer_counts_unless_it_confirms_a_file_that_was_not_read_whole(
    sending: Exception | None, answer: Any, reason: str, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Connection:
        is_closed = False

        def request(self, method: str, target: str, *, body: Any, headers: dict[str, str]) -> None:
            body.read(2**20)
            if sending is not None:
                raise sending

        def getresponse(self) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return SimpleNamespace(status=answer, read=lambda _: b"", getheaders=list)

        def close(self) -> None:
            self.is_closed = True

    connection, data = Connection(), bundle.read_bytes()
    monkeypatch.setattr(presigned_upload, "_connect", lambda *_: (connection, "/x", {}))
    with bundle.open("rb") as file:
        digest, parts = hashlib.sha256(data).hexdigest(), urlsplit("https://store.example/x")
        if reason:
            with pytest.raises(TransientError) as caught:
                put_file(parts, file, size=len(data), digest=digest)
            assert reason in caught.value.reason
        else:
            assert put_file(parts, file, size=len(data), digest=digest).status == answer
    assert connection.is_closed
