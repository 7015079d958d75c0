"""The steps of a study: those that every study has, and those of its mechanism, in the order in which they are taken.

Commands, the desk and the documentation read these steps. `state_of` says which steps are done in a folder, which can be
taken now, and what the other steps wait for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mooring.errors import InputError
from mooring.protocol.common_steps import COMMON
from mooring.protocol.registry import exchange_of, list_own_steps, own_steps_of
from mooring.protocol.step import AGREED, Addition, Item, Step
from mooring.protocol.workspace import Workspace

if TYPE_CHECKING:
    from mooring.protocol.messages.study import Study


def list_commands() -> dict[str, str]:
    """Return the first word of each step's command, in order, with its heading; commands with an option are left out."""
    added = [step for steps, _ in list_own_steps().values() for step in steps]
    return {step.command.split()[0]: step.phase for step in arrange_steps(added, ()) if "--" not in step.command}


def explain_command(words: str) -> str:
    """Return what a command does, in the sentences of its steps; empty for a command of no step.

    `words` are the command's words that follow `mooring`.
    """
    by_mechanism = {
        name: " ".join(dict.fromkeys(step.explanation for step in steps if step.command == words))
        for name, steps in list_steps().items()
    }
    sentences = {name: text for name, text in by_mechanism.items() if text}
    if len(set(sentences.values())) < 2:
        return next(iter(sentences.values()), "")
    return " ".join(f"With {name}: {text[0].lower()}{text[1:]}" for name, text in sentences.items())


def arrange_steps(steps: Iterable[Step], additions: Iterable[Addition]) -> list[Step]:
    """Return the common steps with further steps and additions, which come from a mechanism."""
    added = {addition.step: addition for addition in additions}
    arranged = [added[step.name].extend(step) if step.name in added else step for step in COMMON]
    for step in steps:
        before = next(k for k, other in enumerate(arranged) if other.name == step.after)
        arranged.insert(before + 1, step)
    return arranged


def list_steps() -> dict[str, list[Step]]:
    """Return, for each mechanism, all steps of its studies in the order in which they are taken."""
    return {name: arrange_steps(*added) for name, added in list_own_steps().items()}


def steps_of(study: Study) -> list[Step]:
    """Return all steps of a study in the order in which they are taken."""
    return arrange_steps(*own_steps_of(study.mechanism.name))


def find_step(workspace: Workspace, name: str) -> Step:
    """Return the step with this name in the study of a folder; a study without such a step is refused."""
    steps = {step.name: step for step in COMMON}
    if name not in steps or (steps[name].needs and workspace.has_study):  # joining, for example, needs no study
        steps = {step.name: step for step in steps_of(workspace.study)}
    if name not in steps:
        cure = f"The steps of this study are {', '.join(step.name for step in steps.values() if step.run)}."
        raise InputError("study", problem=f"This study has no step {name!r}.", cure=cure)
    return steps[name]


@dataclass(frozen=True)
class StepState:
    """The state of a step in a folder."""

    step: Step
    is_done: bool
    waits_for: tuple[Item, ...]
    """What the step needs and the folder does not have yet; empty if the step can be taken now."""


def state_of(workspace: Workspace) -> list[StepState]:
    """Return the steps that the owner of a folder may take, in their order, with the state of each.

    Without a study, the only such step is joining. While the owner's role is unknown, steps that need a roster are left out,
    too. So are steps that have a command only.
    """
    workspace = workspace.as_it_is()
    who = workspace.identify()
    listed = steps_of(workspace.study) if workspace.has_study else [step for step in COMMON if not step.needs]
    if not who.role:
        listed = [step for step in listed if AGREED not in step.needs]
    roles = {"everybody", "designer", who.role or "participant"}
    if AGREED.is_there(workspace):
        roles.update(exchange_of(workspace.study).list_roles(workspace.study, who.name))
    return [
        StepState(
            step,
            bool(step.makes) and all(item.is_there(workspace) for item in step.makes),
            tuple(item for item in step.needs if not item.is_there(workspace)),
        )
        for step in listed
        if step.run is not None and step.role in roles and (step.when is None or step.when(workspace))
    ]
