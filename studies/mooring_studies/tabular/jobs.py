"""Jobs of a table study: options checked, points and references measured unless the store has them, facts kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from mooring import InputError
from mooring.attacks import REGISTRY
from mooring.learners import LEARNERS
from mooring.randomness import Streams
from mooring.tables import Partition
from mooring_studies.settings.spec import Spec
from mooring_studies.storage.progress import Progress
from mooring_studies.storage.store import FACTS, ResultStore
from mooring_studies.tabular.deployment import Deployment, Point, Row, leakage, noise_columns
from mooring_studies.tabular.scores import alone, each_own, renamed, utility
from mooring_studies.tabular.skipped_attacks import facts_of, notes_of

Job = tuple[Row, Callable[[], Row]]
"""The method and draw of a row, and what measures the rest of it."""

_SECONDS_UNTIL_KEPT = 5.0  # rows of quick draws are kept together: one small file each would be thousands


def checked(options: Mapping[str, Any], wanted: Iterable[str]) -> dict[str, Any]:
    """Options as keyword arguments, lists as tuples; refuse what is missing, unknown, or no learner or attack."""
    names = list(wanted)
    for what, found in (
        ("missing", [name for name in names if name not in options]),
        ("unknown", [name for name in options if name not in names]),
    ):
        if found:
            raise InputError(
                "[options]",
                expected=f"to hold {', '.join(names)}",
                got=f"{', '.join(found)} {what}",
                cure="Correct the study's file.",
            )
    for name, known in (("learners", LEARNERS), ("attacks", REGISTRY)):
        strangers = [one for one in options.get(name, ()) if one not in known]
        if strangers:
            raise InputError(
                f"{name} of [options]", expected=f"among {', '.join(known)}", got=repr(strangers[0]), cure="Correct it."
            )
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}


def append_missing(
    jobs: Sequence[Job], identity: Row, *, store: ResultStore, progress: Progress, as_one: bool = False
) -> None:
    """Do the jobs whose rows the store does not have; `as_one` counts them as one step of progress."""
    had = {method: store.done(**identity, method=method) for method in {job[0]["method"] for job in jobs}}
    waiting: list[Row] = []
    since = time.perf_counter()
    for point, measure in jobs:
        if point["draw"] not in had[point["method"]]:
            waiting.append(identity | point | measure())
        if waiting and time.perf_counter() - since > _SECONDS_UNTIL_KEPT:
            store.append(waiting)
            waiting, since = [], time.perf_counter()
        if not as_one:
            progress.advance()
    if waiting:
        store.append(waiting)
    if as_one:
        progress.advance()


def measured(
    deployment: Deployment, point: Point, *, attacks: Iterable[str], learners: Sequence[str], seed: int
) -> Row:
    """One point: its noise, what attacks recover, and what the joint model is worth with every learner.

    Parameters
    ----------
    deployment : Deployment
    point : Point
    attacks : iterable of str
    learners : sequence of str
    seed : int
    """
    simulation = deployment.simulate(point)
    columns = noise_columns(simulation) | leakage(deployment, simulation, attacks=attacks, seed=seed)
    for k, learner in enumerate(learners):
        found = utility(deployment.rows, simulation, learner=learner, seed=seed)
        columns |= renamed(found, learner) if k else found
    return columns


def reference_jobs(rows: Partition, *, learners: Sequence[str], most_alone: int, seed: int) -> list[Job]:
    """What joining is measured against: participants alone, each on its own test rows, and all rows pooled as they are.

    Parameters
    ----------
    rows : Partition
    learners : sequence of str
    most_alone : int
        Most participants whose own models are trained.
    seed : int
    """
    p = rows.n_participants
    chosen = np.unique(np.linspace(0, p - 1, min(most_alone, p)).round().astype(int)).tolist()
    trained: dict[str, Any] = {"learners": learners, "seed": seed}
    return [
        *(({"method": "local-only", "draw": i}, partial(alone, rows, [i], **trained)) for i in chosen),
        ({"method": "local-own", "draw": 0}, partial(each_own, rows, **trained)),
        ({"method": "pooled-raw", "draw": 0}, partial(alone, rows, range(p), **trained)),
    ]


def deployment_streams(spec: Spec, deployment: int) -> Streams:
    """Where everything random in one deployment comes from."""
    return Streams(int(Streams.for_experiment(spec.seed).named(f"deployment/{deployment}").integers(2**62)))


def keep_facts(store: ResultStore, part: str, began: float, facts: Row) -> None:
    """Keep the facts of a finished run, with its seconds added to those of the runs that it goes on from."""
    seconds = dict((store.kept(FACTS) or {}).get("seconds", {}))
    seconds[part] = seconds.get(part, 0.0) + time.perf_counter() - began
    rows = store.rows()
    store.keep(FACTS, facts | facts_of(rows) | {"seconds": seconds, "notes": [*facts["notes"], *notes_of(rows)]})
