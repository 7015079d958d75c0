"""The plan: which method, how many components, how much noise; and whether to join at all."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from mooring.audit.auditor import Auditor
from mooring.audit.operating_points import OperatingPoint, point_with_noise
from mooring.audit.result import AuditResult, PointResult
from mooring.audit.specification import AuditSettings
from mooring.errors import InputError
from mooring.learners import Score
from mooring.mechanisms.projection import Projection
from mooring.metrics import Figure
from mooring.tables import Partition
from mooring.typing import Array, Progress

_DATA_LEVELS = (0.15, 0.3, 0.5, 0.8, 1.2)
_ANCHOR_SCALES = (0.05, 0.1, 0.2, 0.4)
_BOTH = ((0.05, 0.3), (0.1, 0.3), (0.05, 0.5), (0.1, 0.5), (0.1, 0.8))
_MOST_NOISE = 5.0
_HALVINGS = 3
_MEASURES = {
    "error": "centred_error",
    "reconstruction error": "centred_error",
    "relative error": "relative_error",
    "centred error": "centred_error",
    "decoded error": "decoded_error",
    "linkage": "linkage",
    "identity linkage": "identity_linkage",
    "exact source linkage": "exact_source_linkage",
    "attribute": "attribute",
}
_SHAPE = re.compile(
    r"^\s*(?P<measure>[a-z_ ]+?)\s*(?P<side>at least|at most|>=|<=|≥|≤)\s*(?P<bound>[0-9.]+)\s*(?P<percent>%?)\s*$"
)


@dataclass(frozen=True)
class LeakageLimit:
    """A bound on what the strongest attack may recover.

    Attributes
    ----------
    measure : str
        The name of a figure, such as "centred_error" or "linkage".
    bound : float
    at_least : bool
        True for errors, of which more is safer; False for linkage and the like.

    Examples
    --------
    >>> LeakageLimit.parse("reconstruction error at least 0.5")
    LeakageLimit(measure='centred_error', bound=0.5, at_least=True)
    >>> LeakageLimit.parse("linkage at most 20 %")
    LeakageLimit(measure='linkage', bound=0.2, at_least=False)
    """

    measure: str
    bound: float
    at_least: bool

    @classmethod
    def parse(cls, words: str) -> LeakageLimit:
        """Read a limit as people write it."""
        found = _SHAPE.match(words.lower())
        name = "" if found is None else found["measure"].replace("_", " ").strip()
        if found is None or name not in _MEASURES:
            raise InputError(
                "limit",
                expected=f"such as 'error at least 0.5' or 'linkage at most 20 %', about one of {', '.join(_MEASURES)}",
                got=repr(words),
                cure="Name a measure, 'at least' or 'at most', and a bound.",
            )
        try:
            bound = float(found["bound"]) / (100 if found["percent"] else 1)
        except ValueError:
            raise InputError(
                "limit", expected="a number as its bound", got=repr(words), cure="Write 0.5 or 20 %."
            ) from None
        at_least = found["side"] in ("at least", ">=", "≥")
        measure = _MEASURES[name]
        if at_least != measure.endswith("error"):
            raise InputError(
                "limit",
                expected="'at least' for an error, 'at most' for anything else",
                got=repr(words),
                cure="More error is safer; more linkage is not.",
            )
        return cls(measure, bound, at_least)

    def __str__(self) -> str:
        name = next(word for word, measure in _MEASURES.items() if measure == self.measure)
        if self.at_least:
            return f"{name} at least {self.bound:g}"
        return f"{name} at most {100 * self.bound:.6g}%"

    def met_by(self, figure: Figure) -> bool:
        """Whether a figure keeps to the limit even at the worse end of its interval."""
        interval = figure.interval
        if self.at_least:
            return (interval.low if interval.known else figure.value) >= self.bound
        return (interval.high if interval.known else figure.value) <= self.bound

    def met_at(self, result: PointResult) -> bool:
        """Whether the strongest attack at a point keeps to it; no attack, no trust."""
        worst = result.worst(self.measure)
        return worst is not None and not math.isnan(worst[1].value) and self.met_by(worst[1])


@dataclass(frozen=True)
class Plan:
    """What was searched, and what to do.

    Attributes
    ----------
    limit : LeakageLimit
    audit : AuditResult
        Every point that was tried.
    recommended : PointResult or None
        The point that keeps to the limit and scores best, audited with every attack; None if no point keeps to it, or
        none that does is shown to beat training alone.
    verdict : str
        The same in words.
    """

    limit: LeakageLimit
    audit: AuditResult
    recommended: PointResult | None
    verdict: str

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
            "recommended": None if self.recommended is None else self.recommended.as_dict(),
            "frontier": [one.point.as_dict() for one in self.frontier],
            "audit": json.loads(self.audit.to_json()),
        }
        return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)


def plan_study(
    datasets: Partition | Sequence[Array],
    labels: Sequence[Array] | None = None,
    *,
    limit: LeakageLimit | str = "reconstruction error at least 0.5",
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
        What the strongest attack may recover, such as "error at least 0.5" or "linkage at most 20 %". It must hold at the
        worse end of the figure's interval.
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
    fixed = n_components is not None or isinstance(auditor.settings.projection, Projection)
    widths = _widths(n_components, auditor)
    search = _Search(auditor, limit, progress, n_anchor_rows)
    search.say("training alone and pooled")
    scores = auditor.references()
    for h in widths:
        search.over_noise(h)
    search.over_shape(widen=not fixed)
    recommended, verdict = search.conclude(scores.local_only)
    search.finish()
    audit = auditor.result(scores, tuple(search.tried.values()), target=str(limit))
    return Plan(limit, audit, recommended, verdict)


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
            self.say(f"h = {h}: {point.title}")
            self.tried[point] = self.auditor.audit(point)
            if len(self.tried) == 1 and self.tried[point].worst(self.limit.measure) is None:
                raise InputError(
                    "limit",
                    expected="about something that can be measured on these rows",
                    got=str(self.limit),
                    cure="Linkage needs ten rows of a class, identity linkage groups of rows, and so on.",
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

    def conclude(self, alone: Score | None) -> tuple[PointResult | None, str]:
        """The best point that keeps to the limit and whose rows carry noise, and the outcome in words."""
        best = self._best()
        bare = next((one for one in self._ranked(with_noise=False)), None)
        aside = ""
        if bare is not None and (best is None or _score(bare) > _score(best)):
            aside = (
                f" ({bare.point.title} keeps to it against the attacks we know, but its rows carry no noise: the upload is "
                "an exact image of them, so it is not recommended.)"
            )
        if best is None:
            return (
                None,
                f"No operating point that was tried keeps to the limit ({self.limit}). None is recommended.{aside}",
            )
        recommended, words = self._worded(best, alone)
        return recommended, words + aside

    def _worded(self, best: PointResult, alone: Score | None) -> tuple[PointResult | None, str]:
        worst = best.worst(self.limit.measure)
        assert worst is not None
        held = f"{best.point.title}, h = {best.point.n_components}, r = {best.point.n_anchor_rows}"
        low, high = worst[1].interval.low, worst[1].interval.high
        found = f"the strongest attack ({worst[0]}) gets {worst[1].value:.2f} [{low:.2f}, {high:.2f}]"
        linked = best.worst("linkage")
        if linked is not None and self.limit.measure != "linkage":
            found += f", and '{linked[0]}' links {linked[1].value:.0%} of the rows (chance {linked[1].chance:.0%})"
        if best.deployed is None or alone is None or math.isnan(best.deployed.value) or math.isnan(alone.value):
            return best, f"Keeps to the limit ({self.limit}): {held}; {found}. Utility was not measured."
        joint = best.deployed.with_interval()
        if best.deployed.low <= alone.value:
            return None, (
                f"No operating point that keeps to the limit ({self.limit}) is shown to beat training alone: the best "
                f"joint model scores {joint} ({held}), training alone {alone}. Joining does not pay here."
            )
        return best, (
            f"Recommended: {held}. The joint model ({best.learner}) scores {joint}, training alone {alone}; {found}, so "
            f"the limit ({self.limit}) is kept. A lower bound on leakage, not a guarantee."
        )

    def _best(self) -> PointResult | None:
        return next(iter(self._ranked()), None)

    def _ranked(self, *, with_noise: bool = True) -> list[PointResult]:
        """Points that keep to the limit, the best score first; without scores, the least noise first."""
        kept = [
            one
            for one in self.tried.values()
            if self.limit.met_at(one) and (one.point.data_noise_level > 0) == with_noise
        ]
        return sorted(kept, key=lambda one: (_score(one), -_safety(one, self.limit)), reverse=True)

    def _bisect(self, at: Callable[[float], PointResult], grid: Sequence[float], *, most: float = _MOST_NOISE) -> None:
        """Find the least noise that keeps to the limit: widen the grid if need be, then halve."""
        low, high = 0.0, None
        for noise in sorted(grid):
            if self.limit.met_at(at(noise)):
                high = noise
                break
            low = noise
        while high is None and low < most:
            noise = min(most, 2 * low)
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
