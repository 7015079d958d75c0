"""A simulated collaboration: what it holds, what it refuses, and that no data, however poor, breaks an attack."""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from mooring import METHODS, RigidMap, SimulationSettings, Streams, Termination, make_anchor
from mooring.attacks import DENOISERS, CollusionView, DoesNotApply, attacks_on, run
from mooring.audit.rotation.simulation import RowSimulation, simulate, simulate_rows
from mooring.geometry.backend import to_numpy
from mooring.mechanisms.rotation.projection import gaussian_projection, no_projection

Refused = Callable[..., None]
SIZES = (12, 9, 15)
RNG = np.random.default_rng(0)
ROWS = [RNG.standard_normal((n, 4)) * [3, 2, 1, 1] + 1 for n in SIZES]
LABELS = [RNG.integers(0, 2, n) for n in SIZES]


def simulated(method: str = "aa-i-gdp", **options: Any) -> RowSimulation:
    stated = {
        "datasets": ROWS,
        "labels": LABELS,
        "n_components": 4,
        "anchor_noise_scale": 0.1 if METHODS[method].anchor_noise else 0.0,
        "data_noise_scale": 0.2 if METHODS[method].data_noise else 0.0,
        "rng": np.random.default_rng(1),
    }
    return simulate(method=method, **stated | options)


@pytest.mark.parametrize("method", METHODS)
def test_a_simulation_holds_every_part(method: str) -> None:
    simulation = simulated(method)
    assert simulation.method is METHODS[method]
    assert [upload.representation.shape for upload in simulation.uploads] == [part.shape for part in ROWS]
    assert all(isinstance(secret, RigidMap) for secret in simulation.secrets)
    assert len(simulation.secrets) == 3
    assert (simulation.alignment is None) == (not METHODS[method].uses_anchor)
    assert simulation.collaboration_matrix.shape == (36, 4)
    assert [part.shape for part in simulation.aligned] == [part.shape for part in ROWS]
    assert (simulation.anchor is None) == (not METHODS[method].uses_anchor)
    if METHODS[method].uses_anchor:
        assert simulation.anchor.shape == (16, 4)
        assert simulated(method, settings=SimulationSettings(n_anchor_rows=7)).anchor.shape == (7, 4)
    assert all(np.array_equal(part, rows) for part, rows in zip(simulation.records, ROWS, strict=True))
    assert all(np.array_equal(part, rows) for part, rows in zip(simulation.labels, LABELS, strict=True))
    assert not {"streams", "secrets", "uploads"} & set(re.findall(r"(\w+)=", repr(simulation)))


@pytest.mark.parametrize("method", METHODS)
def test_what_is_attacked_is_the_definition_of_the_mechanism(method: str) -> None:
    """Y = X O + 1 Ψᵀ + σ W, B = A O + 1 Ψᵀ + v W' in plain NumPy, with the noise of each participant's own stream."""
    simulation, streams = simulated(method), simulated(method).streams
    for i, (X, upload) in enumerate(zip(ROWS, simulation.view().uploads, strict=True)):
        O, psi = simulation.secrets[i].orthogonal, simulation.secrets[i].translation
        noise = streams.named(f"participant/{i}/noise")
        W = noise.standard_normal(X.shape) if METHODS[method].data_noise else 0 * X
        if METHODS[method].transform == "common":  # coupled to what the participant would add under a map of its own
            W = W @ RigidMap.sample(4, rng=streams.named(f"participant/{i}/transform")).orthogonal.T @ O
        np.testing.assert_allclose(upload.representation, X @ O + psi + 0.2 * W, atol=1e-12)
        if METHODS[method].uses_anchor:
            V = noise.standard_normal((16, 4)) if METHODS[method].anchor_noise else np.zeros((16, 4))
            np.testing.assert_allclose(upload.anchor_representation, simulation.anchor @ O + psi + 0.1 * V, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_a_simulation_repeats_with_its_generator_and_not_with_another(method: str) -> None:
    first, again, other = (simulated(method, rng=np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first.collaboration_matrix, again.collaboration_matrix)
    assert not np.allclose(first.collaboration_matrix, other.collaboration_matrix)
    first_view, two = (s.view(n_known_rows=4, n_repeated_uploads=2) for s in (first, again))
    assert np.array_equal(first_view.known_rows, two.known_rows)
    for upload, same in zip(first_view.repeated_uploads, two.repeated_uploads, strict=True):
        assert np.array_equal(upload.representation, same.representation)


def test_two_simulations_from_one_generator_differ() -> None:
    rng = np.random.default_rng(3)
    first, second = simulated(rng=rng), simulated(rng=rng)
    assert not np.allclose(first.secrets[0].orthogonal, second.secrets[0].orthogonal)


def test_all_features_go_as_they_are_and_fewer_through_a_gaussian_projection() -> None:
    whole, fewer = simulated(), simulated(n_components=3)
    assert (whole.projection.kind, fewer.projection.kind) == ("none", "gaussian")
    assert all(np.array_equal(rows, part) for rows, part in zip(whole.private_data, ROWS, strict=True))
    for rows, part in zip(fewer.private_data, ROWS, strict=True):
        assert np.allclose(rows, part @ fewer.projection.matrix)
    projection = gaussian_projection(4, 2, rng=np.random.default_rng(4))
    assert np.array_equal(
        simulated(n_components=2, settings=SimulationSettings(projection=projection)).projection.matrix,
        projection.matrix,
    )


@pytest.mark.parametrize(
    ("method", "v", "sigma", "becomes"),
    [
        ("aa-i-gdp", 0.1, 0.0, "aa-i-gdp-both-noise"),
        ("aa-i-gdp", 0.0, 0.1, "aa-i-gdp-both-noise"),
        ("aa-i-gdp-data-noise", 0.1, 0.1, "aa-i-gdp-both-noise"),
        ("aa-i-gdp-anchor-noise", 0.1, 0.1, "aa-i-gdp-both-noise"),
        ("c-gdp", 0.0, 0.1, "c-gdp-data-noise"),
        ("aa-i-gdp", 0.0, 0.0, "aa-i-gdp"),
        ("aa-i-gdp-anchor-noise", 0.0, 0.0, "aa-i-gdp-anchor-noise"),
        ("i-gdp", 0.0, 0.0, "i-gdp"),
    ],
)
def test_a_method_given_a_noise_it_lacks_becomes_one_that_has_it(
    method: str, v: float, sigma: float, becomes: str
) -> None:
    simulation = simulated(method, anchor_noise_scale=v, data_noise_scale=sigma)
    assert simulation.method is METHODS[becomes]
    view = simulation.view()
    assert (view.anchor_noise_scale, view.data_noise_scale) == (v, sigma)
    secret, upload = simulation.secrets[1], simulation.uploads[1]
    assert np.allclose(upload.representation, secret.apply(ROWS[1])) == (sigma == 0)
    if simulation.anchor is not None:
        assert np.allclose(upload.anchor_representation, secret.apply(simulation.anchor)) == (v == 0)


@pytest.mark.parametrize(("method", "v", "sigma"), [("i-gdp", 0.1, 0.0), ("i-gdp", 0.0, 0.1), ("c-gdp", 0.1, 0.0)])
def test_noise_that_no_such_method_has_is_refused(method: str, v: float, sigma: float, refused: Refused) -> None:
    call = partial(simulated, method, anchor_noise_scale=v, data_noise_scale=sigma)
    refused(call, "method", "one with the requested noise", method)


@pytest.mark.parametrize("scale", [-0.1, float("nan")])
@pytest.mark.parametrize("name", ["anchor_noise_scale", "data_noise_scale"])
@pytest.mark.parametrize("method", METHODS)
def test_noise_scales_that_are_not_are_refused(method: str, name: str, scale: float, refused: Refused) -> None:
    refused(lambda: simulated(method, **{name: scale}), name, "zero or more, and finite", str(scale))


@pytest.mark.parametrize(
    ("options", "what", "expected", "got"),
    [
        ({"target": -1}, "target", "0 to 2", "-1"),
        ({"target": 3}, "target", "0 to 2", "3"),
        ({"colluders": (1,)}, "colluders", "other than the target", "1, among"),
        ({"colluders": (0, 1)}, "colluders", "other than", "1, among them"),
        ({"colluders": (3,)}, "colluders", "0 to 2", "[3]"),
        ({"colluders": (-1,)}, "colluders", "0 to 2", "[-1]"),
        ({"colluders": (0, 0)}, "colluders", "distinct", "[0, 0]"),
        ({"n_known_rows": -1}, "n_known_rows", "between 0 and the target's 9 rows", "-1"),
        ({"n_known_rows": 10}, "n_known_rows", "between 0 and the target's 9 rows", "10"),
    ],
)
def test_views_that_cannot_be_are_refused(
    options: dict[str, Any], what: str, expected: str, got: str, refused: Refused
) -> None:
    refused(lambda: simulated().view(**options), what, expected, got)


WIDER, NARROWER = (SimulationSettings(projection=no_projection(width)) for width in (4, 3))


@pytest.mark.parametrize(
    ("options", "what", "expected", "got"),
    [
        ({"datasets": []}, "datasets", "at least one", "none"),
        ({"datasets": [ROWS[0], ROWS[1][:, :3]], "labels": None}, "datasets", "of one width", "(12, 4), (9, 3)"),
        ({"datasets": [ROWS[0][0]], "labels": None}, "datasets", "matrices of one width", ""),
        ({"datasets": [ROWS[0], ROWS[0][0]], "labels": None}, "datasets", "matrices of one width", ""),
        ({"labels": LABELS[:2]}, "labels", "[12, 9, 15]", "12, 9"),
        ({"labels": [*LABELS[:2], LABELS[2][:-1]]}, "labels", "[12, 9, 15]", "12, 9"),
        ({"labels": [*LABELS, LABELS[0]]}, "labels", "[12, 9, 15]", "12, 9"),
        ({"settings": WIDER, "n_components": 3}, "projection", "n_components = 3", "onto 4"),
        ({"settings": NARROWER, "n_components": 3}, "rows", "", ""),
        ({"n_components": 5}, "n_components", "", "5"),
    ],
)
def test_bad_input_is_refused(options: dict[str, Any], what: str, expected: str, got: str, refused: Refused) -> None:
    refused(lambda: simulated(**options), what, expected, got)


def test_an_unknown_method_is_refused(refused: Refused) -> None:
    call = partial(simulate, ROWS, method="AA-I-GDP", n_components=4, rng=np.random.default_rng(0))
    refused(call, "method", "one of", "AA-I-GDP")


def test_labels_may_be_known_of_some_participants_only() -> None:
    simulation = simulated(labels=[LABELS[0], None, LABELS[2]])
    assert simulation.labels[1] is None
    assert simulated(labels=None).labels == (None,) * 3
    assert simulation.view(with_labels=False).labels == (None,) * 3


def test_a_view_shows_what_was_asked_for_and_no_more() -> None:
    simulation = simulated()
    view = simulation.view(colluders=(2,), target=0, n_known_rows=3, n_repeated_uploads=2)
    assert view.target == 0
    assert view.target_upload is simulation.uploads[0]
    (colluder,) = view.colluders
    assert colluder.index == 2
    assert np.array_equal(colluder.records, ROWS[2])
    assert np.array_equal(colluder.rows, simulation.private_data[2])
    assert np.array_equal(view.reference_rows, simulation.private_data[2])
    assert view.known_rows.shape == (3, 4)
    assert all(np.abs(ROWS[0] - row).max(axis=1).min() == 0 for row in view.known_rows)
    plain = simulation.view()
    assert plain.known_rows is None
    assert plain.repeated_uploads == ()
    assert simulation.view(colluders=()).reference_rows is None
    both = simulation.view(colluders=(2, 0))
    assert np.array_equal(both.reference_rows, np.concatenate([ROWS[2], ROWS[0]]))


@pytest.mark.parametrize("method", METHODS)
def test_a_repeated_upload_has_the_same_rows_under_a_fresh_map_and_fresh_noise(method: str) -> None:
    simulation = simulated(method)
    first, (second, third) = simulation.uploads[1], simulation.view(n_repeated_uploads=2).repeated_uploads

    def distances(rows: np.ndarray) -> np.ndarray:
        return np.linalg.norm(rows[:, None] - rows[None], axis=-1)

    kind = METHODS[method]
    for upload, other in ((first, second), (second, third), (first, third)):
        same_map = kind.transform == "common" and not kind.data_noise
        assert np.allclose(upload.representation, other.representation) == same_map
        same_distances = np.allclose(distances(upload.representation), distances(other.representation))
        assert same_distances == (not kind.data_noise)
        if kind.uses_anchor:
            distances_of_anchor, two = distances(upload.anchor_representation), distances(other.anchor_representation)
            assert np.allclose(distances_of_anchor, two) == (not kind.anchor_noise)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_components", [4, 3])
def test_rows_scored_locally_land_where_the_same_rows_landed_in_training(method: str, n_components: int) -> None:
    simulation = simulated(method, data_noise_scale=0.0, n_components=n_components)
    scored = [simulation.map_new_rows(i, rows) for i, rows in enumerate(ROWS)]
    assert np.allclose(np.concatenate(scored), simulation.collaboration_matrix, atol=1e-12)
    few = simulation.map_new_rows(1, ROWS[1][:2])
    assert np.allclose(few, scored[1][:2], atol=1e-12)


def test_local_scoring_adds_noise_when_asked() -> None:
    rows = np.tile(ROWS[0], (500, 1))
    simulation = simulated()
    noise = simulation.map_new_rows(2, rows, data_noise_scale=0.5) - simulation.map_new_rows(2, rows)
    assert noise.std() == pytest.approx(0.5, rel=0.03)
    other = simulation.map_new_rows(1, rows, data_noise_scale=0.5) - simulation.map_new_rows(1, rows)
    assert abs(np.corrcoef(noise.ravel(), other.ravel())[0, 1]) < 0.03


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_components", [4, 3])
def test_torch_gives_torch_with_the_same_numbers(method: str, n_components: int, torch: ModuleType) -> None:
    expected = simulated(method, n_components=n_components)
    tensors = [torch.as_tensor(rows) for rows in ROWS]
    labels = [torch.as_tensor(part) for part in LABELS]
    got = simulated(method, n_components=n_components, datasets=tensors, labels=labels)
    assert isinstance(got.collaboration_matrix, torch.Tensor)
    spaces = [s.collaboration_matrix - s.collaboration_matrix.mean(axis=0) for s in (expected, got)]
    common, same_common = (to_numpy(space @ space.T) for space in spaces)  # alignment leaves a common turn open
    assert np.allclose(same_common, common, rtol=0, atol=1e-4)
    view, same = (s.view(n_known_rows=3, n_repeated_uploads=1) for s in (got, expected))
    assert isinstance(view.known_rows, torch.Tensor)
    assert np.allclose(to_numpy(view.known_rows), same.known_rows)
    assert np.allclose(
        to_numpy(view.repeated_uploads[0].representation), same.repeated_uploads[0].representation, atol=1e-9
    )
    assert all(np.array_equal(a, b) for a, b in zip(view.class_codes(), same.class_codes(), strict=True))
    scored = got.map_new_rows(1, ROWS[1])
    assert isinstance(scored, torch.Tensor)
    if not METHODS[method].data_noise:
        assert np.allclose(to_numpy(scored), to_numpy(got.collaboration_matrix)[12:21], atol=1e-9)


# ------------------------------------------------------------------------------- matched methods, from data to matrix

DATA = [RNG.standard_normal((n_rows, 3)) for n_rows in (6, 4, 9, 5)]
ANCHOR = make_anchor(12, 3, rng=RNG)


def run_with(method: str, *, v: float = 0.0, sigma: float = 0.0, rows: Any = DATA, **settings: Any) -> RowSimulation:
    """One set of streams for all, so that methods are matched."""
    kept = SimulationSettings(**{"anchor": ANCHOR} | settings)
    streams = Streams.for_experiment(seed=11)
    return simulate(rows, method=method, anchor_noise_scale=v, data_noise_scale=sigma, rng=streams, settings=kept)


def scales(method: str, *, data: float = 0.3, anchor: float = 0.02) -> dict[str, float]:
    return {"sigma": data if METHODS[method].data_noise else 0.0, "v": anchor if METHODS[method].anchor_noise else 0.0}


@pytest.mark.parametrize("method", METHODS)
def test_distances_within_one_participant_survive_but_for_its_data_noise(method: str) -> None:
    together = run_with(method, **scales(method, data=0.0))
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
    expected, got = run_with(corner, **options), run_with(method, **options)
    assert np.array_equal(expected.collaboration_matrix, got.collaboration_matrix)


def test_both_noises_without_anchor_noise_are_private_data_noise_but_for_the_alignment() -> None:
    """The same uploads; Procrustes puts the common space elsewhere than the reference does, by one rigid map."""
    expected, got = (run_with(name, sigma=0.3) for name in ("aa-i-gdp-data-noise", "aa-i-gdp-both-noise"))
    for upload, other in zip(expected.uploads, got.uploads, strict=True):
        assert np.array_equal(upload.representation, other.representation)
        assert np.array_equal(upload.anchor_representation, other.anchor_representation)
    gauge = expected.alignment.maps[0].inverse().compose(got.alignment.maps[0])
    assert np.allclose(gauge.apply(expected.collaboration_matrix), got.collaboration_matrix, atol=1e-10)


@pytest.mark.parametrize("reference", [0, 2])
@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_aligned_uploads_equal_those_under_one_common_map(reference: int, noise: float) -> None:
    """Exact equivalence, and its corollary for coupled private-data noise, whichever participant is the reference."""
    options = {"sigma": noise, "reference": reference}
    suffix = "-data-noise" if noise else ""
    aligned, common = run_with("aa-i-gdp" + suffix, **options), run_with("c-gdp" + suffix, **options)
    assert np.allclose(aligned.collaboration_matrix, common.collaboration_matrix, atol=1e-12)


def test_without_alignment_participants_do_not_agree() -> None:
    apart, common = run_with("i-gdp"), run_with("c-gdp")
    assert np.allclose(apart.aligned[0], common.aligned[0])
    assert not np.allclose(apart.aligned[1], common.aligned[1])


@pytest.mark.parametrize("method", METHODS)
def test_common_maps_are_the_reference_s_and_own_maps_are_one_s_own(method: str) -> None:
    together = run_with(method, reference=1)
    maps = {secret.orthogonal.tobytes() for secret in together.secrets}
    assert len(maps) == (1 if METHODS[method].transform == "common" else 4)
    assert np.array_equal(together.secrets[1].orthogonal, run_with("i-gdp").secrets[1].orthogonal)
    if METHODS[method].alignment == "reference":  # the reference keeps its own coordinates
        assert np.allclose(together.aligned[1], together.uploads[1].representation, atol=1e-13)


@pytest.mark.parametrize("solver", ["accelerated", "gpm", "spectral"])
def test_the_solver_can_be_chosen(solver: str) -> None:
    together = run_with("aa-i-gdp-anchor-noise", v=0.01, solver=solver)
    assert (together.alignment.termination is Termination.SPECTRAL_ONLY) == (solver == "spectral")


def test_a_certificate_can_be_asked_for() -> None:
    noisy = {"method": "aa-i-gdp-anchor-noise", "v": 0.01}
    assert run_with(**noisy).alignment.certificate is None
    assert run_with(**noisy, certify=True).alignment.certificate.certified


def test_one_participant_can_share_but_not_align(refused: Refused) -> None:
    assert run_with("c-gdp", rows=DATA[:1]).collaboration_matrix.shape == (6, 3)
    refused(lambda: run_with("aa-i-gdp", rows=DATA[:1]), "anchor_representations", "at least two participants", "1")


@pytest.mark.parametrize("reference", [-1, 4])
def test_a_reference_that_does_not_take_part_is_refused(reference: int, refused: Refused) -> None:
    refused(
        lambda: run_with("aa-i-gdp", reference=reference), "reference", "a participant's index, 0 to 3", str(reference)
    )


# ------------------------------------------------------------------------------------------ poor data breaks no attack


def poor_data() -> dict[str, tuple[list[np.ndarray], list[np.ndarray | None]]]:
    rng = np.random.default_rng(5)

    def rows(*sizes: int) -> list[np.ndarray]:
        return [rng.gamma(2.0, 1.0, (n, 4)) * [3, 2, 1, 0.5] for n in sizes]

    def labels(parts: list[np.ndarray], n_classes: int = 2) -> list[np.ndarray]:
        return [rng.integers(0, n_classes, len(part)) for part in parts]

    plain = rows(40, 40, 40)
    flat = [part * [1, 0, 1, 1] + [0, 7, 0, 0] for part in plain]
    alike = [np.ones_like(part) for part in plain]
    few, one_row, thin_colluder = rows(4, 3, 4), rows(40, 1, 40), rows(1, 40, 40)
    tags = labels(plain)
    return {
        "one class": (plain, [np.zeros(40, dtype=int)] * 3),
        "a class of its own for every row": (plain, [np.arange(40)] * 3),
        "constant column": (flat, tags),
        "all rows alike": (alike, tags),
        "all rows zero": ([0 * part for part in plain], tags),
        "a colluder's rows alike": ([alike[0], *plain[1:]], tags),
        "the target's rows alike": ([plain[0], alike[1], plain[2]], tags),
        "no more rows than components": (few, labels(few)),
        "a target of one row": (one_row, labels(one_row)),
        "a colluder of one row": (thin_colluder, labels(thin_colluder)),
        "a colluder with no class in common": (plain, [tags[0] + 5, *tags[1:]]),
        "another participant with no class in common": (plain, [*tags[:2], tags[2] + 5]),
        "a colluder without labels": (plain, [None, *tags[1:]]),
        "a target without labels": (plain, [tags[0], None, tags[2]]),
        "another participant without labels": (plain, [*tags[:2], None]),
        "one-hot rows": ([np.eye(4)[rng.integers(0, 4, 40)] for _ in range(3)], tags),
        "rows that repeat": ([np.repeat(part[:10], 4, axis=0) for part in plain], tags),
        "one column": ([part[:, :1] for part in plain], tags),
        "huge values": ([1e8 * part for part in plain], tags),
        "tiny values": ([1e-8 * part for part in plain], tags),
        "far from the origin": ([part + 1e6 for part in plain], tags),
        "two participants": (plain[:2], tags[:2]),
    }


POOR = poor_data()
HARD = ("i-gdp", "aa-i-gdp-both-noise")


@pytest.mark.parametrize("method", HARD)
@pytest.mark.parametrize("case", POOR)
def test_poor_data_give_a_result_or_a_reason(case: str, method: str) -> None:
    rows, labels = POOR[case]
    simulation = simulated(method, datasets=rows, labels=labels, n_components=rows[0].shape[1])
    known = min(5, len(rows[1]))
    for options in ({}, {"colluders": (), "n_known_rows": known, "n_repeated_uploads": 1}):
        view = simulation.view(**options)
        for attack in attacks_on(CollusionView):
            results = []
            with suppress(DoesNotApply):
                results.append(run(attack, view, rng=np.random.default_rng(0)))
            for denoise in DENOISERS.values() if results else ():
                with suppress(DoesNotApply):
                    results.append(denoise(results[0], view, rng=np.random.default_rng(0)))
            for result in results:
                assert result.rows.shape == rows[1].shape
                assert np.isfinite(result.rows).all()


@pytest.mark.parametrize("scale", [0.0, 0.3])
def test_rows_that_another_mechanism_perturbs_are_uploaded_in_their_own_space(scale: float) -> None:
    noisy = [part + scale for part in ROWS]
    simulation = simulate_rows(
        ROWS, noisy, LABELS, rng=np.random.default_rng(0), name="shuffled", data_noise_scale=scale
    )
    view = simulation.view()
    assert (view.method.name, view.method.anchor_noise, view.method.data_noise) == ("shuffled", False, scale > 0)
    assert (view.anchor_noise_scale, view.data_noise_scale) == (0.0, scale)
    assert (view.method.transform, view.alignment, view.anchor) == ("common", None, None)
    np.testing.assert_array_equal(simulation.collaboration_matrix, np.concatenate(noisy))
    np.testing.assert_array_equal(simulation.secrets[1].apply(ROWS[1]), ROWS[1])
    np.testing.assert_array_equal(view.colluders[0].rows, ROWS[0])
    assert view.target == 1


def test_rows_of_other_shapes_than_the_perturbed_ones_are_refused(refused: Refused) -> None:
    call = partial(simulate_rows, ROWS, [*ROWS[:2], ROWS[2][:3]], rng=np.random.default_rng(0))
    refused(call, "representations", "arrays with the shapes of `datasets`", "(3, 4)")
