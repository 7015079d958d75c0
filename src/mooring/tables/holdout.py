"""A column taken out of the rows: not shared, but perhaps to be inferred from what is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.tables.records import Records


def hold_out(records: Records, column: str) -> tuple[Records, npt.NDArray[Any], Literal["category", "number"]]:
    """Take a column of the table out of the rows.

    Parameters
    ----------
    records : Records
    column : str
        A column's name as in the file; a column of words may have become several features, and all of them go. A further
        column of a file with images is found among the records' attributes.

    Returns
    -------
    the records without it, its values one a row, and whether they are categories or numbers

    Examples
    --------
    >>> rows = np.array([[0.5, 1.0, 0.0], [0.1, 0.0, 1.0]])
    >>> records = Records(rows=rows, feature_names=("age", "smoker=no", "smoker=yes"))
    >>> rest, values, kind = hold_out(records, "smoker")
    >>> rest.feature_names, values.tolist(), kind
    (('age',), [0, 1], 'category')
    """
    if column in records.attributes:
        values = np.asarray(records.attributes[column])
        _, codes = np.unique(values, return_inverse=True)
        return records, codes, "category"
    own = [k for k, name in enumerate(records.feature_names) if name == column or name.startswith(f"{column}=")]
    if not own:
        raise InputError(
            "attribute",
            expected=f"one of the {len(records.feature_names)} columns of the table",
            got=repr(column),
            cure="Check the spelling; a column that was left out cannot be inferred.",
        )
    if len(own) == records.n_features:
        raise InputError(
            "attribute", expected="one column among others", got="the only one", cure="Share more columns."
        )
    rest = np.setdiff1d(np.arange(records.n_features), own)
    left = replace(
        records,
        rows=records.rows[:, rest],
        feature_names=tuple(records.feature_names[k] for k in rest),
        feature_kinds=tuple(records.feature_kinds[k] for k in rest),
        centres=None if records.centres is None else records.centres[rest],
        scales=None if records.scales is None else records.scales[rest],
    )
    values = records.rows[:, own]
    if len(own) > 1:
        return left, values.argmax(axis=1), "category"
    if np.unique(values).size <= 5:
        return left, np.unique(values, return_inverse=True)[1].ravel(), "category"
    return left, values[:, 0], "number"
