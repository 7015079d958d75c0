"""A combiner that waits: it tests its boxes as bundles arrive, sends receipts, and answers the closing list."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mooring.errors import RefusedError, StorageError
from mooring.protocol.messages.study import Study
from mooring.protocol.results import StepResult
from mooring.protocol.storage.vault import Vault
from mooring.protocol.sums.answers import LIST, RECEIPT, SHARE, SUFFIXES, most_answer_bytes
from mooring.protocol.sums.combiner.combination import KEY, check_boxes, combine_shares, find_combiner
from mooring.protocol.transport.inbox import fetch_files, list_versions
from mooring.protocol.transport.transfer import send_file

SECONDS = 60.0
"""Seconds after which a waiting combiner looks for new files again."""
_FINAL = (KEY, "a second list")  # errors that waiting does not resolve


@dataclass(frozen=True)
class Watch:
    """Where a combiner looks for files, and where it sends its own."""

    bundles: str | Path
    """The folder, or its URL, in which bundles arrive."""
    lists: str | Path
    """The folder, or its URL, in which the analyst puts the closing list."""
    to: str | Path
    """Where receipts and the share are sent: a folder or its URL."""
    folder: Path
    """The folder in which receipts and the share are written before they are sent."""
    seconds: float = SECONDS
    """How long to wait before looking again."""


def watch_boxes(
    vault: Vault,
    study: Study,
    watch: Watch,
    *,
    tell: Callable[[str], None] = lambda words: None,
    wait: Callable[[float], None] = time.sleep,
) -> StepResult:
    """Test boxes as bundles arrive, and return once a closing list is answered and the share of the total is sent.

    After a temporary error, the attempt is repeated; the error is reported, unless it is the one that was reported last. A
    list that was answered before is answered again by the same share. `tell` is called with sentences for a person.
    """
    name = find_combiner(vault, study)[0].name
    receipt, share = (watch.folder / f"{name}{SUFFIXES[kind]}" for kind in (RECEIPT, SHARE))
    tested, reported = list[tuple[str, str]](), ""

    def answer() -> StepResult | None:
        refused: RefusedError | StorageError | None = None
        with TemporaryDirectory(prefix="mooring-") as folder:
            for path in fetch_files(
                watch.lists, SUFFIXES[LIST], Path(folder), most_bytes=most_answer_bytes(study, LIST)
            ):
                try:  # a file that is refused may stand beside the analyst's list
                    result = combine_shares(vault, study, watch.bundles, path, output=share)
                except (RefusedError, StorageError) as problem:
                    if problem.what in _FINAL:
                        raise
                    refused = problem
                    continue
                send_file(share, watch.to, overwrite=True)
                return result
        if refused is not None:
            raise refused
        return None

    def test() -> None:
        nonlocal tested
        if (listed := list_versions(watch.bundles)) and listed != tested:
            result = check_boxes(vault, study, watch.bundles, output=receipt)
            send_file(receipt, watch.to, overwrite=True)
            tested = listed
            for sentence in result.lines:
                tell(sentence)

    while True:
        for attempt in (answer, test):  # a bad list must not keep bundles from being tested
            try:
                if (result := attempt()) is not None:
                    return result
            except (RefusedError, StorageError) as problem:
                reported = _report(problem, reported, tell)
        wait(watch.seconds)


def _report(problem: RefusedError | StorageError, reported: str, tell: Callable[[str], None]) -> str:
    """Report a temporary problem, unless it is the one reported last, and return its words; raise any other problem."""
    if problem.what in _FINAL:
        raise problem
    words = str(problem)
    if words != reported:
        tell(words)
    return words
