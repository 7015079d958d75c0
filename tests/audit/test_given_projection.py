"""An audit or a plan through a projection that is given, such as a study's."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from mooring import gaussian_projection, no_projection, public_svd_projection
from mooring.audit import RotationPoint, root_mean_square
from mooring.tables import Partition
from tests.auditing import audited, planned

POINT = RotationPoint("aa-i-gdp-data-noise", 2, 8, 0.0, 0.5)
F = gaussian_projection(4, 2, rng=np.random.default_rng(5))


def parts(n: int = 40, m: int = 4) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((n, m)) for _ in range(3)]


def test_a_projection_is_used_as_it_is() -> None:
    result = audited(parts(), projection=F, points=[POINT], attacks=["procrustes"])
    examples = result.points[0].examples
    rows = {name: np.asarray(values) for name, values in examples.rows.items()}
    assert np.allclose(F.encode(rows["projection only"]), F.encode(rows["original"]), atol=0.01)
    assert not np.allclose(rows["projection only"], rows["original"], atol=0.1)
    assert result.description.projection == "gaussian"


def test_a_projection_settles_the_number_of_components() -> None:
    result = audited(parts(), projection=F, methods=["aa-i-gdp"], attacks=["procrustes"])
    assert {point.point.n_components for point in result.points} == {2}


@pytest.mark.parametrize("other", [no_projection(4), gaussian_projection(5, 2, rng=np.random.default_rng(0))])
def test_a_projection_of_another_width_is_refused(other: Any, refused: Callable[..., None]) -> None:
    call = partial(audited, parts(), projection=other, points=[POINT], attacks=["procrustes"])
    refused(call, "projection", "from 4 features onto 2 components", "")


def test_an_absolute_scale_comes_back_as_it_was() -> None:
    partition = Partition.from_parts(parts(), rng=np.random.default_rng(0))
    level = 0.321 / root_mean_square(partition.train, F)
    point = RotationPoint("aa-i-gdp-data-noise", 2, 8, 0.0, level)
    result = audited(partition, projection=F, points=[point], attacks=["procrustes"])
    assert result.points[0].data_noise_scale == pytest.approx(0.321, abs=1e-12)


def test_one_noise_scale_hides_alike_with_any_projection_and_with_none() -> None:
    """σ = 0.5 on 400 rows of 12 independent numbers between −1 and 1; all 12 directions, or 6 of them.

    The attack by the known anchor is exact.
    """
    rng = np.random.default_rng(0)
    rows = [rng.uniform(-1, 1, (400, 12)) for _ in range(3)]
    made = [
        no_projection(12),
        gaussian_projection(12, 12, rng=rng),
        gaussian_projection(12, 6, rng=rng),
        public_svd_projection(rng.uniform(-1, 1, (400, 12)), 6, rng=rng),
    ]
    collected = []
    for projection in made:
        partition = Partition.from_parts(rows, rng=np.random.default_rng(0))
        level = 0.5 / root_mean_square(partition.train, projection)
        point = RotationPoint("aa-i-gdp-data-noise", projection.n_components, 48, 0.0, level)
        result = audited(partition, projection=projection, points=[point], attacks=["known-anchor"], targets=[1])
        collected.append(result.points[0].worst()[1])
    lows, highs = ([getattr(result.interval, end) for result in collected] for end in ("low", "high"))
    assert max(lows) < min(highs)
    assert all(result.value == pytest.approx(collected[0].value, abs=0.02) for result in collected)


def test_finished_points_of_another_projection_are_not_taken(tmp_path: object) -> None:
    options: dict[str, Any] = {"points": [POINT], "attacks": ["procrustes"], "folder": str(tmp_path)}
    projections = [gaussian_projection(4, 2, rng=np.random.default_rng(seed)) for seed in (1, 2)]
    results = [audited(parts(), projection=projection, **options) for projection in projections]
    assert results[0].points[0].worst() != results[1].points[0].worst()


def test_a_plan_keeps_to_a_given_projection_and_given_anchor_rows() -> None:
    options: dict[str, Any] = {"attacks": ["procrustes"], "targets": [1]}
    plan = planned(parts(), projection=F, n_anchor_rows=7, limit="mean error at least 0.1", **options)
    assert {
        (point.point.n_components, point.point.n_anchor_rows) for point in (*plan.tried.points, *plan.audit.points)
    } == {(2, 7)}
