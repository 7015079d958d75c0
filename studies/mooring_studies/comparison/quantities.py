"""How our counterpart of each of the paper's numbers is computed from a study's rows and facts.

`paper.csv` names the function and its keyword arguments for every number. A function takes a `Study`, returns a number
or raises `NoAnswer`; shares are between 0 and 1.

A curve is fitted to all draws of a method with the paper's spline; controls are not among them. It is not read far
outside of what was drawn, nor in a wide gap between draws, where a spline says nothing; where it overshoots, a share is
clipped to 0 to 1. Digits have their trade-off from a spline of utility on linkage; faces from two splines on the noise,
read at the same noise.

Arguments: `method` and `column` (or `attack`) choose rows and what is read of them; `at`, `low` and `high` are levels of
noise, or of linkage in `on_linkage`; `level` is a value that a curve crosses, `level_of` a control whose utility is that
value; `end` is the lower or upper end of a band or a range; `over` is the method or control that is subtracted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Literal

import numpy as np

from mooring.theory import transition_scale
from mooring.typing import Vector
from mooring_studies.comparison.curves import WIDEST_GAP, Curve, crossing, crossings, fit, fit_together
from mooring_studies.comparison.max_of_k_baseline import estimate_max_of_k
from mooring_studies.comparison.reading import ACCURACY, Study, column_of, noise_of
from mooring_studies.comparison.results import Kind, Results
from mooring_studies.data.faces import GALLERIES_PER_QUERY, HELD_OUT_SHARE

End = Literal["low", "high"]
NOT_RECORDED = "not recorded"
NOT_MEASURED = "not measured"
NEVER = "the fitted curve never crosses this level"
OUTSIDE = "outside of what was drawn"
GAP = "too few draws near"
_BEYOND = 0.05  # how far past the draws a curve may be read, as a share of their range
_GRID = 501


class NoAnswer(Exception):
    """We have no such number; the text says why."""


# ------------------------------------------------------------------------------------------- counts, means and settings


def mean_of(study: Study, *, method: str, column: str) -> float:
    """The mean of a column over a method's rows: a control's value, or the mean over noisy draws."""
    return float(_finite(column_of(study.draws(method), column)).mean())


def largest_of(study: Study, *, method: str, column: str) -> float:
    """The largest value of a column over a method's rows."""
    return float(_finite(study.draws(method)[column]).max())


def median_of(study: Study, *, method: str, column: str, converged: bool) -> float:
    """The median of a column over the runs that met the stopping criterion, or over those that did not."""
    return float(np.median(_finite(_stopped(study, method, converged)[column], "no such run")))


def n_identical_pairs(study: Study, *, first: str, first_column: str, second: str, second_column: str) -> float:
    """The number of draws in which two methods have the same noise and the same value."""
    rows, others = (rows.only(np.argsort(rows["draw"], kind="stable")) for rows in map(study.draws, (first, second)))
    _, here, there = np.intersect1d(rows["draw"], others["draw"], return_indices=True)
    if not len(here):
        raise NoAnswer(NOT_MEASURED)
    same_noise = noise_of(rows, first)[here] == noise_of(others, second)[there]
    return float(np.sum(same_noise & (rows[first_column][here] == others[second_column][there])))


def n_strongest(study: Study, *, method: str, attack: str, among: list[str]) -> float:
    """The number of draws in which an attack links as many as the best of several, ties included."""
    rows = study.draws(method)
    linkages = np.stack([rows[f"linkage:{name}"] for name in among])
    complete = np.isfinite(linkages).all(axis=0)
    if not complete.any():
        raise NoAnswer(NOT_MEASURED)
    return float(np.sum(rows[f"linkage:{attack}"][complete] >= linkages[:, complete].max(axis=0)))


def expected_max_of_k(study: Study, *, method: str, kind: Kind) -> float:
    """What the strongest attack on a method would reach by chance alone, on average: see `max_of_k_baseline`."""
    estimate = estimate_max_of_k(study.draws(method), study.facts, kind)
    return _number(None if estimate is None else estimate[1], NOT_RECORDED)


def n_stopped(study: Study, *, method: str, converged: bool, side: Literal["below", "above"] | None = None) -> float:
    """The number of runs that met the stopping criterion, or were cut off; on one side of v_PT where `side` is given."""
    _finite(study.draws(method)["converged"])
    rows = _stopped(study, method, converged)
    if side is None:
        return float(len(rows))
    noise, v_pt = noise_of(rows, method), transition(study)
    return float(np.sum(noise < v_pt if side == "below" else noise >= v_pt))


def largest_converged(study: Study, *, method: str) -> float:
    """The largest noise of a run that met the stopping criterion."""
    return float(_finite(noise_of(_stopped(study, method, True), method), "no run met the criterion").max())


def smallest_capped(study: Study, *, method: str) -> float:
    """The smallest noise of a run that was cut off."""
    return float(_finite(noise_of(_stopped(study, method, False), method), "no run was cut off").min())


def middle_of_stopping(study: Study, *, method: str) -> float:
    """Where runs cease to meet the criterion: midway between the two noises above."""
    return (largest_converged(study, method=method) + smallest_capped(study, method=method)) / 2


def transition(study: Study) -> float:
    """v_PT, from the sizes that were run (eq. paigdp_ling_empirical_scale)."""
    p, h, r = study.n_participants, study.fact("spec.data.n_components"), study.fact("spec.data.n_anchor_rows")
    if not (p and h and r):
        raise NoAnswer("the sizes are not recorded")
    return transition_scale(p, h, r)


def n_draws(study: Study, *, method: str) -> float:
    """The number of draws of a method."""
    return _number(len(study.draws(method)) or None, NOT_MEASURED)


def n_methods(study: Study, *, methods: list[str]) -> float:
    """The number of the paper's methods that were run."""
    return float(len(set(study.results.values("method")) & set(methods)))


def from_facts(study: Study, *, path: str) -> float:
    """A number that the study recorded."""
    fact = study.fact(path)
    is_number = isinstance(fact, int | float) and not isinstance(fact, bool)
    return _number(fact if is_number else None, NOT_RECORDED)


def sum_of_facts(study: Study, *, paths: list[str]) -> float:
    """The sum of several numbers that the study recorded."""
    return sum(from_facts(study, path=path) for path in paths)


def highest_noise(study: Study, *, noise: Literal["data", "anchor"]) -> float:
    """The upper end of the noise drawn, absolute."""
    ranges, rms = study.fact(f"spec.noise.{noise}"), study.fact("rms")
    if not ranges or (rms is None and any(levels["unit"] == "rms" for levels in ranges)):
        raise NoAnswer(NOT_RECORDED)
    return max(float(levels["high"]) * (float(rms) if levels["unit"] == "rms" else 1.0) for levels in ranges)


def identities_each(study: Study) -> float:
    """Identities per participant."""
    return _number(study.identities_each, NOT_RECORDED)


def identities_in(study: Study, *, split: Literal["train", "validation", "test"]) -> float:
    """Identities per participant in one split: 15 % each, rounded, to validate and to test, the rest to train."""
    identities = identities_each(study)
    held_out = int(HELD_OUT_SHARE * identities + 0.5)
    return float(identities - 2 * held_out if split == "train" else held_out)


def episodes(study: Study) -> float:
    """Galleries of all the target's identities together."""
    return identities_each(study) * GALLERIES_PER_QUERY


def participants_run(study: Study, *, n_participants: int) -> float:
    """A number of participants, if it was run."""
    if not len(study.results.where(n_participants=n_participants)):
        raise NoAnswer("not run")
    return float(n_participants)


# -------------------------------------------------------------------------------------------------------- fitted curves


def fitted(study: Study, *, method: str, column: str, at: float) -> float:
    """A curve at one noise; the strongest attack was run on few draws and is never read past the last of them."""
    curve = study.curve(method, column)
    if column.startswith("envelope:") and len(curve) and _within(curve, at):
        at = min(max(at, curve.low), curve.high)
    return _read(curve, at)


def fitted_band(study: Study, *, method: str, column: str, at: float, end: End) -> float:
    """One end of that curve's band at one noise."""
    return _read_band(study, study.curve(method, column), at, end)


def crossing_of(
    study: Study, *, method: str, column: str, level: float | None = None, level_of: str | None = None
) -> float:
    """The first noise at which a curve crosses a level."""
    curve = _measured(study.curve(method, column))
    noise = _number(crossing(curve, _level(study, level, level_of)), NEVER)
    if curve.widest_gap(noise, noise) > WIDEST_GAP:
        raise NoAnswer(GAP)
    return noise


def n_crossings(study: Study, *, method: str, column: str, level: float) -> float:
    """How often a curve crosses a level over the range drawn."""
    return float(len(crossings(_measured(study.curve(method, column)), level)))


def mean_fitted(study: Study, *, method: str, column: str, low: float, high: float) -> float:
    """The mean of a curve between two noises."""
    return _share(float(_values_between(study.curve(method, column), low, high).mean()))


def extreme_fitted(study: Study, *, method: str, column: str, low: float, high: float, end: End) -> float:
    """The lowest or highest value of a curve between two noises."""
    values = _values_between(study.curve(method, column), low, high)
    return _share(float(values.min() if end == "low" else values.max()))


def on_linkage(study: Study, *, method: str, attack: str, at: float) -> float:
    """A spline of utility on linkage, at one linkage."""
    return _read(_curve_on_linkage(study, method, attack), at)


def on_linkage_band(study: Study, *, method: str, attack: str, at: float, end: End) -> float:
    """One end of that spline's band at one linkage."""
    return _read_band(study, _curve_on_linkage(study, method, attack), at, end)


def on_linkage_gain(study: Study, *, method: str, attack: str, over: str, over_attack: str, at: float) -> float:
    """How much higher one method's spline of utility on linkage is than another's."""
    gained = on_linkage(study, method=method, attack=attack, at=at)
    return gained - on_linkage(study, method=over, attack=over_attack, at=at)


def bands_overlap(study: Study, *, method: str, attack: str, over: str, over_attack: str, at: float) -> float:
    """1 where the bands of the two splines overlap at one linkage, else 0."""
    curves = _curve_on_linkage(study, method, attack), _curve_on_linkage(study, over, over_attack)
    lows, highs = ([_read_band(study, curve, at, end) for curve in curves] for end in ("low", "high"))
    return float(max(lows) <= min(highs))


def utility_at_linkage(study: Study, *, method: str, attack: str, level: float) -> float:
    """Fitted utility at the first noise at which fitted linkage crosses a level."""
    linkage, utility = _linkage_and_utility(study, method, attack)
    return _along(linkage, utility, level)


def gain_at_linkage(study: Study, *, method: str, attack: str, level: float, over: str) -> float:
    """How much that utility is above a control's."""
    utility = utility_at_linkage(study, method=method, attack=attack, level=level)
    return utility - mean_of(study, method=over, column=ACCURACY)


def linkage_at_utility(
    study: Study, *, method: str, attack: str, level: float | None = None, level_of: str | None = None
) -> float:
    """Fitted linkage at the first noise at which fitted utility crosses a level."""
    linkage, utility = _linkage_and_utility(study, method, attack)
    return _along(utility, linkage, _level(study, level, level_of))


def extreme_over_participants(
    study: Study, *, method: str, column: str, at: float, participants: list[int], end: End
) -> float:
    """The lowest or highest of the curves at one noise of several participant counts, all with as many identities each."""
    alike = study.allocated_alike(participants)
    values = _known(lambda p: fitted(alike.at(p), method=method, column=column, at=at), participants)
    return _number((min if end == "low" else max)(values, default=None), NOT_MEASURED)


def farthest_from_control(study: Study, *, method: str, control: str, at: float, participants: list[int]) -> float:
    """The largest distance between fitted utility at one noise and a control's, over several participant counts."""
    alike = study.allocated_alike(participants)

    def distance(p: int) -> float:
        rows = alike.at(p)
        return abs(fitted(rows, method=method, column=ACCURACY, at=at) - mean_of(rows, method=control, column=ACCURACY))

    return _number(max(_known(distance, participants), default=None), NOT_MEASURED)


FUNCTIONS: Mapping[str, Callable[..., float]] = MappingProxyType(
    {
        name: function
        for name, function in globals().items()
        if inspect.isfunction(function) and function.__module__ == __name__ and not name.startswith("_")
    }
)
"""The functions above by name, as `paper.csv` refers to them."""

VARYING = frozenset(
    {
        *("mean_of", "fitted", "crossing_of", "mean_fitted", "extreme_fitted", "on_linkage", "on_linkage_gain"),
        *("utility_at_linkage", "gain_at_linkage", "linkage_at_utility"),
        *("extreme_over_participants", "farthest_from_control"),
    }
)
"""The functions that have a value for every deployment, whatever its number of draws."""


def _number(value: float | None, reason: str) -> float:
    """A number; where it is missing or not finite, there is no answer for this reason."""
    if value is None or not np.isfinite(value):
        raise NoAnswer(reason)
    return float(value)


def _finite(values: Vector, reason: str = NOT_MEASURED) -> Vector:
    """The finite values; where there are none, there is no answer for this reason."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        raise NoAnswer(reason)
    return finite


def _stopped(study: Study, method: str, converged: bool) -> Results:
    return study.draws(method).where(converged=float(converged))


def _known(compute: Callable[[int], float], participants: Iterable[int]) -> list[float]:
    """A number for each count of participants that has one."""
    numbers = []
    for p in participants:
        with suppress(NoAnswer):
            numbers.append(compute(p))
    return numbers


def _curve_on_linkage(study: Study, method: str, attack: str) -> Curve:
    rows = study.draws(method)
    return fit(rows[f"linkage:{attack}"], rows[ACCURACY])


def _linkage_and_utility(study: Study, method: str, attack: str) -> list[Curve]:
    """Two splines on the same noise and the same draws: the paper's trade-off for faces."""
    rows = study.draws(method)
    return fit_together(noise_of(rows, method), rows[f"linkage:{attack}"], rows[ACCURACY])


def _level(study: Study, level: float | None, level_of: str | None) -> float:
    """A level as given, or the mean utility of a control."""
    if level_of is not None:
        return mean_of(study, method=level_of, column=ACCURACY)
    return _number(level, NOT_MEASURED)


def _within(curve: Curve, at: float) -> bool:
    margin = _BEYOND * (curve.high - curve.low)
    return bool(curve.low - margin <= at <= curve.high + margin)


def _measured(curve: Curve) -> Curve:
    if not len(curve):
        raise NoAnswer(NOT_MEASURED)
    return curve


def _require_draws(curve: Curve, low: float, high: float) -> None:
    """Refuse to read a curve between two points without enough draws."""
    _measured(curve)
    if not (_within(curve, low) and _within(curve, high)):
        raise NoAnswer(OUTSIDE)
    if curve.widest_gap(low, high) > WIDEST_GAP:
        raise NoAnswer(GAP)


def _read(curve: Curve, at: float) -> float:
    _require_draws(curve, at, at)
    return _share(float(curve.at(at)))


def _read_band(study: Study, curve: Curve, at: float, end: End) -> float:
    _require_draws(curve, at, at)
    low, high = curve.band([at], n_resamples=study.n_resamples)
    return _share(float((low if end == "low" else high)[0]))


def _values_between(curve: Curve, low: float, high: float) -> Vector:
    _require_draws(curve, low, high)
    return curve.at(np.linspace(low, high, _GRID))


def _along(crossed: Curve, read: Curve, level: float) -> float:
    """One curve at the first noise at which another, of the same draws, crosses a level."""
    return _read(read, _number(crossing(_measured(crossed), level), NEVER))


def _share(value: float) -> float:
    """A share from 0 to 1, as all curves that are read here are of; no answer where the value is NaN."""
    return _number(float(np.clip(value, 0.0, 1.0)), NOT_MEASURED)
