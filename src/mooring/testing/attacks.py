"""The contract of an attack, on uploads of rows or on a total of sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from mooring.attacks import (
    Attack,
    CollusionView,
    DoesNotApply,
    MembershipScores,
    PairwiseView,
    Reconstruction,
    SumView,
    resolve_attack,
)
from mooring.audit.rotation.simulation import simulate
from mooring.audit.sums.general_simulation import simulate_general_total
from mooring.audit.sums.simulation import simulate_sums
from mooring.geometry.backend import to_numpy
from mooring.mechanisms.rotation.methods import METHODS
from mooring.mechanisms.sums.general.features import LevelFeatures
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.tables.schema import Column, Label, Schema
from mooring.testing.contract import require
from mooring.typing import Matrix

_PARTICIPANTS, _ROWS, _WIDTH = 4, 60, 5
_DATA_NOISE, _ANCHOR_NOISE = 0.3, 0.2
_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"with_labels": False},
    {"colluders": ()},
    {"colluders": (0, 2), "n_known_rows": _WIDTH + 2, "n_repeated_uploads": 2},
)


def check_attack(attack: str | Attack | Callable[..., Any]) -> None:
    """Check that an attack keeps the contract that every attack of mooring keeps.

    The attack is run on small simulated collaborations. Attacks on rows meet every method of rotation, with and without
    labels and colluders; attacks on sums meet totals with and without noise and colluders. In each collaboration, an
    attack must return finite rows of the right shape, or one score per candidate (NaN where it cannot tell), or raise
    `DoesNotApply` with a sentence. The attack must apply at least once, return the same result for the same `rng`, and leave
    its arguments unchanged.

    Parameters
    ----------
    attack : str, Attack or callable
        As for `mooring.attacks.run`.

    Raises
    ------
    AssertionError
        If the attack breaks the contract; the message says where.

    Examples
    --------
    >>> from mooring.attacks import reconstruct_rows
    >>> def guess_zero(view, *, rng):
    ...     return reconstruct_rows(view, np.zeros_like(view.target_upload.representation))
    >>> check_attack(guess_zero)
    """
    attack = resolve_attack(attack)
    require(attack.name and attack.summary, "The attack needs a name and a summary.")
    kinds = ((CollusionView, _row_views), (SumView, _sum_views), (PairwiseView, _pairwise_views))
    views = dict(next(list_views for kind, list_views in kinds if issubclass(kind, attack.view))())
    applied = 0
    for place, view in views.items():
        arrays = list(_arrays_of(view))
        before = [array.copy() for array in arrays]
        finding, again = (_run(attack, view) for _ in range(2))
        same = all(np.array_equal(array, copy) for array, copy in zip(arrays, before, strict=True))
        require(same, f"{attack.name} changes an array of its view ({place}).")
        require(type(finding) is type(again), f"{attack.name} applies to the same view only sometimes ({place}).")
        if isinstance(finding, DoesNotApply):
            sentence = finding.reason
            require(sentence[:1].isupper() and sentence.endswith("."), f"The reason must be a sentence: {sentence!r}.")
            continue
        applied += 1
        values = _values_of(attack, finding, view, place)
        require(
            np.array_equal(values, _values_of(attack, again, view, place), equal_nan=True),
            f"{attack.name} gives different results for the same rng ({place}).",
        )
    require(applied, f"{attack.name} applies to none of {len(views)} views: {', '.join(views)}.")


def _run(attack: Attack, view: Any) -> Any:
    try:
        return attack(view, rng=np.random.default_rng(0))
    except DoesNotApply as refusal:
        return refusal


def _values_of(attack: Attack, finding: Any, view: Any, place: str) -> Matrix:
    """Return the rows or scores of a finding, after checking them."""
    name = attack.name
    if isinstance(finding, MembershipScores):
        scores = np.asarray(finding.scores)
        expected = (len(view.candidates.features),)
        require(
            scores.shape == expected, f"{name} must return scores of shape {expected}, got {scores.shape} ({place})."
        )
        require(not np.isinf(scores).any(), f"{name} returns infinite scores ({place}).")
        return scores
    kind = type(finding).__name__
    require(
        isinstance(finding, Reconstruction), f"{name} must return a Reconstruction or MembershipScores, got {kind}."
    )
    rows, shape = to_numpy(finding.rows), view.target_upload.representation.shape
    require(rows.shape == shape, f"{name} must return rows of shape {shape}, got {rows.shape} ({place}).")
    require(np.isfinite(rows).all(), f"{name} returns rows that are not finite ({place}).")
    orthogonal = to_numpy(finding.rigid_map.orthogonal)
    require(orthogonal.shape == (shape[1], shape[1]), f"{name} returns a map of the wrong size ({place}).")
    if finding.row_error is not None:
        error = to_numpy(finding.row_error)
        least = np.linalg.eigvalsh(error).min()
        require(
            np.allclose(error, error.T) and least >= -1e-9 * np.abs(error).max(),
            f"{name}: row_error is no covariance matrix.",
        )
    require(all(isinstance(note, str) for note in finding.notes), f"{name} returns notes that are not text ({place}).")
    return np.asarray(rows)


def _row_views() -> Iterator[tuple[str, CollusionView]]:
    rows, labels = _draw()
    for name, method in METHODS.items():
        simulation = simulate(
            rows,
            labels,
            method=method,
            anchor_noise_scale=_ANCHOR_NOISE if method.anchor_noise else 0.0,
            data_noise_scale=_DATA_NOISE if method.data_noise else 0.0,
            rng=np.random.default_rng(1),
        )
        for options in _OPTIONS:
            yield f"{name}, {options or 'as usual'}", simulation.view(**options)


def _sum_views() -> Iterator[tuple[str, Any]]:
    rows, labels = _draw()
    rows = [np.hstack([part, np.zeros((_ROWS, 1))]) for part in rows]
    rows[1][0, -1] = 1.0  # a value that only one row has
    for privacy in (None, 1.0):
        simulation = simulate_sums(rows[:-1], labels[:-1], privacy=privacy, rng=np.random.default_rng(1))
        asked = simulation.encode(rows[1:], labels[1:])
        for colluders in ((0,), ()):
            yield f"ε = {privacy}, colluders {colluders}", simulation.view(colluders, asked=asked)


def _pairwise_views() -> Iterator[tuple[str, Any]]:
    rng = np.random.default_rng(0)
    words = tuple("abcdef")
    columns = Column("x", "number", -1, 1), Column("y", "category", categories=words)
    schema = Schema(columns, Label("z", "classes", ("no", "yes")))
    features = LevelFeatures(make_workload(schema), schema)
    rows = [
        np.hstack([rng.uniform(-1, 1, (_ROWS, 1)), np.eye(6)[rng.integers(5, size=_ROWS)]])
        for _ in range(_PARTICIPANTS)
    ]
    rows[1][0, 1:] = np.eye(6)[5]  # a word that only one row has
    labels = [rng.integers(0, 2, _ROWS) for _ in rows]
    for privacy in (None, 1.0):
        simulation = simulate_general_total(
            rows[:-1], labels[:-1], features=features, privacy=privacy, rng=np.random.default_rng(1)
        )
        asked = simulation.encode(rows[1:], labels[1:])
        for colluders in ((0,), ()):
            yield f"general total, ε = {privacy}, colluders {colluders}", simulation.view(colluders, asked=asked)


def _draw() -> tuple[list[Matrix], list[Any]]:
    """Return rows and labels of each participant; all participants draw from the same three skewed classes."""
    rng = np.random.default_rng(0)
    means = 2 * rng.standard_normal((3, _WIDTH))
    labels = [rng.integers(0, 3, _ROWS) for _ in range(_PARTICIPANTS)]
    return [means[codes] + rng.gamma(2.0, 1.0, (_ROWS, _WIDTH)) - 2 for codes in labels], labels


def _arrays_of(value: Any) -> Iterator[Any]:
    """Yield the arrays of a view, also those in nested dataclasses and tuples."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _arrays_of(part)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _arrays_of(getattr(value, field.name))
