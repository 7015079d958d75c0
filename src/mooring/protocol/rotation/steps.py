"""The steps of rotation: one participant makes the secret anchor, all upload, and the analyst aligns by the anchor."""

from __future__ import annotations

from pathlib import Path

from mooring.protocol.participant.steps import take_own_step
from mooring.protocol.step import AGREE, AGREED, AWAITS_NOBODY, Addition, Choice, Item, Question, Sent, Step
from mooring.protocol.workspace import Outcome, Workspace, has_label
from mooring.typing import Progress

ANCHOR = Item("the sealed anchor", ("*.anchor",))
MAP = Item("your map", ("result/map.safetensors",))


def deal(
    workspace: Workspace, *, output: Path | None = None, command: str = "", progress: Progress | None = None
) -> Outcome:
    """Write the sealed anchor."""
    return take_own_step("deal", workspace, output or workspace.root / f"{workspace.study.name}.anchor", progress)


STEPS = (
    Step(
        name="deal",
        role="dealer",
        title="Make the anchor",
        explanation="Make the secret anchor, sealed to every participant's key; one participant does this, and doing it "
        "again gives the same file.",
        command="deal",
        phase=AGREE,
        needs=(AGREED,),
        makes=(Item("the sealed anchor", ("STUDY.anchor",)),),
        sends=(Sent("STUDY.anchor", "participant"),),
        awaits=AWAITS_NOBODY,
        run=deal,
        after="enrol",
    ),
)
ADDITIONS = (
    Addition(
        step="share",
        needs=(ANCHOR,),
        asks=(
            Question("anchor", "Anchor", "choice", "--anchor", endings=(".anchor",)),
            Question(
                "labels",
                "Yes, the analyst may see the column '{study.label.column}' of every row as it is",
                "tick",
                "--labels",
                is_optional=True,
                when=has_label,
            ),
        ),
    ),
    Addition(
        step="align",
        asks=(
            Question(
                "mode",
                "Align",
                "choice",
                choices=(
                    Choice("first", "everybody"),
                    Choice("late", "newcomers only", "--late"),
                    Choice("again", "everybody anew", "--again"),
                ),
                default="first",
            ),
        ),
        title="Align",
        explanation="Bring the rows of all bundles that pass their checks into one space.",
    ),
    Addition(
        step="train",
        asks=(Question("seed", "Random seed", "number", "--seed", is_optional=True, is_rare=True),),
    ),
    Addition(step="deliver", sends=(Sent("results/RECIPIENT/map.safetensors", "participant", "result", grows=True),)),
    Addition(step="predict", needs=(MAP,)),
)
