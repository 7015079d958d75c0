"""Many reconstructions of the same queries, measured at once."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mooring.audit import BatchEvaluator
from mooring.metrics import Galleries


def test_draws_are_measured_each_by_itself(on_backend: Callable[[Any], Any]) -> None:
    queries = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    galleries = Galleries(np.array([0, 1, 2]), np.array([[0, 1], [0, 1], [2, 0]]), np.array([0, 1, 0]), 0, 0)
    units = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    evaluator = BatchEvaluator(on_backend(queries), on_backend(units), galleries, galleries)
    draws = on_backend(np.stack([queries, queries[[1, 0, 0]], queries[[0, 0, 2]]]))
    np.testing.assert_allclose(evaluator.match(draws), [1, 0, 2 / 3])
    np.testing.assert_allclose(evaluator.linkage_of(draws), [1, 0, 2 / 3])
    np.testing.assert_allclose(evaluator.error(draws)[:2], [0, np.sqrt(4.5 / 2.5)], atol=1e-15)
