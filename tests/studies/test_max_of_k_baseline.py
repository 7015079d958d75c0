"""The best of several attacks that all guess lies above one guess: by how much is computed, not typed."""

from __future__ import annotations

import numpy as np
import pytest
from mooring_studies.comparison.max_of_k_baseline import (
    count_galleries,
    count_rivals,
    expect_best_guess,
)
from mooring_studies.comparison.results import Results

ANCHOR = "aa-i-gdp-anchor-noise"


def drawn_rows() -> Results:
    """Three attacks at most on one draw, four in all; two where the costly ones were not run."""
    cheap = {"method": ANCHOR, "deployment": 0, "linkage:procrustes": 0.1, "linkage:guessing": 0.1}
    rows = [
        {**cheap, "linkage:pseudoinverse": 0.1, "linkage:alignment-map": 0.1, "linkage:x": 0.1, "linkage:y": 0.1},
        {**cheap, "linkage:moments": 0.2, "linkage:moments+learned": 0.2, "match:moments": 0.2},
        {**cheap, "linkage:moments+denoised": 0.2},
    ]
    return Results.from_rows([row | {"strongest_attacks": k > 0} for k, row in enumerate(rows)])


@pytest.mark.parametrize(("n_attacks", "n_galleries", "n_candidates"), [(6, 98, 10), (2, 1000, 10), (3, 7, 4)])
def test_the_baseline_is_what_many_guesses_give(n_attacks: int, n_galleries: int, n_candidates: int) -> None:
    rng = np.random.default_rng(0)
    guesses = rng.binomial(n_galleries, 1 / n_candidates, (100_000, n_attacks)).max(axis=1) / n_galleries
    error = guesses.std() / np.sqrt(len(guesses))
    assert expect_best_guess(n_attacks, n_galleries, n_candidates) == pytest.approx(guesses.mean(), abs=4 * error)


def test_one_attack_gains_nothing_and_more_galleries_leave_less() -> None:
    assert expect_best_guess(1, 1000) == pytest.approx(0.1, abs=1e-12)
    assert expect_best_guess(2, 1, 10) == pytest.approx(1 - 0.9**2)
    assert expect_best_guess(6, 100) > expect_best_guess(6, 1000) > expect_best_guess(2, 1000) > 0.1


def test_rivals_are_those_of_one_draw_on_which_every_attack_was_run() -> None:
    assert count_rivals(drawn_rows(), "linkage") == 3
    assert count_rivals(drawn_rows(), "match") == 1
    assert count_rivals(drawn_rows(), "error") == 0
    assert count_rivals(Results.from_rows([]), "linkage") == 0


@pytest.mark.parametrize(
    ("facts", "linkage", "match"),
    [
        ({}, None, None),
        ({"n_queries": 98, "n_galleries": 980}, (98, 980), (98, 98)),
        ({"n_galleries": 50}, (50, 50), (50, 50)),
        ({"n_queries": 1000}, (1000, 1000), (1000, 1000)),
        ({"parts": [{"n_queries": 50}, {"n_queries": 694}, {}]}, (50, 694), (50, 694)),
        ({"cells": [{"n_queries": 20}]}, (20, 20), (20, 20)),
        ({"deployments": {"a": {"n_queries": 19, "n_galleries": 190}, "b": {}}}, (19, 190), (19, 19)),
        ({"n_queries": 7, "deployments": {"other": {"n_queries": 3}}}, (7, 7), (7, 7)),
    ],
)
def test_galleries_are_those_that_the_study_noted(facts: dict, linkage: object, match: object) -> None:
    assert count_galleries(facts, "linkage") == linkage
    assert count_galleries(facts, "match") == match
