"""What colluders can compute of honest contributions to secure sums, by linear algebra over a small field."""

import struct
from collections.abc import Collection, Mapping, Sequence
from functools import cache

_PRIME = 31
_BITS, _LARGEST = 32, 2**32 - 1
"""Number of bits of an entry and its largest value. A row is one integer, so that rows are added in one operation."""


def what_opens(
    n_combiners: int, t: int, honest: Sequence[int], answers: Mapping[int, Collection[frozenset[int]]]
) -> list[tuple[int, ...]]:
    """A basis of the linear functions of honest contributions that colluders can compute.

    `answers` are the lists that each honest combiner answered, by its number from 0. Combiners that are not in it collude.
    Unknowns are the coefficients of each honest polynomial, constant terms last, so that rows in which nothing else is left
    speak of contributions alone.
    """
    single = frozenset(frozenset({place}) for place in range(len(honest)))
    seen = tuple(
        frozenset(frozenset(place for place, i in enumerate(honest) if i in listed) for listed in answers[combiner])
        if combiner in answers
        else single
        for combiner in range(n_combiners)
    )
    return _open_sums(t, len(honest), seen)


@cache  # studies with other quorums or colluders have the same sums
def _open_sums(t: int, n_honest: int, seen: tuple[frozenset[frozenset[int]], ...]) -> list[tuple[int, ...]]:
    """The same, of the sums over honest contributions, by place, of which colluders see each combiner's point."""
    view = [_make_row(t, n_honest, combiner, summed) for combiner, sums in enumerate(seen) for summed in sums]
    return _reduce(view, n_honest * (t - 1), n_honest)


@cache
def _make_row(t: int, n_honest: int, combiner: int, summed: frozenset[int]) -> int:
    """A combiner's share of a sum, as a linear function of the unknowns."""
    powers = [pow(combiner + 1, j, _PRIME) for j in range(t)]
    higher = [powers[j] if i in summed else 0 for i in range(n_honest) for j in range(1, t)]
    return _pack([*higher, *(int(i in summed) for i in range(n_honest))])


def _pack(entries: Sequence[int]) -> int:
    return int.from_bytes(struct.pack(f"<{len(entries)}I", *entries), "little")


def _reduce(rows: list[int], n_first: int, n_last: int) -> list[tuple[int, ...]]:
    """The last entries of those rows of the echelon form, pivots from the left, whose first entries are zero."""
    done: list[tuple[int, ...]] = []
    width = n_first + n_last
    for column in range(width):
        leading = [(row >> _BITS * column & _LARGEST) % _PRIME for row in rows]
        if not any(leading):
            continue
        place = next(place for place, entry in enumerate(leading) if entry)
        scale = pow(leading.pop(place), -1, _PRIME)
        taken = struct.unpack(f"<{width}I", rows.pop(place).to_bytes(4 * width, "little"))
        entries = [entry * scale % _PRIME for entry in taken]
        pivot = _pack(entries)
        rows = [row + (_PRIME - entry) * pivot if entry else row for row, entry in zip(rows, leading, strict=True)]
        if column >= n_first:
            done.append(tuple(entries[n_first:]))
    return done
