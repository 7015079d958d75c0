"""Section 3: the anchor that aligns also unlocks, and noise on private data changes neither.

Legend: X_i private data, Y_i its representation; A the anchor, a its mean row, Ā = A − 1 aᵀ, B_i its representation;
(O_i, Ψ_i) the rigid map of participant i; σ the private-data noise scale, W_i the noise, W̃_i = W_i O_iᵀ O_s; s the
reference, c the colluder.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mooring import (
    ArrayNoise,
    SimulationSettings,
    Streams,
    UploadNoise,
    align_to_reference,
    coupled_noise,
    make_anchor,
    represent,
    simulate,
)
from tests.theorems.conftest import draw_secrets

N_COMPONENTS = 3
ROWS = (5, 1, 8)
PARTICIPANTS = range(len(ROWS))
SIGMA = 0.4


def _private_data():
    rng = np.random.default_rng(0)
    return [2 * rng.standard_normal((n, N_COMPONENTS)) - 1 for n in ROWS]


def _anchor():
    return make_anchor(4 * N_COMPONENTS, N_COMPONENTS, rng=np.random.default_rng(2))


def _uncentred_anchor():
    return np.random.default_rng(3).standard_normal((11, N_COMPONENTS)) * [0.2, 1.0, 4.0] + [7.0, -3.0, 1.0]


def _known_anchor_attack(A, uploads, colluder):
    """Algorithm 3 (alg:aaigdp_collusion_attack), line by line: what it says of every participant but the colluder."""
    a = A.T @ np.ones(len(A)) / len(A)
    centred_A = A - np.outer(np.ones(len(A)), a)
    reconstructions = {}
    for i, (Y, B) in enumerate(uploads):
        if i == colluder:
            continue
        b = B.T @ np.ones(len(B)) / len(B)
        centred_B = B - np.outer(np.ones(len(B)), b)
        O = np.linalg.pinv(centred_A) @ centred_B
        psi = b - O.T @ a
        reconstructions[i] = (Y - np.outer(np.ones(len(Y)), psi)) @ O.T
    return reconstructions


def _matched(method, seed, *, sigma=0.0, reference=0):
    """A study of the private data: methods at one seed share their secrets and noise."""
    settings = SimulationSettings(anchor=_anchor(), reference=reference)
    rng = Streams.for_experiment(seed)
    return simulate(_private_data(), method=method, rng=rng, data_noise_scale=sigma, settings=settings)


def _seen(study):
    return [(upload.representation, upload.anchor_representation) for upload in study.uploads]


@pytest.mark.parametrize("colluder", PARTICIPANTS)
def test_prop_aaigdp_collusion(colluder):
    """prop:aaigdp_collusion: a colluder who reveals A lets Algorithm 3 recover everybody else's X_i exactly."""
    data, rebuilt = _private_data(), _known_anchor_attack(_anchor(), _seen(_matched("aa-i-gdp", 4)), colluder)
    assert set(rebuilt) == set(PARTICIPANTS) - {colluder}
    for target, rows in rebuilt.items():
        np.testing.assert_allclose(rows, data[target], atol=1e-12)


@pytest.mark.parametrize("colluder", PARTICIPANTS)
def test_prop_aaigdp_collusion_with_an_uncentred_anchor(colluder):
    """prop:aaigdp_collusion: the same for any anchor whose centred version has full column rank."""
    data, anchor = _private_data(), _uncentred_anchor()
    seen = [
        (secret.apply(rows), secret.apply(anchor))
        for secret, rows in zip(draw_secrets(len(ROWS), N_COMPONENTS), data, strict=True)
    ]
    for target, rows in _known_anchor_attack(anchor, seen, colluder).items():
        np.testing.assert_allclose(rows, data[target], atol=1e-11)


def test_prop_aaigdp_collusion_needs_the_anchor():
    """prop:aaigdp_collusion: it is the anchor that unlocks: with another one the same algorithm recovers nothing."""
    data, other = _private_data(), make_anchor(4 * N_COMPONENTS, N_COMPONENTS, rng=np.random.default_rng(5))
    for target, rows in _known_anchor_attack(other, _seen(_matched("aa-i-gdp", 4)), 0).items():
        assert np.linalg.norm(rows - data[target]) > 0.3 * np.linalg.norm(data[target])


@pytest.mark.parametrize("reference", PARTICIPANTS)
@pytest.mark.parametrize("anchor", [_anchor(), _uncentred_anchor()], ids=["normalised", "uncentred"])
def test_prop_aaigdp_dp_aligned_representation(reference, anchor):
    """prop:aaigdp_dp_aligned_representation: N_i(Y_i) = X_i O_s + 1 Ψ_sᵀ + σ W_i O_iᵀ O_s: exact signal, turned noise."""
    data, secrets, rng = _private_data(), draw_secrets(len(ROWS), N_COMPONENTS), np.random.default_rng(6)
    alignment = align_to_reference([secret.apply(anchor) for secret in secrets], reference=reference)
    Os, psi = secrets[reference].orthogonal, secrets[reference].translation
    aligned, expected = [], []
    for X, secret, map in zip(data, secrets, alignment.maps, strict=True):
        W = rng.standard_normal(X.shape)
        upload = represent(
            "aa-i-gdp-data-noise", X, secret, noise=UploadNoise(ArrayNoise(W)), anchor=_anchor(), data_noise_scale=SIGMA
        )
        aligned.append(map.apply(upload.representation))
        expected.append(X @ Os + psi + SIGMA * (W @ secret.orthogonal.T @ Os))
        np.testing.assert_allclose(aligned[-1], expected[-1], atol=1e-11)
    Z = np.concatenate(data) @ Os + psi
    np.testing.assert_allclose(np.concatenate(aligned) - Z, np.concatenate(expected) - Z, atol=1e-11)


def _aligned_noise(study, data, *, reference):
    """W̃, of shape (participants, rows, components), from what a collaboration gave out."""
    secret = study.secrets[reference]
    return np.stack(
        [(Z - X @ secret.orthogonal - secret.translation) / SIGMA for Z, X in zip(study.aligned, data, strict=True)]
    )


@pytest.fixture(scope="module")
def long_run():
    """W̃ for fixed transforms and 10,000 rows a participant, as rows of all participants' entries side by side."""
    rng = np.random.default_rng(7)
    data = [rng.standard_normal((10_000, N_COMPONENTS)) for _ in PARTICIPANTS]
    options = {"data_noise_scale": SIGMA, "settings": SimulationSettings(anchor=_anchor(), reference=1)}
    study = simulate(data, method="aa-i-gdp-data-noise", rng=Streams.for_experiment(8), **options)
    return np.concatenate(list(_aligned_noise(study, data, reference=1)), axis=1)


def test_prop_aaigdp_dp_aligned_representation_noise_is_standard_normal(long_run, laws):
    """prop:aaigdp_dp_aligned_representation: for given transforms the entries of W̃ are standard normal.

    90,000 entries: a variance off by 3 % is noticed with probability above 0.99 (chi-square, exact), a mean vector of
    length 0.08 over all participants with more than 0.99 (chi-square, exact), Laplace noise of the same variance with more
    than 0.999 (Kolmogorov–Smirnov).
    """
    assert laws.size_power(long_run.size, variance_factor=1.03) > 0.99
    assert laws.centre_power(*long_run.shape, shift=0.08) > 0.99
    assert laws.shape_power(long_run.size, distance=laws.distance_to_laplace()) > 0.999
    assert laws.size(long_run) > laws.LEVEL > laws.size(long_run * np.sqrt(1.03))
    assert laws.centre(long_run) > laws.LEVEL > laws.centre(long_run + 0.08 / np.sqrt(long_run.shape[1]))
    laplace = np.random.default_rng(9).laplace(scale=np.sqrt(0.5), size=long_run.size)
    assert stats.kstest(long_run.ravel(), "norm").pvalue > laws.LEVEL > stats.kstest(laplace, "norm").pvalue


def test_prop_aaigdp_dp_aligned_representation_noise_is_independent(long_run, laws):
    """prop:aaigdp_dp_aligned_representation: for given transforms the entries of W̃ are independent of one another.

    Across coordinates and participants: covariance against the identity; a correlation of 0.1 in one pair of the 36 is
    noticed with probability above 0.99. From row to row: each row against the one before; a carry-over that explains 1.5 %
    of one coordinate is noticed with probability above 0.99.
    """
    assert laws.covariance_power(*long_run.shape, correlation=0.1) > 0.99
    assert laws.covariance(long_run) > laws.LEVEL
    tied = long_run.copy()
    tied[:, 8] = 0.1 * tied[:, 0] + np.sqrt(1 - 0.1**2) * tied[:, 8]
    assert laws.covariance(tied) < laws.LEVEL
    before, after = long_run[:-1], long_run[1:].copy()
    assert laws.unrelated_power(after.shape, before, explained=0.015) > 0.99
    assert laws.unrelated(after, before) > laws.LEVEL
    after[:, 4] = np.sqrt(0.985) * after[:, 4] + np.sqrt(0.015) * before[:, 0]
    assert laws.unrelated(after, before) < laws.LEVEL


def test_prop_aaigdp_dp_aligned_representation_noise_is_independent_of_the_transforms(laws):
    """prop:aaigdp_dp_aligned_representation: W̃ is independent of all (O_i, Ψ_i).

    700 collaborations with fresh secrets and noise. Their W̃, and their W̃² after centring, are set against the entries of
    every O_i and Ψ_i. Transforms that explain 25 % of one coordinate of W̃ are noticed with probability above 0.99 (exact
    chi-square given the transforms).
    """
    data = [np.ones((1, N_COMPONENTS)) * k for k in PARTICIPANTS]
    noise, features = [], []
    options = {"data_noise_scale": SIGMA, "settings": SimulationSettings(anchor=_anchor())}
    for seed in range(700):
        study = simulate(data, method="aa-i-gdp-data-noise", rng=Streams.for_experiment(seed), **options)
        noise.append(_aligned_noise(study, data, reference=0).ravel())
        secrets = [np.append(secret.orthogonal, secret.translation) for secret in study.secrets]
        features.append(np.concatenate([[1.0], *secrets]))
    noise, features = np.stack(noise), np.stack(features)
    assert laws.unrelated_power(noise.shape, features, explained=0.25) > 0.99
    assert laws.unrelated(noise, features) > laws.LEVEL
    assert laws.unrelated((noise**2 - 1) / np.sqrt(2), features) > laws.LEVEL
    assert laws.covariance(noise) > laws.LEVEL
    follows = noise.copy()
    follows[:, 5] = np.sqrt(0.75) * noise[:, 5] + np.sqrt(0.25 * N_COMPONENTS) * features[:, 1]  # E O_11² = 1/d
    assert laws.unrelated(follows, features) < laws.LEVEL


@pytest.mark.parametrize("reference", PARTICIPANTS)
def test_cor_aa_cgdp_equivalence_pathwise(reference):
    """cor:aa_cgdp_equivalence: with C-GDP's noise coupled as W_i O_iᵀ O_s the two collaboration matrices are equal.

    Once by hand, with one W_i on both sides, and once as `simulate` couples two methods that share their streams.
    """
    data, secrets, rng = _private_data(), draw_secrets(len(ROWS), N_COMPONENTS), np.random.default_rng(10)
    common = secrets[reference]
    alignment = align_to_reference([secret.apply(_anchor()) for secret in secrets], reference=reference)
    for X, secret, map in zip(data, secrets, alignment.maps, strict=True):
        W = rng.standard_normal(X.shape)
        turned = coupled_noise(W, secret=secret, reference=common)
        np.testing.assert_allclose(turned, W @ secret.orthogonal.T @ common.orthogonal, atol=1e-13)
        np.testing.assert_allclose(coupled_noise(turned, secret=common, reference=secret), W, atol=1e-13)
        scales = {"data_noise_scale": SIGMA}
        representation = represent(
            "aa-i-gdp-data-noise", X, secret, anchor=_anchor(), noise=UploadNoise(ArrayNoise(W)), **scales
        )
        shared = represent("c-gdp-data-noise", X, common, noise=UploadNoise(ArrayNoise(turned)), **scales)
        np.testing.assert_allclose(map.apply(representation.representation), shared.representation, atol=1e-11)

    options = {"sigma": SIGMA, "reference": reference}
    aa, c = (_matched(m, 11, **options) for m in ("aa-i-gdp-data-noise", "c-gdp-data-noise"))
    np.testing.assert_allclose(aa.collaboration_matrix, c.collaboration_matrix, atol=1e-11)
    clean = _matched("c-gdp", 11, reference=reference)
    size = np.std(c.collaboration_matrix - clean.collaboration_matrix)
    assert 0.6 * SIGMA < size < 1.4 * SIGMA  # there was noise to couple


def test_cor_aa_cgdp_equivalence_in_distribution(laws):
    """cor:aa_cgdp_equivalence: for given transforms, Z of AA-I-GDP and Z of C-GDP have one law, without any coupling.

    20,000 draws of each (a participant's rows are copies of one record, so the rows of Z are independent draws), nine
    entries a draw. Noticed with probability above 0.99: a mean vector of length 0.08 σ, and a correlation of 0.1 in one
    pair of entries (two-sample chi-squares); with more than 0.999: a Laplace law of the same variance in any one entry
    (two-sample Kolmogorov–Smirnov, one test an entry).
    """
    n, reference = 20_000, 2
    secrets, records = (
        draw_secrets(len(ROWS), N_COMPONENTS),
        [np.full((n, N_COMPONENTS), value) for value in (0.5, -2.0, 1.0)],
    )
    alignment = align_to_reference([secret.apply(_anchor()) for secret in secrets], reference=reference)
    aa_noise, c_noise = np.random.default_rng(12), np.random.default_rng(13)
    representations = [
        represent("aa-i-gdp-data-noise", X, secret, noise=aa_noise, anchor=_anchor(), data_noise_scale=SIGMA)
        for X, secret in zip(records, secrets, strict=True)
    ]
    aa = [map.apply(upload.representation) for map, upload in zip(alignment.maps, representations, strict=True)]
    c = [
        represent("c-gdp-data-noise", X, secrets[reference], noise=c_noise, data_noise_scale=SIGMA).representation
        for X in records
    ]
    aa, c = np.concatenate(aa, axis=1) / SIGMA, np.concatenate(c, axis=1) / SIGMA
    width = aa.shape[1]

    # The difference of two statistics of n draws each varies as one statistic of n / 2 draws does.
    assert laws.centre_power(n / 2, width, shift=0.08) > 0.99
    assert laws.covariance_power(n / 2, width, correlation=0.1) > 0.99
    assert laws.shape_power(n, distance=laws.distance_to_laplace(), tests=width, samples=2) > 0.999

    def p_values(first, second):
        mean_gap = first.mean(axis=0) - second.mean(axis=0)
        covariance_gap = np.cov(first.T) - np.cov(second.T)
        shapes = [stats.ks_2samp(first[:, k], second[:, k]).pvalue for k in range(width)]
        return {
            "mean": stats.chi2.sf(n / 2 * np.sum(mean_gap**2), width),
            "covariance": stats.chi2.sf(n / 4 * np.sum(covariance_gap**2), width * (width + 1) / 2),
            "shape": min(1.0, width * min(shapes)),
        }

    assert min(p_values(aa, c).values()) > laws.LEVEL
    shifted, tied, laplace = c.copy(), c.copy(), c.copy()
    shifted[:, 0] += 0.08
    tied[:, 1] += 0.1 * (tied[:, 7] - tied[:, 7].mean())
    laplace[:, 3] = c[:, 3].mean() + np.random.default_rng(14).laplace(scale=np.sqrt(0.5), size=n)
    assert p_values(aa, shifted)["mean"] < laws.LEVEL
    assert p_values(aa, tied)["covariance"] < laws.LEVEL
    assert p_values(aa, laplace)["shape"] < laws.LEVEL


@pytest.mark.parametrize("reference", PARTICIPANTS)
def test_cor_aa_cgdp_equivalence_of_reconstructions(reference):
    """cor:aa_cgdp_equivalence: under the coupling both attacks return the same records, X_i + σ W_i O_iᵀ.

    Known-secret inversion against C-GDP, and the known-anchor attack against AA-I-GDP.
    """
    data = _private_data()
    options = {"sigma": SIGMA, "reference": reference}
    aa, c = (_matched(m, 15, **options) for m in ("aa-i-gdp-data-noise", "c-gdp-data-noise"))
    common, colluder = aa.secrets[reference], (reference + 1) % len(ROWS)
    for target, by_anchor in _known_anchor_attack(_anchor(), _seen(aa), colluder).items():
        secret, X = aa.secrets[target], data[target]
        W = (aa.uploads[target].representation - X @ secret.orthogonal - secret.translation) / SIGMA
        turned = W @ secret.orthogonal.T @ common.orthogonal
        by_secret = (c.aligned[target] - common.translation) @ common.orthogonal.T
        np.testing.assert_allclose(by_secret, X + SIGMA * turned @ common.orthogonal.T, atol=1e-11)
        np.testing.assert_allclose(by_secret, X + SIGMA * W @ secret.orthogonal.T, atol=1e-11)
        np.testing.assert_allclose(by_anchor, X + SIGMA * W @ secret.orthogonal.T, atol=1e-11)
        assert np.linalg.norm(W) > 0.5
