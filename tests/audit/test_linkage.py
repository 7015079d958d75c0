"""Many reconstructions of the same queries, measured at once; and members among rows that nobody uploaded."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mooring.audit import BatchEvaluator, EvaluationSpec, simulate
from mooring.audit.identification import make_membership_test
from mooring.metrics import Galleries
from mooring.tables import Partition
from tests.auditing import audited, class_rows


def test_draws_are_measured_each_by_itself(on_backend: Callable[[Any], Any]) -> None:
    queries = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    galleries = Galleries(np.array([0, 1, 2]), np.array([[0, 1], [0, 1], [2, 0]]), np.array([0, 1, 0]), 0, 0)
    units = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    evaluator = BatchEvaluator(on_backend(queries), on_backend(units), galleries, galleries)
    draws = on_backend(np.stack([queries, queries[[1, 0, 0]], queries[[0, 0, 2]]]))
    np.testing.assert_allclose(evaluator.match(draws), [1, 0, 2 / 3])
    np.testing.assert_allclose(evaluator.linkage_of(draws), [1, 0, 2 / 3])
    np.testing.assert_allclose(evaluator.error(draws)[:2], [0, np.sqrt(4.5 / 2.5)], atol=1e-15)


@pytest.mark.parametrize(("scale", "auc", "rate"), [(0.01, (0.99, 1.0), (0.9, 1.0)), (300.0, (0.35, 0.65), (0.0, 0.1))])
def test_members_are_told_by_what_the_noise_leaves(scale: float, auc: Any, rate: Any) -> None:
    method = {"methods": ["aa-i-gdp-data-noise"], "data_noise_scales": [scale], "attacks": ["known-anchor"]}
    one = audited(*class_rows(4, 100, 6), **method).points[0]
    found = {name: one.worst(f"{name}membership_at_1_percent")[1] for name in ("", "outlying_")}
    area = one.worst("membership_auc")[1]
    assert auc[0] <= area.value <= auc[1]
    assert 0.3 < area.control < 0.7  # an upload of the colluder's rows
    assert (found[""].n, found["outlying_"].n, found[""].chance) == (150, 15, 0.01)  # two targets
    assert all(rate[0] <= one.value <= rate[1] for one in found.values())
    epsilon = one.worst("empirical_epsilon")[1].value
    assert epsilon > 1 if scale < 1 else epsilon == 0
    (told,) = [outcome for outcome in one.outcomes if outcome.curve]
    assert (told.attack, told.curve[-1]) == ("known-anchor", (1.0, pytest.approx(1.0, abs=0.05)))


@pytest.mark.parametrize("numbers", [False, True])
def test_rows_that_nobody_uploaded_are_neither_the_colluders_nor_of_other_classes(numbers: bool) -> None:
    rows, labels = class_rows(4, 40, 3)
    known = [part + np.linspace(0, 0.4, part.size) for part in labels] if numbers else labels
    parts = Partition.from_parts(rows, known, rng=np.random.default_rng(0))
    parts = replace(parts, test=(parts.test[0] + 1e6, *parts.test[1:]))
    simulation = simulate(parts.train, parts.train_labels, method="aa-i-gdp", rng=np.random.default_rng(0))
    views = [simulation.view((0,), target) for target in (1, 2)]
    spec = EvaluationSpec(others=(np.full((4, 3), 7.0), np.array([0, 0, 99, 99]) + 0.1 * numbers))
    test = make_membership_test(simulation, views, parts, spec, seed=0)
    assert test is not None
    assert all(np.abs(one.rows).max() < 1e5 for one in (*test.others, test.register))
    n_odd = sum(int((one.rows == 7).all(axis=1).sum()) for one in test.others)
    assert n_odd == (4 if numbers else 2)  # no class has the label 99; a number belongs to the highest group
    assert sum(one.codes.size for one in test.others) == 30 + n_odd
    assert test.outlying.sum() == 6
    none = replace(
        parts, test=tuple(part[:0] for part in parts.test), test_labels=tuple(part[:0] for part in parts.test_labels)
    )
    assert make_membership_test(simulation, views, none, EvaluationSpec(), seed=0) is None
