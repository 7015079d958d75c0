"""How a study's budget is split among its columns, in reals and in integers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mooring.errors import InputError
from mooring.mechanisms.sums.general.survival import Survival
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.tables.schema import Column, Label, Schema

COLUMNS = (
    Column("age", "integer", 18, 90),
    Column("income", "number", 0, 1e5, missing="indicate"),
    Column("marker", "number", 0.5, 400),
    Column("ward", "category", categories=("a", "b", "c"), missing="indicate"),
    Column("sex", "category", categories=("f", "m"), missing="indicate"),
    Column("country", "category", categories=("here",)),
    Column("died", "category", categories=("no", "yes")),
)
LABEL = Label("ill", "classes", ("no", "yes"))
SURVIVAL = Survival("age", "died", "yes", (0.0, 30.0, 60.0))
N_LEVELS = {"age": 8, "income": 9, "marker": 8, "ward": 4, "sex": 3, "country": 0, "died": 2}  # one level tells nothing


@pytest.mark.parametrize(
    ("label", "survival", "outcomes"),
    [
        (Label(), None, {}),
        (LABEL, None, {"ill": 0.2}),
        (Label(), SURVIVAL, {"age × died": 0.2}),
        (LABEL, SURVIVAL, {"ill": 0.15, "age × died": 0.15}),
    ],
)
def test_outcomes_have_fixed_shares_and_others_share_the_rest_by_the_root_of_their_levels(
    label: Label, survival: Survival | None, outcomes: dict[str, float]
) -> None:
    workload = make_workload(Schema(COLUMNS, label), survival=survival)
    names = [levels.name for levels in workload.columns]
    assert workload.outcomes == tuple(outcomes)
    others = [name for name in names if name not in outcomes]
    roots = np.sqrt([N_LEVELS[name] for name in others])
    rest = (0.85 - sum(outcomes.values())) * roots / roots.sum()
    expected = dict(zip(others, rest, strict=True)) | outcomes
    assert workload.shares == pytest.approx([expected[name] for name in names])
    assert (workload.constant_integer / 2**17) ** 2 == pytest.approx(0.15, rel=1e-4)
    np.testing.assert_allclose(np.array(workload.integer_shares) / 2**34, workload.shares, rtol=1e-2)
    for index, (levels, height) in enumerate(zip(workload.columns, workload.integer_bubbles, strict=True)):
        has_bubble = levels.name in ("age", "income", "marker")
        assert (index in workload.bubbles) == has_bubble
        assert (height / 2**17) ** 2 == pytest.approx(0.02 * workload.shares[index] * has_bubble, rel=1e-3)
    constant, shares = workload.constant_integer**2 / 2**34, np.array(workload.integer_shares) / 2**34
    bubbles = sum((height / 2**17) ** 2 for height in workload.integer_bubbles)
    squared = (constant + shares.sum()) ** 2 - (shares**2).sum() + 2 * constant * bubbles
    assert workload.sensitivity_squared == pytest.approx(squared, rel=1e-9)
    assert workload.noise_variance(3.0) == pytest.approx(9 * workload.sensitivity_squared)


def test_a_study_of_outcomes_alone_splits_all_among_them() -> None:
    for survival, shares in ((None, (0.85,)), (SURVIVAL, (0.425, 0.425))):
        columns = (COLUMNS[0], COLUMNS[6]) if survival else ()
        workload = make_workload(Schema((*columns, COLUMNS[5]), LABEL), survival=survival)
        assert workload.shares == pytest.approx((0.0, *shares))


def test_columns_that_a_regression_can_name_are_told_apart_from_its_outcomes() -> None:
    workload = make_workload(Schema(COLUMNS, LABEL), log_scaled=frozenset({"income", "marker"}), survival=SURVIVAL)
    regressed = {levels.name for levels in workload.regressed}
    assert regressed == {"marker", "ward", "sex", "country", "ill"}
    assert {levels.name for levels in workload.regression_outcomes} == {"marker", "sex", "ill"}
    plain = make_workload(Schema(COLUMNS))
    assert {levels.name for levels in plain.regression_outcomes} == {"age", "income", "marker", "sex", "died"}
    for names, has in (
        (("ward", "country"), False),
        (("age",), False),
        (("ward", "age"), True),
        (("sex", "died"), True),
    ):
        assert plain.select(names).has_regressions == has


@pytest.mark.parametrize("weight", [1, 3, 10])
def test_a_larger_weight_of_lines_leaves_less_noise_on_means(weight: int) -> None:
    """In squares: the linear contrast of a number has so many times the weight of its others, which are orthogonal."""
    workload = make_workload(Schema(COLUMNS[:2]), linear_weight=weight)
    for index, n_nodes in ((0, 8), (1, 8)):
        contrasts = workload.columns[index].contrasts[:, :n_nodes]
        products = contrasts @ contrasts.T
        lengths = np.diag(products)[: n_nodes - 1]
        assert lengths == pytest.approx([weight] + [1] * (n_nodes - 2))
        np.testing.assert_allclose(products[: n_nodes - 1, : n_nodes - 1], np.diag(lengths), atol=1e-9)
        np.testing.assert_allclose(contrasts[0] / contrasts[0, -1], np.linspace(-1, 1, n_nodes), atol=1e-12)
        np.testing.assert_allclose(contrasts[: n_nodes - 1].sum(axis=1), 0, atol=1e-12)
    missing = workload.columns[1].contrasts[-1]
    np.testing.assert_allclose(missing, np.array([1.0] * 8 + [-8.0]) / math.sqrt(72))


@pytest.mark.parametrize(
    ("n_intervals", "missing", "dtype"),
    [
        (3, "refuse", np.int16),
        (16_382, "refuse", np.int16),
        (16_382, "indicate", np.int16),
        (16_383, "refuse", np.int32),
    ],
)
def test_places_are_kept_in_the_smallest_type_that_holds_their_differences(
    n_intervals: int, missing: Any, dtype: type
) -> None:
    """Survival has two levels an interval, one beyond and one if missing; a place may be one level below the first."""
    survival = Survival("days", "died", "yes", tuple(float(k) for k in range(n_intervals + 1)))
    columns = (Column("days", "number", 0, 20_000), replace(COLUMNS[6], missing=missing), COLUMNS[1])
    assert make_workload(Schema(columns), survival=survival).units.dtype == dtype


def test_an_unknown_column_is_refused_with_the_columns_there_are() -> None:
    with pytest.raises(InputError) as caught:
        make_workload(Schema(COLUMNS)).column("height")
    assert caught.value.what == "column"
