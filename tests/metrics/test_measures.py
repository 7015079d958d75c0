"""What figures are called in sentences."""

import pytest

from mooring.metrics import Figure, Interval
from mooring.metrics.measures import MEASURES, RISKS, state_figure
from tests.raising import numbers_in


@pytest.mark.parametrize(
    ("measure", "chance", "others"),
    [
        ("membership_at_1_percent", None, 100),
        ("membership_at_1_percent", 0.01, 100),
        ("membership_at_1_percent", 1 / 20, 20),  # the lowest rate that 20 others can show
        ("membership_at_0.1_percent", None, 1000),
        ("membership_at_0.1_percent", 0.001, 1000),
        ("membership_at_0.1_percent", 1 / 200, 200),
        ("outlying_membership_at_1_percent", None, 100),
        ("outlying_membership_at_0.1_percent", None, 1000),
    ],
)
def test_false_alarms_are_counted_at_the_rate_that_was_measured(
    measure: str, chance: float | None, others: int
) -> None:
    figure = Figure(measure, 0.3, Interval.unknown(), chance, None, None, 9, True)
    assert numbers_in(state_figure(measure, "a", figure, "x")) == {1, others}


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_belongs_to_a_risk_and_states_its_figure_and_its_attack(name: str) -> None:
    figure = Figure("of age", 0.25, Interval(0.2, 0.3), None, None, None, 7, True)
    assert MEASURES[name].risk in RISKS
    clause = state_figure(name, "some attack", figure)
    assert "'some attack'" in clause
    assert "25.0% [20.0%, 30.0%]" in clause
