"""A participant of a study of secure sums: its one bundle of sealed shares, and its answers as a combiner.

`share_sums` reads the table once, or twice where the mean of each person's rows is added. Sums are exact integers. Noise and
polynomials are drawn from the operating system's entropy and never stored, so that nobody who obtains the vault later can
subtract the noise. The finished bundle is kept in the vault and recorded before anything leaves; later runs copy it. A run
that was killed earlier has released nothing, and the next one draws afresh.

A combiner opens its box of every bundle: `confirm_bundles` before the list is closed, `combine_shares` afterwards, once, for
its share of the total. Then the key that opens boxes is destroyed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from mooring.atomic_io import clear_partial_copies, copy_atomically, hash_file, require_writable
from mooring.errors import InputError, RefusedError, StorageError
from mooring.mechanisms.sums.prime_field import Elements, add, encode_signed
from mooring.mechanisms.sums.sums import Integers, PersonCounts, SumAccumulator
from mooring.protocol.crypto.keys import SealingKey, Secret
from mooring.protocol.messages.bundle import SUFFIX
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import find_membership, hand_out, require_limits
from mooring.protocol.registry import exchange_of
from mooring.protocol.results import Consent, ShareResult, StepResult
from mooring.protocol.storage.fingerprints import RowCollector, RowSummary, hash_names
from mooring.protocol.storage.ledger import Ledger, Spending
from mooring.protocol.storage.vault import Vault
from mooring.protocol.sums.answers import (
    combiner_point,
    read_closing_list,
    write_combined_share,
    write_confirmation,
)
from mooring.protocol.sums.bundle import (
    SumBundle,
    check_share,
    most_sum_bundle_bytes,
    open_share,
    verify_sum_bundle,
    words_of,
    write_sum_bundle,
)
from mooring.protocol.sums.features import study_features
from mooring.protocol.sums.scheme import sum_scheme
from mooring.protocol.transport.addresses import is_url
from mooring.protocol.transport.inbox import NO_ROOM, download_bundles, list_files
from mooring.serialization import count_noun
from mooring.tables import encoded_batches
from mooring.tables.encoder import EncodedRows
from mooring.tables.reader import THREADS, read_ahead
from mooring.typing import Progress, TableSource

_KEPT, _KEPT_SHARE = "upload" + SUFFIX, "combined.share"
_NO_OVERRIDE = Consent()
_ROWS_AT_ONCE, _ROWS_A_TASK = 2**14, 2**12


def share_sums(
    vault: Vault,
    study: Study,
    data: TableSource,
    *,
    output: Path,
    consent: Consent = _NO_OVERRIDE,
    ignore: Collection[str] = (),
    progress: Progress | None = None,
) -> ShareResult:
    """Write the one bundle of these rows' sums in this study, or the same bytes again.

    Parameters
    ----------
    study : Study
        Of secure sums.
    consent : Consent
        Labels stay at home, so that no consent for them is needed.
    """
    scheme = sum_scheme(study)
    require_writable(output, what="the bundle", inputs=(data,))  # a typing error there must not use up the one upload
    member = find_membership(vault, study)
    exchange_of(study).require_floors(study, vault.floors)
    settings, noise = scheme.settings, scheme.noise
    with vault.lock():
        vector, rows = _sum_rows(vault, study, data, ignore, progress)
        kept, ledger = vault.study_folder(study.folder_name) / _KEPT, Ledger(vault.folder)
        names, limit = hash_names(column.name for column in study.columns), vault.floors.most_epsilon
        spending = Spending(settings.epsilon, bool(settings.person), names, member.combining_key, limit)
        decided = require_limits(vault, study, rows.digest, consent.override)
        entry = ledger.record_intent(
            study.digest, study.name, rows, owner=member.name, spending=spending, decided=decided
        )
        reissued = entry.bundle is not None
        if reissued and not (kept.exists() and hash_file(kept, what="the bundle") == entry.bundle):
            raise RefusedError(
                "the bundle",
                reason="it was issued before, and its copy in the vault is gone: its noise was never stored, so the same "
                "bytes cannot be made again",
                cure="Restore the vault from a backup, or send the copy that was first written.",
            )
        if not reissued:
            noisy = vector if noise is None else vector + noise.draw(scheme.layout, words_of(Secret.draw()))
            digest = write_sum_bundle(kept, study, encode_signed(noisy), vault.signing_key)
            ledger.record_bundle(study.digest, digest)
            entry = ledger.entry(study.digest) or entry
        spent = ledger.spent_epsilon(study.digest, rows, spending)
        total_spent = spent if math.isfinite(spent) else None
        shared = ShareResult.of(entry, reissued=reissued, epsilon=settings.epsilon, spent=total_spent)
        return hand_out(shared, kept, output, consent.command)


def _sum_rows(
    vault: Vault, study: Study, data: TableSource, ignore: Collection[str], progress: Progress | None
) -> tuple[Integers, RowSummary]:
    """The exact sums over a table, and what the ledger is told of its rows."""
    scheme = sum_scheme(study)
    person, features = scheme.settings.person, study_features(study)
    sums, collector = SumAccumulator(scheme.layout), RowCollector(vault.ledger_key, study.schema)

    def read(progress: Progress | None) -> Iterator[EncodedRows]:
        return read_ahead(
            encoded_batches(
                study.schema, data, ignore=tuple(ignore), person=person, rows_at_once=_ROWS_AT_ONCE, progress=progress
            )
        )

    counted = PersonCounts()
    by_mean = scheme.settings.rows_per_person == "mean"
    for block in read(None) if by_mean else ():
        counted.add(block.persons)
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(THREADS) as threads:  # which work on different rows instead
        for block in read(progress):
            assert block.labels is not None
            weights = counted.of(np.asarray(block.persons)) if by_mean else None
            rows, scaled = block.rows, scale_labels(study, block.labels)

            def add(here: slice, rows: Any = rows, scaled: Any = scaled, weights: Any = weights) -> None:
                sums.add(features.apply(rows[here]), scaled[here], None if weights is None else weights[here])

            starts = range(0, len(scaled), _ROWS_A_TASK)  # whatever the number of threads: features are rounded alike
            adding = threads.map(add, [slice(start, start + _ROWS_A_TASK) for start in starts])
            collector.add(block)
            list(adding)  # raises what was refused
    if sums.n_rows > scheme.most_rows:
        expected, cure = f"{scheme.most_rows} at most", "Share fewer rows."
        raise InputError("rows", expected=expected, got=str(sums.n_rows), cure=cure)
    for refusal in exchange_of(study).list_refusals(study, sums.n_rows, collector.by_class, collector.persons):
        raise refusal
    if by_mean:
        counted.require_same(collector.persons)
    return sums.vector, collector.finish()[0]


def scale_labels(study: Study, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Labels as sums take them: codes of classes, or numbers of the declared range as −1 to 1."""
    if study.label.kind == "classes":
        return labels
    low, high = study.label.low, study.label.high
    return np.clip((2 * labels - low - high) / (high - low), -1.0, 1.0)


def confirm_bundles(vault: Vault, study: Study, bundles: str | Path, *, output: Path) -> StepResult:
    """Write a combiner's confirmation: of each bundle, a value that shows whether its shares fit.

    Parameters
    ----------
    vault : Vault
        A combiner's.
    bundles : str or Path
        Where all bundles are: a folder, or a URL that fsspec knows.
    """
    member = find_membership(vault, study)
    point, key = _require_point(study, member.name), _require_key(vault, member)
    require_writable(output, what="the confirmation")
    values, unopened = dict[str, int | None](), list[str]()
    with _verified(bundles, study) as found:
        for bundle in found:
            try:
                values[bundle.digest] = check_share(bundle, open_share(bundle, study, point, key))
            except RefusedError:
                values[bundle.digest] = None
                unopened.append(bundle.member.name)
    if not values:
        raise StorageError("the bundles", reason="there is none of this study", cure="Check --bundles.")
    write_confirmation(output, study, values, combiner=point, signer=vault.signing_key)
    wrote = f"Wrote {output.name}, about {count_noun(len(values), 'bundle')}. Send it to the analyst."
    bad = (f"Your share in the bundle of {name} cannot be opened, or does not belong there." for name in unopened)
    return StepResult(str(output), hash_file(output, what="the confirmation"), (wrote, *bad), not unopened)


def combine_shares(
    vault: Vault,
    study: Study,
    bundles: str | Path,
    closing_list: Path,
    *,
    output: Path,
    progress: Progress | None = None,
) -> StepResult:
    """Write a combiner's share of the total of a closing list: once, and for the same list the same bytes again.

    Parameters
    ----------
    vault : Vault
        A combiner's.
    bundles : str or Path
        As for `confirm_bundles`.
    closing_list : Path
        The analyst's.
    """
    member = find_membership(vault, study)
    point = _require_point(study, member.name)
    require_writable(output, what="the share", inputs=(closing_list,))
    closed = read_closing_list(closing_list, study)
    ledger = Ledger(vault.folder)
    own = ledger.entry(study.digest)
    listed = closed.digests.get(member.signing_key)
    if listed is not None and (own is None or own.bundle != listed):
        raise RefusedError(
            "the closing list",
            reason="the bundle that it lists as yours is not the one that this vault made",
            cure="Tell the others: somebody put another in its place, or your vault is an old copy.",
        )
    ledger.require_first_list(study.digest, closed.digest)
    kept = vault.study_folder(study.folder_name) / _KEPT_SHARE
    with ExitStack() as stack:
        verified = () if kept.exists() else tuple(stack.enter_context(_verified(bundles, study)))
        stack.enter_context(vault.lock())  # only now: a download may take as long as its sender likes
        ledger.require_first_list(study.digest, closed.digest)
        if not kept.exists():
            total = _add_shares(study, closed.digests, verified, point, _require_key(vault, member), progress)
            ledger.record_answer(study.digest, closed.digest)  # all boxes opened: a bad bundle uses up no answer
            signer, digest = vault.signing_key, closed.digest
            write_combined_share(kept, study, total, combiner=point, list_digest=digest, signer=signer)
        vault.destroy_combining_key(member.combining_key)
        clear_partial_copies(output)
        copy_atomically(kept, output, mode=0o600, what="the share")
    listed_count = count_noun(len(closed.digests), "contribution")
    wrote = f"Wrote {output.name}, your share of the total of {listed_count}. Send it to the analyst."
    destroyed = "Your combining key of this study is destroyed; remove copies of the vault that still hold it."
    return StepResult(str(output), hash_file(output, what="the share"), (wrote, destroyed))


def _add_shares(
    study: Study,
    listed: Mapping[str, str],
    bundles: Iterable[SumBundle],
    point: int,
    key: SealingKey,
    progress: Progress | None,
) -> Elements:
    found = {one.digest: one for one in bundles}
    total: Elements = np.zeros(sum_scheme(study).layout.size, dtype=np.uint64)
    for k, (sender, digest) in enumerate(listed.items(), start=1):
        bundle, member = found.get(digest), study.member_with_key(sender)
        if bundle is None or bundle.member != member:
            raise RefusedError(
                "the closing list",
                reason=f"the bundle that it lists for {member.name if member else 'nobody'} is not among the bundles",
                cure="Fetch all bundles of the study, and run the command again.",
            )
        total = add(total, open_share(bundle, study, point, key)[:-1])
        if progress:
            progress(k, len(listed))
    return total


def _require_key(vault: Vault, member: Member) -> SealingKey:
    key = vault.combining_key(member.combining_key)
    if key is None:
        raise StorageError(
            "the vault",
            reason="it does not hold the combining key that the roster has of you: it was used and destroyed, or the card "
            "was written from another vault",
            cure="Open the vault that you joined with.",
        )
    return key


def _require_point(study: Study, name: str) -> int:
    point = combiner_point(study, name)
    if point is None:
        expected, got = f"one of {', '.join(sum_scheme(study).combiners)}, as the study says", repr(name)
        cure = "The others have nothing to combine: wait for the result."
        raise InputError("combiner", expected=expected, got=got, cure=cure)
    return point


@contextmanager
def _verified(source: str | Path, study: Study) -> Iterator[Iterator[SumBundle]]:
    """The bundles of a folder, or at a URL, that hold up; the closing list says which count."""
    most = most_sum_bundle_bytes(study)

    def verify(paths: Iterable[Path | str]) -> Iterator[SumBundle]:
        for path in paths:
            if isinstance(path, Path):
                with suppress(RefusedError, StorageError):
                    yield verify_sum_bundle(path, study)
            elif path.endswith(NO_ROOM):  # other reasons are faults of what lies there
                raise StorageError("the folder for temporary files", reason=path, cure="Make room, and run this again.")

    if not is_url(source):
        yield verify(list_files(source))
        return
    with TemporaryDirectory(prefix="mooring-") as folder:
        yield verify(one.found for one in download_bundles(str(source), Path(folder), {}, most_bytes=most))
