from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from mooring_studies.comparison.curves import (
    crossing,
    crossings,
    fit,
    fit_together,
    shared_bands,
)
from mooring_studies.comparison.reading import ANCHOR, Study, column_of
from mooring_studies.comparison.results import COLUMNS, Results, read_results, write_results
from scipy.interpolate import LSQUnivariateSpline

from mooring.errors import StorageError
from tests.raising import raising


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def noisy(rng: np.random.Generator, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    x = rng.uniform(0.0, 50.0, n)
    return x, 0.1 + 0.3 * np.exp(-x / 8) + 0.01 * rng.standard_normal(n)


def explicit_fit(x: np.ndarray, y: np.ndarray, weights: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The paper's fit written out for one resample: repeated rows, an augmented least-squares problem, no shortcuts."""

    def basis(values: np.ndarray) -> np.ndarray:
        u = (values - x.min()) / (x.max() - x.min())
        return np.column_stack(
            [np.ones_like(u), u, u**2, u**3] + [np.clip(u - k / 6, 0, None) ** 3 for k in range(1, 6)]
        )

    rows = np.repeat(np.arange(len(x)), weights.astype(int))
    ridge = np.sqrt(1e-8) * np.eye(9)[1:]
    left = np.vstack([basis(x[rows]), ridge])
    solution, *_ = np.linalg.lstsq(left, np.concatenate([y[rows], np.zeros(8)]), rcond=None)
    return np.asarray(basis(at) @ solution)


def test_a_fit_is_the_least_squares_spline_on_the_papers_knots(rng: np.random.Generator) -> None:
    """A library's B-splines span the same functions, so its least-squares fit differs by the tiny ridge alone."""
    x, y = noisy(rng)
    order = np.argsort(x)
    curve = fit(x[order], y[order])
    knots = x.min() + (x.max() - x.min()) * np.arange(1, 6) / 6
    np.testing.assert_allclose(curve.knots, knots)
    other = LSQUnivariateSpline(x[order], y[order], knots, k=3)
    np.testing.assert_allclose(curve.at(curve.grid()), other(curve.grid()), atol=1e-4)


def test_the_band_is_the_percentiles_of_such_fits() -> None:
    x, y = noisy(np.random.default_rng(3), 60)
    at = np.array([0.5, 20.0, 45.0])
    lower, upper = fit(x, y).band(at, rng=np.random.default_rng(1), n_resamples=300)
    weights = np.random.default_rng(1).multinomial(60, np.full(60, 1 / 60), size=300)
    fits = np.array([explicit_fit(x, y, row, at) for row in weights])
    np.testing.assert_allclose(lower, np.percentile(fits, 2.5, axis=0), atol=1e-6)
    np.testing.assert_allclose(upper, np.percentile(fits, 97.5, axis=0), atol=1e-6)


def test_bands_cover_the_truth_about_as_often_as_they_say() -> None:
    """120 samples at 12 points each, percentile bands of 9 coefficients on 200 draws: about 93 %.

    Half the width would cover about 66 %, twice the width 99.9 %; the margins below tell these apart.
    """
    rng, at = np.random.default_rng(5), np.linspace(5.0, 45.0, 12)
    truth = np.polynomial.Polynomial([0.4, -0.01, 2e-4, -2e-6])
    hits = []
    for _ in range(120):
        x = rng.uniform(0.0, 50.0, 200)
        lower, upper = fit(x, truth(x) + 0.02 * rng.standard_normal(200)).band(at, rng=rng, n_resamples=200)
        hits.append((lower <= truth(at)) & (truth(at) <= upper))
    assert 0.88 < np.mean(hits) < 0.975


def test_paired_series_share_their_resamples(rng: np.random.Generator) -> None:
    """Twice the same series: the same band, which two independent bootstraps never give. And 1 − y mirrors y."""
    x, y = noisy(rng, 80)
    (low, high), (low_again, high_again), (low_mirrored, high_mirrored) = shared_bands(
        fit_together(x, y, y, 1.0 - y), [5.0, 25.0], n_resamples=200
    )
    assert np.array_equal(low, low_again)
    assert np.array_equal(high, high_again)
    np.testing.assert_allclose(1.0 - low_mirrored, high, atol=1e-6)
    np.testing.assert_allclose(1.0 - high_mirrored, low, atol=1e-6)


def test_crossings_of_known_functions() -> None:
    x = np.linspace(0.0, 4.0, 100)
    falling = fit(x, 0.5 - 0.1 * x)
    assert crossing(falling, 0.25) == pytest.approx(2.5, abs=1e-4)
    assert crossing(falling, 0.6) is None
    assert crossing(falling, 0.05) is None
    hill = fit(x, 1.0 - (x - 2.0) ** 2 / 4.0)  # 0.75 at 1 and 3
    assert crossing(hill, 0.75) == pytest.approx(1.0, abs=1e-3)
    assert crossings(hill, 0.75) == pytest.approx([1.0, 3.0], abs=1e-3)


def test_the_widest_gap_is_that_between_draws_which_reaches_into_a_stretch() -> None:
    curve = fit(np.array([0.0, 0.1, 0.2, 0.6, 0.7, 0.8, 1.0]), np.zeros(7))
    assert curve.widest_gap(0.4, 0.4) == pytest.approx(0.4)
    assert curve.widest_gap(0.0, 0.15) == pytest.approx(0.1)
    assert curve.widest_gap(0.1, 1.0) == pytest.approx(0.4)
    assert curve.widest_gap(0.2, 0.2) == 0  # on a draw
    assert curve.widest_gap(1.2, 1.3) == 0  # beyond the draws there is no gap between them


@pytest.mark.parametrize("n", range(0, 30))
def test_few_draws_give_a_smooth_curve_and_never_an_error(n: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.uniform(0.0, 1.0, n)
    curve = fit(x, np.exp(-x) + 0.01 * rng.standard_normal(n))
    lower, upper = curve.band(np.linspace(0.0, 1.0, 7), n_resamples=30)
    crossing(curve, 0.7)
    assert len(curve.knots) == max(0, n - 4) // 8
    if n == 0:
        assert np.isnan([*lower, *upper, *curve.at([0.5])]).all()
    else:
        assert np.isfinite([lower, upper]).all()
        assert (lower <= upper).all()
    if n > 8:
        inside = np.linspace(x.min(), x.max(), 20)
        assert np.abs(curve.at(inside) - np.exp(-inside)).max() < 0.1


ROWS = [
    {"deployment": 0, "method": "c-gdp", "draw": 0, "balanced_accuracy": np.float64(0.9), "linkage:known-secret": 0.4},
    {"deployment": 0, "method": "aa-i-gdp-anchor-noise", "draw": 0, "converged": True, "linkage:procrustes": 0.3},
    {
        **{
            "deployment": 1,
            "method": "aa-i-gdp-anchor-noise",
            "draw": 0,
            "converged": np.bool_(False),
            "iterations": 500,
        },
        **{"linkage:procrustes": 0.2, "linkage:moments": 0.5, "error:procrustes": 0.8, "error:moments": 0.1},
        **{"error:guessing": 0.05, "learner": "random-fourier", "rows_each": 40, "residual": float("nan")},
    },
]


def test_results_come_back_from_disk_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.parquet"
    write_results(ROWS, path)
    results = read_results(path)
    assert len(results) == 3
    assert list(results.columns)[: len(COLUMNS)] == list(COLUMNS)
    assert results["method"].tolist() == ["c-gdp", "aa-i-gdp-anchor-noise", "aa-i-gdp-anchor-noise"]
    np.testing.assert_array_equal(results["converged"], [np.nan, 1.0, 0.0])
    np.testing.assert_array_equal(results["iterations"], [np.nan, np.nan, 500.0])
    assert results["learner"].tolist() == [None, None, "random-fourier"]
    assert np.isnan(results["residual"]).all()
    assert pq.read_table(path).column("residual").null_count == 3  # NaN is null on disk
    assert [file.name for file in path.parent.iterdir()] == ["results.parquet"]


def test_the_strongest_attack_is_known_only_where_every_attack_was_run() -> None:
    rows = [
        {"method": "m", "linkage:procrustes": 0.6, "error:procrustes": 0.2, "strongest_attacks": False},
        {"method": "m", "linkage:procrustes": 0.2, "error:procrustes": 0.8, "strongest_attacks": True},
        {"method": "m", "linkage:moments+learned": 0.3, "error:moments": 0.1, "strongest_attacks": True},
        {"method": "other", "linkage:procrustes": 0.5, "strongest_attacks": False},
    ]
    marked = Results.from_rows(rows)
    np.testing.assert_array_equal(marked.strongest("linkage"), [np.nan, 0.2, 0.3, np.nan])
    np.testing.assert_array_equal(marked.strongest("error"), [np.nan, 0.8, 0.1, np.nan])
    assert np.isnan(
        marked.where(method="other").strongest()
    ).all()  # marked as fewer attacks, though none beside it is more
    unmarked = Results.from_rows([{name: row[name] for name in row if name != "strongest_attacks"} for row in rows])
    np.testing.assert_array_equal(unmarked.strongest(), unmarked.envelope())
    assert Results.from_rows([]).strongest().shape == (0,)


def test_findings_claims_and_figures_read_one_strongest_attack() -> None:
    rng = np.random.default_rng(3)
    rows = Results.from_rows(
        [
            {
                **{"method": ANCHOR, "anchor_noise_scale": float(v), "strongest_attacks": k % 2 == 0},
                **{"linkage:procrustes": float(rng.uniform(0.1, 0.2)), "match:procrustes": 0.3},
                **({"linkage:moments": 0.5, "match:moments": 0.9} if k % 4 == 0 else {}),
            }
            for k, v in enumerate(np.linspace(0, 1, 40))
        ]
    )
    v = rows["anchor_noise_scale"]
    for kind in ("linkage", "match"):
        wanted = rows.strongest(kind)
        assert np.isfinite(wanted).sum() == 20
        np.testing.assert_array_equal(column_of(rows, f"envelope:{kind}"), wanted)
        np.testing.assert_array_equal(rows.leakage(kind), 100 * wanted)
        curve = Study(rows).curve(ANCHOR, f"envelope:{kind}")
        np.testing.assert_allclose(curve.at(v), fit(v, wanted).at(v))


def test_missing_cut_and_unwritable_files_say_so(tmp_path: Path) -> None:
    with raising(StorageError, "The results results.parquet are not there"):
        read_results(tmp_path / "results.parquet")
    write_results(ROWS, tmp_path / "results.parquet")
    content = (tmp_path / "results.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(content[: len(content) // 2])
    with raising(StorageError, "The results cut.parquet cannot be read"):
        read_results(tmp_path / "cut.parquet")
    with pytest.raises(StorageError):
        write_results(ROWS, tmp_path / "cut.parquet" / "results.parquet")
