"""Participants whose anchor does not fit the others', and cases in which that cannot be decided."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, r2_score, roc_auc_score

from mooring import make_anchor
from mooring.learners import CANDIDATES
from mooring.learners.fitting import row_folds
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.analyst import outliers
from mooring.protocol.rotation.analyst.alignment import NOT_CHECKED, align_bundles
from mooring.protocol.rotation.analyst.alignment_state import read_space
from mooring.protocol.rotation.analyst.outliers import (
    Fits,
    _balance,
    _doubt,
    _fold_by_owner,
    _Influence,
    _measure,
    _score_rows,
    find_disagreeing,
    find_harmful,
    measure_fit,
    measure_fits,
    measure_honest_spread,
)
from mooring.protocol.rotation.bundle import RowBundle
from mooring.theory import transition_scale
from tests.protocol.rotation.support import Site, bundles_of, send, sent, sites_of, spread_of, with_garbage
from tests.record import check_record
from tests.sites import numeric_study

RECORD = Path(__file__).parent / "record.json"


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize(("p", "h", "r"), [(5, 13, 52), (10, 20, 80), (6, 30, 60), (3, 13, 52)])
def test_another_anchor_is_flagged(p: int, h: int, r: int, share: float, tmp_path: Path) -> None:
    study = numeric_study(p=p, h=h, r=r, v=share * transition_scale(p, h, r))
    for seed in range(3):
        inbox, work = tmp_path / f"inbox{seed}", tmp_path / f"work{seed}"
        sites = sent(study, inbox, seed=seed, n=20)
        send(study, with_garbage(study, sites[0], seed), 0, inbox)
        aligned = align_bundles(study, bundles_of(study, inbox), work, certify=False)
        assert aligned.record.list_left_out().keys() == {"site-0"}
        assert aligned.record.as_dict()["set_aside"][0]["flagged"] is True
        assert aligned.record.as_dict()["note"] == ""
        if seed == 0:
            without = align_bundles(study, bundles_of(study, inbox)[1:], tmp_path / "clean", certify=False)
            assert without.record.is_whole
            spreads = [spread_of(rows, sites, range(1, p)) for rows in (aligned, without)]
            assert spreads[0] == pytest.approx(spreads[1])


def test_honest_participants_are_never_flagged_up_to_the_transition() -> None:
    for p, h, r in ((4, 13, 52), (8, 6, 24), (5, 20, 21)):
        transition = transition_scale(p, h, r)
        for seed in range(25):
            study = numeric_study(p=p, h=h, r=r, v=(0.05, 0.3, 0.6, 0.9, 0.999)[seed % 5] * transition)
            assert _flagged(study, sites_of(study, n=1, seed=seed)) == []


def test_above_the_transition_nobody_is_flagged_and_that_is_said(tmp_path: Path) -> None:
    study = numeric_study(p=4, h=13, r=52, v=2 * transition_scale(4, 13, 52))
    sites = sent(study, tmp_path / "inbox", n=5)
    send(study, with_garbage(study, sites[0]), 0, tmp_path / "inbox")
    aligned = align_bundles(study, bundles_of(study, tmp_path / "inbox"), tmp_path / "work", certify=False)
    assert aligned.record.is_whole


def test_a_rank_poor_upload_is_set_aside_and_the_others_go_on(tmp_path: Path) -> None:
    """With so much noise that its singular values do not give it away where bundles are verified."""
    study, inbox = numeric_study(v=0.2), tmp_path / "inbox"
    sites = sent(study, inbox)
    mean = sites[0].anchor_representation.mean(axis=0)
    flat = (sites[0].anchor_representation - mean)[:, [0, 1, 2, 3, 4, 4]] + mean
    send(study, replace(sites[0], anchor_representation=flat), 0, inbox)
    assert align_bundles(study, bundles_of(study, inbox), tmp_path / "work").record.list_left_out().keys() == {"site-0"}


def test_a_fit_is_one_without_noise_and_garbage_is_far_below() -> None:
    anchor = make_anchor(40, 10, rng=np.random.default_rng(5))
    fits = measure_fits([anchor, anchor, anchor])
    assert fits.values == pytest.approx(1)
    assert 0.2 < fits.garbage < 0.6
    assert fits.find_low([1.0, fits.garbage], 0.0) == [False, True]
    assert measure_fit(anchor, 0 * anchor) == 0.0
    rng = np.random.default_rng(6)
    assert max(measure_fit(anchor, anchor) for anchor in (make_anchor(12, 3, rng=rng) for _ in range(100))) == 1.0


def _flagged(study: Study, sites: Sequence[Site]) -> list[int]:
    from mooring.protocol.rotation.analyst.alignment import LocalAnchors, _set_outliers_aside

    here = LocalAnchors()
    bundles = [
        RowBundle(member, "", 1, "", site.anchor_representation, True, Path(), {}, study.mechanism.n_components, "none")
        for member, site in zip(study.participants, sites, strict=True)
    ]
    left, _ = _set_outliers_aside(study, bundles, here.solve(bundles), here)
    return [index for index, bundle in enumerate(bundles) if bundle not in left]


def test_where_most_look_like_garbage_nobody_is_flagged() -> None:
    near = Fits(np.array([0.50, 0.52, 0.51, 0.1]), garbage=0.45, spread=0.05)
    assert near.find_low(near.values.tolist(), 0.01) is None
    far = Fits(np.array([0.80, 0.82, 0.81, 0.5]), garbage=0.45, spread=0.05)
    assert far.find_low(far.values.tolist(), 0.05) == [False, False, False, True]
    assert far.find_low(far.values.tolist(), 0.0005) == [True, False, False, True]
    assert far.find_low([0.80], 0.001) == [False]
    assert far.find_low(far.values.tolist(), 0.06) is None  # honest ones scatter as low


@pytest.mark.parametrize(("first", "h", "share"), [(3, 6, 0.95), (4, 20, 1.3)])
def test_honest_newcomers_are_not_set_aside(first: int, h: int, share: float, tmp_path: Path) -> None:
    """Few components let honest fits scatter widely; above the transition the first ones fit their own noise."""
    study = numeric_study(p=12, h=h, r=4 * h, v=share * transition_scale(first, h, 4 * h))
    sent(study, tmp_path / "inbox", n=3)
    bundles = bundles_of(study, tmp_path / "inbox")
    align_bundles(study, bundles[:first], tmp_path / "work", certify=False)
    assert align_bundles(study, bundles, tmp_path / "work", mode="late").record.is_whole
    assert read_space(tmp_path / "work", study).record.note.count(NOT_CHECKED) == 1


def test_from_the_transition_on_the_note_is_there_even_if_most_still_fit(tmp_path: Path) -> None:
    study = numeric_study(p=10, h=10, r=40, v=1.05 * transition_scale(10, 10, 40))
    sent(study, tmp_path / "inbox", n=5)
    aligned = align_bundles(study, bundles_of(study, tmp_path / "inbox"), tmp_path / "work", certify=False)
    assert NOT_CHECKED in aligned.record.as_dict()["note"]


def test_fits_and_what_is_too_low_are_as_on_record() -> None:
    """Fits of noisy anchors, of garbage and of honest ones; then how many of 400 fits are low, as honest ones scatter."""
    rng = np.random.default_rng(0)
    anchor = make_anchor(24, 6, rng=rng)
    noisy = [anchor + 0.15 * rng.standard_normal(anchor.shape) for _ in range(4)]
    fits = measure_fits([hazard - hazard.mean(axis=0) for hazard in noisy])
    spreads = [measure_honest_spread(anchor, v) for v in (0.05, 0.3)]
    low = [fits.find_low(np.linspace(0, 1, 401).tolist(), spread) for spread in (0.0, 1e-3, 0.02, 0.05, 0.1)]
    figures = [fits.values, fits.garbage, fits.spread, spreads, [None if sums is None else sum(sums) for sums in low]]
    check_record(RECORD, "fits", figures)


@pytest.mark.parametrize(
    ("spread", "honest_spread", "low"),
    [
        (0.11, 0.0, None),
        (0.09, 0.0, [True, True, False]),
        (0.0, 0.07, None),
        (0.0, 0.05, [True, False, False]),
        (0.0, 0.01, [True, True, False]),
    ],
)
def test_what_is_too_low_by_hand(spread: float, honest_spread: float, low: list[bool] | None) -> None:
    """Garbage at 0.5 and a median of 0.9: near garbage is below 0.66; scatter may be an eighth of the rest."""
    fits = Fits(np.array([0.89, 0.9, 0.95]), 0.5, spread)
    assert fits.find_low([0.65, 0.7, 0.9], honest_spread) == low


@pytest.mark.parametrize(
    ("p", "doubted", "disagreeing"),
    [(4, [2], [2]), (4, [1, 3], []), (4, [0, 1, 2], [3]), (4, [], []), (3, [1], [1]), (2, [1], [])],
)
def test_where_half_or_more_are_in_doubt_nobody_is_found(p: int, doubted: list[int], disagreeing: list[int]) -> None:
    rows, owners = np.random.default_rng(0).standard_normal((40 * p, 2)), np.repeat(np.arange(p), 40)
    labels = np.where(np.isin(owners, doubted), rows[:, 0] < 0, rows[:, 0] > 0).astype(np.int64)
    assert find_disagreeing(rows, labels, owners, kind="classes", seed=0).tolist() == disagreeing


def test_how_well_labels_go_with_rows_is_as_on_record() -> None:
    """Correlation and balanced accuracy with their intervals; a class without rows, few rows, and labels all alike."""
    rng = np.random.default_rng(1)
    targets = np.eye(3)[rng.integers(0, 2, 30)]
    predicted = targets + rng.standard_normal(targets.shape)
    measured = [_measure(targets[:n, :k], predicted[:n, :k]) for n, k in ((30, 3), (30, 1), (4, 3), (3, 3))]
    assert np.allclose(_measure(1e-3 * targets[:, :1], 1e-3 * predicted[:, :1]), measured[1])  # whatever the unit
    check_record(RECORD, "agreement", [*measured, _measure(targets, 0 * predicted), _measure(0 * targets, predicted)])


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("n", [4, 30])
def test_labels_that_agree_in_full_have_a_correlation_of_0_999_with_fishers_interval(n: int, sign: int) -> None:
    """The interval has a level of 99 %, and four rows count as one."""
    targets = np.arange(float(n))[:, None]
    ends = np.arctanh(sign * 0.999) + 2.58 / np.sqrt(n - 3) * np.array([-1, 0, 1])
    assert _measure(targets, sign * targets)[0] == pytest.approx(np.tanh(ends))


def test_those_in_doubt_are_left_out_of_what_the_others_are_compared_with_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, trusted_before = iter([[1], [1, 2], [3]]), []

    def doubt(rows_of: Any, labels: np.ndarray, trusted: np.ndarray, seed: int) -> np.ndarray:
        trusted_before.append(np.flatnonzero(trusted).tolist())
        return np.isin(np.arange(7), next(answers))

    monkeypatch.setattr(outliers, "_doubt", doubt)
    owners = np.repeat(np.arange(7), 2)
    assert find_disagreeing(np.zeros((14, 1)), owners % 2, owners, kind="classes", seed=0).tolist() == [1, 2]
    assert trusted_before == [[0, 1, 2, 3, 4, 5, 6], [0, 2, 3, 4, 5, 6]]


@pytest.mark.parametrize(("kind", "n_last"), [("classes", 20), ("number", 16)])
def test_labels_are_doubted_from_a_share_of_wrong_ones_on(kind: str, n_last: int) -> None:
    rng = np.random.default_rng(2)
    rows, owners = rng.standard_normal((150, 3)), np.repeat(np.arange(5), 30)
    signal = rows[:, 0] + 0.3 * rng.standard_normal(150)
    collected = []
    for n_wrong in (n_last, n_last + 1):
        labels = signal if kind == "number" else (signal > 0).astype(np.int64)
        labels = np.r_[-labels[:n_wrong] if kind == "number" else 1 - labels[:n_wrong], labels[n_wrong:]]
        collected.append(find_disagreeing(rows, labels, owners, kind=kind, seed=0))
    assert [outlier.tolist() for outlier in collected] == [[], [0]]


@pytest.mark.parametrize(("n_rows", "outliers"), [(9, []), (10, [0])])
def test_labels_of_fewer_than_ten_rows_are_not_doubted(n_rows: int, outliers: list[int]) -> None:
    rng = np.random.default_rng(2)
    sizes = [n_rows, 30, 30, 30, 30]
    rows, owners = rng.standard_normal((sum(sizes), 3)), np.repeat(np.arange(5), sizes)
    labels = 10 * rows[:, 0] + 0.1 * rng.standard_normal(len(rows))
    labels[:n_rows] *= -1
    assert find_disagreeing(rows, labels, owners, kind="number", seed=0).tolist() == outliers


def influence_of(targets: np.ndarray, without: np.ndarray, included: np.ndarray) -> float:
    """The loss to two others of as many rows each, from predictions without and with a participant's rows."""
    influence = _Influence.__new__(_Influence)
    influence._targets, influence._owners = targets, np.arange(len(targets)) % 2
    return influence._compare(np.ones(len(targets), dtype=np.bool_), without, included)


@pytest.mark.parametrize(("loss", "is_harm"), [(0.049, False), (0.051, True)])
def test_a_loss_of_five_points_of_r_squared_is_harm(loss: float, is_harm: bool) -> None:
    targets = np.repeat([-1.0, 1.0], 2000)[:, None]
    assert influence_of(targets, targets, targets + np.sqrt(loss)) == pytest.approx(loss * is_harm)


@pytest.mark.parametrize(
    ("score", "loss", "is_harm"),
    [("AUC", 0.039, False), ("AUC", 0.041, True), ("accuracy", 0.049, False), ("accuracy", 0.051, True)],
)
def test_a_loss_of_four_points_of_auc_or_five_of_accuracy_is_harm(score: str, loss: float, is_harm: bool) -> None:
    """Some rows of the first class are ranked below the others, or recognised as the second class, and not both."""
    n = 20_000
    targets = np.repeat(np.eye(2), n, axis=0)
    without = np.where(targets == 1, 0.9, [0.1, -5.0])
    included = without.copy()
    included[: round(2 * loss * n)] = (0.05, -5.0) if score == "AUC" else (0.5, 0.51)
    without[n:, 1] = included[n:, 1] = 0.95
    assert influence_of(targets, without, included) == pytest.approx(loss * is_harm, rel=1e-3)


def test_others_of_one_class_each_have_no_score_to_lose() -> None:
    targets = np.eye(2)[np.arange(40) % 2]  # each of the two others has the rows of one class
    assert influence_of(targets, targets, 1 - targets) == 0.0


# What a participant does to the others: scores by row, losses, and who is left out because of them.


def test_what_rows_add_to_scores_averages_to_the_auc_the_accuracy_and_r_squared() -> None:
    """With equal predictions among them, and classes of few rows, of which one of two is left out."""
    rng = np.random.default_rng(3)
    codes = np.repeat([0, 1, 2], [40, 25, 3])
    predicted = np.eye(3)[codes] + rng.standard_normal((68, 3)).round(1)
    scores, members = _score_rows(np.eye(3)[codes], predicted)
    mean, variance = _balance(scores, members)
    by_class = [roc_auc_score(codes == k, predicted[:, k]) for k in range(3)]
    guessed = predicted.argmax(axis=1)
    assert mean == pytest.approx([np.mean(by_class), balanced_accuracy_score(codes, guessed)])
    parts = [scores[:, codes == k].var(axis=1) / (codes == k).sum() for k in range(3)]
    assert variance == pytest.approx(np.sum(parts, axis=0) / 9 * [4, 1])  # of an AUC, rows on both sides vary
    small, kept = np.r_[codes[:65], 2, 2], np.r_[0:65]
    scores, members = _score_rows(np.eye(3)[small], predicted[:67])
    assert members.shape == (67, 2)
    mean, _ = _balance(scores, members)
    assert mean[1] == pytest.approx(np.mean([(guessed[kept] == k)[small[kept] == k].mean() for k in range(2)]))
    assert _score_rows(np.eye(2)[[0] * 40 + [1] * 2], predicted[:42, :2])[1].size == 0  # one class is no score
    numbers, guesses = 5 * rng.standard_normal((2, 30, 1))
    scores, members = _score_rows(numbers, guesses)
    mean, variance = _balance(scores, members)
    assert mean == pytest.approx([r2_score(numbers, guesses) - 1])
    assert variance == pytest.approx([scores.var() / 30])
    assert np.array_equal(_score_rows(np.ones((4, 1)), np.zeros((4, 1)))[0], -np.ones((1, 4)))  # labels all alike


def loss_by(rows_of: Sequence[tuple[int, int]]) -> float:
    """The loss to others who have so many rows, of which so many are predicted one standard deviation worse."""
    targets = np.concatenate([np.resize([-1.0, 1.0], n) for n, _ in rows_of])[:, None]
    worse = np.concatenate([np.arange(n) < n_worse for n, n_worse in rows_of])[:, None]
    influence = _Influence.__new__(_Influence)
    influence._targets, influence._owners = targets, np.repeat(np.arange(len(rows_of)), [n for n, _ in rows_of])
    return influence._compare(np.ones(len(targets), dtype=np.bool_), targets, targets + worse)


@pytest.mark.parametrize(
    ("rows_of", "loss"),
    [
        ([(40, 4), (40, 4)], 0.0),  # 0.1, of which three standard deviations are 3 √(0.09 / 80) = 0.1006
        ([(50, 5), (50, 5)], 0.1),  # and here 0.09
        ([(20, 2)] * 4, 0.0),
        ([(30, 3)] * 4, 0.1),  # four others who lose as much show it with fewer rows each
        ([(400, 100), (400, 0)], 0.0),  # half of the others are no majority
        ([(400, 100), (400, 100), (400, 0)], 0.5 / 3),
        ([(400, 100)], 0.25),
    ],
)
def test_a_loss_counts_where_most_of_the_others_have_it_and_it_is_beyond_chance(
    rows_of: list[tuple[int, int]], loss: float
) -> None:
    assert loss_by(rows_of) == pytest.approx(loss)


@pytest.mark.parametrize(
    ("sizes", "examined"),
    [
        ([1, *[99] * 14], list(range(15))),  # of fifteen participants, everybody is
        ([15, *[14] * 15], [0]),  # of more, those with a fifteenth of the rows
        ([14] * 16, []),
        ([1, *[99] * 13, 2, 100], [*range(1, 14), 15]),
    ],
)
def test_of_many_participants_those_with_many_rows_are_examined(sizes: list[int], examined: list[int]) -> None:
    influence = _Influence.__new__(_Influence)
    influence._owners = np.repeat(np.arange(len(sizes)), sizes)
    assert influence.list_examined() == examined


@pytest.mark.parametrize(
    ("kind", "quality", "loss"),
    [
        ("number", (0.8, 0.61), 0.3),  # R², of which the other learner needs three quarters to be considered
        ("number", (0.8, 0.59), 0.0),
        ("number", (0.0, -0.5), 0.0),  # no learner predicts anything
        ("number", (0.0, 0.0), 0.0),
        ("classes", (0.9, 0.81), 0.3),  # 0.4 and 0.31 above chance
        ("classes", (0.9, 0.79), 0.0),
        ("classes", (0.5, 0.4), 0.0),
    ],
)
def test_a_loss_counts_by_learners_that_predict_well_without_the_participant(
    kind: str, quality: tuple[float, float], loss: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first learner loses nothing, and the other one 0.3."""
    others, good = np.arange(4000) < 3000, dict(zip(CANDIDATES, quality, strict=True))
    places = np.random.default_rng(0).permutation(4000) / 4000
    targets = np.resize([-1.0, 1.0], 4000)[:, None] if kind == "number" else np.eye(2)[np.arange(4000) % 2]

    def predict(name: str, inside: np.ndarray, lost: float = 0.0) -> np.ndarray:
        """Predictions of this R², or with this AUC: that of a share of rows that are ranked above all others."""
        rest = targets[inside]
        if kind == "number":
            return np.asarray(rest + np.sqrt(1 - good[name] + lost))
        ranked = np.where((places[inside] < good[name] - lost)[:, None], rest, 1 - rest)
        return np.asarray(ranked + np.array([5.0, 0.0]))  # all are taken for the first class, which an AUC does not see

    influence = _Influence.__new__(_Influence)
    influence._targets, influence._owners = targets, np.where(others, np.arange(4000) % 6 // 2, 9)
    influence._predicted = {
        name: predict(name, np.ones(4000, dtype=bool), 0.3 * (name != CANDIDATES[0])) for name in CANDIDATES
    }
    monkeypatch.setattr(influence, "_predict", predict)
    assert influence.measure_loss(9) == pytest.approx(loss, abs=0.02)


@pytest.mark.parametrize(
    ("p", "losses", "harmful"),
    [
        (2, {0: 0.5}, []),
        (3, {0: 0.5, 1: 0.6}, [1]),
        (4, {0: 0.5, 1: 0.6}, [1]),
        (5, {0: 0.5, 1: 0.6, 2: 0.1}, [1, 0]),
        (6, {0: 0.5, 1: 0.6, 2: 0.1}, [1, 0]),
        (7, {0: 0.5, 3: 0.6, 2: 0.1, 5: 0.0}, [3, 0, 2]),
        (7, {}, []),
    ],
)
def test_the_most_harmful_are_removed_one_by_one_and_fewer_than_half(
    p: int, losses: dict[int, float], harmful: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Influence:
        def __init__(self, rows: np.ndarray, targets: np.ndarray, owners: np.ndarray, *_: Any) -> None:
            assert len(rows) == len(targets) == len(owners)
            self.list_examined = lambda: np.unique(owners).tolist()
            self.measure_loss = lambda place: losses.get(place, 0.0)

    monkeypatch.setattr(outliers, "_Influence", Influence)
    owners = np.repeat(np.arange(p), 4)
    found = find_harmful(np.zeros((4 * p, 1)), owners % 2, owners, kind="classes", seed=0)
    assert list(found.items()) == [(place, losses[place]) for place in harmful]


def test_everybody_s_rows_are_in_all_folds() -> None:
    labels, owners = np.arange(60) % 3 // 2, np.arange(60) % 2
    folds = _fold_by_owner(labels, owners, 5)
    for owner in (0, 1):
        assert np.array_equal(folds[owners == owner], row_folds(labels[owners == owner], 5))


def measured(*triples: tuple[float, float, float]) -> np.ndarray:
    """Low end, value and high end of one measure, or of two."""
    return np.array(triples)


FINE = measured((0.7, 0.8, 0.9))
UNCLEAR = measured((-0.1, 0.8, 0.9))
POOR, PASSABLE = measured((0.1, 0.59, 0.9)), measured((0.1, 0.61, 0.9))
NONE = measured((np.nan,) * 3)


def low(high: float) -> np.ndarray:
    return measured((-0.2, 0.0, high))


def two(correlation: float, accuracy: float) -> np.ndarray:
    return measured((0.0, 0.1, correlation), (0.0, 0.1, accuracy))


BOTH = measured((0.7, 0.8, 0.9), (0.5, 0.6, 0.7))


@pytest.mark.parametrize(
    ("first", "second", "suspect", "own", "is_doubted"),
    [
        (FINE, FINE, (low(0.39), low(0.39)), FINE, True),
        (FINE, FINE, (low(0.39), low(0.39)), low(0.1), True),  # below half of the median, whatever its own models say
        (FINE, FINE, (low(0.41), low(0.41)), measured((0, 0.46, 1)), True),  # below 0.9 of what its own models reach
        (FINE, FINE, (low(0.41), low(0.41)), measured((0, 0.45, 1)), False),
        (FINE, FINE, (low(0.71), low(0.71)), FINE, True),  # and of the median
        (FINE, FINE, (low(0.73), low(0.73)), measured((0, 0.9, 1)), False),
        (FINE, FINE, (low(0.39), low(0.73)), FINE, False),  # every learner that predicts most must doubt it
        (FINE, POOR, (low(0.39), low(0.73)), FINE, True),  # one that does not predict as well is not asked
        (FINE, PASSABLE, (low(0.39), low(0.73)), FINE, False),
        (UNCLEAR, UNCLEAR, (low(0.1), low(0.1)), FINE, False),  # where nothing predicts, nobody is doubted
        (UNCLEAR, FINE, (low(0.73), low(0.1)), FINE, True),
        (FINE, FINE, (NONE, NONE), FINE, False),
        (BOTH, BOTH, (two(0.8, 0.29), two(0.8, 0.29)), BOTH, True),  # half of the median's balanced accuracy
        (BOTH, BOTH, (two(0.8, 0.31), two(0.8, 0.31)), BOTH, False),
        (BOTH, BOTH, (two(0.8, 0.29), two(0.8, 0.29)), measured((0, 0.9, 1), (0, 0.57, 1)), False),
        (BOTH, BOTH, (two(0.8, 0.28), two(0.8, 0.28)), measured((0, 0.9, 1), (0, 0.57, 1)), True),
    ],
)
def test_who_is_in_doubt_by_hand(
    first: np.ndarray,
    second: np.ndarray,
    suspect: tuple[np.ndarray, np.ndarray],
    own: np.ndarray,
    is_doubted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four participants of ten rows; what both learners say of three of them, of the last one, and what its own say."""
    assert len(CANDIDATES) == 2
    own_models = 2
    of_learner = {0: first, 1: second}

    def measure(targets: np.ndarray, predicted: np.ndarray) -> np.ndarray:
        participant, learner = int(targets[0, 0]), int(predicted[0, 0])
        if learner == own_models:
            return own
        return suspect[learner] if participant == 3 else of_learner[learner]

    def doubted(n_rows: int, *, trusted: Sequence[bool] = (True,) * 4) -> list[int]:
        sizes = [10, 10, 10, n_rows]
        rows_of: Any = SimpleNamespace(
            targets=np.repeat(np.arange(4.0), sizes)[:, None],
            places=np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]),
            predict_by_others=lambda name, *_: np.full((sum(sizes), 1), CANDIDATES.index(name)),
            predict_by_itself=lambda name, at, *_: np.full((at.size, 1), own_models),
        )
        return np.flatnonzero(_doubt(rows_of, np.zeros(0), np.array(trusted), 0)).tolist()

    monkeypatch.setattr(outliers, "_measure", measure)
    assert doubted(10) == [3] * is_doubted
    assert doubted(9) == []
    assert doubted(10, trusted=(True, True, False, False)) == [3] * is_doubted
    assert doubted(10, trusted=(True, False, False, False)) == []  # one alone is no median


def test_the_spread_of_honest_fits_is_measured_by_fewer_draws_of_larger_anchors() -> None:
    rng = np.random.default_rng(4)
    spreads = [measure_honest_spread(make_anchor(r, h, rng=rng), 0.05) for r, h in ((400, 40), (1000, 80))]
    check_record(RECORD, "fits, large", spreads)
