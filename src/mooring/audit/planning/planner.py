"""Plan a study: search for the method, components and noise that keep to a limit, and judge whether joining pays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mooring.audit.auditor import Auditor
from mooring.audit.operating_points import OperatingPoint, Recommendation
from mooring.audit.planning.plan import Plan
from mooring.audit.planning.search import HALVES, PointSearch
from mooring.audit.results.point_result import PointResult
from mooring.audit.results.statements import state_total
from mooring.audit.rotation.point import point_with_noise
from mooring.audit.specification import AuditSettings
from mooring.audit.sums.point import SumPoint
from mooring.errors import InputError
from mooring.mechanisms.rotation.projection import Projection
from mooring.metrics.limits import DEFAULT_LIMIT, LeakageLimit
from mooring.tables import Partition
from mooring.typing import Array, Progress

_CONTRAST = 0.5  # private-data noise of the point of rotation that is shown beside mechanisms with a guarantee


def plan_study(
    datasets: Partition | Sequence[Array],
    labels: Sequence[Array] | None = None,
    *,
    limit: LeakageLimit | str = DEFAULT_LIMIT,
    n_components: int | Sequence[int] | None = None,
    n_anchor_rows: int | None = None,
    others: Sequence[OperatingPoint] = (),
    settings: AuditSettings | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Search for the operating point with the best score that keeps to a limit.

    Parameters
    ----------
    datasets, labels
        Rows like those of the planned study, as for `run_audit`.
    limit : LeakageLimit or str
        What the strongest attack may recover, such as "error at least 0.5" (of the most exposed tenth of rows),
        "membership at most 5 % at 1 %" or "linkage at most 20 %". The worse end of the figure's interval must keep to it.
        "epsilon at most 2" requires a guarantee, which secure sums give.
    n_components : int or sequence of int, optional
        h, or several values of h to try. The default is the number of features, up to 30; half and twice as many are then
        tried at the best point. A projection in the settings fixes h.
    n_anchor_rows : int, optional
        r. The default is four times h; if the best point has anchor noise, half and twice as many are then tried.
    others : sequence of OperatingPoint, optional
        Points of other mechanisms to try besides the methods, such as `SumPoint`. If the limit bounds ε, the first one is
        also tried with this ε.
    settings, progress
        As for `run_audit`.

    Notes
    -----
    After a grid over private-data noise, anchor noise and both, each noise is bisected to the smallest scale that keeps to
    the limit with a margin: twice the distance from the figure to the worse end of its interval. Other numbers of components
    and anchor rows are then tried at the best point. A point whose rows carry no noise is never recommended. Its upload is
    an exact image of the rows, so that a better attack could recover them even if all known attacks fail.

    The search uses one half of every participant's rows for training and testing. The chosen point is audited again on the
    other half with independent draws, and its figures come from there, that is, from a study with half the rows. If the
    limit bounds ε, there is no search: all points are audited on that other half.
    """
    limit = LeakageLimit.parse(limit) if isinstance(limit, str) else limit
    settings = settings or AuditSettings()
    searcher, reporter = _halve(datasets, labels, settings)
    described: dict[str, Any] = {"seed": settings.seed}
    if limit.measure == "epsilon":
        return _plan_guarantee(reporter, limit, others, progress, described)
    fixed = n_components is not None or isinstance(settings.projection, Projection)
    widths = _widths(n_components, searcher)
    search = PointSearch(searcher, limit, progress, n_anchor_rows)
    search.say("training alone and pooled")
    _ = searcher.alone
    for h in widths:
        search.over_noise(h)
    search.over_shape(widen=not fixed)
    reported, recommended, verdict = search.conclude(reporter)
    tried_others, more, beside = _try_others(searcher, reporter, others, search)
    search.finish()
    chosen: dict[str, Any] = {"chosen": 0} if search.best() is not None else {"safest": True}
    audit = reporter.result([reported, *more], **chosen, **described)
    tried = searcher.result([*search.tried.values(), *tried_others], **described)
    return Plan(limit, audit, recommended, verdict + beside, _recommend(recommended, reporter), search=tried)


def _halve(
    datasets: Partition | Sequence[Array], labels: Sequence[Array] | None, settings: AuditSettings
) -> tuple[Auditor, Auditor]:
    """Return the auditor of the search, and the auditor of the report, which has other rows and other draws."""
    rng = np.random.default_rng([settings.seed, 10])
    halves = Auditor.of(datasets, labels, settings).partition.halves(rng=rng, groups=settings.evaluation.groups)
    other = replace(settings, seed=int(rng.integers(2**31)))
    return Auditor.of(halves[0], None, settings), Auditor.of(halves[1], None, other)


def _plan_guarantee(
    reporter: Auditor,
    limit: LeakageLimit,
    others: Sequence[OperatingPoint],
    progress: Progress | None,
    described: dict[str, Any],
) -> Plan:
    """Return the plan for a limit of ε: a mechanism that guarantees this ε, beside one point that uploads rows."""
    h = reporter.deployment.default_n_components
    contrast = point_with_noise(0.0, _CONTRAST, n_components=h, n_anchor_rows=4 * h)
    has_labels = reporter.deployment.label_kind is not None
    if not has_labels or limit.bound <= 0:
        raise InputError(
            "limit",
            expected="above zero" if has_labels else "above zero, for rows with labels and test rows",
            got=str(limit),
            cure="Choose a positive ε, and name a label, since secure sums train a model.",
        )
    within = others[0].with_epsilon(limit.bound) if others else SumPoint(limit.bound)
    asked = list(dict.fromkeys((*others, within)))
    tell = progress or (lambda done, total, words: None)
    results = []
    for k, point in enumerate(asked):
        tell(k, len(asked) + 1, point.title_with())
        results.append(reporter.audit(point))
    tell(len(asked), len(asked) + 1, contrast.title_on(reporter.deployment))
    audited = reporter.audit(contrast)
    tell(len(asked) + 1, len(asked) + 1, "done")
    place = asked.index(within)
    best = results[place]
    audit = reporter.result([*results, audited], chosen=place, **described)
    answer = None if best.gain is None else best.gain.answer
    named = {"pays": "Recommended", "does not pay": "Nothing is recommended. Within the limit"}
    words = f"{named.get(answer or '', 'Within the limit')}: {best.point.mechanism_in_words}, {best.point.state_guarantee()}"
    verdict = f"{words} At ε = {limit.bound:g}: {state_total(best)} {HALVES}"
    recommended = None if answer == "does not pay" else best
    return Plan(limit, audit, recommended, verdict, _recommend(recommended, reporter))


def _try_others(
    searcher: Auditor, reporter: Auditor, others: Sequence[OperatingPoint], search: PointSearch
) -> tuple[list[PointResult], list[PointResult], str]:
    """Return the results of `others` on the searched rows, the report on the best of them, and sentences for the verdict.

    The best one has the smallest ε among the points with a guarantee at which joining pays on the searched rows. Without
    such a point, the report is empty. Without labels, everything is empty.
    """
    if searcher.deployment.label_kind is None:
        return [], [], ""
    results = []
    for point in others:
        search.say(point.title_with())
        results.append(searcher.audit(point))
    able = [result for result in results if result.point.promise is not None and result.gain is not None]
    paying = [result for result in able if result.gain is not None and result.gain.answer == "pays"]
    if not paying or reporter.deployment.label_kind is None:
        return results, [], " Joining was not shown to pay at points with a guarantee." if able else ""
    (epsilon, _), least = min((result.point.promise or (math.inf, 0.0), k) for k, result in enumerate(paying))
    reported = reporter.audit(paying[least].point)
    mechanism = reported.point.mechanism_in_words.capitalize()
    words = f" {mechanism} carry a guarantee instead. At ε = {epsilon:g}: {state_total(reported)}"
    return results, [reported], words


def _recommend(result: PointResult | None, auditor: Auditor) -> Recommendation | None:
    """Return the settings of a study at a recommended point."""
    return None if result is None else result.point.recommend(auditor.deployment, result.data_noise_scale)


def _widths(n_components: int | Sequence[int] | None, auditor: Auditor) -> tuple[int, ...]:
    """Return the numbers of components to try."""
    m = auditor.partition.n_features
    requested = auditor.deployment.default_n_components if n_components is None else n_components
    widths = (requested,) if isinstance(requested, int) else tuple(requested)
    if not widths or any(not 1 <= h <= m for h in widths):
        raise InputError(
            "n_components",
            expected=f"between 1 and {m}",
            got=str(list(widths)),
            cure="Choose at least one number, and none above the number of features.",
        )
    return widths
