"""The total of a study of secure sums: the analyst closes the list of bundles, and opens their total.

Nothing that the analyst holds opens a single contribution. Bundles are sealed to combiners, and combiners answer only with
shares of the total of one list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np

from mooring.atomic_io import make_folder, write_atomically
from mooring.errors import InputError, MooringError, RefusedError, StorageError
from mooring.learners.class_sums import ClassSums, check_class_sums
from mooring.learners.sums import Sums, check_sums
from mooring.mechanisms.sums.general.features import extract_sums
from mooring.mechanisms.sums.general.total import PairwiseTotal, check_total
from mooring.mechanisms.sums.prime_field import LARGEST, decode_signed
from mooring.mechanisms.sums.secret_sharing import find_wrong, recombine
from mooring.mechanisms.sums.settings import SECURE_SUM
from mooring.protocol.analyst.trained_model import require_analyst
from mooring.protocol.crypto.keys import Secret, SigningKey
from mooring.protocol.messages.study import Study
from mooring.protocol.results import Contribution, Finding, GatherRecord
from mooring.protocol.sums.answers import (
    LIST_FILE,
    RECEIPT,
    SHARE,
    SUFFIXES,
    ClosingList,
    CombinedShare,
    Receipt,
    most_answer_bytes,
    read_closing_list,
    read_combined_share,
    read_receipt,
    write_closing_list,
)
from mooring.protocol.sums.bundle import SumBundle, words_of
from mooring.protocol.sums.scheme import sum_scheme
from mooring.protocol.transport.inbox import fetch_files
from mooring.serialization import Rows, count_noun
from mooring.tables.schema import Schema

CLOSING_FILE = "closing.json"


@dataclass(frozen=True)
class Closing(GatherRecord):
    """The record of the closing list."""

    mechanism: ClassVar[str] = SECURE_SUM

    participants: tuple[str, ...]
    """Participants whose bundles are on the list."""
    left_out: dict[str, str]
    """Participants whose bundle is not on the list, and why."""
    doubted: tuple[str, ...]
    """Combiners who report more bundles as bad than there may be colluders; their receipts are ignored."""
    tested_by: tuple[str, ...]
    """Combiners who tested their boxes of the bundles. If none did, a bad bundle shows only when combiners answer."""
    digest: str
    """SHA-256 of the list."""
    next_step: str = ""
    """The sentence that tells the analyst to whom the list is sent."""
    study: str = ""
    """The study's digest."""
    command: str = ""
    """The command that was run."""

    @property
    def is_whole(self) -> bool:
        """Whether every bundle that came is on the list and no receipt is ignored."""
        return not (self.left_out or self.doubted)

    def list_left_out(self) -> dict[str, str]:
        """Return the participants whose bundle is not on the list, and why."""
        return self.left_out

    def describe(self) -> list[str]:
        """Return a sentence on who tested the bundles."""
        by = f"tested by {', '.join(self.tested_by)}" if self.tested_by else "not tested by combiners"
        return [f"Closed with {count_noun(len(self.participants), 'contribution')}, {by}."]

    def state_hand_off(self) -> list[str]:
        """Return the sentence that tells the analyst to whom the list is sent."""
        return [self.next_step]

    def list_contributions(self) -> Rows:
        """Return one line per participant or combiner, headings first."""
        return [
            ("contribution", "state"),
            *((name, "in the total") for name in self.participants),
            *((name, f"left out: {reason}") for name, reason in self.left_out.items()),
            *((name, "its receipt reports too many bundles as bad, and is ignored") for name in self.doubted),
        ]

    def list_states(self) -> dict[str, Contribution]:
        """Return whether each participant's sums are in the total, by name."""
        inside = {name: Contribution("in the total") for name in self.participants}
        return inside | {name: Contribution(f"not in the total: {why}") for name, why in self.left_out.items()}

    def list_findings(self) -> tuple[Finding, ...]:
        """Return findings on bundles left out, on receipts ignored, and on bundles that no combiner tested."""
        out = [Finding("left out", f"{name} was left out: {why}.", (name,)) for name, why in self.left_out.items()]
        doubted = [
            Finding("doubted", f"The combiner {name} reported too many bundles as bad.", (name,))
            for name in self.doubted
        ]
        words = "Combiners did not test the bundles before the list was closed."
        return *out, *doubted, *(() if self.tested_by else (Finding("not tested", words),))


def close_list(
    study: Study,
    bundles: Sequence[SumBundle],
    folder: str | Path,
    signing_key: SigningKey,
    *,
    receipts: str | Path | None = None,
    command: str = "",
) -> Closing:
    """Write the signed list of bundles that make up the total; a study is closed once.

    `bundles` holds one verified bundle per participant. `receipts` is a folder or URL with the combiners' receipts; a bundle
    that a receipt reports as bad is left out, unless the receipt is ignored because it reports too many.
    """
    folder, scheme = Path(folder), sum_scheme(study)
    require_analyst(study, signing_key)
    make_folder(folder, mode=0o700, what="the work folder")
    received = [] if receipts is None else _read_all(receipts, RECEIPT, study, read_receipt)
    left_out, doubted = _judge(study, bundles, received)
    kept = [bundle for bundle in bundles if bundle.member.name not in left_out]
    if len(kept) < scheme.quorum:
        raise InputError(
            "bundles",
            expected=f"those of {scheme.quorum} participants or more, the study's quorum",
            got=f"{len(kept)} of {len(kept) + len(left_out)} that came",
            cure="Wait for further bundles: a total of fewer bundles than the quorum is not opened.",
        )
    path = folder / LIST_FILE
    digests = {bundle.member.signing_key: bundle.header_digest for bundle in kept}
    if path.exists() and read_closing_list(path, study).digests != digests:
        raise RefusedError(
            "a second list",
            reason="the study was closed with other bundles, and combiners answer one list only",
            cure=f"Send them {LIST_FILE} again. Later participants get the model, but their rows are not in the total.",
        )
    digest = write_closing_list(path, study, digests, signing_key)
    names = tuple(bundle.member.name for bundle in kept)
    tested_by = tuple(receipt.member.name for receipt in received)
    who_combines = f"{', '.join(scheme.combiners)}; {scheme.threshold.threshold} of them open the total"
    next_step = f"Send {LIST_FILE} and all bundles to the combiners ({who_combines})."
    closing = Closing(names, left_out, doubted, tested_by, digest, next_step, study.digest, command)
    write_atomically(folder / CLOSING_FILE, closing.to_json().encode(), what="the record")
    return closing


def _judge(
    study: Study, bundles: Sequence[SumBundle], receipts: Sequence[Receipt]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return whose bundles are left out, with the reason, and the combiners whose receipts are ignored.

    If a combiner reports a bundle as bad, either the combiner or the bundle's sender is at fault. A combiner that reports
    more bundles than there may be colluders is at fault itself, and its receipt is ignored. Otherwise the bundle is left
    out.
    """
    bad = {
        receipt.member.name: {
            bundle.member.name for bundle in bundles if receipt.passed.get(bundle.header_digest) is False
        }
        for receipt in receipts
    }
    most = sum_scheme(study).parties.n_colluders
    doubted = tuple(sorted(name for name, reported in bad.items() if len(reported) > most))
    left_out = {
        bundle.member.name: f"its share failed the test of {', '.join(by)}"
        for bundle in bundles
        if (by := [name for name, reported in bad.items() if bundle.member.name in reported and name not in doubted])
    }
    return left_out, doubted


@dataclass(frozen=True, eq=False)
class Total:
    """The opened total."""

    content: Sums | ClassSums | PairwiseTotal
    """The sums of one model, over all rows or by class, or the general total."""
    participants: tuple[str, ...]
    """Participants whose rows are in the total."""
    wrong: tuple[str, ...]
    """Combiners whose shares were left out, because these shares do not fit the others."""
    checked: bool
    """Whether more shares than the threshold were used. Otherwise, a wrong share would shift the total and go unnoticed."""

    def extract_sums(self, schema: Schema) -> Sums | ClassSums:
        """Return the sums on which a model of a schema's label is trained."""
        return extract_sums(self.content, schema) if isinstance(self.content, PairwiseTotal) else self.content

    @property
    def pairwise(self) -> PairwiseTotal:
        """The general total; an `InputError` in a study for one model, which has no general total."""
        if isinstance(self.content, PairwiseTotal):
            return self.content
        problem = "The study was declared for a model only, and its total answers no other question."
        raise InputError("questions", problem=problem, cure='Declare questions = ["tables", ...] in a new study.')


def open_total(study: Study, folder: str | Path, shares: str | Path) -> Total:
    """Open the total of the closing list in the analyst's work folder, from combiners' shares in a folder or at a URL.

    Too few shares of this list are an `InputError`. Contradicting shares are refused if it cannot be determined whose are
    wrong. A total that cannot be the sum over the participants' rows is refused as well.
    """
    scheme, closed = sum_scheme(study), read_list(study, Path(folder))
    shares_by_point: dict[int, CombinedShare] = {}
    for share in _read_all(shares, SHARE, study, read_combined_share):
        if share.list_digest == closed.digest:  # shares of another list are not mixed in
            shares_by_point[share.combiner] = share
    elements = {point: share.elements for point, share in shares_by_point.items()}
    wrong: tuple[str, ...] = ()
    if len(elements) > scheme.threshold.threshold:
        misfits = find_wrong(elements, scheme.threshold, words_of(Secret.draw()))
        if misfits is None:
            raise RefusedError(
                "the total",
                reason="the combiners' shares contradict each other, and there are too few to find out whose are wrong",
                cure="Ask further combiners for their shares, or ask all of them whether their vault is intact.",
            )
        wrong = tuple(shares_by_point[point].member.name for point in misfits)
        elements = {point: value for point, value in elements.items() if point not in misfits}
    vector = decode_signed(recombine(elements, scheme.threshold))
    if int(np.abs(vector).max()) > LARGEST // 2:
        raise refuse_total("it holds numbers that no sums have")
    content = scheme.unpack(vector, len(closed.digests))
    names = tuple(member.name for member in study.participants if member.signing_key in closed.digests)
    checked, most_rows = len(elements) > scheme.threshold.threshold, len(names) * scheme.settings.most_rows
    for problem in _check_content(content, most_rows):
        raise refuse_total(f"{problem}, so that it is not the sum over rows of all participants")
    return Total(content, names, wrong, checked)


def _check_content(content: Sums | ClassSums | PairwiseTotal, most_rows: float) -> list[str]:
    """Return, in words, the properties that show that a total cannot come from rows; empty for a plausible total."""
    match content:
        case Sums():
            return check_sums(content, most_rows)
        case ClassSums():
            return check_class_sums(content, most_rows)
    return check_total(content, most_rows)


def refuse_total(reason: str) -> RefusedError:
    """Return the error for an unusable total, to which a wrong share or a participant's wrong sums may have led."""
    cure = (
        "Ask further combiners for their shares: two more than the threshold identify a wrong one. If the shares fit, "
        "a participant's sums are wrong, and the total does not show whose: ask participants how their bundles were made, "
        "then start a new study without that participant."
    )
    return RefusedError("the total", reason=reason, cure=cure)


def read_list(study: Study, folder: Path) -> ClosingList:
    """Return the closing list in a work folder."""
    path = folder / LIST_FILE
    if not path.exists():
        raise StorageError("the closing list", reason="there is none", cure="Run 'mooring align' first.")
    return read_closing_list(path, study)


def _read_all(source: str | Path, kind: str, study: Study, read: Any) -> list[Any]:
    """Return the valid files of a kind in a folder or at a URL, one per combiner. Combiners that signed two are left out."""
    answers: dict[int, tuple[bytes, Any]] = {}
    twice: set[int] = set()
    with TemporaryDirectory(prefix="mooring-") as folder:
        for path in fetch_files(source, SUFFIXES[kind], Path(folder), most_bytes=most_answer_bytes(study, kind)):
            try:
                answer, content = read(path, study), hashlib.sha256(path.read_bytes()).digest()
            except (MooringError, OSError):
                continue
            if answers.setdefault(answer.combiner, (content, answer))[0] != content:
                twice.add(answer.combiner)
    return [answer for point, (_, answer) in sorted(answers.items()) if point not in twice]
