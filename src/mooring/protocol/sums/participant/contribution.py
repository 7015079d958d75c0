"""A participant's contribution to a study of secure sums: its one bundle of sealed shares.

Sums are exact integers (`table_sums`). Noise and polynomials are drawn from the operating system's entropy and never stored,
so that nobody who obtains the vault later can subtract the noise. The finished bundle is kept in the vault and recorded
before anything leaves; later runs copy it without reading the table. A run that was killed before that has released
nothing, and the next run draws new noise.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from mooring.atomic_io import hash_file, require_writable
from mooring.errors import RefusedError
from mooring.mechanisms.sums.prime_field import encode_signed
from mooring.mechanisms.sums.sums import Integers
from mooring.protocol.crypto.keys import Secret
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import find_membership, hand_out, recall_exceeded, require_limits
from mooring.protocol.registry import exchange_of
from mooring.protocol.results import Consent, ShareResult
from mooring.protocol.storage.fingerprints import RowSummary
from mooring.protocol.storage.ledger import Entry, Ledger, Spending
from mooring.protocol.storage.vault import Vault
from mooring.protocol.sums.bundle import KEPT, words_of, write_sum_bundle
from mooring.protocol.sums.combiner.combination import require_combining_key
from mooring.protocol.sums.participant.table_sums import sum_table
from mooring.protocol.sums.scheme import list_exceeded, sum_scheme
from mooring.typing import Progress, TableSource

_NO_OVERRIDE = Consent()


def share_sums(
    vault: Vault,
    study: Study,
    data: TableSource,
    *,
    output: Path,
    consent: Consent = _NO_OVERRIDE,
    anchor: Path | None = None,
    ignore: Collection[str] = (),
    progress: Progress | None = None,
) -> ShareResult:
    """Write the one bundle of these rows' sums in this study.

    Once the bundle is recorded, the same bytes are written again without reading the table. Labels are not shared, so that
    `consent` need not include them. `anchor` is ignored.
    """
    require_writable(output, what="the bundle", inputs=(data,))  # a mistyped path must not use up the one upload
    member = find_membership(vault, study)
    exchange_of(study).require_floors(study, vault.floors)
    with vault.lock():
        kept, ledger = vault.study_folder(study.folder_name) / KEPT, Ledger(vault.folder)
        entry = ledger.entry(study.digest)
        reissued = entry is not None and entry.bundle is not None
        if entry is None or entry.bundle is None:
            if member.name in sum_scheme(study).combiners:
                require_combining_key(vault, member)  # nobody could open a box sealed to a destroyed key
            sums = sum_table(vault, study, data, ignore, progress)
            entry = _make_bundle(vault, study, member, kept, consent, sums)
        elif not (kept.exists() and hash_file(kept, what="the bundle") == entry.bundle):
            raise RefusedError(
                "the bundle",
                reason="it was issued before, and its copy in the vault is gone: its random numbers were never stored, so "
                "the same bytes cannot be made again",
                cure="Restore the vault from a backup, or send the copy that was first written.",
            )
        epsilon, spent = sum_scheme(study).settings.epsilon, ledger.spent_epsilon(study.digest)
        shared = ShareResult.of(entry, reissued=reissued, epsilon=epsilon, spent=spent)
        return hand_out(shared, kept, output, consent.command)


def _make_bundle(
    vault: Vault, study: Study, member: Member, kept: Path, consent: Consent, sums: tuple[Integers, RowSummary]
) -> Entry:
    """Add noise to the sums, then write the bundle and record it. Once recorded, it may leave."""
    scheme, ledger, (vector, rows) = sum_scheme(study), Ledger(vault.folder), sums
    spending = Spending(scheme.settings.epsilon, member.combining_key, vault.floors.most_epsilon)
    exceeded = recall_exceeded(vault, study, rows.digest) if scheme.noise is None else list_exceeded(study, None)
    decided = require_limits(vault, study, exceeded, consent.override)
    entry = ledger.record_intent(study.digest, study.name, rows, owner=member.name, spending=spending, decided=decided)
    noisy = vector + scheme.draw_noise(words_of(Secret.draw()))
    digest = write_sum_bundle(kept, study, encode_signed(noisy), vault.signing_key)
    ledger.record_bundle(study.digest, digest)
    return replace(entry, bundle=digest)
