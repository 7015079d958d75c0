"""Jobs of a study of tables: options checked, what the store does not have yet done, and kept as it is finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mooring.attacks import REGISTRY
from mooring.errors import InputError
from mooring.learners import LEARNERS
from mooring_studies.storage.progress import Progress
from mooring_studies.storage.store import ResultStore
from mooring_studies.tabular.deployment import Row

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


def renamed(columns: Row, learner: str) -> Row:
    """Scores of a further learner, its name after a colon."""
    return {f"{name}:{learner}": value for name, value in columns.items()}
