"""Ours beside the paper's numbers: those that are read off fitted curves.

Each function takes a `Study` and, by keyword, what `paper.toml` says; it returns a number or raises `NoAnswer`. Shares are
between 0 and 1. A curve is fitted to all draws of a method with the paper's spline; controls are not among
them. It is read neither far outside of what was drawn nor in a wide gap between draws, where a spline says nothing; and
where it overshoots, a share is still one, from 0 to 1.

Legend: digits have their trade-off from a spline of utility on linkage; faces from two splines on the noise, read at the
same noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Literal

import numpy as np

from mooring.typing import Vector
from mooring_studies.comparison.claims_counts import mean_of
from mooring_studies.comparison.claims_study import NOT_MEASURED, NoAnswer, Study, noise_of, require_number
from mooring_studies.comparison.curves import N_RESAMPLES, WIDEST_GAP, Curve, crossing, crossings, fit, fit_together

End = Literal["low", "high"]
UTILITY = "balanced_accuracy"
_BEYOND = 0.05  # how far past the draws a curve may be read, as a share of their range
_GRID = 501
_EXTREME = {"low": "min", "high": "max"}
NEVER = "the fitted curve never crosses this level"
OUTSIDE = "outside of what was drawn"
GAP = "too few draws near"


def fitted(study: Study, *, method: str, column: str, at: float) -> float:
    """A curve over the noise, at one noise; of the strongest attack, run on few draws, never past the last of them.

    Parameters
    ----------
    study, method, column, at
        The curve's; `at` is a noise.
    """
    curve = study.curve(method, column)
    if column.startswith("envelope:") and len(curve) and _within(curve, at):
        at = min(max(at, curve.low), curve.high)
    return _read(curve, at)


def fitted_band(study: Study, *, method: str, column: str, at: float, end: End) -> float:
    """One end of that curve's band at one noise.

    Parameters
    ----------
    study, method, column, at, end
        The curve's, a noise, and an end of the band.
    """
    return _read_band(study.curve(method, column), at, end)


def crossing_of(
    study: Study, *, method: str, column: str, level: float | None = None, level_of: str | None = None
) -> float:
    """The first noise at which a curve crosses a level, or a control's utility.

    Parameters
    ----------
    study, method, column
        The curve's.
    level, level_of
        A value, or the control whose utility it is.
    """
    curve = _measured(study.curve(method, column))
    found = require_number(crossing(curve, _level(study, level, level_of)), NEVER)
    if _is_gap(curve, found, found):
        raise NoAnswer(GAP)
    return found


def n_crossings(study: Study, *, method: str, column: str, level: float) -> float:
    """How often a curve crosses a level over the range drawn.

    Parameters
    ----------
    study, method, column, level
        The curve's, and a share.
    """
    return float(len(crossings(_measured(study.curve(method, column)), level)))


def mean_fitted(study: Study, *, method: str, column: str, low: float, high: float) -> float:
    """The mean of a curve between two noises.

    Parameters
    ----------
    study, method, column, low, high
        The curve's, and two noises.
    """
    return _over(study.curve(method, column), low, high, lambda values: float(values.mean()))


def extreme_fitted(study: Study, *, method: str, column: str, low: float, high: float, end: End) -> float:
    """The lowest or highest value of a curve between two noises.

    Parameters
    ----------
    study, method, column, low, high, end
        The curve's, two noises, and whether the lowest or the highest is meant.
    """
    return _over(study.curve(method, column), low, high, lambda values: float(getattr(values, _EXTREME[end])()))


def on_linkage(study: Study, *, method: str, attack: str, at: float) -> float:
    """A spline of utility on linkage, at one linkage.

    Parameters
    ----------
    study, method, attack, at
        The spline's; `at` is a linkage.
    """
    return _read(_curve_on_linkage(study, method, attack), at)


def on_linkage_band(study: Study, *, method: str, attack: str, at: float, end: End) -> float:
    """One end of that spline's band at one linkage.

    Parameters
    ----------
    study, method, attack, at, end
        The spline's, a linkage, and an end of the band.
    """
    return _read_band(_curve_on_linkage(study, method, attack), at, end)


def on_linkage_gain(study: Study, *, method: str, attack: str, over: str, over_attack: str, at: float) -> float:
    """How much higher one method's spline of utility on linkage is than another's.

    Parameters
    ----------
    study, method, attack, over, over_attack, at
        Of the one spline and of the other; `at` is a linkage.
    """
    one = on_linkage(study, method=method, attack=attack, at=at)
    return one - on_linkage(study, method=over, attack=over_attack, at=at)


def bands_overlap(study: Study, *, method: str, attack: str, over: str, over_attack: str, at: float) -> float:
    """1 where the bands of the two splines overlap at one linkage, else 0.

    Parameters
    ----------
    study, method, attack, over, over_attack, at
        Of the one spline and of the other; `at` is a linkage.
    """
    curves = _curve_on_linkage(study, method, attack), _curve_on_linkage(study, over, over_attack)
    return float(
        max(_read_band(one, at, "low") for one in curves) <= min(_read_band(one, at, "high") for one in curves)
    )


def utility_at_linkage(study: Study, *, method: str, attack: str, level: float) -> float:
    """Fitted utility at the first noise at which fitted linkage crosses a level.

    Parameters
    ----------
    study, method, attack, level
        The curve's, and a linkage.
    """
    linkage, utility = _linkage_and_utility(study, method, attack)
    return _along(linkage, utility, level)


def gain_at_linkage(study: Study, *, method: str, attack: str, level: float, over: str) -> float:
    """How much that utility is above a control's.

    Parameters
    ----------
    study, method, attack, level, over
        The curve's, a linkage, and the control.
    """
    return utility_at_linkage(study, method=method, attack=attack, level=level) - _level(study, None, over)


def linkage_at_utility(
    study: Study, *, method: str, attack: str, level: float | None = None, level_of: str | None = None
) -> float:
    """Fitted linkage at the first noise at which fitted utility crosses a level, or a control's utility.

    Parameters
    ----------
    study, method, attack
        The curve's.
    level, level_of
        A utility, or the control whose utility it is.
    """
    linkage, utility = _linkage_and_utility(study, method, attack)
    return _along(utility, linkage, _level(study, level, level_of))


def extreme_over_participants(
    study: Study, *, method: str, column: str, at: float, participants: list[int], end: End
) -> float:
    """The lowest or highest of several participant counts' curves at one noise, all with as many identities each.

    Parameters
    ----------
    study, method, column, at, participants, end
        The curves', a noise, counts, and whether the lowest or the highest is meant.
    """
    alike = study.allocated_alike(participants)
    found = _known(lambda p: fitted(alike.at(p), method=method, column=column, at=at), participants)
    return require_number((min if end == "low" else max)(found, default=None), NOT_MEASURED)


def farthest_from_control(study: Study, *, method: str, control: str, at: float, participants: list[int]) -> float:
    """The same of the distance of fitted utility at one noise from a control's: the largest.

    Parameters
    ----------
    study, method, control, at, participants
        The curve's, the control, a noise, and counts.
    """
    alike = study.allocated_alike(participants)

    def distance(p: int) -> float:
        return abs(fitted(alike.at(p), method=method, column=UTILITY, at=at) - _level(alike.at(p), None, control))

    return require_number(max(_known(distance, participants), default=None), NOT_MEASURED)


def _known(compute: Callable[[int], float], participants: Iterable[int]) -> list[float]:
    """A number for each count of participants that has one."""
    found = []
    for p in participants:
        with suppress(NoAnswer):
            found.append(compute(p))
    return found


def _curve_on_linkage(study: Study, method: str, attack: str) -> Curve:
    rows = study.draws(method)
    return fit(rows[f"linkage:{attack}"], rows[UTILITY])


def _linkage_and_utility(study: Study, method: str, attack: str) -> list[Curve]:
    """Two splines on the same noise and the same draws: the paper's trade-off for faces."""
    rows = study.draws(method)
    return fit_together(noise_of(rows, method), rows[f"linkage:{attack}"], rows[UTILITY])


def _level(study: Study, level: float | None, level_of: str | None) -> float:
    """A level as given, or the mean utility of a control."""
    if level_of is not None:
        return mean_of(study, method=level_of, column=UTILITY)
    return require_number(level, NOT_MEASURED)


def _within(curve: Curve, at: float) -> bool:
    margin = _BEYOND * (curve.high - curve.low)
    return bool(curve.low - margin <= at <= curve.high + margin)


def _is_gap(curve: Curve, low: float, high: float) -> bool:
    return curve.widest_gap(low, high) > WIDEST_GAP


def _measured(curve: Curve) -> Curve:
    if not len(curve):
        raise NoAnswer(NOT_MEASURED)
    return curve


def _require_draws(curve: Curve, low: float, high: float) -> None:
    """Refuse to read a curve between two points without enough draws."""
    _measured(curve)
    if not (_within(curve, low) and _within(curve, high)):
        raise NoAnswer(OUTSIDE)
    if _is_gap(curve, low, high):
        raise NoAnswer(GAP)


def _read(curve: Curve, at: float) -> float:
    _require_draws(curve, at, at)
    return _share(float(curve.at(at)))


def _over(curve: Curve, low: float, high: float, of: Callable[[Vector], float]) -> float:
    """A curve between two points, by one number."""
    _require_draws(curve, low, high)
    return _share(of(curve.at(np.linspace(low, high, _GRID))))


def _along(crossed: Curve, read: Curve, level: float) -> float:
    """One curve at the first noise at which another, of the same draws, crosses a level."""
    return _read(read, require_number(crossing(_measured(crossed), level), NEVER))


def _read_band(curve: Curve, at: float, end: End) -> float:
    _require_draws(curve, at, at)
    low, high = curve.band([at], n_resamples=N_RESAMPLES)
    return _share(float((low if end == "low" else high)[0]))


def _share(value: float) -> float:
    """A share from 0 to 1, as all curves that are read here are of; no answer where the value is NaN."""
    return require_number(float(np.clip(value, 0.0, 1.0)), NOT_MEASURED)
