"""A study goes from a draft to predictions by passes of the driver alone, whatever its mechanism."""

from pathlib import Path

import pytest

from mooring.protocol.driver.questions import ask_about_sharing
from tests.protocol.driver.support import ANALYST, NAMES, Town, draft


@pytest.mark.parametrize("mechanism", ["rotation", "sums"])
def test_four_stewards_and_an_analyst_carry_no_file_from_a_draft_to_predictions(mechanism: str, folder: Path) -> None:
    town = Town.found(folder, draft(mechanism))
    rounds = town.go_round()
    assert rounds <= 8
    for name in NAMES:
        assert (folder / name / "predictions.csv").is_file()
        assert [question.kind for question in town.asked[name]] == ["study", "share"]
    assert [question.kind for question in town.asked[ANALYST]] == ["members"]


def test_helpers_combine_by_themselves_and_members_may_be_gone_without(folder: Path) -> None:
    study = draft("sums", quorum=2)
    town = Town.found(folder, study, names=NAMES[:3], helpers=("first", "second"))
    town.answers["east", "share"] = False  # stays out
    for _ in range(8):
        for name in town.everybody:
            town.advance(name, without=("east",))
    assert "Combine" in town.took("first")
    assert "Combine" in town.took("second")
    for name in ("north", "south"):
        assert (folder / name / "predictions.csv").is_file()
        assert "Combine" not in town.took(name)
    assert not (folder / "east" / "east.bundle").exists()


@pytest.mark.parametrize(("epsilon", "expected_rows", "advice"), [(2.0, 0, "share"), (0.001, 200, "do not share")])
def test_advice_of_sums_with_noise_follows_from_the_study_and_from_no_row(
    epsilon: float, expected_rows: int, advice: str, folder: Path
) -> None:
    town = Town.found(folder, draft("sums", epsilon=epsilon, expected_rows=expected_rows), names=NAMES[:2])
    for name in (*town.names, ANALYST, *town.names):
        if name == "north":  # another table, whose rows are all the same
            (folder / name / "patients.csv").write_text("age,sex,ill\n" + "50,male,no\n" * 40)
        town.advance(name, accepted=(), share="if-advised")
    for name in town.names:
        assert ask_about_sharing(town.workspace(name)).advice == advice
        assert (folder / name / f"{name}.bundle").exists() == (advice == "share")
