from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from mooring import METHODS, Collaboration, Streams, Termination, collaborate, make_anchor
from mooring.geometry.backend import to_numpy

Refused = Callable[..., None]
RNG = np.random.default_rng(0)
DATA = [RNG.standard_normal((n_rows, 3)) for n_rows in (6, 4, 9, 5)]
ANCHOR = make_anchor(12, 3, rng=RNG)
STREAMS = Streams.for_experiment(seed=11)


def run(method: str, **options: object) -> Collaboration:
    stated = {
        "private_data": DATA,
        "streams": STREAMS,
        "anchor": ANCHOR,
        "data_noise_scale": 0,
        "anchor_noise_scale": 0,
    }
    return collaborate(method, **stated | options)


def scales(method: str, *, data: float = 0.3, anchor: float = 0.02) -> dict[str, float]:
    return {
        "data_noise_scale": data if METHODS[method].data_noise else 0.0,
        "anchor_noise_scale": anchor if METHODS[method].anchor_noise else 0.0,
    }


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_from_data_to_collaboration_matrix(method: str) -> None:
    together = run(method, **scales(method))
    assert together.method is METHODS[method]
    assert [part.shape for part in together.aligned] == [part.shape for part in DATA]
    assert together.collaboration_matrix.shape == (24, 3)
    assert np.array_equal(together.collaboration_matrix, np.concatenate(together.aligned))
    assert (together.alignment is None) == (METHODS[method].alignment == "none")
    assert len(together.uploads) == len(together.secrets) == 4


@pytest.mark.parametrize("method", METHODS)
def test_distances_within_one_participant_survive_but_for_its_data_noise(method: str) -> None:
    together = run(method, **scales(method, data=0.0))
    for rows, aligned in zip(DATA, together.aligned, strict=True):
        assert np.allclose(pdist(rows), pdist(aligned), atol=1e-12)


@pytest.mark.parametrize(
    ("corner", "method"),
    [
        ("c-gdp", "c-gdp-data-noise"),
        ("aa-i-gdp", "aa-i-gdp-data-noise"),
        ("aa-i-gdp-anchor-noise", "aa-i-gdp-both-noise"),
    ],
)
def test_a_method_without_its_data_noise_is_its_noiseless_corner(corner: str, method: str) -> None:
    options = scales(corner, data=0.0)
    expected, got = run(corner, **options), run(method, **options)
    assert np.array_equal(expected.collaboration_matrix, got.collaboration_matrix)


def test_both_noises_without_anchor_noise_are_private_data_noise_but_for_the_alignment() -> None:
    """The same uploads; Procrustes puts the common space elsewhere than the reference does, by one rigid map."""
    expected, got = (run(name, data_noise_scale=0.3) for name in ("aa-i-gdp-data-noise", "aa-i-gdp-both-noise"))
    for one, other in zip(expected.uploads, got.uploads, strict=True):
        assert np.array_equal(one.representation, other.representation)
        assert np.array_equal(one.anchor_representation, other.anchor_representation)
    gauge = expected.alignment.maps[0].inverse().compose(got.alignment.maps[0])
    assert np.allclose(gauge.apply(expected.collaboration_matrix), got.collaboration_matrix, atol=1e-10)


@pytest.mark.parametrize("reference", [0, 2])
@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_aligned_uploads_equal_those_under_one_common_map(reference: int, noise: float) -> None:
    """Exact equivalence, and its corollary for coupled private-data noise, whichever participant is the reference."""
    options = {"data_noise_scale": noise, "reference": reference}
    suffix = "-data-noise" if noise else ""
    aligned, common = run("aa-i-gdp" + suffix, **options), run("c-gdp" + suffix, **options)
    assert np.allclose(aligned.collaboration_matrix, common.collaboration_matrix, atol=1e-12)


def test_without_alignment_participants_do_not_agree() -> None:
    apart, common = run("i-gdp"), run("c-gdp")
    assert np.allclose(apart.aligned[0], common.aligned[0])
    assert not np.allclose(apart.aligned[1], common.aligned[1])


@pytest.mark.parametrize("method", METHODS)
def test_common_maps_are_the_reference_s_and_own_maps_are_one_s_own(method: str) -> None:
    together = run(method, reference=1)
    maps = {secret.orthogonal.tobytes() for secret in together.secrets}
    assert len(maps) == (1 if METHODS[method].transform == "common" else 4)
    assert np.array_equal(together.secrets[1].orthogonal, run("i-gdp").secrets[1].orthogonal)


def test_the_reference_keeps_its_own_coordinates() -> None:
    together = run("aa-i-gdp", reference=2)
    assert np.allclose(together.aligned[2], together.uploads[2].representation, atol=1e-13)


@pytest.mark.parametrize("solver", ["accelerated", "gpm", "spectral"])
def test_the_solver_can_be_chosen(solver: str) -> None:
    together = run("aa-i-gdp-anchor-noise", anchor_noise_scale=0.01, solver=solver)
    assert (together.alignment.termination is Termination.SPECTRAL_ONLY) == (solver == "spectral")


def test_a_certificate_can_be_asked_for() -> None:
    noisy = {"method": "aa-i-gdp-anchor-noise", "anchor_noise_scale": 0.01}
    assert run(**noisy).alignment.certificate is None
    assert run(**noisy, certify=True).alignment.certificate.certified


@pytest.mark.parametrize("method", METHODS)
def test_torch_gives_the_same_rows_up_to_one_rigid_map(method: str, torch: ModuleType) -> None:
    """Procrustes leaves one common orthogonal map open, so distances are what two libraries must agree on."""
    expected = run(method, **scales(method)).collaboration_matrix
    data, anchor = [torch.as_tensor(part) for part in DATA], torch.as_tensor(ANCHOR)
    matrix = run(method, private_data=data, anchor=anchor, **scales(method)).collaboration_matrix
    assert isinstance(matrix, torch.Tensor)
    assert np.allclose(pdist(to_numpy(matrix)), pdist(expected), atol=1e-7)


def test_the_printed_form_shows_no_secrets() -> None:
    assert "secrets" not in repr(run("c-gdp"))


def test_no_participants_are_refused(refused: Refused) -> None:
    refused(lambda: run("c-gdp", private_data=[]), what="private_data", expected="at least one participant", got="none")


def test_one_participant_can_share_but_not_align(refused: Refused) -> None:
    assert run("c-gdp", private_data=DATA[:1]).collaboration_matrix.shape == (6, 3)
    refused(
        lambda: run("aa-i-gdp", private_data=DATA[:1]),
        what="anchor_representations",
        expected="at least two participants",
        got="1",
    )


@pytest.mark.parametrize("reference", [-1, 4])
def test_a_reference_that_does_not_take_part_is_refused(reference: int, refused: Refused) -> None:
    refused(
        lambda: run("aa-i-gdp", reference=reference),
        what="reference",
        expected="a participant's index, 0 to 3",
        got=str(reference),
    )


@pytest.mark.parametrize("method", ["c-gdp", "i-gdp", "aa-i-gdp"])
def test_participants_of_different_width_are_refused(method: str, refused: Refused) -> None:
    refused(
        lambda: run(method, private_data=[DATA[0], np.ones((4, 2))]),
        what="private_data",
        expected="matrices of one width",
        got="(4, 2)",
    )


def test_an_unknown_method_is_refused(refused: Refused) -> None:
    refused(lambda: run("gdp"), what="method", expected="one of", got="'gdp'")
