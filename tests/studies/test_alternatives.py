"""What people share instead: attacks that must find what is there, and must not find what is not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from mooring_studies.alternatives import updates
from mooring_studies.alternatives.measurement import MEASURES, TARGETS, strongest_columns
from mooring_studies.alternatives.releases import ClassStatistics, draw_synthetic, score_by_synthetic
from mooring_studies.alternatives.study import AlternativeOptions, Alternatives, run_alternatives
from mooring_studies.alternatives.table import tabulate_alternatives
from mooring_studies.comparison.results import Results
from mooring_studies.redraw import redraw
from mooring_studies.settings.sections import convert
from mooring_studies.settings.spec import read_spec
from mooring_studies.storage.store import FACTS, ResultStore
from mooring_studies.summary import case_columns
from mooring_studies.tabular.jobs import deployment_streams
from mooring_studies.tabular.sums import SumCase, load_case, split_rows

from mooring.metrics import Membership
from tests.studies.support import Counting

SPEC = read_spec("alternatives", quick=True)
OPTIONS = convert(SPEC.options, AlternativeOptions)
SMALL = replace(OPTIONS.updates, n_hidden=16, n_rounds=2, n_iterations=60)


@cache
def alternatives() -> Alternatives:
    case = SumCase("digits", "digits", n_participants=5, rows_each=20, test_share=0.3)
    case_rows = split_rows(load_case(case, None, None), case, np.random.default_rng(0))  # type: ignore[arg-type]
    return Alternatives(case_rows, replace(OPTIONS, cases=(case,), updates=SMALL), deployment_streams(SPEC, 0))


def small_rows(n: int = 12, d: int = 6) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    return np.tanh(rng.standard_normal((n, d))), rng.integers(0, 3, n)


def first_weights() -> updates.Weights:
    rows, codes = small_rows(4)
    return updates.federate(rows[None], codes[None], 3, SMALL, np.random.default_rng(0))[0].before


def test_gradients_and_their_products_are_those_of_automatic_differentiation() -> None:
    rows, codes = small_rows()
    weights = tuple(part.clone().requires_grad_() for part in first_weights())
    gradients = updates.backpropagate(weights, rows, codes)
    known = torch.autograd.grad(gradients.losses.mean(), weights)
    assert all(torch.allclose(gradient, other) for gradient, other in zip(gradients.gradient(), known, strict=True))
    each = [updates.backpropagate(weights, rows[i : i + 1], codes[i : i + 1]).gradient() for i in range(len(rows))]
    flat = np.stack([np.concatenate([part.detach().numpy().ravel() for part in gradient]) for gradient in each])
    assert np.allclose(updates.backpropagate(first_weights(), rows, codes).products(), flat @ flat.T)


def test_rows_behind_a_gradient_are_told_and_rebuilt_and_others_are_not() -> None:
    rows, codes = small_rows(40)
    weights = first_weights()
    steps = [(weights, updates.backpropagate(weights, rows[:8], codes[:8]).gradient())]
    scores = updates.score_members(steps, rows, codes, n_members=8, is_gradient=True)["register"]
    assert Membership(scores[:8], scores[8:]).auc == 1
    single = [(weights, updates.backpropagate(weights, rows[:1], codes[:1]).gradient())]
    shape, rng = updates.RowShape(), np.random.default_rng(0)
    rebuilt = updates.invert(single, codes[None, :1], shape, replace(SMALL, n_iterations=300), rng)[0]
    gaps = np.linalg.norm(rows - rebuilt, axis=1)
    assert gaps[0] < 0.2 * gaps[1:].min()


def test_statistics_add_up_and_tell_their_rows() -> None:
    rows, codes = small_rows(60, 12)
    parts = [ClassStatistics.of(rows[places], codes[places], 3) for places in (slice(0, 20), slice(20, 60))]
    pooled, whole = ClassStatistics.pool(parts), ClassStatistics.of(rows, codes, 3)
    assert all(np.allclose(getattr(pooled, name), getattr(whole, name)) for name in ("counts", "means", "covariance"))
    scores = parts[0].score_members(parts[1], (rows, codes))
    assert Membership(scores["register"][:20], scores["register"][20:]).auc == 1


def test_synthetic_rows_are_rows_of_the_table_and_near_their_own() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.uniform(-1, 1, (60, 4)), np.eye(3)[rng.integers(0, 3, 60)]])
    codes, shape = np.repeat([0, 1, 2], [30, 29, 1]), updates.RowShape(groups=(slice(4, 7),))
    drawn = draw_synthetic((rows, codes), shape, rng)
    assert set(drawn[:, 4:].sum(axis=1)) == {1.0}
    assert (drawn[:, :4].min(axis=0) >= rows[:, :4].min(axis=0)).all()
    assert np.allclose(drawn[-1], rows[-1])  # of one row there is nothing else to draw
    scores = score_by_synthetic((rows[:8], codes[:8]), (drawn[8:], codes[8:]), (rows[:30], codes[:30]))
    assert all(
        Membership(score_of_row[:8], score_of_row[8:]).auc > 0.9 for score_of_row in scores.values()
    )  # of rows that were not replaced


def test_the_truth_in_any_order_is_an_error_of_zero_and_a_guess_is_no_attack() -> None:
    audited = alternatives().audited
    labels = [audited.labels[target] for target in TARGETS]
    parts = [audited.case_rows.rows.train[target] for target in TARGETS]
    order = np.random.default_rng(0).permutation(len(labels[0]))
    shuffled = [(rows[order], codes[order]) for rows, codes in zip(parts, labels, strict=True)]
    strongest = strongest_columns(audited.measure_rebuilt("truth", shuffled, labels))
    assert (strongest["centred_error"], strongest["linkage"], strongest["exposed_tenth"]) == (0, 1, 0)
    assert strongest["linkage_control"] < 0.35
    others = strongest_columns(audited.measure_rebuilt("others", [*shuffled[1:], shuffled[0]], labels))
    assert (
        strongest["exposed_tenth_chance"] == strongest["exposed_tenth_control"] == others["exposed_tenth"]
    )  # assigned alike
    guess = np.split(audited.evaluator.guess.by_class, len(parts))  # type: ignore[union-attr]
    none = strongest_columns(audited.measure_rebuilt("means", list(zip(guess, labels, strict=True)), labels))
    assert none["centred_error"] == none["centred_error_control"] > 0.5
    assert none["exposed_tenth"] == 1


def test_members_are_the_targets_own_rows_and_the_control_has_another_targets() -> None:
    audited = alternatives().audited
    parts = [audited.case_rows.rows.train[target] for target in TARGETS]

    def is_among(place: int, asked: Any) -> dict[str, Any]:
        return {"knows": np.array([float((parts[place] == row).all(axis=1).any()) for row in asked[0]])}

    strongest = strongest_columns(audited.measure_members(is_among))
    assert (strongest["membership_auc"], strongest["membership_at_1_percent"]) == (1, 1)
    assert strongest["membership_auc_control"] == pytest.approx(0.5, abs=0.02)
    rows, _ = audited.candidates()
    inside = np.array([float(any((part == row).all(axis=1).any() for part in parts)) for row in rows])
    total = strongest_columns(audited.measure_total({"knows": inside}, np.zeros(len(rows))))
    assert (total["membership_auc"], total["membership_auc_control"]) == (1, 0.5)


def test_every_way_has_its_figures_and_a_line_of_the_table(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    brief = {"noise_level": 0.5, "accuracy": 0.9}  # the audit has tests of its own
    monkeypatch.setattr(Alternatives, "measure_rotation", lambda self, level: brief)
    options = {**SPEC.options, "updates": {**SPEC.options["updates"], "n_iterations": 5, "n_hidden": 8, "n_rounds": 2}}
    options["cases"] = [{"name": "digits", "source": "digits", "n_participants": 5, "rows_each": 20, "test_share": 0.3}]
    with ResultStore(tmp_path / "alternatives", "key", {}) as store:
        run_alternatives(replace(SPEC, options=options), data_dir=None, store=store, progress=Counting())
        store.finish(store.kept(FACTS) or {})
        results = Results.from_rows(store.rows())
    lines = {line["way"]: line for line in tabulate_alternatives(results)}
    assert len(lines) == 14
    for method in ("gradient", "fedavg", "synthetic", "statistics"):
        rows_of_method = results.where(method=method)
        assert all(
            np.isfinite(rows_of_method.numbers(f"{name}{part}")).all() for name in MEASURES for part in ("", "_control")
        )
    assert all(lines[name]["recognised"] > 0.9 for name in ("one gradient of 20 rows", "statistics by class"))
    assert lines["secure sums, ε = 2"]["recognised"] < 0.2
    assert np.isnan(lines["one gradient of 5 rows"]["score"])
    assert case_columns("alternatives", results)[1]["mechanism"] == list(lines)
    *_, page = redraw(tmp_path, tmp_path / "docs")
    assert all(f"| {way} |" in page.read_text(encoding="utf-8") for way in lines)
    drawn = (tmp_path / "docs/figures/alternatives/alternatives.svg").read_text(encoding="utf-8")
    assert all((way in drawn) == np.isfinite(line["score"]) for way, line in lines.items())
