"""Where files go and come from: folders, addresses that fsspec knows, presigned addresses; and how to show them safely.

A presigned address is a secret: whoever has it can use it. What is shown, written down or put into an error is therefore an
address without its query, and without a name and password before its host.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from mooring.errors import InputError, RefusedError, StorageError

_LONGEST = 16_384
_LONGEST_SHOWN = 300
_SECRETS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s/?#@'\"]*@)?([^\s?#'\"]*)([?#][^\s'\"]*)?")


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


def without_secrets(text: str) -> str:
    """A text, such as a command line, with every address in it cut down to what anybody may see."""
    return _SECRETS.sub(lambda found: found[1] + found[2] + ("?…" if found[3] else ""), text)


def shown(address: str | Path) -> str:
    """An address as people may see it: no query, no password, no control characters."""
    text = without_secrets(str(address).split("?", 1)[0].split("#", 1)[0]) if is_url(address) else str(address)
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


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
        raise InputError(
            "address",
            expected="one line: a folder, a URL, or a presigned address",
            got="something else",
            cure="Copy it again, whole; in a shell, put it in single quotes.",
        )
    return address


def presigned_parts(address: str, *, allow_http: bool, what: str) -> SplitResult:
    """The parts of an address to PUT to; what cannot be one, or would carry `what` in the open, is refused."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or not address.isascii() or " " in address or parts.username is not None:
        raise InputError(
            "address",
            expected="a presigned address, https://HOST/…?…",
            got="one that cannot be used",
            cure="Copy it again, whole; in a shell, put it in single quotes.",
        )
    if parts.scheme.lower() == "http" and not allow_http and not is_this_machine(host):
        raise RefusedError(
            what,
            reason="the address begins with http://, so that whoever sits in between could read it",
            cure="Ask for an address with https://; on a network that you trust, --allow-http sends it all the same.",
        )
    return parts


def is_this_machine(host: str) -> bool:
    """Whether a host is the machine itself."""
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None
