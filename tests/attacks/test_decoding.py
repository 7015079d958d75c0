"""The attacker's own decoder: it tells from a colluder's records what a projection leaves out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mooring.attacks import decoding
from mooring.attacks.decoding import _PENALTIES, learn_decoder
from mooring.mechanisms.rotation.projection import Projection, gaussian_projection, no_projection

D, H = 40, 10


def population(n: int, *, seed: int, spread: float = 0.05) -> np.ndarray:
    """Records whose columns go together: six causes, a mean, and a little of their own."""
    rng = np.random.default_rng(7)
    mixing, mean = rng.standard_normal((6, D)), 3 * rng.standard_normal(D)
    rng_of_rows = np.random.default_rng(seed)
    return mean + rng_of_rows.standard_normal((n, 6)) @ mixing + spread * rng_of_rows.standard_normal((n, D))


def projection() -> Projection:
    return gaussian_projection(D, H, rng=np.random.default_rng(11))


def error(rows: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(rows - truth) / np.linalg.norm(truth - truth.mean(axis=0)))


def test_it_recovers_what_the_pseudoinverse_leaves_out() -> None:
    F, known, unseen = projection(), population(300, seed=1), population(200, seed=2)
    projected = F.encode(unseen)
    assert error(F.decode(projected), unseen) > 1.0
    assert error(learn_decoder(F, known).decode(projected), unseen) < 0.1


@pytest.mark.parametrize("n", [2, 5, 9, 10, 11, 30])
def test_few_records_already_help(n: int) -> None:
    F, unseen = projection(), population(200, seed=2)
    projected = F.encode(unseen)
    decoder = learn_decoder(F, population(n, seed=1))
    assert error(decoder.decode(projected), unseen) < 0.95 * error(F.decode(projected), unseen)
    assert np.isfinite(decoder.penalty)


def test_where_columns_do_not_go_together_it_does_no_harm() -> None:
    rng = np.random.default_rng(3)
    F, known, unseen = projection(), rng.standard_normal((15, D)), rng.standard_normal((500, D))
    projected = F.encode(unseen)
    decoder = learn_decoder(F, known)
    assert decoder.penalty >= 1
    assert error(decoder.decode(projected), unseen) < 1.1 * error(F.decode(projected), unseen)


def test_the_penalty_is_the_one_that_leaving_out_each_record_in_turn_chooses() -> None:
    F, known = projection(), population(25, seed=4, spread=1.0)
    Z = F.encode(known)
    left_out = known - F.decode(Z)
    unit = float(np.mean(np.linalg.svd(Z - Z.mean(axis=0), compute_uv=False) ** 2))
    errors = []
    for penalty in _PENALTIES:
        gaps = []
        for k in range(len(known)):
            others = np.arange(len(known)) != k
            z, m = Z[others], left_out[others]
            # The penalty is on the slopes and not on the mean, which each regression has of its own.
            centred = z - z.mean(axis=0)
            W = np.linalg.solve(centred.T @ centred + penalty * unit * np.eye(H), centred.T @ (m - m.mean(axis=0)))
            gaps.append(m.mean(axis=0) + (Z[k] - z.mean(axis=0)) @ W - left_out[k])
        errors.append(np.mean(np.square(gaps)))
    assert 0 < np.argmin(errors) < len(_PENALTIES) - 1
    assert learn_decoder(F, known).penalty == _PENALTIES[np.argmin(errors)]


@pytest.mark.parametrize(("fewer", "step"), [(0, 1), (1, 2), (200, 2), (201, 3)])
def test_penalties_are_compared_on_so_many_numbers(fewer: int, step: int) -> None:
    """The penalties use all of 20 rows and columns, every second or every third; these differ in predictability."""
    rng = np.random.default_rng(0)
    U, s, _ = np.linalg.svd(rng.standard_normal((20, 4)), full_matrices=False)
    strength = np.array([0.0, 3.0, 1.0, 3.0, 0.0, 3.0])[np.arange(20) % 6]
    wanted = strength * (U @ rng.standard_normal((4, 20))) + 0.3 * rng.standard_normal((20, 20))

    def choose(columns: np.ndarray, most_numbers: int) -> float:
        return decoding._by_leaving_one_out(U, s, U.T @ columns, columns, 1.0, most_numbers)

    penalties = [choose(wanted[:, ::thin], 400) for thin in (1, 2, 3)]
    assert len(set(penalties)) == 3
    assert choose(wanted, 400 - fewer) == penalties[step - 1]


def test_it_projects_to_the_rows_it_was_given() -> None:
    F, unseen = projection(), population(50, seed=5)
    back = learn_decoder(F, population(100, seed=6)).decode(F.encode(unseen))
    np.testing.assert_allclose(F.encode(back), F.encode(unseen), atol=1e-9)


def test_without_a_projection_there_is_nothing_to_learn() -> None:
    records = population(20, seed=8)
    np.testing.assert_allclose(learn_decoder(no_projection(D), records).decode(records), records, atol=1e-9)


@pytest.mark.parametrize(("copies", "unit"), [(2, 1.0), (5, 1e6), (7, 1e-6)])
def test_records_that_are_all_alike_but_for_rounding_give_their_own_mean(copies: int, unit: float) -> None:
    alike = unit * np.tile(population(1, seed=9), (copies, 1))
    alike[-1] *= 1 + 1e-15
    F, other = projection(), unit * population(50, seed=2)
    decoder = learn_decoder(F, alike)
    assert np.isinf(decoder.penalty)
    np.testing.assert_allclose(decoder.decode(F.encode(alike)), alike)
    np.testing.assert_array_equal(decoder.matrix, F.decoder)
    assert error(decoder.decode(F.encode(other)), other) < 1.5 * error(F.decode(F.encode(other)), other)


def test_copies_of_records_change_nothing() -> None:
    known = population(12, seed=4, spread=1.0)
    once, twice = (learn_decoder(projection(), rows) for rows in (known, np.repeat(known, 2, axis=0)))
    assert once.penalty == twice.penalty
    np.testing.assert_allclose(once.matrix, twice.matrix, atol=1e-12)


def test_a_decoder_prints_its_penalty_alone() -> None:
    decoder = learn_decoder(projection(), population(12, seed=4))
    assert repr(decoder) == f"LearnedDecoder(penalty={decoder.penalty})"


def test_one_record_is_refused(refused: Callable[..., None]) -> None:
    refused(lambda: learn_decoder(projection(), population(1, seed=1)), "records", "at least two rows", "")


@pytest.mark.parametrize(("n", "together"), [(3, 1), (12, 1), (23, 1), (24, 2), (60, 5), (95, 7), (96, 8), (200, 8)])
def test_a_third_is_left_out_at_a_time_neighbours_together(
    n: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of an eighth of what is left out, eight rows at most."""
    learnt_from: list[set[int]] = []

    def learn(_: Projection, rows: np.ndarray) -> decoding.LearnedDecoder:
        learnt_from.append(set(rows[:, 0].astype(int).tolist()))
        return decoding.LearnedDecoder(np.zeros((1, 2)), np.zeros(2), 0.0)

    monkeypatch.setattr(decoding, "learn_decoder", learn)
    records = np.column_stack([np.arange(n), np.ones(n)]).astype(float)
    F = np.array([[1.0], [0.0]])
    assert not decoding._comes_nearer(Projection(F, F.T, "gaussian"), records)
    assert learnt_from == [{i for i in range(n) if i // together % 3 != fold} for fold in range(3)]


@pytest.mark.parametrize(("n", "n_compared"), [(1000, 1000), (1001, 501)])
def test_decoders_are_compared_on_a_thousand_records(n: int, n_compared: int, monkeypatch: pytest.MonkeyPatch) -> None:
    learnt_from: list[int] = []

    def learn(_: Projection, rows: np.ndarray) -> decoding.LearnedDecoder:
        learnt_from.append(len(rows))
        return decoding.LearnedDecoder(np.zeros((1, 2)), np.zeros(2), 0.0)

    monkeypatch.setattr(decoding, "learn_decoder", learn)
    F = np.array([[1.0], [0.0]])
    decoding._comes_nearer(Projection(F, F.T, "gaussian"), np.column_stack([np.arange(n), np.ones(n)]).astype(float))
    assert sum(learnt_from) == 2 * n_compared  # each is left out once in three times


@pytest.mark.parametrize(("share", "excluded"), [(1.1, 0), (0.9, 1)])
def test_a_penalty_is_not_compared_if_it_lets_a_row_determine_its_own_prediction_to_a_millionth(
    share: float, excluded: int
) -> None:
    """The first of six rows has a component of its own, which predicts nothing; the less penalty, the better the other."""
    U = np.zeros((6, 2))
    U[:, 0] = np.array([5.0, -1, -1, -1, -1, -1]) / np.sqrt(30)
    U[1:, 1] = np.array([2.0, 1, 0, -1, -2]) / np.sqrt(10)
    s = np.array([1.0, 0.01])
    unit = share * 1e-6 * 6 / 5 / _PENALTIES[2]  # its own weight is 1 − 5/6 of the penalty
    wanted = U[:, 1:]
    chosen = decoding._by_leaving_one_out(U, s, U.T @ wanted, wanted, float(unit), 10**6)
    assert chosen == _PENALTIES[2 + excluded]


@pytest.mark.parametrize(("share", "is_alike"), [(0.9, True), (1.2, False)])
@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
def test_records_are_alike_if_their_variance_is_10_to_the_minus_24_of_their_squares(
    share: float, is_alike: bool, unit: float
) -> None:
    """One column of three is kept, and rows lie at −1, 0 and 1 about zero in the others, so that squares are exact."""
    F = Projection(np.eye(3)[:, :2], np.eye(3)[:2], "gaussian")
    gap = np.sqrt(share * 1e-24)
    records = unit * np.array([[1.0, gap, 2.0], [1.0, 0.0, 3.0], [1.0, -gap, 4.0]])
    # The mean of the two squared singular values is gap², and the sum of all squares is 3 + 2 gap².
    decoder = learn_decoder(F, records * np.array([1 / np.sqrt(3), 1.0, 1.0]))
    assert np.isinf(decoder.penalty) == is_alike


@pytest.mark.parametrize("records", [np.ones((2, 3, 4)), np.ones(5), np.ones((1, 4))])
def test_records_that_are_no_matrix_of_two_rows_are_refused(records: np.ndarray, refused: Callable[..., None]) -> None:
    refused(lambda: learn_decoder(no_projection(4), records), "records", "at least two rows", str(records.shape))
