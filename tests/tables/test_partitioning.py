from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mooring.tables import Partition, Records, partition

Refused = Callable[..., None]


def make_records(n_rows: int, n_classes: int, n_groups: int, seed: int) -> Records:
    rng = np.random.default_rng(seed)
    return Records(
        rows=np.arange(float(n_rows))[:, None],
        labels=rng.integers(0, n_classes, n_rows) if n_classes else rng.random(n_rows),
        groups=rng.integers(0, n_groups, n_rows),
        group_names=tuple(f"hospital {k}" for k in range(n_groups)),
    )


studies = st.builds(
    make_records,
    n_rows=st.integers(20, 90),
    n_classes=st.integers(0, 4),
    n_groups=st.integers(1, 12),
    seed=st.integers(0, 2**16),
)
shares = st.sampled_from([0.0, 0.1, 0.25, 0.4])
participants = st.integers(1, 6)


def check_every_row_is_in_one_place(split: Partition, n_rows: int, *, all_used: bool = True) -> None:
    places = np.concatenate([*split.train_indices, *split.test_indices, split.public_indices])
    assert np.unique(places).size == places.size
    assert np.isin(places, np.arange(n_rows)).all()
    assert places.size == n_rows or not all_used


def check_rows_and_labels_follow_their_indices(split: Partition, records: Records) -> None:
    for rows, indices in zip((*split.train, *split.test), (*split.train_indices, *split.test_indices), strict=True):
        assert np.array_equal(rows, records.rows[indices])
    labels = (*split.train_labels, *split.test_labels)
    for label, indices in zip(labels, (*split.train_indices, *split.test_indices), strict=True):
        assert np.array_equal(label, records.labels[indices])


def counts(parts: tuple[np.ndarray, ...]) -> np.ndarray:
    """Rows of each class (columns) that each participant (rows) holds."""
    return np.array([np.bincount(part, minlength=5) for part in parts])


@given(studies, participants, shares, shares, st.none() | st.integers(1, 20), st.integers(0, 99))
def test_every_row_goes_to_exactly_one_place_and_classes_are_even(
    records: Records, p: int, test_share: float, public_share: float, rows_each: int | None, seed: int
) -> None:
    n_test = int(test_share * records.n_rows + 0.5)
    assume(test_share == 0 or n_test >= p)
    keywords = {"n_participants": p, "test_share": test_share, "public_share": public_share, "rows_each": rows_each}
    split = partition(records, rng=np.random.default_rng(seed), **keywords)
    check_every_row_is_in_one_place(split, records.n_rows, all_used=rows_each is None)
    check_rows_and_labels_follow_their_indices(split, records)
    for side in (split.train, split.test):
        sizes = [len(rows) for rows in side]
        assert max(sizes) - min(sizes) <= 1
    assert sum(len(rows) for rows in split.test) == n_test
    assert split.public_indices.size == int(public_share * records.n_rows + 0.5)
    assert rows_each is None or max(len(rows) for rows in split.train) <= rows_each
    if records.label_kind == "classes":
        for parts in (split.train_labels, split.test_labels):
            assert (np.ptp(counts(parts), axis=0) <= 1).all()
        expected = n_test / records.n_rows * np.bincount(records.labels, minlength=5)
        assert (np.abs(counts(split.test_labels).sum(axis=0) - expected) < 1).all()


@given(studies, participants, shares, shares, st.none() | st.integers(1, 9), st.integers(0, 99))
def test_groups_are_never_split(
    records: Records, p: int, test_share: float, public_share: float, rows_each: int | None, seed: int
) -> None:
    keywords = {"n_participants": p, "test_share": test_share, "public_share": public_share, "rows_each": rows_each}
    try:
        split = partition(records, rng=np.random.default_rng(seed), by_group=True, **keywords)
    except ValueError:
        assume(False)
    check_every_row_is_in_one_place(split, records.n_rows, all_used=rows_each is None)
    check_rows_and_labels_follow_their_indices(split, records)
    n_groups = np.unique(records.groups).size
    held = [
        set(records.groups[np.concatenate(both)]) for both in zip(split.train_indices, split.test_indices, strict=True)
    ]
    assert sum(map(len, held)) == len(set().union(*held))
    assert rows_each is None or max(len(rows) for rows in split.train) <= rows_each
    if n_groups == p:
        assert all(len(indices) == 1 for indices in held)
        assert split.names == tuple(f"hospital {min(indices)}" for indices in held)
        assert split.public_indices.size == int(public_share * records.n_rows + 0.5)
    else:
        assert not set(records.groups[split.public_indices]) & set().union(*held)
        assert split.public_indices.size >= public_share * records.n_rows - 0.5


@given(studies, st.booleans(), st.integers(0, 99))
def test_the_same_seed_deals_the_same_rows(records: Records, by_group: bool, seed: int) -> None:
    assume(np.unique(records.groups, return_counts=True)[1].min() >= 4)
    assume(np.unique(records.groups).size >= 2)
    keywords = {"n_participants": 2, "by_group": by_group, "public_share": 0.1, "rows_each": 5}
    try:
        first, second = (partition(records, rng=np.random.default_rng(seed), **keywords) for _ in range(2))
    except ValueError:
        assume(False)
    for indices, other in zip(first.train_indices, second.train_indices, strict=True):
        assert np.array_equal(indices, other)
    for indices, other in zip(first.test_indices, second.test_indices, strict=True):
        assert np.array_equal(indices, other)
    assert np.array_equal(first.public_indices, second.public_indices)


def test_another_seed_deals_other_rows() -> None:
    records = make_records(90, 3, 5, 0)
    first, second = (partition(records, n_participants=3, rng=np.random.default_rng(seed)) for seed in (0, 1))
    assert not np.array_equal(first.train_indices[0], second.train_indices[0])
    assert not np.array_equal(first.test_indices[0], second.test_indices[0])


def test_groups_go_to_the_participant_with_the_fewest_rows() -> None:
    """Sizes 8, 5, 4, 3: the largest alone first, then 5, then 4 to the 5, then 3 to the 8."""
    sizes = [3, 8, 4, 5]
    records = Records(rows=np.zeros((20, 1)), groups=np.repeat(np.arange(4), sizes))
    split = partition(records, n_participants=2, rng=np.random.default_rng(0), by_group=True, test_share=0.0)
    held = [set(records.groups[indices].tolist()) for indices in split.train_indices]
    assert held == [{0, 1}, {2, 3}]
    assert split.test[0].shape == (0, 1)
    assert split.names == ("participant 1", "participant 2")


def test_a_natural_split_tests_on_each_groups_own_rows() -> None:
    records = Records(rows=np.zeros((60, 1)), labels=[0, 1] * 30, groups=np.repeat([0, 1, 2], [8, 12, 40]))
    split = partition(records, n_participants=3, rng=np.random.default_rng(0), by_group=True)
    assert [len(rows) for rows in split.test] == [2, 3, 10]
    for k, indices in enumerate(split.test_indices):
        assert set(records.groups[indices]) == {k}
    assert counts(split.test_labels)[0].tolist() == [1, 1, 0, 0, 0]


def test_a_group_that_was_taken_out_leaves_the_names_right() -> None:
    records = Records(rows=np.zeros((12, 1)), groups=np.arange(12) % 3, group_names=("a", "b", "c"))
    split = partition(records.take(records.groups != 1), n_participants=2, rng=np.random.default_rng(0), by_group=True)
    assert split.names == ("a", "c")


def test_one_class_numbers_and_no_labels_are_dealt() -> None:
    for labels in (np.zeros(20, dtype=int), np.arange(20) / 7, None):
        split = partition(
            Records(rows=np.zeros((20, 2)), labels=labels), n_participants=3, rng=np.random.default_rng(0)
        )
        assert sum(len(rows) for rows in split.train) == 15
        assert (split.train_labels is None) == (labels is None)
        assert split.public is None
    assert split.label_kind == "none"
    assert (split.n_participants, split.n_features) == (3, 2)


@pytest.mark.parametrize(
    ("change", "what", "expected", "got"),
    [
        ({"n_participants": 0}, "n_participants", "at least 1", "0"),
        ({"n_participants": 21}, "rows", "each of the 21 participants", "20"),
        ({"n_participants": 6}, "test rows", "each of the 6 participants", "5"),
        ({"n_participants": 4, "public_share": 0.6}, "rows to train on", "each of the 4", "3"),
        ({"rows_each": 0}, "rows_each", "at least 1", "0"),
        ({"test_share": 1.0}, "test_share", "less than 1", "1.0"),
        ({"test_share": float("nan")}, "test_share", "less than 1", "nan"),
        ({"public_share": -0.1}, "public_share", "at least 0", "-0.1"),
        ({"test_share": 0.5, "public_share": 0.5}, "test_share and public_share", "less than 1 together", "1.0"),
        ({"by_group": True}, "by_group", "left out for records without groups", "True"),
    ],
)
def test_deals_that_cannot_be_made_are_refused(
    change: dict[str, Any], what: str, expected: str, got: str, refused: Refused
) -> None:
    keywords = {"n_participants": 2, "rng": np.random.default_rng(0), **change}
    refused(lambda: partition(Records(rows=np.zeros((20, 1))), **keywords), what, expected, got)


def test_too_few_or_too_small_groups_are_refused(refused: Refused) -> None:
    keywords = {"rng": np.random.default_rng(0), "by_group": True}
    records = Records(rows=np.zeros((9, 1)), groups=[0] * 8 + [1])
    refused(lambda: partition(records, n_participants=3, **keywords), "n_participants", "at most 2", "3")
    refused(lambda: partition(records, n_participants=2, **keywords), "the rows of participant 2", "at least 2", "1")


@given(
    st.lists(st.integers(2, 20), min_size=1, max_size=4), st.sampled_from([0.0, 0.01, 0.25, 0.99]), st.integers(0, 99)
)
def test_parts_are_split_within_each_participant(sizes: list[int], test_share: float, seed: int) -> None:
    starts = np.cumsum([0, *sizes])
    datasets = [np.arange(float(start), start + n)[:, None] for start, n in zip(starts[:-1], sizes, strict=True)]
    labels = [np.arange(n) % 2 for n in sizes]
    public = np.arange(100.0, 103.0)[:, None]
    split = Partition.from_parts(
        datasets, labels, rng=np.random.default_rng(seed), test_share=test_share, public=public
    )
    check_every_row_is_in_one_place(split, sum(sizes) + 3)
    for k, n in enumerate(sizes):
        together = np.concatenate([split.train[k], split.test[k]])
        assert np.array_equal(np.sort(together, axis=0), datasets[k])
        assert np.array_equal(split.train[k][:, 0], split.train_indices[k])
        assert np.array_equal((split.train_indices[k] - starts[k]) % 2, split.train_labels[k])
        assert len(split.train[k]) >= 1
        assert len(split.test[k]) == (min(max(int(test_share * n + 0.5), 1), n - 1) if test_share else 0)
    assert np.array_equal(split.public, public)


@given(st.lists(st.integers(6, 10).map(lambda n: 2 * n), min_size=1, max_size=4), st.booleans(), st.integers(0, 99))
def test_halves_share_nobodys_rows_and_have_as_many_of_each_class(sizes: list[int], grouped: bool, seed: int) -> None:
    starts, rng = np.cumsum([0, *sizes]), np.random.default_rng(seed)
    datasets = [np.arange(float(start), start + n)[:, None] for start, n in zip(starts[:-1], sizes, strict=True)]
    whole = Partition.from_parts(datasets, [np.arange(n) % 2 for n in sizes], rng=rng, public=[[100.0]], test_share=0.3)
    groups = np.arange(sum(sizes) + 1) // 2 if grouped else None
    halves = whole.halves(rng=rng, groups=groups)
    indices = [np.concatenate([*half.train_indices, *half.test_indices]) for half in halves]
    assert sorted(np.concatenate(indices)) == list(range(sum(sizes)))
    for half, places in zip(halves, indices, strict=True):
        check_every_row_is_in_one_place(half, sum(sizes) + 1, all_used=False)
        assert np.array_equal(np.concatenate([*half.train, *half.test])[:, 0], places)
    if grouped:
        assert not set(groups[indices[0]]) & set(groups[indices[1]])
    else:
        for both in zip(halves[0].train_labels, halves[1].train_labels, strict=True):
            assert max(abs(np.subtract(*(np.bincount(labels, minlength=2) for labels in both)))) <= 1


def test_rows_that_are_too_few_are_not_halved(refused: Refused) -> None:
    few = Partition.from_parts([np.eye(4), np.eye(4)[:3]], rng=np.random.default_rng(0), test_share=0)
    refused(lambda: few.halves(rng=np.random.default_rng(0)), "a participant's rows to train on", "at least 4", "1 in")


@pytest.mark.parametrize("n_test", [4, 0])
def test_parts_with_test_rows_are_kept_as_they_are(n_test: int) -> None:
    train, test = [np.ones((3, 2)), np.ones((1, 2))], [np.zeros((2, 2)), np.zeros((n_test, 2))]
    train_labels, test_labels = [[0, 1, 1], [0]], [[0.5, 1.5], [1.0] * n_test]
    split = Partition.from_parts(
        train,
        train_labels,
        rng=np.random.default_rng(0),
        test=test,
        test_labels=test_labels,
        public=np.full((2, 2), 7.0),
        names=("east", "west"),
    )
    check_every_row_is_in_one_place(split, 8 + n_test)
    for k in range(2):
        assert np.array_equal(split.train[k], train[k])
        assert np.array_equal(split.test[k], test[k])
        assert split.train_labels[k].tolist() == train_labels[k]
        assert split.test_labels[k].tolist() == test_labels[k]
    assert split.label_kind == "number"
    assert split.names == ("east", "west")


@pytest.mark.parametrize(
    ("change", "what", "expected", "got"),
    [
        ({"datasets": []}, "datasets", "one matrix per participant", "none"),
        ({"datasets": [np.zeros((3, 2)), np.zeros((3, 4))]}, "datasets, test and public", "one width", "[2, 4]"),
        ({"datasets": [np.zeros((3, 2)), np.zeros(3)]}, "datasets[1]", "a matrix", "shape (3,)"),
        ({"datasets": [np.zeros((3, 2)), np.zeros((1, 2))]}, "the rows of participant 2", "at least 2", "1"),
        ({"labels": [[0, 1, 0]]}, "labels", "each of the 2 participants", "1 entries"),
        ({"labels": [[0, 1, 0], [0]]}, "labels[1]", "each of the 3 rows", "shape (1,)"),
        ({"test": [np.zeros((1, 2))]}, "test", "each of the 2 participants", "1 entries"),
        ({"test_labels": [[0], [1]]}, "test_labels", "only there", "given"),
        ({"test": [np.zeros((1, 2))] * 2, "labels": [[0, 1, 0]] * 2}, "test_labels", "both given", "left out"),
        ({"public": np.zeros((3, 3))}, "datasets, test and public", "one width", "[2, 3]"),
        ({"names": ["east"]}, "names", "each of the 2 participants", "1 entries"),
        ({"test_share": 1.5}, "test_share", "less than 1", "1.5"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    change: dict[str, Any], what: str, expected: str, got: str, refused: Refused
) -> None:
    keywords = {"datasets": [np.zeros((3, 2))] * 2, "rng": np.random.default_rng(0), **change}
    refused(lambda: Partition.from_parts(**keywords), what, expected, got)
