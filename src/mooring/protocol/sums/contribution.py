"""A participant's contribution to a study of secure sums: its one bundle of sealed shares.

`share_sums` reads the table once, or twice where the mean of each person's rows is added. Sums are exact integers. Noise and
polynomials are drawn from the operating system's entropy and never stored, so that nobody who obtains the vault later can
subtract the noise. The finished bundle is kept in the vault and recorded before anything leaves; later runs copy it. A run
that was killed earlier has released nothing, and the next one draws afresh.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from mooring.atomic_io import hash_file, require_writable
from mooring.errors import InputError, RefusedError
from mooring.mechanisms.sums.prime_field import encode_signed
from mooring.mechanisms.sums.sums import Integers, PersonCounts, SumAccumulator
from mooring.protocol.crypto.keys import Secret
from mooring.protocol.messages.bundle import SUFFIX
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import find_membership, hand_out, require_limits
from mooring.protocol.registry import exchange_of
from mooring.protocol.results import Consent, ShareResult
from mooring.protocol.storage.fingerprints import RowCollector, RowSummary, hash_names
from mooring.protocol.storage.ledger import Ledger, Spending
from mooring.protocol.storage.vault import Vault
from mooring.protocol.sums.bundle import words_of, write_sum_bundle
from mooring.protocol.sums.features import study_features
from mooring.protocol.sums.scheme import sum_scheme
from mooring.tables import encoded_batches
from mooring.tables.encoder import EncodedRows
from mooring.tables.reader import THREADS, read_ahead
from mooring.typing import Progress, TableSource

KEPT = "upload" + SUFFIX
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
        kept, ledger = vault.study_folder(study.folder_name) / KEPT, Ledger(vault.folder)
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
