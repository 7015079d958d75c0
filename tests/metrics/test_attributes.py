import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mooring.metrics import Figure
from mooring.metrics.attributes import KnownRows, _determinations, _square_columns, infer_attribute

Refused = Callable[..., None]


def study(rng: np.random.Generator, n: int = 600) -> dict[str, Any]:
    """Rows whose sum decides the attribute, and labels that say nothing of it; half the rows are the colluder's."""
    rows = rng.standard_normal((2 * n, 4))
    attribute = np.where(rows.sum(axis=1) > 0, "yes", "no")
    labels = rng.integers(0, 3, 2 * n)
    return {
        "attribute": attribute[n:],
        "population_rows": rows[:n],
        "population_attribute": attribute[:n],
        "population_labels": labels[:n],
        "target_reconstruction": rows[n:],
        "target_labels": labels[n:],
    }


def infer(inputs: dict[str, Any], rng: np.random.Generator, **options: Any) -> Figure:
    inputs = dict(inputs)
    population = KnownRows(*(inputs.pop(f"population_{name}") for name in ("rows", "attribute", "labels")))
    return infer_attribute(inputs.pop("attribute"), population=population, **inputs, rng=rng, **options)


def test_a_category_in_the_rows_is_found_and_labels_alone_are_at_chance(rng: np.random.Generator) -> None:
    """600 rows: the baseline is at 0.5 ± 0.02."""
    inference = infer(study(rng), rng)
    assert inference.value > 0.95
    assert inference.chance == 0.5
    assert inference.control == pytest.approx(0.5, abs=0.08)
    assert inference.value in inference.interval
    assert inference.interval.high - inference.interval.low < 0.15
    assert (inference.name, inference.n, inference.higher_is_worse) == ("attribute", 600, True)


def test_a_reconstruction_of_pure_noise_tells_nothing(rng: np.random.Generator) -> None:
    """1,500 rows: 0.5 ± 0.013; an accuracy of 0.56 would be seen."""
    inputs = study(rng, 1500)
    inputs["target_reconstruction"] = rng.standard_normal((1500, 4))
    inference = infer(inputs, rng)
    assert 0.5 in inference.interval
    assert inference.interval.high - inference.interval.low < 0.06


def test_accuracy_is_balanced(rng: np.random.Generator) -> None:
    """One in ten says yes: always no is right nine times in ten, and scores one half."""
    inputs = study(rng)
    inputs["attribute"] = np.where(np.arange(600) < 60, "yes", "no")
    inputs["target_reconstruction"] = np.full((600, 4), -3.0)
    assert infer(inputs, rng).value == 0.5


def test_a_label_that_tells_the_attribute_leaves_no_advantage(rng: np.random.Generator) -> None:
    inputs = study(rng)
    inputs["population_labels"] = np.where(inputs["population_attribute"] == "yes", 5, 6)
    inputs["target_labels"] = np.where(inputs["attribute"] == "yes", 5, 6)
    inference = infer(inputs, rng)
    assert inference.control == 1.0
    assert inference.value <= 1.0


def test_the_baseline_makes_the_most_of_a_label_even_of_a_rare_category(rng: np.random.Generator) -> None:
    """One yes in ten; label 1 doubles the odds, so yes is a minority under both labels, yet the label tells something."""
    n = 4000
    yes = rng.random(2 * n) < 0.1
    labels = np.where(rng.random(2 * n) < np.where(yes, 0.8, 0.2), 1, 0)
    rows = rng.standard_normal((2 * n, 2))
    inference = infer_attribute(
        yes[n:],
        population=KnownRows(rows[:n], yes[:n], labels[:n]),
        target_reconstruction=rows[n:],
        target_labels=labels[n:],
        rng=rng,
    )
    assert inference.control == pytest.approx(0.8, abs=0.05)


def test_an_attacker_with_labels_does_as_well_as_the_label_where_rows_say_nothing(rng: np.random.Generator) -> None:
    inputs = study(rng)
    noise = rng.standard_normal((1200, 4))
    inputs["population_rows"], inputs["target_reconstruction"] = noise[:600], noise[600:]
    inputs["population_labels"] = np.where(inputs["population_attribute"] == "yes", "u", "v")
    inputs["target_labels"] = np.where(inputs["attribute"] == "yes", "u", "v")
    assert infer(inputs, rng, with_labels=True).value > 0.95
    assert infer(inputs, rng).value < 0.6


def test_a_label_that_the_population_lacks_does_no_harm(rng: np.random.Generator) -> None:
    inputs = study(rng)
    inputs["target_labels"] = np.full(600, 99)
    assert infer(inputs, rng).control == 0.5
    assert infer({**inputs, "attribute": np.full(600, "no")}, rng).control == 1.0  # of equals the first
    numbers = {**inputs, "attribute": np.arange(600.0), "population_attribute": np.arange(600.0)}
    assert infer(numbers, rng, kind="number").control == pytest.approx(0.0)


def test_a_category_that_the_population_lacks_is_never_found(rng: np.random.Generator) -> None:
    inputs = study(rng)
    inputs["attribute"] = np.where(np.arange(600) < 300, "maybe", inputs["attribute"])
    inference = infer(inputs, rng)
    assert inference.value < 2 / 3 + 1e-12


def test_a_number_in_the_rows_is_found(rng: np.random.Generator) -> None:
    inputs = study(rng)
    for name, rows in (("attribute", "target_reconstruction"), ("population_attribute", "population_rows")):
        inputs[name] = 50 + 10 * inputs[rows].sum(axis=1)
    inference = infer(inputs, rng, kind="number")
    assert inference.value > 0.999
    assert inference.chance == 0.0
    assert inference.control == pytest.approx(0.0, abs=0.05)
    inputs["target_reconstruction"] = np.broadcast_to(inputs["population_rows"].mean(axis=0), (600, 4))
    assert infer(inputs, rng, kind="number").value == pytest.approx(0.0, abs=0.02)


def test_a_number_that_the_label_tells_in_part(rng: np.random.Generator) -> None:
    """Label means of spread 1 and noise of spread 1 about them: R² = 1/2 for the label, within 0.08 on 600 rows."""
    inputs = study(rng)
    for name, labels in (("attribute", "target_labels"), ("population_attribute", "population_labels")):
        inputs[labels] = np.arange(600) % 2
        inputs[name] = 2.0 * inputs[labels] + rng.standard_normal(600)
    inference = infer(inputs, rng, kind="number")
    assert inference.control == pytest.approx(0.5, abs=0.08)


def test_a_number_that_does_not_vary_has_no_r2(rng: np.random.Generator) -> None:
    inputs = {**study(rng), "attribute": np.full(600, 0.1), "population_attribute": np.arange(600.0)}
    inference = infer(inputs, rng, kind="number")
    assert math.isnan(inference.value)
    assert not inference.interval.known


def test_resamples_in_which_a_number_does_not_vary_have_no_part_in_its_interval(rng: np.random.Generator) -> None:
    """One row of six differs: without it, as in a third of the resamples, there is no R²."""
    rows = np.eye(6)
    inputs = {"population_rows": rows, "population_attribute": rows[:, 0], "population_labels": np.zeros(6)}
    inputs |= {"attribute": rows[:, 0], "target_reconstruction": rows, "target_labels": np.zeros(6)}
    assert infer(inputs, rng, kind="number").interval.known


def test_the_interval_of_r2_is_that_of_r2_on_the_resampled_rows(rng: np.random.Generator) -> None:
    """Eight rows, so that the mean of each resample matters; the same resamples, scored by scikit-learn."""
    truth, known, labels = rng.standard_normal(8), np.arange(5.0), np.zeros(8)
    rows = truth[:, None] + 0.3 * rng.standard_normal((8, 1))
    inference = infer_attribute(
        truth,
        population=KnownRows(known[:, None], known, labels[:5]),
        target_reconstruction=rows,
        target_labels=labels,
        rng=np.random.default_rng(3),
        kind="number",
        n_resamples=500,
    )
    resamples = np.random.default_rng(3).multinomial(8, np.full(8, 1 / 8), size=500)
    guesses = make_pipeline(StandardScaler(), Ridge()).fit(known[:, None], known).predict(rows)
    scores = [r2_score(truth, guesses, sample_weight=times) for times in resamples]
    expected = np.quantile(scores, [0.025, 0.975])
    assert (inference.interval.low, inference.interval.high) == (pytest.approx(expected[0]), pytest.approx(expected[1]))


def test_r2_loses_no_digits_where_numbers_lie_far_from_nought(rng: np.random.Generator) -> None:
    truth = rng.standard_normal(50)
    near, far = (
        _determinations(_square_columns(truth + at, truth + at + 0.5, truth + at - 1).sum(axis=0))
        for at in (0.0, 2.0**27)
    )
    assert near == pytest.approx(1 - np.array([0.25, 1.0]) / truth.var())
    assert far == pytest.approx(near, rel=1e-6)


def test_the_same_generator_gives_the_same_figures(rng: np.random.Generator) -> None:
    inputs = study(rng)
    assert infer(inputs, np.random.default_rng(3)) == infer(inputs, np.random.default_rng(3))


def test_unusable_inputs_are_refused(refused: Refused, rng: np.random.Generator) -> None:
    inputs = study(rng)

    def changed(options: dict[str, Any] | None = None, **changes: Any) -> Callable[[], Figure]:
        return lambda: infer({**inputs, **changes}, rng, **(options or {}))

    for change, what, expected, got in (
        ({"target_reconstruction": inputs["target_reconstruction"][:, :3]}, "target_reconstruction", "4 features", "3"),
        ({"target_reconstruction": np.full((600, 4), np.nan)}, "target_reconstruction", "finite", "NaN"),
        ({"attribute": inputs["attribute"][:9]}, "attribute", "600 values", "shape (9,)"),
        ({"target_labels": [1]}, "target_labels", "600 values", "shape (1,)"),
        ({"population_attribute": ["no"] * 600}, "population.attribute", "at least two categories", "1"),
    ):
        refused(changed(**change), what, expected, got)
    refused(changed({"kind": "ordinal"}), "kind", "category, number", "ordinal")
    refused(changed({"kind": "number"}), "attribute", "numbers", "dtype")


@pytest.mark.parametrize(("spread", "is_known"), [(0.8e-12, False), (1.2e-12, True)])
def test_a_spread_that_is_rounding_alone_has_no_r2(spread: float, is_known: bool) -> None:
    """One row has the square 1; its errors are zero and half of this spread."""
    scores = _determinations(np.array([1.0, math.sqrt(1 - spread), 1.0, 0.0, spread / 2]))
    assert scores == pytest.approx([1.0, 0.5] if is_known else [math.nan] * 2, rel=1e-3, nan_ok=True)
