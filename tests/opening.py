"""What colluders can compute of honest contributions to secure sums, by linear algebra over a small field."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache

_PRIME = 31


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
    view = []
    for combiner, sums in enumerate(seen):
        powers = [pow(combiner + 1, j, _PRIME) for j in range(t)]
        for summed in sorted(map(sorted, sums)):
            higher = [powers[j] if i in summed else 0 for i in range(n_honest) for j in range(1, t)]
            view.append([*higher, *(int(i in summed) for i in range(n_honest))])
    width = n_honest * (t - 1)
    return [tuple(row[width:]) for row in _reduce(view) if not any(row[:width])] if view else []


def _reduce(rows: list[list[int]]) -> list[list[int]]:
    """The nonzero rows of the echelon form, pivots from the left."""
    done: list[list[int]] = []
    for column in range(len(rows[0])):
        pivot = next((row for row in rows if row[column]), None)
        if pivot is None:
            continue
        rows.remove(pivot)
        scale = pow(pivot[column], -1, _PRIME)
        pivot = [value * scale % _PRIME for value in pivot]
        rows = [
            [(a - row[column] * b) % _PRIME for a, b in zip(row, pivot, strict=True)] if row[column] else row
            for row in rows
        ]
        done.append(pivot)
    return done
