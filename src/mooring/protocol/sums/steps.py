"""The steps of secure sums: the analyst closes a list of contributions, and combiners answer before and after."""

from __future__ import annotations

from pathlib import Path

from mooring.protocol.participant.steps import open_participant, take_own_step
from mooring.protocol.place import Outcome, Place
from mooring.protocol.step import AGREED, ASK_BUNDLES, BUNDLES, SHARE_ONCE, Addition, Item, Question, Step
from mooring.typing import Progress

CONFIRMATION = Item("your confirmation", ("NAME.confirmation",))
LIST = Item("the analyst's closing list", ("closing.list",))
CLOSED = Item("the closing list", ("analysis/closing.list",))
SHARE = Item("your share of the total", ("NAME.share",))
SHARES = Item("combiners' shares of the total", ("inbox/*.share",))


def confirm(
    place: Place,
    *,
    bundles: str | Path,
    output: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Outcome:
    """Write a combiner's confirmation."""
    path = output or place.root / f"{open_participant(place).member.name}.confirmation"
    return take_own_step("confirm", place, path, progress, bundles=bundles)


def combine(
    place: Place,
    *,
    bundles: str | Path,
    closing_list: Path,
    output: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Outcome:
    """Write a combiner's share of the total."""
    path = output or place.root / f"{open_participant(place).member.name}.share"
    return take_own_step("combine", place, path, progress, bundles=bundles, list=closing_list)


STEPS = (
    Step(
        name="confirm",
        role="combiner",
        title="Confirm bundles",
        explanation="Tell the analyst whether your share in each bundle passes verification, before the list is closed.",
        command="combine",
        phase=SHARE_ONCE,
        needs=(
            AGREED,
            BUNDLES,
        ),
        makes=(CONFIRMATION,),
        asks=(ASK_BUNDLES,),
        run=confirm,
        after="send",
    ),
    Step(
        name="combine",
        role="combiner",
        title="Combine",
        explanation="Add up your shares of the contributions on the closing list; one list is answered, once, and your "
        "combining key is destroyed then.",
        command="combine",
        phase=SHARE_ONCE,
        needs=(AGREED, BUNDLES, LIST),
        makes=(SHARE,),
        asks=(ASK_BUNDLES, Question("closing_list", "Closing list", "usual", "--list", default="closing.list")),
        run=combine,
        after="align",
    ),
)
ADDITIONS = (
    Addition(
        step="align",
        makes=(CLOSED,),
        asks=(Question("confirmations", "Confirmations", "usual", "--confirmations", default="inbox"),),
        title="Close the list",
        explanation="Sign the list of contributions that make up the total, for the combiners; a study is closed once.",
    ),
    Addition(step="train", needs=(SHARES,), asks=(Question("shares", "Shares", "usual", "--shares", default="inbox"),)),
)
