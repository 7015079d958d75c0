"""`mooring check` before anything leaves: hazards in the rows, and an attack on a part of them by another part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.attacks import CollusionView, attacks_on
from mooring.audit import (
    AuditDescription,
    AuditResult,
    AuditSettings,
    EvaluationSpec,
    NoiseUnit,
    OperatingPoint,
    PointResult,
    References,
    RotationPoint,
    root_mean_square,
    run_audit,
)
from mooring.audit.hazards import hazards_of_columns, hazards_of_labels, hazards_of_rows, rows_of_rare_values
from mooring.audit.results.decision import decide_upload
from mooring.errors import InputError
from mooring.mechanisms.rotation.projection import Projection
from mooring.metrics.limits import LeakageLimit
from mooring.protocol.exchange_types import AuditMaps, AuditRequest
from mooring.protocol.inspection import Inspection
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.contrast import ANCHOR_NOISE, DATA_NOISE, drafted_features, list_contrast, list_sums
from mooring.protocol.participant.local_model import measure_local_only
from mooring.protocol.rotation.scheme import rotation_of, study_projection
from mooring.serialization import count_noun
from mooring.tables import Partition
from mooring.tables.encoder import EncodedRows
from mooring.tables.sampling import make_strata, split_stratified
from mooring.typing import Matrix, Progress
from mooring.version import __version__

_OF_A_SAMPLE = (
    "Every row was checked against the study. The hazards, the self-attack and the model of your rows alone are based on "
    "{shown:,} of your {in_all:,} rows, drawn at random."
)
_PARTS = ("a part of your rows", "another part")
_HELD_OUT = 0.2  # share of the rows that serve as non-members if all rows take part in the self-attack
_FEWEST_ROWS = 4
_SAME_NOISE = 0.02
_WIDEST = {"moments": 400, "joint-moments": 400, "refine": 400}  # components up to which these take a minute at most
PIXELS = (-1.0, 1.0)
"""The values of a black and of a white pixel in an encoded image: a declared range is encoded as −1 to 1."""


def inspect(
    study: Study,
    encoded: EncodedRows,
    *,
    n_rows: int | None = None,
    class_counts: dict[str, int] | None = None,
    n_rows_attacked: int = 1500,
    seed: int = 0,
    attacks: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Return what a check of one participant's rows, or of a sample of them, shows before anything leaves.

    `n_rows` and `class_counts` describe the whole table. At most `n_rows_attacked` rows take part in the self-attack, whose
    secrets are drawn from `seed`. By default all attacks run except those that are too slow at this width.
    """
    projection = study_projection(study)
    rows, labels = encoded.rows, encoded.labels
    counts = class_counts
    if counts is None and study.label.kind == "classes" and labels is not None:
        tally = np.bincount(np.asarray(labels, dtype=np.int64), minlength=len(study.label.classes))
        counts = {name: int(count) for name, count in zip(study.label.classes, tally, strict=True)}
    result = _self_attack(study, rows, labels, projection, n_rows_attacked, seed, attacks, progress)
    in_all = rows.shape[0] if n_rows is None else n_rows
    tried = result.points[0] if result.points else None
    if (
        in_all > rows.shape[0] and tried is not None and tried.examples is not None
    ):  # row numbers of a sample would mislead
        result = replace(result, points=(replace(tried, examples=replace(tried.examples, row_numbers=None)),))
    exceeded = tuple(
        limit for limit in study.upload_limits if tried is None or not tried.keeps_to(LeakageLimit.parse(limit))
    )
    some = () if in_all == rows.shape[0] else (_OF_A_SAMPLE.format(shown=rows.shape[0], in_all=in_all),)
    return Inspection(
        n_rows=int(in_all),
        class_counts=counts,
        hazards=find_hazards(study, encoded),
        warnings=(*_standing_warnings(study), *result.warnings, *some),
        local_only=measure_local_only(study, rows, labels, seed),
        data_noise_scale=rotation_of(study).data_noise_scale,
        anchor_noise_scale=rotation_of(study).anchor_noise_scale,
        rms=root_mean_square([rows], projection) if rows.shape[0] else 0.0,
        self_attack=result,
        verdict=_verdict(result),
        exceeded=exceeded,
    )


def conclude(study: Study, inspection: Inspection) -> Inspection:
    """Return the inspection with its decision, which its page begins with."""
    attacked = inspection.self_attack
    reasons = [] if attacked is None else attacked.weigh(study.upload_limits)
    return replace(inspection, decision=decide_upload("these rows", reasons, check=inspection))


def find_hazards(study: Study, encoded: EncodedRows) -> tuple[str, ...]:
    """Return sentences on what makes these rows' secret map easy to recover under the study's projection and noise."""
    rows, labels = encoded.rows, encoded.labels
    n, h, scale = rows.shape[0], rotation_of(study).n_components, rotation_of(study).data_noise_scale
    names, mixed = study.feature_names, h < study.n_features
    hazards = hazards_of_columns(rows, names=names, mixed=mixed, noise_scale=scale)
    if n <= h:
        hazards.append(
            f"You have {count_noun(n, 'row')}, no more than the study's {h} components. Each row that an attacker knows "
            "then discloses more, and the self-attack's figures are uncertain. More rows or fewer components help."
        )
    projected = np.asarray(study_projection(study).encode(rows))
    hazards += hazards_of_rows(rows, projected=projected, noise_scale=scale)
    return (*hazards, *(hazards_of_labels([labels]) if labels is not None else ()))


def _standing_warnings(study: Study) -> tuple[str, ...]:
    """Return warnings that hold for all rows and must be read before anything leaves."""
    needed = rotation_of(study).n_components + 1
    known = (
        f"Known rows: somebody who knows {needed} of your rows from elsewhere (components + 1) recovers your secret "
        "map, and with it all your rows. Without noise on rows, the recovery is exact."
    )
    if rotation_of(study).data_noise_scale > 0:
        known += (
            " In this study rows carry noise, so the map is recovered approximately, and the other rows keep their "
            "noise."
        )
        noise = "What protects your rows is the private-data noise; anchor noise protects the anchor only."
    else:
        noise = (
            "This study puts no noise on the rows themselves: the upload is an exact image of them, and no anchor noise, "
            "however strong, protects rows."
        )
    labels = "Labels travel as they are: the analyst sees the label of every row, and how many rows you have."
    if study.label.kind == "none":
        labels = "The analyst sees how many rows you have."
    return known, noise, labels


def point_of(study: Study, rms: float) -> RotationPoint | None:
    """Return the study's operating point for rows of this root mean square; None for rows of zeros that get noise."""
    settings = rotation_of(study)
    sigma, v = settings.data_noise_scale, settings.anchor_noise_scale
    if sigma > 0 and not rms > 0:
        return None
    level = sigma / rms if sigma > 0 else 0.0
    return RotationPoint(settings.method, settings.n_components, settings.n_anchor_rows, v, level)


def list_audit_points(study: Study, parts: Partition, asked: AuditRequest) -> tuple[OperatingPoint, ...]:
    """Return the study's own point, then points of the methods and of secure sums that are asked for."""
    settings, projection = rotation_of(study), study_projection(study)
    study_point = point_of(study, root_mean_square(parts.train, projection))
    if study_point is None:
        raise InputError("data file", expected="rows that vary", got="rows of zeros", cure="Check the study's ranges.")
    noises = settings.anchor_noise_scale or ANCHOR_NOISE, settings.data_noise_scale or DATA_NOISE
    rows = list_contrast(parts, projection, asked, noises=noises, n_anchor_rows=settings.n_anchor_rows)
    return tuple(dict.fromkeys((study_point, *rows, *list_sums(asked))))


def find_point(study: Study, result: AuditResult) -> PointResult | None:
    """Return the audited point that has the study's own settings; None if there is none."""
    settings = rotation_of(study)
    sizes = settings.method, settings.n_components, settings.n_anchor_rows
    for candidate in result.points:
        point = candidate.point
        if not isinstance(point, RotationPoint) or (point.method, point.n_components, point.n_anchor_rows) != sizes:
            continue
        noises = (
            (point.anchor_noise_scale, settings.anchor_noise_scale),
            (candidate.data_noise_scale, settings.data_noise_scale),
        )
        if all(math.isclose(*pair, rel_tol=_SAME_NOISE) for pair in noises):
            return candidate
    return None


def make_audit_maps(study: Study) -> AuditMaps:
    """Return the study's own projection, and the features that sums of the same columns would have."""
    return AuditMaps(study_projection(study), drafted_features(study))


def evaluation_of(study: Study, *, n_examples: int = 6) -> EvaluationSpec:
    """Return how to evaluate rows that an attack reconstructed in this study's encoding."""
    return EvaluationSpec(
        image_shape=study.image_shape or None,
        pixel_range=PIXELS,
        columns=() if study.image_shape else study.schema.columns,
        feature_names=study.feature_names,
        feature_scales=study.schema.feature_scales,
        n_examples=n_examples,
    )


def _self_attack(
    study: Study,
    rows: Matrix,
    labels: npt.NDArray[Any] | None,
    projection: Projection,
    n_rows_attacked: int,
    seed: int,
    attacks: Sequence[str] | None,
    progress: Progress | None,
) -> AuditResult:
    """Let one part of the rows attack another at the study's operating point, through the study's projection."""
    if rows.shape[0] < _FEWEST_ROWS:
        return _not_run(study, rows, f"it needs at least {_FEWEST_ROWS} rows")
    rng = np.random.default_rng([seed, 12])
    strata = make_strata(labels, rows.shape[0])
    n_attacked = min(rows.shape[0], max(_FEWEST_ROWS, n_rows_attacked))
    exposed = rows_of_rare_values(rows)[: n_attacked // 4]  # rows of rare values are all among the attacked
    chosen = np.setdiff1d(np.arange(rows.shape[0]), exposed)
    held_out = rows.shape[0] - n_attacked or int(_HELD_OUT * chosen.size)
    others, chosen = split_stratified(chosen, strata, held_out, rng=rng)
    colluder, target = split_stratified(chosen, strata, (chosen.size + exposed.size) // 2, rng=rng)
    parts = (colluder, np.sort(np.concatenate([target, exposed])))
    partition = Partition.from_parts(
        [rows[part] for part in parts],
        None if labels is None else [labels[part] for part in parts],
        rng=rng,
        test_share=0.0,  # nothing is trained here, and the gallery consists of the target's rows
        names=_PARTS,
    )
    point = point_of(study, root_mean_square(partition.train, projection))
    if point is None or any(not np.ptp(part, axis=0).any() for part in partition.train):
        return _not_run(study, rows, "the rows of one half are all equal")
    names, note = (tuple(attacks), ()) if attacks is not None else _quick_enough(rotation_of(study).n_components)
    audited = run_audit(
        partition,
        points=[point],
        settings=AuditSettings(
            projection=projection,
            attacks=names,
            evaluation=replace(evaluation_of(study), others=(rows[others], None if labels is None else labels[others])),
            seed=seed,
            noise_unit=NoiseUnit.ENCODED,
        ),
        progress=progress,
    )
    points = tuple(_number_rows(point_result, np.concatenate(parts)) for point_result in audited.points)
    return AuditResult(audited.description, audited.references, points, note)  # hazards are listed separately


def _number_rows(result: PointResult, places: npt.NDArray[np.int64]) -> PointResult:
    """Return the result with the example rows' numbers in the table, which are counted from 1."""
    if result.examples is None:
        return result
    numbers = tuple((places[list(result.examples.indices)] + 1).tolist())
    return replace(result, examples=replace(result.examples, row_numbers=numbers))


def _quick_enough(n_components: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the attacks that take at most a minute at this number of components, and a note if others are left out."""
    slow = [name for name, widest in _WIDEST.items() if n_components > widest]
    note = (
        f"At {n_components} components the self-attack leaves out {', '.join(slow)}, each of which would take minutes and "
        "may recover more than the others. 'mooring audit --study' runs every attack."
    )
    names = (attack.name for attack in attacks_on(CollusionView))
    return tuple(name for name in names if name not in slow), (note,) if slow else ()


def _not_run(study: Study, rows: Matrix, reason: str) -> AuditResult:
    description = AuditDescription(
        mooring=__version__,
        n_participants=2,
        rows_each=(rows.shape[0] // 2, rows.shape[0] - rows.shape[0] // 2),
        n_features=study.n_features,
        projection=rotation_of(study).projection,
        colluders=_PARTS[:1],
        targets=_PARTS[1:],
        attacks=(),
    )
    return AuditResult(description, References(None, None, 0), (), (f"The self-attack could not be run: {reason}.",))


def _verdict(result: AuditResult) -> str:
    attacked = result.points[0] if result.points else None
    if attacked is None or attacked.worst() is None:
        return "No attack could be run on your rows. Do not read anything here as evidence of safety."
    held = count_noun(min(result.description.rows_each), "row")  # the smaller part is the colluder's
    return (
        f"{' '.join(result.sentences)} In this attack, the colluder holds {held} of yours. A real colluder may hold more "
        "rows, and may recover more ('mooring audit --study' simulates all participants)."
    )
