"""One deployment of an image study: rows, noise, alignments, attacks and measures are what they are said to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mooring_studies.images import leakage
from mooring_studies.images.deployment import LABELLED, SPLITS, Deployment, Levels
from mooring_studies.images.evaluator import Decoder, ImageEvaluator
from mooring_studies.images.leakage import Attacker
from mooring_studies.images.representations import (
    AlignedDraws,
    aligned_draws,
    aligned_rows,
    coupled_draws,
    data_noise,
)
from mooring_studies.roles import COLLUDER, TARGET

from mooring import attacks
from mooring.attacks import CollusionView
from mooring.audit import SimulationSettings, simulate
from mooring.mechanisms import ArrayNoise, UploadNoise
from mooring.metrics import Galleries, build_galleries
from mooring.randomness import Streams
from tests.studies.support import image_deployment, image_evaluator

torch = pytest.importorskip("torch")
H, R = 16, 40
SIZES = {"train": 60, "validation": 9, "test": 36}
STREAMS = Streams.for_experiment(8)
SCALES = np.array([0.05, 0.12, 0.3])
ANCHORED = "aa-i-gdp-anchor-noise"


def deployment_of(p: int = 3) -> Deployment:
    return image_deployment(p, H, SIZES, n_anchor_rows=R, streams=STREAMS)


def auditing_of(deployment: Deployment) -> ImageEvaluator:
    galleries = build_galleries(deployment.labels[deployment.query_places], seed=2)
    return image_evaluator(deployment.rows[deployment.query_places], galleries, shown=np.arange(4))


def attacker_on(deployment: Deployment, **options: Any) -> Attacker:
    return Attacker(deployment, auditing_of(deployment), **options)


def aligned(deployment: Deployment, scales: Any = SCALES, draws: Any = (0, 1, 2)) -> AlignedDraws:
    return aligned_draws(deployment, np.asarray(scales), list(draws), solver="gpm", max_iterations=500, tolerance=1e-7)


def on_noisy_anchor(
    attacker: Attacker, draws: AlignedDraws, *, strong: Any = (True,) * 3, sigma: float = 0.0, **changes: Any
) -> Any:
    uploads = attacker.deployment.uploaded()
    labelled = uploads[attacker.labelled_places]
    options = {
        "method": ANCHORED,
        "queries": uploads[attacker.deployment.query_places],
        "uploaded_rows": lambda _: labelled,
        "draws": list(range(len(SCALES))),
    } | changes
    levels = Levels(SCALES, np.full(len(SCALES), sigma), np.array(strong))
    return attacker.on_noisy_anchor(aligned=draws, levels=levels, **options)


@pytest.fixture
def rebuilt(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], Any]:
    """What attacks rebuild, by attack and draw, in full precision."""
    seen: dict[tuple[str, int], Any] = {}
    add = leakage.Findings.add

    def record(self: Any, attack: str, rows: Any, draws: Any) -> None:
        seen.update({(attack, int(draw)): rows[k] for k, draw in enumerate(draws)})
        add(self, attack, rows, draws)

    monkeypatch.setattr(leakage.Findings, "add", record)
    return seen


def distances(rows: Any) -> Any:
    """Return the distances from every tenth row to all rows, which no rigid map changes."""
    return torch.cdist(rows[::10], rows, compute_mode="donot_use_mm_for_euclid_dist")


def norm(values: Any) -> float:
    return float(torch.linalg.norm(values))


# ------------------------------------------------------------------------------------------------------- deployment


def test_secrets_and_anchor_do_not_depend_on_who_else_takes_part() -> None:
    few, many = deployment_of(3), deployment_of(5)
    assert torch.equal(few.maps.orthogonal, many.maps.orthogonal[:3])
    assert torch.equal(few.maps.translation, many.maps.translation[:3])
    assert torch.equal(few.anchor, many.anchor)
    assert norm(many.maps.orthogonal[3] - many.maps.orthogonal[4]) > 1


def test_uploads_are_everybodys_own_map_or_the_colluders_for_all() -> None:
    deployment = deployment_of()
    uploads, common = deployment.uploaded(), deployment.uploaded(common=True)
    for i in range(3):
        where = deployment.own("validation", i)
        for uploaded, j in ((uploads, i), (common, COLLUDER)):
            expected = deployment.rows[where] @ deployment.maps.orthogonal[j] + deployment.maps.translation[j]
            torch.testing.assert_close(uploaded[where], expected, rtol=0, atol=1e-12)
        expected = deployment.anchor @ deployment.maps.orthogonal[i] + deployment.maps.translation[i]
        torch.testing.assert_close(deployment.anchor_uploads()[i], expected, rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------------------------ noise


def test_noise_on_rows_is_a_participants_own_whoever_else_takes_part() -> None:
    few, many = deployment_of(3), deployment_of(5)
    here, there = data_noise(few, 7), data_noise(many, 7)
    for split in SPLITS:
        for i in range(3):
            assert torch.equal(here[few.own(split, i)], there[many.own(split, i)])
    assert norm(here - data_noise(few, 8)) > 1
    assert abs(norm(here) / np.sqrt(here.numel()) - 1) < 0.1
    assert len(torch.unique(here)) == here.numel()  # no two pieces from one stream


def test_noise_on_anchors_is_the_same_alone_among_others_and_with_more_participants() -> None:
    deployment = deployment_of(3)
    together, alone = aligned(deployment, SCALES, (2, 4, 9)), aligned(deployment, SCALES[1:2], (4,))
    assert torch.equal(together.target_anchor[1], alone.target_anchor[0])
    with_more = aligned(deployment_of(5), SCALES[1:2], (4,))
    assert torch.equal(with_more.target_anchor[0], alone.target_anchor[0])
    W = (alone.target_anchor[0] - deployment.anchor_uploads()[TARGET]) / SCALES[1]
    assert abs(norm(W) / np.sqrt(W.numel()) - 1) < 0.1


# -------------------------------------------------------------------------------------------------- representations


def test_coupled_methods_coincide_at_every_noise_and_without_it_are_clean() -> None:
    deployment, scales = deployment_of(), np.array([0.0, 0.3, 5.0, 80.0])
    coupled = coupled_draws(deployment, scales, [3, 0, 1, 2])
    assert coupled.discrepancy.max() < 1e-12
    for k, (sigma, draw) in enumerate(zip(scales, [3, 0, 1, 2], strict=True)):
        assert norm(coupled.anchored[k] - coupled.common[k]) < 1e-5 * norm(coupled.common[k])
        expected = deployment.uploaded(common=True) + sigma * data_noise(deployment, draw)
        torch.testing.assert_close(coupled.common[k].double(), expected, rtol=1e-6, atol=1e-5)
        torch.testing.assert_close(coupled.target_common[k], expected[deployment.query_places], rtol=0, atol=1e-10)
        uploads = deployment.uploaded()[deployment.query_places]
        noise = coupled.target_anchored[k] - uploads
        assert norm(noise) == pytest.approx(norm(sigma * data_noise(deployment, draw)[deployment.query_places]))
    assert torch.equal(coupled.common[0], coupled.common_clean)
    torch.testing.assert_close(coupled.anchored[0], coupled.anchored_clean)
    torch.testing.assert_close(coupled.anchored_clean, coupled.common_clean, rtol=1e-5, atol=1e-5)


def test_alignment_without_noise_leaves_everybodys_rows_where_a_common_map_would() -> None:
    deployment = deployment_of()
    Z = aligned_rows(deployment, deployment.uploaded(), aligned(deployment, [0.0], [0]))
    assert Z.dtype == torch.float32
    torch.testing.assert_close(distances(Z[0].double()), distances(deployment.rows), rtol=1e-5, atol=1e-4)
    noisy = aligned_rows(deployment, deployment.uploaded(), aligned(deployment, [0.3], [0]))
    assert norm(distances(noisy[0].double()) - distances(deployment.rows)) > 0.01 * norm(distances(deployment.rows))


def test_a_batch_of_draws_is_aligned_as_one_draw_at_a_time() -> None:
    deployment = deployment_of()
    together = aligned(deployment)
    uploads = deployment.uploaded()
    rows = aligned_rows(deployment, uploads, together)
    for k in range(len(SCALES)):
        alone = aligned(deployment, SCALES[k : k + 1], [k])
        for name in ("target_anchor", "orthogonals", "origins"):
            torch.testing.assert_close(getattr(together, name)[k], getattr(alone, name)[0], rtol=0, atol=1e-8)
            assert torch.equal(getattr(together.only(k), name)[0], getattr(together, name)[k])
        for name in ("iterations", "converged"):
            assert together.diagnostics[k][name] == alone.diagnostics[0][name]
        torch.testing.assert_close(rows[k], aligned_rows(deployment, uploads, together.only(k))[0])
        for split, i, where in deployment.blocks():
            expected = (uploads[where] - together.origins[k, i]) @ together.orthogonals[k, i]
            torch.testing.assert_close(rows[k, where].double(), expected, rtol=1e-5, atol=1e-5, msg=split)
    assert together.diagnostics[0]["iterations"] > 0
    assert all(diagnostic["solver_seconds"] > 0 for diagnostic in together.diagnostics)


# ---------------------------------------------------------------------------------------------------------- leakage


@pytest.mark.parametrize(("method", "attack"), [("c-gdp", "known-secret"), ("aa-i-gdp", "known-anchor")])
def test_a_known_map_gives_every_row_back_without_noise(method: str, attack: str) -> None:
    deployment = deployment_of()
    uploads = deployment.uploaded(common=method == "c-gdp")[deployment.query_places]
    quiet = Levels(np.zeros(1), np.zeros(1), np.ones(1, dtype=bool))
    audit = attacker_on(deployment).on_known_map(method, uploads[None], quiet).audit()
    assert audit.columns[0][f"error:{attack}"] < 1e-12
    assert audit.columns[0][f"match:{attack}"] == audit.columns[0][f"linkage:{attack}"] == 1
    assert set(audit.columns[0]) == {f"{kind}:{attack}" for kind in ("error", "match", "linkage")}  # nothing to denoise


def test_the_papers_attacks_in_a_batch_are_those_on_each_draw(rebuilt: dict[tuple[str, int], Any]) -> None:
    deployment = deployment_of()
    attacker, draws = attacker_on(deployment), aligned(deployment)
    on_noisy_anchor(attacker, draws, strong=[False] * 3)
    places = [deployment.own("train", 0), deployment.query_places, deployment.own("train", 2)]
    for k, v in enumerate(SCALES):
        noise = [STREAMS.named(f"anchor-noise/{k}/{i}").standard_normal((R, H)) for i in range(3)]
        secrets = [(deployment.map_of(i), UploadNoise(anchor=ArrayNoise(W))) for i, W in enumerate(noise)]
        view = simulate(
            [deployment.rows[where] for where in places],
            [deployment.labels[where] for where in places],
            method=ANCHORED,
            anchor_noise_scale=float(v),
            rng=STREAMS,
            settings=SimulationSettings(anchor=deployment.anchor, secrets=secrets, solver="gpm"),
        ).view(colluders=[COLLUDER], target=TARGET)
        for attack in ("procrustes", "pseudoinverse", "alignment-map"):
            alone = attacks.run(attack, view, rng=np.random.default_rng(0)).rows
            torch.testing.assert_close(rebuilt[attack, k], alone, rtol=0, atol=1e-8, msg=attack)


def test_the_attacker_looks_at_all_rows_that_it_has_and_at_no_label_that_it_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment = deployment_of()
    seen: list[CollusionView] = []
    batch = leakage.run_attack_batch

    def record(name: str, views: Any, *, rng: Any) -> Any:
        seen.extend(views if name == "moments" else ())
        return batch(name, views, rng=rng)

    monkeypatch.setattr(leakage, "run_attack_batch", record)
    attacker = attacker_on(deployment)
    on_noisy_anchor(attacker, aligned(deployment), strong=[True, False, False])
    (view,) = seen
    sizes = {split: deployment.sizes[split] for split in SPLITS}
    assert len(view.target_upload.representation) == sizes["train"][TARGET] + sizes["validation"][TARGET]
    places_of_target = deployment.places(TARGET, LABELLED)
    np.testing.assert_array_equal(np.asarray(view.labels[TARGET]), deployment.labels[places_of_target])
    torch.testing.assert_close(view.target_upload.representation, deployment.uploaded()[places_of_target])
    (colluder,) = view.colluders
    assert len(colluder.rows) == sum(int(sizes[split][COLLUDER]) for split in SPLITS)
    torch.testing.assert_close(colluder.rows, deployment.rows[deployment.places(COLLUDER, SPLITS)])


def test_strong_attacks_run_on_strong_draws_and_are_nan_elsewhere() -> None:
    deployment = deployment_of()
    audit = on_noisy_anchor(attacker_on(deployment), aligned(deployment), strong=[True, False, True])
    for attack in ("moments", "moments+denoised", "procrustes+denoised"):
        for kind in ("match", "error"):
            assert [f"{kind}:{attack}" in columns for columns in audit.columns] == [True, False, True]
        assert np.isnan(audit.rebuilt[attack][1]).all()
        assert np.isfinite(audit.rebuilt[attack][[0, 2]]).all()
    for attack in ("procrustes", "pseudoinverse", "alignment-map"):
        assert all(f"error:{attack}" in columns for columns in audit.columns)
        assert np.isfinite(audit.rebuilt[attack]).all()
    # The rows themselves carry no anchor noise: matching them beats what a noisy anchor alone tells.
    assert audit.columns[2]["error:moments"] < audit.columns[2]["error:procrustes"]


# --------------------------------------------------------------------------------------------------------- evaluator


def hand_made(**changes: Any) -> ImageEvaluator:
    """Three queries in a plane. Gallery k shows query k beside one other: its true place is 0, 1, 0."""
    queries = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], dtype=torch.float64)
    galleries = Galleries(np.array([0, 1, 2]), np.array([[0, 1], [0, 1], [2, 0]]), np.array([0, 1, 0]), 0)
    return image_evaluator(queries, galleries, **changes)


def test_a_learned_decoder_adds_a_column_of_its_own_and_uses_its_offset() -> None:
    swap = Decoder(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    halfway = Decoder(-torch.eye(2), torch.ones(2))  # (x, y) to (1 − x, 1 − y): swapped in direction as well
    exact = hand_made().queries[None]
    for decoder in (swap, halfway):
        linkages = hand_made(learned_decoder=decoder).linkages("procrustes", exact)
        assert linkages["linkage:procrustes"] == 1.0
        assert linkages["linkage:procrustes+learned"] == pytest.approx(1 / 3)  # the query on the diagonal stays itself
    assert list(hand_made().linkages("procrustes", exact)) == ["linkage:procrustes"]


def test_exact_queries_are_always_linked_and_swapped_ones_never() -> None:
    evaluator = hand_made()
    exact = evaluator.queries
    swapped = exact[[1, 0, 0]]
    half = torch.stack([exact[0], exact[0], exact[2]])
    stacked = torch.stack([exact, swapped, half])
    np.testing.assert_allclose(evaluator.linkage(stacked), [1, 0, 2 / 3])
    np.testing.assert_allclose(evaluator.match(stacked), [1, 0, 2 / 3])
    assert evaluator.linkage(stacked).dtype == np.float64


# ------------------------------------------------------------------------------------------------------ strong draws
