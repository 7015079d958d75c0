"""`mooring invite`: one presigned address a participant, so that it can upload its bundle without credentials."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mooring.atomic_io import make_folder, write_atomically
from mooring.errors import InputError
from mooring.protocol.messages.bundle import SUFFIX
from mooring.protocol.messages.study import Study
from mooring.protocol.transport.addresses import is_url, read_scheme
from mooring.protocol.transport.object_stores import explain_store_error, open_file_system
from mooring.serialization import Serializable

ADDRESS_SUFFIX = ".address"
LONGEST = 7 * 86_400
_UNITS = {"m": 60, "h": 3_600, "d": 86_400}
_SIGNERS = ("s3", "s3a")


@dataclass(frozen=True)
class Invitation(Serializable):
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
    """Make presigned addresses, in the roster's order.

    Parameters
    ----------
    study : Study
        With its roster.
    bundles : str
        The URL that `mooring align --bundles` will be given.
    expires : int
        Seconds.
    only : collection of str
        Names; by default all participants.
    """
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
