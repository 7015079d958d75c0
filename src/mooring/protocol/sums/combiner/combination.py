"""A combiner of a study of secure sums: it tests its box of every bundle, and adds up its shares of one list's bundles.

`check_boxes` writes a receipt before the list is closed, so that the analyst lists only bundles whose shares fit.
`combine_shares` answers a list. It opens and tests the boxes of all listed bundles; until then, a bad bundle or a missing
one uses up nothing. Then, under the vault's lock, it records the answer, writes the share of the total, and destroys the key
that opens boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from mooring.atomic_io import clear_partial_copies, copy_atomically, hash_file, open_plain_file, require_writable
from mooring.errors import InputError, RefusedError, StorageError
from mooring.mechanisms.sums.prime_field import Elements, add
from mooring.protocol.crypto.keys import SealingKey
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import find_member
from mooring.protocol.results import StepResult
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Vault
from mooring.protocol.sums.answers import combiner_point, read_closing_list, write_combined_share, write_receipt
from mooring.protocol.sums.bundle import (
    KEPT,
    Box,
    find_part,
    most_sum_bundle_bytes,
    open_box,
    read_box,
    verify_sum_bundle,
)
from mooring.protocol.sums.scheme import sum_scheme
from mooring.protocol.transport.addresses import is_url
from mooring.protocol.transport.inbox import NO_ROOM, download_bundles, list_files
from mooring.serialization import count_noun
from mooring.typing import Progress

KEY = "the combining key"
"""The subject of the error about a key that the vault does not hold."""
_KEPT_SHARE = "combined.share"
_TO_ANALYST = "Send it to the analyst."


def check_boxes(vault: Vault, study: Study, bundles: str | Path, *, output: Path) -> StepResult:
    """Write a combiner's receipt for all bundles in a folder, or at a URL that fsspec knows."""
    member, point = find_combiner(vault, study)
    key = require_combining_key(vault, member)
    require_writable(output, what="the receipt")
    passed, failed = dict[str, bool](), list[str]()
    with _read_boxes(bundles, study, point) as boxes:
        for box in boxes:
            try:
                open_box(box, study, key)
                passed[box.header_digest] = True
            except RefusedError:
                passed[box.header_digest] = False
                failed.append(box.member.name)
    if not passed:
        raise StorageError("the bundles", reason="there is none of this study", cure="Check --bundles.")
    write_receipt(output, study, passed, combiner=point, signer=vault.signing_key)
    wrote = f"Wrote {output.name}, about {count_noun(len(passed), 'bundle')}."
    bad = (f"Your share in the bundle of {name} failed the test." for name in failed)
    return StepResult(str(output), hash_file(output, what="the receipt"), (wrote, *bad), not failed, _TO_ANALYST)


def combine_shares(
    vault: Vault,
    study: Study,
    bundles: str | Path,
    closing_list: Path,
    *,
    output: Path,
    progress: Progress | None = None,
) -> StepResult:
    """Write a combiner's share of a closing list's total. Only the first list is answered, always with the same bytes."""
    member, point = find_combiner(vault, study)
    require_writable(output, what="the share", inputs=(closing_list,))
    closed, ledger = read_closing_list(closing_list, study), Ledger(vault.folder)
    listed = closed.digests.get(member.signing_key)
    if listed is not None and listed != _find_own(vault, study, ledger):
        raise RefusedError(
            "the closing list",
            reason="the bundle that it lists as yours is not the one that this vault made",
            cure="Tell the others: somebody replaced your bundle, or your vault is an old copy.",
        )
    ledger.require_first_list(study.digest, closed.digest)
    kept, total = vault.study_folder(study.folder_name) / _KEPT_SHARE, None
    if not kept.exists():
        key = require_combining_key(vault, member)
        with _read_boxes(bundles, study, point) as boxes:
            total = _add_shares(study, closed.digests, boxes, key, progress)
    with vault.lock():  # only now: a download may take as long as its sender likes
        ledger.record_answer(study.digest, closed.digest)
        if total is not None and not kept.exists():
            signer, digest = vault.signing_key, closed.digest
            write_combined_share(kept, study, total, combiner=point, list_digest=digest, signer=signer)
        vault.destroy_combining_key(member.combining_key)
        clear_partial_copies(output)
        copy_atomically(kept, output, mode=0o600, what="the share")
    listed_count = count_noun(len(closed.digests), "contribution")
    wrote = f"Wrote {output.name}, your share of the total of {listed_count}."
    destroyed = (
        "Your combining key of this study is destroyed; make a new backup of the vault, and remove copies that still "
        "hold the key."
    )
    return StepResult(str(output), hash_file(output, what="the share"), (wrote, destroyed), hand_off=_TO_ANALYST)


def _find_own(vault: Vault, study: Study, ledger: Ledger) -> str | None:
    """Return the header digest of the bundle that this vault made; None if there is none, or if the vault lost its copy."""
    with suppress(RefusedError, StorageError):
        bundle = verify_sum_bundle(vault.study_path(study.folder_name) / KEPT, study)
        return bundle.header_digest if bundle.digest == ledger.find_bundle(study.digest) else None
    return None


def _add_shares(
    study: Study, listed: Mapping[str, str], boxes: Iterable[Box], key: SealingKey, progress: Progress | None
) -> Elements:
    total: Elements = np.zeros(sum_scheme(study).layout.size, dtype=np.uint64)
    missing = dict(listed)
    for box in boxes:
        if missing.get(box.member.signing_key) == box.header_digest:
            total = add(total, open_box(box, study, key))
            del missing[box.member.signing_key]
            if progress:
                progress(len(listed) - len(missing), len(listed))
    if missing:
        absent = [member.name for member in study.participants if member.signing_key in missing]
        raise RefusedError(
            "the closing list",
            reason=f"the bundle that it lists for {absent[0]} is not among the bundles",
            cure="Fetch all bundles of the study, and run the command again.",
        )
    return total


def require_combining_key(vault: Vault, member: Member) -> SealingKey:
    """Return the private half of a combiner's key in a study, or raise an error if the vault does not hold it."""
    key = vault.combining_key(member.combining_key)
    if key is None:
        reason, cure = _GONE[vault.why_gone(member.combining_key)]
        raise StorageError(KEY, reason=reason, cure=cure)
    return key


_GONE = {
    "combined": (
        "this vault destroyed it when it answered the closing list",
        "Nothing is left to test. 'mooring combine' with that list writes the same share again.",
    ),
    "revoked": (
        "the study has one that you revoked when you wrote a new card",
        "Send the designer your new card, and have it enrolled in a new study.",
    ),
    "unknown": (
        "your vault never held the one that the roster lists for you, or your vault is an old copy",
        "Open the vault that you joined with, or have a new card enrolled in a new study.",
    ),
}


def find_combiner(vault: Vault, study: Study) -> tuple[Member, int]:
    """Return a vault's owner (a participant or helper) and its point; an owner that does not combine is refused."""
    member = find_member(vault, study)
    point = combiner_point(study, member.name)
    if point is None:
        expected, got = f"one of {', '.join(sum_scheme(study).combiners)}, as the study says", repr(member.name)
        cure = "The others have nothing to combine: wait for the result."
        raise InputError("combiner", expected=expected, got=got, cure=cure)
    return member, point


@contextmanager
def _read_boxes(source: str | Path, study: Study, point: int) -> Iterator[Iterator[Box]]:
    """Yield an iterator over a combiner's boxes of all bundles in a folder or at a URL; unusable files are skipped.

    From a URL, only headers and this combiner's boxes are fetched.
    """

    def read(paths: Iterable[Path | str]) -> Iterator[Box]:
        for path in paths:
            if isinstance(path, Path):
                with suppress(RefusedError, StorageError), open_plain_file(path, what="the bundle") as file:
                    yield read_box(file, study, point)
            elif path.endswith(NO_ROOM):  # other reasons concern the file itself
                raise StorageError("the folder for temporary files", reason=path, cure="Make room, and run this again.")

    if not is_url(source):
        yield read(list_files(source))
        return
    with TemporaryDirectory(prefix="mooring-") as folder:
        part, most = find_part(study, point), most_sum_bundle_bytes(study)
        candidates = download_bundles(str(source), Path(folder), {}, most_bytes=most, part=part)
        yield read(candidate.path_or_reason for candidate in candidates)
