"""Addresses of files (folders, fsspec URLs, presigned URLs), and how to show them without secrets.

A presigned address is a secret: whoever has it can use it. Addresses are therefore shown, recorded and quoted in errors
without their query and without a user name and password. If these cannot be separated from the rest, for instance because a
password contains a slash, at most the scheme of the address is shown.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from mooring.errors import InputError, RefusedError, StorageError

_LONGEST = 16_384
_LONGEST_SHOWN = 300
_SCHEME = re.compile(r"[A-Za-z0-9+.-]*://")
_QUERY = re.compile(r"[?#]")


def is_url(address: str | Path) -> bool:
    """Return whether an address is a URL rather than a path on this machine."""
    return "://" in str(address) and not str(address).startswith("file://")


def is_presigned(address: str | Path) -> bool:
    """Return whether an address begins with http(s)://, and so is taken for a presigned one, which accepts a PUT."""
    return str(address).lower().startswith(("http://", "https://"))


def local_path(address: str | Path) -> Path:
    """Return the path of an address on this machine."""
    text = str(address)
    return Path(unquote(text.removeprefix("file://"))) if text.startswith("file://") else Path(address)


def read_scheme(address: str | Path) -> str:
    """Return the scheme of an address in lower case, such as s3 or sftp; empty if it has none."""
    match = _SCHEME.search(str(address))
    return match[0].removesuffix("://").lower() if match and "@" not in str(address)[: match.start()] else ""


def redact_word(word: str) -> str:
    """Return one word of a command line; if it holds an address, the address's secrets are removed."""
    return _redact(word, "?…")


def redact_command(text: str) -> str:
    """Return a command line with the secrets of all addresses removed."""
    if "://" not in text:
        return text
    try:
        return shlex.join(redact_word(word) for word in shlex.split(text))
    except ValueError:  # with unbalanced quotes, the end of a secret cannot be determined
        return _redact(text, "?…").partition("://")[0] + "://…"


def redact_address(address: str | Path) -> str:
    """Return an address for display, without query, user name, password and control characters."""
    return make_printable(_redact(str(address), "") if is_url(address) else str(address), longest=_LONGEST_SHOWN)


def make_printable(text: str, *, longest: int = 80) -> str:
    """Return text from other people for display: at most `longest` characters, none of them a control character."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[: longest + 1])
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def _redact(word: str, instead_of_query: str) -> str:
    """Return a word in which everything that may be a password or a signature of an address is left out."""
    match = _SCHEME.search(word)
    if not match:
        return word
    begin, rest = word[: match.end()], word[match.end() :]
    if "@" in begin:
        return "…"
    place, *query = _QUERY.split(rest, maxsplit=1)
    if "@" in "".join(query) or "/" in place.rpartition("@")[0]:  # may belong to a password, a path or a query
        return f"{begin}…"
    return begin + place.rpartition("@")[2] + (instead_of_query if query else "")


def read_address(argument: str) -> str:
    """Return the given address; with @FILE, return the address in that file, so that a secret need not be typed."""
    if not argument.startswith("@"):
        address = argument.strip()
    else:
        try:
            with Path(argument[1:]).open("rb") as file:
                address = file.read(_LONGEST + 1).decode().strip()
        except OSError:
            raise StorageError(
                "the file of the address", reason="it cannot be read", cure="Check the path after the @."
            ) from None
        except ValueError:
            address = "\n"
    if not address or len(address) > _LONGEST or not address.isprintable():
        what = "empty" if not address else "too long" if len(address) > _LONGEST else "more than one line of plain text"
        cure = "Copy the whole address again; in a shell, put it in single quotes."
        raise InputError("address", expected="one line: a folder, a URL, or a presigned address", got=what, cure=cure)
    return address


def parse_presigned(address: str, *, allow_http: bool, what: str) -> SplitResult:
    """Return the parts of a presigned address, or raise an error if it cannot be used or does not protect `what`."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")  # as the system does when it resolves the host
    except ValueError:
        host = None
    if not host or not address.isascii() or " " in address or parts.username is not None:
        got, cure = "a malformed one", "Copy the whole address again; in a shell, put it in single quotes."
        raise InputError("address", expected="a presigned address, https://HOST/…?…", got=got, cure=cure)
    if parts.scheme.lower() == "http" and not allow_http and not is_this_machine(host):
        raise refuse_unprotected(what, "the address begins with http://")
    return parts


def refuse_unprotected(what: str, why: str) -> RefusedError:
    """Return the error for sending something over a connection that others could read."""
    cure = "Ask for an address with https://. On a network that you trust, --allow-http sends it anyway."
    return RefusedError(what, reason=f"{why}, so that others on the network could read it", cure=cure)


def is_this_machine(host: str) -> bool:
    """Return whether a host is given as this machine: localhost, ::1 or 127.x.x.x."""
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None
