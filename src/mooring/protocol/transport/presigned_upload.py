"""Presigned addresses: one a participant, to which it uploads its bundle without credentials, by one HTTP PUT.

`mooring invite` makes them. The file's bytes go from disk with their length said beforehand; the answer is told in short.
By the standard library alone. Nothing but the file is sent along: a header that the address was not signed for, such as a
content type, makes some stores refuse it.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import re
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from mooring.atomic_io import make_folder, write_atomically
from mooring.errors import InputError, StorageError
from mooring.protocol.messages.bundle import SUFFIX
from mooring.protocol.messages.study import Study
from mooring.protocol.transport.addresses import (
    is_this_machine,
    is_url,
    read_scheme,
    redact_address,
    refuse_unprotected,
)
from mooring.protocol.transport.object_stores import (
    TransientError,
    explain_store_error,
    open_file_system,
    report_change,
)
from mooring.serialization import Record
from mooring.typing import Progress

TIMEOUT = 60.0  # seconds without a sign of life
_BLOCK = 2**20
_MOST_ANSWER = 2**14
_MOST_REDIRECTS = 3
_TRANSIENT = (408, 425, 429)
_FRESH = "Ask the analyst for a fresh address ('mooring invite' makes one), and send again: the bundle stays the same."
ADDRESS_SUFFIX = ".address"
LONGEST = 7 * 86_400
_UNITS = {"m": 60, "h": 3_600, "d": 86_400}
_SIGNERS = ("s3", "s3a")
MD5 = re.compile(r"[0-9a-f]{32}")
_CODE = re.compile(rb"<Code>([A-Za-z]{1,40})</Code>")


class Answer(NamedTuple):
    """What the store said.

    Attributes
    ----------
    code : str
        The word of an S3 store for what is wrong, if there is one.
    expired : bool
        Whether the address was good once.
    headers : mapping
        With lower-case names.
    where : str
        Whose answer it is, after the store sent us on; without anything secret.
    """

    status: int
    code: str
    expired: bool
    headers: Mapping[str, str]
    where: str

    @property
    def is_transient(self) -> bool:
        """Whether another try may help."""
        return self.status in _TRANSIENT or self.status >= 500 or self.code in ("RequestTimeout", "SlowDown")

    @property
    def retry_after(self) -> float:
        """Seconds that the store asks to wait."""
        seconds = self.headers.get("retry-after", "")
        return float(seconds) if seconds.isdecimal() and len(seconds) < 9 else 0.0

    @property
    def checksum(self) -> str:
        """MD5 of what was stored: the ETag, unless the store keeps the file under a customer's key; else empty."""
        encrypted = self.headers.get("x-amz-server-side-encryption", "AES256") != "AES256"
        encrypted |= "x-amz-server-side-encryption-customer-algorithm" in self.headers
        tag = self.headers.get("etag", "").strip('"').lower()
        return tag if not encrypted and MD5.fullmatch(tag) else ""

    def explain(self) -> StorageError:
        """What a refusal means, and what to do about it."""
        said = f"{self.status}, {self.code}" if self.code else str(self.status)
        match self:
            case Answer(expired=True):
                reason, cure = f"the address has expired ({said})", _FRESH
            case Answer(status=413) | Answer(code="EntityTooLarge"):
                reason = f"the store takes no file of this size in one piece ({said})"
                cure = "Ask the analyst for another way: s3:// with credentials sends in parts."
            case Answer(status=404):
                reason, cure = f"there is no such place ({said})", _FRESH
            case Answer(status=status) if 300 <= status < 400:
                reason, cure = f"the store sends us elsewhere ({said})", _FRESH
            case _:
                reason, cure = f"the store refuses it ({said})", _FRESH
        return StorageError("the upload", reason=f"{self.where} cannot be written: {reason}", cure=cure)


class _Body:
    """A file on its way: counted, hashed, and never longer or shorter than was said."""

    def __init__(self, file: BinaryIO, size: int, progress: Progress | None) -> None:
        self._file, self._size, self._progress = file, size, progress
        self._done, self._digest = 0, hashlib.sha256()

    def read(self, count: int = -1) -> bytes:
        left = self._size - self._done
        block = self._file.read(left if count < 0 else min(count, left))
        if not block and left:
            raise report_change()
        self._done += len(block)
        self._digest.update(block)
        if self._progress:
            self._progress(self._done, self._size)
        return block

    def require(self, digest: str) -> None:
        """Refuse to call something sent that was not what was checked."""
        if self._digest.hexdigest() != digest:
            raise report_change()


def put_file(
    parts: SplitResult,
    file: BinaryIO,
    *,
    size: int,
    digest: str,
    allow_http: bool = False,
    progress: Progress | None = None,
) -> Answer:
    """PUT a file once; a broken connection is a BrokenOffError, any answer is returned."""
    for _ in range(_MOST_REDIRECTS + 1):
        file.seek(0)
        body = _Body(file, size, progress)
        answer = _exchange(parts, body, size)
        if answer.status in (307, 308) and "location" in answer.headers:
            parts = _follow_redirect(parts, answer.headers["location"], allow_http=allow_http)
            continue
        if 200 <= answer.status < 300:
            body.require(digest)
        return answer
    return answer


def _exchange(parts: SplitResult, body: _Body, size: int) -> Answer:
    proxy = _find_proxy(parts)
    way = f" through the proxy that {parts.scheme.lower()}_proxy names" if proxy else ""
    try:
        connection, target, headers = _connect(parts, proxy)
        try:
            broken: OSError | None = None
            try:
                connection.request("PUT", target, body=body, headers={"Content-Length": str(size), **headers})
            except (BrokenPipeError, ConnectionResetError) as problem:
                broken = problem  # a store that refuses may say so and hang up before it has read everything
            try:
                found = connection.getresponse()
                text = found.read(_MOST_ANSWER)
            except (OSError, http.client.HTTPException):
                if broken is not None:
                    raise broken from None
                raise
            if broken is not None and 200 <= found.status < 300:
                raise broken
        finally:
            connection.close()
    except ssl.SSLCertVerificationError:
        raise StorageError(
            "the store",
            reason="its certificate is not one that this machine trusts",
            cure="Check the address; if your network has a certificate authority of its own, set SSL_CERT_FILE to it.",
        ) from None
    except TimeoutError:
        raise TransientError("the store did not answer in time") from None
    except (ConnectionRefusedError, OSError, http.client.HTTPException) as problem:
        made = isinstance(problem, BrokenPipeError | ConnectionResetError | http.client.HTTPException)
        raise TransientError("the connection broke" if made else f"the store cannot be reached{way}") from None
    except ValueError:  # a host that no system can look up
        raise StorageError(
            "the store", reason="its address cannot be used", cure="Ask the analyst for a fresh address."
        ) from None
    code = _CODE.search(text)
    return Answer(
        found.status,
        code[1].decode() if code else "",
        b"expired" in text.lower() and found.status in (400, 401, 403),
        {name.lower(): value for name, value in found.getheaders()},
        redact_address(parts.geturl()),
    )


def _find_proxy(parts: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for an address, if any; its value, which may hold a password, is not told."""
    host, scheme = str(parts.hostname), parts.scheme.lower()
    try:
        proxy = None if is_this_machine(host) or proxy_bypass(host) else getproxies().get(scheme)
        if not proxy:
            return None
        via = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        fine = bool(via.hostname) and via.port != 0 and bool(str(via.hostname).encode("idna"))
        f"{via.username}{via.password}".encode()
    except ValueError:
        fine = False
    if not fine:
        reason = f"what {scheme}_proxy names in the environment is no proxy that can be used"
        raise StorageError("the proxy", reason=reason, cure=f"Set {scheme}_proxy to http://HOST:PORT, or unset it.")
    return via


def _connect(parts: SplitResult, via: SplitResult | None) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
    """A connection, straight or through a proxy; what to ask it for, and headers for it."""
    host, secure = str(parts.hostname), parts.scheme.lower() == "https"
    make = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if via is None:
        return make(host, parts.port, timeout=TIMEOUT, blocksize=_BLOCK), target, {}
    headers = {}
    if via.username is not None:
        who = f"{unquote(via.username)}:{unquote(via.password or '')}".encode()
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(who).decode()}"
    connection = make(str(via.hostname), via.port or 80, timeout=TIMEOUT, blocksize=_BLOCK)
    if secure:
        connection.set_tunnel(host, parts.port or 443, headers=headers)
        return connection, target, {}
    return connection, f"http://{parts.netloc}{target}", headers


def _follow_redirect(parts: SplitResult, location: str, *, allow_http: bool) -> SplitResult:
    """Where a store sends us on to, as a bucket's own region; never from a protected connection to an open one.

    Nor from this machine to another one over an open connection, unless that is allowed.
    """
    try:
        found = urlsplit(urljoin(parts.geturl(), location))
        fine = bool(found.hostname) and found.scheme.lower() in (parts.scheme.lower(), "https") and found.port != 0
    except ValueError:
        fine = False
    if not fine or not location.isascii() or not location.isprintable():
        reason = "it sends us on to where nothing can be sent"
        raise StorageError("the store", reason=reason, cure="Ask the analyst for a fresh address.")
    if found.scheme.lower() == "http" and not allow_http and not is_this_machine(str(found.hostname)):
        raise refuse_unprotected("the file", f"the store sends us on to http://{found.hostname}")
    return found


@dataclass(frozen=True)
class Invitation(Record):
    """An address that one participant may PUT its bundle to; a secret between it and the analyst."""

    name: str
    address: str = field(repr=False)


def parse_period(period: str) -> int:
    """A period such as 30m, 12h or 7d, in seconds.

    Examples
    --------
    >>> parse_period("12h")
    43200
    """
    found = re.fullmatch(r"([0-9]{1,6})([mhd])", period.strip())
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 60 <= seconds <= LONGEST:
        cure = "Stores sign for seven days at most; make new addresses when these have expired."
        raise InputError("expires", expected="a number with m, h or d, from 1m to 7d", got=repr(period[:20]), cure=cure)
    return seconds


def invite(study: Study, bundles: str, *, expires: int = LONGEST, only: Collection[str] = ()) -> tuple[Invitation, ...]:
    """Make presigned addresses, in the roster's order."""
    study.require_roster()
    unknown = sorted(set(only) - {member.name for member in study.participants})
    if unknown:
        raise InputError(
            "participant", expected="one of the roster", got=", ".join(unknown), cure="'mooring study show' lists it."
        )
    system, root = _open_signing_store(bundles)
    names = [member.name for member in study.participants if not only or member.name in only]
    try:
        if not system.exists(bucket := root.split("/", 1)[0]):
            system.ls(bucket)  # says why: not there, not allowed, nobody to be allowed
        return tuple(
            Invitation(name, str(system.sign(f"{root}/{name}{SUFFIX}", expiration=expires, client_method="put_object")))
            for name in names
        )
    except Exception as problem:  # a store's message may quote credentials
        raise explain_store_error(problem, what="the invitation", address=bundles, doing="signed for") from None


def write_invitations(invitations: Collection[Invitation], folder: Path) -> dict[str, Path]:
    """One file a participant, readable by its owner only: what to send to whom."""
    make_folder(folder, mode=0o700, what="the folder of addresses")
    paths = {one.name: folder / f"{one.name}{ADDRESS_SUFFIX}" for one in invitations}
    for one in invitations:
        write_atomically(paths[one.name], f"{one.address}\n".encode(), mode=0o600, what="an address")
    return paths


def _open_signing_store(bundles: str) -> tuple[Any, str]:
    scheme = "" if "::" in bundles else read_scheme(bundles)
    if not is_url(bundles) or scheme not in _SIGNERS:
        raise InputError(
            "bundles",
            expected="a store that can presign addresses: s3://BUCKET/FOLDER",
            got=f"{scheme}://" if "://" in bundles else "a folder",
            cure="Let participants write to this place by its own means; 'mooring send --to' takes any such address.",
        )
    from fsspec.config import conf

    given = dict(conf.get(scheme, {}).get("config_kwargs", {}))
    return open_file_system(bundles, config_kwargs={"signature_version": "s3v4", **given})
