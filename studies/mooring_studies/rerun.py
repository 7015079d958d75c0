"""One row of a finished study computed again, and set beside the one that was kept; rows of a new method added to a study.

The study runs in a temporary store that holds all other rows, with the settings that the kept table was made with. To
compute a row again writes nothing into the study's own folder.
"""

from __future__ import annotations

import heapq
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from mooring import InputError, StorageError
from mooring_studies.comparison.results import Row, decode_rows
from mooring_studies.settings.sections import convert, suggest_name
from mooring_studies.settings.spec import Spec
from mooring_studies.storage.machine_facts import first_facts
from mooring_studies.storage.progress import Progress
from mooring_studies.storage.store import ResultStore, read_finished

IDENTITY = ("case", "deployment", "n_participants", "identities_each", "rows_each", "method", "draw")
"""What tells one row from all others."""

NAMED_BY = (*IDENTITY, "anchor_noise_scale", "data_noise_scale")
ROUNDING = 1e-6
"""Numbers that differ by no more than this, absolutely or relative to their size, differ by rounding."""

_SAME_SCALE = 1e-6  # relative: a scale as it was read off a table
_NOT_FIGURES = ("solver_seconds", "attacks_not_run_because")  # times and words
_NEAREST = 5
_EVERY_DRAW = set(range(10_000))  # more than any study has


@dataclass(frozen=True)
class ColumnComparison:
    """One column of a row: as it was kept, and as it was computed again."""

    column: str
    kept: Any
    again: Any
    difference: float | None
    """None where the two are not both numbers."""
    differs: bool
    """By more than rounding; a time never does."""


@dataclass(frozen=True)
class RowComparison:
    """A row and its columns; no columns where this version of the study does not compute it any more."""

    identity: Row
    columns: tuple[ColumnComparison, ...]


@dataclass(frozen=True)
class Rerun:
    """Rows computed again beside the kept ones, and the facts of the kept table and of this run."""

    rows: tuple[RowComparison, ...]
    kept: dict[str, Any]
    now: dict[str, Any]

    @property
    def n_differing(self) -> int:
        """How many columns differ by more than rounding."""
        return sum(column.differs for row in self.rows for column in row.columns)


@dataclass(frozen=True, eq=False)
class RerunRequest:
    """A finished study, and those of its rows that are to be computed again."""

    spec: Spec
    facts: dict[str, Any]
    wanted: list[Row]
    others: list[Row]


def read_choice(text: str) -> Row:
    """Which rows are meant: columns and their values.

    Examples
    --------
    >>> read_choice("deployment=0,method=aa-i-gdp-anchor-noise,draw=4")
    {'deployment': 0, 'method': 'aa-i-gdp-anchor-noise', 'draw': 4}
    """
    choice: Row = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not value:
            raise InputError(
                "row", expected="column=value, separated by commas", got=repr(part), cure="Such as deployment=0,draw=4."
            )
        if name not in NAMED_BY:
            cure = suggest_name(name, NAMED_BY) or "Name deployment, method and draw."
            raise InputError("a column of row", expected=f"one of {', '.join(NAMED_BY)}", got=repr(name), cure=cure)
        if name in choice:
            raise InputError(name, expected="given once", got="twice", cure="A row has one value in a column.")
        kind: type = str if name in ("case", "method") else float if name.endswith("_scale") else int
        try:
            choice[name] = kind(value)
        except ValueError:
            expected = "a whole number" if kind is int else "a number"
            raise InputError(name, expected=expected, got=repr(value), cure="results.parquet has them.") from None
    return choice


def find_rows(folder: Path, study: str, choice: Mapping[str, Any]) -> RerunRequest:
    """The rows of a finished study that are meant, and the settings that it was made with."""
    finished = read_finished(folder)
    if finished.study != study:
        raise InputError(
            "from", expected=f"a folder with results of {study}", got=f"those of {finished.study}", cure="Name another."
        )
    spec = spec_of(finished.facts)
    rows = decode_rows((folder / "results.parquet").read_bytes())
    far = [_distance(row, choice) for row in rows]
    if min(far, default=1.0) > 0:
        near = heapq.nsmallest(_NEAREST, zip(far, range(len(rows)), strict=True))
        raise InputError(
            "row",
            expected=f"one of the {len(rows)} rows in {folder}",
            got=name_row(choice),
            cure="The nearest: " + "; ".join(name_row(rows[k], choice) for _, k in near) + ".",
        )
    wanted = [row for row, distance in zip(rows, far, strict=True) if distance == 0]
    others = [row for row, distance in zip(rows, far, strict=True) if distance > 0]
    return RerunRequest(spec, finished.facts, wanted, others)


def spec_of(facts: Mapping[str, Any]) -> Spec:
    """The settings that a study was made with, from its facts."""
    try:
        return convert(facts["spec"], Spec)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise StorageError(
            "facts.json",
            reason="it does not hold settings as this version of mooring has them",
            cure=f"Use the version that made it: {facts.get('mooring', 'unknown')}.",
        ) from None


def rerun_rows(
    asked: RerunRequest, *, data_dir: Path | None, face_model: Path | None, device: str, progress: Progress
) -> Rerun:
    """Compute the rows again that were asked for, and no other but those that can only be had together with them."""
    from mooring_studies import runner

    # Deployments do not depend on one another: later ones than those asked for need not even be prepared.
    last = max(int(row.get("deployment", 0)) for row in asked.wanted)
    spec = replace(asked.spec, deployments=min(asked.spec.deployments, last + 1))
    now = first_facts(asked.spec, device=device) | {"device": device}
    with tempfile.TemporaryDirectory() as folder, _StoreOfFinished(Path(folder), now["key"], now) as store:
        store.take_over(asked.others, asked.facts, lambda identity: _draws_of(asked.wanted, identity))
        runner.run_study(spec, data_dir=data_dir, face_model=face_model, device=device, store=store, progress=progress)
        again = {_identity(row): row for row in store.rows()[len(asked.others) :]}
    rows = [RowComparison(dict(_identity(row)), _compared(row, again.get(_identity(row)))) for row in asked.wanted]
    return Rerun(tuple(rows), asked.facts, now)


class _StoreOfFinished(ResultStore):
    """A store that has the rows of a finished study, but for those that are to be computed."""

    def take_over(self, rows: list[Row], facts: Mapping[str, Any], left: Callable[[Row], set[int]]) -> None:
        """Have these rows, and hold the run to the data that they were made from; `left` tells draws to be computed."""
        self._left, self._made_from = left, dict(facts.get("data") or {})
        if "rows_from" in facts:
            self._made_from["rows from"] = facts["rows_from"]
        self.append(rows)

    def done(self, **identity: Any) -> set[int]:
        """All draws but those that are to be computed, also such as the kept table does not have."""
        return _EVERY_DRAW - self._left(identity)

    def bind(self, name: str, value: str) -> None:
        """Refuse other data than the kept rows were made from: their numbers would not compare."""
        if self._made_from.get(name, value) != value:
            raise InputError(
                f"{name} of this run",
                expected=f"what the kept rows were made from, {self._made_from[name]}",
                got=value,
                cure="Point --data-dir to the same data.",
            )
        super().bind(name, value)


def _draws_of(rows: Sequence[Row], identity: Row) -> set[int]:
    matching = (row for row in rows if all(row.get(name) == value for name, value in identity.items()))
    return {int(row["draw"]) for row in matching if "draw" in row}


def name_row(row: Mapping[str, Any], like: Mapping[str, Any] = {}) -> str:
    """What names a row, as `read_choice` reads it; noise scales only where `like` has them."""
    names = [name for name in NAMED_BY if name in row and (name in IDENTITY or name in like or not like)]
    return ",".join(f"{name}={row[name]}" for name in names)


def _identity(row: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, row[name]) for name in IDENTITY if name in row)


def _distance(row: Mapping[str, Any], choice: Mapping[str, Any]) -> float:
    """How far a row is from what was asked for: first in how many columns, then by how much; 0 for one that is meant."""
    return sum(_far(row.get(name), value) for name, value in choice.items())


def _far(value: Any, asked: Any) -> float:
    if value == asked or (isinstance(value, float) and math.isclose(value, asked, rel_tol=_SAME_SCALE)):
        return 0.0
    if value is None:
        return 2.0
    if isinstance(asked, str):
        return 2.0 - SequenceMatcher(None, value, asked).ratio()
    return 1.0 + float(abs(value - asked) / (1.0 + abs(value) + abs(asked)))


def _compared(kept: Row, again: Row | None) -> tuple[ColumnComparison, ...]:
    if again is None:
        return ()
    names = [name for name in dict.fromkeys([*kept, *again]) if name not in IDENTITY]
    return tuple(_compare(name, kept.get(name), again.get(name)) for name in names)


def _compare(name: str, kept: Any, again: Any) -> ColumnComparison:
    counts = name not in _NOT_FIGURES
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in (kept, again)):
        return ColumnComparison(name, kept, again, None, differs=counts and kept != again)
    by = again - kept
    rounding = abs(by) <= ROUNDING * max(1.0, abs(kept), abs(again))
    return ColumnComparison(name, kept, again, float(by), differs=counts and not rounding)
