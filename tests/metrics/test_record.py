"""Whole figures of small tables on record (see tests/record.py): value, interval, chance, control, what is worse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.metrics import bootstrap_mean, bound_epsilon, build_galleries, build_identity_galleries, link
from mooring.metrics.attributes import KnownRows, infer_attribute
from mooring.metrics.exposure import (
    Carriers,
    find_exposed_column,
    find_exposed_rows,
    find_exposed_value,
    find_read_columns,
)
from mooring.metrics.reconstruction import error_figure, mean_figure
from tests.record import check_record

RECORD = Path(__file__).parent / "record.json"


def rows_and_guesses(seed: int) -> tuple[np.ndarray, dict[str, np.ndarray], list[np.ndarray]]:
    """Two columns of numbers, one of three values, one rare, one constant; three attacks, and two guesses without any."""
    rng = np.random.default_rng(seed)
    truth = np.column_stack(
        [rng.standard_normal((40, 2)), rng.integers(0, 3, 40), np.arange(40) % 13 == 0, np.ones(40)]
    )
    rebuilt = {str(k): truth + spread * rng.standard_normal(truth.shape) for k, spread in enumerate((2.0, 0.4, 0.8))}
    by_class = np.where(truth[:, [2]] > 0, truth[truth[:, 2] > 0].mean(axis=0), truth[truth[:, 2] == 0].mean(axis=0))
    return truth, rebuilt, [np.broadcast_to(truth.mean(axis=0), truth.shape), by_class]


def exposure(seed: int) -> Any:
    truth, rebuilt, guesses = rows_and_guesses(seed)
    few, carriers = {name: rows[:, :3] for name, rows in rebuilt.items()}, Carriers.of(truth)
    rng = np.random.default_rng(seed)
    names = ("a", "b", "few", "two=x", "two=y").__getitem__  # the last two are one column
    exposed = (
        find_exposed_value(carriers, rebuilt.items(), guessed=guesses, name_of=lambda k, value: f"{k} = {value:g}"),
        find_exposed_column(truth, rebuilt.items(), guessed=guesses, names=str),
        *find_exposed_rows(truth[:, :3], few, guessed=guesses[1][:, :3], rng=rng).values(),
        *find_read_columns(truth, rebuilt.items(), guessed=guesses, names=names).values(),
    )
    return [figure and (figure[0], figure[1].as_dict()) for figure in exposed]


def attributes(**options: Any) -> Any:
    rng = np.random.default_rng(3)
    rows, labels = rng.standard_normal((90, 3)), rng.integers(0, 3, 90)
    numbers = rows @ [1.0, 0.5, 0.0] + 0.7 * labels
    truth = numbers if options.get("kind") == "number" else np.digitize(numbers, [-0.5, 1.0])
    seen = rows[50:] + 0.4 * rng.standard_normal((40, 3))
    labels[-1] = 7  # one that the population lacks
    return infer_attribute(
        truth[50:],
        population=KnownRows(rows[:50], truth[:50], labels[:50]),
        target_reconstruction=seen,
        target_labels=labels[50:],
        rng=rng,
        **options,
    ).as_dict()


def epsilon_bounds() -> Any:
    """The bounds on ε from many and few scores, where one tail, the middle or nothing separates members."""
    rng, collected = np.random.default_rng(5), []
    for n, shift, betrayed in (
        (4000, 0.0, 200),
        (4000, 1.0, 0),
        (200, 0.5, 6),
        (200, 0.5, 6),
        (40, 3.0, 0),
        (4, 9.0, 0),
    ):
        included, excluded = shift + rng.standard_normal(n), rng.standard_normal(n)
        included[:betrayed] = 9.0
        collected += [
            bound_epsilon(*pair, delta=1e-3).as_dict() for pair in ((included, excluded), (-excluded, -included))
        ]
    few = [bound_epsilon(0.3 * k + rng.standard_normal(90), rng.standard_normal(70), delta=0.0) for k in range(12)]
    return [*collected, [upper.epsilon for upper in few]]


def linkage() -> Any:
    rng = np.random.default_rng(4)
    rows = np.round(rng.standard_normal((30, 3)))  # with ties
    seen = rows + rng.standard_normal(rows.shape)
    seen[3] = 0.0
    labels, who = rng.integers(0, 2, 30), rng.permutation(30) % 13
    built = (
        build_galleries(labels, n_candidates=4, n_queries=20, seed=1),
        build_identity_galleries(who, who[:20], n_candidates=5, galleries_per_query=3, seed=2),
        build_identity_galleries(who, who[:25], seed=2),
    )
    return [
        (link(seen, rows, galleries, metric=metric).as_dict(), galleries.candidates.sum(), len(galleries.answers))
        for galleries in built
        for metric in ("euclidean", "cosine")
    ]


def means() -> Any:
    rng = np.random.default_rng(5)
    squares, sizes = rng.gamma(1.0, 1.0, (2, 12))
    mean = bootstrap_mean(squares[:2], rng=rng)
    return (
        error_figure("error", squares, sizes, rng=rng).as_dict(),
        mean_figure("ssim", squares, rng=rng).as_dict(),
        [mean.low, mean.high, mean.level],
    )


CASES: dict[str, Callable[[], Any]] = {
    "exposed": lambda: [exposure(seed) for seed in range(3)],
    "category": attributes,
    "category, with labels": lambda: attributes(with_labels=True),
    "number": lambda: attributes(kind="number"),
    "epsilon": epsilon_bounds,
    "linkage": linkage,
    "means": means,
}


@pytest.mark.parametrize("case", CASES)
def test_figures_are_as_on_record(case: str) -> None:
    check_record(RECORD, case, CASES[case]())
