"""The ε measured stays below the claim on honest noise, and every planted bug pushes it above."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mooring.audit.sums.canaries import CANARY, Draws, audit_epsilon, audit_pairwise_epsilon, run_canaries
from mooring.audit.sums.simulation import words_from
from mooring.mechanisms.sums import sums
from mooring.mechanisms.sums.class_moments import ClassLayout
from mooring.mechanisms.sums.guarantee import SumNoise, SumPrivacy, calibrate_products, calibrate_sums
from mooring.mechanisms.sums.sums import Outcome, SumLayout
from mooring.metrics import EpsilonBound, bound_epsilon
from tests.record import check_record

RECORD = Path(__file__).parent / "record.json"
LAYOUT, N_RUNS = SumLayout(2, Outcome(2)), 20_000
# Two honest participants of a quorum of three: the noise of either is half of what is claimed.
CLAIMED = SumPrivacy(epsilon=2, delta=1e-5, quorum=3, n_colluders=1)
NOISE = calibrate_sums(LAYOUT, CLAIMED)


def streams(noise: SumNoise, *seeds: int) -> Draws:
    return [(noise, words_from(np.random.default_rng(seed))) for seed in seeds]


def measured(honest: Draws, known: Draws = (), **options: np.ndarray) -> EpsilonBound:
    return bound_epsilon(*run_canaries(LAYOUT, honest, n_runs=N_RUNS, known=known, **options), delta=CLAIMED.delta)


@pytest.mark.parametrize(("n_classes", "epsilon", "quorum"), [(2, 8, 3), (3, 2, 4), (0, 1, 2)])
def test_honest_noise_keeps_the_claim_and_is_measured_near_it(n_classes: int, epsilon: float, quorum: int) -> None:
    privacy = SumPrivacy(epsilon, 1e-5, quorum, 1)
    epsilon_audit = audit_epsilon(
        SumLayout(2, Outcome(n_classes)), privacy, rng=np.random.default_rng(1), n_runs=N_RUNS
    )
    assert epsilon_audit.holds
    assert (
        epsilon_audit.measured.epsilon
        < epsilon_audit.measured.gaussian
        < epsilon_audit.reachable
        < epsilon_audit.claimed
    )
    assert epsilon_audit.reachable > 0.8 * epsilon
    assert epsilon_audit.measured.gaussian > 0.4 * epsilon
    assert epsilon_audit.measured.n == N_RUNS


# Seeds of the honest and of the known streams; each bug repeats one, forgets one, or adds too little.
def a_participant_forgets_its_noise() -> EpsilonBound:
    return measured(streams(NOISE, 1))


def sensitivity_is_halved() -> EpsilonBound:
    return measured(streams(calibrate_sums(SumLayout(2, Outcome(2), 2**11), CLAIMED), 1, 2))


def standard_deviation_is_taken_for_variance() -> EpsilonBound:
    return measured(streams(SumNoise(math.isqrt(NOISE.on_products), math.isqrt(NOISE.on_outcomes)), 1, 2))


def noise_is_divided_among_all_participants() -> EpsilonBound:
    return measured(streams(SumNoise(NOISE.on_products * 2 // 4, NOISE.on_outcomes * 2 // 4), 1, 2))


def a_colluder_has_the_stream_of_another() -> EpsilonBound:
    return measured(streams(NOISE, 1, 2), known=streams(NOISE, 1))


def a_second_study_repeats_the_noise() -> EpsilonBound:
    return measured(streams(NOISE, 1, 2), known=streams(NOISE, 1, 2))


@pytest.mark.parametrize(
    "bug",
    [
        a_participant_forgets_its_noise,
        sensitivity_is_halved,
        standard_deviation_is_taken_for_variance,
        noise_is_divided_among_all_participants,
        a_colluder_has_the_stream_of_another,
        a_second_study_repeats_the_noise,
    ],
)
def test_a_planted_bug_is_measured_above_the_claim(bug: object) -> None:
    assert bug().gaussian > CLAIMED.epsilon  # type: ignore[operator]


@pytest.mark.parametrize(("n_classes", "epsilon"), [(3, 8.0), (10, 1.0)])
def test_of_sums_by_class_the_noise_keeps_the_claim_and_that_for_half_the_change_does_not(
    n_classes: int, epsilon: float
) -> None:
    layout, privacy = ClassLayout(40, n_classes), replace(CLAIMED, epsilon=epsilon)
    epsilon_audit = audit_epsilon(layout, privacy, rng=np.random.default_rng(1), n_runs=N_RUNS)
    assert epsilon_audit.holds
    assert 0.8 * epsilon < epsilon_audit.reachable < epsilon
    assert 0.4 * epsilon < epsilon_audit.measured.gaussian < epsilon_audit.reachable
    small, half = replace(layout, n_features=2), calibrate_products(ClassLayout(2, n_classes, 2**16), privacy)
    draws = [(half, words_from(np.random.default_rng(seed))) for seed in (1, 2)]
    wrong = bound_epsilon(*run_canaries(small, draws, n_runs=N_RUNS), delta=privacy.delta)
    assert wrong.gaussian > epsilon


def test_without_any_noise_the_claim_breaks_whatever_the_noise_is_taken_for() -> None:
    for epsilon_audit in (a_second_study_repeats_the_noise(), standard_deviation_is_taken_for_variance()):
        assert epsilon_audit.epsilon > 3 * CLAIMED.epsilon
    assert measured(streams(NOISE, 1, 2), known=streams(NOISE, 3, 4)).gaussian < CLAIMED.epsilon


def test_a_row_longer_than_one_breaks_the_claim_if_it_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "quantise", lambda features, resolution, _: np.trunc(features * resolution))
    epsilon_audit = measured(streams(NOISE, 1, 2), canary=CANARY * math.sqrt(2))
    assert epsilon_audit.gaussian > CLAIMED.epsilon


@pytest.mark.parametrize("entries", [[0, 2], [1], [3, 4]], ids=["diagonal", "above it", "outcomes"])
def test_noise_left_out_of_one_block_shows(entries: list[int]) -> None:
    class Partial(SumNoise):
        def draw_many(self, *given: object) -> np.ndarray:  # type: ignore[override]
            noise = super().draw_many(*given)  # type: ignore[arg-type]
            noise[:, entries] //= 8
            return noise

    assert measured(streams(Partial(NOISE.on_products, NOISE.on_outcomes), 1, 2)).gaussian > CLAIMED.epsilon


def test_what_canaries_measure_is_on_record() -> None:
    """The ε that can be reached follows from the noise alone; 400 runs draw from it."""
    audits = {}
    for epsilon, quorum, n_colluders in ((8.0, 3, 1), (2.0, 5, 2)):
        privacy = SumPrivacy(epsilon, 1e-5, quorum, n_colluders)
        options = {"rng": np.random.default_rng(2), "n_runs": 400}
        for layout in (SumLayout(9, Outcome(2)), SumLayout(9, Outcome(3)), SumLayout(9, Outcome(0)), ClassLayout(9, 3)):
            audits[f"{layout}, {epsilon:g}"] = audit_epsilon(layout, privacy, **options).as_dict()  # type: ignore[arg-type]
        audits[f"pairwise, {epsilon:g}"] = audit_pairwise_epsilon(privacy, **options).as_dict()  # type: ignore[arg-type]
    check_record(RECORD, "canaries", audits)
