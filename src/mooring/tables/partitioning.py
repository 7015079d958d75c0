"""Rows split among participants: training rows and test rows of each, and public rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.randomness import require_generator
from mooring.tables.records import LabelKind, Records, as_labels, as_rows, label_kind_of
from mooring.tables.sampling import make_strata, owners_of_groups, round_robin, share_of, split_stratified
from mooring.typing import Indices, Labels, Matrix

_FEWEST_HALVED = 2


@dataclass(frozen=True, eq=False)
class Partition:
    """The rows of every participant.

    Attributes
    ----------
    train, test : tuple of arrays of shape (n_k, n_features)
        One matrix per participant; a test matrix may be empty.
    train_labels, test_labels : tuple of arrays of shape (n_k,), optional
    public : array of shape (n, n_features), optional
        Rows that belong to no participant, for a public projection.
    public_labels : array of shape (n,), optional
    train_indices, test_indices : tuple of arrays of int
        Indices of these rows in the `Records`, or as `from_parts` counts them.
    public_indices : array of int
        Indices of the public rows.
    names : tuple of str
        Names of the participants.
    """

    train: tuple[Matrix, ...]
    train_labels: tuple[Labels, ...] | None
    test: tuple[Matrix, ...]
    test_labels: tuple[Labels, ...] | None
    public: Matrix | None
    public_labels: Labels | None
    train_indices: tuple[Indices, ...]
    test_indices: tuple[Indices, ...]
    public_indices: Indices
    names: tuple[str, ...]

    @property
    def n_participants(self) -> int:
        """Number of participants."""
        return len(self.train)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.train[0].shape[1])

    @property
    def label_kind(self) -> LabelKind:
        """The kind of the labels: "classes", "number", or "none"."""
        return label_kind_of(None if self.train_labels is None else self.train_labels[0])

    @classmethod
    def from_parts(
        cls,
        datasets: Sequence[npt.ArrayLike],
        labels: Sequence[npt.ArrayLike] | None = None,
        *,
        rng: np.random.Generator,
        test: Sequence[npt.ArrayLike] | None = None,
        test_labels: Sequence[npt.ArrayLike] | None = None,
        test_share: float = 0.25,
        public: npt.ArrayLike | None = None,
        names: Sequence[str] | None = None,
    ) -> Partition:
        """Make a partition from matrices that the participants already hold.

        Parameters
        ----------
        datasets : sequence of arrays of shape (n_k, n_features)
            One per participant.
        labels : sequence of arrays of shape (n_k,), optional
            Integers are classes, floats are numbers.
        rng : numpy.random.Generator
            Chooses the test rows if none are given.
        test, test_labels : sequences of arrays, optional
            Test rows of each participant, and their labels. Without them, every participant's rows are split, class by
            class.
        test_share : float, default 0.25
            Share of a participant's rows to test on, if no test rows are given. Unless the share is zero, at least one row
            of each participant is a test row.
        public : array of shape (n, n_features), optional
            Rows that belong to no participant.
        names : sequence of str, optional
            Names of the participants.

        Notes
        -----
        Indices count all rows given, one matrix after the other: datasets, then test, then public.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> parts = Partition.from_parts([np.zeros((8, 2)), np.ones((4, 2))], [[0, 1] * 4, [0, 1] * 2], rng=rng)
        >>> [rows.shape[0] for rows in parts.train], [rows.shape[0] for rows in parts.test]
        ([6, 3], [2, 1])
        """
        require_generator(rng)
        p = len(datasets)
        _require(p > 0, "datasets", expected="one matrix per participant", got="none", cure="Give at least one.")
        for what, entries in (("test", test), ("names", names)):
            _require_one_each(what, entries, p)
        _require(
            (test_labels is not None) == (test is not None and labels is not None),
            "test_labels",
            expected="given where labels and test are both given, and only there",
            got="given" if test_labels is not None else "left out",
            cure="Label both training and test rows, or neither. Without test rows, leave test_labels out.",
        )
        rows = [as_rows(f"datasets[{k}]", part) for k, part in enumerate(datasets)]
        test_rows = [as_rows(f"test[{k}]", part, may_be_empty=True) for k, part in enumerate(test or ())]
        everything = [*rows, *test_rows, *([] if public is None else [as_rows("public", public)])]
        widths = sorted({part.shape[1] for part in everything})
        _require(
            len(widths) == 1,
            "datasets, test and public",
            expected="matrices of one width",
            got=f"widths {widths}",
            cure="Give all participants the same features, in the same order.",
        )
        ends = np.cumsum([part.shape[0] for part in everything])
        numbers = [np.arange(end - part.shape[0], end) for part, end in zip(everything, ends, strict=True)]
        coded = _join_labels([("labels", labels, rows), ("test_labels", test_labels, test_rows)])
        if test is None:
            _require_share("test_share", test_share)
            strata = make_strata(coded, int(ends[p - 1]))
            train_indices, test_indices = _split_each(numbers[:p], strata, test_share, rng)
        else:
            train_indices, test_indices = tuple(numbers[:p]), tuple(numbers[p : 2 * p])
        return _assemble(
            np.concatenate(everything),
            coded,
            train=train_indices,
            test=test_indices,
            public=None if public is None else numbers[-1],
            names=_default_names(p) if names is None else tuple(names),
        )

    def halves(
        self, *, rng: np.random.Generator, groups: npt.NDArray[np.int64] | None = None
    ) -> tuple[Partition, Partition]:
        """Split every participant's rows, class by class, into two partitions; both keep all public rows.

        `groups` holds the person of each record. If it is given, all rows of one person go to the same half.
        """
        require_generator(rng)
        parts, p = (*self.train_indices, *self.test_indices), self.n_participants
        rows = np.concatenate(parts)
        part = np.repeat(np.arange(2 * p), [indices.size for indices in parts])
        labels = None if self.train_labels is None else np.concatenate([*self.train_labels, *(self.test_labels or ())])
        _, first, unit = np.unique(rows if groups is None else groups[rows], return_index=True, return_inverse=True)
        order = np.lexsort((rng.random(first.size), make_strata(labels, rows.size)[first], part[first]))
        side = np.empty(first.size, dtype=np.int64)
        side[order] = np.arange(first.size) % 2
        first_half = np.split(side[unit] == 0, np.cumsum([indices.size for indices in parts])[:-1])
        fewest = min(int(min(mask.sum(), mask.size - mask.sum())) for mask in first_half[:p])
        _require(
            fewest >= _FEWEST_HALVED,
            "a participant's rows to train on",
            expected=f"at least {2 * _FEWEST_HALVED}{'' if groups is None else ' of several persons'}, enough to halve",
            got=f"{fewest} in one half",
            cure="Give this participant more rows, or leave it out. 'mooring audit' takes any number of rows.",
        )
        return self._take(first_half), self._take([~mask for mask in first_half])

    def _take(self, masks: Sequence[npt.NDArray[np.bool_]]) -> Partition:
        """Return the partition with some rows only; `masks` has one per training matrix, then one per test matrix."""
        p, taken = self.n_participants, dict[str, Any]()
        for side, side_masks in (("train", masks[:p]), ("test", masks[p:])):
            for name in (side, f"{side}_labels", f"{side}_indices"):
                arrays = getattr(self, name)
                taken[name] = arrays and tuple(array[mask] for array, mask in zip(arrays, side_masks, strict=True))
        return replace(self, **taken)


def partition(
    records: Records,
    *,
    n_participants: int,
    rng: np.random.Generator,
    rows_each: int | None = None,
    test_share: float = 0.25,
    public_share: float = 0.0,
    by_group: bool = False,
) -> Partition:
    """Split rows among participants.

    Parameters
    ----------
    records : Records
        The rows to split.
    n_participants : int
        Number of participants.
    rng : numpy.random.Generator
        Chooses the rows of each participant.
    rows_each : int, optional
        Largest number of training rows per participant, chosen class by class; no participant receives the rest.
    test_share : float, default 0.25
        Share of the rows to test on; each participant gets some of them.
    public_share : float, default 0
        Share of the rows to make public.
    by_group : bool, default False
        Whether all rows of a group go to one participant.

    Notes
    -----
    Without `by_group`, test rows are taken out first, then public rows, and the rest is split. If labels are classes, all
    rows are split class by class, so that the participants' class counts differ by one row at most.

    With `by_group`, if there are as many groups as participants, each participant gets one group, in the order of
    `group_names`, and public rows come from all groups. Otherwise the public rows are whole groups, and the other groups are
    assigned in order of size, the largest first, each to the participant that has the fewest rows so far. Each participant's
    rows are then split into training and test rows.

    Examples
    --------
    >>> records = Records(rows=np.arange(24.0).reshape(12, 2), labels=[0, 1] * 6)
    >>> parts = partition(records, n_participants=2, rng=np.random.default_rng(0), test_share=1 / 3)
    >>> [np.bincount(labels).tolist() for labels in parts.train_labels]
    [[2, 2], [2, 2]]
    """
    require_generator(rng)
    _check_request(records, n_participants, rows_each, test_share, public_share)
    strata = make_strata(records.labels, records.n_rows)
    n_public = share_of(public_share, records.n_rows)
    names = _default_names(n_participants)
    if by_group:
        _require(
            records.groups is not None,
            "by_group",
            expected="left out for records without groups",
            got="True",
            cure="Name the column of the groups with group_by when you read the file.",
        )
        assert records.groups is not None
        owner, public = owners_of_groups(records.groups, strata, n_participants, n_public, rng=rng)
        owned = [np.flatnonzero(owner == k) for k in range(n_participants)]
        train, test = _split_each(owned, strata, test_share, rng)
        if rows_each is not None:
            train = tuple(split_stratified(rows, strata, min(rows_each, rows.size), rng=rng)[0] for rows in train)
        present = np.unique(records.groups)
        if records.group_names and present.size == n_participants:
            names = tuple(records.group_names[k] for k in present)
    else:
        n_test = share_of(test_share, records.n_rows)
        if test_share > 0:
            _require_enough("test rows", n_test, n_participants, "Raise test_share, or use more rows.")
        held_out, rest = split_stratified(np.arange(records.n_rows), strata, n_test, rng=rng)
        public, rest = split_stratified(rest, strata, min(n_public, rest.size), rng=rng)
        _require_enough("rows to train on", rest.size, n_participants, "Lower test_share or public_share.")
        if rows_each is not None:
            rest, _ = split_stratified(rest, strata, min(rows_each * n_participants, rest.size), rng=rng)
        train = round_robin(rest, strata, n_participants, rng=rng)
        test = round_robin(held_out, strata, n_participants, rng=rng)
    return _assemble(
        records.rows, records.labels, train=train, test=test, public=public if n_public else None, names=names
    )


def _split_each(
    owned: Sequence[Indices], strata: Indices, test_share: float, rng: np.random.Generator
) -> tuple[tuple[Indices, ...], tuple[Indices, ...]]:
    """Return each participant's training rows and test rows: at least one of each, or no test rows if the share is zero."""
    train, test = [], []
    needed = 2 if test_share > 0 else 1
    for k, rows in enumerate(owned):
        _require(
            rows.size >= needed,
            f"the rows of participant {k + 1}",
            expected=f"at least {needed}",
            got=str(rows.size),
            cure="Give this participant more rows, leave it out, or lower public_share.",
        )
        n_test = min(max(share_of(test_share, rows.size), 1), rows.size - 1) if test_share > 0 else 0
        out, rest = split_stratified(rows, strata, n_test, rng=rng)
        train.append(rest)
        test.append(out)
    return tuple(train), tuple(test)


def _assemble(
    rows: Matrix,
    labels: Labels | None,
    *,
    train: tuple[Indices, ...],
    test: tuple[Indices, ...],
    public: Indices | None,
    names: tuple[str, ...],
) -> Partition:
    return Partition(
        train=tuple(rows[indices] for indices in train),
        train_labels=None if labels is None else tuple(labels[indices] for indices in train),
        test=tuple(rows[indices] for indices in test),
        test_labels=None if labels is None else tuple(labels[indices] for indices in test),
        public=None if public is None else rows[public],
        public_labels=None if public is None or labels is None or public.max() >= labels.size else labels[public],
        train_indices=train,
        test_indices=test,
        public_indices=np.zeros(0, dtype=np.int64) if public is None else public,
        names=names,
    )


def _default_names(n_participants: int) -> tuple[str, ...]:
    return tuple(f"participant {k + 1}" for k in range(n_participants))


def _join_labels(sides: Sequence[tuple[str, Sequence[npt.ArrayLike] | None, list[Matrix]]]) -> Labels | None:
    """Concatenate all labels: they are numbers if any part has numbers, and otherwise classes; None without labels."""
    coded: list[Labels] = []
    for what, labels, rows in sides:
        if labels is not None:
            _require_one_each(what, labels, len(rows))
            coded += [
                as_labels(f"{what}[{k}]", values, n_rows=part.shape[0])
                for k, (values, part) in enumerate(zip(labels, rows, strict=True))
            ]
    if any(part.dtype == np.float64 for part in coded):
        return np.concatenate([part.astype(np.float64) for part in coded])
    return np.concatenate([part.astype(np.int64) for part in coded]) if coded else None


def _check_request(
    records: Records, n_participants: int, rows_each: int | None, test_share: float, public_share: float
) -> None:
    for what, count, cure in (
        ("n_participants", n_participants, "A collaboration has 2 or more."),
        ("rows_each", rows_each, "Leave it out to use all rows."),
    ):
        _require(count is None or count >= 1, what, expected="at least 1", got=str(count), cure=cure)
    _require_share("test_share", test_share)
    _require_share("public_share", public_share)
    together = test_share + public_share
    _require(
        together < 1.0,
        "test_share and public_share",
        expected="less than 1 together",
        got=str(together),
        cure="Leave rows to train on.",
    )
    _require_enough("rows", records.n_rows, n_participants, "Use more rows, or fewer participants.")


def _require_share(what: str, share: float) -> None:
    in_range = 0.0 <= share < 1.0
    _require(in_range, what, expected="at least 0 and less than 1", got=str(share), cure="0.25 is a quarter.")


def _require_enough(what: str, n_rows: int, n_participants: int, cure: str) -> None:
    expected = f"at least one for each of the {n_participants} participants"
    _require(n_rows >= n_participants, what, expected=expected, got=str(n_rows), cure=cure)


def _require_one_each(what: str, entries: Sequence[object] | None, n_participants: int) -> None:
    _require(
        entries is None or len(entries) == n_participants,
        what,
        expected=f"one entry for each of the {n_participants} participants",
        got=f"{0 if entries is None else len(entries)} entries",
        cure="Give one entry per participant, in the same order everywhere.",
    )


def _require(met: bool, what: str, *, expected: str, got: str, cure: str) -> None:
    if not met:
        raise InputError(what, expected=expected, got=got, cure=cure)
