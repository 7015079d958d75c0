from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring import RigidMap
from mooring.metrics import Galleries, build_galleries, build_identity_galleries, link, relative_errors, wilson
from mooring.metrics.linkage import gallery_hits, linked_shares
from mooring.metrics.validation import unit_rows

Refused = Callable[..., None]
seeds = st.integers(0, 2**32 - 1)


def same(galleries: Galleries, other: Galleries) -> bool:
    return all(
        np.array_equal(getattr(galleries, name), getattr(other, name)) for name in ("queries", "candidates", "answers")
    )


def hits_of(queries: np.ndarray, candidates: np.ndarray, galleries: Galleries, metric: str = "euclidean") -> np.ndarray:
    return gallery_hits(queries[None], candidates, galleries, metric=metric)[0]


@given(st.lists(st.sampled_from("aabbbc"), min_size=12, max_size=40), st.integers(2, 4), seeds)
def test_a_gallery_is_the_query_and_distinct_others_of_its_label(labels: list[str], k: int, seed: int) -> None:
    galleries = build_galleries(labels, n_candidates=k, seed=seed)
    counts, names = Counter(labels), np.array(labels)
    assert galleries.queries.tolist() == [row for row, label in enumerate(labels) if counts[label] >= k]
    assert np.array_equal(galleries.candidates[np.arange(len(galleries.queries)), galleries.answers], galleries.queries)
    assert all(len(set(gallery)) == k for gallery in galleries.candidates.tolist())
    assert (names[galleries.candidates] == names[galleries.queries][:, None]).all()


@given(st.lists(st.integers(0, 6), min_size=1, max_size=20), st.lists(st.integers(0, 5), max_size=20), seeds)
def test_an_identity_gallery_has_one_row_of_the_query_and_one_each_of_others(
    query_identities: list[int], references: list[int], seed: int
) -> None:
    query_identities, references = np.array([0, *query_identities]), np.array([0, 1, 2, *references])
    galleries = build_identity_galleries(query_identities, references, n_candidates=3, galleries_per_query=2, seed=seed)
    shown = references[galleries.candidates]
    identities_asked = query_identities[galleries.queries]
    assert all(len(set(gallery)) == 3 for gallery in shown.tolist())
    assert np.array_equal(shown[np.arange(len(identities_asked)), galleries.answers], identities_asked)
    places = np.flatnonzero(np.isin(query_identities, references))
    assert galleries.queries.tolist() == np.repeat(places, 2).tolist()


def test_galleries_depend_on_the_seed_and_on_nothing_else() -> None:
    labels = np.arange(60) % 3
    assert same(build_galleries(labels, seed=5), build_galleries(labels, seed=5))
    assert not same(build_galleries(labels, seed=5), build_galleries(labels, seed=6))
    identities = np.arange(20)
    first, other = (build_identity_galleries(identities, identities, seed=5) for _ in range(2))
    assert same(first, other)


def test_the_true_match_stands_at_every_place_and_every_row_is_an_impostor_alike() -> None:
    """2,000 rows, k = 5: each place 400 ± 18 times; each row an impostor 4 ± 2 times, a χ² of 2,000 ± 63 in all."""
    galleries = build_galleries(np.zeros(2000), n_candidates=5, seed=0)
    assert np.abs(np.bincount(galleries.answers, minlength=5) - 400).max() < 4 * 18
    appearances = np.bincount(galleries.candidates.ravel(), minlength=2000) - 1
    assert appearances.sum() == 4 * 2000
    assert abs(np.sum((appearances - 4) ** 2) / 4 - 2000) < 5 * 63


def test_every_set_of_impostors_is_as_likely() -> None:
    """Two of four others, 6,000 draws: each of the six pairs 1,000 ± 29 times."""
    galleries = build_identity_galleries([0], np.arange(5), n_candidates=3, galleries_per_query=6000, seed=0)
    impostors = [frozenset(gallery) - {0} for gallery in galleries.candidates.tolist()]
    counts = Counter(impostors)
    assert len(counts) == 6
    assert max(abs(count - 1000) for count in counts.values()) < 4 * 29


def test_any_reference_of_the_identity_can_be_the_match() -> None:
    galleries = build_identity_galleries([7], [7, 7, 1, 1], n_candidates=2, galleries_per_query=50, seed=0)
    assert set(galleries.candidates.ravel().tolist()) == {0, 1, 2, 3}


def test_fewer_queries_can_be_asked_for() -> None:
    galleries = build_galleries(np.zeros(50), n_candidates=3, n_queries=20, seed=0)
    assert len(set(galleries.queries.tolist())) == 20
    assert set(galleries.candidates.ravel().tolist()) > set(galleries.queries.tolist())
    assert len(build_galleries(np.zeros(5), n_candidates=3, n_queries=20, seed=0).queries) == 5


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_the_truth_is_always_linked(metric: str, rng: np.random.Generator) -> None:
    rows = rng.standard_normal((100, 6))
    linkage = link(rows, rows, build_galleries(np.arange(100) % 4, seed=0), metric=metric)
    assert (linkage.name, linkage.value, linkage.chance, linkage.n) == ("linkage", 1.0, 0.1, 100)
    assert linkage.interval == wilson(100, 100)
    assert linkage.higher_is_worse


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_pure_noise_is_linked_at_chance(metric: str, rng: np.random.Generator) -> None:
    """2,000 queries: 0.1 ± 0.0067, and the interval is ±0.013 about what was found; 0.13 would be seen."""
    rows, noise = rng.standard_normal((2000, 8)), rng.standard_normal((2000, 8))
    linkage = link(noise, rows, build_galleries(np.arange(2000) % 10, seed=1), metric=metric)
    assert linkage.chance in linkage.interval
    assert linkage.interval.high - linkage.interval.low < 0.03


def test_less_noise_links_better(rng: np.random.Generator) -> None:
    rows, noise = rng.standard_normal((500, 8)), rng.standard_normal((500, 8))
    galleries = build_galleries(np.zeros(500), seed=0)
    accuracies = [link(rows + scale * noise, rows, galleries).value for scale in (0.1, 1.0, 2.0, 8.0)]
    assert accuracies == sorted(accuracies, reverse=True)
    assert accuracies[0] > accuracies[1] > accuracies[-1]


def test_a_tie_among_candidates_counts_in_part() -> None:
    galleries = Galleries(np.arange(3), np.array([[0, 1, 2], [0, 1, 2], [0, 1, 2]]), np.array([0, 1, 2]), 0)
    candidates = np.array([[1.0], [1.0], [5.0]])
    queries = np.array([[1.0], [0.0], [3.0]])
    hits, linkage = hits_of(queries, candidates, galleries), link(queries, candidates, galleries)
    assert np.allclose(hits, [1 / 2, 1 / 2, 1 / 3])
    assert linkage.value == pytest.approx(4 / 9)
    assert linkage.interval == wilson(hits.sum(), 3)


def test_reconstructions_that_are_all_alike_are_linked_at_chance_on_average(rng: np.random.Generator) -> None:
    galleries = build_galleries(np.zeros(40), n_candidates=4, seed=0)
    rows = rng.standard_normal((40, 3))
    assert hits_of(rows, np.ones((40, 3)), galleries).tolist() == [0.25] * 40
    assert hits_of(np.zeros((40, 3)), rows, galleries, metric="cosine").tolist() == [0.25] * 40


def test_cosine_looks_at_directions_only(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((60, 5))
    scaled = rows * rng.uniform(0.01, 100.0, (60, 1))
    galleries = build_galleries(np.zeros(60), seed=0)
    assert np.allclose(unit_rows(np.array([[0.0, 0], [0.3, 0.4], [6, 8]])), [[0, 0], [0.6, 0.8], [0.6, 0.8]])
    assert link(rows, scaled, galleries, metric="cosine").value == 1.0
    assert link(rows, scaled, galleries).value < 1.0
    parallel = Galleries(np.array([0]), np.array([[0, 1]]), np.array([1]), 0)
    direction = rng.standard_normal((1, 5))
    both = np.vstack([direction, 3.0 * direction])
    assert hits_of(7.0 * direction, both, parallel, metric="cosine").tolist() == [0.5]


def test_a_candidate_without_direction_is_no_better_than_one_at_a_right_angle() -> None:
    galleries = Galleries(np.array([0, 0]), np.array([[0, 1], [1, 2]]), np.array([0, 0]), 0)
    candidates = np.array([[0.0, 0.0], [0.0, 2.0], [-1.0, 0.0]])
    assert hits_of(np.array([[1.0, 0.0]]), candidates, galleries, metric="cosine").tolist() == [0.5, 1.0]


@given(seeds)
def test_linkage_ignores_a_rigid_map_of_both_sides_and_the_order_of_a_gallery(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((30, 4))
    rebuilt = rows + rng.standard_normal(rows.shape)
    galleries = build_galleries(np.arange(30) % 2, n_candidates=5, seed=seed)
    hits = hits_of(rebuilt, rows, galleries)
    move = RigidMap.sample(4, rng=rng)
    assert np.array_equal(hits_of(move.apply(rebuilt), move.apply(rows), galleries), hits)
    backwards = Galleries(galleries.queries, galleries.candidates[:, ::-1], 4 - galleries.answers, seed)
    assert np.array_equal(hits_of(rebuilt, rows, backwards), hits)


def test_blocks_do_not_change_the_hits(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((50, 3))
    galleries = build_galleries(np.zeros(50), seed=0)
    whole = hits_of(rows + 1.0, rows, galleries)
    blocked = gallery_hits((rows + 1.0)[None], rows, galleries, block_numbers=7 * 30)[0]
    assert np.array_equal(blocked, whole)


def test_galleries_of_one_query_are_not_taken_for_independent() -> None:
    """40 queries, half always linked and half never, 25 galleries each: the spread is that of 40 trials, not 1,000."""
    identities = np.arange(40)
    references = np.eye(40)
    queries = np.vstack([references[:20], -references[20:]])
    galleries = build_identity_galleries(identities, identities, galleries_per_query=25, seed=0)
    linkage = link(queries, references, galleries)
    by_query = wilson(linkage.value * 40, 40)
    width = linkage.interval.high - linkage.interval.low
    assert linkage.n == 40
    assert width == pytest.approx(by_query.high - by_query.low, rel=0.2)
    assert width > 3 * (wilson(500, 1000).high - wilson(500, 1000).low)
    assert link(queries, references, galleries).interval == linkage.interval


def test_where_every_gallery_is_a_hit_the_interval_still_has_a_width() -> None:
    identities = np.arange(12)
    galleries = build_identity_galleries(identities, identities, galleries_per_query=5, seed=0)
    assert link(np.eye(12), np.eye(12), galleries).interval == wilson(12, 12)


def test_shares_of_many_reconstructions_are_those_of_each_by_the_metric_that_links_most(
    rng: np.random.Generator,
) -> None:
    rows, galleries = rng.standard_normal((30, 4)), build_galleries(np.zeros(30), seed=0)
    longer = rows * rng.uniform(0.2, 5, (30, 1))
    rebuilt = np.stack([rows + rng.standard_normal(rows.shape), longer, rng.standard_normal(rows.shape)])
    each = [
        [link(rows_of_draw, rows, galleries, metric=metric).value for metric in ("euclidean", "cosine")]
        for rows_of_draw in rebuilt
    ]
    assert each[1][1] == 1.0 > each[1][0]
    assert np.allclose(linked_shares(rebuilt, rows, galleries), np.max(each, axis=1))


def test_draws_are_measured_each_by_itself(on_backend: Callable[[Any], Any]) -> None:
    queries = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    galleries = Galleries(np.array([0, 1, 2]), np.array([[0, 1], [0, 1], [2, 0]]), np.array([0, 1, 0]), 0)
    units = on_backend(queries / np.linalg.norm(queries, axis=1, keepdims=True))
    draws = on_backend(np.stack([queries, queries[[1, 0, 0]], queries[[0, 0, 2]]]))
    np.testing.assert_allclose(linked_shares(draws, on_backend(queries), galleries), [1, 0, 2 / 3])
    np.testing.assert_allclose(linked_shares(draws, units, galleries, metrics=("cosine",)), [1, 0, 2 / 3])
    errors = relative_errors(on_backend(queries), draws)
    np.testing.assert_allclose(errors[:2], [0, np.sqrt(4.5 / 2.5)], atol=1e-15)


def test_galleries_that_cannot_be_filled_are_refused(refused: Refused) -> None:
    refused(lambda: build_galleries([0, 0, 1], n_candidates=3, seed=0), "labels", "n_candidates = 3", "at most 2 rows")
    refused(lambda: build_galleries([], seed=0), "labels", "n_candidates = 10", "at most 0 rows")
    refused(lambda: build_galleries([[1]], seed=0), "labels", "a vector", "shape (1, 1)")
    refused(lambda: build_galleries([1], n_candidates=1, seed=0), "n_candidates", "at least 2", "1")
    refused(lambda: build_galleries([1], n_queries=0, seed=0), "n_queries", "at least 1", "0")
    refused(lambda: build_galleries([1], seed=-1), "seed", "at least 0", "-1")
    identities = partial(build_identity_galleries, seed=0)
    refused(lambda: identities([0], [0, 1, 1], n_candidates=3), "reference_identities", "n_candidates = 3", "2")
    refused(lambda: identities([8, 9], [0, 1], n_candidates=2), "query_identities", "among the references", "2 queries")
    none = partial(identities, [0], [0, 1], n_candidates=2, galleries_per_query=0)
    refused(none, "galleries_per_query", "at least 1", "0")
    places = np.zeros(3, dtype=int)
    refused(lambda: Galleries(np.arange(2), np.c_[places, places], places, 0), "candidates", "q queries", "(3, 2)")


def test_rows_that_do_not_fit_the_galleries_are_refused(refused: Refused, rng: np.random.Generator) -> None:
    rows = rng.standard_normal((12, 3))
    galleries = build_galleries(np.zeros(12), seed=0)
    refused(lambda: link(rows[:11], rows, galleries), "queries", "at least 12 rows", "11 rows")
    refused(lambda: link(rows, rows[:5], galleries), "candidates", "at least 12 rows", "5 rows")
    refused(lambda: link(rows, rows[:, :2], galleries), "candidates", "of 3 features", "2")
    refused(lambda: link(rows * np.nan, rows, galleries), "queries", "finite", "NaN")
    refused(lambda: link(rows, rows, galleries, metric="manhattan"), "metric", "cosine", "manhattan")


@pytest.mark.parametrize(
    ("metric", "candidates", "tie"),
    [
        ("euclidean", lambda gap: [[1.0, 0.0], [-1.0 - gap, 0.0]], 1e-12),  # relative to the distance
        ("cosine", lambda gap: [[1.0, 0.0], [1.0, gap]], 1e-14),  # of unit vectors, beside one of the same direction
    ],
)
def test_candidates_tie_up_to_rounding(metric: str, candidates: Callable[[float], Any], tie: float) -> None:
    galleries = Galleries(np.array([0]), np.array([[0, 1]]), np.array([0]), 0)
    query = np.array([[0.0, 0.0]] if metric == "euclidean" else [[1.0, 0.0]])
    hits = [hits_of(query, np.array(candidates(share * tie)), galleries, metric=metric)[0] for share in (0.8, 1.2)]
    assert hits == [0.5, 1.0]


def test_where_no_gallery_is_a_hit_the_interval_still_has_a_width() -> None:
    identities = np.arange(12)
    galleries = build_identity_galleries(identities, identities, galleries_per_query=5, seed=0)
    assert link(-np.eye(12), np.eye(12), galleries).interval == wilson(0, 12)
