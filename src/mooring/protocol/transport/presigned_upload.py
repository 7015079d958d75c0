"""Presigned addresses, one per participant, to which a bundle is uploaded by HTTP PUT without credentials.

`mooring invite` makes the addresses. The upload states the length of the file, and adds no header such as a content type,
because some stores refuse headers that the address was not signed for. The upload uses the standard library only.
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

TIMEOUT = 60.0  # seconds without any data from the store
_BLOCK = 2**20
_MOST_ANSWER = 2**14
_MOST_REDIRECTS = 3
_TRANSIENT = (408, 425, 429)
_FRESH = "Ask the analyst for a new address ('mooring invite' makes one), and send the same bundle again."
ADDRESS_SUFFIX = ".address"
LONGEST = 7 * 86_400
_UNITS = {"m": 60, "h": 3_600, "d": 86_400}
_SIGNERS = ("s3", "s3a")
MD5 = re.compile(r"[0-9a-f]{32}")
_CODE = re.compile(rb"<Code>([A-Za-z]{1,40})</Code>")


class Answer(NamedTuple):
    """The response of a store.

    Attributes
    ----------
    code : str
        Error code of an S3 store; empty if there is none.
    expired : bool
        Whether the address has expired.
    headers : mapping
        Headers with lower-case names.
    where : str
        Address of the store that answered, after redirects, without secrets.
    """

    status: int
    code: str
    expired: bool
    headers: Mapping[str, str]
    where: str

    @property
    def is_transient(self) -> bool:
        """Whether another attempt may succeed."""
        return self.status in _TRANSIENT or self.status >= 500 or self.code in ("RequestTimeout", "SlowDown")

    @property
    def retry_after(self) -> float:
        """Seconds to wait, as the store requests; 0 without a request."""
        seconds = self.headers.get("retry-after", "")
        return float(seconds) if seconds.isdecimal() and len(seconds) < 9 else 0.0

    @property
    def checksum(self) -> str:
        """MD5 of the stored file; empty if the ETag is no MD5, for instance after encryption by KMS or a customer's key."""
        encrypted = self.headers.get("x-amz-server-side-encryption", "AES256") != "AES256"
        encrypted |= "x-amz-server-side-encryption-customer-algorithm" in self.headers
        tag = self.headers.get("etag", "").strip('"').lower()
        return tag if not encrypted and MD5.fullmatch(tag) else ""

    def explain(self) -> StorageError:
        """Return an error that explains a refusal and what to do."""
        status = f"{self.status}, {self.code}" if self.code else str(self.status)
        match self:
            case Answer(expired=True):
                reason, cure = f"the address has expired ({status})", _FRESH
            case Answer(status=413) | Answer(code="EntityTooLarge"):
                reason = f"the store does not accept a file of this size in one piece ({status})"
                cure = "Ask the analyst for s3:// and credentials, with which a file is sent in parts."
            case Answer(status=404):
                reason, cure = f"the address does not exist ({status})", _FRESH
            case Answer(status=number) if 300 <= number < 400:
                reason, cure = f"the store redirects the upload ({status})", _FRESH
            case _:
                reason, cure = f"the store refuses it ({status})", _FRESH
        return StorageError("the upload", reason=f"{self.where} cannot be written: {reason}", cure=cure)


class _Body:
    """A file that is being sent. Its first `size` bytes are sent and hashed; a shorter file is an error."""

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
        """Raise an error if the bytes sent are not those that were checked."""
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
    timeout: float = TIMEOUT,
) -> Answer:
    """Send a file by PUT, again after each redirect, and return the store's response.

    A connection that breaks raises a `TransientError`, and so does a store that sends nothing for `timeout` seconds.
    """
    for _ in range(_MOST_REDIRECTS + 1):
        file.seek(0)
        body = _Body(file, size, progress)
        answer = _exchange(parts, body, size, timeout)
        if answer.status in (307, 308) and "location" in answer.headers:
            parts = _follow_redirect(parts, answer.headers["location"], allow_http=allow_http)
            continue
        if 200 <= answer.status < 300:
            body.require(digest)
        return answer
    return answer


def _exchange(parts: SplitResult, body: _Body, size: int, timeout: float) -> Answer:
    proxy = _find_proxy(parts)
    through = f" through the proxy in {parts.scheme.lower()}_proxy" if proxy else ""
    try:
        connection, target, headers = _connect(parts, proxy, timeout)
        try:
            broken: OSError | None = None
            try:
                connection.request("PUT", target, body=body, headers={"Content-Length": str(size), **headers})
            except (BrokenPipeError, ConnectionResetError) as problem:
                broken = problem  # a store may refuse and close the connection before reading the file
            try:
                response = connection.getresponse()
                text = response.read(_MOST_ANSWER)
            except (OSError, http.client.HTTPException):
                if broken is not None:
                    raise broken from None
                raise
            if broken is not None and 200 <= response.status < 300:
                raise broken
        finally:
            connection.close()
    except ssl.SSLCertVerificationError:
        raise StorageError(
            "the store",
            reason="this machine does not trust its certificate",
            cure="Check the address. If your network has its own certificate authority, set SSL_CERT_FILE to it.",
        ) from None
    except TimeoutError:
        raise TransientError("the store did not answer in time") from None
    except (ConnectionRefusedError, OSError, http.client.HTTPException) as problem:
        was_connected = isinstance(problem, BrokenPipeError | ConnectionResetError | http.client.HTTPException)
        reason = "the connection broke" if was_connected else f"the store cannot be reached{through}"
        raise TransientError(reason) from None
    except ValueError:  # a host name that cannot be resolved
        raise StorageError(
            "the store", reason="its address is invalid", cure="Ask the analyst for a new address."
        ) from None
    code = _CODE.search(text)
    return Answer(
        response.status,
        code[1].decode() if code else "",
        b"expired" in text.lower() and response.status in (400, 401, 403),
        {name.lower(): value for name, value in response.getheaders()},
        redact_address(parts.geturl()),
    )


def _find_proxy(parts: SplitResult) -> SplitResult | None:
    """Return the environment's proxy for an address, or None. Errors do not show the proxy: it may hold a password."""
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
        reason = f"the environment variable {scheme}_proxy does not hold a valid proxy address"
        raise StorageError("the proxy", reason=reason, cure=f"Set {scheme}_proxy to http://HOST:PORT, or unset it.")
    return via


def _connect(
    parts: SplitResult, via: SplitResult | None, timeout: float
) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
    """Return a connection (direct or by proxy), the target of the request, and the request's headers for the proxy."""
    host, secure = str(parts.hostname), parts.scheme.lower() == "https"
    make = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if via is None:
        return make(host, parts.port, timeout=timeout, blocksize=_BLOCK), target, {}
    headers = {}
    if via.username is not None:
        who = f"{unquote(via.username)}:{unquote(via.password or '')}".encode()
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(who).decode()}"
    connection = make(str(via.hostname), via.port or 80, timeout=timeout, blocksize=_BLOCK)
    if secure:
        connection.set_tunnel(host, parts.port or 443, headers=headers)
        return connection, target, {}
    return connection, f"http://{parts.netloc}{target}", headers


def _follow_redirect(parts: SplitResult, location: str, *, allow_http: bool) -> SplitResult:
    """Return the address that a store redirects to, for instance in a bucket's region.

    A redirect from https to http is refused. A redirect to another machine over http is refused without `allow_http`.
    """
    try:
        target = urlsplit(urljoin(parts.geturl(), location))
        fine = bool(target.hostname) and target.scheme.lower() in (parts.scheme.lower(), "https") and target.port != 0
    except ValueError:
        fine = False
    if not fine or not location.isascii() or not location.isprintable():
        reason = "it redirects to an address that cannot be used"
        raise StorageError("the store", reason=reason, cure="Ask the analyst for a new address.")
    if target.scheme.lower() == "http" and not allow_http and not is_this_machine(str(target.hostname)):
        raise refuse_unprotected("the file", f"the store redirects to http://{target.hostname}")
    return target


@dataclass(frozen=True)
class Invitation(Record):
    """An address to which one participant may upload its bundle. Only the participant and the analyst may know it."""

    name: str
    address: str = field(repr=False)


def parse_period(period: str) -> int:
    """Return a period such as 30m, 12h or 7d in seconds.

    Examples
    --------
    >>> parse_period("12h")
    43200
    """
    match = re.fullmatch(r"([0-9]{1,6})([mhd])", period.strip())
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 60 <= seconds <= LONGEST:
        cure = "Stores sign for at most seven days. Make new addresses when these have expired."
        raise InputError("expires", expected="a number with m, h or d, from 1m to 7d", got=repr(period[:20]), cure=cure)
    return seconds


def invite(study: Study, bundles: str, *, expires: int = LONGEST, only: Collection[str] = ()) -> tuple[Invitation, ...]:
    """Return presigned addresses, valid for `expires` seconds, for all participants or only some, in the roster's order."""
    study.require_roster()
    unknown = sorted(set(only) - {member.name for member in study.participants})
    if unknown:
        raise InputError(
            "participant",
            expected="in the roster",
            got=", ".join(unknown),
            cure="'mooring study show' lists the roster.",
        )
    system, root = _open_signing_store(bundles)
    names = [member.name for member in study.participants if not only or member.name in only]
    try:
        if not system.exists(bucket := root.split("/", 1)[0]):
            system.ls(bucket)  # raises the reason: missing, access denied or no credentials
        return tuple(
            Invitation(name, str(system.sign(f"{root}/{name}{SUFFIX}", expiration=expires, client_method="put_object")))
            for name in names
        )
    except Exception as problem:  # a store's message may quote credentials
        raise explain_store_error(problem, what="the invitation", address=bundles, doing="signed for") from None


def write_invitations(invitations: Collection[Invitation], folder: Path) -> dict[str, Path]:
    """Write one file per participant with its address, readable by its owner only, and return the paths by name."""
    make_folder(folder, mode=0o700, what="the folder of addresses")
    paths = {invitation.name: folder / f"{invitation.name}{ADDRESS_SUFFIX}" for invitation in invitations}
    for invitation in invitations:
        data = f"{invitation.address}\n".encode()
        write_atomically(paths[invitation.name], data, mode=0o600, what="an address")
    return paths


def _open_signing_store(bundles: str) -> tuple[Any, str]:
    scheme = "" if "::" in bundles else read_scheme(bundles)
    if not is_url(bundles) or scheme not in _SIGNERS:
        raise InputError(
            "bundles",
            expected="a store that can presign addresses: s3://BUCKET/FOLDER",
            got=f"{scheme}://" if "://" in bundles else "a folder",
            cure="Give participants access to this place in another way; 'mooring send --to' accepts any such address.",
        )
    from fsspec.config import conf

    configured = dict(conf.get(scheme, {}).get("config_kwargs", {}))
    return open_file_system(bundles, config_kwargs={"signature_version": "s3v4", **configured})
