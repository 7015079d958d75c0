"""Ways back to records: an audit decodes by the pseudoinverse and by what colluders' records teach; the better counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mooring import SimulationSettings, gaussian_projection, no_projection, simulate
from mooring.attacks import CollusionView
from mooring.attacks.decoding import RecordDecoder, fit_decoder, learn_decoder
from mooring.audit import AuditResult, EvaluationSpec
from mooring.mechanisms.rotation.projection import Projection
from mooring.metrics import Figure
from mooring.tables import Partition
from tests.auditing import audited

D, H = 30, 8
POINTS: dict[str, Any] = {
    "learner": "linear",
    "methods": ["aa-i-gdp-anchor-noise", "aa-i-gdp-data-noise"],
    "anchor_noise_scales": [0.1],
    "data_noise_levels": [1.0],
    "attacks": ["procrustes", "moments"],
    "targets": [2],
}


def records(n: int, *, seed: int, mixing_seed: int = 7) -> np.ndarray:
    """Columns that go together: five causes, a mean, and a little of their own."""
    mixing = np.random.default_rng(mixing_seed)
    rng_of_rows = np.random.default_rng([seed, n])
    causes = rng_of_rows.standard_normal((n, 5)) @ mixing.standard_normal((5, D))
    return np.asarray(causes + mixing.standard_normal(D) + 0.1 * rng_of_rows.standard_normal((n, D)))


def F() -> Projection:
    return gaussian_projection(D, H, rng=np.random.default_rng(11))


def split_rows(*, mixing_seed: int = 7) -> Partition:
    """Return a partition in which the first two participants have rows of one kind, and so do the others by default."""
    parts = [records(120, seed=k, mixing_seed=7 if k < 2 else mixing_seed) for k in range(4)]
    labels = [np.arange(120) % 2 for _ in parts]
    return Partition.from_parts(parts, labels, rng=np.random.default_rng(0))


def by_pseudoinverse_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.audit.rotation.evaluator.fit_decoder", lambda view: RecordDecoder(view.projection))


def error(rows: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(rows - truth) / np.linalg.norm(truth - truth.mean(axis=0)))


def worst(result: AuditResult, measure: str, point: int = 0) -> Figure:
    return result.points[point].worst(measure)[1]  # type: ignore[index]


def test_columns_that_go_together_are_rebuilt_far_better_than_by_the_pseudoinverse() -> None:
    deal = split_rows()
    result = audited(deal, projection=F(), **POINTS)
    by_pseudoinverse = error(np.asarray(F().decode(F().encode(deal.train[2]))), deal.train[2])
    figure = worst(result, "decoded_error")
    assert by_pseudoinverse > 0.8
    assert figure.value < 0.4
    assert figure.floor < 0.3
    assert figure.interval.low <= figure.value <= figure.interval.high
    assert worst(result, "median_r2").value > 0.8
    notes = [note for outcome in result.points[0].outcomes for note in outcome.notes if note.startswith("decoded")]
    assert notes
    assert all("decoder learnt" in note for note in notes)
    shown = {name: np.asarray(rows) for name, rows in result.points[0].examples.rows.items()}
    assert error(shown["rebuilt"], shown["original"]) < 0.5
    assert error(shown["projection only"], shown["original"]) < 0.4


@pytest.mark.parametrize("colluders", [[0], [0, 1]])
@pytest.mark.parametrize("mixing_seed", [7, 8])
def test_the_levels_by_hand_learnt_from_the_colluders_alone(colluders: Sequence[int], mixing_seed: int) -> None:
    """Where the target's columns go together in another way, its own records would teach far more."""
    deal = split_rows(mixing_seed=mixing_seed)
    result = audited(deal, projection=F(), colluders=colluders, **POINTS)
    known, truth = np.concatenate([deal.train[c] for c in colluders]), deal.train[2]
    ways = RecordDecoder(F(), learn_decoder(F(), known))

    def level(projected: np.ndarray) -> float:
        return min(error(rows, truth) for rows in ways.decode_all(projected))

    figure = worst(result, "decoded_error")
    assert figure.floor == pytest.approx(level(truth @ F().matrix))
    assert figure.chance == pytest.approx(level(np.tile((known @ F().matrix).mean(axis=0), (truth.shape[0], 1))))
    if mixing_seed != 7:
        decoded = learn_decoder(F(), truth).decode(truth @ F().matrix)
        assert error(decoded, truth) < 0.5 * figure.floor


def view_of(parts: Sequence[np.ndarray], projection: Projection, colluders: Sequence[int] = (0,)) -> CollusionView:
    simulation = simulate(
        parts,
        method="aa-i-gdp-anchor-noise",
        anchor_noise_scale=0.1,
        rng=np.random.default_rng(0),
        settings=SimulationSettings(projection=projection),
    )
    return simulation.view(colluders, 1)


def test_nobody_elses_records_are_learnt_from() -> None:
    rows_of_site = records(60, seed=1)
    first, second = (
        fit_decoder(view_of([rows_of_site, records(50, seed=k), records(40, seed=k + 1)], F())).learned for k in (2, 12)
    )
    assert np.array_equal(first.matrix, second.matrix)
    assert np.array_equal(first.offset, second.offset)


def test_the_attacker_chooses_by_records_that_the_decoder_has_not_seen() -> None:
    """With five records of columns that do not go together, what is learnt is nothing: the attacker can tell."""
    others = [records(40, seed=k) for k in range(2)]
    together = fit_decoder(view_of([records(60, seed=1), *others], F()))
    assert together.trusts_learned
    noise = np.random.default_rng(3).standard_normal((5, D))
    alone = fit_decoder(view_of([noise, *others], F()))
    assert alone.learned is not None
    assert not alone.trusts_learned
    projected = others[0] @ F().matrix
    assert np.array_equal(alone.decode_preferred(projected), projected @ F().decoder)
    assert np.array_equal(together.decode_preferred(projected), together.learned.decode(projected))


def test_thousands_of_records_are_learnt_from_and_some_are_tried() -> None:
    ways = fit_decoder(view_of([records(2500, seed=1), records(20, seed=2), records(20, seed=3)], F()))
    assert ways.trusts_learned
    assert ways.learned is not None
    assert np.array_equal(ways.learned.matrix, learn_decoder(F(), records(2500, seed=1)).matrix)


@pytest.mark.parametrize(
    ("projection", "n_records", "colluders"),
    [
        (no_projection(D), 60, [0]),
        (gaussian_projection(D, D, rng=np.random.default_rng(1)), 60, [0]),
        (F(), 1, [0]),
        (F(), 60, []),
    ],
)
def test_where_nothing_can_be_learnt_there_is_one_way_back(
    projection: Projection, n_records: int, colluders: list[int]
) -> None:
    ways = fit_decoder(view_of([records(n_records, seed=1), records(50, seed=2)], projection, colluders))
    assert ways.learned is None
    assert not ways.trusts_learned
    projected = records(9, seed=3)[:, : projection.n_components]
    (only,) = ways.decode_all(projected)
    assert np.array_equal(only, projected @ projection.decoder)
    assert np.array_equal(ways.decode_preferred(projected), only)


def test_two_records_teach_and_three_are_tried() -> None:
    """A mean far from zero is soon learnt, but two records are too few to see that."""
    for n, decode_preferred in ((2, False), (3, True)):
        ways = fit_decoder(view_of([records(n, seed=1) + 20.0, records(50, seed=2)], F()))
        assert ways.learned is not None
        assert ways.trusts_learned == decode_preferred


def test_without_a_projection_an_audit_is_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    result = audited(split_rows(), projection="none", n_components=D, **POINTS)
    assert not any("decoded" in note for point in result.points for outcome in point.outcomes for note in outcome.notes)
    by_pseudoinverse_alone(monkeypatch)
    assert audited(split_rows(), projection="none", n_components=D, **POINTS).to_json() == result.to_json()


def test_two_ways_back_never_look_safer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever serves the attacker: by each measure, for each attack, and for what stands beside its figures."""
    rng = np.random.default_rng(4)
    whole = np.concatenate([records(120, seed=k, mixing_seed=7) for k in range(4)])
    who = np.repeat(np.arange(160), 3)
    attribute = whole @ rng.standard_normal(D) > 0
    evaluation = EvaluationSpec(groups=who, attribute=attribute, image_shape=(5, 6), pixel_range=(-9.0, 9.0))
    pytest.importorskip("skimage")
    both = audited(np.split(whole, 4), projection=F(), evaluation=evaluation, **POINTS)
    by_pseudoinverse_alone(monkeypatch)
    audit = audited(np.split(whole, 4), projection=F(), evaluation=evaluation, **POINTS)
    compared, better = set(), set()
    for mine, theirs in zip(both.points, audit.points, strict=True):
        for ours, plain in zip(mine.outcomes, theirs.outcomes, strict=True):
            assert ours.figures.keys() == plain.figures.keys()
            for name, figure in ours.figures.items():
                other = plain.figures[name]
                sign = 1 if figure.higher_is_worse else -1
                pairs = ((figure.value, other.value), (figure.control, other.control), (figure.floor, other.floor))
                for level, (new, old) in zip(("value", "control", "floor"), pairs, strict=True):
                    compared.add((name, level))
                    assert (new is None) == (old is None)
                    if new is not None and old is not None:
                        assert sign * new >= sign * old - 1e-12
                        better |= {(name, level)} if sign * new > sign * old + 0.02 else set()
    assert compared >= {(name, "value") for name in ("decoded_error", "identity_linkage", "attribute", "psnr", "ssim")}
    for name in ("decoded_error", "median_r2", "psnr", "ssim"):
        assert {(name, "value"), (name, "control"), (name, "floor")} <= better
    assert {("attribute", "value"), ("attribute", "floor")} & better
    assert not {name for name, _ in better} & {"centred_error", "relative_error", "linkage"}


def test_the_auditor_is_asked_once_an_attack_and_shown_the_way_that_the_attacker_trusts() -> None:
    asked: list[np.ndarray] = []

    def embedding(rows: np.ndarray) -> np.ndarray:
        asked.append(rows)
        return rows

    deal = split_rows()
    options = POINTS | {"methods": ["aa-i-gdp-data-noise"], "data_noise_levels": [0.3], "attacks": ["known-anchor"]}
    result = audited(deal, projection=F(), evaluation=EvaluationSpec(embedding=embedding), **options)
    n_audited = sum("exact_source_linkage" in outcome.figures for outcome in result.points[0].outcomes)
    assert n_audited == 3  # as it is, and by two denoisers
    assert len(asked) == 3 + n_audited  # candidates, control, floor; plain and denoised rows
    exact = learn_decoder(F(), deal.train[0]).decode(deal.train[2] @ F().matrix)
    assert any(rows.shape == exact.shape and np.allclose(rows, exact) for rows in asked)
    figure = worst(result, "exact_source_linkage")
    assert figure.floor > 0.9
    assert figure.value > 0.6
