"""What the records of an alignment and of a training say: who, how many, how well, and what deserves attention."""

from dataclasses import replace
from typing import Any

import pytest

from mooring.learners import Gain, Score
from mooring.protocol.rotation.analyst.alignment_state import AlignedParticipant, AlignmentRecord
from mooring.protocol.rotation.analyst.training_record import Training
from tests.raising import numbers_in
from tests.report.example_records import analyst_records

GATHERED = analyst_records().gathered
assert isinstance(GATHERED, AlignmentRecord)
ENTRIES = tuple(
    AlignedParticipant(name, rows, "d", fit) for name, rows, fit in (("a", 1000, 0.9), ("b", 40, 0.5), ("c", 60, 0.7))
)
RECORD = replace(GATHERED, participants=ENTRIES, set_aside=(), certificate=None)


def said(record: AlignmentRecord, word: str) -> list[str]:
    return [line for line in record.describe() if word in line]


def test_an_alignment_says_how_many_rows_there_are_and_who_fits_the_least() -> None:
    (line,) = said(RECORD, "lowest")
    assert "3 participants, 1,100 rows" in line
    assert "0.50 (b)" in line
    assert "1 participant, 40 rows" in said(replace(RECORD, participants=ENTRIES[1:2]), "lowest")[0]


@pytest.mark.parametrize(
    ("newcomers", "said_first"),
    [(None, ""), ((), "Nobody new"), (("c",), "Admitted c;"), (("b", "c"), "Admitted b, c;")],
)
def test_who_was_admitted_is_said_of_a_late_alignment_alone(newcomers: Any, said_first: str) -> None:
    lines = replace(RECORD, newcomers=newcomers).describe()
    assert ("unchanged" in lines[0]) == bool(said_first)
    assert lines[0].startswith(said_first)
    assert len(lines) == len(RECORD.describe()) + (newcomers is not None)


@pytest.mark.parametrize(("v", "side"), [(0.0, ""), (0.39, "below"), (0.4, "above"), (0.5, "above")])
def test_the_noise_is_compared_with_the_transition_where_there_is_noise(v: float, side: str) -> None:
    lines = said(replace(RECORD, anchor_noise_scale=v, transition_scale=0.4), "anchor noise")
    assert len(lines) == bool(side)
    assert all(f"is {side} 0.4" in line for line in lines)


def test_notes_certificates_and_those_set_aside_are_said_where_there_are_any() -> None:
    n = len(RECORD.describe())
    for changes in ({"certificate": "Proved."}, {"note": "Look."}):
        assert len(replace(RECORD, **changes).describe()) == n + 1
    assert "Note: Look." in replace(RECORD, note="Look.").describe()
    assert RECORD.list_findings() == ()
    assert RECORD.is_whole
    aside = replace(RECORD, set_aside=(replace(ENTRIES[0], name="d", flagged=True),))
    (finding,) = aside.list_findings()
    assert (finding.kind, finding.about, aside.is_whole) == ("flagged", ("d",), False)
    assert [finding.kind for finding in replace(aside, converged=False).list_findings()] == ["flagged", "not converged"]
    rows = aside.list_contributions()
    assert [row[0] for row in rows[1:]] == ["a", "b", "c", "d"]
    assert rows[1][1:] == ("1,000", "0.90")
    assert rows[4][1] == "set aside"
    assert list(aside.list_states()) == ["a", "b", "c", "d"]
    assert (aside.list_states()["a"].rows, aside.list_states()["a"].fit) == (1000, 0.9)


@pytest.mark.parametrize(
    ("changes", "heading", "shown"),
    [
        ({"iterations": 12}, "iterations", "12"),
        ({"iterations": None}, "iterations", "not known"),
        ({"residual": 1.5e-9}, "residual", "1.5e-09"),
        ({"residual": None}, "residual", "not known"),
        ({"misfit": 0.25}, "misfit of the anchors", "0.25"),
        ({"misfit": None}, "misfit of the anchors", "not known"),
        ({"termination": ""}, "why the solver stopped", "not known"),
        ({"termination": "It fell."}, "why the solver stopped", "It fell."),
        ({"certificate": "Proved."}, "is it the global optimum?", "Proved."),
    ],
)
def test_how_an_alignment_was_computed_is_shown_as_far_as_it_is_known(
    changes: dict[str, Any], heading: str, shown: str
) -> None:
    assert dict(replace(RECORD, **changes).list_measures())[heading] == shown


def test_the_noise_is_shown_as_a_share_of_the_transition() -> None:
    measures = dict(replace(RECORD, anchor_noise_scale=0.1, transition_scale=0.4).list_measures())
    assert numbers_in(measures["anchor noise"]) == {0.1, 25, 0.4}
    assert "note" not in measures
    assert replace(RECORD, note="Look.").list_measures()[-1] == ("note", "Look.")
    assert "not shown" in measures["is it the global optimum?"]


def auc(value: float, metric: str = "AUC") -> Score:
    return Score(metric, value, value - 0.1, value + 0.1, 50)


TRAINED = Training(
    "linear",
    "classes",
    auc(0.86),
    (("a", auc(0.9)), ("b", auc(0.8, "balanced accuracy"))),
    (("a", auc(0.7)),),
    1200,
    1200,
    "digest",
)


def test_a_training_says_how_many_rows_were_used_if_not_all() -> None:
    assert numbers_in(str(TRAINED)) == {1200}
    assert numbers_in(str(replace(TRAINED, rows_used=900))) == {1200, 900}
    assert TRAINED.is_whole
    assert TRAINED.list_findings() == ()


def test_a_table_has_the_scores_by_others_and_by_the_upload_alone() -> None:
    """With the metric where it is another, and a dash where no model was trained on the upload alone."""
    assert TRAINED.list_scores()[1:] == [("a", "0.900", "0.700"), ("b", "80.0% (balanced accuracy)", "–")]
    ((title, rows),) = TRAINED.list_tables().items()
    assert ("AUC" in title, rows) == (True, TRAINED.list_scores())


def test_who_is_left_out_and_why_is_a_finding_on_each() -> None:
    left = replace(
        TRAINED, left_out=(("c", auc(0.4)), ("d", auc(0.6))), harmful=(("d", 0.123),), limited=(("a", 1500),)
    )
    findings = left.list_findings()
    assert [(finding.kind, finding.about) for finding in findings] == [
        ("left out", ("c",)),
        ("harmful", ("d",)),
        ("limited", ("a",)),
    ]
    assert not left.is_whole
    assert "0.400" in findings[0].words
    assert "12.3 points" in findings[1].words
    assert "1,500" in findings[2].words
    numbers = replace(left, score=auc(0.5, "R²"))
    assert "0.12 of R²" in numbers.list_findings()[1].words


def test_scores_are_said_with_what_was_trained_alone_what_was_gained_and_what_is_disclosed() -> None:
    first, second = TRAINED.state_scores()
    assert {0.86, 0.76, 0.96} <= numbers_in(first)
    assert replace(TRAINED, alone=()).state_scores()[1] != second
    assert numbers_in(replace(TRAINED, alone=()).state_scores()[1]) == {50}
    gained = [replace(TRAINED, gain=Gain(metric, 0.1, 0.05, 0.15, 40)).state_scores()[2] for metric in ("AUC", "R²")]
    assert ["class frequencies" in sentence for sentence in gained] == [True, False]
    assert len(TRAINED._repr_html_()) > len(str(TRAINED))
