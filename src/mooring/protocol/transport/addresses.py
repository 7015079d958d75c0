"""Where files go and come from: folders, addresses that fsspec knows, presigned addresses; and how to show them safely.

A presigned address is a secret: whoever has it can use it. What is shown, written down or put into an error is therefore an
address without its query, and without a name and password before its host. Where these cannot be told from the rest, as when
a password holds a slash, nothing is shown but what kind of address it is.
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
    """Whether an address is a URL rather than a place on this machine."""
    return "://" in str(address) and not str(address).startswith("file://")


def is_presigned(address: str | Path) -> bool:
    """Whether an address is one to PUT a file to."""
    return str(address).lower().startswith(("http://", "https://"))


def local_path(address: str | Path) -> Path:
    """The path of a place on this machine."""
    text = str(address)
    return Path(unquote(text.removeprefix("file://"))) if text.startswith("file://") else Path(address)


def read_scheme(address: str | Path) -> str:
    """What kind of address it is, in small letters: s3, sftp; empty if that cannot be made out."""
    found = _SCHEME.search(str(address))
    return found[0].removesuffix("://").lower() if found and "@" not in str(address)[: found.start()] else ""


def redact_word(word: str) -> str:
    """One word of a command line; an address in it is cut down to what anybody may see."""
    return _redact(word, "?…")


def redact_command(text: str) -> str:
    """A command line, with every address in it cut down to what anybody may see."""
    if "://" not in text:
        return text
    try:
        return shlex.join(redact_word(word) for word in shlex.split(text))
    except ValueError:  # a quotation mark too few: then nobody can say where a secret ends
        return _redact(text, "?…").partition("://")[0] + "://…"


def redact_address(address: str | Path) -> str:
    """An address as people may see it: no query, no password, no control characters."""
    return make_printable(_redact(str(address), "") if is_url(address) else str(address), longest=_LONGEST_SHOWN)


def make_printable(text: str, *, longest: int = 80) -> str:
    """Somebody else's text as it can be shown: no control characters, no surrogates, not too long."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[: longest + 1])
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def _redact(word: str, instead_of_query: str) -> str:
    """What comes before an address, its scheme, and of the rest what is surely neither a password nor a signature."""
    found = _SCHEME.search(word)
    if not found:
        return word
    begin, rest = word[: found.end()], word[found.end() :]
    if "@" in begin:
        return "…"
    place, *query = _QUERY.split(rest, maxsplit=1)
    if "@" in "".join(query) or "/" in place.rpartition("@")[0]:  # part of a password, of a path or of a query?
        return f"{begin}…"
    return begin + place.rpartition("@")[2] + (instead_of_query if query else "")


def read_address(given: str) -> str:
    """The address as it was given, or, after an @, as it stands in a file: a secret need not be typed."""
    if not given.startswith("@"):
        address = given.strip()
    else:
        try:
            with Path(given[1:]).open("rb") as file:
                address = file.read(_LONGEST + 1).decode().strip()
        except OSError:
            raise StorageError(
                "the file of the address", reason="it cannot be read", cure="Check the path after the @."
            ) from None
        except ValueError:
            address = "\n"
    if not address or len(address) > _LONGEST or not address.isprintable():
        got, cure = "something else", "Copy it again, whole; in a shell, put it in single quotes."
        raise InputError("address", expected="one line: a folder, a URL, or a presigned address", got=got, cure=cure)
    return address


def parse_presigned(address: str, *, allow_http: bool, what: str) -> SplitResult:
    """The parts of an address to PUT to, or a refusal."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")  # as the system does when it looks the host up
    except ValueError:
        host = None
    if not host or not address.isascii() or " " in address or parts.username is not None:
        got, cure = "one that cannot be used", "Copy it again, whole; in a shell, put it in single quotes."
        raise InputError("address", expected="a presigned address, https://HOST/…?…", got=got, cure=cure)
    if parts.scheme.lower() == "http" and not allow_http and not is_this_machine(host):
        raise refuse_unprotected(what, "the address begins with http://")
    return parts


def refuse_unprotected(what: str, why: str) -> RefusedError:
    """The refusal to send something where others could read it."""
    cure = "Ask for an address with https://; on a network that you trust, --allow-http sends it all the same."
    return RefusedError(what, reason=f"{why}, so that whoever sits in between could read it", cure=cure)


def is_this_machine(host: str) -> bool:
    """Whether a host is the machine itself."""
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None
