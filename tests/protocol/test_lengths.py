"""How much of a long list is shown, and how long the lists and texts of others may be."""

import re
from pathlib import Path

import numpy as np
import pytest

from mooring.errors import InputError
from mooring.mechanisms.sums.answers.description import describe
from mooring.protocol.designer.header import MOST_COLUMNS, Header
from mooring.protocol.designer.merge import merge_headers
from mooring.protocol.messages.reason import is_reasoned, require_reasoned
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import RangeSource
from mooring.protocol.participant.contrast import drafted_projection
from mooring.protocol.participant.prediction import Reading
from mooring.protocol.participant.reading import _list_rules
from mooring.protocol.participant.steps import match, state_mapping
from mooring.protocol.registry import exchange_of
from mooring.protocol.rotation.analyst.training import _can_learn_alone
from mooring.protocol.sums.analyst.asked import keep_answer, read_answers
from mooring.protocol.workspace import Workspace
from mooring.report.step_pages import StepPages
from mooring.tables.mapping import ColumnMapping, TableMapping
from mooring.tables.schema import Column
from mooring.testing.answers import population
from tests.raising import raising
from tests.sites import numeric_study


def items(n: int) -> list[str]:
    return [f"item{k}q" for k in range(n)]


def counted(text: str) -> int:
    return len(re.findall(r"item\d+q", text))


@pytest.mark.parametrize(("n", "n_shown"), [(10, 10), (11, 10)])
def test_names_and_rows_are_shown_up_to_ten(n: int, n_shown: int) -> None:
    named = str(RangeSource(tuple(items(n))))
    assert (counted(named), "…" in named) == (n_shown, n > n_shown)
    (line,) = Reading(500, tuple(range(101, 101 + n))).state()
    assert len(re.findall(r"\b1\d\d\b", line)) == n_shown
    assert re.findall(r"and (\d+) more", line) == [str(n - n_shown)] * (n > n_shown)


@pytest.mark.parametrize(("n", "n_shown"), [(12, 12), (13, 12)])
def test_translated_words_are_shown_up_to_twelve(n: int, n_shown: int) -> None:
    mapping = TableMapping(columns={"sex": ColumnMapping(words=dict.fromkeys(items(n), "f"))})
    ((*_, shown),) = _list_rules(mapping)
    assert (counted(shown), "…" in shown) == (n_shown, n > n_shown)


@pytest.mark.parametrize(("n", "n_shown"), [(50, 50), (51, 50)])
def test_renamed_columns_are_shown_up_to_fifty(n: int, n_shown: int, tmp_path: Path) -> None:
    workspace = Workspace.at(tmp_path, StepPages())
    rules = [f'[columns.c{k}]\nsource = "{name}"\n' for k, name in enumerate(items(n))]
    (tmp_path / "mapping.toml").write_text("".join(rules))
    (sentence,) = state_mapping(workspace)
    assert counted(sentence) == n_shown


@pytest.mark.parametrize(("decision", "fine"), [("a: b", True), ("a:" + "b" * 498, True), ("a:" + "b" * 499, False)])
def test_a_decision_has_at_most_500_letters(decision: str, fine: bool) -> None:
    assert is_reasoned(decision) == fine


def test_answers_are_read_up_to_two_hundred(tmp_path: Path) -> None:
    study, answer = numeric_study(), describe(population().draw(np.random.default_rng(0)), columns=["sex"])
    for k in range(201):
        keep_answer(study, tmp_path, answer, f"command {k}").rename(tmp_path / "answers" / f"{k:03}.json")
    assert [asked.command for asked in read_answers(tmp_path)] == [f"command {k}" for k in range(200)]


def test_a_header_describes_up_to_5000_columns() -> None:
    columns = tuple(Column(f"x{k}", "number", 0, 1) for k in range(MOST_COLUMNS + 1))
    assert len(Header("a", columns[:5000]).columns) == 5000
    with raising(InputError, "header", problem="5001"):
        Header("a", columns)


@pytest.mark.parametrize(("n_free", "finds"), [(60, True), (61, False)])
def test_columns_are_compared_by_what_they_hold_where_a_site_lacks_up_to_sixty(n_free: int, finds: bool) -> None:
    words = Column("smoker", "category", categories=("never", "often"))
    alike = Column("tobacco", "category", categories=("never", "often"))
    others = tuple(Column(name, "number", 10 * k + 1e6, 10 * k + 1e6 + 1) for k, name in enumerate(items(n_free - 1)))
    merged = {column.name: column for column in merge_headers([Header("a", (words,)), Header("b", (alike, *others))])}
    assert any("tobacco" in conflict for conflict in merged["smoker"].conflicts) == finds


@pytest.mark.parametrize(("n_columns", "n_components"), [(30, 30), (31, 30)])
def test_a_draft_projects_rows_of_more_than_thirty_numbers(n_columns: int, n_components: int) -> None:
    projection = drafted_projection(numeric_study(h=n_columns, r=4 * n_columns))
    assert np.shape(projection.matrix) == (n_columns, n_components)


@pytest.mark.parametrize(
    ("labels", "kind", "fine"),
    [([0, 1] * 5, "classes", True), ([0, 1] * 4 + [1], "classes", False), ([1] * 10, "classes", False),
     ([1.0] * 10, "number", True), ([1.0] * 9, "number", False)],
)  # fmt: skip
def test_ten_rows_of_two_classes_are_enough_to_learn_alone(labels: list[float], kind: str, fine: bool) -> None:
    assert _can_learn_alone(np.array(labels), kind) == fine  # type: ignore[arg-type]


@pytest.mark.parametrize(("n", "n_shown"), [(10, 10), (11, 10)])
def test_columns_of_a_study_are_named_in_an_error_up_to_ten(n: int, n_shown: int) -> None:
    plain = numeric_study(h=1, r=4).as_dict()
    still_open = [{"name": name, "kind": "number", "range": []} for name in items(n)]
    with raising(InputError, "columns", got=f"{n} open") as caught:
        Study.from_dict(plain | {"columns": still_open})
    assert (counted(caught.value.got), "…" in caught.value.got) == (n_shown, n > n_shown)
    with raising(InputError, "ranges") as caught:
        Study.from_dict(plain | {"ranges": {"from_rows": items(n), "confirmed": ""}})
    assert counted(caught.value.problem) == n_shown


@pytest.mark.parametrize(("n", "n_shown"), [(50, 50), (51, 50)])
def test_unknown_words_are_shown_up_to_fifty(n: int, n_shown: int, tmp_path: Path) -> None:
    workspace = Workspace.at(tmp_path, StepPages())
    numeric_study(h=1, r=4).write(workspace.study_file)
    (tmp_path / "rows.csv").write_text("\n".join(["x0,y", *(f"0.5,{word}" for word in items(n))]) + "\n")
    tables = dict(match(workspace, data=tmp_path / "rows.csv", show_values=True).tables)
    assert counted(str(tables["Words that the study does not know"])) == n_shown


def test_long_answers_of_a_person_are_quoted_up_to_a_length() -> None:
    with raising(InputError, "--override") as caught:
        require_reasoned("--override", "x" * 500)
    assert len(caught.value.got) == 80
    study = numeric_study()
    with raising(InputError, "outcome") as caught:
        exchange_of(study).require_outcome(study, "x" * 500)
    assert caught.value.problem.count("x" * 60) == 1
    assert "x" * 61 not in caught.value.problem
