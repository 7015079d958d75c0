"""Ours beside the paper's numbers: those that are read off fitted curves.

Each function takes a `Study` and, by keyword, what `paper.toml` says; it returns a number or the reason why there is none.
Shares are between 0 and 1. A curve is fitted to all draws of a method with the paper's spline; controls are not among
them. It is read neither far outside of what was drawn nor in a wide gap between draws, where a spline says nothing; and
where it overshoots, a share is still one, from 0 to 1.

Legend: digits have their trade-off from a spline of utility on linkage; faces from two splines on the noise, read at the
same noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from mooring.typing import Matrix
from mooring_studies.comparison.claims_counts import mean_of
from mooring_studies.comparison.claims_study import NOT_MEASURED, Answer, Study, column_of, noise_of, number_or
from mooring_studies.comparison.curves import N_RESAMPLES, WIDEST_GAP, Curve, crossing, crossings, fit, fit_together

End = Literal["low", "high"]
UTILITY = "balanced_accuracy"
_BEYOND = 0.05  # how far past the draws a curve may be read, as a share of their range
_GRID = 501
_ENDS: tuple[End, End] = ("low", "high")
_EXTREME = {"low": "min", "high": "max"}
NEVER = "the fitted curve never crosses this level"
OUTSIDE = "outside of what was drawn"
GAP = "too few draws near"


def fitted(study: Study, *, method: str, column: str, at: float) -> Answer:
    """A curve over the noise, at one noise; of the strongest attack, run on few draws, never past the last of them."""
    curve = _curve(study, method, column)
    if column.startswith("envelope:") and len(curve) and _within(curve, at):
        at = min(max(at, curve.low), curve.high)
    return _read(curve, at)


def fitted_band(study: Study, *, method: str, column: str, at: float, end: End) -> Answer:
    """One end of that curve's band at one noise."""
    return _read_band(_curve(study, method, column), at, end)


def crossing_of(
    study: Study, *, method: str, column: str, level: float | None = None, level_of: str | None = None
) -> Answer:
    """The first noise at which a curve crosses a level, or a control's utility."""
    wanted = _level(study, level, level_of)
    curve = _curve(study, method, column)
    if isinstance(wanted, str) or not len(curve):
        return NOT_MEASURED
    found = crossing(curve, wanted)
    return GAP if found is not None and _is_gap(curve, found) else number_or(found, NEVER)


def n_crossings(study: Study, *, method: str, column: str, level: float) -> Answer:
    """How often a curve crosses a level over the range drawn."""
    curve = _curve(study, method, column)
    return float(len(crossings(curve, level))) if len(curve) else NOT_MEASURED


def mean_fitted(study: Study, *, method: str, column: str, low: float, high: float) -> Answer:
    """The mean of a curve between two noises."""
    return _over(_curve(study, method, column), low, high, lambda values: float(values.mean()))


def extreme_fitted(study: Study, *, method: str, column: str, low: float, high: float, end: End) -> Answer:
    """The lowest or highest value of a curve between two noises."""
    return _over(_curve(study, method, column), low, high, lambda values: float(getattr(values, _EXTREME[end])()))


def on_linkage(study: Study, *, method: str, attack: str, at: float) -> Answer:
    """A spline of utility on linkage, at one linkage."""
    return _read(_curve_on_linkage(study, method, attack), at)


def on_linkage_band(study: Study, *, method: str, attack: str, at: float, end: End) -> Answer:
    """One end of that spline's band at one linkage."""
    return _read_band(_curve_on_linkage(study, method, attack), at, end)


def on_linkage_gain(study: Study, *, method: str, attack: str, over: str, over_attack: str, at: float) -> Answer:
    """How much higher one method's spline of utility on linkage is than another's."""
    one = on_linkage(study, method=method, attack=attack, at=at)
    other = on_linkage(study, method=over, attack=over_attack, at=at)
    if isinstance(one, str) or isinstance(other, str):
        return one if isinstance(one, str) else other
    return one - other


def bands_overlap(study: Study, *, method: str, attack: str, over: str, over_attack: str, at: float) -> Answer:
    """1 where the bands of the two splines overlap at one linkage, else 0."""
    curves = _curve_on_linkage(study, method, attack), _curve_on_linkage(study, over, over_attack)
    lows, highs = ([_read_band(curve, at, end) for curve in curves] for end in _ENDS)
    numbers = [end for end in (*lows, *highs) if not isinstance(end, str)]
    if len(numbers) < 4:
        return next(end for end in lows if isinstance(end, str))
    return float(max(numbers[:2]) <= min(numbers[2:]))


def utility_at_linkage(study: Study, *, method: str, attack: str, level: float) -> Answer:
    """Fitted utility at the first noise at which fitted linkage crosses a level."""
    linkage, utility = _linkage_and_utility(study, method, attack)
    return _along(linkage, utility, level)


def gain_at_linkage(study: Study, *, method: str, attack: str, level: float, over: str) -> Answer:
    """How much that utility is above a control's."""
    one, other = utility_at_linkage(study, method=method, attack=attack, level=level), _level(study, None, over)
    if isinstance(one, str) or isinstance(other, str):
        return one if isinstance(one, str) else other
    return one - other


def linkage_at_utility(
    study: Study, *, method: str, attack: str, level: float | None = None, level_of: str | None = None
) -> Answer:
    """Fitted linkage at the first noise at which fitted utility crosses a level, or a control's utility."""
    wanted = _level(study, level, level_of)
    linkage, utility = _linkage_and_utility(study, method, attack)
    return wanted if isinstance(wanted, str) else _along(utility, linkage, wanted)


def extreme_over_participants(
    study: Study, *, method: str, column: str, at: float, participants: list[int], end: End
) -> Answer:
    """The lowest or highest of several participant counts' curves at one noise, all with as many identities each."""
    alike = study.allocated_alike(participants)
    found = [fitted(alike.at(p), method=method, column=column, at=at) for p in participants]
    numbers = [value for value in found if not isinstance(value, str)]
    return number_or((min if end == "low" else max)(numbers, default=None), NOT_MEASURED)


def farthest_from_control(study: Study, *, method: str, control: str, at: float, participants: list[int]) -> Answer:
    """The same of the distance of fitted utility at one noise from a control's: the largest."""
    distances = []
    alike = study.allocated_alike(participants)
    for p in participants:
        one = fitted(alike.at(p), method=method, column=UTILITY, at=at)
        other = _level(alike.at(p), None, control)
        if not isinstance(one, str) and not isinstance(other, str):
            distances.append(abs(one - other))
    return number_or(max(distances, default=None), NOT_MEASURED)


def _curve(study: Study, method: str, column: str) -> Curve:
    rows = study.draws(method)
    return fit(noise_of(rows, method), column_of(rows, column))


def _curve_on_linkage(study: Study, method: str, attack: str) -> Curve:
    rows = study.draws(method)
    return fit(rows[f"linkage:{attack}"], rows[UTILITY])


def _linkage_and_utility(study: Study, method: str, attack: str) -> list[Curve]:
    """Two splines on the same noise and the same draws: the paper's trade-off for faces."""
    rows = study.draws(method)
    return fit_together(noise_of(rows, method), rows[f"linkage:{attack}"], rows[UTILITY])


def _level(study: Study, level: float | None, level_of: str | None) -> Answer:
    """A level as given, or the mean utility of a control."""
    if level_of is not None:
        return mean_of(study, method=level_of, column=UTILITY)
    return number_or(level, NOT_MEASURED)


def _within(curve: Curve, at: float) -> bool:
    margin = _BEYOND * (curve.high - curve.low)
    return bool(curve.low - margin <= at <= curve.high + margin)


def _is_gap(curve: Curve, low: float, high: float | None = None) -> bool:
    return curve.widest_gap(low, low if high is None else high) > WIDEST_GAP


def _unread(curve: Curve, low: float, high: float) -> str | None:
    """Why a curve is not read between two points; None where it is."""
    if not len(curve):
        return NOT_MEASURED
    if not (_within(curve, low) and _within(curve, high)):
        return OUTSIDE
    return GAP if _is_gap(curve, low, high) else None


def _read(curve: Curve, at: float) -> Answer:
    return _unread(curve, at, at) or number_or(_share(float(curve.at(at))), NOT_MEASURED)


def _over(curve: Curve, low: float, high: float, of: Callable[[Matrix], float]) -> Answer:
    """A curve between two points, by one number."""
    return _unread(curve, low, high) or number_or(_share(of(curve.at(np.linspace(low, high, _GRID)))), NOT_MEASURED)


def _along(crossed: Curve, read: Curve, level: float) -> Answer:
    """One curve at the first noise at which another, of the same draws, crosses a level."""
    if not len(crossed):
        return NOT_MEASURED
    noise = crossing(crossed, level)
    return NEVER if noise is None else _read(read, noise)


def _read_band(curve: Curve, at: float, end: End) -> Answer:
    unread = _unread(curve, at, at)
    if unread:
        return unread
    low, high = curve.band([at], n_resamples=N_RESAMPLES)
    return number_or(_share(float((low if end == "low" else high)[0])), NOT_MEASURED)


def _share(value: float) -> float:
    """All curves that are read here are of shares; NaN stays what it is."""
    return float(np.clip(value, 0.0, 1.0))
