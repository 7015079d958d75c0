"""The steps of secure sums: combiners test bundles, the analyst closes a list, and combiners add up their shares of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mooring.errors import RefusedError, StorageError
from mooring.protocol.participant.steps import take_own_step
from mooring.protocol.step import (
    AGREED,
    ASK_BUNDLES,
    AWAITED_BUNDLES,
    AWAITS_NOBODY,
    BUNDLES,
    SHARE_ONCE,
    Addition,
    Awaited,
    Item,
    Question,
    Sent,
    Step,
)
from mooring.protocol.workspace import Outcome, Workspace
from mooring.typing import Progress

CLOSED = Item("the closing list", ("analysis/closing.list",))
CLOSING_LIST = Item("the analyst's closing list", ("closing.list",))
SHARE = Item("your share of the total", ("NAME.share",))
SHARES = Item("combiners' shares of the total", ("inbox/*.share",))


def _has_tested(workspace: Workspace) -> bool:
    """Return whether a combiner has written its share of the total, or its receipt mentions every bundle in its inbox."""
    name = workspace.identify().name
    return SHARE.is_there(workspace) or _mentions_all(workspace, workspace.root / f"{name}.receipt")


def _mentions_all(workspace: Workspace, receipt: Path) -> bool:
    """Return whether a receipt mentions every bundle in the inbox; False if the receipt is missing or refused."""
    from mooring.protocol.sums.answers import read_receipt
    from mooring.protocol.sums.bundle import list_header_digests

    try:
        passed = read_receipt(receipt, workspace.study).passed
    except (RefusedError, StorageError):
        return False
    return list_header_digests(workspace.root / "inbox", workspace.study) <= passed.keys()


def list_combiners(workspace: Workspace) -> Sequence[str]:
    """Return the names of the study's combiners."""
    from mooring.protocol.sums.scheme import sum_scheme

    return sum_scheme(workspace.study).combiners


def count_enough_combiners(workspace: Workspace) -> int:
    """Return how many combiners open a total. Any that many open the same total of a list, so that others may be absent."""
    from mooring.protocol.sums.scheme import sum_scheme

    return sum_scheme(workspace.study).threshold.threshold


def list_receipts(workspace: Workspace) -> Sequence[str]:
    """Return the names of the combiners whose receipts mention every bundle in the inbox."""
    inbox = workspace.root / "inbox"
    return [name for name in list_combiners(workspace) if _mentions_all(workspace, inbox / f"{name}.receipt")]


def list_listed(workspace: Workspace) -> Sequence[str]:
    """Return the names of the participants whose bundles are on the closing list."""
    listed = _read_listed(workspace)
    return [member.name for member in workspace.study.participants if member.signing_key in listed]


def list_arrived(workspace: Workspace) -> Sequence[str]:
    """Return the names of the participants whose listed bundles are in the inbox; a bundle may arrive after the list."""
    from mooring.protocol.sums.bundle import list_header_digests

    listed, study = _read_listed(workspace), workspace.study
    here = list_header_digests(workspace.root / "inbox", study)
    return [member.name for member in study.participants if listed.get(member.signing_key) in here]


def _read_listed(workspace: Workspace) -> Mapping[str, str]:
    """Return each listed bundle's digest by its sender's key; empty if the closing list is missing or refused."""
    from mooring.protocol.sums.answers import read_closing_list

    try:
        return read_closing_list(workspace.root / "closing.list", workspace.study).digests
    except (RefusedError, StorageError):
        return {}  # the combine step says what is wrong with the list


def confirm(
    workspace: Workspace,
    *,
    bundles: str | Path,
    output: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Outcome:
    """Write a combiner's receipt for the bundles."""
    path = output or workspace.root / f"{workspace.identify().name}.receipt"
    return take_own_step("combine", workspace, path, progress, bundles=bundles)


def combine(
    workspace: Workspace,
    *,
    bundles: str | Path,
    closing_list: Path,
    output: Path | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> Outcome:
    """Write a combiner's share of the total of a closing list."""
    name = workspace.identify().name
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
    from mooring.protocol.sums.combiner.watch import SECONDS, Watch, watch_boxes

    watched = Watch(bundles, lists or bundles, to or bundles, workspace.root, SECONDS if seconds is None else seconds)
    result = watch_boxes(workspace.vault, workspace.study, watched, tell=tell)
    return Outcome(
        result,
        {"output": workspace.show(result.output), "digest": result.digest},
        result.lines,
        hand_off=(result.hand_off,),
    )


STEPS = (
    Step(
        name="confirm",
        role="combiner",
        title="Test bundles",
        explanation="Test your share in each bundle, and write a receipt for the analyst. Take the step again for bundles "
        "that arrive later.",
        command="combine",
        phase=SHARE_ONCE,
        needs=(AGREED, BUNDLES),
        makes=(Item("your receipt for the bundles", ("NAME.receipt",), _has_tested),),
        sends=(Sent("NAME.receipt", "analyst", "inbox", grows=True),),
        asks=(ASK_BUNDLES,),
        awaits=AWAITS_NOBODY,
        run=confirm,
        after="send",
    ),
    Step(
        name="combine",
        role="combiner",
        title="Combine",
        explanation="Add up your shares of the bundles that the analyst's closing list names. You can answer one list "
        "only: your combining key is then destroyed.",
        command="combine",
        phase=SHARE_ONCE,
        needs=(AGREED, BUNDLES, CLOSING_LIST),
        makes=(SHARE,),
        sends=(Sent("NAME.share", "analyst", "inbox"),),
        asks=(ASK_BUNDLES, Question("closing_list", "Closing list", "usual", "--list", default="closing.list")),
        awaits=(Awaited("inbox/NAME.bundle", list_listed, ready=list_arrived),),
        run=combine,
        after="confirm",
    ),
)
ADDITIONS = (
    Addition(step="share", sends=(Sent("NAME.bundle", "combiner", "inbox"),)),
    Addition(
        step="align",
        makes=(CLOSED,),
        sends=(Sent("analysis/closing.list", "combiner"),),
        asks=(Question("receipts", "Receipts", "usual", "--receipts", default="inbox"),),
        awaits=(
            AWAITED_BUNDLES,
            Awaited("inbox/NAME.receipt", list_combiners, count_enough_combiners, list_receipts),
        ),
        title="Close the list",
        explanation="Sign the list of contributions that make up the total, for the combiners; a study is closed once.",
    ),
    Addition(
        step="train",
        needs=(SHARES,),
        asks=(Question("shares", "Shares", "usual", "--shares", default="inbox"),),
        awaits=(Awaited("inbox/NAME.share", list_combiners, count_enough_combiners),),
    ),
)
