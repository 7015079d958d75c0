"""The image studies' engine: each number is of the rows, the noise, the pool and the draw that it is said to be of."""

from __future__ import annotations

import inspect
import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from mooring_studies.data.faces import partition_faces
from mooring_studies.images import face_study, image_study
from mooring_studies.images.deployment import SPLITS, Deployment, PreparedDeployment, make_sum_rows
from mooring_studies.images.face_study import FaceStudy
from mooring_studies.images.image_study import ImageStudy
from mooring_studies.images.leakage import Attacker
from mooring_studies.images.representations import aligned_draws, aligned_rows, data_noise
from mooring_studies.images.row_writer import RowWriter
from mooring_studies.images.utility import scored
from mooring_studies.networks import DIGITS
from mooring_studies.roles import TARGET
from mooring_studies.settings.sections import SumLine
from mooring_studies.settings.spec import Spec, noise_draws, spec_from
from mooring_studies.storage.store import ResultStore

from mooring.attacks.procrustes import procrustes
from mooring.attacks.reconstruction import reconstruct
from mooring.geometry.rigid import RigidMap
from mooring.mechanisms.rotation.projection import public_svd_projection
from mooring.metrics import build_galleries
from mooring.randomness import Streams
from tests.studies.support import Counting, image_deployment, image_evaluator, stand_in_for_moments

torch = pytest.importorskip("torch")
P, H, R = 3, 4, 8
SIZES = {"train": 24, "validation": 7, "test": 15}
STREAMS = Streams.for_experiment(5)
ANCHORED, BOTH = "aa-i-gdp-anchor-noise", "aa-i-gdp-both-noise"
OTHER_NOISE = 10**6  # both noises together are other ones than either alone
RANGES = {
    "data": {"low": 0.2, "high": 0.8},
    "anchor": {"low": 0.05, "high": 0.5},
    "both": {"anchor_low": 0.05, "anchor_high": 0.5, "data_low": 0.2, "data_high": 0.8},
}
Row = dict[str, Any]


def deployment_of(p: int = P) -> Deployment:
    return image_deployment(p, H, SIZES, n_anchor_rows=R, streams=STREAMS)


def places_of(deployment: Deployment, participant: int, *splits: Any) -> Any:
    return np.r_[tuple(deployment.own(split, participant) for split in splits)]


def prepared_for(deployment: Deployment) -> PreparedDeployment:
    """An auditor that sees the projected rows themselves; pictures have four pixels."""
    queries = deployment.rows[deployment.query_places]
    galleries = build_galleries(np.zeros(len(queries)), n_candidates=5, seed=2)
    evaluator = image_evaluator(queries, galleries)
    return PreparedDeployment(
        deployment=deployment,
        evaluator=evaluator,
        architecture=DIGITS,
        identities_each=None,
        rms=1.0,
        pictures=np.zeros((3, 2, 2), dtype=np.uint8),
        picture_labels=np.arange(3),
        facts={},
    )


def spec_of(every: int = 8, **draws: int) -> Spec:
    """So many draws of each noise that is named, and none of another."""
    spec = spec_from(
        {
            "study": {"name": "small", "title": "Small", "kind": "digits"},
            "data": {"n_participants": P, "n_components": H, "n_anchor_rows": R},
            "noise": {kind: [{"count": draws.get(kind, 1), **levels}] for kind, levels in RANGES.items()},
            "attacks": {"every": every},
        }
    )
    return replace(spec, noise=replace(spec.noise, **{kind: () for kind in RANGES if kind not in draws}))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """No networks, and a quick stand-in for the slowest attack; what either is given is remembered."""
    seen = SimpleNamespace(trained=[], scored=[], moments=[], attacked=[])

    def train(rows: Any, *arguments: Any, **options: Any) -> None:
        seen.trained.append(rows.clone())

    def score(ensemble: Any, rows: Any, clean_rows: Any, deployment: Any) -> list[Row]:
        clean = rows if clean_rows is None else clean_rows.expand_as(rows)
        seen.scored.append((rows.clone(), clean.clone()))
        means = zip(rows.mean(dim=(1, 2)), clean.mean(dim=(1, 2)), strict=True)
        return [
            {"balanced_accuracy": float(mean), "balanced_accuracy_clean": float(without)} for mean, without in means
        ]

    def moments(view: Any, rng: Any) -> Any:
        seen.moments.append(view)
        if view.target_upload.anchor_representation is not None:
            return procrustes(view, rng=rng)
        centre = view.target_upload.representation.mean(dim=0)
        return reconstruct(view, RigidMap(torch.eye(H).double(), centre), row_error=torch.eye(H).double())

    signature = inspect.signature(Attacker.on_noisy_anchor)
    on_noisy_anchor = Attacker.on_noisy_anchor

    def attack(*arguments: Any, **options: Any) -> Any:
        seen.attacked.append(signature.bind(*arguments, **options).arguments)
        return on_noisy_anchor(*arguments, **options)

    monkeypatch.setattr(image_study, "trained", train)
    monkeypatch.setattr(image_study, "scored", score)
    monkeypatch.setattr(image_study, "without_protection", lambda deployment, groups, **options: [{} for _ in groups])
    stand_in_for_moments(monkeypatch, lambda view, *, rng: moments(view, rng))
    monkeypatch.setattr(Attacker, "on_noisy_anchor", attack)
    return seen


def run(
    folder: Path, spec: Spec, prepared: PreparedDeployment, *, reference_control: bool = True, **options: Any
) -> list[Row]:
    """All rows in the store after a run."""
    with ResultStore(folder, "key", {}) as store:
        writer = RowWriter(prepared, store, Counting(), 0, options.pop("keep_rebuilt", False))
        study = ImageStudy(spec, prepared, writer, reference_control=reference_control, **options)
        study.run()
        return store.rows()


def test_secure_sums_are_measured_at_each_epsilon_once(world: SimpleNamespace, tmp_path: Path) -> None:
    deployment = deployment_of()
    rows = {split: [deployment.rows[deployment.own(split, i)].numpy() for i in range(P)] for split in SPLITS}
    labels = {split: [deployment.labels[deployment.own(split, i)] for i in range(P)] for split in SPLITS}
    ends = {split: np.cumsum([len(part) for part in rows[split]])[:-1] for split in SPLITS}
    held = {split: np.split(np.arange(sum(map(len, rows[split]))), ends[split]) for split in SPLITS}
    features, classes = ({split: np.concatenate(parts[split]) for split in SPLITS} for parts in (rows, labels))
    given = replace(prepared_for(deployment), sum_rows=lambda: make_sum_rows(features, classes, held))
    spec = replace(spec_of(), sums=SumLine(epsilons=("none", 1.0), alone=2))
    result = run(tmp_path, spec, given)
    rows_without_uploads = [row for row in result if row["method"] in ("secure-sum", "local-only-features")]
    assert [(row["method"], row["draw"]) for row in rows_without_uploads] == [
        *(("secure-sum", k) for k in range(2)),
        *(("local-only-features", i) for i in range(2)),
    ]
    assert [row.get("epsilon") for row in rows_without_uploads[:2]] == [None, 1.0]
    assert rows_without_uploads[0]["n_rows"] == sum(
        len(part) for split in ("train", "validation") for part in rows[split]
    )
    assert rows_without_uploads[0]["balanced_accuracy_clean"] > 0.7  # three classes
    assert run(tmp_path, spec, given) == result


# ---------------------------------------------------------------------------------------------------- both noises at once


@pytest.fixture
def with_both(world: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Five draws of both noises, two at a time, and what each draw's uploads must be."""
    monkeypatch.setattr(image_study, "_MOST_AT_ONCE", 2)
    spec, prepared = spec_of(both=5), prepared_for(deployment_of())
    deployment = prepared.deployment
    rows = [row for row in run(tmp_path, spec, prepared) if row["method"] == BOTH]
    v, sigma = noise_draws(spec, "both", deployment.streams, prepared.rms)
    uploads = deployment.uploaded()
    noisy = [uploads + sigma[draw] * data_noise(deployment, draw + OTHER_NOISE) for draw in range(5)]
    return SimpleNamespace(
        rows=rows,
        spec=spec,
        prepared=prepared,
        deployment=deployment,
        v=v,
        sigma=sigma,
        own=uploads,
        noisy=noisy,
        attacked=world.attacked,
        moments=[view for view in world.moments if view.method.name == BOTH],
        scored=world.scored[-3:],
        trained=world.trained[-3:],
    )


def test_with_both_noises_the_moments_attack_sees_the_labelled_rows_as_uploaded(with_both: SimpleNamespace) -> None:
    labelled = places_of(with_both.deployment, TARGET, "train", "validation")
    assert len(with_both.moments) == 5
    for draw, view in enumerate(with_both.moments):
        expected = with_both.noisy[draw][labelled]
        torch.testing.assert_close(view.target_upload.representation, expected, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(view.labels[TARGET], with_both.deployment.labels[labelled])
        assert view.data_noise_scale == with_both.sigma[draw]
        assert view.anchor_noise_scale == with_both.v[draw]


def test_with_both_noises_networks_learn_from_noisy_rows_and_are_scored_on_those_and_on_clean_ones(
    with_both: SimpleNamespace,
) -> None:
    noisy, clean = (torch.cat([score[k] for score in with_both.scored]) for k in (0, 1))
    assert torch.equal(torch.cat(with_both.trained), noisy)
    solver = with_both.spec.solver
    options = {"solver": solver.name, "max_iterations": solver.max_iterations, "tolerance": solver.tolerance}
    for draw in range(5):
        aligned = aligned_draws(with_both.deployment, with_both.v[draw : draw + 1], [draw + OTHER_NOISE], **options)
        for rows, uploaded in ((noisy, with_both.noisy[draw]), (clean, with_both.own)):
            expected = aligned_rows(with_both.deployment, uploaded, aligned)[0]
            torch.testing.assert_close(rows[draw], expected, rtol=0, atol=1e-4)
        assert float((noisy[draw] - clean[draw]).std()) == pytest.approx(with_both.sigma[draw], rel=0.2)


# ------------------------------------------------------------------------------------------------------ rows of a study


# ---------------------------------------------------------------------------------------------------- attacks and scores


def test_networks_are_scored_on_test_rows_and_test_labels() -> None:
    deployment = deployment_of()
    rows = torch.stack([deployment.rows, deployment.rows + 1])
    clean = deployment.rows - 1
    asked: list[Any] = []
    test = deployment.span("test")

    def predict(given: Any) -> Any:
        asked.append(given)
        return np.stack([deployment.labels[test]] * 2)

    ensemble: Any = SimpleNamespace(
        predict=predict, validation_balanced_accuracy=np.array([0.1, 0.2]), best_epoch=np.array([1, 2])
    )
    for figures in scored(ensemble, rows, clean, deployment):
        assert figures["balanced_accuracy"] == figures["balanced_accuracy_clean"] == figures["accuracy"] == 1
    assert torch.equal(asked[0], rows[:, test])
    assert torch.equal(asked[1], clean[test])
    assert len(asked) == 2


# ---------------------------------------------------------------------------------------------------------------- faces


@pytest.fixture(scope="module")
def face_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty public faces, darker than the faces of participants, who have three of each of 26 identities."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(8)

    def picture(highest: int) -> bytes:
        blocks = rng.integers(0, highest, (8, 8, 3), dtype=np.uint8)
        content = io.BytesIO()
        image.fromarray(blocks.repeat(8, axis=0).repeat(8, axis=1)).save(content, "WEBP", lossless=True, method=0)
        return content.getvalue()

    columns = {
        "file_no": np.arange(1, 109),
        "identity": np.concatenate([1000 + np.arange(30), np.repeat(np.arange(26), 3)]),
        "smiling": np.arange(108) % 2 == 0,
        "pool": ["public"] * 30 + ["participants"] * 78,
        "image_webp": [picture(120 if k < 30 else 250) for k in range(108)],
    }
    path = tmp_path_factory.mktemp("faces") / "celeba64.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def faces(face_file: Path, monkeypatch: pytest.MonkeyPatch) -> FaceStudy:
    """Faces with an auditor that sees the pixels themselves."""
    monkeypatch.setattr(face_study, "auditor", lambda path, device: (lambda images: images, []))
    spec = spec_from(
        {
            "study": {"name": "celeba", "title": "Faces", "kind": "faces", "seed": 6},
            "data": {"n_participants": 2, "n_components": H, "n_anchor_rows": R, "identities_each": 12},
            "noise": {"data": [{"count": 1, "high": 1.0}], "anchor": [{"count": 1, "high": 0.1}]},
        }
    )
    return FaceStudy(spec, data_dir=face_file.parent, face_model=face_file, device="cpu")


def test_references_of_faces_are_the_reserved_images_and_never_the_queries(faces: FaceStudy) -> None:
    read = faces.faces
    partition = partition_faces(read.identity, read.pool, n_participants=2, identities_each=12, streams=STREAMS)
    prepared = faces.prepare(STREAMS, n_participants=2, most=2, identities_each=12)
    evaluator = prepared.evaluator
    np.testing.assert_array_equal(evaluator.references.numpy(), read.rows(partition.references))
    queries = read.rows(partition.queries[TARGET])
    np.testing.assert_allclose(evaluator.queries.numpy(), faces.projection.encode(queries), rtol=0, atol=1e-9)
    assert not {row.tobytes() for row in evaluator.references.numpy()} & {row.tobytes() for row in queries}
    galleries = evaluator.galleries
    true = galleries.candidates[np.arange(len(galleries.answers)), galleries.answers]
    whom = read.identity[partition.references[true]]
    np.testing.assert_array_equal(whom, read.identity[partition.queries[TARGET][galleries.queries]])


def test_the_projection_of_faces_is_that_of_the_public_images(faces: FaceStudy) -> None:
    read = faces.faces
    rng = Streams.for_experiment(6).named("projection")
    np.testing.assert_array_equal(read.public, np.arange(30))
    expected = public_svd_projection(read.rows(np.arange(30)), H, rng=rng)
    np.testing.assert_allclose(faces.projection.matrix, expected.matrix, rtol=0, atol=1e-9)


# ---------------------------------------------------------------------------------------------------- digits and pictures
