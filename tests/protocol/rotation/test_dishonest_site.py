"""One dishonest site cannot outvote the others, by however many rows; a compact form of benchmarks/dishonest_site.py."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.dishonest_site import ATTACKS, N_HONEST, PAGE, draw_honest, render_results, run_attack
from mooring import InputError
from mooring.learners.fitting import draw_rows, limit_counts, screening_rows
from mooring.protocol.rotation.analyst.alignment import align_bundles
from mooring.protocol.rotation.analyst.outliers import find_harmful
from mooring.protocol.rotation.analyst.training import LeftOut, train
from tests.protocol.rotation.support import bundles_of, send, sites_of
from tests.raising import raising
from tests.sites import numeric_study
from tests.study_settings import change

pytestmark = pytest.mark.usefixtures("fewer_features")


@pytest.mark.parametrize("name", ATTACKS)
def test_many_false_rows_cost_no_honest_site_more_than_is_aimed_at(name: str) -> None:
    cell = run_attack(name, 60, 20_000, seeds=(0, 1))
    assert cell.honest_left_out == 0
    assert cell.loss <= cell.allowed


def test_the_page_is_made_of_the_figures_on_record() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_results()


def test_without_the_limit_and_the_screening_the_same_rows_outvote_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "benchmarks.dishonest_site.find_left_out",
        lambda screened, *_, **__: LeftOut(np.zeros(0, dtype=np.int64), {}, screened),
    )
    alone = run_attack("labels flipped", 200, 20_000, seeds=(0, 1), weight_limit=1e6)
    limited = run_attack("labels flipped", 200, 20_000, seeds=(0, 1))
    assert alone.loss > 60
    assert limited.loss < alone.loss - 20


def test_a_site_that_makes_models_worse_for_the_others_is_found_and_no_other_is() -> None:
    rng = np.random.default_rng(4)
    sites = [draw_honest(100, rng) for _ in range(N_HONEST)]
    rows, labels = (np.concatenate([site[k] for site in sites]) for k in range(2))
    owners = np.repeat(np.arange(N_HONEST), 100)
    assert find_harmful(rows, labels, owners, kind="classes", seed=0) == {}
    bad, bad_labels = ATTACKS["invented rows of one class"](100, rng)
    rows, labels, owners = np.r_[rows, bad], np.r_[labels, bad_labels], np.r_[owners, np.full(100, N_HONEST)]
    harmful = find_harmful(rows, labels, owners, kind="classes", seed=0)
    assert list(harmful) == [N_HONEST]
    assert harmful[N_HONEST] > 0.05


def test_numbers_that_lower_everybodys_r_squared_are_found() -> None:
    rng = np.random.default_rng(5)
    rows, owners = rng.uniform(-1, 1, (500, 6)), np.repeat(np.arange(5), 100)
    labels = rows[:, 0] + 0.1 * rng.standard_normal(500)
    assert find_harmful(rows, labels, owners, kind="number", seed=0) == {}
    labels[owners == 2] = 3.0
    assert list(find_harmful(rows, labels, owners, kind="number", seed=0)) == [2]


@pytest.mark.parametrize("count", [1_000, 10**6])
def test_a_site_has_at_most_the_limit_times_the_median_and_the_others_keep_all_their_rows(count: int) -> None:
    counts = [60, count, 50, 40]
    assert limit_counts(counts, 3.0) == [60, 150, 50, 40]
    drawn = draw_rows(counts, 50_000, 0, weight_limit=3.0)
    assert [positions.size for positions in drawn] == [60, 150, 50, 40]
    assert [positions.size for positions in screening_rows(counts, 0, salt="1", weight_limit=3.0)] == [50, 50, 50, 40]


def test_a_large_honest_site_is_named_with_the_rows_that_were_used(tmp_path: Path) -> None:
    study = numeric_study()
    sites = sites_of(study, n=40)
    large = sites_of(study, n=400, seed=1)[0]
    secret, anchor = sites[0].secret, sites[0].anchor_representation
    sites[0] = replace(large, secret=secret, anchor_representation=anchor)
    for who, site in enumerate(sites):
        send(study, site, who, tmp_path / "inbox")
    align_bundles(study, bundles_of(study, tmp_path / "inbox"), tmp_path / "work", certify=False)
    training = train(study, tmp_path / "work", learner="linear")
    assert training.limited == (("site-0", 120),)
    assert (training.rows, training.rows_used, training.left_out) == (520, 240, ())
    assert [(finding.kind, finding.about) for finding in training.list_findings()] == [("limited", ("site-0",))]


@pytest.mark.parametrize("limit", [0.5, -1.0, 1e7])
def test_a_limit_below_one_or_without_meaning_is_refused(limit: float) -> None:
    with raising(InputError, "weight_limit"):
        change(numeric_study(), weight_limit=limit)
