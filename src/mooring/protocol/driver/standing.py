"""Which steps each member of a study has done, according to the files at a place."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from mooring.protocol.driver.routes import list_routes, roles_of
from mooring.protocol.messages.study import Study
from mooring.protocol.transport.place import CARD_SUFFIX, EVERYBODY, parse_path
from mooring.serialization import Record, Rows

JOINED = "Join"


@dataclass(frozen=True)
class Standing(Record):
    """The steps that one member has done, and those that are left."""

    name: str
    role: str
    """'participant', 'helper' or 'analyst'; empty while the roster is open."""
    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """Titles of steps that send files: `done` has joining and the steps with a file at the place, and `left` the others."""


def standing_of(study: Study | None, paths: Collection[str]) -> tuple[Standing, ...]:
    """Return what each member has done, given the paths of the files at the place.

    Before a study is agreed on (`study` is None), the members are those whose cards are at the place.
    """
    if study is None:
        files = [file for file in map(parse_path, paths) if file is not None]
        cards = [
            file.sender for file in files if file.name == f"{file.sender}{CARD_SUFFIX}" and file.recipient == EVERYBODY
        ]
        return tuple(Standing(name, "", (JOINED,)) for name in sorted(cards))
    routes, standings = list_routes(study), list[Standing]()
    for member in study.members:
        own_routes = [route for route in routes if route.sender == member.name]
        titles = dict.fromkeys(route.step.title for route in own_routes)
        put = {route.step.title for route in own_routes if route.at_place.path in paths}
        done = (JOINED, *(title for title in titles if title in put))
        role = roles_of(study, member.name)[1]
        standings.append(Standing(member.name, role, done, tuple(title for title in titles if title not in put)))
    return tuple(standings)


def list_standings(members: Collection[Standing]) -> Rows:
    """Return a table of the steps that each member has done, headings first.

    A dash marks a step that is left, and an empty cell a step that the member does not take.
    """
    titles = list(dict.fromkeys(title for member in members for title in (*member.done, *member.left)))
    rows = [("member", *titles)]
    for member in members:
        marks = ("done" if title in member.done else "–" if title in member.left else "" for title in titles)
        rows.append((member.name, *marks))
    return rows
