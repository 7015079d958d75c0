"""Membership as ROC, and the bound of ε from rates that were measured."""

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest, norm
from sklearn.metrics import roc_auc_score

from mooring.errors import InputError
from mooring.mechanisms import NeighboringRelation, calibrate_gaussian
from mooring.metrics import EpsilonAudit, EpsilonBound, Membership, bound_epsilon, clopper_pearson
from mooring.metrics.membership import gaussian_epsilon
from tests.raising import raising


@pytest.mark.parametrize(("successes", "trials"), [(0, 20), (1, 29), (15, 148), (19, 20), (20, 20)])
def test_clopper_pearson_is_the_exact_interval(successes: int, trials: int) -> None:
    theirs = binomtest(successes, trials).proportion_ci(0.95, method="exact")
    ours = clopper_pearson(successes, trials)
    assert (ours.low, ours.high) == (pytest.approx(theirs.low), pytest.approx(theirs.high))


def test_the_area_counts_ties_half_and_its_interval_covers_it(rng: np.random.Generator) -> None:
    members, others = rng.integers(1, 9, 40), rng.integers(0, 8, 60)
    membership = Membership(members, others)
    truth = np.repeat([1, 0], [40, 60])
    assert membership.auc == pytest.approx(roc_auc_score(truth, np.concatenate([members, others])))
    covered = [
        0.76025 in Membership(rng.standard_normal(80) + 1, rng.standard_normal(120)).auc_interval()  # Φ(1/√2)
        for _ in range(300)
    ]
    assert 0.91 <= np.mean(covered) <= 0.985
    assert membership.auc_interval().low < membership.auc < membership.auc_interval().high
    perfect, inverted = Membership(members + 100, others), Membership(members - 100, others)
    assert (perfect.auc, perfect.auc_interval().high, inverted.auc_interval().low) == (1, 1, 0)
    assert 0.9 < perfect.auc_interval().low < 0.95
    assert inverted.auc_interval().high == pytest.approx(1 - perfect.auc_interval().low)
    assert not Membership([1.0], others).auc_interval().known
    assert not Membership([1.0, 1.0], [1.0, 1.0]).auc_interval().known  # all alike: not always wrong
    least = Membership([1.0, 3.0], [0.0, 2.0]).auc_interval()  # two of each win 1/2 and 1
    assert (least.low, least.high) == pytest.approx((0.75 - norm.ppf(0.975) / math.sqrt(8), 1))


def test_rates_at_few_false_positives() -> None:
    """200 others, 0 to 199: at 1 % two may lie above the threshold; one of them is the least that can be shown."""
    membership = Membership(np.array([199.5, 198.5, 197.5, 197.0, 3.0]), np.arange(200.0))
    assert membership.true_positive_rate(0.01)[0] == 3 / 5
    assert membership.true_positive_rate(0.001)[0] == 2 / 5
    assert Membership([0.5, 3.0], [0.0, 1.0, 2.0]).true_positive_rate(1.0)[0] == 1
    figures = membership.figures(control=Membership(np.zeros(5), np.zeros(200)))
    assert [figure.chance for figure in figures.values()] == [0.5, 0.01, 1 / 200]
    assert [figure.control for figure in figures.values()] == [0.5, 0.0, 0.0]
    assert all(figure.higher_is_worse for figure in figures.values())


def test_some_members_are_told_at_the_thresholds_that_hold_for_all_and_a_claim_holds_up_to_what_was_measured() -> None:
    membership, control = Membership(np.arange(20.0), np.arange(10.0)), Membership(np.arange(20.0) + 3, np.arange(10.0))
    some = membership.outlying_figures(np.arange(20) < 13, control)
    assert list(some) == ["outlying_membership_at_1_percent", "outlying_membership_at_0.1_percent"]
    assert [(case.value, case.control, case.n) for case in some.values()] == [(4 / 13, 7 / 13, 13)] * 2
    assert membership.outlying_figures(np.arange(20) < 13)["outlying_membership_at_1_percent"].control is None
    bounds = [EpsilonBound(*pair, 1e-5, 0.95, 9) for pair in ((2.0, 1.0), (1.0, 2.0), (2.1, 1.0), (1.0, 2.1))]
    assert [EpsilonAudit(2.0, 1.9, bound).holds for bound in bounds] == [True, True, False, False]


def test_the_curve_and_the_wins_are_what_they_say(rng: np.random.Generator) -> None:
    membership = Membership(rng.integers(2, 12, 30), rng.integers(0, 10, 25))
    of_members, of_others = membership.wins()
    above = (membership.members[:, None] > membership.others) + (membership.members[:, None] == membership.others) / 2
    assert of_members == pytest.approx(above.mean(axis=1))
    assert of_others == pytest.approx(above.mean(axis=0))
    rates, shares = np.transpose(membership.curve())
    assert np.log(rates[[0, 1, -1]] * 25) == pytest.approx(np.log(25) * np.array([0, 1 / 39, 1]), abs=1e-3)
    assert shares == pytest.approx([membership.true_positive_rate(rate)[0] for rate in rates], abs=1e-4)


@pytest.mark.parametrize("epsilon", [0.5, 1, 4, 8])
def test_the_exact_epsilon_of_gaussian_noise_is_that_of_the_accounting_library(epsilon: float) -> None:
    scale = calibrate_gaussian(epsilon, 1e-5, clipping_norm=1.0, neighboring=NeighboringRelation.ZERO_OUT_ONE)
    assert gaussian_epsilon(1 / scale.data_noise_scale, 1e-5) == pytest.approx(epsilon, rel=2e-3)
    assert gaussian_epsilon(1e-9, 1e-5) == 0
    assert gaussian_epsilon(1e9, 1e-5) > 500 < gaussian_epsilon(math.inf, 1e-5)


def test_a_bound_of_epsilon_is_one_in_both_directions() -> None:
    """At 95 %, of 60 bounds of noise with a known ε 0 to 7 may be too high; with either tail cut off the other one tells."""
    true, too_high = gaussian_epsilon(0.5, 1e-5), [0, 0]
    for seed in range(60):
        rng = np.random.default_rng(seed)
        bound = bound_epsilon(rng.standard_normal(4000) + 0.5, rng.standard_normal(4000), delta=1e-5)
        too_high[0] += bound.epsilon > true
        too_high[1] += bound.gaussian > true
        assert bound.epsilon < 1.1
    assert max(too_high) <= 7
    included, excluded = rng.standard_normal(20_000), rng.standard_normal(20_000)
    included[:1000], swapped = 9.0, excluded.copy()
    swapped[:1000] = -9.0
    for pair in ((included, excluded), (rng.standard_normal(20_000), swapped)):
        bound = bound_epsilon(*pair, delta=1e-5)
        assert bound.epsilon > 3 > 1 > bound.gaussian  # one in twenty is betrayed: rare, but certain
        assert EpsilonBound.from_dict(bound.as_dict()) == bound


def test_gaussian_noise_is_measured_where_both_rates_are_known_best() -> None:
    """Half way between the means, by every other score: μ ± 1.96 · 2 √(Φ(½)Φ(−½) / 2000) / φ(½) = 1 ± 0.115."""
    scores = norm.ppf((np.arange(4000) + 0.5) / 4000)
    bound = bound_epsilon(scores + 1, scores, delta=1e-5)
    assert bound.gaussian == pytest.approx(gaussian_epsilon(1 - 0.115, 1e-5), rel=0.01)


def test_delta_is_taken_off_and_nonsense_is_refused(rng: np.random.Generator) -> None:
    included, excluded = rng.standard_normal(4000), rng.standard_normal(4000)
    included[:400] = 9.0  # one in ten: allowed by a δ of 0.15
    assert bound_epsilon(included, excluded, delta=0.0).epsilon > 2
    assert bound_epsilon(included, excluded, delta=0.15).epsilon < 0.1
    for arguments, delta, what in (((included, [1.0]), 0.0, "included"), ((included, excluded), 1.0, "delta")):
        with raising(InputError, what):
            bound_epsilon(*arguments, delta=delta)
    assert bound_epsilon([1.0, 2.0], [0.0, 1.0], delta=0.0).epsilon == 0  # two of each are enough to ask
    with raising(InputError, "others"):
        Membership(included, np.array([math.nan]))


def test_the_interval_of_a_rate_covers_the_draw_of_members_and_of_the_threshold() -> None:
    """At 1 % false positives, with 60 members and 156 others: of 400 draws, at least 92 % of 95 % intervals cover.

    An interval over members alone covers 92, 76 and 71 % of them, because the threshold is one of few scores.
    """
    rng, n, rate = np.random.default_rng(4), 156, 0.01
    for shift in (0.0, 1.0, 2.0):
        true = float(ndtr(shift - ndtri(1 - rate)))
        draws = [Membership(rng.standard_normal(60) + shift, rng.standard_normal(n)) for _ in range(400)]
        intervals = [draw.true_positive_rate(rate)[1] for draw in draws]
        assert np.mean([interval.low <= true <= interval.high for interval in intervals]) >= 0.92
    separated = Membership(np.arange(60.0) + 500, np.arange(156.0)).true_positive_rate(rate)
    assert separated[1].low > 0.4  # about half of the members, where the threshold may lie above all others


def test_the_least_false_positive_rate_that_can_be_shown_is_one_of_the_others() -> None:
    rng = np.random.default_rng(0)
    figures = Membership(rng.standard_normal(40) + 1, rng.standard_normal(156)).figures()
    assert figures["membership_at_1_percent"].chance == 0.01
    assert figures["membership_at_0.1_percent"].chance == 1 / 156
    few = Membership(rng.standard_normal(40) + 1, rng.standard_normal(20)).figures()
    assert {few[name].chance for name in ("membership_at_1_percent", "membership_at_0.1_percent")} == {1 / 20}


def test_the_epsilon_of_a_separation_that_no_guarantee_has_ends_at_a_thousand() -> None:
    assert 0 < gaussian_epsilon(30.0, 1e-5) < 1000
    assert gaussian_epsilon(60.0, 1e-5) == 1000


@pytest.mark.parametrize(("less", "n_recognised"), [(0.8e-9, 3), (1.2e-9, 2)])
def test_a_false_alarm_is_allowed_that_only_rounding_takes_away(less: float, n_recognised: int) -> None:
    """Two of 200 others may lie above the threshold at 1 %, and one at a rate that is a little lower."""
    membership = Membership(np.array([199.5, 198.5, 197.5, 0.5]), np.arange(200.0))
    assert membership.true_positive_rate((2 - less) / 200)[0] == n_recognised / 4


def test_rates_are_those_in_their_names_where_others_are_many_enough() -> None:
    figures = Membership(np.arange(9.0), np.arange(3000.0)).figures()
    rates = {name: float(name.split("_")[2]) / 100 for name in figures if "_percent" in name}
    assert {name: figures[name].chance for name in rates} == pytest.approx(rates)
    assert sorted(rates.values()) == [0.001, 0.01]
