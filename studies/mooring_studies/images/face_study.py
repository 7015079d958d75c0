"""CelebA prepared: a public SVD, identities split among participants, reserved references, a face model.

See section 5.3.1 of the paper.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from mooring.atomic_io import hash_file
from mooring.attacks import PublicRows
from mooring.audit import root_mean_square
from mooring.mechanisms import Projection, public_svd_projection
from mooring.mechanisms.sums import PictureFeatures, fit_to_public
from mooring.metrics import build_galleries
from mooring.randomness import Streams
from mooring.typing import Array, Indices, Matrix
from mooring_studies.data.downloads import find
from mooring_studies.data.face_model import (
    FILE_NAME,
    REFERENCE_CHECKSUM,
    FaceModelOnGpu,
    face_model_on_gpu,
    open_face_model,
)
from mooring_studies.data.faces import IMAGE_SHAPE, PUBLIC, FaceRows, face_galleries, load_faces, partition_faces
from mooring_studies.data.onnx_embedding import OnnxEmbedding
from mooring_studies.images.deployment import (
    SPLITS,
    PreparedDeployment,
    Split,
    deployed,
    in_pieces,
    make_sum_rows,
    on_device,
)
from mooring_studies.images.evaluator import Decoder, Embedder, ImageEvaluator
from mooring_studies.networks import FACES
from mooring_studies.roles import TARGET
from mooring_studies.settings.spec import Spec

_SHOWN = 10
_STAYED_ON_CPU = (
    "the face model ran on the CPU: it has layers that are not known for the GPU, or gave other vectors there"
)
_FACES_AT_ONCE = 4  # what passes between a network's layers then fits a core's cache


class FaceStudy:
    """CelebA, read once, from which any number of deployments is made."""

    def __init__(self, spec: Spec, *, data_dir: Path | None, face_model: Path | None, device: str) -> None:
        self.spec, self.device = spec, device
        path = find(data_dir, f"faces/{FILE_NAME}") if face_model is None else face_model
        self.embed, notes = auditor(path, device)  # opened first: it is missing more often than the faces are
        self.faces: FaceRows = load_faces(find(data_dir, "celeba/celeba64.parquet"))
        self.checksums = {"celeba64.parquet": self.faces.checksum, path.name: hash_file(path, what="the face model")}
        self.notes = [*self.faces.notes, *notes]
        if self.checksums[path.name] != REFERENCE_CHECKSUM:
            self.notes.append(f"the face model is another one than mooring's own: {self.checksums[path.name]}")

    @cached_property
    def projection(self) -> Projection:
        """The public SVD, uncentred, of the public pool: the same in every deployment, for it is public."""
        rng = Streams.for_experiment(self.spec.seed).named("projection")
        return public_svd_projection(self.faces.rows(self.faces.public), self.spec.data.n_components, rng=rng)

    @cached_property
    def _encoded(self) -> Matrix:
        """Every image, projected once; deployments only split them differently."""
        every = np.arange(len(self.faces))
        return in_pieces(lambda rows: self.projection.encode(self.faces.rows(rows)), every, size=2048)

    @cached_property
    def public_rows(self) -> PublicRows:
        """The public images as every attacker has them: projected, with their labels."""
        public = self.faces.public
        rows = on_device(self._encoded[public], self.device, "float64")
        return PublicRows(rows, rows, self.faces.smiling[public].astype(np.int64))

    @cached_property
    def _features(self) -> Matrix:
        """Features of every image of the participants' pool, fitted to the public ones, as secure sums take them."""
        pool = np.flatnonzero(self.faces.pool != PUBLIC)
        features = fit_to_public(PictureFeatures(*IMAGE_SHAPE[:2]), in_pieces(self._grey, self.faces.public, size=2048))
        features_of_all = np.full((len(self.faces), features.n_components), np.nan)
        features_of_all[pool] = in_pieces(lambda rows: features.apply(self._grey(rows))[:, :-1], pool, size=2048)
        return features_of_all

    def _grey(self, indices: Indices) -> Matrix:
        """Images without colour, in [−1, 1]."""
        pixels = self.faces.rows(indices).reshape(len(indices), -1, IMAGE_SHAPE[2])
        return np.asarray(2 * pixels.mean(axis=2, dtype=np.float64) - 1)

    def prepare(self, streams: Streams, *, n_participants: int, most: int, identities_each: int) -> PreparedDeployment:
        """Split and project the rows, and set up the galleries, for the first participants of an allocation."""
        partition = partition_faces(
            self.faces.identity,
            self.faces.pool,
            n_participants=most,
            identities_each=identities_each,
            streams=streams,
            train_rows=self.spec.data.train_rows,
        ).first(n_participants)
        held: dict[Split, Any] = {"train": partition.train, "validation": partition.validation, "test": partition.test}
        parts = {split: [self._encoded[rows] for rows in held[split]] for split in SPLITS}
        smiling = self.faces.smiling.astype(np.int64)
        deployment = deployed(
            parts,
            {split: [smiling[rows] for rows in held[split]] for split in SPLITS},
            partition.query_places(TARGET),
            n_anchor_rows=self.spec.data.n_anchor_rows,
            streams=streams,
            device=self.device,
            public_rows=self.public_rows,
        )
        queries = partition.queries[TARGET]
        seed = int(streams.named("galleries").integers(2**31))
        few = min(np.bincount(smiling[queries], minlength=2))
        evaluator = ImageEvaluator(
            queries=deployment.rows[deployment.query_places],
            decoder=Decoder(on_device(self.projection.decoder, self.device, "float32")),
            embed=self.embed,
            references=self.embed(on_device(self.faces.rows(partition.references), self.device, "float32")),
            galleries=face_galleries(partition, target=TARGET, seed=seed),
            match_galleries=build_galleries(
                smiling[queries] if few >= 10 else np.zeros(len(queries)), n_candidates=min(10, len(queries)), seed=seed
            ),
            shown=np.arange(min(_SHOWN, len(queries))),
            works_beside=self.device != "cpu" and not isinstance(self.embed, FaceModelOnGpu),
        )
        clean = self.embed(on_device(self.faces.rows(queries), self.device, "float32"))
        return PreparedDeployment(
            deployment=deployment,
            evaluator=evaluator,
            architecture=FACES,
            identities_each=identities_each,
            rms=root_mean_square(parts["train"]),
            pictures=self.faces.images(queries[:_SHOWN]),
            picture_labels=partition.identities[TARGET][:_SHOWN],
            facts={"linkage_ceiling": float(evaluator.linkage_of(clean[None])[0]), "n_public": len(self.faces.public)},
            sum_rows=lambda: make_sum_rows(dict.fromkeys(SPLITS, self._features), dict.fromkeys(SPLITS, smiling), held),
        )


def auditor(path: Path, device: str) -> tuple[Embedder, list[str]]:
    """The face model in a file, on the images' device if it runs there; and a note where it does not."""
    on_cpu = open_face_model(path, n_threads=1)
    if device == "cpu":
        return partial(_embedded, on_cpu), []
    on_gpu = face_model_on_gpu(path, like=on_cpu, device=device)
    if on_gpu is None:
        return partial(_embedded, on_cpu), [_STAYED_ON_CPU]
    return on_gpu, []


def _embedded(model: OnnxEmbedding, images: Array) -> Array:
    """The face model's unit vectors; it runs on the CPU, wherever the images are, one thread a core."""
    import torch

    pixels = images.cpu().numpy()
    pieces = [pixels[start : start + _FACES_AT_ONCE] for start in range(0, len(pixels), _FACES_AT_ONCE)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        vectors = np.concatenate(list(pool.map(model, pieces)))
    return torch.as_tensor(vectors, dtype=torch.float32, device=images.device)
