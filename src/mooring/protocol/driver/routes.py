"""The files that a study's steps send between its members: from whom, to whom, where they arrive, and what is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mooring.atomic_io import open_plain_file
from mooring.errors import RefusedError
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.envelope import SUFFIX
from mooring.protocol.messages.study import Study
from mooring.protocol.registry import exchange_of
from mooring.protocol.step import AGREED, Step
from mooring.protocol.steps import steps_of
from mooring.protocol.transport.place import EVERYBODY, PlacedFile
from mooring.protocol.transport.transfer import ENVELOPE, check_parcel

_MOST_BYTES = 2**28  # of files other than bundles


@dataclass(frozen=True)
class Route:
    """The route of one file from the member that makes it to those that need it."""

    step: Step
    """The step that makes the file."""
    sender: str
    source: str
    """The file's path below the sender's folder."""
    arrivals: Mapping[str, str]
    """The file's path below the folder of each recipient, by the recipient's name; the sender may be a recipient, too."""
    grows: bool = False
    """Whether a later version may replace the file."""

    @property
    def name(self) -> str:
        """The file's name."""
        return self.source.rpartition("/")[2]

    @property
    def only_recipient(self) -> str:
        """The only member that receives the file; empty if several do."""
        return next(iter(self.arrivals)) if len(self.arrivals) == 1 else ""

    @property
    def at_place(self) -> PlacedFile:
        """The file at a place: an envelope for a single recipient, or otherwise one file for everybody."""
        recipient = self.only_recipient
        return PlacedFile(self.sender, recipient or EVERYBODY, f"{self.name}{SUFFIX if recipient else ''}")


@lru_cache(maxsize=8)  # a pass of the driver asks some twenty times
def list_routes(study: Study) -> tuple[Route, ...]:
    """Return the routes of all files that the steps of a complete study send once its roster is agreed on."""
    roles = {member.name: roles_of(study, member.name) for member in study.members}
    routes = list[Route]()
    for step in steps_of(study):
        if AGREED not in step.needs:
            continue
        for sender in (name for name in roles if step.role in roles[name]):
            by_source: dict[str, dict[str, str]] = {}
            grows = set[str]()
            for sent in step.sends:
                for recipient in (name for name in roles if sent.to in roles[name]):
                    source = _fill_in(sent.file, study, sender, recipient)
                    name = source.rpartition("/")[2]
                    by_source.setdefault(source, {})[recipient] = f"{sent.arrives}/{name}" if sent.arrives else name
                    grows |= {source} if sent.grows else set()
            routes += [Route(step, sender, source, arrivals, source in grows) for source, arrivals in by_source.items()]
    return tuple(routes)


def bound_bytes(study: Study) -> int:
    """Return the largest possible size of a file at a place, in bytes."""
    return max(exchange_of(study).most_bundle_bytes(study), _MOST_BYTES) * 101 // 100


def check_routed(path: Path, route: Route, study: Study) -> str:
    """Return the signing key of a file's sender, or refuse a file that does not fit its route; envelopes stay closed."""
    sender = find_member(study, route.sender)
    assert sender is not None
    with open_plain_file(path, what="the file") as file:
        parcel = check_parcel(path, file)
    if parcel.manifest["signer"] != sender.signing_key:
        reason = f"it is not signed by {sender.name}"
        raise RefusedError("the file", reason=reason, cure="Ask its sender to put it again.")
    study.require_same(parcel.manifest, what="the file")
    if (parcel.form == ENVELOPE) != bool(route.only_recipient):
        reason = "it is not sealed as a file for one member must be, or sealed although it is for several"
        raise RefusedError("the file", reason=reason, cure="Ask its sender to put it again.")
    return sender.signing_key


def find_member(study: Study, name: str) -> Member | None:
    """Return the member with a name, the analyst included; None if there is none."""
    return next((member for member in study.members if member.name == name), None)


def roles_of(study: Study, name: str) -> tuple[str, ...]:
    """Return the roles that a member has in a complete study; the analyst is also its designer."""
    if study.analyst is not None and name == study.analyst.name:
        return ("everybody", "analyst", "designer")
    usual = "participant" if any(member.name == name for member in study.participants) else "helper"
    return ("everybody", usual, *exchange_of(study).list_roles(study, name))


def _fill_in(file: str, study: Study, sender: str, recipient: str) -> str:
    return file.replace("STUDY", study.name).replace("RECIPIENT", recipient).replace("NAME", sender)
