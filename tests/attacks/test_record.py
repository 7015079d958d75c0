"""Paths of the attacks that the contract's scenes do not walk, each with its figures on record (see tests/record.py).

What an attack weighs (likelihoods, penalties, priors) decides how strong it is long before a test of its outcome fails.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from mooring.attacks import (
    Effort,
    decoding,
    known_rows,
    lattice,
    run,
)
from mooring.attacks.class_moments import ClassMoments, sign_votes, third_moments
from mooring.attacks.denoising.atoms import make_atoms
from mooring.attacks.denoising.gaussian import class_priors, fit_to_noisy_rows
from mooring.attacks.denoising.latent_classes import fit_latent_classes
from mooring.attacks.effort import current_effort
from mooring.attacks.lattice import AnchorStatistics, LatticeRows, Line, Simplex
from mooring.attacks.lattice_parts import summarise_anchor
from mooring.attacks.lattice_reduction import _shortened
from mooring.attacks.moment_matching import AnchorEvidence, MomentMatch
from mooring.attacks.moment_search import MomentRows, _Signs, _starts
from mooring.attacks.view import CollusionView
from mooring.audit import SimulationSettings
from mooring.audit.rotation.simulation import RowSimulation, simulate
from mooring.geometry import RigidMap
from mooring.mechanisms.rotation.projection import gaussian_projection, no_projection
from mooring.metrics import centred_error
from mooring.tables import Column
from tests.auditing import class_rows
from tests.record import check_record

RECORD = Path(__file__).parent / "record.json"


def error(attack: str, simulation: RowSimulation, view: CollusionView, **options: Any) -> float:
    result = run(attack, view, rng=np.random.default_rng(0), **options)
    return float(centred_error(simulation.private_data[view.target], result.rows))


def column_of(rng: np.random.Generator, rate: float, n: int, *, step: float = 1.0) -> LatticeRows:
    codes = rng.integers(0, 3, n)
    rows = step * rng.poisson(rate * (1 + codes))[:, None].astype(float)
    return LatticeRows(rows, codes, (Line(np.array([1.0]), step),), ())


def lattice_likelihoods(rate: float) -> Any:
    """The most likely place of the first row on a line, its likelihood, and the margins to neighbouring places."""
    rng = np.random.default_rng(1)
    known, column = column_of(rng, rate, 90, step=1.5), column_of(rng, rate, 40, step=0.75)
    figures = []
    for sign in (1.0, -1.0):
        likelihoods, places = lattice._likelihoods(known, column, known.lines[0], column.lines[0], sign, 0.75)
        best = int(likelihoods.argmax())
        figures += [places[best], likelihoods[best], *(likelihoods[best] - likelihoods[[best - 2, best - 1, -1]])]
    return [*figures, likelihoods.size]


def lattice_vertices() -> Any:
    rng = np.random.default_rng(2)
    steps = np.array([1.0, 1.0, 2.25, 2.25])
    sides = [(rng.integers(0, 2, n), rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])) for n in (50, 30)]
    simplex, seen = (Simplex(np.diag(np.sqrt(steps)), steps, vertex_of) for _, vertex_of in sides)
    agreement = 3 * rng.standard_normal((4, 4))
    return [
        lattice._vertices_named(simplex, seen, sides[0][0], sides[1][0], anchored)
        for anchored in (None, AnchorStatistics(agreement, np.zeros(4), 1.0))
    ]


def lattice_correlations() -> Any:
    """How much likelier values must make the wrong pairs, and the wrong signs, for correlations not to overrule them."""
    rng = np.random.default_rng(3)
    mixing = np.linalg.cholesky(
        np.array([[1, 0.6, 0.3, 0.1], [0.6, 1, -0.4, 0], [0.3, -0.4, 1, 0.2], [0.1, 0, 0.2, 1]])
    )
    lines = tuple(Line(direction, 1.0) for direction in np.eye(4))
    known, rebuilt = (
        LatticeRows((rng.standard_normal((n, 4)) @ mixing.T).round(), np.zeros(n, dtype=int), lines, ())
        for n in (80, 50)
    )
    pairs, turns = np.array([1, 0, 2, 3]), np.array([0, 0, 1, 0])
    favour = np.zeros((2, 4, 4))
    favour[turns, np.arange(4), pairs] = 1.0

    def kept(scale: float) -> float:
        found_pairs, found_turns = lattice._by_correlation(known, rebuilt, scale * favour, pairs, turns)
        return float(np.array_equal(found_pairs, pairs) and np.array_equal(found_turns, turns)) - 0.5

    return brentq(kept, 0.0, 300.0, xtol=1e-6)


def lattice_names() -> Any:
    """Few rows of columns that are hard to tell apart: some names are wrong, and which ones is on record."""
    collected = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        labels = [rng.integers(0, 2, 40) for _ in range(3)]
        parts = [
            np.hstack([
                rng.random((40, 4)) < np.array([0.3, 0.35, 0.4, 0.45]) + 0.2 * codes[:, None],
                np.eye(3)[rng.choice(3, 40, p=[0.4, 0.35, 0.25])],
            ]).astype(float)
            for codes in labels
        ]  # fmt: skip
        for method, v in (("i-gdp", 0.0), ("aa-i-gdp-anchor-noise", 1.0)):
            simulation = simulate(parts, labels, method=method, anchor_noise_scale=v, rng=rng)
            collected.append(error("lattice", simulation, simulation.view()))
    summary = summarise_anchor(simulation.view())
    assert summary is not None
    return [*collected, summary.precision, summary.agreement.sum(), summary.mean.sum()]


def lattice_alone() -> Any:
    """No colluder: columns of whole numbers and of other steps, skewed to the left and to the right."""
    rng = np.random.default_rng(4)
    rows = [np.column_stack([9 - rng.poisson(1.0, 80), rng.poisson(3.0, 80) * 0.3]).astype(float) for _ in range(2)]
    simulation = simulate(rows, method="i-gdp", rng=rng)
    return error("lattice", simulation, simulation.view(colluders=()))


def lattice_shortened() -> Any:
    basis = np.array([[1.0, 0, 0], [3, 2, 0], [7, 5, 0.5]])
    return np.abs(_shortened(basis)), np.abs(_shortened(basis @ np.array([[1.0, 0.3, 0], [0, 2, 0.4], [0, 0, 3]])))


def decoders() -> Any:
    rng = np.random.default_rng(5)
    F = gaussian_projection(12, 4, rng=rng)
    causes = rng.standard_normal((3, 12))
    records = 2 + rng.standard_normal((60, 3)) @ causes + 0.4 * rng.standard_normal((60, 12))
    alone = rng.standard_normal((60, 12))
    decoders = [decoding.learn_decoder(F, records[:n]) for n in (3, 5, 8, 30)]
    trusted = [[decoding._comes_nearer(F, rows[:n]) for n in (2, 3, 4, 6, 9, 24, 60)] for rows in (records, alone)]
    mixed = [decoding._comes_nearer(F, np.vstack([alone[:n], records[: 30 - n]])) for n in range(0, 30, 2)]
    decoders.append(decoding.learn_decoder(F, records[:30], most_numbers=100))
    both = [np.vstack([alone[:n], records[: 60 - n]]) for n in range(0, 60, 6)]
    mixed += [decoding._comes_nearer(F, rows, most_records=25) for rows in both]
    return (
        [[decoder.penalty, np.linalg.norm(decoder.matrix), decoder.offset.sum()] for decoder in decoders],
        trusted,
        mixed,
    )


def denoising() -> Any:
    """Classes that no colluder has, or of which it has one row; a population of fewer classes than the target's labels."""
    rows, labels = class_rows(3, 40, 5)
    kept = np.r_[np.flatnonzero(labels[0] == 0), np.flatnonzero(labels[0] == 1)[:1]]
    rows[0], labels[0] = rows[0][kept], labels[0][kept]
    rng, noise = np.random.default_rng(6), {"anchor_noise_scale": 0.3, "data_noise_scale": 0.8}
    simulation = simulate(rows, labels, method="aa-i-gdp-both-noise", rng=rng, **noise)
    errors = [
        error(attack, simulation, simulation.view(), denoiser="gaussian") for attack in ("procrustes", "joint-moments")
    ]
    other = replace(simulation.view(), labels=(np.full(kept.size, 3), *simulation.view().labels[1:]))
    return [
        *errors,
        *(error(attack, simulation, other, denoiser="gaussian") for attack in ("moments", "joint-moments")),
    ]


def many_candidates() -> Any:
    """Known rows among rows of which many pairs are equally far apart."""
    collected: list[Any] = []
    for seed, width in enumerate((5, 6, 8)):
        rng = np.random.default_rng(seed)
        rows = [rng.choice([-1.0, 1.0], (30, width)) * np.linspace(1, 2, width) for _ in range(2)]
        simulation = simulate(rows, method="i-gdp", rng=rng)
        view = simulation.view(colluders=(), n_known_rows=width + 2)
        X = np.unique(view.known_rows, axis=0)
        places = known_rows._by_distances(X, view.target_upload.representation)
        collected += (
            [places is None] if width == 8 else [error("known-rows", simulation, view)]
        )  # 10 rows, 7 directions
    collected += [
        known_rows._noise_to_signal(replace(view, data_noise_scale=0.5), part) for part in (rows[1], 0 * rows[1])
    ]
    near = rows[1] + 1e-7 * rng.standard_normal(rows[1].shape) * np.geomspace(0.1, 100, 30)[:, None]
    return collected, [known_rows._by_distances(near[k : k + 4], rows[1]) is not None for k in range(26)]


def many_participants() -> Any:
    """More than the attack works through: some are drawn, each once."""
    rows, labels = class_rows(6, 25, 3)
    method = "aa-i-gdp-anchor-noise"
    simulation = simulate(rows, labels, method=method, anchor_noise_scale=0.3, rng=np.random.default_rng(7))
    exact = simulate(rows, labels, method="aa-i-gdp-data-noise", data_noise_scale=0.5, rng=np.random.default_rng(7))
    few = replace(current_effort(), joint_participants=3)
    result = run("joint-moments", replace(exact.view(), effort=few), rng=np.random.default_rng(0))
    assert result.population.n_rows == 5 * 25  # all of them where maps are known
    return error("joint-moments", simulation, replace(simulation.view(), effort=few))


def moment_landscape() -> Any:
    """Ridge, curvatures, expected error, and what is lost at each start against the true map; then votes for signs."""
    rows, labels = class_rows(2, 70, 5)
    rng = np.random.default_rng(8)
    secret, v = RigidMap.sample(5, rng=rng), 0.4
    Y = secret.apply(rows[1][:50])
    cross = (secret.orthogonal + v * rng.standard_normal((5, 5)))[None]
    evidence = AnchorEvidence(cross, (secret.translation + 0.1 * rng.standard_normal(5))[None], np.array([v]), 20)
    population = MomentRows(rows[0], labels[0], ClassMoments.of(rows[0], labels[0], 3))
    target = MomentRows(Y, labels[1][:50], ClassMoments.of(Y, labels[1][:50], 3))
    collected: list[Any] = []
    for anchor in (evidence, None):
        for smoothing in (0.0, 0.1, 1.0):
            match = MomentMatch(population.moments, target.moments, anchor, smoothing=smoothing)
            O, shift = match.from_orthogonal(secret.orthogonal)[None], match.anchor_shift
            least = float(match.evaluate((O, shift)).value[0])
            collected += [
                match.ridge,
                match.turn_curvature.sum(),
                match.shift_curvature.sum(),
                np.trace(match.row_error(O)[0]),
            ]
            signs = _Signs(match, population, target)
            collected.append(signs.agreement(O))
            starts = _starts(match, signs)
            lost = {
                name: match.evaluate((np.broadcast_to(start, (1, 5, 5)), shift)).value[0] - least
                for name, start in starts.items()
                if anchor is not None or "means" not in name  # three means alone leave directions to rounding
            }
            collected.append(lost)
    third = [
        third_moments(part, codes[: len(part)], np.eye(5))
        for part, codes in zip((rows[0], rows[1][:50]), labels, strict=True)
    ]
    return collected, third[0][0], sign_votes(*third, 70, 50)  # fmt: skip


def shuffled_uploads() -> Any:
    """Further uploads whose rows come in another order, with and without an anchor, by assignment and by the closest."""
    collected = []
    for most, method in ((2000, "c-gdp-data-noise"), (2000, "aa-i-gdp-both-noise"), (10, "aa-i-gdp-both-noise")):
        rng = np.random.default_rng(9)
        rows, labels = class_rows(3, 40, 4)
        noise = {"anchor_noise_scale": 0.2 * (method != "c-gdp-data-noise"), "data_noise_scale": 0.3}
        simulation = simulate(rows, labels, method=method, rng=rng, **noise)
        view = replace(simulation.view(n_repeated_uploads=2), effort=replace(current_effort(), assigned_rows=most))
        again = [
            replace(upload, representation=rng.permutation(upload.representation)) for upload in view.repeated_uploads
        ]
        collected.append(error("repeated-upload", simulation, replace(view, repeated_uploads=tuple(again))))
    return collected


def components() -> Any:
    """Independent columns, one skewed to the left, where FastICA converges; then on some of the rows."""
    rng = np.random.default_rng(10)
    rows = [(rng.gamma(1.0, 1.0, (800, 3)) - 1) * [2.0, -1.2, 0.7] for _ in range(2)]
    simulation = simulate(rows, method="i-gdp", rng=rng)
    errors = [error("independent-components", simulation, simulation.view(colluders=who)) for who in ((0,), ())]
    some_rows = replace(simulation.view(), effort=replace(current_effort(), component_rows=700))
    return [*errors, error("independent-components", simulation, some_rows)]


def traced(*arrays: Any) -> list[float]:
    """One number an array, which no change of an entry leaves as it is."""
    return [float(np.ravel(array) @ np.cos(np.arange(np.size(array)))) for array in arrays]


def parts_of_denoisers() -> Any:
    """What is known of classes (one of one row, one of none) with and without noise, and a latent-class model of a table."""
    rng = np.random.default_rng(11)
    (rows, seen), (codes, others) = class_rows(2, 40, 4)
    codes[codes == 1], codes[0], others[others == 2] = 0, 1, 0
    known, noisy = ClassMoments.of(rows, codes, 4), ClassMoments.of(seen, others, 4).with_noise(0.25)
    alike = ClassMoments.of(seen, 0 * others, 4).with_noise(0.25)
    both = known.merged(noisy).seen_from(rows[0], np.linalg.qr(rng.standard_normal((4, 4)))[0])
    columns = (
        Column("c", "category", categories=("a", "b")),
        Column("i", "integer", 0, 5),
        Column("x", "number", 0, 1),
    )
    table = np.column_stack([np.eye(2)[codes % 2], rng.integers(0, 6, 40) / 2.5 - 1, rng.uniform(-1, 1, 40)])
    groups = list(make_atoms(columns, table, 0.2))
    logs = [group.log_likelihoods(table + 0.2 * rng.standard_normal(table.shape), 0.04) for group in groups]
    likelihoods = [np.exp(log_weight - log_weight.max(axis=1, keepdims=True)) for log_weight in logs]
    model = fit_latent_classes(
        groups, likelihoods, codes, labels=np.arange(4), spread=0.3, rng=rng, n_classes=16, n_rounds=20
    )
    probabilities, evidence = model.posterior(logs, codes)
    return [
        *(traced(*vars(class_priors(known, variance)).values()) for variance in (0.0, 0.6)),
        traced(*vars(fit_to_noisy_rows(known, noisy, 0.25)).values()),
        traced(
            both.means, both.covariances, both.overall_mean, both.within, *vars(both.only(np.array([2, 0]))).values()
        ),
        traced(model.mixing, *model.tables, evidence, *probabilities),
        [[*traced(group.atoms, group.widths), group.step, group.grid.stop] for group in groups],
        traced(*vars(fit_to_noisy_rows(known, alike, 0.25)).values()),  # one row alone
    ]


def grids() -> Any:
    """Maps that are known exactly, and not; behind a projection that mixes columns, with few known records and enough."""
    little = Effort(grid_sweeps=6, refit_sweeps=4, grid_rows=30, refit_rows=12, refit_below=26)
    columns = (Column("c", "category", categories=("a", "b", "c")), Column("i", "integer", 0, 5))
    collected: list[Any] = []
    for h, v, n in ((4, 0.0, 25), (4, 0.2, 25), (2, 0.0, 25), (2, 0.0, 26)):
        rng = np.random.default_rng(12)
        labels = [rng.integers(0, 2, n) for _ in range(4)]
        rows = [
            np.column_stack([np.eye(3)[(c + rng.integers(0, 2, n)) % 3], rng.integers(0, 6, n) / 2.5 - 1])
            for c in labels
        ]
        settings = SimulationSettings(projection=no_projection(4) if h == 4 else gaussian_projection(4, 2, rng=rng))
        noise = {"data_noise_scale": 0.3, "anchor_noise_scale": v}
        method = "aa-i-gdp-both-noise" if v else "aa-i-gdp-data-noise"
        simulation = simulate(rows, labels, method=method, rng=rng, settings=settings, **noise)
        view = replace(simulation.view(), columns=columns, effort=little)
        for attack in ("known-anchor", "procrustes") if not v else ("procrustes",):
            result = run(attack, view, rng=np.random.default_rng(0), denoiser="grid")
            collected.append(
                [
                    *traced(result.rows, result.records, *([] if result.evidence is None else [result.evidence])),
                    result.notes,
                ]
            )
    return collected


CASES: dict[str, Callable[..., Any]] = {
    "lattice, counts": lambda: lattice_likelihoods(1.0),
    "lattice, rare counts": lambda: lattice_likelihoods(0.1),
    "lattice, smoothed counts": lambda: lattice_likelihoods(40.0),
    "lattice, one-hot": lattice_vertices,
    "lattice, correlations": lattice_correlations,
    "lattice, names": lattice_names,
    "lattice, alone": lattice_alone,
    "lattice, shortened": lattice_shortened,
    "denoising": denoising,
    "denoising, parts": parts_of_denoisers,
    "moments, landscape": moment_landscape,
    "decoding": decoders,
    "denoising, grids": grids,
    "known-rows, candidates": many_candidates,
    "repeated-upload, shuffled": shuffled_uploads,
    "independent-components, converged": components,
    "joint-moments, many": many_participants,
}
LOOSE = {"independent-components, converged": 1e-2, "joint-moments, many": 3e-3, "denoising": 3e-3}


@pytest.mark.parametrize("case", CASES)
def test_what_an_attack_weighs_is_as_on_record(case: str) -> None:
    check_record(RECORD, case, CASES[case](), rel=LOOSE.get(case, 1e-3))


def test_known_rows_are_found_among_more_rows_than_are_compared_at_a_time() -> None:
    rows = np.random.default_rng(0).standard_normal((2100, 4))
    places = [5, 2095, 1000, 37]
    order = known_rows._by_distances(rows[places], rows)
    assert order is not None
    assert order.tolist() == places
