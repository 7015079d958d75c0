"""The picture of what an attacker gets states nothing about panels that it does not have."""

from dataclasses import replace

import pytest

from mooring.report.pictures import People, picture_attackers
from tests.report.example_records import example_audit


@pytest.mark.parametrize(
    ("interval", "note", "label"),
    [
        ("", "", "Rows: 5 of 100."),
        ("[3, 8]", "", "Rows: 5 of 100 [3, 8]."),
        ("", "by guessing 1", "Rows: 5 of 100, by guessing 1."),
        ("[3, 8]", "by guessing 1", "Rows: 5 of 100 [3, 8], by guessing 1."),
    ],
)
def test_a_panel_in_words_has_its_count_and_what_is_known_beside_it(interval: str, note: str, label: str) -> None:
    assert People("Rows", "5 of 100", interval, 0.05, "red", note).label == label


def test_without_a_figure_or_a_bound_of_membership_no_false_alarm_is_spoken_of() -> None:
    point = example_audit().points[0]
    with_both, *_ = picture_attackers(point, None)
    outcomes = tuple(
        replace(outcome, figures={name: figure for name, figure in outcome.figures.items() if "member" not in name})
        for outcome in point.outcomes
    )
    (linked,) = picture_attackers(replace(point, outcomes=outcomes), None)
    assert len(linked.people) == 1
    assert len(with_both.people) == 2
    assert "false alarm" in with_both.words
    assert "false alarm" not in linked.words
