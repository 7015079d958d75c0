"""Denoising and aligning in turns rebuilds rows that neither does alone; moments expects about the error that it makes."""

from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from mooring.attacks import CollusionView, DoesNotApply, Effort, PublicRows, run
from mooring.attacks.refine import _GRID_LEAST
from mooring.attacks.view import Codes
from mooring.audit import RowSimulation, SimulationSettings, simulate
from mooring.metrics import centred_error
from mooring.tables import Column, Schema, encode_table
from mooring.typing import Matrix

CATEGORIES = ("a", "b", "c")
SCHEMA = Schema(
    (
        *(Column(f"kind {k}", "category", categories=CATEGORIES) for k in range(4)),
        *(Column(f"count {k}", "integer", 0, 12) for k in range(2)),
    )
)


def draw_table(n: int, rng: np.random.Generator) -> Matrix:
    """Rows of four kinds, each with columns that depend on its kind."""
    kind = rng.integers(0, 4, n)
    columns = {
        f"kind {k}": [
            CATEGORIES[(kind_of_row + k) % 3] if keep else CATEGORIES[other]
            for kind_of_row, keep, other in zip(kind, rng.random(n) < 0.7, rng.integers(0, 3, n), strict=True)
        ]
        for k in range(4)
    }
    columns |= {
        f"count {k}": [int(count) for count in rng.binomial(12, 0.2 + 0.2 * ((kind + k) % 4))] for k in range(2)
    }
    return encode_table(SCHEMA, pa.table(columns))


@cache
def tables(v: float, sigma: float = 0.0) -> RowSimulation:
    rng = np.random.default_rng(11)
    rows = [draw_table(80, rng) for _ in range(3)]
    labels = [np.zeros(80, dtype=int)] * 3
    settings = SimulationSettings(columns=SCHEMA.columns)
    method = "aa-i-gdp-both-noise" if sigma else "aa-i-gdp-anchor-noise"
    return simulate(
        rows,
        labels,
        method=method,
        anchor_noise_scale=v,
        data_noise_scale=sigma,
        rng=np.random.default_rng(2),
        settings=settings,
    )


def error_of(simulation: RowSimulation, view: CollusionView, attack: str, denoiser: str | None = None) -> float:
    rebuilt = run(attack, view, rng=np.random.default_rng(0), denoiser=denoiser)
    return float(centred_error(simulation.private_data[1], rebuilt.rows))


def test_rows_of_a_table_are_rebuilt_where_denoising_once_does_not() -> None:
    simulation = tables(0.15)
    view = simulation.view()
    once = min(error_of(simulation, view, name, "grid") for name in ("procrustes", "moments"))
    assert error_of(simulation, view, "refine") < 0.5 * once
    result = run("refine", view, rng=np.random.default_rng(0))
    assert result.row_error[0, 0] == pytest.approx(_GRID_LEAST**2)


def test_without_rounds_it_is_procrustes() -> None:
    simulation = tables(0.15)
    view = replace(simulation.view(), effort=Effort(refine_rounds=0))
    assert error_of(simulation, view, "refine") == pytest.approx(error_of(simulation, view, "procrustes"))


def test_private_data_noise_is_not_taken_for_an_error_of_the_map() -> None:
    simulation = tables(0.15, 0.3)
    view = simulation.view()
    assert error_of(simulation, view, "refine", "grid") < error_of(simulation, view, "procrustes", "grid")


WIDE = Schema(
    (
        *(Column(f"kind {k}", "category", categories=tuple("abcdefghij")) for k in range(5)),
        *(Column(f"count {k}", "integer", 0, 12) for k in range(2)),
    )
)


@cache
def wide_tables() -> RowSimulation:
    """Ten participants with 30 rows of 52 columns each: every row has a direction of its own."""
    rng, chances = np.random.default_rng(3), np.random.default_rng(1).dirichlet(np.full(10, 0.3), size=(5, 4))

    def draw() -> Matrix:
        kinds = rng.integers(0, 4, 30)
        columns = {f"kind {k}": ["abcdefghij"[rng.choice(10, p=chances[k, kind])] for kind in kinds] for k in range(5)}
        return encode_table(
            WIDE,
            pa.table(
                columns | {f"count {k}": rng.binomial(12, 0.2 + 0.2 * ((kinds + k) % 4)).tolist() for k in range(2)}
            ),
        )

    rows = [draw() for _ in range(10)]
    return simulate(
        rows,
        [np.zeros(30, dtype=int)] * 10,
        method="aa-i-gdp-anchor-noise",
        anchor_noise_scale=0.2,
        rng=np.random.default_rng(2),
        settings=SimulationSettings(columns=WIDE.columns),
    )


def test_maps_of_several_participants_are_refined_together() -> None:
    simulation = wide_tables()
    alone, together = (replace(simulation.view(), effort=Effort(refine_rows=most, refine_again=0)) for most in (0, 150))
    assert error_of(simulation, together, "refine") < 0.9 * error_of(simulation, alone, "refine")
    result = run("refine", together, rng=np.random.default_rng(0))
    assert sorted(result.others) == [2, 3, 4, 5]


def test_all_targets_have_the_maps_that_were_refined_together_for_the_first() -> None:
    simulation = tables(0.15)
    first, second = simulation.view(target=1), simulation.view(target=2)
    of_first = run("refine", first, rng=np.random.default_rng(0))
    of_second = run("refine", second, rng=np.random.default_rng(0))
    assert np.array_equal(of_first.others[2], of_second.rows)
    assert np.array_equal(of_second.others[1], of_first.rows)


def test_maps_refined_for_other_uploads_or_effort_are_not_used() -> None:
    simulation = tables(0.15)
    view = simulation.view()
    before = run("refine", view, rng=np.random.default_rng(0)).rows
    rng = np.random.default_rng(1)
    other = replace(
        view.uploads[2],
        anchor_representation=view.uploads[2].anchor_representation + rng.normal(0, 0.3, view.anchor.shape),
    )
    changed = replace(view, uploads=(*view.uploads[:2], other))
    assert not np.array_equal(run("refine", changed, rng=rng).rows, before)
    assert not np.array_equal(run("refine", replace(view, effort=Effort(refine_rounds=1)), rng=rng).rows, before)


def test_rows_that_were_read_wrongly_are_read_again_with_the_map_of_all_others() -> None:
    simulation = wide_tables()
    once, again = (replace(simulation.view(), effort=Effort(refine_rows=0, refine_again=n)) for n in (0, 3))
    assert error_of(simulation, again, "refine") < 0.9 * error_of(simulation, once, "refine")


def test_answers_of_several_models_of_the_columns_are_averaged() -> None:
    simulation = tables(0.15, 0.5)
    learner, several = (replace(simulation.view(), effort=Effort(grid_models=n)) for n in (1, 6))
    assert error_of(simulation, several, "procrustes", "grid") < error_of(simulation, learner, "procrustes", "grid")


def images(n_known: int, n: int) -> tuple[RowSimulation, CollusionView]:
    """Rows on a curved surface in ten dimensions, of which the attacker knows many that are public."""
    rng = np.random.default_rng(5)
    mix = rng.standard_normal((8, 10))

    def draw(n: int) -> Matrix:
        u = rng.uniform(-2, 2, (n, 2))
        parts = [np.cos(u), np.sin(u), u, u**2 / 2]
        return np.hstack(parts) @ mix + 0.1 * rng.standard_normal((n, 10))

    public = draw(n_known)
    rows, labels = [draw(n) for _ in range(3)], [np.zeros(n, dtype=int)] * 3
    known = PublicRows(public, public, np.zeros(n_known, dtype=int))
    settings = SimulationSettings(public_rows=known)
    simulation = simulate(
        rows,
        labels,
        method="aa-i-gdp-anchor-noise",
        anchor_noise_scale=0.4,
        rng=np.random.default_rng(3),
        settings=settings,
    )
    return simulation, simulation.view()


def test_rows_of_other_kinds_are_rebuilt_more_closely_than_by_moments() -> None:
    simulation, view = images(400, 40)
    assert error_of(simulation, view, "refine") < 0.9 * error_of(simulation, view, "moments")


def test_moments_expects_the_error_that_few_rows_of_a_class_leave() -> None:
    """Four rows have directions of no variance, which do not determine the map."""
    rng, n_classes, h = np.random.default_rng(5), 6, 12
    means, shapes = 2 * rng.standard_normal((n_classes, h)), rng.standard_normal((n_classes, h, h)) / h**0.5

    def draw(n_each: int) -> tuple[Matrix, Codes]:
        codes = np.repeat(np.arange(n_classes), n_each)
        return means[codes] + np.einsum("ni,nij->nj", rng.standard_normal((codes.size, h)), shapes[codes]), codes

    public, public_labels = draw(100)
    rows, labels = zip(*(draw(4) for _ in range(3)), strict=True)
    simulation = simulate(
        rows,
        labels,
        method="aa-i-gdp-anchor-noise",
        anchor_noise_scale=0.3,
        rng=np.random.default_rng(3),
        settings=SimulationSettings(public_rows=PublicRows(public, public, public_labels)),
    )
    result = run("moments", simulation.view(), rng=rng)
    expected = float(np.sqrt(np.trace(result.row_error) / h))
    true = float(np.sqrt(np.mean((result.rows - simulation.private_data[1]) ** 2)))
    assert 0.7 * true < expected < 1.4 * true


@pytest.mark.parametrize("method", ["aa-i-gdp", "c-gdp"])
def test_a_map_that_is_known_exactly_is_not_refined(method: str) -> None:
    rng = np.random.default_rng(0)
    simulation = simulate([rng.standard_normal((20, 3)) for _ in range(3)], method=method, rng=rng)
    with pytest.raises(DoesNotApply):
        run("refine", simulation.view(), rng=rng)
