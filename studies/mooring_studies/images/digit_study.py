"""MNIST prepared: split among participants, projected, with the auditor and its galleries (section 5.2.1 of the paper)."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mooring.attacks import LearnedDecoder, learn_decoder
from mooring.audit import root_mean_square
from mooring.mechanisms import Projection
from mooring.mechanisms.sums import PictureFeatures
from mooring.metrics import DigitAuditor, build_galleries, train_digit_auditor
from mooring.randomness import Streams
from mooring.typing import Array, Indices, Matrix
from mooring_studies.data.digits import SIDE, DigitRows, load_digits, partition_digits
from mooring_studies.data.downloads import find
from mooring_studies.images.deployment import (
    SPLITS,
    Deployment,
    PreparedDeployment,
    Split,
    deployed,
    in_pieces,
    make_sum_rows,
    on_device,
)
from mooring_studies.images.evaluator import Decoder, ImageEvaluator
from mooring_studies.networks import DIGITS
from mooring_studies.roles import COLLUDER, TARGET
from mooring_studies.settings.spec import Spec


class DigitStudy:
    """MNIST, read once, from which any number of deployments is made."""

    n_validation: ClassVar[int] = 10_000
    """Number of training images that are kept for validation."""

    def __init__(self, spec: Spec, *, data_dir: Path | None, device: str) -> None:
        self.spec, self.device = spec, device
        self.digits: DigitRows = load_digits(find(data_dir, "mnist"))
        self.notes: list[str] = []  # another MNIST than the one there is would have been refused

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of each file."""
        return dict(self.digits.checksums)

    @cached_property
    def auditor(self) -> DigitAuditor:
        """The linkage auditor, trained once on clean images and then frozen."""
        rows, labels = self.digits.train_images, self.digits.train_labels
        streams = Streams.for_experiment(self.spec.seed)
        if self.spec.auditor.rows:
            kept = np.sort(streams.named("auditor/rows").permutation(len(rows))[: self.spec.auditor.rows])
            rows, labels = rows[kept], labels[kept]
        seed = int(streams.named("auditor").integers(2**31))
        return train_digit_auditor(
            rows.astype(np.float32) / 255, labels, seed=seed, device=self.device, epochs=self.spec.auditor.epochs
        )

    @cached_property
    def _features(self) -> dict[Split, Matrix]:
        """Public features of every digit, as secure sums take them; deployments only split them differently."""
        features = PictureFeatures(SIDE, SIDE)
        train, test = (
            in_pieces(lambda rows: features.apply(rows / 127.5 - 1)[:, :-1], images)
            for images in (self.digits.train_images, self.digits.test_images)
        )
        return {"train": train, "validation": train, "test": test}

    def prepare(self, streams: Streams, *, n_participants: int) -> PreparedDeployment:
        """Deal, project and set the galleries up for one deployment."""
        data = self.spec.data
        images, labels = self.digits, {"train": self.digits.train_labels, "test": self.digits.test_labels}
        limits = (data.n_train or 10**9, data.n_validation or self.n_validation, data.n_test or 10**9)
        partition = partition_digits(
            labels["train"],
            labels["test"],
            n_participants=n_participants,
            n_validation=self.n_validation,
            streams=streams,
            rows_limit=limits if data.n_train or data.n_validation or data.n_test else None,
        )
        held: dict[Split, Any] = {"train": partition.train, "validation": partition.validation, "test": partition.test}
        projection = draw_projection(SIDE * SIDE, data.n_components, rng=streams.named("projection"))

        def pixels(split: Split) -> Any:
            return images.test_images if split == "test" else images.train_images

        def classes(split: Split) -> Indices:
            return labels["test" if split == "test" else "train"]

        parts = {
            split: [
                in_pieces(lambda rows: projection.encode(rows / 255.0), pixels(split)[rows]) for rows in held[split]
            ]
            for split in SPLITS
        }
        codes = {split: [classes(split)[rows] for rows in held[split]] for split in SPLITS}
        queries: Indices = partition.test[TARGET]
        before = sum(map(len, (*partition.train, *partition.validation, *partition.test[:TARGET])))
        deployment = deployed(
            parts,
            codes,
            np.arange(before, before + len(queries)),
            n_anchor_rows=data.n_anchor_rows,
            streams=streams,
            device=self.device,
        )
        known = np.concatenate([partition.train[COLLUDER], partition.validation[COLLUDER]])
        learned = learn_decoder(projection, images.train_images[known] / 255.0)
        evaluator = self._evaluator(deployment, queries, projection, learned)
        shown, query_labels = evaluator.shown, labels["test"][queries]
        singular = np.linalg.svd(projection.matrix, compute_uv=False)
        return PreparedDeployment(
            deployment=deployment,
            evaluator=evaluator,
            architecture=DIGITS,
            identities_each=None,
            rms=root_mean_square(parts["train"]),
            pictures=images.test_images[queries[shown]].reshape(-1, SIDE, SIDE),
            picture_labels=query_labels[shown],
            facts={
                "projection_singular_values": [float(singular[-1]), float(singular[0])],
                "auditor_accuracy": self.auditor.validation_accuracy,
                "linkage_floor_learned": float(
                    evaluator.linkage(evaluator.queries[None], evaluator.learned_decoder)[0]
                ),
            },
            sum_rows=lambda: make_sum_rows(self._features, {split: classes(split) for split in SPLITS}, held),
        )

    def _evaluator(
        self, deployment: Deployment, queries: Indices, projection: Projection, learned: LearnedDecoder
    ) -> ImageEvaluator:
        """Galleries of ten test digits of one class; the first of every class is shown."""

        def tensor(array: npt.NDArray[Any]) -> Array:
            return on_device(array, self.device, "float32")

        labels, clean = self.digits.test_labels[queries], self.digits.test_images[queries] / 255.0
        galleries = build_galleries(labels, seed=int(deployment.streams.named("galleries").integers(2**31)))
        return ImageEvaluator(
            queries=deployment.rows[deployment.query_places],
            decoder=Decoder(tensor(projection.decoder)),
            embed=self.auditor.embedded,
            references=self.auditor.embedded(tensor(clean)),
            galleries=galleries,
            match_galleries=galleries,
            shown=np.array([int(np.flatnonzero(labels == digit)[0]) for digit in np.unique(labels)]),
            learned_decoder=Decoder(tensor(learned.matrix), tensor(learned.offset)),
        )


def draw_projection(n_features: int, n_components: int, *, rng: np.random.Generator) -> Projection:
    """The paper's Gaussian projection, with standard normal entries: noise scales are in units of its projected rows."""
    F = rng.standard_normal((n_features, n_components))
    return Projection(F, np.linalg.pinv(F), "gaussian")
