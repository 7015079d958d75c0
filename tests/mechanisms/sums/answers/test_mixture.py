"""A mixture that is fitted to a total has its pairs of columns, and rows drawn from it have those of the mixture."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from mooring.mechanisms.sums.answers import mixture as mixtures
from mooring.mechanisms.sums.answers.mixture import Mixture, fit_mixture
from mooring.mechanisms.sums.answers.readings import list_levels, read_table
from mooring.mechanisms.sums.general.total import PairwiseTotal, sum_exactly
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.tables.schema import Column, Schema
from mooring.typing import Matrix, Vector
from tests.record import check_record

RECORD = Path(__file__).parent / "record.json"
SCHEMA = Schema(
    (
        Column("kind", "category", categories=("a", "b", "c")),
        Column("level", "number", 0, 70, missing="indicate"),
        Column("visits", "integer", 0, 3),
    )
)
WORKLOAD = make_workload(SCHEMA)
N = 2_000


def encode(kind: Vector, level: Vector, visits: Vector) -> Matrix:
    gone = np.isnan(level)
    number = np.where(gone, 0.0, level / 35 - 1)
    return np.column_stack([np.eye(3)[kind.astype(int)], number, gone, visits / 1.5 - 1])


def draw_total(n: int = N) -> PairwiseTotal:
    """Columns that go together."""
    rng = np.random.default_rng(0)
    kind = rng.choice(3, n, p=[0.5, 0.3, 0.2]).astype(float)
    level = 70 * rng.beta(1.5 + kind, 2.5 - kind / 2, n)
    visits = np.minimum(rng.poisson(0.4 + level / 40), 3).astype(float)
    level[rng.random(n) < 0.1] = np.nan
    return sum_exactly(WORKLOAD, encode(kind, level, visits))


def share_pairs(mixture: Mixture, first: int, second: int) -> Matrix:
    """How likely each level of one column is with each of another."""
    return np.asarray(np.einsum("k,ka,kb->ab", mixture.weights, mixture.tables[first], mixture.tables[second]))


def test_a_mixture_has_the_pairs_of_columns_of_a_total_without_noise() -> None:
    total = draw_total()
    mixture = fit_mixture(total, n_components=20)
    for first, second in combinations(range(3), 2):
        names = [WORKLOAD.columns[index].name for index in (first, second)]
        table = read_table(total, *(list_levels(total, name, with_missing=True) for name in names))
        np.testing.assert_allclose(share_pairs(mixture, first, second), table.values / N, atol=5e-4)
    assert mixture.weights.sum() == pytest.approx(1)
    assert all(table.sum(axis=1) == pytest.approx(1) for table in mixture.tables)


def test_a_fit_begins_as_on_record() -> None:
    """Three steps from the start, of the number of components that is fitted by default; more amplify rounding."""
    mixture = fit_mixture(draw_total(), n_steps=3)
    margins = [mixture.weights @ table for table in mixture.tables]
    deviations = [
        np.sqrt(mixture.weights @ (table - margin) ** 2) for table, margin in zip(mixture.tables, margins, strict=True)
    ]
    figures = {"components": len(mixture.weights), "margins": margins, "deviations": deviations}
    check_record(RECORD, "mixture", figures | {"spreads": mixture.spreads}, rel=1e-4)


def test_the_share_of_a_level_without_rows_starts_at_a_hundredth_of_a_percent() -> None:
    total = sum_exactly(WORKLOAD, encode(np.tile([0.0, 1.0], 50), np.full(100, 35.0), np.zeros(100)))
    margin = mixtures._find_margin(total, WORKLOAD.column("kind"))
    np.testing.assert_allclose(margin, np.array([0.5, 0.5, 1e-4]) / 1.0001, rtol=1e-9)


def test_interactions_are_shrunk_as_their_noise_asks() -> None:
    """By James and Stein: by the noise of all but two of them, in units of their squares; those of a line apart."""
    total, noise = draw_total(), 40.0
    shrunk = mixtures._shrink_blocks(replace(total, noise_variance=noise))
    S, (kind, level, visits) = total.matrix, WORKLOAD.starts
    parts = {
        "kind": [slice(kind, level)],
        "level": [slice(level, level + 1), slice(level + 1, visits)],
        "visits": [slice(visits, visits + 1), slice(visits + 1, visits + 3)],
    }
    factors = []
    for first, second in combinations(parts, 2):
        for rows in parts[first]:
            for columns in parts[second]:
                independent = np.outer(S[rows, 0], S[0, columns]) / S[0, 0]
                interaction = S[rows, columns] - independent
                factor = 1.0
                if interaction.size > 2:
                    factor = max(0.0, 1 - noise / 2 * (interaction.size - 2) / (interaction**2).sum())
                    factors.append(factor)
                np.testing.assert_allclose(shrunk[rows, columns], independent + factor * interaction, atol=1e-9)
                np.testing.assert_allclose(shrunk[columns, rows], shrunk[rows, columns].T)
    assert min(factors) == 0
    assert any(0.1 < factor < 0.95 for factor in factors)
    np.testing.assert_allclose(mixtures._shrink_blocks(total), S, atol=1e-9)


@pytest.mark.parametrize(("n_words", "is_shrunk"), [(3, False), (4, True)])
def test_three_interactions_are_shrunk_and_two_are_not(n_words: int, is_shrunk: bool) -> None:
    columns = (
        Column("kind", "category", categories=tuple("abcd"[:n_words])),
        Column("flag", "category", categories=("no", "yes")),
    )
    kind, flag = np.arange(240) % n_words, np.arange(240) % 7 == 0
    total = sum_exactly(make_workload(Schema(columns)), np.hstack([np.eye(n_words)[kind], np.eye(2)[flag.astype(int)]]))
    changed = mixtures._shrink_blocks(replace(total, noise_variance=2.0)) != total.matrix
    assert changed.any() == is_shrunk


@pytest.mark.parametrize(("share_between", "spread"), [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)])
def test_how_many_rows_lie_between_nodes_is_read_off_the_total(share_between: float, spread: float) -> None:
    """Nodes are ten apart; rows at nodes and rows anywhere have the same shares of hats."""
    rng, n = np.random.default_rng(3), 50_000
    anywhere = 10 * (np.arange(n) % 7 + rng.random(n))
    at_nodes = 10 * np.rint(anywhere / 10)
    level = np.where(rng.random(n) < share_between, anywhere, at_nodes)
    total = sum_exactly(WORKLOAD, encode(np.zeros(n), level, np.zeros(n)))
    levels = WORKLOAD.column("level")
    margin = np.array([1 / 14, *[1 / 7] * 6, 1 / 14, 0.0])
    found = mixtures._find_spread(total, levels, margin)
    neighbours = np.minimum(margin[:7], margin[1:8]).sum()
    assert found == pytest.approx(min(1.0, spread / neighbours), abs=0.02)
    assert mixtures._find_spread(total, WORKLOAD.column("visits"), margin) == 0


def test_rows_move_between_nodes_so_that_each_node_keeps_its_share() -> None:
    rng, counts = np.random.default_rng(4), np.array([40_000, 10_000, 30_000, 0, 20_000, 15_000, 5_000, 8_000])
    levels = np.repeat(np.arange(9), [*counts, 6_000])  # the last is missing
    places = mixtures._move_between_nodes(levels, 8, 0.6, rng)
    assert (places[levels == 8] == 8).all()
    assert (np.abs(places - levels) < 1).all()
    assert places.min() == 0
    assert places[levels < 8].max() == 7
    hats = np.maximum(0, 1 - np.abs(places[levels < 8, None] - np.arange(8))).sum(axis=0)
    np.testing.assert_allclose(hats, counts, atol=5 * np.sqrt(counts.max() / 6))
    moved = places != levels
    expected = 0.6 * np.minimum(counts[:-1], counts[1:])
    between = np.histogram(places[moved], bins=np.arange(9))[0][:7]
    np.testing.assert_allclose(between, expected, atol=5 * np.sqrt(expected.max()))
    t = places[moved] % 1
    assert np.mean(t * (1 - t)) == pytest.approx(1 / 6, abs=0.003)
    assert (mixtures._move_between_nodes(levels, 8, 0.0, rng) == levels).all()


def make_mixture() -> Mixture:
    tables = (
        np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]),
        np.array([[0.3, 0.3, 0.2, 0.1, 0.02, 0.02, 0.01, 0.0, 0.05], [0.0, 0.0, 0.1, 0.1, 0.2, 0.3, 0.1, 0.2, 0.0]]),
        np.array([[0.5, 0.3, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4]]),
    )
    return Mixture(WORKLOAD, np.array([0.75, 0.25]), tables, (0.0, 0.5, 0.0))


def test_rows_that_are_drawn_have_the_pairs_of_the_mixture() -> None:
    mixture, n = make_mixture(), 40_000
    places = mixture.draw_places(n, np.random.default_rng(5))
    assert places.shape == (n, 3)
    weights = mixture.weigh_places(places)
    np.testing.assert_allclose(np.add.reduceat(weights, [0, 3, 12], axis=1), 1)
    assert (weights >= 0).all()
    assert ((places[:, 1] % 1) > 0).mean() > 0.2
    for (first, of_first), (second, of_second) in combinations(
        [(0, slice(0, 3)), (1, slice(3, 12)), (2, slice(12, 16))], 2
    ):
        drawn = weights[:, of_first].T @ weights[:, of_second] / n
        np.testing.assert_allclose(drawn, share_pairs(mixture, first, second), atol=0.012)


def test_the_total_of_places_is_that_of_rows_at_these_places() -> None:
    mixture = make_mixture()
    places = mixture.draw_places(500, np.random.default_rng(6))
    level = np.where(places[:, 1] == 8, np.nan, 10 * places[:, 1])
    exact = sum_exactly(WORKLOAD, encode(places[:, 0], level, places[:, 2]))
    total = mixture.sum_places(places, 1_500.0)
    np.testing.assert_allclose(total.matrix, 3 * exact.matrix, atol=1e-9)
    assert total.noise_variance == 0
