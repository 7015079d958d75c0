"""`mooring check` in a study of secure sums: what attackers learn from a contribution, with noise and without.

A quarter of the rows are the colluder's, half of the rows make up the contribution, and the last quarter are in neither.
The attacker is assumed to know everybody else's sums, so that it sees the participant's own sums with the least noise that
a total may carry. Attackers of the real total know less.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mooring.audit import (
    AuditResult,
    AuditSettings,
    OperatingPoint,
    PointResult,
    References,
    SumPoint,
    run_audit,
)
from mooring.audit.results.decision import Reason, decide_upload, weigh_total
from mooring.audit.results.statements import state_total
from mooring.mechanisms.sums.settings import SumSettings, make_general_workload
from mooring.protocol.exchange_types import AuditMaps, AuditRequest
from mooring.protocol.forecast import StudyForecast, weigh_forecast
from mooring.protocol.inspection import Inspection
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.contrast import contrast_to_sums, drafted_projection
from mooring.protocol.participant.local_model import measure_local_only
from mooring.protocol.sums.description import state_promise
from mooring.protocol.sums.features import study_features
from mooring.protocol.sums.forecast import forecast_sums
from mooring.protocol.sums.participant.table_sums import scale_labels
from mooring.protocol.sums.scheme import (
    explain_missing_guarantee,
    list_exceeded,
    sum_promise,
    sum_scheme,
    sum_settings,
)
from mooring.serialization import count_noun
from mooring.tables import Partition
from mooring.tables.encoder import EncodedRows
from mooring.tables.sampling import make_strata, split_stratified
from mooring.typing import Progress

_FEWEST_ROWS, _MOST_ROWS = 16, 2_000
_NAMES = ("a colluder with a quarter of your rows", "your contribution, half of your rows")


def inspect(
    study: Study,
    encoded: EncodedRows,
    *,
    n_rows: int,
    class_counts: dict[str, int] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Inspection:
    """Return what attackers would learn from the sums over a participant's rows, before these sums are shared.

    `encoded` holds all `n_rows` rows of the table, or a sample of them.
    """
    tell = progress or (lambda done, total, what="": None)
    tell(0, 2, "attacking your own sums")
    audit = _attack(study, encoded, seed)
    tell(1, 2, "a model of your own")
    local = measure_local_only(study, encoded.rows, encoded.labels, seed)
    forecast, own_forecast = _forecast(study, encoded, n_rows)
    tell(2, 2, "done")
    warnings = [] if audit is not None else [f"The self-attack needs {_FEWEST_ROWS} rows, and labels that differ."]
    if len(encoded.rows) < n_rows:
        warnings.append(f"Figures are based on {len(encoded.rows):,} of your {n_rows:,} rows, drawn at random.")
    warnings += _warn_of_bound(sum_settings(study), n_rows)
    verdict, exceeded = _verdict(study, audit), list_exceeded(study, None if audit is None else audit.points[0])
    hazards = _find_lone_rows(study, encoded)
    return Inspection(
        n_rows,
        class_counts,
        hazards,
        tuple(warnings),
        local,
        verdict,
        exceeded,
        self_attack=audit,
        forecast=forecast,
        own_forecast=own_forecast,
    )


def _forecast(study: Study, encoded: EncodedRows, n_rows: int) -> tuple[StudyForecast | None, StudyForecast | None]:
    """Return the forecast from the declaration alone, and the forecast for rows like these.

    If the study does not state how many rows it expects, the second forecast assumes that all participants have as many rows
    as this one.
    """
    expected = sum_settings(study).expected_rows or n_rows * len(study.participants)
    return forecast_sums(study), forecast_sums(study, n_rows=expected, encoded=encoded)


def _warn_of_bound(settings: SumSettings, n_rows: int) -> list[str]:
    """Return a warning if a table has more rows than the study expects of one participant; `share` does not check this."""
    if settings.rows_per_person == "mean" or n_rows * settings.kept_share <= settings.most_rows:
        return []
    bound = f"The study expects at most {settings.most_rows:,} rows of a participant, and your table has {n_rows:,}"
    return [f"{bound}: the total may be refused. Ask for a higher most_rows, or a lower kept_share, before you share."]


def _find_lone_rows(study: Study, encoded: EncodedRows) -> tuple[str, ...]:
    """Return a warning about rows with a level that no other row has: without noise, sums may disclose such a row."""
    settings = sum_settings(study)
    if settings.epsilon is not None or settings.features != "columns":
        return ()
    weights, _ = make_general_workload(settings, study.schema).weigh(encoded.rows)
    carriers = np.count_nonzero(weights, axis=0) == 1
    n_lone = int(np.count_nonzero((weights[:, carriers] != 0).any(axis=1)))
    rows = count_noun(n_lone, "row of yours has", "rows of yours have")
    alone = f"{rows} a category, or a value near the end of a range, that no other row has among those examined"
    read_off = "If nobody else has it either, that row may be read off the sums exactly, with its label."
    return (f"{alone}. {read_off}",) if n_lone else ()


def list_audit_points(study: Study, parts: Partition, asked: AuditRequest) -> tuple[OperatingPoint, ...]:
    """Return the study's own point, the same point at each requested ε, and uploads of rows for comparison."""
    settings = sum_settings(study)
    quorum = settings.quorum if settings.n_colluders < settings.quorum <= parts.n_participants else None
    study_point = SumPoint(
        settings.epsilon,
        settings.delta,
        quorum,
        settings.n_colluders,
        settings.product_share,
        settings.expected_rows,
        explain_missing_guarantee(study),
    )
    sums = [replace(study_point, epsilon=epsilon) for epsilon in dict.fromkeys((study_point.epsilon, *asked.epsilons))]
    return (*sums, *contrast_to_sums(parts, drafted_projection(study), asked))


def find_point(study: Study, result: AuditResult) -> PointResult | None:
    """Return the audited point that has the study's own ε and δ; None if there is none."""
    settings = sum_settings(study)
    for total in result.totals:
        at = total.point
        if isinstance(at, SumPoint) and (at.epsilon, at.delta) == (settings.epsilon, settings.delta):
            return total
    return None


def make_audit_maps(study: Study) -> AuditMaps:
    """Return the projection that a draft of rotation has for the same columns, and the study's own features."""
    return AuditMaps(drafted_projection(study), study_features(study))


def weigh_study(study: Study, forecast: StudyForecast | None) -> list[Reason]:
    """Return the reasons for and against sharing that follow from the study alone, and not from anybody's rows."""
    return [*weigh_total(None, sum_promise(study), study.upload_limits), *weigh_forecast(forecast)]


def conclude(study: Study, inspection: Inspection) -> Inspection:
    """Return the inspection with its decision, which its page begins with.

    With noise, the guarantee decides. Figures from the participant's rows are shown, but a decision by them would
    disclose something about the rows.
    """
    if inspection.self_attack is not None and sum_settings(study).epsilon is None:
        reasons = [*inspection.self_attack.weigh(study.upload_limits), *weigh_forecast(inspection.forecast)]
    else:
        reasons = weigh_study(study, inspection.forecast)
    return replace(inspection, decision=decide_upload("sums over these rows", reasons, check=inspection))


def _attack(study: Study, encoded: EncodedRows, seed: int) -> AuditResult | None:
    rows, labels, scheme = encoded.rows, encoded.labels, sum_scheme(study)
    if labels is None or len(rows) < _FEWEST_ROWS or np.unique(labels).size < 2:
        return None
    rng = np.random.default_rng([seed, 31])
    strata, chosen = make_strata(labels, len(rows)), np.arange(len(rows))
    if len(rows) > _MOST_ROWS:
        chosen, _ = split_stratified(chosen, strata, _MOST_ROWS, rng=rng)
    target, rest = split_stratified(chosen, strata, len(chosen) // 2, rng=rng)
    colluder, others = split_stratified(rest, strata, len(rest) // 2, rng=rng)
    scaled = labels if scheme.settings.is_general else scale_labels(study, labels)
    partition = Partition.from_parts(
        [rows[colluder], rows[target]],
        [scaled[colluder], scaled[target]],
        rng=rng,
        test=[rows[others[:0]], rows[others]],
        test_labels=[scaled[others[:0]], scaled[others]],
        names=_NAMES,
    )
    settings = scheme.settings
    asked = dict.fromkeys((settings.epsilon, None))
    without = explain_missing_guarantee(study)
    share, n_expected = settings.product_share, settings.expected_rows
    points = [SumPoint(epsilon, settings.delta, 2, 1, share, n_expected, without) for epsilon in asked]
    result = run_audit(
        partition,
        points=points,
        chosen=points[0],
        settings=AuditSettings(colluders=(0,), targets=(1,), seed=seed, feature_map=study_features(study)),
    )
    # scores of models of a part of the participant's rows say nothing about joining
    results = tuple(
        replace(point, deployed=None, gain=None, alone=None, learner=None, predicts_one_of=0) for point in result.points
    )
    return replace(result, points=results, references=References(None, None, 0), warnings=())


def _verdict(study: Study, audit: AuditResult | None) -> str:
    # the attack simulates noise for single rows; noise for persons with several rows is stronger
    noise = "the study's noise" if sum_scheme(study).settings.rows_per_person == 1 else "noise for single rows"
    promise = state_promise(study)
    if audit is None:
        return f"{promise} No attack could be run on your rows."
    with_noise = {True: f"With {noise}", False: "Without noise"}
    totals = " ".join(f"{with_noise[point.epsilon is not None]}: {state_total(point)}" for point in audit.points)
    figures = f"The following figures assume that the attacker knows everybody else's sums. {totals}"
    return f"{promise} {figures} These are lower bounds: a better attack may exist."
