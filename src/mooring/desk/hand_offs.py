"""The files that a member has to send to others if no place is used: those that its finished steps have made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mooring.protocol.driver.routes import list_routes
from mooring.protocol.messages.envelope import envelope_of
from mooring.protocol.messages.public_file import public_file_name
from mooring.protocol.steps import StepState
from mooring.protocol.workspace import Identity, Workspace, is_plain


@dataclass(frozen=True)
class HandOff:
    """Files of one step that some members need."""

    step: str
    """The title of the step that made them."""
    recipients: tuple[str, ...]
    files: tuple[str, ...]
    """Paths below the folder."""


def list_hand_offs(workspace: Workspace, who: Identity, states: Sequence[StepState]) -> list[HandOff]:
    """Return the files that a member's steps have made for others, and for whom they are."""
    return [*_list_agreeing(workspace, who), *_list_later(workspace, who, states)]


def find_file(workspace: Workspace, hand_offs: Sequence[HandOff], name: str) -> Path | None:
    """Return the path of a file that is handed off, by its path below the folder; None for every other name."""
    path = workspace.root / name
    return path if any(name in hand_off.files for hand_off in hand_offs) and _is_inside(workspace, path) else None


def _list_agreeing(workspace: Workspace, who: Identity) -> Iterator[HandOff]:
    """Yield the card until it is enrolled and, for the analyst, the complete study."""
    card = f"{who.name}.card.toml"
    if who.role and not who.is_enrolled and _is_inside(workspace, workspace.root / card):
        yield HandOff("Join", ("whoever keeps the study's file",), (card,))
    if who.role == "analyst" and workspace.has_study and workspace.study.is_complete:
        beside = workspace.study_file.parent / public_file_name(workspace.study)
        names = (workspace.study_file.name, *([beside.name] if _is_inside(workspace, beside) else []))
        yield HandOff("Enrol members", ("everybody",), names)


def _list_later(workspace: Workspace, who: Identity, states: Sequence[StepState]) -> Iterator[HandOff]:
    if not (who.is_enrolled and workspace.has_study and workspace.study.is_complete):
        return
    done = {state.step.name: state.step.title for state in states if state.is_done}
    files: dict[tuple[str, str], list[str]] = {}
    for route in list_routes(workspace.study):
        if route.sender != who.name or route.step.name not in done:
            continue
        source = workspace.root / route.source
        if route.only_recipient and envelope_of(source).is_file():
            source = envelope_of(source)
        if _is_inside(workspace, source):
            for recipient in (name for name in route.arrivals if name != who.name):
                files.setdefault((route.step.name, recipient), []).append(workspace.show(source))
    recipients: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (step, recipient), names in files.items():
        recipients.setdefault((step, tuple(names)), []).append(recipient)
    for (step, names_of), members in recipients.items():
        yield HandOff(done[step], tuple(members), names_of)


def _is_inside(workspace: Workspace, path: Path) -> bool:
    """Whether a path is a plain file of the folder, and no link leads there."""
    return is_plain(path) and path.resolve() == workspace.root.resolve() / path.relative_to(workspace.root)
