"""The exact sums over a participant's table.

In a study with ε, the treatment of a row depends only on that row, or on the rows of its person. Cells that do not fit are
clipped or filled. Each row is kept with a public probability. If a person has too many rows, those with the smallest keyed
fingerprints are added. No table is refused because of its rows, and the sums of an empty table are zero.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from mooring.errors import InputError
from mooring.mechanisms.sums.class_moments import ClassAccumulator, ClassLayout
from mooring.mechanisms.sums.general.layout import PairwiseAccumulator, PairwiseLayout
from mooring.mechanisms.sums.prime_field import Words
from mooring.mechanisms.sums.sums import (
    Integers,
    SumAccumulator,
    SumLayout,
    count_rows_of_persons,
    rank_rows_of_persons,
)
from mooring.protocol.crypto.keys import Secret
from mooring.protocol.messages.study import Study
from mooring.protocol.registry import exchange_of
from mooring.protocol.storage.fingerprints import Fingerprinter, RowCollector, RowSummary
from mooring.protocol.storage.vault import Vault
from mooring.protocol.sums.bundle import words_of
from mooring.protocol.sums.features import study_features
from mooring.protocol.sums.scheme import sum_scheme
from mooring.randomness import Streams
from mooring.tables import encoded_batches
from mooring.tables.encoder import EncodedRows
from mooring.tables.reader import THREADS, read_ahead
from mooring.typing import Matrix, Progress, TableSource

Mask = npt.NDArray[np.bool_]
_ROWS_AT_ONCE, _ROWS_A_TASK = 2**14, 2**12


def sum_table(
    vault: Vault, study: Study, data: TableSource, ignore: Collection[str], progress: Progress | None
) -> tuple[Integers, RowSummary]:
    """Return the exact sums over a table, and the summary of its rows for the ledger."""
    scheme, exchange, collector = sum_scheme(study), exchange_of(study), RowCollector(vault.ledger_key, study.schema)
    sums, add_rows = _start_sums(study)

    def read(progress: Progress | None) -> Iterator[EncodedRows]:
        return read_ahead(
            encoded_batches(
                study.schema,
                data,
                ignore=tuple(ignore),
                person=scheme.settings.person,
                unfit="adapt" if exchange.adapts_rows(study) else "refuse",
                coded=isinstance(scheme.layout, PairwiseLayout),
                rows_at_once=_ROWS_AT_ONCE,
                progress=progress,
            )
        )

    words = words_of(Secret.draw())
    weighing = _PersonWeights(vault, study, read(None)) if scheme.settings.person else None
    n_threads = max(1, THREADS - 1)  # these add up different rows, and one more thread reads
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(n_threads) as threads:
        for block in read(progress):
            used, weights = draw_kept(words, scheme.settings.kept_share, len(block.rows)), None
            if weighing is not None:
                used, weights = weighing.next_rows(block, used)
            rows, labels = block.rows, block.labels
            if not used.all():
                rows, labels = rows[used], None if labels is None else labels[used]

            def add(here: slice, rows: Any = rows, labels: Any = labels, weights: Any = weights) -> None:
                add_rows(*(None if part is None else part[here] for part in (rows, labels, weights)))

            starts = range(0, len(rows), _ROWS_A_TASK)  # whatever the number of threads, so that features round alike
            adding = threads.map(add, [slice(start, start + _ROWS_A_TASK) for start in starts])
            collector.add(block)
            list(adding)  # raises the error of a thread
    if weighing is not None:
        weighing.require_end()
    for refusal in exchange.list_refusals(study, sums.n_rows, collector.by_class):
        raise refusal
    return sums.vector, collector.finish()[0]


def _start_sums(study: Study) -> tuple[SumAccumulator | ClassAccumulator | PairwiseAccumulator, Callable[..., None]]:
    """Return empty sums, and a function that adds to them: given rows, labels, and how many rows each row's person has.

    For the general total, the rows are coded (see `encoded_batches`).
    """
    layout, features = sum_scheme(study).layout, study_features(study)
    rounding = Streams.from_system().named("rounding")  # fresh, and never stored
    sums: SumAccumulator | ClassAccumulator
    match layout:
        case PairwiseLayout():
            general = PairwiseAccumulator(layout, rounding)
            return general, general.add_coded
        case ClassLayout():
            sums = ClassAccumulator(layout, rounding)
        case SumLayout():
            sums = SumAccumulator(layout)

    def add(rows: Matrix, labels: npt.NDArray[Any], rows_of_person: Integers | None) -> None:
        sums.add(features.apply(rows), scale_labels(study, labels), rows_of_person)

    return sums, add


def draw_kept(words: Words, share: float, count: int) -> Mask:
    """Return a mask of `count` rows, each of which is kept with probability `share`, independently of all others."""
    if share == 1:
        return np.ones(count, dtype=np.bool_)
    return np.asarray(words(count) < np.uint64(int(share * 2.0**64)))


class _PersonWeights:
    """Which rows of each person are added, or with which weights; determined by a first reading of the table."""

    def __init__(self, vault: Vault, study: Study, blocks: Iterator[EncodedRows]) -> None:
        names = [column.name for column in study.columns]
        prints, persons = Fingerprinter(vault.ledger_key, names), list[Matrix]()
        for block in blocks:
            prints.add(block.values[:, : len(names)])
            persons.append(np.asarray(block.persons))
        self._persons = np.concatenate(persons) if persons else np.zeros(0)
        self._n_read = 0
        most = sum_scheme(study).settings.rows_per_person
        self._used = np.ones(self._persons.size, dtype=np.bool_)
        self._weights: Integers | None = None
        if most == "mean":
            self._weights = count_rows_of_persons(self._persons)
        else:
            self._used = rank_rows_of_persons(self._persons, prints.take()) < most

    def next_rows(self, block: EncodedRows, kept: Mask) -> tuple[Mask, Integers | None]:
        """Return a mask of the next block's rows that are added and, for means, how many rows the person of each has."""
        here = slice(self._n_read, self._n_read + len(block.rows))
        self._n_read = here.stop
        if not np.array_equal(self._persons[here], np.asarray(block.persons)):
            raise _changed_table()
        used = self._used[here] & kept
        return used, None if self._weights is None else self._weights[here][used]

    def require_end(self) -> None:
        """Raise an `InputError` if the second reading had fewer rows, because a person could then have another weight."""
        if self._n_read != self._persons.size:
            raise _changed_table()


def _changed_table() -> InputError:
    problem = "The table changed while it was read: the rows of a person differ from those counted first."
    return InputError("rows of a person", problem=problem, cure="Share it again.")


def scale_labels(study: Study, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return labels as sums use them: codes of classes, or numbers scaled to −1 to 1 and clipped to the declared range."""
    if study.label.kind == "classes":
        return labels
    low, high = study.label.low, study.label.high
    return np.clip((2 * labels - low - high) / (high - low), -1.0, 1.0)
