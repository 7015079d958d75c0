"""What tables and landscape have in common: their options, and points and references measured unless the store has them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mooring import InputError
from mooring.attacks import ATTACKS
from mooring.learners import LEARNERS
from mooring.randomness import Streams
from mooring.serialization import Record
from mooring.tables import Partition
from mooring_studies.comparison.results import Row
from mooring_studies.settings.spec import Spec
from mooring_studies.storage.progress import Progress
from mooring_studies.storage.store import FACTS, ResultStore
from mooring_studies.tabular.deployment import Deployment, Point, leakage, noise_columns
from mooring_studies.tabular.scores import alone, each_own, utility
from mooring_studies.tabular.skipped_attacks import facts_of, notes_of

Job = tuple[Row, Callable[[], Row]]
"""The method and draw of a row, and what measures the rest of it."""

_SECONDS_UNTIL_KEPT = 5.0  # rows of quick draws are kept together: one small file each would be thousands
_OWN = ("own:", "n_own")


@dataclass(frozen=True)
class Options(Record):
    """The [options] that tables and landscape have in common."""

    rows_each: tuple[int, ...]
    """Most training rows a participant; one part of the study each."""
    n_components: int
    """h."""
    learners: tuple[str, ...]
    """See `mooring_studies.tabular.scores.by_learner`."""
    anchor_noise: tuple[float, ...]
    data_noise: tuple[float, ...]
    """The grids; private-data noise as a multiple of the unit that the study names."""
    attacks: tuple[str, ...]
    n_queries: int
    alone: int
    """Most participants whose own models are trained."""

    def __post_init__(self) -> None:
        for name, given, known in (("learners", self.learners, LEARNERS), ("attacks", self.attacks, ATTACKS)):
            strangers = [name for name in given if name not in known]
            if strangers:
                cure = "Correct the study's file."
                raise InputError(name, expected=f"among {', '.join(known)}", got=repr(strangers[0]), cure=cure)


@dataclass(frozen=True, eq=False)
class Measurer:
    """Measures what the store does not have yet."""

    options: Options
    store: ResultStore
    progress: Progress
    own_scores: bool = True
    """Whether to keep what participants score on their own test rows."""

    def measure(
        self,
        deployment: Deployment,
        points: Iterable[tuple[Point, int]],
        identity: Row,
        *,
        references: Partition,
        sums: Sequence[Job],
        seed: int,
    ) -> None:
        """Append the references, which are one step of progress, then secure sums, and then every point."""
        append_missing(
            self.store, reference_jobs(references, self.options, seed=seed), identity, own_scores=self.own_scores
        )
        self.progress.advance()
        measure = partial(measured, deployment, options=self.options)
        named = (
            (point, {"method": point.method, "draw": point.draw}, seed_of_point) for point, seed_of_point in points
        )
        jobs: list[Job] = [
            *sums,
            *((name, partial(measure, point, seed=seed_of_point)) for point, name, seed_of_point in named),
        ]
        append_missing(self.store, jobs, identity, own_scores=self.own_scores, after_each=self.progress.advance)


def append_missing(
    store: ResultStore,
    jobs: Sequence[Job],
    identity: Row,
    *,
    own_scores: bool = True,
    after_each: Callable[[], None] = lambda: None,
) -> None:
    """Measure and append the rows that the store does not have."""
    had = {method: store.done(**identity, method=method) for method in {job[0]["method"] for job in jobs}}
    waiting: list[Row] = []
    since = time.perf_counter()
    for point, measure in jobs:
        if point["draw"] not in had[point["method"]] and (own_scores or point["method"] != "local-own"):
            columns = measure().items()
            kept = {name: value for name, value in columns if own_scores or not name.startswith(_OWN)}
            waiting.append(identity | point | kept)
        if waiting and time.perf_counter() - since > _SECONDS_UNTIL_KEPT:
            store.append(waiting)
            waiting, since = [], time.perf_counter()
        after_each()
    if waiting:
        store.append(waiting)


def measured(deployment: Deployment, point: Point, *, options: Options, seed: int) -> Row:
    """One point: its noise, what attacks recover, and what the joint model is worth with every learner."""
    simulation = deployment.simulate(point)
    return {
        **noise_columns(simulation),
        **leakage(deployment, simulation, attacks=options.attacks, seed=seed),
        **utility(deployment.records, simulation, learners=options.learners, seed=seed),
    }


def reference_jobs(rows: Partition, options: Options, *, seed: int) -> list[Job]:
    """What joining is measured against: participants alone, each on its own test rows, and all rows pooled as they are."""
    p = rows.n_participants
    train_alone = partial(alone, rows, learners=options.learners, seed=seed)
    return [
        *(({"method": "local-only", "draw": i}, partial(train_alone, [i])) for i in choose_evenly(options.alone, p)),
        ({"method": "local-own", "draw": 0}, partial(each_own, rows, learners=options.learners, seed=seed)),
        ({"method": "pooled-raw", "draw": 0}, partial(train_alone, range(p))),
    ]


def choose_evenly(count: int, p: int) -> list[int]:
    """Up to `count` of p participants, evenly spaced from the first to the last.

    Examples
    --------
    >>> choose_evenly(3, 10), choose_evenly(3, 2)
    ([0, 4, 9], [0, 1])
    """
    return [int(place) for place in np.unique(np.linspace(0, p - 1, min(count, p)).round())]


def deployment_streams(spec: Spec, deployment: int) -> Streams:
    """Where everything random in one deployment comes from."""
    return Streams(int(Streams.for_experiment(spec.seed).named(f"deployment/{deployment}").integers(2**62)))


def keep_facts(store: ResultStore, facts: Row) -> None:
    """Keep the facts of a finished run; its seconds are those of its stages, which the store adds up over runs."""
    rows = store.rows()
    store.keep(FACTS, facts | facts_of(rows) | {"notes": [*facts["notes"], *notes_of(rows)]})
