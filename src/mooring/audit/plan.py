"""The plan: which method, how many components, how much noise; and whether to join at all."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mooring.audit.auditor import Auditor
from mooring.audit.hazards import state_sums
from mooring.audit.operating_points import OperatingPoint, point_with_noise
from mooring.audit.result import AuditResult, PointResult, SumAudit, SumResult
from mooring.audit.specification import AuditSettings, LeakageLimit
from mooring.errors import InputError
from mooring.learners import Answer, Score
from mooring.mechanisms.projection import Projection
from mooring.tables import Partition
from mooring.typing import Array, Progress

_DATA_LEVELS = (0.15, 0.3, 0.5, 0.8, 1.2)
_ANCHOR_SCALES = (0.05, 0.1, 0.2, 0.4)
_BOTH = ((0.05, 0.3), (0.1, 0.3), (0.05, 0.5), (0.1, 0.5), (0.1, 0.8))
_MOST_NOISE = 5.0
_HALVINGS = 3
_CONTRAST = 0.5  # the private-data noise of the point that secure sums are shown beside


@dataclass(frozen=True)
class Plan:
    """What was searched, and what to do.

    Attributes
    ----------
    limit : LeakageLimit
    audit : AuditResult
        Every point that was tried.
    recommended : PointResult or None
        The point that keeps to the limit and scores best, audited with every attack; None if no point keeps to it, or if
        it is shown not to beat training alone. Whether it is shown to do so, `answer` says.
    verdict : str
        The same in words.
    method : dict or None
        What is recommended, as the [method] table of a study. `data_noise_scale` is None where the rows were not encoded
        by a study, and do not tell its unit.
    sums : SumResult or None
        Secure sums that are recommended instead of a point, where the limit is of ε.
    """

    limit: LeakageLimit
    audit: AuditResult
    recommended: PointResult | None
    verdict: str
    method: dict[str, Any] | None = None
    sums: SumResult | None = None

    @property
    def answer(self) -> Answer | None:
        """Whether joining pays at the recommended point; None where that was not measured, or nothing is recommended."""
        best = self.recommended or self.sums
        gain = None if best is None else best.gain
        return None if gain is None else gain.answer

    def method_lines(self) -> str | None:
        """The [method] table as lines to paste into a study's file; None where nothing is recommended."""
        if self.method is None:
            return None
        entries = {
            name: f'"{value}"' if isinstance(value, str) else f"{value:.6g}"
            for name, value in self.method.items()
            if value is not None
        }
        lines = ["[method]", *(f"{name} = {value}" for name, value in entries.items())]
        if self.recommended is not None and self.method["data_noise_scale"] is None:
            scale = self.recommended.data_noise_scale
            lines.append(f"# data_noise_scale: {scale:.3g} here. {self.audit.noise_unit.words}")
        return "\n".join(lines)

    @property
    def frontier(self) -> tuple[PointResult, ...]:
        """Points that no other point beats both in score and in what the strongest attack leaves, the safest last."""
        points = self.audit.points
        known = [one for one in points if one.deployed is not None and one.worst(self.limit.measure) is not None]
        best = [one for one in known if not any(_dominates(other, one, self.limit) for other in known)]
        return tuple(sorted(best, key=lambda one: _safety(one, self.limit)))

    def to_json(self) -> str:
        """Everything, as JSON text."""
        plain = {
            "target": str(self.limit),
            "verdict": self.verdict,
            "answer": self.answer,
            "method": self.method,
            "recommended": None if self.recommended is None else self.recommended.as_dict(),
            "sums": None if self.sums is None else self.sums.as_dict(),
            "frontier": [
                {"title": one.title, **one.point.as_dict(), "data_noise_scale": one.data_noise_scale}
                for one in self.frontier
            ],
            "audit": json.loads(self.audit.to_json()),
        }
        return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)


def plan_study(
    datasets: Partition | Sequence[Array],
    labels: Sequence[Array] | None = None,
    *,
    limit: LeakageLimit | str = "error at least 0.5",
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
    A grid over private-data noise, anchor noise and both is followed by bisection of each noise to just meet the limit;
    then other numbers of components and anchor rows are tried at the best point. A point whose rows carry no noise is
    never recommended: its upload is an exact image of the rows, and that the attacks we know fail there, as they do where
    organisations differ, protects nobody from the next one.
    """
    limit = LeakageLimit.parse(limit) if isinstance(limit, str) else limit
    auditor = Auditor.of(datasets, labels, settings or AuditSettings())
    if limit.measure == "epsilon":
        return _plan_sums(auditor, limit, progress)
    fixed = n_components is not None or isinstance(auditor.settings.projection, Projection)
    widths = _widths(n_components, auditor)
    search = _Search(auditor, limit, progress, n_anchor_rows)
    search.say("training alone and pooled")
    scores = auditor.references()
    for h in widths:
        search.over_noise(h)
    search.over_shape(widen=not fixed)
    best, recommended, verdict = search.conclude(scores.local_only)
    sums = auditor.audit_sums(search.say)
    search.finish()
    tried = tuple(search.tried.values())
    chosen = None if best is None else tried.index(best)
    audit = auditor.result(scores, tried, chosen=chosen, sums=sums, target=str(limit))
    verdict += "" if sums is None else _beside(sums)
    return Plan(limit, audit, recommended, verdict, None if recommended is None else _tabulate(recommended, auditor))


def _plan_sums(auditor: Auditor, limit: LeakageLimit, progress: Progress | None) -> Plan:
    """Secure sums at the ε asked for, with the split of the budget that scores best, beside one point that uploads rows."""
    h = auditor.default_n_components
    contrast = point_with_noise(0.0, _CONTRAST, n_components=h, n_anchor_rows=4 * h)
    sums = auditor.sum_auditor()
    if sums is None or limit.bound <= 0:
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
        results.append(sums.audit(sums.split_budget(point) if epsilon == limit.bound else point))
    tell(len(asked), len(asked) + 1, auditor.title(contrast))
    audited = auditor.audit(contrast)
    tell(len(asked) + 1, len(asked) + 1, "done")
    best = next(one for one in results if one.point.epsilon == limit.bound)
    found = sums.result(results)
    audit = auditor.result(auditor.references(), [audited], sums=found, target=str(limit), contrast=True)
    answer = None if best.gain is None else best.gain.answer
    named = {"pays": "Recommended", "does not pay": "Nothing is recommended. Within the limit"}
    words = f"{named.get(answer or '', 'Within the limit')}: secure sums, {best.point.state_guarantee()}"
    verdict = f"{words} At ε = {limit.bound:g} {state_sums(best)}"
    pays = answer != "does not pay"
    return Plan(limit, audit, None, verdict, best.point.as_method() if pays else None, best if pays else None)


def _beside(sums: SumAudit) -> str:
    """What sums that carry a guarantee would give instead, in a sentence."""
    able = [one for one in sums.results if one.point.epsilon is not None and one.gain is not None]
    paying = [one for one in able if one.gain is not None and one.gain.answer == "pays"]
    if not paying:
        return " Secure sums, which carry a guarantee, were not shown to pay either." if able else ""
    least = min(paying, key=lambda one: one.point.epsilon or math.inf)
    return f" Secure sums carry a guarantee instead: at ε = {least.point.epsilon:g} {state_sums(least)}"


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


class _Search:
    """Points tried so far, and what to try next."""

    def __init__(
        self, auditor: Auditor, limit: LeakageLimit, progress: Progress | None, n_anchor_rows: int | None
    ) -> None:
        self.auditor, self.limit, self.progress, self.n_anchor_rows = auditor, limit, progress, n_anchor_rows
        self.tried: dict[OperatingPoint, PointResult] = {}
        self.expected = 0

    def say(self, words: str) -> None:
        if self.progress is not None:
            self.progress(len(self.tried), max(self.expected, len(self.tried) + 1), words)

    def finish(self) -> None:
        if self.progress is not None:
            total = max(self.expected, len(self.tried))
            self.progress(total, total, "done")

    def at(self, v: float, level: float, h: int, r: int) -> PointResult:
        point = point_with_noise(v, level, n_components=h, n_anchor_rows=r)
        if point not in self.tried:
            self.say(f"h = {h}: {self.auditor.title(point)}")
            self.tried[point] = self.auditor.audit(point)
            if len(self.tried) == 1 and self.tried[point].worst(self.limit.measure) is None:
                raise InputError(
                    "limit",
                    expected="about something that can be measured on these rows",
                    got=str(self.limit),
                    cure="Linkage needs ten rows of a class, membership test rows, identity linkage groups of rows.",
                )
        return self.tried[point]

    def over_noise(self, h: int) -> None:
        """The grid, then each noise bisected to where the limit is just met."""
        r = self.n_anchor_rows or 4 * h
        fixed = [(0.0, level) for level in _DATA_LEVELS] + [(v, 0.0) for v in _ANCHOR_SCALES] + list(_BOTH)
        self.expected += len(fixed) + 4 * _HALVINGS + 6
        for v, level in fixed:
            self.at(v, level, h, r)
        self._bisect(lambda level: self.at(0.0, level, h, r), _DATA_LEVELS)
        self._bisect(lambda v: self.at(v, 0.0, h, r), _ANCHOR_SCALES, most=2.0)
        for v in (0.05, 0.1):
            self._bisect(partial(self.at, v, h=h, r=r), [level for w, level in _BOTH if w == v])

    def over_shape(self, *, widen: bool) -> None:
        """Other numbers of components and of anchor rows, at the best point so far."""
        best = self._best()
        if best is None:
            return
        v, level, h = best.point.anchor_noise_scale, best.point.data_noise_level, best.point.n_components
        if v > 0 and self.n_anchor_rows is None:
            for r in (2 * h, 8 * h):
                self.at(v, level, h, r)
        m = self.auditor.partition.n_features
        if not widen or self.auditor.settings.projection == "none" or m <= 4:
            return
        most = m if self.auditor.partition.public is None else min(m, self.auditor.partition.public.shape[0])
        for other in {max(2, h // 2), min(most, 2 * h)} - {h}:
            for factor in (1.0, 1.25, 1.6):
                r = self.n_anchor_rows or 4 * other
                if self.limit.met_at(self.at(v * factor, level * factor, other, r)):
                    break

    def conclude(self, alone: Score | None) -> tuple[PointResult | None, PointResult | None, str]:
        """The best point that keeps to the limit and whose rows carry noise, what is recommended, and the verdict."""
        best = self._best()
        bare = next((one for one in self._ranked(with_noise=False)), None)
        aside = ""
        if bare is not None and (best is None or _score(bare) > _score(best)):
            aside = (
                f" ({bare.title} keeps to it against the attacks we know, but its rows carry no noise: the upload is "
                "an exact image of them, so it is not recommended.)"
            )
        if best is None:
            return (
                None,
                None,
                f"No operating point that was tried keeps to the limit ({self.limit}). None is recommended.{aside}",
            )
        recommended, words = self._worded(best, alone)
        return best, recommended, words + aside

    def _worded(self, best: PointResult, alone: Score | None) -> tuple[PointResult | None, str]:
        worst = best.worst(self.limit.measure)
        assert worst is not None
        held = f"{best.title}, h = {best.point.n_components}, r = {best.point.n_anchor_rows}"
        found = f"the strongest attack ({worst[0]}) gets {worst[1].value:.2f}{worst[1].interval.written()}"
        found += "" if worst[1].control is None else f" (without the upload: {worst[1].control:.2f})"
        linked = best.worst("linkage")
        if linked is not None and self.limit.measure != "linkage":
            found += f", and '{linked[0]}' links {linked[1].value:.0%} of the rows (chance {linked[1].chance:.0%})"
        told = best.worst("membership_at_1_percent")
        if told is not None and "membership" not in self.limit.measure:
            found += f"; '{told[0]}' tells {told[1].value:.0%} of them to be in, at 1 % false alarms"
        if best.deployed is None or alone is None or math.isnan(best.deployed.value) or math.isnan(alone.value):
            return best, f"Keeps to the limit ({self.limit}): {held}; {found}. Utility was not measured."
        assert best.gain is not None
        scores = (
            f"The joint model ({best.learner}) scores {best.deployed}, training alone {alone}. {best.gain.sentence()}"
        )
        kept = f"There {found}, so the limit ({self.limit}) is kept. A lower bound on leakage, not a guarantee."
        if best.gain.answer == "does not pay":
            return (
                None,
                f"Nothing is recommended. The best point that keeps to the limit ({self.limit}) is {held}. {scores}",
            )
        named = "Recommended" if best.gain.answer == "pays" else "The best point that keeps to the limit"
        return best, f"{named}: {held}. {scores} {kept}"

    def _best(self) -> PointResult | None:
        return next(iter(self._ranked()), None)

    def _ranked(self, *, with_noise: bool = True) -> list[PointResult]:
        """Points that keep to the limit, the best score first, then the safest; without scores, the least noise first."""
        kept = [
            one
            for one in self.tried.values()
            if self.limit.met_at(one) and (one.point.data_noise_level > 0) == with_noise
        ]
        sign = 1 if any(math.isfinite(_score(one)) for one in kept) else -1
        return sorted(kept, key=lambda one: (_score(one), sign * _safety(one, self.limit)), reverse=True)

    def _bisect(self, at: Callable[[float], PointResult], grid: Sequence[float], *, most: float = _MOST_NOISE) -> None:
        """Find the least noise that keeps to the limit: widen the grid if need be, then halve."""
        low, high = 0.0, None
        for noise in sorted(grid):
            if self.limit.met_at(at(noise)):
                high = noise
                break
            low = noise
        while high is None and low < most:
            noise = min(most, 2 * low or most)
            if self.limit.met_at(at(noise)):
                high = noise
            else:
                low = noise
        if high is None:
            return
        for _ in range(_HALVINGS):
            middle = round((low + high) / 2, 4)
            if self.limit.met_at(at(middle)):
                high = middle
            else:
                low = middle


def _score(one: PointResult) -> float:
    """The score as deployed; the least there is where it was not measured or is undefined."""
    return -math.inf if one.deployed is None or math.isnan(one.deployed.value) else one.deployed.value


def _safety(one: PointResult, limit: LeakageLimit) -> float:
    """A number that is higher where the strongest attack recovers less."""
    worst = one.worst(limit.measure)
    if worst is None:
        return -1.0
    return worst[1].value if limit.at_least else -worst[1].value


def _dominates(one: PointResult, other: PointResult, limit: LeakageLimit) -> bool:
    if one.deployed is None or other.deployed is None:
        return False
    score, safety = one.deployed.value - other.deployed.value, _safety(one, limit) - _safety(other, limit)
    return score >= 0 and safety >= 0 and (score > 0 or safety > 0)
