"""Shamir's secret sharing of vectors: any t of k shares determine the vector, and fewer reveal nothing.

Legend: k combiners at the points x = 1, …, k; t the threshold; f a polynomial of degree at most t − 1 over the field, one
for each entry of the vector, where f(0) is the secret and f(j) the share of combiner j.

The first t − 1 shares are uniform whatever the secret is, so each of them is sent as the seed of a stream instead of a
vector. Together with the secret, these shares determine f, and f determines the other shares. Sums of shares are shares of
the sum.
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
class Parties:
    """How many contribute and combine in a study, and how many of them may collude with the analyst.

    A combiner is either a participant, who also contributes rows, or a helper, who contributes none. Every helper combines.
    """

    n_participants: int
    """p."""
    n_combining: int
    """How many participants combine."""
    n_colluders: int
    """c, the number of participants who may collude."""
    n_helpers: int = 0
    n_colluding_helpers: int = 0
    """h, the number of helpers who may collude."""

    @property
    def n_combiners(self) -> int:
        """The number k of all who combine."""
        return self.n_combining + self.n_helpers

    @property
    def most_colluding(self) -> int:
        """a, the largest number of combiners who may collude."""
        return min(self.n_colluders, self.n_combining) + self.n_colluding_helpers

    def do_lists_overlap(self, quorum: int) -> bool:
        """Return whether some honest contribution is on every list that honest combiners answer: b (p − quorum) < p − c.

        At least c′ of the c colluding participants combine; they are fewest if all participants who do not combine collude.
        With h colluding helpers, at most b = k − c′ − h combiners are honest. Each honest combiner answers one list, which
        omits at most p − quorum contributions.
        """
        p, c = self.n_participants, self.n_colluders
        least_combining = max(0, c - (p - self.n_combining))
        n_honest = self.n_combiners - least_combining - self.n_colluding_helpers
        return n_honest * (p - quorum) < p - c

    def least_quorum(self) -> int:
        """Return the smallest number of contributions above c for which lists overlap (`do_lists_overlap`)."""
        p, c = self.n_participants, self.n_colluders
        return next((quorum for quorum in range(c + 1, p) if self.do_lists_overlap(quorum)), p)


@dataclass(frozen=True)
class Threshold:
    """The number of combiners, and how many of them open the total.

    Notes
    -----
    t > a ensures that colluders cannot open a contribution. A threshold of at least `least_threshold` ensures that the total
    of only one list can be opened, even if honest combiners get different lists, because each of them answers only one list.
    """

    n_combiners: int
    """k."""
    threshold: int
    """t."""
    n_colluding: int
    """a, the number of combiners who may collude with the analyst."""
    lists_overlap: bool = False
    """Whether some honest contribution is on every list that honest combiners answer; see `Parties.do_lists_overlap`."""

    def __post_init__(self) -> None:
        k, t, a = self.n_combiners, self.threshold, self.n_colluding
        if not 1 <= t <= k <= MOST_COMBINERS:
            raise InputError(
                "threshold",
                expected=f"between 1 and the number of combiners, which is at most {MOST_COMBINERS}",
                got=f"{t} of {k}",
                cure="Correct the threshold, or the number of combiners.",
            )
        if not 0 <= a < t:
            cure = "Raise the threshold. Otherwise the colluders could open every contribution."
            expected = f"above the number of combiners who may collude, {a}"
            raise InputError("threshold", expected=expected, got=str(t), cure=cure)
        if t < (least := least_threshold(k, a, self.lists_overlap)):
            rule = "2t > k + a" if self.lists_overlap else "3t > 2k + a"
            raise InputError(
                "threshold",
                expected=f"at least {least} for k = {k} combiners, of whom a = {a} may collude: {rule}",
                got=str(t),
                cure="Raise the threshold. Otherwise answers to different lists could be combined.",
            )


def least_threshold(n_combiners: int, n_colluding: int, lists_overlap: bool) -> int:
    """Return the smallest t with 2t > k + a if lists overlap, and with 3t > 2k + a otherwise (docs/privacy.md)."""
    k, a = n_combiners, n_colluding
    return (k + a) // 2 + 1 if lists_overlap else (2 * k + a) // 3 + 1


def split(secret: Elements, threshold: Threshold, seeds: Sequence[Words]) -> list[Elements]:
    """Return the shares of the combiners t, …, k. The shares of the combiners 1, …, t − 1 are `draw_elements` of the seeds.

    Seeds must be fresh for every vector: if two vectors were shared with the same seeds, their shares would reveal the
    difference of the vectors.
    """
    k, t = threshold.n_combiners, threshold.threshold
    if len(seeds) != t - 1:
        raise InputError(
            "seeds",
            expected=f"{t - 1}, one below the threshold",
            got=str(len(seeds)),
            cure="Draw one seed per share below the threshold.",
        )
    values = [secret, *(draw_elements(seed, secret.size) for seed in seeds)]
    return [combine(values, lagrange_weights(range(t), at=point)) for point in range(t, k + 1)]


def recombine(shares: Mapping[int, Elements], threshold: Threshold) -> Elements:
    """Return the secret from shares by combiner (1 to k).

    An `InputError` is raised for fewer than t shares, and for shares that do not lie on one polynomial of degree t − 1.
    `find_wrong` then returns the combiners with wrong shares.
    """
    t, points = threshold.threshold, sorted(shares)
    _require_shares(shares, threshold)
    used = points[:t]
    for point in points[t:]:
        expected = combine([shares[x] for x in used], lagrange_weights(used, at=point))
        if not np.array_equal(expected, shares[point]):
            cure = "Leave out the shares of the combiners that find_wrong returns."
            problem = "The shares contradict each other: they do not lie on one polynomial."
            raise InputError("shares", problem=problem, cure=cure)
    return combine([shares[x] for x in used], lagrange_weights(used, at=0))


def find_wrong(shares: Mapping[int, Elements], threshold: Threshold, words: Words) -> list[int] | None:
    """Return the combiners whose shares do not fit the other shares, or None if they cannot be identified.

    Notes
    -----
    With t + b shares, it is detected that some are wrong if at most b are; with t + 2b shares, the wrong ones are also
    identified.
    """
    _require_shares(shares, threshold)
    weights = draw_elements(words, next(iter(shares.values())).size)
    return find_wrong_values({x: weigh(share, weights) for x, share in shares.items()}, threshold)


def find_wrong_values(values: Mapping[int, int], threshold: Threshold) -> list[int] | None:
    """Return the combiners whose values do not lie on one polynomial with the others, or None if they cannot be identified.

    With t values or fewer, no value counts as wrong.
    """
    t, points = threshold.threshold, sorted(values)
    if _fits(points, values, t):
        return []
    most = (len(points) - t) // 2
    powers = {x: [pow(x, j, PRIME) for j in range(t + most)] for x in points}
    # Berlekamp–Welch: Q(x) = y E(x) at all points, where the polynomial E, of degree `most`, is zero where y is wrong
    equations = []
    for x, y in sorted(values.items()):
        right_side = y * powers[x][most] % PRIME
        equations.append([*powers[x], *(-y * power % PRIME for power in powers[x][:most]), right_side])
    locator = [*_solve(equations)[t + most :], 1]
    zeros = [x for x in points if sum(a * b for a, b in zip(locator, powers[x], strict=False)) % PRIME == 0]
    right = [x for x in points if x not in zeros]
    return [x for x in zeros if not _fits([*right[:t], x], values, t)] if _fits(right, values, t) else None


def weigh(share: Elements, weights: Elements) -> int:
    """Return the weighted sum of a share's entries. With the same weights, these sums lie on one polynomial if shares do."""
    return int(total(multiply(share, weights)))


def interpolate(values: Sequence[int], *, at: int) -> int:
    """Return a polynomial's value at `at`, given its values at 0, 1, …."""
    weights = lagrange_weights(range(len(values)), at=at)
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) % PRIME


def lagrange_weights(points: Sequence[int] | range, *, at: int) -> list[int]:
    """Return the weights that give a polynomial's value at `at` as a sum of its values at `points`."""
    weights = []
    for x in points:
        top = bottom = 1
        for other in points:
            if other != x:
                top, bottom = top * (at - other) % PRIME, bottom * (x - other) % PRIME
        weights.append(top * pow(bottom, -1, PRIME) % PRIME)
    return weights


def combine(vectors: Sequence[Elements], weights: Sequence[int]) -> Elements:
    """Return the weighted sum of vectors."""
    result = np.zeros_like(vectors[0])
    for vector, weight in zip(vectors, weights, strict=True):
        result = add(result, multiply(vector, np.array(weight, dtype=np.uint64)))
    return result


def _fits(points: Sequence[int], values: Mapping[int, int], t: int) -> bool:
    used = points[:t]
    return all(
        sum(w * values[x] for w, x in zip(lagrange_weights(used, at=point), used, strict=True)) % PRIME == values[point]
        for point in points[t:]
    )


def _solve(equations: list[list[int]]) -> list[int]:
    """Return a solution of linear equations, if there is one; the last column holds the right-hand sides."""
    rows, width, pivots = list(equations), len(equations[0]) - 1, list[int]()
    for column in range(width):
        done = len(pivots)
        pivot = next((k for k in range(done, len(rows)) if rows[k][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        inverse = pow(rows[done][column], -1, PRIME)
        pivot_row = rows[done] = [value * inverse % PRIME for value in rows[done]]
        for k, row in enumerate(rows):
            if k != done and (factor := row[column]):
                rows[k] = [(a - factor * b) % PRIME for a, b in zip(row, pivot_row, strict=True)]
        pivots.append(column)
    solution = [0] * width
    for row, column in zip(rows, pivots, strict=False):
        solution[column] = row[-1]
    return solution


def _require_shares(shares: Mapping[int, Elements], threshold: Threshold) -> None:
    if not set(shares) <= set(range(1, threshold.n_combiners + 1)):
        expected = f"of combiners 1 to {threshold.n_combiners}"
        got = f"shares of {sorted(set(shares) - set(range(1, threshold.n_combiners + 1)))}"
        raise InputError("shares", expected=expected, got=got, cure="Leave these shares out.")
    if len(shares) < threshold.threshold:
        cure = "Wait for more combiners to answer."
        raise InputError("shares", expected=f"at least {threshold.threshold}", got=str(len(shares)), cure=cure)
    if len({share.shape for share in shares.values()}) != 1:
        lengths = ", ".join(map(str, sorted({share.size for share in shares.values()})))
        cure = "Ask the combiners for these shares again."
        raise InputError("shares", expected="of one length", got=f"lengths {lengths}", cure=cure)
    for combiner, share in shares.items():
        require_elements(f"share of combiner {combiner}", share)
