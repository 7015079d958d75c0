"""Which address of this machine a scheduler or a worker reaches it at."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence


def own_address(others: Sequence[str]) -> str:
    """The address of this machine that all of these reach it at: loopback where they are all here."""
    found = [way for each in others if (way := _way_to(each))]
    return next((way for way in found if not _is_loopback(way)), found[0] if found else "127.0.0.1")


def is_here(address: str) -> bool:
    """Whether a scheduler or worker can only be on this machine."""
    way = _way_to(address)
    return way is not None and _is_loopback(way)


def _way_to(address: str) -> str | None:
    """The address of this machine on the way to another; None where there is no way from here."""
    from distributed.comm import get_address_host

    if address.startswith("inproc://"):
        return "127.0.0.1"
    try:
        host = get_address_host(address)
        family = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0][0]
        with socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect((host, 9))  # sends nothing
            return str(way.getsockname()[0])
    except OSError:  # a name or a network that only the others know
        return None


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback
