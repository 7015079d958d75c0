"""The steps of secure sums: combiners test bundles, the analyst closes a list of them, and combiners answer it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mooring.protocol.participant.steps import take_own_step
from mooring.protocol.step import AGREED, ASK_BUNDLES, BUNDLES, SHARE_ONCE, Addition, Item, Question, Step
from mooring.protocol.workspace import Outcome, Workspace, has_file
from mooring.typing import Progress

CLOSED = Item("the closing list", ("analysis/closing.list",))
SHARE = Item("your share of the total", ("NAME.share",))
SHARES = Item("combiners' shares of the total", ("inbox/*.share",))


def combine(
    workspace: Workspace,
    *,
    bundles: str | Path,
    closing_list: Path | None = None,
    output: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Outcome:
    """Write a combiner's share of the total of a closing list or, without a list, a receipt for the bundles."""
    name = workspace.identify().name
    if closing_list is None:
        return take_own_step(
            "combine", workspace, output or workspace.root / f"{name}.receipt", progress, bundles=bundles
        )
    path = output or workspace.root / f"{name}.share"
    return take_own_step("combine", workspace, path, progress, bundles=bundles, list=closing_list)


def watch(
    workspace: Workspace,
    *,
    bundles: str | Path,
    lists: str | Path | None = None,
    to: str | Path | None = None,
    seconds: float | None = None,
    tell: Callable[[str], None] = lambda words: None,
) -> Outcome:
    """Test bundles as they arrive, send receipts, and answer the closing list; by default all at the bundles' address."""
    from mooring.protocol.sums.watch import SECONDS, Watch, watch_boxes

    watched = Watch(bundles, lists or bundles, to or bundles, workspace.root, SECONDS if seconds is None else seconds)
    result = watch_boxes(workspace.vault, workspace.study, watched, tell=tell)
    return Outcome(result, {"output": workspace.show(result.output), "digest": result.digest}, result.lines)


STEPS = (
    Step(
        name="combine",
        role="combiner",
        title="Combine",
        explanation="Test your share in each bundle, and send the receipt to the analyst. Once the analyst has closed the "
        "list (closing.list), take this step again to add up your shares; one list is answered, once, and your combining "
        "key is destroyed then.",
        command="combine",
        phase=SHARE_ONCE,
        needs=(AGREED, BUNDLES),
        makes=(SHARE,),
        asks=(
            ASK_BUNDLES,
            Question(
                "closing_list",
                "Closing list",
                "usual",
                "--list",
                default="closing.list",
                when=lambda workspace: has_file(workspace, "closing.list"),
            ),
        ),
        run=combine,
        after="send",
    ),
)
ADDITIONS = (
    Addition(
        step="align",
        makes=(CLOSED,),
        asks=(Question("receipts", "Receipts", "usual", "--receipts", default="inbox"),),
        title="Close the list",
        explanation="Sign the list of contributions that make up the total, for the combiners; a study is closed once.",
    ),
    Addition(step="train", needs=(SHARES,), asks=(Question("shares", "Shares", "usual", "--shares", default="inbox"),)),
)
