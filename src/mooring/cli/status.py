"""`mooring status`: what is done in a study, what comes next, and for whom everybody waits."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli import execution
from mooring.cli.run import describe_question, tabulate


@execution.command
def status(
    console: execution.Output,
    place: Annotated[
        str | None,
        typer.Option("--place", help="Where members exchange files.", envvar="MOORING_PLACE", show_default=False),
    ] = None,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
) -> None:
    """Show what is done in a study, what comes next, and for whom it waits. Nothing is changed, fetched or sent.

    With a place, the command also shows which steps each member has done.

    Example: mooring status --place /mnt/ward
    """
    from mooring.protocol.driver import Driver, Given
    from mooring.protocol.storage.vault import has_vault
    from mooring.protocol.transport.place import Place

    workspace = execution.make_workspace(execution.DEFAULT_STUDY, vault)
    if workspace.is_locked:
        workspace.vault  # noqa: B018 (asks for its passphrase)
    who = workspace.identify()
    driver = Driver(workspace, None if place is None else Place(place), Given(is_analyst=who.role == "analyst"))
    turn = driver.look()
    done = [state.step.title for state in driver.list_own_states() if state.is_done]
    stranger = "No card and no study in this folder names the owner of the vault." if has_vault(vault) else ""
    lines = [f"You are {who.name}, {who.role}." if who.role else stranger or "You have not joined yet."]
    if workspace.has_study:
        study = workspace.study
        kind = "complete" if study.is_complete else "a draft"
        lines.append(f"The study {study.name!r} is {kind}; fingerprint {study.fingerprint}.")
    lines += [f"Done: {', '.join(done)}."] if done else []
    lines += (
        [f"Next, by 'mooring run' or: {', '.join(f'mooring {command}' for command in turn.left)}"] if turn.left else []
    )
    console.show(
        {**who_as_dict(who), "done": done, **turn.as_dict()},
        *map(escape, lines),
        *([escape(turn.state_waiting())] if turn.waits or turn.questions or turn.away else []),
        *(line for question in turn.questions for line in describe_question(question)),
        *([tabulate(turn.members)] if turn.members else []),
        *(["Everything is done."] if turn.is_finished else []),
    )


def who_as_dict(who: object) -> dict[str, object]:
    """Return a member's name and role as plain values."""
    return {key: value for key, value in vars(who).items() if key in ("name", "role")}
