"""A study goes from a draft to predictions by passes of the driver alone, whatever its mechanism."""

from pathlib import Path

import pytest

from tests.protocol.driver.support import ANALYST, NAMES, Town, draft


@pytest.mark.parametrize("mechanism", ["rotation", "sums"])
def test_four_stewards_and_an_analyst_carry_no_file_from_a_draft_to_predictions(mechanism: str, folder: Path) -> None:
    town = Town.found(folder, draft(mechanism))
    rounds = town.go_round()
    assert rounds <= 8
    for name in NAMES:
        assert (folder / name / "predictions.csv").is_file()
        assert [question.kind for question in town.asked[name]] == ["study", "share"]
    assert [question.kind for question in town.asked[ANALYST]].count("members") >= 1
