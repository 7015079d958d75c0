"""Members among rows that nobody uploaded."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from mooring import SimulationSettings
from mooring.attacks import Reconstruction, run
from mooring.audit import AuditSettings, EvaluationSpec, RowSimulation, find_strongest, measure_leakage, simulate
from mooring.audit.results.point_result import AttackOutcome, Leakage
from mooring.audit.rotation import leakage, linkage
from mooring.audit.rotation.membership import _shift, audit_row_noise, make_membership_test
from mooring.tables import Column, Partition
from tests.auditing import class_rows


def split_rows(n_rows: int, scale: float) -> tuple[Partition, RowSimulation]:
    """Three participants with rows of three classes, and the study they make."""
    parts = Partition.from_parts(*class_rows(3, n_rows, 6), rng=np.random.default_rng(0))
    method = {"method": "aa-i-gdp-data-noise", "data_noise_scale": scale}
    return parts, simulate(parts.train, parts.train_labels, rng=np.random.default_rng(1), **method)


@pytest.mark.parametrize(("scale", "auc", "rate"), [(0.01, (0.99, 1.0), (0.9, 1.0)), (300.0, (0.35, 0.65), (0.0, 0.2))])
def test_members_are_told_by_what_the_noise_leaves(scale: float, auc: Any, rate: Any) -> None:
    parts, simulation = split_rows(100, scale)
    outcomes = measure_leakage(simulation, parts, AuditSettings(attacks=["known-anchor"], targets=[1, 2])).outcomes
    outcome_of_first, *others = [
        outcome for outcome in outcomes if outcome.curve
    ]  # and by other densities, where a denoiser applies
    assert len(others) >= (scale < 1)
    assert not any("roster" in other_row.figures for other_row in others)
    areas = [other_row.figures["membership_auc"].value for other_row in others]
    assert areas == pytest.approx([outcome_of_first.figures["membership_auc"].value] * len(others), abs=0.05)
    figures = [outcome_of_first.figures[f"{name}membership_at_1_percent"] for name in ("", "outlying_")]
    area = outcome_of_first.figures["membership_auc"]
    assert auc[0] <= area.value <= auc[1]
    assert 0.3 < area.control < 0.7  # an upload of the colluder's rows
    assert [(figure.n, figure.chance) for figure in figures] == [(150, 1 / 50), (15, 1 / 50)]
    assert all(rate[0] <= figure.value <= rate[1] for figure in figures)
    epsilon = outcome_of_first.figures["empirical_epsilon"].value
    assert epsilon > 1 if scale < 1 else epsilon == 0
    assert (outcome_of_first.attack, outcome_of_first.curve[-1]) == (
        "known-anchor",
        (1.0, pytest.approx(1.0, abs=0.15)),
    )
    shares = {name: outcome_of_first.figures[name] for name in ("register_class", "claims", "roster", "holder")}
    assert all((share.value > 0.95) == (scale < 1) for share in shares.values())
    assert all(share.control < 0.2 for name, share in shares.items() if name != "holder")
    assert shares["claims"].chance == 0  # a register of others only would give none
    if scale < 1:
        right = outcome_of_first.figures["claims_right"]
        assert (right.value, right.control) == (1, 0)
        assert right.chance == pytest.approx(shares["register_class"].chance)
    assert shares["holder"].control < 0.8  # of two that hold nothing of it
    assert shares["register_class"].chance == pytest.approx(1 / 44, rel=0.2)  # 25 of a class, and 17 test rows


def test_a_register_makes_membership_surer() -> None:
    parts, simulation = split_rows(320, 1.0)
    outcomes = measure_leakage(simulation, parts, AuditSettings(attacks=["known-anchor"], targets=[1, 2])).outcomes
    alone, matched = (
        next(outcome for outcome in outcomes if outcome.attack == name).figures
        for name in ("known-anchor", "known-anchor + matching")
    )
    assert matched["membership_auc"].value > alone["membership_auc"].value + 0.01
    assert 0.3 < matched["membership_auc"].control < 0.7
    assert "centred_error" not in matched


@pytest.mark.parametrize("planted", [None, "a row left unrotated", "noise at half scale"])
def test_planted_leaks_are_caught(planted: str | None) -> None:
    parts, simulation = split_rows(320, 2.0)
    upload, truth = simulation.uploads[1], simulation.private_data[1]
    seen = upload.representation.copy()
    if planted == "a row left unrotated":
        seen[5] = truth[5]
    uploads = (simulation.uploads[0], replace(upload, representation=seen), simulation.uploads[2])
    if planted == "noise at half scale":
        rows = zip(simulation.secrets, simulation.uploads, simulation.private_data, strict=True)
        halved = [secret.apply((secret.invert(upload.representation) + clean) / 2) for secret, upload, clean in rows]
        uploads = tuple(replace(upload, representation=seen) for upload, seen in zip(uploads, halved, strict=True))
    simulation = replace(simulation, uploads=uploads)
    outcomes = measure_leakage(simulation, parts, AuditSettings(attacks=["known-anchor"], targets=[1])).outcomes
    row = find_strongest(outcomes, "exposed_row")
    is_seen = (row.attack, row.figures["exposed_row"].value) == ("as uploaded", 0)
    assert is_seen is (planted == "a row left unrotated")
    noise = audit_row_noise(simulation)
    assert noise.holds is (planted != "noise at half scale")
    assert noise.measured.gaussian > 0.6 * noise.claimed
    assert audit_row_noise(replace(simulation, data_noise_scale=0.0)) is None


@pytest.mark.parametrize("numbers", [False, True])
def test_rows_that_nobody_uploaded_are_neither_the_colluders_nor_of_other_classes(numbers: bool) -> None:
    rows, labels = class_rows(4, 40, 3)
    known = [part + np.linspace(0, 0.4, part.size) for part in labels] if numbers else labels
    parts = Partition.from_parts(rows, known, rng=np.random.default_rng(0))
    parts = replace(parts, test=(parts.test[0] + 1e6, *parts.test[1:]))
    simulation = simulate(parts.train, parts.train_labels, method="aa-i-gdp", rng=np.random.default_rng(0))
    views = [simulation.view((0,), target) for target in (1, 2)]
    spec = EvaluationSpec(others=(np.full((4, 3), 7.0), np.array([0, 0, 99, 99]) + 0.1 * numbers))
    test = make_membership_test(simulation, views, parts, spec, seed=0)
    assert test is not None
    assert all(np.abs(linkage.rows).max() < 1e5 for linkage in (*test.others, test.register))
    n_odd = sum(int((other_row.rows == 7).all(axis=1).sum()) for other_row in test.others)
    assert n_odd == (4 if numbers else 2)  # no class has the label 99; a number belongs to the highest group
    assert sum(other_row.codes.size for other_row in test.others) == 30 + n_odd
    assert test.outlying.sum() == 6
    none = replace(
        parts, test=tuple(part[:0] for part in parts.test), test_labels=tuple(part[:0] for part in parts.test_labels)
    )
    assert make_membership_test(simulation, views, none, EvaluationSpec(), seed=0) is None


def test_an_embedding_keeps_what_it_was_last_asked() -> None:
    asked: list[float] = []
    embed = linkage.CachedEmbedding(lambda rows: asked.append(rows[0, 0]) or 2 * rows, size=2)  # type: ignore[func-returns-value]
    for k in (1.0, 2.0, 1.0, 3.0, 1.0, 3.0, 2.0):
        assert embed(np.full((1, 2), k)).tolist() == [[2 * k, 2 * k]]
    assert asked == [1, 2, 3, 2]


def test_a_control_asks_for_another_row_of_the_class_where_there_is_one() -> None:
    codes = np.array([3, 1, 3, 1, 1, 2])
    other = _shift(codes)
    assert np.array_equal(codes[other], codes)
    assert sorted(other) == list(range(6))
    assert np.flatnonzero(other == np.arange(6)).tolist() == [5]


def test_an_embedding_keeps_sixteen_answers() -> None:
    """The candidates, controls and floors of an audit are few."""
    asked: list[float] = []
    embed = linkage.CachedEmbedding(lambda rows: asked.append(rows[0, 0]) or rows)  # type: ignore[func-returns-value]
    for k in (*range(16), *range(16), 16, 0):
        embed(np.full((1, 1), float(k)))
    assert asked == [*range(17), 0]


def test_of_rows_that_nobody_uploaded_five_thousand_are_asked_and_a_register_has_a_thousand_of_a_class() -> None:
    rng = np.random.default_rng(0)
    rows, tests = ([rng.standard_normal((n, 2)) for _ in range(3)] for n in (6, 2510))
    parts = Partition.from_parts(rows, rng=rng, test=tests)
    simulation = simulate(parts.train, method="aa-i-gdp-data-noise", data_noise_scale=0.5, rng=rng)
    views = [simulation.view((0,), 1)]
    test = make_membership_test(simulation, views, parts, EvaluationSpec(), seed=0)
    assert test is not None
    assert [candidates.codes.size for candidates in test.others] == [5000]
    assert test.register.codes.size == 5000 + 6
    reconstruction = run("known-anchor", views[0], rng=rng)
    assert isinstance(reconstruction, Reconstruction)
    figures = test.measure(AttackOutcome("known-anchor"), [reconstruction]).figures
    assert figures["register_class"].chance == pytest.approx(1 / (6 + 5000 + 6))
    assert figures["register_1000"].chance == pytest.approx(1 / 1000)
    assert figures["roster"].chance == 1 / 6


def test_noise_on_rows_is_measured_by_a_hundred_thousand_numbers_and_claims_what_one_deviation_gives() -> None:
    """ε at δ = 0.00001 where two rows differ by σ: δ = Φ(½ − ε) − exp(ε) Φ(−½ − ε)."""
    rows = [np.zeros((20_000, 2)) for _ in range(3)]
    rng = np.random.default_rng(0)
    noise = audit_row_noise(simulate(rows, method="aa-i-gdp-data-noise", data_noise_scale=0.5, rng=rng))
    assert noise is not None
    assert noise.measured.n == 100_000
    assert noise.claimed == noise.reachable
    left = norm.cdf(0.5 - noise.claimed) - np.exp(noise.claimed) * norm.cdf(-0.5 - noise.claimed)
    assert left == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.parametrize("own", [(), (Column("x", "number", -3, 3),)])
def test_attackers_know_the_columns_of_the_simulation_or_else_of_the_settings(
    own: tuple[Column, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = (Column("x", "integer", 0, 9),)
    seen: list[Any] = []

    class Evaluator:
        is_hopeless = None

        def __init__(self, simulation: Any, views: Any, *rest: Any) -> None:
            seen.extend(view.columns for view in views)

        def measure(self, rebuilt: Any) -> Leakage:
            return Leakage()

    monkeypatch.setattr(leakage, "LeakageEvaluator", Evaluator)
    parts = Partition.from_parts([np.zeros((4, 1))] * 2, rng=np.random.default_rng(0), test_share=0.0)
    options = SimulationSettings(columns=own)
    simulation = simulate(parts.train, method="i-gdp", rng=np.random.default_rng(0), settings=options)
    settings = AuditSettings(attacks=[], targets=(1,), evaluation=EvaluationSpec(columns=given))
    measure_leakage(simulation, parts, settings)
    assert seen == [own or given]
