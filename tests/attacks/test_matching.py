"""Odds of membership over one-to-one assignments: exact where sums are short, and never misled by a taken row."""

from itertools import product

import numpy as np
import pytest

from mooring.attacks.matching import COVERED, match_candidates
from mooring.metrics import Membership
from mooring.typing import Matrix


def sum_over_assignments(log_ratios: Matrix) -> Matrix:
    """The same log odds, by adding up every assignment of rows to different candidates or to nobody."""
    n, C = log_ratios.shape
    unknown = C * (1 - COVERED) / COVERED
    used, total = np.zeros(C), 0.0
    for chosen in product(range(C + 1), repeat=n):  # C stands for nobody
        named = [c for c in chosen if c < C]
        if len(set(named)) == len(named):
            weight = np.prod([unknown if c == C else np.exp(log_ratios[j, c]) for j, c in enumerate(chosen)])
            used[named] += weight
            total += weight
    return np.log(used) - np.log(total - used)


@pytest.mark.parametrize(("n_rows", "n_candidates"), [(1, 5), (4, 1), (1, 1)])
def test_odds_are_exact_for_one_row_or_one_candidate(n_rows: int, n_candidates: int) -> None:
    log_ratios = 3 * np.random.default_rng(0).standard_normal((n_rows, n_candidates))
    assert match_candidates(log_ratios) == pytest.approx(sum_over_assignments(log_ratios), abs=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_odds_are_close_to_the_sum_over_all_assignments(seed: int) -> None:
    log_ratios = 3 * np.random.default_rng(seed).standard_normal((4, 5))
    assert match_candidates(log_ratios) == pytest.approx(sum_over_assignments(log_ratios), abs=0.7)


def pass_messages(log_ratios: Matrix) -> Matrix:
    """The log odds from messages that no longer change, entry by entry by the equations of the module's description."""
    (n, C), weights = log_ratios.shape, np.exp(log_ratios)
    forward, backward = np.zeros((n, C)), np.ones((n, C))
    for _ in range(500):
        for j, c in product(range(n), range(C)):
            others = sum(weights[j, k] * backward[j, k] for k in range(C) if k != c)
            forward[j, c] = weights[j, c] / (C * (1 - COVERED) / COVERED + others)
        for j, c in product(range(n), range(C)):
            backward[j, c] = (backward[j, c] + 1 / (1 + forward[:, c].sum() - forward[j, c])) / 2
    return np.log(forward.sum(axis=0))


def test_odds_are_those_of_messages_that_no_longer_change() -> None:
    log_ratios = 3 * np.random.default_rng(3).standard_normal((3, 4))
    assert match_candidates(log_ratios) == pytest.approx(pass_messages(log_ratios), abs=1e-3)


def test_no_candidates_have_no_odds_and_large_ratios_stay_finite() -> None:
    assert match_candidates(np.zeros((3, 0))).shape == (0,)
    assert np.isfinite(match_candidates(np.array([[1e4, -1e4], [-1e4, 1e4]]))).all()


def test_a_candidate_near_a_row_that_another_explains_is_told_from_members() -> None:
    """Each non-member lies as near to some row as members do, but that row is a member's."""
    rng, n, h, sigma = np.random.default_rng(1), 60, 6, 0.4
    members = rng.standard_normal((n, h))
    others = members + 0.7 * rng.standard_normal((n, h))
    rows = members + sigma * rng.standard_normal((n, h))
    candidates = np.concatenate([members, others])
    squares = ((rows[:, None] - candidates[None]) ** 2).sum(axis=2)
    log_ratios = 6.0 - squares / (2 * sigma**2)
    alone = np.log(np.exp(log_ratios).mean(axis=0))
    matched = match_candidates(log_ratios)
    assert Membership(matched[:n], matched[n:]).auc > Membership(alone[:n], alone[n:]).auc + 0.02
