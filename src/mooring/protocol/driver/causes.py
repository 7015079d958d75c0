"""Finds the members for whom everybody waits, from the list of steps and the files at a place.

A participant may wait for a file of the analyst, who cannot make this file before somebody else has sent one. The causes
are the members at the end of such a chain: those who wait for nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from mooring.protocol.driver.routes import Route, roles_of
from mooring.protocol.step import Item, Step
from mooring.protocol.steps import steps_of
from mooring.protocol.workspace import Workspace


@dataclass(frozen=True)
class Causes:
    """Finds the members that hold up a file."""

    workspace: Workspace
    """A folder with the complete study."""
    routes: Sequence[Route]
    paths: Collection[str]
    """Paths of the files at the place."""

    def trace(self, route: Route) -> list[str]:
        """Return the members that hold up a file; its own sender if the file is there, or could be made now."""
        if self._is_there(route):
            return [route.sender]
        return list(dict.fromkeys(self._trace(route.sender, route.step, frozenset())))

    def _trace(self, member: str, step: Step, seen: frozenset[tuple[str, str]]) -> Iterator[str]:
        if (member, step.name) in seen:
            return
        seen |= {(member, step.name)}
        roles = roles_of(self.workspace.study, member)
        makers = [other for other in steps_of(self.workspace.study) if other.role in roles]
        for needed in _list_earlier(step, makers):
            made = [route for route in self.routes if route.sender == member and route.step.name == needed.name]
            if needed is not step and made and all(map(self._is_there, made)):
                continue
            if missing := self._list_missing(member, needed):
                for route in missing:
                    yield from self._trace(route.sender, route.step, seen)
                return
        yield member

    def _list_missing(self, member: str, step: Step) -> list[Route]:
        """Return the routes of files that a member lacks for a step; empty if the files at the place suffice."""
        arriving = {route.arrivals[member]: route for route in self.routes if member in route.arrivals}
        others = {path: route for path, route in arriving.items() if route.sender != member}
        for item in step.needs:
            matching = [
                route for path, route in others.items() if any(fnmatchcase(path, files) for files in item.files)
            ]
            if matching and not any(map(self._is_there, matching)):
                return matching
        for awaited in step.awaits or ():
            paths = [awaited.file.replace("NAME", name) for name in awaited.names(self.workspace)]
            missing = [others[path] for path in paths if path in others and not self._is_there(others[path])]
            enough = len(paths) if awaited.enough is None else awaited.enough(self.workspace)
            if len(paths) - len(missing) < enough:
                return missing
        return []

    def _is_there(self, route: Route) -> bool:
        return route.at_place.path in self.paths


def _list_earlier(step: Step, makers: Sequence[Step]) -> list[Step]:
    """Return the member's earlier steps that make what a step needs, directly or not, in order, and then the step itself."""
    needed = [step]
    for other in reversed(makers[: [maker.name for maker in makers].index(step.name)]):
        if any(_share_files(made, item) for made in other.makes for later in needed for item in later.needs):
            needed.insert(0, other)
    return needed


def _share_files(made: Item, item: Item) -> bool:
    return bool(set(made.files) & set(item.files))
