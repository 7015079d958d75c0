"""What `mooring check` looks at before anything leaves: hazards in the rows, and an attack on some of them by others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.attacks import REGISTRY
from mooring.audit import (
    AuditResult,
    AuditSettings,
    EvaluationSpec,
    LeakageLimit,
    NoiseUnit,
    OperatingPoint,
    PointResult,
    References,
    SumAudit,
    SumResult,
    root_mean_square,
    run_audit,
)
from mooring.audit.decision import (
    Decision,
    decide_upload,
    select_sums,
    state_alone,
    state_leakage,
    weigh_audit,
    weigh_sums,
)
from mooring.audit.hazards import (
    hazards_of_columns,
    hazards_of_labels,
    hazards_of_rows,
    judge_leakage,
    rows_of_rare_values,
)
from mooring.learners import Score, choose_learner, cross_validate, score
from mooring.learners.fitting import ROW_FOLDS, row_folds
from mooring.mechanisms.rotation.projection import Projection
from mooring.protocol.messages.projection import study_projection
from mooring.protocol.messages.study import Study
from mooring.serialization import count_noun, render_html
from mooring.tables import Partition
from mooring.tables.encoder import EncodedRows
from mooring.tables.sampling import make_strata, split_stratified
from mooring.typing import Matrix, Progress
from mooring.version import __version__

_OF_A_SAMPLE = (
    "Every row was checked against the study; hazards, self-attack and your own model are of {shown:,} of your {in_all:,} "
    "rows, drawn at random."
)
_PARTS = ("a part of your rows", "another part")
_HELD_OUT = 0.2  # of the rows attacked, where there are no others: non-members
_FEWEST_ROWS = 4
_MOST_ROWS_ALONE = 5000
_WIDEST = {"moments": 400, "joint-moments": 400}  # components up to which these take a minute at most
PIXELS = (-1.0, 1.0)
"""Black and white of an encoded image: numbers lie between the ends of their declared range."""


@dataclass(frozen=True)
class Inspection:
    """What was found."""

    n_rows: int
    class_counts: dict[str, int] | None
    """Rows of each class of the study."""
    hazards: tuple[str, ...]
    """What in these rows makes the transform easy to break."""
    warnings: tuple[str, ...]
    """What holds whatever the rows are, and what could not be done."""
    local_only: Score | None
    """A model of one's own, on the rows as they are, cross-validated: what joining has to beat."""
    verdict: str
    exceeded: tuple[str, ...] = ()
    """Limits of the study that these rows do not keep."""
    data_noise_scale: float = 0.0
    anchor_noise_scale: float = 0.0
    """σ and v of the study."""
    rms: float = 0.0
    """s, the root mean square of the projected rows."""
    self_attack: AuditResult | None = None
    """A part of the rows plays the colluder, as large a one the target; of others, the attacker must tell that they are not
    in. Without points where it could not be run; None in a study of secure sums."""
    sums: SumAudit | None = None
    """Of secure sums, membership with the study's noise and without any; None where it could not be run."""
    rows_digest: str = ""
    """Keyed: by it `share` knows these very rows again."""
    refused: tuple[str, ...] = ()
    """Why `share` takes no such rows, whatever attackers make of them; what helps is among the hazards."""
    decision: Decision = field(default_factory=dict)
    """The question, the answer (share, do not share, or cannot tell), its reasons, and all of these in words."""

    @property
    def level(self) -> float | None:
        """σ / s: private-data noise in units of the rows; None where the rows are zero throughout."""
        return self.data_noise_scale / self.rms if self.rms > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for the record that a report reads. Of shared rows it holds a few, original beside rebuilt."""
        noise = {name: getattr(self, name) for name in ("data_noise_scale", "rms", "level", "anchor_noise_scale")}
        return {
            "rows": self.n_rows,
            "class_counts": self.class_counts,
            "hazards": list(self.hazards),
            "warnings": list(self.warnings),
            "local_only": None if self.local_only is None else self.local_only.as_dict(),
            "noise": None if self.self_attack is None else noise,
            "self_attack": None if self.self_attack is None else self.self_attack.as_dict(),
            "sums": None if self.sums is None else self.sums.as_dict(),
            "verdict": self.verdict,
            "exceeded": list(self.exceeded),
            "refused": list(self.refused),
            "decision": self.decision.get("words", ""),
            "rows_digest": self.rows_digest,
        }

    def _repr_html_(self) -> str:
        rows = [] if self.self_attack is None else [self.self_attack.list_points()]
        tables = rows if self.sums is None else [self.sums.list_results()]
        fits = count_noun(self.n_rows, "row fits", "rows fit")
        alone = "" if self.local_only is None else state_alone(self.local_only)
        said = [] if self.self_attack is None else state_leakage(self.self_attack)
        rest = self.verdict.removeprefix(" ".join(said)).strip()
        first = self.decision.get("words", ""), *said, rest, alone, f"{fits}."
        return render_html(*first, *self.hazards, *self.warnings, tables=tables)


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
    """Look at one participant's rows before anything leaves.

    Parameters
    ----------
    encoded : EncodedRows
        The participant's rows, encoded by the study: all, or a sample.
    n_rows, class_counts : optional
        Of all rows, where `encoded` is a sample of them.
    n_rows_attacked : int, default 1500
        At most so many rows take part in the self-attack, colluder's and target's together.
    seed : int, default 0
        Chooses the parts and plays the secrets of the self-attack. No real secret is drawn.
    attacks : sequence of str, optional
        Names in `mooring.attacks.REGISTRY`; by default all, less those that are too slow at this width.
    """
    projection = study_projection(study)
    rows, labels = encoded.rows, encoded.labels
    counts = class_counts
    if counts is None and study.label.kind == "classes" and labels is not None:
        tally = np.bincount(np.asarray(labels, dtype=np.int64), minlength=len(study.label.classes))
        counts = {name: int(count) for name, count in zip(study.label.classes, tally, strict=True)}
    hazards = (*_hazards_of_rows(study, rows, projection), *(hazards_of_labels([labels]) if labels is not None else ()))
    result = _self_attack(study, rows, labels, projection, n_rows_attacked, seed, attacks, progress)
    in_all = rows.shape[0] if n_rows is None else n_rows
    tried = result.points[0] if result.points else None
    if in_all > rows.shape[0] and tried is not None and tried.examples is not None:  # numbers of a sample name nobody
        result = replace(result, points=(replace(tried, examples=tried.examples | {"row_numbers": []}),))
    exceeded = tuple(one for one in study.upload_limits if tried is None or not LeakageLimit.parse(one).met_at(tried))
    some = () if in_all == rows.shape[0] else (_OF_A_SAMPLE.format(shown=rows.shape[0], in_all=in_all),)
    return Inspection(
        n_rows=int(in_all),
        class_counts=counts,
        hazards=hazards,
        warnings=(*_standing_warnings(study), *result.warnings, *some),
        local_only=measure_local_only(study, rows, labels, seed),
        data_noise_scale=study.data_noise_scale,
        anchor_noise_scale=study.anchor_noise_scale,
        rms=root_mean_square([rows], projection) if rows.shape[0] else 0.0,
        self_attack=result,
        verdict=_verdict(result),
        exceeded=exceeded,
    )


def conclude(study: Study, found: Inspection) -> Inspection:
    """The same with its decision: the one that its page leads with."""
    what, limits = "these rows" if study.sums is None else "sums over these rows", study.upload_limits
    if found.self_attack is not None:
        weighed = [weigh_audit(found.self_attack, limits)]
    else:
        settings = study.sum_scheme.settings
        tried: list[SumResult | None] = [*select_sums([found.sums], settings)] or [None]
        weighed = [weigh_sums(one, settings.epsilon, settings.delta, limits) for one in tried]
    return replace(found, decision=decide_upload(what, weighed, {"check": found.as_dict()}))


def _hazards_of_rows(study: Study, rows: Matrix, projection: Projection) -> list[str]:
    """What in the rows makes the secret map easy to break, through the study's own projection and noise."""
    n, h, scale = rows.shape[0], study.n_components, study.data_noise_scale
    names, mixed = study.feature_names, h < study.n_features
    found = hazards_of_columns(rows, names=names, mixed=mixed, noise_scale=scale)
    if n <= h:
        found.append(
            f"You have {count_noun(n, 'row')}, no more than the study's {h} components: every row that somebody knows "
            "weighs more, and the self-attack's figures are uncertain. What helps: more rows, or fewer components."
        )
    return found + hazards_of_rows(rows, projected=np.asarray(projection.encode(rows)), noise_scale=scale)


def _standing_warnings(study: Study) -> tuple[str, ...]:
    """What holds whatever the rows are, and must be said before anything leaves."""
    needed = study.n_components + 1
    known = (
        f"Known rows: somebody who knows {needed} of your rows from elsewhere (components + 1) recovers your secret "
        "transform, and with it all your rows, exactly where rows carry no noise."
    )
    if study.data_noise_scale > 0:
        known += (
            " Here rows carry noise, so known rows give the transform approximately, and the noise stays on the rest."
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


def point_of(study: Study, rms: float) -> OperatingPoint | None:
    """The study's own operating point, for rows of this root mean square; None where they are zero and noise is not."""
    if study.data_noise_scale > 0 and not rms > 0:
        return None
    level = study.data_noise_scale / rms if study.data_noise_scale > 0 else 0.0
    return OperatingPoint(study.method, study.n_components, study.n_anchor_rows, study.anchor_noise_scale, level)


def evaluation_of(study: Study, *, n_examples: int = 6) -> EvaluationSpec:
    """How to evaluate rebuilt rows that this study encoded."""
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
    """A part of the rows attacks another, at the study's own point and through its own projection."""
    if rows.shape[0] < _FEWEST_ROWS:
        return _not_run(study, rows, f"it needs {_FEWEST_ROWS} rows at least")
    rng = np.random.default_rng([seed, 12])
    strata = make_strata(labels, rows.shape[0])
    n_attacked = min(rows.shape[0], max(_FEWEST_ROWS, n_rows_attacked))
    exposed = rows_of_rare_values(rows)[: n_attacked // 4]  # all are attacked, none is left out or held by the colluder
    chosen = np.setdiff1d(np.arange(rows.shape[0]), exposed)
    held_out = rows.shape[0] - n_attacked or int(_HELD_OUT * chosen.size)
    others, chosen = split_stratified(chosen, strata, held_out, rng=rng)
    colluder, target = split_stratified(chosen, strata, (chosen.size + exposed.size) // 2, rng=rng)
    parts = (colluder, np.sort(np.concatenate([target, exposed])))
    partition = Partition.from_parts(
        [rows[part] for part in parts],
        None if labels is None else [labels[part] for part in parts],
        rng=rng,
        test_share=0.0,  # nothing is trained here; a gallery's look-alikes are the target's own rows
        names=_PARTS,
    )
    point = point_of(study, root_mean_square(partition.train, projection))
    if point is None or any(not np.ptp(part, axis=0).any() for part in partition.train):
        return _not_run(study, rows, "the rows are all alike, and there is nothing to tell apart")
    names, note = (tuple(attacks), ()) if attacks is not None else _quick_enough(study.n_components)
    found = run_audit(
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
    points = tuple(_number_rows(one, np.concatenate(parts)) for one in found.points)
    return AuditResult(found.description, found.references, points, note)  # hazards are told apart, and in full


def _number_rows(one: PointResult, places: npt.NDArray[np.int64]) -> PointResult:
    """Say of the rows that are shown which ones of the table they are, from 1 on."""
    if one.examples is None:
        return one
    return replace(one, examples=one.examples | {"row_numbers": (places[one.examples["indices"]] + 1).tolist()})


def _quick_enough(n_components: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The attacks that take seconds at this width, and a note on those left out."""
    slow = [name for name, widest in _WIDEST.items() if n_components > widest]
    note = (
        f"At {n_components} components the self-attack leaves out {', '.join(slow)}, which would take minutes and often "
        "recovers most: 'mooring audit --study' runs every attack."
    )
    return tuple(name for name in REGISTRY if name not in slow), (note,) if slow else ()


def _not_run(study: Study, rows: Matrix, reason: str) -> AuditResult:
    description = {
        "mooring": __version__,
        "n_participants": 2,
        "rows_each": [rows.shape[0] // 2, rows.shape[0] - rows.shape[0] // 2],
        "n_features": study.n_features,
        "projection": study.projection,
        "colluders": [_PARTS[0]],
        "targets": [_PARTS[1]],
        "attacks": [],
    }
    return AuditResult(description, References(None, None, 0), (), (f"The self-attack could not be run: {reason}.",))


def measure_local_only(study: Study, rows: Matrix, labels: npt.NDArray[Any] | None, seed: int) -> Score | None:
    """Score a model of the rows as they are, by five-fold cross-validation; None where there is too little to learn from.

    Parameters
    ----------
    rows : array of shape (n, m)
    labels : array of shape (n,) or None
    """
    if labels is None or study.label.kind == "none" or rows.shape[0] < 2 * ROW_FOLDS:
        return None
    if np.unique(labels).size < 2:
        return None  # one class, or one number: there is nothing to tell apart
    kind, rng = study.label.kind, np.random.default_rng([seed, 13])
    if rows.shape[0] > _MOST_ROWS_ALONE:
        chosen, _ = split_stratified(
            np.arange(rows.shape[0]), make_strata(labels, rows.shape[0]), _MOST_ROWS_ALONE, rng=rng
        )
        rows, labels = rows[chosen], labels[chosen]
    learner = choose_learner(rows, labels, kind=kind, seed=seed)
    predicted = cross_validate(learner, rows, labels, row_folds(labels, seed), kind=kind, seed=seed)
    return score(labels, predicted, kind=kind, rng=rng)


def _verdict(result: AuditResult) -> str:
    found = result.points[0] if result.points else None
    if found is None or found.worst() is None:
        return "No attack could be run on your rows, so nothing here may be read as safety."
    held = count_noun(min(result.description["rows_each"]), "row")  # the smaller part is the colluder's
    amount, rule, _ = judge_leakage(found)
    return (
        f"{' '.join(state_leakage(result))} That is {amount} ({rule}). The colluder, here {held} of yours, may hold more "
        "and recover more ('mooring audit --study' plays all participants)."
    )
