"""The search of a plan: points audited so far, the next ones to try, and the best one audited on other rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from mooring.audit.auditor import Auditor
from mooring.audit.operating_points import RotationPoint, point_with_noise
from mooring.audit.planning.plan import find_safety
from mooring.audit.result import PointResult
from mooring.audit.specification import LeakageLimit
from mooring.errors import InputError
from mooring.learners import Score
from mooring.metrics.membership import state_alarms
from mooring.typing import Progress

_DATA_LEVELS = (0.15, 0.3, 0.5, 0.8, 1.2)
_ANCHOR_SCALES = (0.05, 0.1, 0.2, 0.4)
_BOTH = ((0.05, 0.3), (0.1, 0.3), (0.05, 0.5), (0.1, 0.5), (0.1, 0.8))
_MOST_NOISE = 5.0
_HALVINGS = 3
_ROOM = 2.0  # intervals to the limit while searching: at one, every other point found just there fails on other rows
HALVES = "Chosen on one half of each participant's rows; these figures are of the other half, with draws of their own."


class PointSearch:
    """Points tried so far, and what to try next."""

    def __init__(
        self, auditor: Auditor, limit: LeakageLimit, progress: Progress | None, n_anchor_rows: int | None
    ) -> None:
        self.auditor, self.limit, self.progress, self.n_anchor_rows = auditor, limit, progress, n_anchor_rows
        self.tried: dict[RotationPoint, PointResult] = {}
        self.expected = 0

    def say(self, words: str) -> None:
        """Tell what comes next."""
        if self.progress is not None:
            self.progress(len(self.tried), max(self.expected, len(self.tried) + 1), words)

    def finish(self) -> None:
        """Tell that all is done."""
        if self.progress is not None:
            total = max(self.expected, len(self.tried))
            self.progress(total, total, "done")

    def at(self, v: float, level: float, h: int, r: int) -> PointResult:
        """The point with these noises and sizes, audited unless it was before.

        Parameters
        ----------
        v : float
            Anchor noise scale.
        level : float
            σ in units of the rows' root mean square.
        h, r : int
            Components and anchor rows.
        """
        point = point_with_noise(v, level, n_components=h, n_anchor_rows=r)
        if point not in self.tried:
            self.say(f"h = {h}: {point.title_on(self.auditor.deployment)}")
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
        """The best point, or the safest where none keeps to the limit, as reported; what is recommended; and the verdict."""
        best, bare = self.best(), next(iter(self._ranked(with_noise=False)), None)
        aside = ""
        if bare is not None and (best is None or _score(bare) > _score(best)):
            aside = (
                f" ({bare.title} keeps to it against the attacks we know, but its rows carry no noise: the upload is "
                "an exact image of them, so it is not recommended.)"
            )
        noisy = [one for point, one in self.tried.items() if point.data_noise_level > 0]
        chosen = best or max(noisy, key=lambda one: find_safety(one, self.limit))
        self.say(f"on the other half of the rows: {chosen.title}")
        point = self._point_of(chosen)
        level = chosen.data_noise_scale / reporter.deployment.rms(
            point.n_components
        )  # the same σ in the other rows' unit
        reported = reporter.audit(replace(point, data_noise_level=level))
        if best is None:
            words = f"No operating point that was tried keeps to the limit ({self.limit}). None is recommended."
            return reported, None, f"{words} At the safest, {_held(reported)}, {self._found(reported)}. {HALVES}{aside}"
        recommended, words = self._worded(reported, reporter.alone.references.local_only)
        return reported, recommended, f"{words} {HALVES}{aside}"

    def _found(self, one: PointResult) -> str:
        """What attacks recover at a point, in a clause."""
        worst = one.worst(self.limit.measure)
        if worst is None:
            return "no attack could be measured"
        digits = ".2f" if self.limit.at_least else ".0%"
        found = f"the strongest attack ({worst[0]}) gets {worst[1].value:{digits}}{worst[1].interval.written(digits)}"
        found += "" if worst[1].control is None else f" (without the upload: {worst[1].control:{digits}})"
        linked = one.worst("linkage")
        if linked is not None and self.limit.measure != "linkage":
            found += f", and '{linked[0]}' links {linked[1].value:.0%} of the rows (chance {linked[1].chance:.0%})"
        told = one.worst("membership_at_1_percent")
        if told is not None and "membership" not in self.limit.measure:
            found += f"; '{told[0]}' tells {told[1].value:.0%} of them to be in, at {state_alarms(told[1])}"
        return found

    def _worded(self, best: PointResult, alone: Score | None) -> tuple[PointResult | None, str]:
        held, found = _held(best), self._found(best)
        if not self.limit.met_at(best):
            return None, (
                f"Nothing is recommended. {held} kept to the limit ({self.limit}) on the rows that were searched; on others "
                f"{found}, so it is not kept. More rows make figures surer; a stricter limit leaves a margin."
            )
        if best.deployed is None or alone is None or math.isnan(best.deployed.value) or math.isnan(alone.value):
            return best, f"Keeps to the limit ({self.limit}): {held}; {found}. Utility was not measured."
        assert best.gain is not None
        scores = (
            f"The joint model ({best.learner}) scores {best.deployed}, training alone {alone}. {best.gain.sentence()}"
        )
        kept = f"There {found}, so the limit ({self.limit}) is kept. A lower bound on leakage, not a guarantee."
        if best.gain.answer == "does not pay":
            words = f"Nothing is recommended. The best point that keeps to the limit ({self.limit}) is {held}."
            return None, f"{words} {scores}"
        named = "Recommended" if best.gain.answer == "pays" else "The best point that keeps to the limit"
        return best, f"{named}: {held}. {scores} {kept}"

    def best(self) -> PointResult | None:
        """The point that scores best of those that keep to the limit and whose rows carry noise."""
        return next(iter(self._ranked()), None)

    def _point_of(self, result: PointResult) -> RotationPoint:
        return next(point for point, one in self.tried.items() if one is result)

    def _keeps(self, one: PointResult) -> bool:
        return self.limit.met_at(one, room=_ROOM)

    def _ranked(self, *, with_noise: bool = True) -> list[PointResult]:
        """Points that keep to the limit, the best score first, then the safest; without scores, the least noise first."""
        kept = [
            one for point, one in self.tried.items() if self._keeps(one) and (point.data_noise_level > 0) == with_noise
        ]
        sign = 1 if any(math.isfinite(_score(one)) for one in kept) else -1
        return sorted(kept, key=lambda one: (_score(one), sign * find_safety(one, self.limit)), reverse=True)

    def _bisect(self, at: Callable[[float], PointResult], grid: Sequence[float], *, most: float = _MOST_NOISE) -> None:
        """Find the least noise that keeps to the limit: widen the grid if need be, then halve."""
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
        for _ in range(_HALVINGS):
            middle = round((low + high) / 2, 4)
            if self._keeps(at(middle)):
                high = middle
            else:
                low = middle


def _held(one: PointResult) -> str:
    """A point in words, with its sizes."""
    point = one.point
    assert isinstance(point, RotationPoint)
    return f"{one.title}, h = {point.n_components}, r = {point.n_anchor_rows}"


def _score(one: PointResult) -> float:
    """The score as deployed; the least there is where it was not measured or is undefined."""
    return -math.inf if one.deployed is None or math.isnan(one.deployed.value) else one.deployed.value
