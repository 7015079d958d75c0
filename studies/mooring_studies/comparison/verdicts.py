"""A dozen claims of the paper: what became of each in our deployments, by one rule a claim.

Ours is read from draws in a bin around the noise (or the linkage, or the accuracy) that the paper names, deployment by
deployment: a mean over them or a straight line through them, no spline. A claim is what must be true in every deployment, and
numbers of the paper beside ours:

- *holds*: it is true, and every number is near (`claims.is_large`);
- *holds, shifted*: it is true, but a number is not near;
- *does not*: it is not true in some deployment;
- *ill-posed*: the number that the paper names is not there to be read in most deployments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mooring.theory import transition_scale
from mooring_studies.comparison.claims import Number, is_large, paper_numbers
from mooring_studies.comparison.claims_study import noise_of
from mooring_studies.comparison.findings_reading import ANCHOR, DATA, Reader, at_alone, mean_of
from mooring_studies.comparison.results import Results

HOLDS, SHIFTED, FAILS, ILL_POSED = "holds", "holds, shifted", "does not", "ill-posed"
FEWEST_DRAWS, FEWEST_FOR_LINE = 3, 5
BIN = 0.05
"""Half the width of a bin, as a share of the range of noise."""
LINKAGE_BIN, ACCURACY_BIN = 0.02, 0.02
CHANCE = 0.1
UNEVEN_NOISE = (0.0, 0.04, 0.08, 0.16, 0.25)
ACCURACY, COUPLED = "balanced_accuracy", "aa-i-gdp-data-noise"
OP, SECRET = "linkage:procrustes", "linkage:known-secret"
_NOISES = {"anchor": ANCHOR, "private": DATA}


@dataclass(frozen=True)
class Reading:
    """One number of the paper, by its name in paper.toml, and ours in each deployment that has it."""

    words: str
    name: str
    ours: tuple[float, ...]

    @property
    def number(self) -> Number:
        """The paper's number, and what is known of it."""
        return next(one for one in paper_numbers() if one.id == self.name)

    @property
    def paper(self) -> float:
        """The paper's, in its unit."""
        assert self.number.value is not None
        return self.number.value

    @property
    def unit(self) -> str:
        """The unit of both."""
        return self.number.unit

    @property
    def sign(self) -> str:
        """What is written behind a number."""
        return "\N{NO-BREAK SPACE}%" if self.unit == "%" else ""

    @property
    def shown(self) -> tuple[float, float]:
        """Mean and standard deviation of ours, in the paper's unit."""
        return float(np.mean(self.ours)), float(np.std(self.ours, ddof=1)) if len(self.ours) > 1 else 0.0

    @property
    def outside(self) -> bool:
        """Whether the paper's number lies outside of all of ours, where there are several."""
        return len(self.ours) > 1 and not min(self.ours) <= self.paper <= max(self.ours)

    @property
    def near(self) -> bool:
        """Whether the mean of ours is near the paper's number, by the rule of its unit."""
        return not is_large(self.number, self.shown[0], self.shown[0] - self.paper)


def judge(true: bool, readings: Sequence[Reading]) -> str:
    """The verdict on a claim."""
    if any(not one.ours for one in readings):
        return ILL_POSED
    return FAILS if not true else HOLDS if all(one.near for one in readings) else SHIFTED


def describe_verdicts(studies: Mapping[str, Results]) -> dict[str, dict[str, Any]]:
    """Each claim's verdict, readings and other figures, by name; of the studies that were run."""
    found: dict[str, dict[str, Any]] = {}
    by_study = {"mnist": _on_digits, "celeba": _on_faces}
    for name, describe in by_study.items():
        if name in studies:
            found |= describe(_Deployed(name, studies[name]))
    if "participants" in studies:
        found |= _on_participants(studies["participants"])
    return found


class _Deployed:
    """A study's deployments, one after the other."""

    def __init__(self, study: str, rows: Results) -> None:
        self.study = study
        self.each = [Reader(rows.where(deployment=one)) for one in rows.values("deployment")]

    def read(self, one: Callable[[Reader], float]) -> tuple[float, ...]:
        """A figure of every deployment that has it."""
        return tuple(value for value in map(one, self.each) if np.isfinite(value))

    def reading(self, words: str, name: str, one: Callable[[Reader], float], *, scale: float = 100.0) -> Reading:
        return Reading(words, f"{self.study}.{name}", tuple(scale * value for value in self.read(one)))

    def at_noise(self, words: str, name: str, method: str, column: str, at: float) -> Reading:
        return self.reading(words, name, lambda one: in_bin(one, method, column, at))

    def all(self, one: Callable[[Reader], Any]) -> bool:
        return all(bool(one(each)) for each in self.each)


def in_bin(study: Reader, method: str, column: str, at: float) -> float:
    """A column at a level of noise: a line through the draws near it, the mean of few, NaN where there are too few."""
    rows = study.draws(method)
    noise, values = noise_of(rows, method), rows[column]
    most = float(np.max(noise, initial=0.0))
    at = min(at, most * (1 - BIN))
    near = (np.abs(noise - at) <= BIN * most) & np.isfinite(values)
    if near.sum() < FEWEST_FOR_LINE:
        return _mean(values, near)
    return float(np.polyval(np.polyfit(noise[near] - at, values[near], 1), 0.0))


def _mean(values: Any, chosen: Any) -> float:
    known = values[chosen & np.isfinite(values)]
    return float(known.mean()) if len(known) >= FEWEST_DRAWS else float("nan")


def _at(study: Reader, method: str, of: str, level: float, half: float, column: str) -> float:
    """The mean of a column over the draws of which another is near a level."""
    rows = study.draws(method)
    return _mean(rows[column], np.abs(rows[of] - level) <= half)


def _claim(true: bool, *readings: Reading, **more: Any) -> dict[str, Any]:
    return {"verdict": judge(true, readings), "readings": readings, **more}


def _transition(study: Reader) -> float:
    """Midway between the largest anchor noise at which the solver stopped and the smallest at which it did not."""
    rows = study.draws(ANCHOR)
    stopped = rows["converged"] == 1
    noise = rows["anchor_noise_scale"]
    if not (stopped.any() and not stopped.all()):
        return float("nan")
    return float(noise[stopped].max() + noise[~stopped].min()) / 2


def _plateau(study: Reader, low: float) -> float:
    rows = study.draws(ANCHOR)
    return _mean(rows[ACCURACY], rows["anchor_noise_scale"] >= low)


def _on_digits(study: _Deployed) -> dict[str, dict[str, Any]]:
    def alike(one: Reader) -> bool:
        first, second = one.draws(DATA), one.draws(COUPLED)
        return bool((first[SECRET] == second["linkage:known-anchor"]).all() and second["discrepancy"].max() < 1e-10)

    def gap(one: Reader) -> float:
        return float(one.draws(COUPLED)["discrepancy"].max())

    def share_strongest(one: Reader) -> float:
        rows = one.draws(ANCHOR)
        others = np.stack([rows["linkage:pseudoinverse"], rows["linkage:alignment-map"]])
        return mean_of(np.where(np.isfinite(others).all(axis=0), 200.0 * (rows[OP] >= others.max(axis=0)), np.nan))

    def above_private(one: Reader) -> bool:
        gains = [
            _at(one, ANCHOR, OP, at, LINKAGE_BIN, ACCURACY) - _at(one, DATA, SECRET, at, LINKAGE_BIN, ACCURACY)
            for at in (0.124, 0.2)
        ]
        return not any(gain <= 0 for gain in gains)

    def traded(words: str, name: str, method: str, column: str, at: float) -> Reading:
        return study.reading(words, name, lambda one: _at(one, method, column, at, LINKAGE_BIN, ACCURACY))

    levels = ("0.05", "0.10", "0.15", "0.20")
    v_pt = transition_scale(10, 100, 400)
    return {
        "equivalence": _claim(study.all(alike), study.reading("distance", "utility.discrepancy", gap, scale=1.0)),
        "recovery": _claim(
            study.all(lambda one: one.mean("c-gdp", SECRET) == one.mean("aa-i-gdp", "linkage:known-anchor")),
            study.reading("C-GDP and AA-I-GDP", "linkage.control.c-gdp", lambda one: one.mean("c-gdp", SECRET)),
        ),
        "strongest": _claim(
            study.all(lambda one: not np.isfinite(share_strongest(one)) or share_strongest(one) > 100),
            study.reading("draws of 200", "linkage.anchor.strongest", share_strongest, scale=1.0),
        ),
        "methods": _claim(
            study.all(lambda one: one.mean("c-gdp") > one.mean("i-gdp")),
            study.reading("C-GDP", "utility.control.c-gdp", lambda one: one.mean("c-gdp")),
            study.reading("I-GDP", "utility.control.i-gdp", lambda one: one.mean("i-gdp")),
        ),
        "private": _claim(
            study.all(lambda one: in_bin(one, DATA, ACCURACY, 50) < 2 * CHANCE),
            study.at_noise("accuracy, σ = 10", "utility.private.10.c-gdp", DATA, ACCURACY, 10),
            study.at_noise("accuracy, σ = 50", "utility.private.50.c-gdp", DATA, ACCURACY, 50),
            study.at_noise("linkage, σ = 50", "linkage.private.50", DATA, SECRET, 50),
        ),
        "anchor": _claim(
            study.all(lambda one: in_bin(one, ANCHOR, ACCURACY, 0.05) > in_bin(one, ANCHOR, ACCURACY, 0.2)),
            *(study.at_noise(f"v = {v}", f"utility.anchor.{v}", ANCHOR, ACCURACY, float(v)) for v in levels),
        ),
        "linkage": _claim(
            study.all(lambda one: in_bin(one, ANCHOR, OP, 0.2) > CHANCE),
            study.at_noise("v = 0.15", "linkage.anchor.0.15.procrustes", ANCHOR, OP, 0.15),
            study.at_noise("v = 0.20", "linkage.anchor.0.20.procrustes", ANCHOR, OP, 0.20),
            study.at_noise("v = 0.50", "linkage.anchor.0.50.procrustes", ANCHOR, OP, 0.50),
        ),
        "plateau": _claim(
            study.all(lambda one: abs(_plateau(one, 0.3) - one.mean("i-gdp")) < (_plateau(one, 0.3) - CHANCE) / 2),
            study.reading("v ≥ 0.3", "utility.anchor.plateau", lambda one: _plateau(one, 0.3)),
            apart=[100 * one for one in study.read(lambda one: _plateau(one, 0.3) - one.mean("i-gdp"))],
        ),
        "transition": _claim(
            study.all(lambda one: _transition(one) < v_pt),
            study.reading("v", "solver.near", _transition, scale=1.0),
            v_pt=v_pt,
        ),
        "tradeoff": _claim(
            study.all(above_private),
            traded("anchor noise, 12.4 % linked", "tradeoff.12.4.anchor", ANCHOR, OP, 0.124),
            traded("private, 12.4 %", "tradeoff.12.4.private", DATA, SECRET, 0.124),
            traded("anchor, 20 %", "tradeoff.20.anchor", ANCHOR, OP, 0.2),
            traded("private, 20 %", "tradeoff.20.private", DATA, SECRET, 0.2),
        ),
        "deployed": _against_strongest(study),
    }


def _against_strongest(study: _Deployed) -> dict[str, Any]:
    """What the strongest attack links where joining is worth no more than training alone, under either noise."""
    linked = {name: study.read(lambda one, m=method: at_alone(one, m, "linkage")) for name, method in _NOISES.items()}
    better = bool(linked["anchor"] and linked["private"]) and np.mean(linked["anchor"]) < np.mean(linked["private"])
    return {
        "verdict": HOLDS if better else FAILS,
        "readings": (),
        **{name: _spread(one) for name, one in linked.items()},
    }


def _spread(values: Sequence[float]) -> tuple[float, float]:
    return (100 * float(np.mean(values)), 100 * float(np.std(values, ddof=1))) if len(values) > 1 else (*values, 0.0)


def _on_faces(study: _Deployed) -> dict[str, dict[str, Any]]:
    def crossing(method: str, column: str) -> Callable[[Reader], float]:
        def first(one: Reader) -> float:
            """The least noise from which on no bin of draws is linked more often than by guessing."""
            rows = one.draws(method)
            noise = noise_of(rows, method)
            levels = np.linspace(0, np.max(noise, initial=0.0), round(1 / (2 * BIN)) + 1)
            bins = [_mean(rows[column], (noise >= low) & (noise < high)) for low, high in pairwise(levels)]
            below = [low for low, value in zip(levels, bins, strict=False) if value <= CHANCE]
            return float(below[0]) if below else float("nan")

        return first

    def linked(words: str, name: str, method: str, column: str) -> Reading:
        return study.reading(words, name, lambda one: _at(one, method, ACCURACY, 0.75, ACCURACY_BIN, column))

    crossings = [
        study.reading("v, OP", "linkage.anchor.crossing.procrustes", crossing(ANCHOR, OP), scale=1.0),
        study.reading("σ", "linkage.private.crossing", crossing(DATA, SECRET), scale=1.0),
    ]
    few = any(2 * len(one.ours) <= len(study.each) for one in crossings)
    op, private = (
        study.read(lambda one, m=m, c=c: _at(one, m, ACCURACY, 0.75, ACCURACY_BIN, c))
        for m, c in ((ANCHOR, OP), (DATA, SECRET))
    )
    v_pt = transition_scale(10, 400, 1600)
    return {
        "faces-recovery": _claim(
            study.all(lambda one: one.mean("c-gdp", SECRET) > 5 * CHANCE),
            study.reading("C-GDP", "linkage.control.c-gdp", lambda one: one.mean("c-gdp", SECRET)),
        ),
        "faces-methods": _claim(
            study.all(lambda one: one.mean("c-gdp") > one.mean("i-gdp")),
            study.reading("C-GDP", "utility.control.c-gdp", lambda one: one.mean("c-gdp")),
            study.reading("I-GDP", "utility.control.i-gdp", lambda one: one.mean("i-gdp")),
        ),
        "faces-plateau": _claim(
            study.all(lambda one: abs(_plateau(one, 0.1) - one.mean("i-gdp")) < (_plateau(one, 0.1) - 0.5) / 2),
            study.reading("v ≥ 0.1", "utility.anchor.plateau.low", lambda one: _plateau(one, 0.1)),
            apart=[100 * one for one in study.read(lambda one: _plateau(one, 0.1) - one.mean("i-gdp"))],
        ),
        "faces-transition": _claim(
            study.all(lambda one: _transition(one) < v_pt),
            study.reading("v", "solver.largest-converged", _transition, scale=1.0),
            v_pt=v_pt,
        ),
        "crossing": _claim(not few, *crossings) | ({"verdict": ILL_POSED} if few else {}),
        "faces-tradeoff": _claim(
            max(op, default=1.0) < min(private, default=0.0),
            linked("anchor noise", "tradeoff.75.anchor", ANCHOR, OP),
            linked("private", "tradeoff.75.private", DATA, SECRET),
        ),
        "faces-deployed": _against_strongest(study),
    }


def _on_participants(rows: Results) -> dict[str, dict[str, Any]]:
    """Each claim in every allocation of identities; beside the paper's numbers that with most identities each."""
    series = [
        [
            Reader(rows.where(identities_each=each, n_participants=p))
            for p in rows.where(identities_each=each).values("n_participants")
        ]
        for each in rows.values("identities_each")
    ]
    best = {one.n_participants: one for own in series for one in own}

    def grows(values: Sequence[float]) -> bool:
        return all(low < high for low, high in pairwise(values))

    def readings(name: str, one: Callable[[Reader], float], *, scale: float = 100.0) -> list[Reading]:
        return [Reading(f"p = {p}", f"participants.{name}.p{p}", (scale * one(best[p]),)) for p in sorted(best) if p]

    def low_noise(one: Reader) -> float:
        return in_bin(one, ANCHOR, ACCURACY, 0.01)

    def n_stopped(one: Reader) -> float:
        return float(one.draws(ANCHOR)["converged"].sum())

    def late(one: Reader) -> bool:
        stopped = one.draws(ANCHOR).where(converged=1.0)["anchor_noise_scale"]
        return bool((stopped >= transition_scale(one.n_participants or 0, 400, 1600)).any())

    def apart(one: Reader) -> float:
        return abs(in_bin(one, ANCHOR, ACCURACY, 0.1) - one.mean("i-gdp"))

    return {
        "order": _claim(
            all(grows([low_noise(one) for one in own]) for own in series), *readings("utility.0.01", low_noise)
        ),
        "i-gdp-order": _claim(
            not all(grows([one.mean("i-gdp") for one in own]) for own in series),
            *readings("utility.i-gdp", lambda one: one.mean("i-gdp")),
        ),
        "stopping": _claim(
            all(grows([n_stopped(one) for one in own]) and not any(map(late, own)) for own in series),
            *readings("solver.converged", n_stopped, scale=1.0),
        ),
        "back-to-i-gdp": _claim(
            True,
            Reading("farthest", "participants.utility.far-end", (100 * max(map(apart, best.values())),)),
        ),
    }


def describe_uneven(studies: Mapping[str, Results]) -> list[dict[str, Any]]:
    """Uneven participants beside even ones, in the deployments that both have: mean and standard deviation by noise."""
    if not {"celeba", "uneven"} <= set(studies):
        return []
    deployments = studies["uneven"].values("deployment")

    def shown(study: str, read: Callable[[Reader], float]) -> tuple[float, float]:
        found = [read(Reader(studies[study].where(deployment=one))) for one in deployments]
        return _spread([value for value in found if np.isfinite(value)])

    def figures(read: Callable[[Reader, str], float]) -> dict[str, Any]:
        columns = ("linkage:procrustes", "linkage", "match", ACCURACY)
        return {
            column: [shown(study, lambda one, c=column: read(one, c)) for study in ("celeba", "uneven")]
            for column in columns
        }

    def between(low: float, high: float) -> Callable[[Reader, str], float]:
        def read(one: Reader, column: str) -> float:
            rows = one.draws(ANCHOR)
            noise = rows["anchor_noise_scale"]
            chosen = (noise >= low) & (noise < high) & np.isfinite(rows["linkage:moments"])
            return mean_of(_column(rows, column)[chosen])

        return read

    def without_anchor(one: Reader, column: str) -> float:
        return mean_of(_column(one.draws("i-gdp"), column))

    lines = [{"noise": f"{low:g} to {high:g}", **figures(between(low, high))} for low, high in pairwise(UNEVEN_NOISE)]
    return [*lines, {"noise": "no anchor (I-GDP)", **figures(without_anchor)}]


def _column(rows: Results, column: str) -> Any:
    return rows.strongest(column) if column in ("linkage", "match") else rows[column]
