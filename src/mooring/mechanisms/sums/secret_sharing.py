"""Shamir's secret sharing of vectors: any t of k shares give the vector, fewer give nothing.

Legend: p the prime; k combiners at the points x = 1, …, k; t the threshold; f the polynomial of degree t − 1 with f(0) the
secret, one for each entry of the vector; combiner j holds f(j).

The first t − 1 shares are uniform whatever the secret is, so each is a seed of a stream instead of a vector; with the
secret they fix f, and the other shares follow from it. Sums of shares are shares of the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mooring.errors import InputError
from mooring.mechanisms.sums.prime_field import (
    PRIME,
    Elements,
    Words,
    add,
    draw_elements,
    multiply,
    require_elements,
    total,
)

MOST_COMBINERS = 32


@dataclass(frozen=True)
class Threshold:
    """How many combiners hold shares, and how many of them open the total.

    Notes
    -----
    t > c: colluders cannot open a contribution. 3t > 2k + c: nothing but one list's total can be opened, even if honest
    combiners are given different lists, of which each answers one.
    """

    n_combiners: int
    """k."""
    threshold: int
    """t."""
    n_colluders: int
    """c: how many participants, combiners among them, may collude with the analyst."""

    def __post_init__(self) -> None:
        k, t, c = self.n_combiners, self.threshold, self.n_colluders
        if not 1 <= t <= k <= MOST_COMBINERS:
            raise InputError(
                "threshold",
                expected=f"between 1 and the number of combiners, which is {MOST_COMBINERS} at most",
                got=f"{t} of {k}",
                cure="Name more combiners, or lower the threshold.",
            )
        if not 0 <= c < t:
            cure = "With fewer, the colluders could open every contribution."
            raise InputError("threshold", expected=f"above the number of colluders, {c}", got=str(t), cure=cure)
        if not 3 * t > 2 * k + c:
            raise InputError(
                "threshold",
                expected=f"at least {(2 * k + c) // 3 + 1} for {k} combiners and {c} colluders: 3t > 2k + c",
                got=str(t),
                cure="With fewer, answers to different lists could be mixed.",
            )


def split(secret: Elements, threshold: Threshold, seeds: Sequence[Words]) -> list[Elements]:
    """Return the shares of the combiners t, …, k; those of 1, …, t − 1 are `draw_elements` of the seeds."""
    k, t = threshold.n_combiners, threshold.threshold
    if len(seeds) != t - 1:
        raise InputError("seeds", expected=f"{t - 1}, one below the threshold", got=str(len(seeds)), cure="Draw them.")
    given = [secret, *(draw_elements(seed, secret.size) for seed in seeds)]
    return [combine(given, lagrange_weights(range(t), at=point)) for point in range(t, k + 1)]


def recombine(shares: Mapping[int, Elements], threshold: Threshold) -> Elements:
    """Return the secret from shares, by combiner 1 to k, that all lie on one polynomial.

    Fewer than t shares, and shares that lie on no polynomial of degree t − 1 (`find_wrong` names whose), are refused.
    """
    t, points = threshold.threshold, sorted(shares)
    _require_shares(shares, threshold)
    used = points[:t]
    for point in points[t:]:
        expected = combine([shares[x] for x in used], lagrange_weights(used, at=point))
        if not np.array_equal(expected, shares[point]):
            cure = "find_wrong names the combiners whose shares do not fit."
            raise InputError("shares", expected="on one polynomial", got="shares that contradict each other", cure=cure)
    return combine([shares[x] for x in used], lagrange_weights(used, at=0))


def find_wrong(shares: Mapping[int, Elements], threshold: Threshold, words: Words) -> list[int] | None:
    """Return the combiners whose shares do not fit the others', or None if it cannot be told.

    Notes
    -----
    t + b answers tell that b are wrong, t + 2b tell whose.
    """
    _require_shares(shares, threshold)
    weights = draw_elements(words, next(iter(shares.values())).size)
    return find_wrong_values({x: check_value(share, 0, weights) for x, share in shares.items()}, threshold)


def find_wrong_values(values: Mapping[int, int], threshold: Threshold) -> list[int] | None:
    """Return the combiners whose single numbers do not lie on one polynomial with the others', or None if it cannot be told.

    Of t numbers or fewer, none is wrong.
    """
    t, points = threshold.threshold, sorted(values)
    if _fits(points, values, t):
        return []
    most = (len(points) - t) // 2
    powers = {x: [pow(x, j, PRIME) for j in range(t + most)] for x in points}
    # Berlekamp and Welch: Q(x) = y E(x) everywhere, E of degree `most` zero where y is wrong; if unsolvable, no rest fits
    equations = []
    for x, y in sorted(values.items()):
        right_side = y * powers[x][most] % PRIME
        equations.append([*powers[x], *(-y * power % PRIME for power in powers[x][:most]), right_side])
    locator = [*_solve(equations)[t + most :], 1]
    zeros = [x for x in points if sum(a * b for a, b in zip(locator, powers[x], strict=False)) % PRIME == 0]
    right = [x for x in points if x not in zeros]
    return [x for x in zeros if not _fits([*right[:t], x], values, t)] if _fits(right, values, t) else None


def check_value(share: Elements, mask: int, weights: Elements) -> int:
    """Return u + Σ r_e s_e, which a combiner publishes of its share s and its share u of a random number."""
    return (mask + int(total(multiply(share, weights)))) % PRIME


def lagrange_weights(points: Sequence[int] | range, *, at: int) -> list[int]:
    """Return the weights with which a polynomial's values at `points` add up to its value at `at`."""
    weights = []
    for x in points:
        top = bottom = 1
        for other in points:
            if other != x:
                top, bottom = top * (at - other) % PRIME, bottom * (x - other) % PRIME
        weights.append(top * pow(bottom, -1, PRIME) % PRIME)
    return weights


def combine(vectors: Sequence[Elements], weights: Sequence[int]) -> Elements:
    """Return the sum of vectors with these weights."""
    found = np.zeros_like(vectors[0])
    for vector, weight in zip(vectors, weights, strict=True):
        found = add(found, multiply(vector, np.array(weight, dtype=np.uint64)))
    return found


def _fits(points: Sequence[int], values: Mapping[int, int], t: int) -> bool:
    used = points[:t]
    return all(
        sum(w * values[x] for w, x in zip(lagrange_weights(used, at=point), used, strict=True)) % PRIME == values[point]
        for point in points[t:]
    )


def _solve(equations: list[list[int]]) -> list[int]:
    """A solution of linear equations, whose right sides are the last column, if there is one."""
    rows, width, pivots = list(equations), len(equations[0]) - 1, list[int]()
    for column in range(width):
        done = len(pivots)
        pivot = next((k for k in range(done, len(rows)) if rows[k][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        inverse = pow(rows[done][column], -1, PRIME)
        own = rows[done] = [value * inverse % PRIME for value in rows[done]]
        for k, row in enumerate(rows):
            if k != done and (factor := row[column]):
                rows[k] = [(a - factor * b) % PRIME for a, b in zip(row, own, strict=True)]
        pivots.append(column)
    found = [0] * width
    for row, column in zip(rows, pivots, strict=False):
        found[column] = row[-1]
    return found


def _require_shares(shares: Mapping[int, Elements], threshold: Threshold) -> None:
    if not set(shares) <= set(range(1, threshold.n_combiners + 1)):
        raise InputError("shares", expected="of the study's combiners", got="others", cure="Leave those out.")
    if len(shares) < threshold.threshold:
        cure = "Wait for further combiners to answer."
        raise InputError("shares", expected=f"at least {threshold.threshold}", got=str(len(shares)), cure=cure)
    if len({share.shape for share in shares.values()}) != 1:
        raise InputError("shares", expected="of one length", got="several", cure="Ask their senders again.")
    for combiner, share in shares.items():
        require_elements(f"share of combiner {combiner}", share)
