"""Checks of what is asked of a deal, before any row is moved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.tables.records import Labels, Records, as_labels
from mooring.typing import Indices, Matrix


def check_request(
    records: Records, n_participants: int, rows_each: int | None, test_share: float, public_share: float
) -> None:
    """Refuse numbers and shares that cannot be dealt."""
    if n_participants < 1:
        raise InputError(
            "n_participants", expected="at least 1", got=str(n_participants), cure="2 make a collaboration."
        )
    if rows_each is not None and rows_each < 1:
        raise InputError("rows_each", expected="at least 1", got=str(rows_each), cure="Leave it out to deal all rows.")
    require_share("test_share", test_share)
    require_share("public_share", public_share)
    if test_share + public_share >= 1.0:
        raise InputError(
            "test_share and public_share",
            expected="less than 1 together",
            got=str(test_share + public_share),
            cure="Leave rows to train on.",
        )
    if n_participants > records.n_rows:
        raise too_few("rows", records.n_rows, n_participants, "Use more rows, or fewer participants.")


def groups_of(records: Records) -> Indices:
    """The groups of the rows, or a refusal where there are none."""
    if records.groups is None:
        raise InputError(
            "by_group",
            expected="left out for records without groups",
            got="True",
            cure="Name the column of the groups with group_by when you read the file.",
        )
    return records.groups


def labels_of_parts(parts: Sequence[tuple[str, Sequence[npt.ArrayLike]]], sizes: Sequence[Sequence[int]]) -> Labels:
    """All labels one after the other: numbers if any part's are, classes otherwise."""
    coded: list[Labels] = []
    for (what, labels), n_rows in zip(parts, sizes, strict=True):
        require_count(what, len(labels), len(n_rows))
        coded += [as_labels(f"{what}[{k}]", x, n_rows=n) for k, (x, n) in enumerate(zip(labels, n_rows, strict=True))]
    if any(part.dtype == np.float64 for part in coded):
        return np.concatenate([part.astype(np.float64) for part in coded])
    return np.concatenate([part.astype(np.int64) for part in coded])


def require_share(what: str, share: float) -> None:
    """Refuse a share outside [0, 1)."""
    if not 0.0 <= share < 1.0:
        raise InputError(what, expected="at least 0 and less than 1", got=str(share), cure="0.25 is a quarter.")


def require_count(what: str, got: int, n_participants: int) -> None:
    """Refuse a list without one entry a participant."""
    if got != n_participants:
        raise InputError(
            what,
            expected=f"one entry for each of the {n_participants} participants",
            got=f"{got} entries",
            cure="Keep the participants in one order everywhere.",
        )


def require_one_width(parts: Sequence[Matrix]) -> None:
    """Refuse matrices of different widths."""
    widths = {part.shape[1] for part in parts}
    if len(widths) > 1:
        raise InputError(
            "datasets, test and public",
            expected="matrices of one width",
            got=f"widths {sorted(widths)}",
            cure="All participants must have the same features, in one order.",
        )


def too_few(rows: str, got: int, n_participants: int, cure: str) -> InputError:
    """The error for fewer rows than participants."""
    return InputError(
        rows, expected=f"at least one for each of the {n_participants} participants", got=str(got), cure=cure
    )
