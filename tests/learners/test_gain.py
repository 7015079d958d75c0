"""Whether one model beats another: paired differences on the same rows, and three answers."""

import json

import numpy as np
import pytest
from scipy.special import ndtr

from mooring.learners import Gain, compare, score, score_value
from mooring.learners.evaluation import evaluate_classes


def rows_of_two_classes(n: int, *, only_joint: int, only_alone: int, neither: int) -> tuple[np.ndarray, ...]:
    """Labels, and what a joint model and one trained alone say of them; the rest both have right."""
    truth = np.arange(n) % 2
    joint, alone = truth.copy(), truth.copy()
    alone[:only_joint] = 9
    joint[only_joint : only_joint + only_alone] = 9
    both = slice(n - neither, n)
    joint[both] = alone[both] = 9
    return truth, joint, alone[None]


def test_a_lead_of_ten_points_on_57_rows_is_not_taken_for_none() -> None:
    """77 % against 87 % on the same rows; the joint model's own interval holds 77 %."""
    clear = compare(*rows_of_two_classes(57, only_joint=6, only_alone=0, neither=7), kind="classes")
    mixed = compare(*rows_of_two_classes(57, only_joint=10, only_alone=4, neither=3), kind="classes")
    lost = compare(*rows_of_two_classes(57, only_joint=0, only_alone=8, neither=3), kind="classes")
    assert clear.value == pytest.approx(mixed.value, abs=0.01) == pytest.approx(0.104, abs=0.01)
    assert [gain_of_case.answer for gain_of_case in (clear, mixed, lost)] == ["pays", "cannot tell", "does not pay"]
    assert 166 <= mixed.n_needed <= 190  # (2.80 · 0.484 / 0.105)² and a little for what 57 rows leave open


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_the_gain_is_the_difference_of_the_scores(kind: str) -> None:
    """Balanced accuracy of classes of unequal size, or R²; the mean over models trained alone."""
    rng = np.random.default_rng(0)
    truth = rng.choice(3, 50, p=[0.6, 0.3, 0.1]) if kind == "classes" else rng.standard_normal(50)
    joint, *alone = (np.where(rng.random(50) < share, truth, rng.permutation(truth)) for share in (0.9, 0.6, 0.7, 0.2))
    gain = compare(truth, joint, np.stack(alone), kind=kind)
    values = [score_value(truth, predicted, kind=kind) for predicted in (joint, *alone)]
    assert gain.value == pytest.approx(values[0] - np.mean(values[1:]))
    assert gain.low < gain.value < gain.high
    assert Gain.from_dict(json.loads(json.dumps(gain.as_dict(), allow_nan=False))) == gain


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_intervals_of_the_gain_cover_it_as_often_as_they_say(kind: str) -> None:
    """300 samples of 57 rows, where models err together half of the time: nominally 95 %; half the width gives 70 %."""
    rng, held = np.random.default_rng(1), []
    for _ in range(300):
        hard, other = rng.random(57), rng.random(57)
        luck = np.where(rng.random(57) < 0.5, hard, other)
        if kind == "classes":
            truth = np.arange(57) % 2
            joint, alone = np.where(hard < 0.87, truth, 9), np.where(luck < 0.77, truth, 9)
            expected = 0.1
        else:
            truth = rng.standard_normal(57)
            joint, alone = truth + np.sqrt(3) * 0.4 * (2 * hard - 1), truth + np.sqrt(3) * 0.6 * (2 * luck - 1)
            expected = 0.36 - 0.16
        gain = compare(truth, joint, alone[None], kind=kind)
        held.append(gain.low <= expected <= gain.high)
    assert 0.92 <= np.mean(held) <= 0.99


def test_as_many_rows_as_are_needed_show_the_difference_four_times_in_five() -> None:
    rng = np.random.default_rng(2)

    def drawn(n: int) -> Gain:
        kinds = rng.choice(4, n, p=[0.12, 0.06, 0.72, 0.1])
        truth = np.arange(n) % 2
        return compare(
            truth,
            np.where(np.isin(kinds, (0, 2)), truth, 9),
            np.where(np.isin(kinds, (1, 2)), truth, 9)[None],
            kind="classes",
        )

    needed = drawn(20_000).n_needed  # of so many rows the difference and its variance are known well
    assert 300 < needed < 500
    shown = np.mean([drawn(needed).answer == "pays" for _ in range(300)])
    assert 0.73 < shown < 0.87


def test_rows_of_one_person_count_once() -> None:
    """Every row five times over tells no more than once."""
    truth, joint, alone = rows_of_two_classes(40, only_joint=6, only_alone=2, neither=3)
    once = compare(truth, joint, alone, kind="classes")
    often = np.repeat(truth, 5), np.repeat(joint, 5), np.repeat(alone, 5, axis=1)
    by_person = compare(*often, kind="classes", groups=np.repeat(np.arange(40), 5))
    assert (by_person.low, by_person.high) == (pytest.approx(once.low), pytest.approx(once.high))
    assert compare(*often, kind="classes").low > once.low


def test_a_class_of_two_rows_that_agree_leaves_much_open() -> None:
    """The two rows decide half of balanced accuracy; 28 rows of the other class do not make up for that."""
    truth = np.repeat([0, 1], [28, 2])
    alone = np.where(np.arange(30) < 4, 9, truth)
    gain = compare(truth, truth, alone[None], kind="classes")
    assert gain.value == pytest.approx(4 / 56)
    assert gain.answer == "cannot tell"


def test_no_smaller_number_of_rows_is_said_to_be_needed() -> None:
    """With three rows Student's interval is wider than the normal law says, by which the number is reckoned."""
    gain = Gain("R²", 0.3, -0.09, 0.69, 3, 3)
    assert gain.answer == "cannot tell"
    assert "needed" not in gain.sentence()


def test_rows_that_all_agree_do_not_show_that_nothing_is_gained() -> None:
    truth = np.arange(10) % 2
    gain = compare(truth, truth, truth[None], kind="classes")
    assert (gain.value, gain.answer, gain.n_needed) == (0.0, "cannot tell", None)
    assert compare(truth[:1], truth[:1], truth[None, :1], kind="classes").answer == "cannot tell"
    assert compare(np.full(4, 0.1), np.arange(4.0), np.arange(4.0)[None], kind="number") is None


def test_nothing_is_written_as_minus_zero() -> None:
    written = [Gain(metric, 0.0, 0.0, 0.0, 3, 3).written(-1e-5) for metric in ("R²", "balanced accuracy")]
    assert written == ["+0.000", "+0.0"]


def test_a_rare_class_is_judged_by_the_area_under_the_curve_with_a_paired_interval() -> None:
    """With 6 % positives, neither model predicts any at a probability of one half; the joint one ranks them better."""
    rng = np.random.default_rng(0)
    truth = (rng.random(1500) < 0.06).astype(np.int64)
    joint, alone = (truth * shift + rng.standard_normal((n, 1500)) for n, shift in ((1, 2.0), (3, 1.2)))

    def shares(scores: np.ndarray) -> np.ndarray:
        positive = 0.4 / (1 + np.exp(-scores))
        return np.stack([1 - positive, positive], axis=-1)

    none = np.zeros(1500, dtype=np.int64)
    blind = compare(truth, none, np.stack([none] * 3), kind="classes")
    gain = compare(truth, none, np.stack([none] * 3), kind="classes", shares=(shares(joint[0]), shares(alone)))
    assert (blind.answer, gain.answer, gain.metric) == ("cannot tell", "pays", "AUC")
    curve = evaluate_classes(truth, (none, shares(joint[0])), (none, shares(alone[0])), classes=("no", "yes"))
    single = compare(truth, none, none[None], kind="classes", shares=(shares(joint[0]), shares(alone[:1])))
    assert single.value == pytest.approx(curve.auc_gain.value)
    assert (single.low, single.high) == pytest.approx((curve.auc_gain.low, curve.auc_gain.high), abs=0.002)
    measured_score = score(truth, none, kind="classes", rng=rng, shares=shares(joint[0]))
    assert (measured_score.metric, measured_score.balanced_accuracy) == ("AUC", 0.5)
    assert measured_score.value == pytest.approx(curve.joint.auc.value)


def test_models_that_rank_all_rows_alike_are_not_shown_to_differ() -> None:
    truth = np.arange(40) % 4
    shares = np.eye(4)[truth]
    gain = compare(truth, truth, truth[None], kind="classes", shares=(shares, shares[None]))
    assert (gain.value, gain.answer) == (0, "cannot tell")


def test_the_paired_interval_of_areas_covers_their_difference() -> None:
    """Between 91 and 99 % of 300 intervals, each from 400 rows with 60 positives, cover the difference of the true areas."""
    rng, covered = np.random.default_rng(1), 0
    truth = (np.arange(400) < 60).astype(np.int64)
    true = float(ndtr(1.5 / 2**0.5) - ndtr(1.0 / 2**0.5))
    for _ in range(300):
        common = rng.standard_normal(400)
        scores = [truth * shift + (common + rng.standard_normal(400)) / 2**0.5 for shift in (1.5, 1.0)]
        joint, alone = (np.stack([-part, part], axis=-1) for part in scores)
        gain = compare(truth, truth, truth[None], kind="classes", shares=(joint, alone[None]))
        covered += gain.low <= true <= gain.high
    assert 0.91 <= covered / 300 <= 0.99
