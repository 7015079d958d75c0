"""Plan a study: search for the method, components and noise that keep to a limit, and judge whether joining pays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mooring.audit.auditor import Auditor
from mooring.audit.hazards import state_sums
from mooring.audit.operating_points import point_with_noise
from mooring.audit.planning.plan import Plan
from mooring.audit.planning.search import HALVES, PointSearch
from mooring.audit.result import PointResult, SumAudit
from mooring.audit.specification import DEFAULT_LIMIT, AuditSettings, LeakageLimit
from mooring.errors import InputError
from mooring.mechanisms.rotation.projection import Projection
from mooring.tables import Partition
from mooring.typing import Array, Progress

_CONTRAST = 0.5  # the private-data noise of the point that secure sums are shown beside


def plan_study(
    datasets: Partition | Sequence[Array],
    labels: Sequence[Array] | None = None,
    *,
    limit: LeakageLimit | str = DEFAULT_LIMIT,
    n_components: int | Sequence[int] | None = None,
    n_anchor_rows: int | None = None,
    settings: AuditSettings | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Search for the operating point that keeps to a limit and scores best.

    Parameters
    ----------
    datasets, labels
        As for `run_audit`: rows like those of the study to come.
    limit : LeakageLimit or str
        What the strongest attack may recover, such as "error at least 0.5" (of the most exposed tenth of rows),
        "membership at most 5 % at 1 %" or "linkage at most 20 %". It must hold at the worse end of the figure's interval.
        "epsilon at most 2" asks for a guarantee, which secure sums carry.
    n_components : int or sequence of int, optional
        h, or several to try. By default as many as there are features, up to 30; then half and twice as many are tried at
        the best point found. A projection in the settings fixes it.
    n_anchor_rows : int, optional
        r. By default four times h, and then half and twice as many are tried at the best point found.
    settings, progress
        As for `run_audit`.

    Notes
    -----
    A grid over private-data noise, anchor noise and both is followed by bisection of each noise to where the limit is met
    with room of twice the interval; then other numbers of components and anchor rows are tried at the best point. A point
    whose rows carry no noise is never recommended: its upload is an exact image of the rows, and that the attacks we know
    fail there, as they do where organisations differ, protects nobody from the next one.

    The search sees one half of every participant's rows, to train and to test on. The point that it chooses is audited once
    more on the other half with draws of its own, and what is said of it is measured there: in a study with half the rows.
    """
    limit = LeakageLimit.parse(limit) if isinstance(limit, str) else limit
    settings = settings or AuditSettings()
    searcher, reporter = _halve(datasets, labels, settings)
    described: dict[str, Any] = {"target": str(limit), "seed": settings.seed}
    if limit.measure == "epsilon":
        return _plan_sums(searcher, reporter, limit, progress, described)
    fixed = n_components is not None or isinstance(settings.projection, Projection)
    widths = _widths(n_components, searcher)
    search = PointSearch(searcher, limit, progress, n_anchor_rows)
    search.say("training alone and pooled")
    scores = searcher.references()
    for h in widths:
        search.over_noise(h)
    search.over_shape(widen=not fixed)
    reported, recommended, verdict = search.conclude(reporter)
    sums = searcher.audit_sums(search.say)
    sums_reported, beside = (None, "") if sums is None else _report_sums(sums, reporter)
    search.finish()
    chosen: dict[str, Any] = {"chosen": 0} if search.best() is not None else {"safest": True}
    audit = reporter.result(reporter.references(), [reported], sums=sums_reported, **chosen, **described)
    tried = searcher.result(scores, tuple(search.tried.values()), sums=sums, **described)
    method = None if recommended is None else _tabulate(recommended, reporter)
    return Plan(limit, audit, recommended, verdict + beside, method, search=tried)


def _halve(
    datasets: Partition | Sequence[Array], labels: Sequence[Array] | None, settings: AuditSettings
) -> tuple[Auditor, Auditor]:
    """What searches, and what reports on other rows and with other draws."""
    rng = np.random.default_rng([settings.seed, 10])
    halves = Auditor.of(datasets, labels, settings).partition.halves(rng=rng, groups=settings.evaluation.groups)
    other = replace(settings, seed=int(rng.integers(2**31)))
    return Auditor.of(halves[0], None, settings), Auditor.of(halves[1], None, other)


def _plan_sums(
    searcher: Auditor, reporter: Auditor, limit: LeakageLimit, progress: Progress | None, described: dict[str, Any]
) -> Plan:
    """Secure sums at the ε asked for, with the split of the budget that scored best, beside one point that uploads rows."""
    h = reporter.default_n_components
    contrast = point_with_noise(0.0, _CONTRAST, n_components=h, n_anchor_rows=4 * h)
    choosing, sums = searcher.sum_auditor(), reporter.sum_auditor()
    if choosing is None or sums is None or limit.bound <= 0:
        raise InputError(
            "limit",
            expected="above zero, and of rows with labels and test rows" if sums is None else "above zero",
            got=str(limit),
            cure="A guarantee is about what is learnt: name a label.",
        )
    asked = dict.fromkeys((*sums.spec.epsilons, limit.bound))
    tell = progress or (lambda done, total, words: None)
    results = []
    for k, epsilon in enumerate(asked):
        point = sums.point(epsilon)
        tell(k, len(asked) + 1, point.title)
        results.append(sums.audit(choosing.split_budget(point) if epsilon == limit.bound else point))
    tell(len(asked), len(asked) + 1, reporter.title(contrast))
    audited = reporter.audit(contrast)
    tell(len(asked) + 1, len(asked) + 1, "done")
    best = next(one for one in results if one.point.epsilon == limit.bound)
    found = sums.result(results)
    audit = reporter.result(reporter.references(), [audited], sums=found, contrast=True, **described)
    answer = None if best.gain is None else best.gain.answer
    named = {"pays": "Recommended", "does not pay": "Nothing is recommended. Within the limit"}
    words = f"{named.get(answer or '', 'Within the limit')}: secure sums, {best.point.state_guarantee()}"
    verdict = f"{words} At ε = {limit.bound:g} {state_sums(best)} {HALVES}"
    pays = answer != "does not pay"
    return Plan(limit, audit, None, verdict, best.point.as_method() if pays else None, best if pays else None)


def _report_sums(sums: SumAudit, reporter: Auditor) -> tuple[SumAudit | None, str]:
    """The least ε that pays on the rows that were searched, on the other ones; and a sentence about it."""
    able = [one for one in sums.results if one.point.epsilon is not None and one.gain is not None]
    paying = [one for one in able if one.gain is not None and one.gain.answer == "pays"]
    auditor = reporter.sum_auditor()
    if not paying or auditor is None:
        return None, " Secure sums, which carry a guarantee, were not shown to pay either." if able else ""
    least = min(paying, key=lambda one: one.point.epsilon or math.inf).point
    found = auditor.audit(least)
    words = f" Secure sums carry a guarantee instead: at ε = {least.epsilon:g} {state_sums(found)}"
    return auditor.result([found]), words


def _tabulate(recommended: PointResult, auditor: Auditor) -> dict[str, Any]:
    """A point as the [method] table of a study."""
    point = recommended.point
    projection = auditor.projection_onto(point.n_components).kind
    return {
        "name": point.method,
        **({} if projection == "none" else {"components": point.n_components}),
        "anchor_rows": point.n_anchor_rows,
        "data_noise_scale": auditor.settings.noise_unit.in_study(recommended.data_noise_scale),
        "anchor_noise_scale": point.anchor_noise_scale,
        "projection": projection,
    }


def _widths(n_components: int | Sequence[int] | None, auditor: Auditor) -> tuple[int, ...]:
    """The numbers of components to try."""
    m = auditor.partition.n_features
    given = auditor.default_n_components if n_components is None else n_components
    widths = (given,) if isinstance(given, int) else tuple(given)
    if not widths or any(not 1 <= h <= m for h in widths):
        raise InputError(
            "n_components", expected=f"between 1 and {m}", got=str(list(widths)), cure="A projection cannot add."
        )
    return widths
