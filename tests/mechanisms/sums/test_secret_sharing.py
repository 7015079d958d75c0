"""Secret sharing modulo 2⁶¹ − 1: against Python's integers and mpyc, and what each part must not give away."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.errors import InputError
from mooring.mechanisms.sums.prime_field import (
    LARGEST,
    PRIME,
    Elements,
    Words,
    add,
    decode_signed,
    draw_elements,
    encode_signed,
    multiply,
    total,
)
from mooring.mechanisms.sums.secret_sharing import (
    Parties,
    Threshold,
    find_wrong,
    find_wrong_values,
    interpolate,
    lagrange_weights,
    least_threshold,
    recombine,
    split,
    weigh,
)
from tests.opening import what_opens
from tests.raising import raising

EDGES = [0, 1, 2**30, 2**31 - 1, 2**31, 2**60, LARGEST, LARGEST + 1, PRIME - 1]
elements = st.sampled_from(EDGES) | st.integers(0, PRIME - 1)


def words_of(seed: int) -> Words:
    rng = np.random.default_rng(seed)
    return lambda count: rng.integers(2**64, size=count, dtype=np.uint64)


def words_from(*given: int) -> Words:
    left = list(given)

    def words(count: int) -> Elements:
        taken = left[:count]
        del left[:count]
        return np.array(taken, dtype=np.uint64)

    return words


@given(st.lists(st.tuples(elements, elements), min_size=1, max_size=20))
def test_arithmetic_is_that_of_integers_modulo_the_prime(pairs: list[tuple[int, int]]) -> None:
    a, b = np.array(pairs, dtype=np.uint64).T
    for computed, expected in (
        (add(a, b), [(x + y) % PRIME for x, y in pairs]),
        (multiply(a, b), [x * y % PRIME for x, y in pairs]),
        (total(a), sum(x for x, _ in pairs) % PRIME),
    ):
        assert computed.tolist() == expected


@given(st.lists(st.integers(-LARGEST, LARGEST) | st.sampled_from([-LARGEST, LARGEST, 0, -1]), max_size=20))
def test_signed_numbers_come_back(numbers: list[int]) -> None:
    assert decode_signed(encode_signed(np.array(numbers, dtype=np.int64))).tolist() == numbers


def test_numbers_that_the_field_cannot_hold_are_refused() -> None:
    for number in (LARGEST + 1, -LARGEST - 1):
        with raising(InputError, "numbers"):
            encode_signed(np.array([number]))
    with raising(InputError, "numbers"):
        encode_signed(np.array([0.5]))  # type: ignore[arg-type]
    with raising(InputError, "elements", got="2⁶¹ − 1"):
        decode_signed(np.array([PRIME], dtype=np.uint64))
    with raising(InputError, "elements", got="int64"):
        decode_signed(np.array([5], dtype=np.int64))  # type: ignore[arg-type]


def test_an_element_is_the_low_bits_of_a_word_and_the_prime_itself_is_drawn_again() -> None:
    """`word % PRIME` would give 0 and 7 more often than others."""
    drawn = draw_elements(words_from(5, PRIME, 2**61 + 6, 2**64 - 1, PRIME, 9, 8), 4)
    assert drawn.tolist() == [5, 8, 6, 9]


THRESHOLD = Threshold(7, 5, 0)


def shares_of(secret: Elements, threshold: Threshold, seed: int = 0) -> dict[int, Elements]:
    t = threshold.threshold
    made = split(secret, threshold, [words_of(100 * seed + j) for j in range(1, t)])
    seeded = {j: draw_elements(words_of(100 * seed + j), secret.size) for j in range(1, t)}
    return seeded | dict(enumerate(made, start=t))


@pytest.fixture(scope="module")
def secret() -> Elements:
    return np.concatenate([np.array(EDGES, dtype=np.uint64), draw_elements(words_of(99), 20)])


def test_any_t_shares_give_the_secret_and_so_does_mpyc(secret: Elements) -> None:
    thresha, finfields = pytest.importorskip("mpyc.thresha"), pytest.importorskip("mpyc.finfields")
    field, shares = finfields.GF(PRIME), shares_of(secret, THRESHOLD)
    assert sorted(shares) == [1, 2, 3, 4, 5, 6, 7]
    for chosen in combinations(shares, 5):
        assert np.array_equal(recombine({j: shares[j] for j in chosen}, THRESHOLD), secret)
    points = [(j, [field(int(x)) for x in shares[j]]) for j in (2, 3, 5, 6, 7)]
    assert [int(x) % PRIME for x in thresha.recombine(field, points)] == secret.tolist()
    assert np.array_equal(recombine(shares, THRESHOLD), secret)


def test_fewer_than_t_shares_fit_every_secret(secret: Elements) -> None:
    """Whatever t − 1 shares are seen, each secret has exactly one polynomial through them, and seeds are uniform."""
    shares = shares_of(secret, THRESHOLD)
    for seen in combinations(shares, 4):
        weights = lagrange_weights((0, *seen), at=next(j for j in shares if j not in seen))
        assert weights[0] != 0  # the share unseen follows the secret one to one
    with raising(InputError, "shares", expected="5"):
        recombine({j: shares[j] for j in (1, 2, 6, 7)}, THRESHOLD)
    with raising(InputError, "shares", got="shares of"):  # of seven combiners
        recombine(shares | {8: shares[7]}, THRESHOLD)
    other = shares_of(add(secret, np.ones_like(secret)), THRESHOLD)
    assert all(np.array_equal(shares[j], other[j]) == (j < 5) for j in shares)
    assert not any((shares[j] == secret).any() for j in shares)


def test_sums_of_shares_are_shares_of_the_sum(secret: Elements) -> None:
    shares, two = shares_of(secret, THRESHOLD, 1), shares_of(secret, THRESHOLD, 2)
    together = {j: add(shares[j], two[j]) for j in shares}
    assert np.array_equal(recombine(together, THRESHOLD), add(secret, secret))


@pytest.mark.parametrize(
    ("n_answers", "wrong", "named"), [(6, (), ()), (6, (2,), None), (7, (2,), (2,)), (7, (6,), (6,))]
)
def test_t_and_two_answers_name_a_wrong_one_and_t_and_one_tell_of_it(
    n_answers: int, wrong: tuple[int, ...], named: tuple[int, ...] | None, secret: Elements
) -> None:
    shares = {j: share for j, share in shares_of(secret, THRESHOLD).items() if j <= n_answers}
    for j in wrong:
        shares[j] = shares[j].copy()
        shares[j][3] ^= np.uint64(1)
    if wrong:
        with raising(InputError, "shares", problem="contradict"):
            recombine(shares, THRESHOLD)
    wrong_shares = find_wrong(shares, THRESHOLD, words_of(5))
    assert wrong_shares == (None if named is None else list(named))


def test_weighed_shares_lie_on_the_polynomial_of_their_first_values(secret: Elements) -> None:
    weights, shares = draw_elements(words_of(7), secret.size), shares_of(secret, THRESHOLD)
    values = [weigh(secret, weights), *(weigh(shares[j], weights) for j in range(1, 5))]
    for j, share in shares.items():
        assert interpolate(values, at=j) == weigh(share, weights)
        bent = share.copy()
        bent[-1] ^= np.uint64(2)
        assert interpolate(values, at=j) != weigh(bent, weights)


def test_given_fewer_than_t_shares_a_masked_polynomial_is_uniform_whatever_the_secret() -> None:
    """All polynomials f and masks u of degree below 2 modulo 5, with weight r: g = u + r f and what one combiner holds."""
    prime, r = 5, 3
    for point in range(1, prime):
        seen = {secret: Counter[tuple[int, ...]]() for secret in range(prime)}
        for secret, slope, mask, mask_slope in product(range(prime), repeat=4):
            g = (mask + r * secret) % prime, (mask_slope + r * slope) % prime
            share, mask_share = (secret + slope * point) % prime, (mask + mask_slope * point) % prime
            seen[secret][*g, share, mask_share] += 1
        assert all(counts == seen[0] for counts in seen.values())
        assert set(seen[0].values()) == {
            1
        }  # of 125 views: g is uniform on those that pass through the combiner's value


@pytest.mark.parametrize("n_wrong", range(7))
def test_of_many_combiners_as_many_wrong_values_as_can_be_are_named_at_once(n_wrong: int) -> None:
    """By trying all subsets, five of 32 took a minute a bundle."""
    threshold, rng = Threshold(32, 22, 0), np.random.default_rng(n_wrong)
    shares = shares_of(draw_elements(words_of(3), 1), threshold)
    wrong = sorted(rng.choice(np.arange(1, 33), size=n_wrong, replace=False).tolist())
    values = {j: (int(share[0]) + (j in wrong) * int(rng.integers(1, PRIME))) % PRIME for j, share in shares.items()}
    assert find_wrong_values(values, threshold) == (wrong if n_wrong <= 5 else None)


@pytest.mark.parametrize(
    ("expected", "k", "t", "c"),
    [
        *(("at least 4 for k = 4", 4, 3, 1), ("at least 6 for k = 7", 7, 5, 1), ("at least 5 for k = 5", 5, 4, 2)),
        *(("who may collude, 1", 3, 1, 1), ("who may collude, 3", 3, 3, 3)),
        *(("between 1 and", 3, 4, 0), ("between 1 and", 33, 33, 1), ("between 1 and", 3, 0, 0)),
    ],
)
def test_thresholds_that_do_not_hold_are_refused(expected: str, k: int, t: int, c: int) -> None:
    """4, 3, 1: lists X, X ∪ Y and Y to one honest combiner each would open 3 s_X − s_Y."""
    with raising(InputError, "threshold", expected=expected):
        Threshold(k, t, c)


def one_total_opens(parties: Parties, quorum: int, t: int) -> bool:
    """Whether, whoever colludes and whatever lists are answered, only the total of one answered list can be computed.

    The first participants combine, in front of the helpers, who are numbered from 100.
    """
    p, k = parties.n_participants, parties.n_combiners
    combiners = [*range(parties.n_combining), *range(100, 100 + parties.n_helpers)]
    lists = [frozenset(members) for n in range(quorum, p + 1) for members in combinations(range(p), n)]
    for colluders in (
        {*participants, *helpers}
        for participants in combinations(range(p), parties.n_colluders)
        for helpers in combinations(range(100, 100 + parties.n_helpers), parties.n_colluding_helpers)
    ):
        honest = [i for i in range(p) if i not in colluders]
        answering = [point for point, combiner in enumerate(combiners) if combiner not in colluders]
        for chosen in combinations_with_replacement(lists, len(answering)):
            answers = {point: [listed] for point, listed in zip(answering, chosen, strict=True)}
            opened = what_opens(k, t, honest, answers)
            totals = {tuple(int(i in listed) for i in honest) for listed in chosen}
            if len(opened) > 1 or (opened and opened[0] not in totals):
                return False
    return True


@pytest.mark.parametrize(
    ("parties", "quorum"),
    [
        *((Parties(3, 3, 1), 3), (Parties(4, 4, 1), 4), (Parties(4, 2, 1), 3), (Parties(4, 3, 2), 4)),
        *((Parties(5, 2, 1), 4), (Parties(5, 3, 1), 4), (Parties(6, 4, 1), 5), (Parties(4, 4, 1), 2)),
        *((Parties(3, 0, 1, 2, 1), 2), (Parties(3, 0, 2, 3, 1), 3), (Parties(4, 0, 1, 3, 1), 3)),
        *((Parties(3, 1, 1, 2, 1), 3), (Parties(4, 0, 1, 3, 2), 2), (Parties(3, 1, 2, 2, 1), 3)),
        *((Parties(3, 2, 1, 2, 1), 2), (Parties(3, 3, 1, 2, 2), 3)),
    ],
)
def test_with_the_least_threshold_the_total_of_one_list_opens_and_nothing_else(parties: Parties, quorum: int) -> None:
    """Every choice of colluders, and of a list for each honest combiner (of lists in a fixed order, by symmetry)."""
    overlap = parties.do_lists_overlap(quorum)
    t = least_threshold(parties.n_combiners, parties.most_colluding, overlap)
    assert t <= parties.n_combiners
    assert one_total_opens(parties, quorum, t)


def test_where_a_colluding_helper_is_not_counted_more_than_one_total_opens() -> None:
    """Three helpers and lists that overlap: two answers suffice if all are honest, and three are needed otherwise."""
    parties = Parties(4, 0, 1, 3, 1)
    assert parties.do_lists_overlap(3)
    assert least_threshold(3, replace(parties, n_colluding_helpers=0).most_colluding, True) == 2
    assert not one_total_opens(parties, 3, 2)
    assert one_total_opens(parties, 3, 3)


def test_where_lists_need_not_overlap_half_of_the_combiners_are_too_few() -> None:
    """Lists X, X ∪ Y and Y, answered by one honest combiner each, open 3 s_X − s_Y."""
    parties = Parties(4, 4, 1)
    assert not parties.do_lists_overlap(2)
    assert not one_total_opens(parties, 2, least_threshold(4, 1, True))
    assert least_threshold(4, 1, True) < least_threshold(4, 1, False)
    with raising(InputError, "threshold", expected="2t > k + a"):
        Threshold(4, 2, 1, lists_overlap=True)


def test_where_lists_overlap_an_honest_contribution_is_on_all_of_them() -> None:
    for p, n_helpers in product(range(2, 7), range(3)):
        for k, c, h in product(range(p + 1), range(1, p), range(n_helpers + 1)):
            parties = Parties(p, k, c, n_helpers, h)
            for quorum in range(c + 1, p + 1):
                n_honest = [k - colluding for colluding in range(min(c, k) + 1) if c - colluding <= p - k]
                missing = (max(n_honest) + n_helpers - h) * (p - quorum)  # when all lists omit different participants
                assert parties.do_lists_overlap(quorum) == (missing < p - c)
            assert parties.do_lists_overlap(parties.least_quorum())
    for p, k, quorum in ((4, 4, 4), (10, 10, 10), (50, 15, 47)):
        assert Parties(p, k, 1).least_quorum() == quorum


@pytest.mark.parametrize(
    ("k", "t", "c"), [(1, 1, 0), (2, 2, 1), (3, 3, 2), (4, 4, 1), (7, 6, 1), (15, 11, 1), (32, 22, 1)]
)
def test_thresholds_that_hold(k: int, t: int, c: int) -> None:
    assert Threshold(k, t, c).threshold == t


@pytest.mark.parametrize(
    "change",
    [
        lambda shares: {0: shares[1], **shares},
        lambda shares: {8: shares[1], **shares},
        lambda shares: shares | {2: shares[2][:-1]},
        lambda shares: shares | {2: np.full_like(shares[2], PRIME)},
        lambda shares: shares | {2: shares[2].astype(np.int64)},
    ],
)
def test_shares_of_others_or_of_another_form_are_refused(
    change: Callable[[dict[int, Elements]], dict[int, Elements]], secret: Elements
) -> None:
    with pytest.raises(InputError):
        recombine(change(shares_of(secret, THRESHOLD)), THRESHOLD)
    with raising(InputError, "seeds", expected=f"{THRESHOLD.threshold - 1}, one below"):
        split(secret, THRESHOLD, [words_of(1)])
