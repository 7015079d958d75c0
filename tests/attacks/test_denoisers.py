"""Denoisers beyond the Gaussian: what each claims. All of them are under the contract of attacks, too."""

from typing import Any

import numpy as np
import pytest

from mooring.attacks import DENOISERS, REGISTRY, PublicRows, run
from mooring.attacks.class_moments import ClassMoments
from mooring.attacks.denoising.gaussian import class_priors, fit_to_noisy_rows
from mooring.attacks.denoising.kernel import Atoms, _mixture
from mooring.audit import SimulationSettings, leakage
from mooring.audit.simulation import Simulation, simulate
from mooring.mechanisms.projection import no_projection
from mooring.metrics import centred_error


def test_a_mixtures_gradient_and_laplacian_are_those_of_its_density(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.setattr("mooring.attacks.denoising.kernel._BLOCK_NUMBERS", 20)  # several blocks
    owners, spread = np.arange(8) % 2, np.diag([0.5, 1.0, 2.0])
    atoms, rows, step = Atoms(2 * rng.standard_normal((8, 3)), owners), rng.standard_normal((6, 3)), 1e-4

    def log_value(at: np.ndarray, own: np.ndarray | None = None) -> np.ndarray:
        return _mixture(at, atoms, spread, own).plus(_mixture(at, atoms, 0 * spread, own)).log_value

    found = _mixture(rows, atoms, spread, None).plus(_mixture(rows, atoms, 0 * spread, None))
    moved = np.stack([[log_value(rows + sign * step * axis) for sign in (1, -1)] for axis in np.eye(3)])
    np.testing.assert_allclose(found.gradient, (moved[:, 0] - moved[:, 1]).T / (2 * step), atol=1e-6)
    second = (moved[:, 0] + moved[:, 1] - 2 * found.log_value).sum(axis=0) / step**2
    np.testing.assert_allclose(found.laplacian, second + (found.gradient**2).sum(axis=1), atol=1e-5)
    halves = [_mixture(rows, Atoms(atoms.rows[owners == k], owners[owners == k]), spread, None) for k in (0, 1)]
    hidden = _mixture(rows, atoms, spread, np.zeros(6, dtype=int))
    np.testing.assert_allclose(hidden.gradient, halves[1].gradient)  # an owner's rows are not compared with its own
    np.testing.assert_allclose(_mixture(rows, atoms, spread, None).log_value, halves[0].plus(halves[1]).log_value)


def test_stein_estimates_the_risk() -> None:
    rng = np.random.default_rng(1)
    atoms = Atoms(3 * rng.standard_normal((20, 4)), np.zeros(20, dtype=int))
    truth = atoms.rows[rng.integers(0, 20, 4000)]
    rows = truth + rng.standard_normal(truth.shape)
    for width in (0.0, 0.3, 2.0):
        found = _mixture(rows, atoms, width * np.eye(4), None)
        assert found.risk() == pytest.approx(((rows + found.gradient - truth) ** 2).sum(), abs=0.03 * rows.size)


def test_noisy_rows_count_as_much_as_they_tell() -> None:
    """Few rows under much noise: by maximum likelihood they improve the covariance that known rows give."""
    rng = np.random.default_rng(2)
    spread, sigma, h = np.diag(np.linspace(2.0, 0.05, 12)), 1.0, 12
    gaps = np.zeros((2, 3))
    for _ in range(8):
        known, clean = (rng.standard_normal((n, h)) @ np.sqrt(spread) for n in (20, 150))
        noisy = clean + sigma * rng.standard_normal(clean.shape)
        own, theirs = (ClassMoments.of(rows, np.arange(len(rows)) % 2, 3) for rows in (known, noisy))
        fits = [
            fit_to_noisy_rows(own, theirs, sigma**2),
            class_priors(own, 0.0),
            class_priors(own.with_noise(sigma**2).merged(theirs), sigma**2),
        ]
        assert all(np.allclose(means[2], means[:2].mean(axis=0), atol=0.3) for means, _ in fits)  # a class without rows
        gaps += [[np.linalg.norm(found[k] - spread) for _, found in fits] for k in (0, 1)]
    assert (gaps[:, 0] < 0.9 * gaps[:, 1:].min(axis=1)).all()


def rings(*, public: bool, gaussian: bool = False, sigma: float = 0.5) -> Simulation:
    """Rows of two classes on rings about different centres, or of Gaussians."""
    rng = np.random.default_rng(3)

    def drawn(n: int) -> tuple[np.ndarray, np.ndarray]:
        labels, angles = np.arange(n) % 2, rng.uniform(0, 2 * np.pi, n)
        ring = np.stack([np.cos(angles), np.sin(angles), np.cos(2 * angles), np.sin(3 * angles)], axis=1)
        return (rng.standard_normal((n, 4)) if gaussian else 1.5 * ring) + 4 * labels[:, None], labels

    parts = [drawn(60) for _ in range(4)]
    rows, labels = ([part[k] for part in parts] for k in (0, 1))
    known = drawn(300) if public else None
    settings = SimulationSettings(
        projection=no_projection(4), public_rows=None if known is None else PublicRows(known[0], *known)
    )
    options: dict[str, Any] = {"method": "aa-i-gdp-data-noise", "data_noise_scale": sigma, "settings": settings}
    return simulate(rows, labels, rng=rng, **options)


@pytest.mark.parametrize(("public", "gaussian", "most"), [(True, False, 0.8), (False, False, 0.95), (True, True, 1.02)])
def test_kernels_find_what_a_gaussian_blurs(public: bool, gaussian: bool, most: float) -> None:
    """And are no worse where the classes are Gaussians, nor where the others' noisy rows are all there is."""
    simulation = rings(public=public, gaussian=gaussian)
    errors = [
        centred_error(
            simulation.private_data[1],
            run("joint-moments", simulation.view(), rng=np.random.default_rng(0), denoiser=one).rows,
        )
        for one in ("kernel", "gaussian")
    ]
    assert errors[0] < most * errors[1]


def test_rows_that_attacks_rebuild_alike_are_denoised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation, asked = rings(public=False), []

    def counted(found: Any, view: Any, *, rng: Any) -> Any:
        asked.append(found)
        return DENOISERS["gaussian"](found, view, rng=rng)

    monkeypatch.setattr(leakage, "DENOISERS", {"counted": counted})
    attempts = leakage.AttemptLog([simulation.view(target=1), simulation.view(target=2)], seed=0)
    names = ["known-anchor", "procrustes", "pseudoinverse", "principal-axes", "known-secret"]
    found = {name: attempts.run(name) for name in names}
    assert len(asked) == 4  # two views: the anchor's exact map, and principal axes
    assert [[one.name for one in parts] for parts in found["procrustes"]] == [
        ["procrustes"] * 2,
        ["procrustes + counted"] * 2,
    ]
    assert len(found["known-secret"]) == 1
    assert set(names) < set(REGISTRY)
