"""The rival of secure sums: DP-EBM, an explainable boosting machine with differential privacy (Nori et al. 2021).

It is trained on all participants' pooled rows, as somebody trusted with them would, on the same splits and with the same ε
and δ for adding or removing a row; secure sums trust nobody, and their noise allows for colluders. Its features are the
declared columns: numbers on the scale that the study declares, and words. Ranges are public, so that nothing but the
classifier itself looks at rows. interpret-core is optional; without it the study says that the rival is absent.
"""

from __future__ import annotations

import math
import warnings
from importlib.util import find_spec

import numpy as np

from mooring.mechanisms.sums import TableFeatures
from mooring.typing import Matrix
from mooring_studies.comparison.results import Row
from mooring_studies.tabular.scores import ranked, scored
from mooring_studies.tabular.sum_line import SumRows

METHOD = "dp-ebm"
_DECADES = 1e4  # the ratio of the ends of a logarithmic scale, as of `TableFeatures`


def is_installed() -> bool:
    """Return whether interpret-core is installed."""
    return find_spec("interpret") is not None


def has_rival(rows: SumRows) -> bool:
    """Return whether DP-EBM can be trained on a case: columns of a table, two classes, and rows as the unit of privacy."""
    labels = rows.rows.train_labels
    is_table = isinstance(rows.feature_map, TableFeatures) and rows.rows_of_person is None
    return is_installed() and is_table and labels is not None and all(bool(part.max() <= 1) for part in labels)


def measure_boosting(case_rows: SumRows, epsilon: float, *, delta: float, seed: int) -> Row:
    """Train DP-EBM on everybody's rows, and score it on test rows."""
    from interpret.privacy import DPExplainableBoostingClassifier

    rows, features = case_rows.rows, case_rows.feature_map
    assert isinstance(features, TableFeatures)
    assert rows.train_labels is not None
    assert rows.test_labels is not None
    trained, kinds = decode_columns(np.concatenate(rows.train), features)
    bounds = {k: (-1.0, 1.0) for k, kind in enumerate(kinds) if kind == "continuous"}
    model = DPExplainableBoostingClassifier(
        feature_types=kinds, epsilon=epsilon, delta=delta, privacy_bounds=bounds, random_state=seed, n_jobs=1
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(trained, np.concatenate(rows.train_labels).astype(np.int64))
        chances = model.predict_proba(decode_columns(np.concatenate(rows.test), features)[0])[:, 1]
    predicted = (chances > 0.5).astype(np.int64)
    columns = scored(rows.test_labels, clean=predicted, noisy=predicted) | ranked(rows.test_labels, chances)
    return {"epsilon": epsilon, "n_rows": len(trained)} | columns


def decode_columns(rows: Matrix, features: TableFeatures) -> tuple[Matrix, list[str]]:
    """Return one column of numbers per declared column, from encoded rows, and what each is to DP-EBM.

    A category is the index of its word, −1 for none. Missing numbers are marked in a further column where they are
    indicated.
    """
    columns, kinds, place = list[Matrix](), list[str](), 0
    for column in features.schema.columns:
        encoded = rows[:, place : place + column.width]
        place += column.width
        if column.kind == "category":
            words = encoded[:, : len(column.categories)]
            columns.append(np.where(words.any(axis=1), words.argmax(axis=1), -1))
            kinds.append("nominal")
            continue
        number = encoded[:, 0]
        if column.name in features.log_scaled:
            number = np.log1p((number + 1) / 2 * (_DECADES - 1)) * (2 / math.log(_DECADES)) - 1
        columns.append(np.clip(number, -1.0, 1.0))
        kinds.append("continuous")
        if column.missing == "indicate":
            columns.append(encoded[:, -1])
            kinds.append("nominal")
    return np.column_stack(columns).astype(np.float64), kinds
