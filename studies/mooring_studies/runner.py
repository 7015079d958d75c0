"""Run a study: read its data, go through its deployments, keep every row and the facts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from mooring.randomness import Streams
from mooring.theory import transition_scale
from mooring_studies.images.deployment import PreparedDeployment
from mooring_studies.images.image_study import ImageStudy
from mooring_studies.images.leakage import NOT_SHOWN
from mooring_studies.images.picture_rows import SHOWN, pictures_of
from mooring_studies.images.row_writer import RowWriter, rebuilt_name
from mooring_studies.settings.spec import Spec
from mooring_studies.storage.machine_facts import first_facts
from mooring_studies.storage.store import FACTS, PICTURES, ResultStore

_DEPLOYMENTS_APART = 1000


def run_study(
    spec: Spec,
    *,
    data_dir: Path | None = None,
    face_model: Path | None = None,
    device: str = "cpu",
    store: ResultStore,
    progress: Any,
) -> None:
    """Run what the store does not have yet, and keep the facts of it."""
    match spec.kind:
        case "digits" | "faces" | "faces-by-participants":
            _run_images(spec, data_dir=data_dir, face_model=face_model, device=device, store=store, progress=progress)
        case "tables":
            from mooring_studies.tabular.study import run_tables

            run_tables(spec, data_dir=data_dir, store=store, progress=progress)
        case "landscape":
            from mooring_studies.tabular.landscape import run_landscape

            run_landscape(spec, data_dir=data_dir, store=store, progress=progress)
        case "sums":
            from mooring_studies.tabular.sums import run_sums

            run_sums(spec, data_dir=data_dir, store=store, progress=progress)
        case "alternatives":
            from mooring_studies.alternatives.study import run_alternatives

            run_alternatives(spec, data_dir=data_dir, store=store, progress=progress)


def _run_images(
    spec: Spec, *, data_dir: Path | None, face_model: Path | None, device: str, store: ResultStore, progress: Any
) -> None:
    from mooring_studies.images.digit_study import DigitStudy
    from mooring_studies.images.face_study import FaceStudy

    began = time.perf_counter()
    progress.stage("reading the data", 1)
    digits = spec.kind == "digits"
    study: Any = (
        DigitStudy(spec, data_dir=data_dir, device=device)
        if digits
        else FaceStudy(spec, data_dir=data_dir, face_model=face_model, device=device)
    )
    for name, checksum in study.checksums.items():
        store.bind(name, checksum)
    progress.advance()
    before = store.kept(FACTS) or {}
    facts = first_facts(spec, device=device) | {"data": study.checksums}
    facts["notes"] = _notes(before, facts, study.notes)
    for note in study.notes:
        progress.note(note)
    seconds = dict(before.get("seconds", {}))
    seconds["reading"] = seconds.get("reading", 0.0) + time.perf_counter() - began
    measured: dict[str, Any] = {}
    by_participants = spec.kind == "faces-by-participants"
    for deployment in range(spec.deployments):
        streams = Streams.for_experiment(_DEPLOYMENTS_APART * spec.seed + deployment)
        alignments: Any = {} if by_participants else None  # anchors do not depend on rows
        found_before: dict[int, dict[int, Any]] = {}  # nor does the moments attack on how many others there are
        for allocation in _allocations(spec, digits=digits):
            began = time.perf_counter()
            prepared: PreparedDeployment = study.prepare(streams, **allocation)
            image_study = ImageStudy(
                spec.in_deployment(deployment),
                prepared,
                RowWriter(prepared, store, progress, deployment, deployment == 0 and not by_participants),
                reference_control=digits,
                alignments=alignments,
                unaudited=NOT_SHOWN if by_participants or deployment else frozenset(),
                found_before=found_before.setdefault(allocation["identities_each"], {}) if by_participants else None,
            )
            image_study.seconds["preparing"] = time.perf_counter() - began
            name = _name_of(deployment, allocation)
            earlier = dict(seconds)

            def keep(name: str = name, earlier: dict[str, float] = earlier, running: ImageStudy = image_study) -> None:
                """Keep the facts so far, so that a run that is stopped later has its times."""
                for part, spent in running.seconds.items():
                    seconds[f"{name}: {part}"] = earlier.get(f"{name}: {part}", 0.0) + spent
                store.keep(FACTS, facts | measured | {"seconds": seconds, "seeds": _seeds(spec)})

            image_study.run(after_each=keep)
            measured.setdefault("deployments", {})[name] = _facts_of(prepared)
            if deployment == 0 and len(spec.data.n_participants) == 1:
                measured.update(_facts_of(prepared) | {"pictures": _keep_pictures(prepared, store)})
            keep()


def _notes(before: dict[str, Any], facts: dict[str, Any], now: list[str]) -> list[str]:
    """Notes on the data and the machine, of this run and of those that it continues."""
    notes = [*before.get("notes", []), *now]
    other = before.get("machine")
    if other and other != facts["machine"]:
        words = ", ".join(str(value) for value in other.values() if value)
        notes.append(f"computed in part on another machine: {words}")
    return list(dict.fromkeys(notes))


def _allocations(spec: Spec, *, digits: bool) -> list[dict[str, int]]:
    if digits:
        return [{"n_participants": p} for p in spec.data.n_participants]
    return [
        {"n_participants": p, "most": most, "identities_each": each}
        for most, each, participants in spec.data.allocations()
        for p in participants
    ]


def _name_of(deployment: int, allocation: dict[str, int]) -> str:
    each = f" with {allocation['identities_each']} identities each" if "identities_each" in allocation else ""
    return f"deployment {deployment}, {allocation['n_participants']} participants{each}"


def _seeds(spec: Spec) -> list[int]:
    return [_DEPLOYMENTS_APART * spec.seed + deployment for deployment in range(spec.deployments)]


def _facts_of(prepared: PreparedDeployment) -> dict[str, Any]:
    deployment = prepared.deployment
    p, (r, h) = deployment.n_participants, deployment.anchor.shape
    rows_each = [int(sum(sizes)) for sizes in zip(*deployment.sizes.values(), strict=True)]
    exact = prepared.evaluator.queries[None]
    return {
        "n_train": int(deployment.sizes["train"].sum()),
        "n_validation": int(deployment.sizes["validation"].sum()),
        "n_test": int(deployment.sizes["test"].sum()),
        "rows_each": rows_each,
        "train_rows_each": deployment.sizes["train"].tolist(),
        "n_queries": len(deployment.query_places),
        "n_galleries": len(prepared.evaluator.galleries.answers),
        "rms": prepared.rms,
        "linkage_floor": float(prepared.evaluator.linkage(exact)[0]),
        "phase_transition": {str(p): float(transition_scale(p, h, r))},
        **prepared.facts,
    }


def _keep_pictures(prepared: PreparedDeployment, store: ResultStore) -> dict[str, float]:
    """Lay out the pictures of the first deployment from the rebuilt rows that its chunks left; return their extent."""
    rebuilt: dict[str, dict[str, Any]] = {}
    for method in ("i-gdp", *dict.fromkeys(method for method, *_ in SHOWN)):
        chunks = [
            chunk
            for draw in sorted(store.done(method=method, deployment=0))
            if (chunk := store.kept(f"{rebuilt_name(prepared, method)}-{draw}"))
        ]
        if chunks:
            names = set.union(*(set(chunk) for chunk in chunks))
            rebuilt[method] = {
                name: np.concatenate([_padded(chunk, name, chunks) for chunk in chunks]) for name in names
            }
    rows = [row for row in store.rows() if row["deployment"] == 0]
    pictures = pictures_of(prepared, rows, rebuilt)
    store.keep(PICTURES, pictures)
    highest = {"highest_data_noise": 0.0, "highest_anchor_noise": 0.0}
    for index, name in enumerate(pictures["rows"]):
        which = "highest_data_noise" if "data-noise" in str(name) else "highest_anchor_noise"
        highest[which] = max(highest[which], float(pictures[f"row{index}_noise"].max()))
    return highest


def _padded(chunk: dict[str, Any], name: str, chunks: list[dict[str, Any]]) -> Any:
    """A chunk's array; NaN where an attack was run on no draw of this chunk."""
    if name in chunk:
        return chunk[name]
    like = next(other[name] for other in chunks if name in other)
    return np.full((len(chunk["draws"]), *like.shape[1:]), np.nan, dtype=like.dtype)
