"""What the demonstration computes: plain numbers, nothing drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from mooring import METHODS, Collaboration, Projection, Streams, collaborate, make_anchor, public_svd_projection
from mooring.geometry import rotation_spread
from mooring.theory import transition_scale

Matrix = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

N_PARTICIPANTS = 25
ROWS_EACH = 40
N_PUBLIC = 297
N_COMPONENTS = 30
N_ANCHOR_ROWS = 4 * N_COMPONENTS
NOISE_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)


@dataclass(frozen=True)
class MethodOutcome:
    """How one method did."""

    name: str
    title: str
    data_noise_scale: float
    anchor_noise_scale: float
    accuracy: float
    alignment: str


@dataclass(frozen=True)
class NoiseOutcome:
    """How anchor noise of one scale did."""

    anchor_noise_scale: float
    share_of_transition: float
    accuracy: float
    disagreement: float
    iterations: int
    certified: bool


@dataclass(frozen=True)
class Story:
    """Everything the page shows."""

    seed: int
    n_participants: int
    rows_each: int
    n_test_rows: int
    n_components: int
    n_anchor_rows: int
    transition_scale: float
    local_only: float
    pooled_raw: float
    methods: tuple[MethodOutcome, ...]
    noise: tuple[NoiseOutcome, ...]
    labels: list[int]
    owners: list[int]
    uploaded: list[list[float]]
    aligned: list[list[float]]

    def as_dict(self) -> dict[str, Any]:
        """The story as plain numbers and strings, fit for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _Study:
    """The participants' rows, and test rows that each of them scores for itself."""

    rows: list[Matrix]
    labels: list[Labels]
    raw_rows: Matrix
    test_rows: Matrix
    test_raw: Matrix
    test_labels: Labels
    anchor: Matrix
    streams: Streams


def tell(seed: int, progress: Callable[[str], None]) -> Story:
    """Run the demonstration; `progress` hears what is being done."""
    progress("splitting the digits among the participants")
    study = _split_digits(seed)
    progress("training alone, and on pooled raw rows")
    local_only = float(
        np.mean(
            [
                _fitted(rows, labels).score(study.test_rows, study.test_labels)
                for rows, labels in zip(study.rows, study.labels, strict=True)
            ]
        )
    )
    pooled_raw = float(_fitted(study.raw_rows, np.concatenate(study.labels)).score(study.test_raw, study.test_labels))
    v_pt = transition_scale(N_PARTICIPANTS, N_COMPONENTS, N_ANCHOR_ROWS)
    data_scale = 0.5 * float(np.std(np.concatenate(study.rows), axis=0).mean())
    methods = []
    for method in METHODS.values():
        progress(f"running {method.title}")
        sigma, v = data_scale * method.data_noise, 0.5 * v_pt * method.anchor_noise
        run = collaborate(
            method, study.rows, streams=study.streams, anchor=study.anchor, data_noise_scale=sigma, anchor_noise_scale=v
        )
        how = "none" if run.alignment is None else str(run.alignment.termination)
        methods.append(MethodOutcome(method.name, method.title, sigma, v, _accuracy_as_deployed(study, run), how))
    noise = []
    for share in NOISE_SHARES:
        progress(f"anchor noise at {share:g} of the transition")
        noise.append(_with_noise(study, share * v_pt, share))
    shown = collaborate(
        "aa-i-gdp-anchor-noise", study.rows, streams=study.streams, anchor=study.anchor, anchor_noise_scale=0.5 * v_pt
    )
    before = np.concatenate([upload.representation for upload in shown.uploads])
    return Story(
        seed=seed,
        n_participants=N_PARTICIPANTS,
        rows_each=ROWS_EACH,
        n_test_rows=len(study.test_labels),
        n_components=N_COMPONENTS,
        n_anchor_rows=N_ANCHOR_ROWS,
        transition_scale=v_pt,
        local_only=local_only,
        pooled_raw=pooled_raw,
        methods=tuple(methods),
        noise=tuple(noise),
        labels=np.concatenate(study.labels).tolist(),
        owners=np.repeat(np.arange(N_PARTICIPANTS), ROWS_EACH).tolist(),
        uploaded=_plane(before).tolist(),
        aligned=_plane(shown.collaboration_matrix).tolist(),
    )


def _split_digits(seed: int) -> _Study:
    streams = Streams.for_experiment(seed)
    images, digits = load_digits(return_X_y=True)
    order = streams.named("split").permutation(len(digits))
    images, digits = images[order] / 16.0, digits[order].astype(np.int64)
    projection: Projection = public_svd_projection(images[:N_PUBLIC], N_COMPONENTS, rng=streams.named("projection"))
    end = N_PUBLIC + N_PARTICIPANTS * ROWS_EACH
    parts = [slice(start, start + ROWS_EACH) for start in range(N_PUBLIC, end, ROWS_EACH)]
    projected = projection.encode(images)
    return _Study(
        rows=[projected[part] for part in parts],
        labels=[digits[part] for part in parts],
        raw_rows=images[N_PUBLIC:end],
        test_rows=projected[end:],
        test_raw=images[end:],
        test_labels=digits[end:],
        anchor=make_anchor(N_ANCHOR_ROWS, N_COMPONENTS, rng=streams.named("anchor")),
        streams=streams,
    )


def _with_noise(study: _Study, scale: float, share: float) -> NoiseOutcome:
    run = collaborate(
        "aa-i-gdp-anchor-noise",
        study.rows,
        streams=study.streams,
        anchor=study.anchor,
        anchor_noise_scale=scale,
        certify=True,
    )
    alignment = run.alignment
    if alignment is None or alignment.certificate is None:
        raise AssertionError("this method aligns, and the certificate was asked for")
    effective = np.stack(
        [secret.orthogonal @ map.orthogonal for secret, map in zip(run.secrets, alignment.maps, strict=True)]
    )
    return NoiseOutcome(
        anchor_noise_scale=scale,
        share_of_transition=share,
        accuracy=_accuracy_as_deployed(study, run),
        disagreement=rotation_spread(effective) / float(np.sqrt(N_COMPONENTS)),
        iterations=alignment.iterations,
        certified=alignment.certificate.certified,
    )


def _accuracy_as_deployed(study: _Study, run: Collaboration) -> float:
    """Each participant scores its share of the test rows with its own transform and map, and no noise."""
    model = _fitted(run.collaboration_matrix, np.concatenate(study.labels))
    hits = []
    for participant, secret in enumerate(run.secrets):
        rows = secret.apply(study.test_rows[participant::N_PARTICIPANTS])
        rows = rows if run.alignment is None else run.alignment.maps[participant].apply(rows)
        hits.append(model.predict(rows) == study.test_labels[participant::N_PARTICIPANTS])
    return float(np.mean(np.concatenate(hits)))


def _fitted(rows: Matrix, labels: Labels) -> SVC:
    return SVC(C=10.0, gamma="scale").fit(rows, labels)


def _plane(rows: Matrix) -> Matrix:
    """The rows on their two main axes, to look at."""
    centred = rows - rows.mean(axis=0)
    _, _, Vt = np.linalg.svd(centred, full_matrices=False)
    return np.asarray(np.round(centred @ Vt[:2].T, 4))
