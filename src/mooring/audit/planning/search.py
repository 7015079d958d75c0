"""The search of a plan: it audits points, chooses the next ones, and audits the best one on other rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from mooring.audit.auditor import Auditor
from mooring.audit.effort import AuditEffort
from mooring.audit.planning.plan import find_safety
from mooring.audit.results.point_result import PointResult
from mooring.audit.results.statements import LOWER_BOUND, state_strongest
from mooring.audit.rotation.point import RotationPoint, point_with_noise
from mooring.errors import InputError
from mooring.learners import Score
from mooring.metrics.limits import LeakageLimit
from mooring.typing import Progress

_MOST_NOISE = 5.0
_ROOM = (
    2.0  # `room` of limits in the search, as for `LeakageLimit.met_by`; with 1, half of the points fail on other rows
)
HALVES = (
    "The setting was chosen on one half of each participant's rows; these figures come from the other half, with "
    "independent random draws."
)


class PointSearch:
    """The points that were tried so far, and the rules by which further points are tried."""

    def __init__(
        self, auditor: Auditor, limit: LeakageLimit, progress: Progress | None, n_anchor_rows: int | None
    ) -> None:
        self.auditor, self.limit, self.progress, self.n_anchor_rows = auditor, limit, progress, n_anchor_rows
        self.tried: dict[RotationPoint, PointResult] = {}
        self.expected = 0

    @property
    def effort(self) -> AuditEffort:
        """The noise scales to try, and the number of bisections that follow."""
        return self.auditor.settings.effort

    def say(self, words: str) -> None:
        """Report to `progress` what comes next."""
        if self.progress is not None:
            self.progress(len(self.tried), max(self.expected, len(self.tried) + 1), words)

    def finish(self) -> None:
        """Report to `progress` that the search is done."""
        if self.progress is not None:
            total = max(self.expected, len(self.tried))
            self.progress(total, total, "done")

    def at(self, v: float, level: float, h: int, r: int) -> PointResult:
        """Return the result at a point, which is audited if it was not tried before.

        `v` is the anchor noise scale, `level` is σ in units of the rows' root mean square, `h` and `r` are the numbers of
        components and anchor rows.
        """
        point = point_with_noise(v, level, n_components=h, n_anchor_rows=r)
        if point not in self.tried:
            self.say(f"h = {h}: {point.title_on(self.auditor.deployment)}")
            self.tried[point] = self.auditor.audit(point)
            if len(self.tried) == 1 and self.tried[point].worst(self.limit.measure) is None:
                raise InputError(
                    "limit",
                    expected="a measure that can be taken on these rows",
                    got=str(self.limit),
                    cure="Linkage needs ten rows of a class, membership inference needs test rows, and identity linkage "
                    "needs several rows of a person.",
                )
        return self.tried[point]

    def over_noise(self, h: int) -> None:
        """Try a grid of noise scales, then bisect each scale to the smallest one that meets the limit."""
        r = self.n_anchor_rows or 4 * h
        levels, scales, both = self.effort.data_levels, self.effort.anchor_scales, self.effort.both_noises
        fixed = [(0.0, level) for level in levels] + [(v, 0.0) for v in scales] + list(both)
        self.expected += len(fixed) + 4 * self.effort.halvings + 6
        for v, level in fixed:
            self.at(v, level, h, r)
        self._bisect(lambda level: self.at(0.0, level, h, r), levels)
        self._bisect(lambda v: self.at(v, 0.0, h, r), scales, most=2.0)
        for v in (0.05, 0.1):
            self._bisect(partial(self.at, v, h=h, r=r), [level for w, level in both if w == v])

    def over_shape(self, *, widen: bool) -> None:
        """Try other numbers of components and anchor rows at the best point so far."""
        best = self.best()
        if best is None:
            return
        point = self._point_of(best)
        v, level, h = point.anchor_noise_scale, point.data_noise_level, point.n_components
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
                if self._keeps(self.at(v * factor, level * factor, other, r)):
                    break

    def conclude(self, reporter: Auditor) -> tuple[PointResult, PointResult | None, str]:
        """Return the reported point, the recommended point if there is one, and the verdict.

        The reported point is the best one, or the safest one if none keeps to the limit.
        """
        best, bare = self.best(), next(iter(self._ranked(with_noise=False)), None)
        aside = ""
        if bare is not None and (best is None or _score(bare) > _score(best)):
            aside = (
                f" ({bare.title} keeps to the limit against the attacks we know. It is not recommended, because its rows "
                "carry no noise, so that an upload is an exact image of them.)"
            )
        noisy = [result for point, result in self.tried.items() if point.data_noise_level > 0]
        chosen = best or max(noisy, key=lambda result: find_safety(result, self.limit))
        self.say(f"on the other half of the rows: {chosen.title}")
        point = self._point_of(chosen)
        level = chosen.data_noise_scale / reporter.deployment.rms(
            point.n_components
        )  # the same σ in the other rows' unit
        reported = reporter.audit(replace(point, data_noise_level=level))
        if best is None:
            words = f"Nothing is recommended: no settings with noise on rows keep to the limit ({self.limit})."
            safest = f"The safest tried are {_describe_point(reported, point)}: {self._describe_leakage(reported)}."
            return reported, None, f"{words} {safest} {HALVES}{aside}"
        recommended, words = self._worded(reported, point, reporter.alone.references.local_only)
        return reported, recommended, f"{words} {HALVES}{aside}"

    def _describe_leakage(self, result: PointResult) -> str:
        """Return a clause on what attacks recover at a point, by the limit's measure, linkage and membership."""
        measures = dict.fromkeys((self.limit.measure, "linkage", "membership_at_1_percent"))
        clauses = [clause for measure in measures if (clause := state_strongest(result, measure))]
        return "; ".join(clauses) or "no attack could be measured"

    def _worded(self, best: PointResult, point: RotationPoint, alone: Score | None) -> tuple[PointResult | None, str]:
        held, leakage = _describe_point(best, point), self._describe_leakage(best)
        if not best.keeps_to(self.limit):
            return None, (
                f"Nothing is recommended. {held} kept to the limit ({self.limit}) on the rows that were searched, but not "
                f"on the other half: {leakage}. More rows make figures more certain; a stricter limit leaves a margin."
            )
        if best.deployed is None or alone is None or math.isnan(best.deployed.value) or math.isnan(alone.value):
            return best, f"{held} keeps to the limit ({self.limit}): {leakage}. Utility was not measured."
        assert best.gain is not None
        scores = (
            f"The joint model ({best.learner}) has {alone.article} {alone.metric} of {best.deployed}, training alone "
            f"{alone}. {best.gain.sentence()}"
        )
        kept = f"The limit ({self.limit}) is kept: {leakage}. {LOWER_BOUND}"
        if best.gain.answer == "does not pay":
            words = f"Nothing is recommended. The best point that keeps to the limit ({self.limit}) is {held}."
            return None, f"{words} {scores}"
        named = "Recommended" if best.gain.answer == "pays" else "The best point that keeps to the limit"
        return best, f"{named}: {held}. {scores} {kept}"

    def best(self) -> PointResult | None:
        """Return the best-scoring point that keeps to the limit and whose rows carry noise; None if there is none."""
        return next(iter(self._ranked()), None)

    def _point_of(self, result: PointResult) -> RotationPoint:
        return next(point for point, audited in self.tried.items() if audited is result)

    def _keeps(self, result: PointResult) -> bool:
        return result.keeps_to(self.limit, room=_ROOM)

    def _ranked(self, *, with_noise: bool = True) -> list[PointResult]:
        """Return the points that keep to the limit, with or without noise on rows: the best score first, then the safest.

        Without any scores, the least safe point comes first.
        """
        kept = [
            result
            for point, result in self.tried.items()
            if self._keeps(result) and (point.data_noise_level > 0) == with_noise
        ]
        sign = 1 if any(math.isfinite(_score(result)) for result in kept) else -1
        return sorted(kept, key=lambda result: (_score(result), sign * find_safety(result, self.limit)), reverse=True)

    def _bisect(self, at: Callable[[float], PointResult], grid: Sequence[float], *, most: float = _MOST_NOISE) -> None:
        """Find the smallest noise that keeps to the limit: extend the grid if necessary, then bisect."""
        low, high = 0.0, None
        for noise in sorted(grid):
            if self._keeps(at(noise)):
                high = noise
                break
            low = noise
        while high is None and low < most:
            noise = min(most, 2 * low or most)
            if self._keeps(at(noise)):
                high = noise
            else:
                low = noise
        if high is None:
            return
        for _ in range(self.effort.halvings):
            middle = round((low + high) / 2, 4)
            if self._keeps(at(middle)):
                high = middle
            else:
                low = middle


def _describe_point(result: PointResult, point: RotationPoint) -> str:
    """Return the title of a point's result with its numbers of components and anchor rows."""
    return f"{result.title}, {point.n_components} components (h), {point.n_anchor_rows} anchor rows (r)"


def _score(result: PointResult) -> float:
    """Return the score as deployed, or −∞ if it was not measured or is undefined."""
    return -math.inf if result.deployed is None or math.isnan(result.deployed.value) else result.deployed.value
