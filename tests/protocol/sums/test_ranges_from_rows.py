"""Ranges and categories that were merged from sites' rows: sums carry no guarantee until a person confirms them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mooring.audit import SumPoint
from mooring.errors import InputError
from mooring.protocol.designer.header import Header
from mooring.protocol.designer.merge import draft_merged, merge_headers
from mooring.protocol.exchange_types import AuditRequest
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import RangeSource, parse_study
from mooring.protocol.participant.role import Participant
from mooring.protocol.registry import exchange_of
from mooring.protocol.sums.result import guaranteed_risk
from mooring.report.audit_page import render_audit
from mooring.report.governance import render_drafts
from mooring.report.records import StudyRecords
from mooring.report.study_page import render_report
from mooring.report.summary import summarise
from mooring.tables import Column, Partition
from tests import commands
from tests.protocol.sums.support import SumStudy, make_sum_study
from tests.raising import raising

WHO = "Dr. Ash: the ranges are those of the public code book"


def from_rows(given: SumStudy, confirmed: str = "") -> Study:
    return replace(given.study, range_source=RangeSource(("x0", "y"), confirmed))


def test_a_merged_draft_says_which_ranges_come_from_rows(tmp_path: Path) -> None:
    y, age = Column("y", "category", categories=("no", "yes")), Column("age", "integer", 20, 90)
    dose = Column("dose", "number", 0, 1)
    headers = [Header("a", (age, y, dose)), Header("b", (age, y, replace(dose, high=5000)))]
    text = draft_merged(merge_headers(headers), name="s", label="y")
    assert parse_study(text)["ranges"]["from_rows"] == ["age", "y"]  # that of the dose is open, for a person to declare
    (tmp_path / "s.toml").write_text(text.replace("range = []", "range = [0, 10]"))
    study = Study.read(tmp_path / "s.toml")
    assert study.range_source == RangeSource(("age", "y"))
    assert Study.from_dict(study.as_dict()) == study
    confirmed = replace(study, range_source=replace(study.range_source, confirmed=WHO))
    assert confirmed.digest != study.digest
    confirmed.write(tmp_path / "s.toml")
    assert Study.read(tmp_path / "s.toml") == confirmed
    assert WHO in commands.flat(commands.run("study", "show", "--study", tmp_path / "s.toml").output)


def test_sums_with_ranges_from_rows_carry_no_guarantee_until_they_are_confirmed(tmp_path: Path) -> None:
    given = make_sum_study(tmp_path, p=4, epsilon=0.5, model_limit="membership at most 5 %")
    doubtful, confirmed = from_rows(given), from_rows(given, WHO)
    exchange = exchange_of(given.study)
    promises = [exchange.describe(study).promise for study in (given.study, doubtful, confirmed)]
    assert promises == [(0.5, 1e-5), None, (0.5, 1e-5)]
    assert guaranteed_risk(doubtful) == 1.0
    assert guaranteed_risk(confirmed) == guaranteed_risk(given.study) < 1
    promised = "differential privacy for adding"
    for study, is_promised in ((given.study, True), (doubtful, False), (confirmed, True)):
        report = summarise(study, StudyRecords())
        pages = [*render_drafts(report).values(), render_report(report)]
        assert any(promised in page for page in pages) is is_promised
        assert (promised in dict(exchange.describe_study(study))["Guarantee"]) is is_promised
        assert any(WHO in page for page in pages) is (study is confirmed)


def test_a_limit_on_epsilon_is_not_kept_while_ranges_are_not_confirmed(tmp_path: Path) -> None:
    given = make_sum_study(tmp_path, p=3, epsilon=0.5, upload_limits=("epsilon at most 1",))
    limits = given.study.upload_limits
    for study, exceeded in ((given.study, ()), (from_rows(given), limits), (from_rows(given, WHO), ())):
        checked = Participant(study, given.vaults[0]).check(given.table(0, 20))
        assert checked.exceeded == exceeded
        assert checked.self_attack is not None
        with_noise, without = checked.self_attack.points
        assert without.point.promise is None
        assert with_noise.point.promise == (None if exceeded else (0.5, 1e-5))
        assert ("until a named person confirms" in render_audit(checked.self_attack, command="")) is bool(exceeded)


def test_the_points_of_an_audit_promise_nothing_while_ranges_are_not_confirmed(tmp_path: Path) -> None:
    given = make_sum_study(tmp_path, p=3, epsilon=0.5)
    rows, labels = zip(*(given.rows(i) for i in range(3)), strict=True)
    parts = Partition.from_parts(list(rows), list(labels), rng=np.random.default_rng(0), test_share=0.2)
    for study, promises in (
        (given.study, [(0.5, 1e-5), (1.0, 1e-5)]),
        (from_rows(given), [None, None]),
        (from_rows(given, WHO), [(0.5, 1e-5), (1.0, 1e-5)]),
    ):
        points = exchange_of(study).assessment.list_audit_points(study, parts, AuditRequest((), (), (), (1.0,)))
        sums = [point for point in points if isinstance(point, SumPoint)]
        assert [(point.epsilon, point.promise) for point in sums] == [(0.5, promises[0]), (1.0, promises[1])]


@pytest.mark.parametrize(("names", "confirmed"), [(["x0"], "yes"), (["z"], ""), (["x0"], "Dr. Ash:")])
def test_a_confirmation_says_who_and_why_and_columns_are_the_studys(
    names: list[str], confirmed: str, tmp_path: Path
) -> None:
    given = make_sum_study(tmp_path, p=3)
    plain = given.study.as_dict() | {"ranges": {"from_rows": names, "confirmed": confirmed}}
    with raising(InputError):
        Study.from_dict(plain)
