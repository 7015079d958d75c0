"""Section 2: what a common transform gives away, and what a noiseless anchor restores.

Legend: X_i private data, Y_i its representation; A the anchor, Ā the anchor centred, B_i its representation; (O_i, Ψ_i) the
rigid map of participant i; s the reference, c the colluder.
"""

from __future__ import annotations

import numpy as np
import pytest

from mooring import (
    ArrayNoise,
    RigidMap,
    SimulationSettings,
    Streams,
    UploadNoise,
    align_to_reference,
    make_anchor,
    represent,
    simulate,
)
from tests.theorems.conftest import draw_secrets

N_COMPONENTS = 4
ROWS = (1, 7, 3, 12)  # a participant may hold a single record
N_PARTICIPANTS = len(ROWS)
PARTICIPANTS = range(N_PARTICIPANTS)


def _private_data():
    rng = np.random.default_rng(0)
    return [3 * rng.standard_normal((n, N_COMPONENTS)) + 2 for n in ROWS]


def _anchors():
    """Anchors of full column rank after centring: the protocol's own, the shortest, and one that is not normalised."""
    rng = np.random.default_rng(2)
    crooked = rng.standard_normal((19, N_COMPONENTS)) * np.array([0.3, 1.0, 2.0, 5.0]) + np.array([4.0, -1.0, 0.5, 9.0])
    return {
        "normalised": make_anchor(4 * N_COMPONENTS, N_COMPONENTS, rng=rng),
        "shortest": make_anchor(N_COMPONENTS + 1, N_COMPONENTS, rng=rng),
        "uncentred": crooked,
    }


def _distances(rows):
    return np.linalg.norm(rows[:, None, :] - rows[None, :, :], axis=-1)


@pytest.mark.parametrize("colluder", PARTICIPANTS)
def test_prop_cgdp_collusion(colluder):
    """prop:cgdp_collusion: whoever learns the common (O, Ψ) from one participant inverts everybody's upload exactly."""
    data = _private_data()
    study = simulate(data, method="c-gdp", rng=Streams.for_experiment(3), settings=SimulationSettings(reference=2))
    O, psi = study.secrets[colluder].orthogonal, study.secrets[colluder].translation
    for target in set(PARTICIPANTS) - {colluder}:
        Y = study.uploads[target].representation
        assert not np.allclose(Y, data[target], atol=0.1)
        np.testing.assert_allclose((Y - np.ones((len(Y), 1)) * psi) @ O.T, data[target], atol=1e-12)
        np.testing.assert_allclose(study.secrets[colluder].invert(Y), data[target], atol=1e-12)


def test_def_cgdp_an_inversion_leaves_the_noise():
    """def:CGDP_AN: with noise the same inversion gives X_i + σ W_i Oᵀ, so that noise is all that protects."""
    sigma, data, common = 0.7, _private_data(), draw_secrets(len(ROWS), N_COMPONENTS)[0]
    rng = np.random.default_rng(4)
    for rows in data:
        W = rng.standard_normal(rows.shape)
        upload = represent("c-gdp-data-noise", rows, common, noise=UploadNoise(ArrayNoise(W)), data_noise_scale=sigma)
        recovered = (upload.representation - common.translation) @ common.orthogonal.T
        np.testing.assert_allclose(recovered, rows + sigma * W @ common.orthogonal.T, atol=1e-12)
        silent = represent("c-gdp-data-noise", rows, common, noise=rng, data_noise_scale=0.0).representation
        np.testing.assert_array_equal(silent, represent("c-gdp", rows, common, noise=rng).representation)


def test_def_independent_gdp_keeps_geometry_and_withholds_the_key():
    """def:Independent_GDP: distances within a participant survive; another participant's map inverts nothing."""
    data = _private_data()
    study = simulate(data, method="i-gdp", rng=Streams.for_experiment(5))
    for target in PARTICIPANTS:
        Y = study.uploads[target].representation
        np.testing.assert_allclose(_distances(Y), _distances(data[target]), atol=1e-12)
        for colluder in set(PARTICIPANTS) - {target}:
            wrong = study.secrets[colluder].invert(Y) - data[target]
            assert np.linalg.norm(wrong) > 0.3 * np.linalg.norm(data[target])


@pytest.mark.parametrize("reference", PARTICIPANTS)
@pytest.mark.parametrize("kind", ["normalised", "shortest", "uncentred"])
@pytest.mark.parametrize("batch", [1, 2, 25])
def test_prop_exact_alignment_aaigdp(reference, kind, batch):
    """prop:exact_alignment_AAIGDP: N_i(M_i(S)) = S O_s + 1 Ψ_sᵀ for every i, s, batch size and S.

    S is neither private data nor near it, and is one and the same for all participants.
    """
    anchor, secrets = _anchors()[kind], draw_secrets(len(ROWS), N_COMPONENTS)
    alignment = align_to_reference([secret.apply(anchor) for secret in secrets], reference=reference)
    S = 40 * np.random.default_rng(6).standard_normal((batch, N_COMPONENTS)) - 100
    expected = S @ secrets[reference].orthogonal + np.ones((batch, 1)) * secrets[reference].translation
    for secret, map in zip(secrets, alignment.maps, strict=True):
        np.testing.assert_allclose(map.apply(secret.apply(S)), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("reference", PARTICIPANTS)
def test_prop_exact_alignment_aaigdp_by_algorithm_2(reference):
    """prop:exact_alignment_AAIGDP: the maps are those of alg:aaigdp, step by step, on anchors with noise as well."""
    rng = np.random.default_rng(7)
    for noise in (0.0, 0.3):
        B = [secret.apply(_anchors()["uncentred"]) for secret in draw_secrets(len(ROWS), N_COMPONENTS)]
        B = [block + noise * rng.standard_normal(block.shape) for block in B]
        T = rng.standard_normal((9, N_COMPONENTS))
        b = [block.T @ np.ones(len(block)) / len(block) for block in B]
        centred = [block - mean for block, mean in zip(B, b, strict=True)]
        for i, map in enumerate(align_to_reference(B, reference=reference).maps):
            U, _, Vt = np.linalg.svd(centred[i].T @ centred[reference])
            expected = T if i == reference else (T - b[i]) @ (U @ Vt) + b[reference]
            np.testing.assert_allclose(map.apply(T), expected, atol=1e-10)


@pytest.mark.parametrize("reference", PARTICIPANTS)
def test_prop_exact_alignment_aaigdp_equals_c_gdp_pathwise(reference):
    """prop:exact_alignment_AAIGDP: Z = X O_s + 1 Ψ_sᵀ, which is C-GDP's Z under (O_s, Ψ_s); what was sent still differs."""
    data, streams = _private_data(), Streams.for_experiment(8)
    settings = SimulationSettings(anchor=_anchors()["normalised"], reference=reference)
    aligned, common = (simulate(data, method=m, rng=streams, settings=settings) for m in ("aa-i-gdp", "c-gdp"))
    secret = aligned.secrets[reference]
    Z = np.concatenate(data) @ secret.orthogonal + secret.translation
    np.testing.assert_allclose(aligned.collaboration_matrix, Z, atol=1e-11)
    np.testing.assert_allclose(common.collaboration_matrix, Z, atol=1e-11)
    for i in PARTICIPANTS:
        assert aligned.uploads[i].anchor_representation is not None
        assert common.uploads[i].anchor_representation is None
        same = np.allclose(aligned.uploads[i].representation, common.uploads[i].representation, atol=1e-6)
        assert same == (i == reference)


def _rank_poor_anchors():
    rng = np.random.default_rng(9)
    free = rng.standard_normal((4 * N_COMPONENTS, N_COMPONENTS))
    mixed = np.concatenate([free[:, 1:], np.ones((len(free), 1))], axis=1) @ rng.standard_normal((N_COMPONENTS,) * 2)
    return {
        "as many rows as columns": rng.standard_normal((N_COMPONENTS, N_COMPONENTS)),
        "full rank lost by centring": mixed,
        "a column twice": np.concatenate([free[:, :-1], free[:, :1]], axis=1),
    }


@pytest.mark.parametrize("kind", list(_rank_poor_anchors()))
def test_prop_exact_alignment_aaigdp_needs_full_rank(kind, refused):
    """prop:exact_alignment_AAIGDP: where Ā is rank-poor, as it must be for r ≤ d, no rule on the anchors can align.

    Reflecting along a direction that Ā does not see, and moving Ψ to match, changes the private upload and not a bit of
    the anchor upload: the same B_i goes with two different maps. So mooring refuses.
    """
    anchor, secrets = _rank_poor_anchors()[kind], draw_secrets(len(ROWS), N_COMPONENTS)
    a = anchor.mean(axis=0)
    if kind != "a column twice":
        assert np.linalg.matrix_rank(anchor) == N_COMPONENTS
    unseen = np.linalg.svd(anchor - a)[2][-1]
    np.testing.assert_allclose((anchor - a) @ unseen, 0, atol=1e-12)
    for secret in secrets:
        reflected = (np.eye(N_COMPONENTS) - 2 * np.outer(unseen, unseen)) @ secret.orthogonal
        twin = RigidMap(reflected, secret.translation + secret.orthogonal.T @ a - reflected.T @ a)
        np.testing.assert_allclose(twin.apply(anchor), secret.apply(anchor), atol=1e-12)
        S = np.random.default_rng(10).standard_normal((5, N_COMPONENTS))
        assert np.linalg.norm(twin.apply(S) - secret.apply(S)) > 1
    too_short, uploads = len(anchor) == N_COMPONENTS, [secret.apply(anchor) for secret in secrets]
    expected = "n_components + 1" if too_short else "rank"
    refused(lambda: align_to_reference(uploads), "anchor_representations", expected, "")
    options = {"rng": Streams.for_experiment(11), "settings": SimulationSettings(anchor=anchor)}
    what = "n_anchor_rows" if too_short else "anchor"
    refused(lambda: simulate(_private_data(), method="aa-i-gdp", **options), what, "", "")


def test_prop_exact_alignment_aaigdp_needs_more_rows_than_columns(refused):
    """prop:exact_alignment_AAIGDP: full column rank of Ā takes r ≥ d + 1 rows, which is where anchors begin."""
    rng = np.random.default_rng(12)
    for d in (1, 2, 5):
        assert np.linalg.matrix_rank(make_anchor(d + 1, d, rng=rng)) == d
        for rows in range(d + 1):
            refused(lambda rows=rows, d=d: make_anchor(rows, d, rng=rng), "n_anchor_rows", "", str(rows))
