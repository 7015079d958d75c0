"""Answers from one total by commands: a whole study of two hospitals, and every bad question as somebody would ask it."""

from __future__ import annotations

import re
from contextlib import chdir
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from mooring.cli.execution import make_table
from mooring.mechanisms.sums.answers import Description, OddsRatios, Regression, SurvivalCurves
from mooring.mechanisms.sums.settings import SumSettings
from mooring.protocol.analyst.role import Analyst
from mooring.tables.schema import Column, Label
from tests.commands import flat, record_of, run
from tests.protocol.sums.support import make_sum_study

COLUMNS = (
    Column("age", "integer", 20, 90),
    Column("arm", "category", categories=("placebo", "drug")),
    Column("ward", "category", categories=("a", "b")),
    Column("months", "number", 0, 36),
    Column("status", "category", categories=("alive", "dead")),
)
N = 1_500


def write_table(path: Path, seed: int) -> Path:
    """Rows in which the drug doubles survival and the score rises with age."""
    rng = np.random.default_rng(seed)
    age, arm = rng.integers(20, 91, N), rng.integers(2, size=N)
    until, lost = rng.exponential(np.where(arm, 36, 18)), rng.uniform(6, 50, N)
    months, dead = np.minimum(np.minimum(until, lost), 36), (until < lost) & (until < 36)
    score = np.clip(10 + 0.5 * age + 5 * arm + rng.normal(0, 5, N), 0, 100)
    lines = [
        f"{a},{('placebo', 'drug')[g]},{'ab'[a % 2]},{m:.3f},{('alive', 'dead')[int(d)]},{s:.3f}"
        for a, g, m, d, s in zip(age, arm, months, dead, score, strict=True)
    ]
    path.write_text("\n".join(["age,arm,ward,months,status,score", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The analyst's folder, once combiners have answered."""
    place = tmp_path_factory.mktemp("study")
    given = make_sum_study(place, 2)
    settings = SumSettings(
        epsilon=8.0,
        questions=("tables", "regression", "survival"),
        survival_time="months",
        survival_event="status",
        survival_occurred="dead",
        survival_edges=tuple(6.0 * k for k in range(6)),
    )
    study = replace(given.study, columns=COLUMNS, label=Label("score", "number", (), 0, 100), mechanism=settings)
    given = replace(given, study=study)
    for i in range(2):
        given.share(i, data=write_table(place / f"{i}.csv", i))
    given.close()
    for i in range(2):
        given.combine(i)
    study.write(place / "study.toml")
    return place


def ask(folder: Path, *words: Any) -> dict[str, Any]:
    with chdir(folder):
        return record_of(*words)


def test_shares_may_be_at_a_url(folder: Path) -> None:
    here, there = (ask(folder, "describe", "--shares", place) for place in ("inbox", (folder / "inbox").as_uri()))
    assert Description.from_dict(here) == Description.from_dict(there)


def test_a_table_a_regression_and_survival_curves_come_from_one_total(folder: Path) -> None:
    table = Description.from_dict(ask(folder, "describe", "--by", "arm"))
    assert table.source.rows == pytest.approx(2 * N, abs=150)
    assert (table.source.epsilon, table.source.delta, table.source.unit) == (8.0, 1e-5, "row")
    assert table.groups == ("all", "placebo", "drug")
    fitted = Regression.from_dict(ask(folder, "regress", "score ~ age + arm"))
    for term, slope in zip(fitted.terms[1:], (0.5, 5.0), strict=True):  # noise is drawn afresh: five standard errors
        assert abs(term.estimate - slope) < 5 * term.standard_error < abs(slope)
    curves = SurvivalCurves.from_dict(ask(folder, "survival", "--by", "arm"))
    assert curves.log_rank is not None
    assert curves.log_rank.p < 0.001
    at_30 = {point.group: point.survival for point in curves.points if point.end == 30}
    assert at_30 == pytest.approx({"placebo": np.exp(-30 / 18), "drug": np.exp(-30 / 36)}, abs=0.12)
    assert ask(folder, "associate", "age", "score")["correlations"][0]["correlation"] > 0.7
    assert OddsRatios.from_dict(ask(folder, "regress", "arm ~ age", "--logistic")).ratios[
        0
    ].odds_ratio == pytest.approx(1, abs=0.02)


def test_tables_are_printed_with_the_guarantee(folder: Path) -> None:
    with chdir(folder):
        printed = flat(run("describe", "--page", "table.html").stdout)
    assert "ε = 8, δ = 1e-05 for one row" in printed
    assert "placebo" in printed
    assert "placebo" in (folder / "table.html").read_text()


def test_the_analyst_reads_the_same_total_in_python(folder: Path) -> None:
    from mooring.mechanisms.sums.answers import describe
    from mooring.protocol.messages.study import Study

    total = Analyst(Study.read(folder / "study.toml"), folder / "analysis").open_total(folder / "inbox")
    assert describe(total).as_dict() == ask(folder, "describe")
    assert {*describe(total).to_frame().statistic} == {"count", "share", "mean", "sd"}


def test_synthetic_rows_are_written_once(folder: Path) -> None:
    written = ask(folder, "synthesize", "--rows", 500, "--impossible", "arm=drug,ward=b", "-o", "rows.parquet")
    rows = pq.read_table(folder / "rows.parquet").to_pandas()
    assert written["rows"] == len(rows) == 500
    assert not ((rows.arm == "drug") & (rows.ward == "b")).any()
    assert list(rows.columns) == ["age", "arm", "ward", "score", "months", "status"]
    with chdir(folder):
        run("synthesize", "-o", "rows.parquet", code=2, what="output")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["describe", "--by", "site"], "column"),
        (["describe", "--by", "age"], "by"),
        (["describe", "height"], "column"),
        (["regress", "score ~ height"], "formula"),
        (["regress", "weight ~ age"], "formula"),
        (["regress", "score ~ age*arm"], "formula"),
        (["regress", "score ~ age", "--logistic"], "formula"),
        (["survival", "--by", "score"], "by"),
        (["associate", "height"], "column"),
        (["synthesize", "--impossible", "arm"], "impossible"),
        (["describe", "--shares", "nowhere"], ""),
        (["train", "--shares", "inbox", "--outcome", "height"], "column"),
        (["train", "--shares", "inbox", "--outcome", "months"], "outcome"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused_with_a_sentence_and_nothing_is_opened_or_lost(
    folder: Path, words: list[str], what: str
) -> None:
    before = contents_of(folder)
    with chdir(folder):
        refused = run(*words, code=None, what=what)
    assert refused.exit_code in (2, 5)
    assert refused.output.strip().startswith("mooring:")
    assert contents_of(folder) == before


def contents_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_group_without_rows_is_said_to_have_none_and_the_others_are_answered(folder: Path, tmp_path: Path) -> None:
    given = make_sum_study(tmp_path, 2)
    columns = (*COLUMNS[:1], Column("arm", "category", categories=("placebo", "drug", "new")), *COLUMNS[2:])
    settings = SumSettings(epsilon=8.0, questions=("tables",))
    study = replace(given.study, columns=columns, label=Label("score", "number", (), 0, 100), mechanism=settings)
    given = replace(given, study=study)
    for i in range(2):
        given.share(i, data=write_table(tmp_path / f"{i}.csv", i))
    given.close()
    for i in range(2):
        given.combine(i)
    study.write(tmp_path / "study.toml")
    table = Description.from_dict(ask(tmp_path, "describe", "--by", "arm"))
    ages = {entry.group: entry for entry in table.statistics if (entry.column, entry.statistic) == ("age", "mean")}
    assert ages.keys() == {"all", "placebo", "drug"}
    assert any("arm = new" in note for note in table.notes)
    assert ages["drug"].estimate == pytest.approx(55, abs=5)


DRAFT = [
    "study",
    "init",
    "columns.csv",
    "--mechanism",
    "secure-sum",
    "--range",
    "months=0:36",
    "--question",
    "survival",
]
DRAFT += ["--survival-time", "months", "--survival-event", "status", "--survival-occurred", "dead"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--category", "status=alive,dead,lost", "--survival-edge", 0, "--survival-edge", 12], "survival"),
        (["--category", "status=alive,gone", "--survival-edge", 0, "--survival-edge", 12], "survival"),
        (["--category", "status=alive,dead", "--survival-edge", 0, "--survival-edge", 48], "survival"),
        (["--category", "status=alive,dead", "--survival-edge", 12, "--survival-edge", 6], "survival"),
        (["--category", "status=alive,dead"], "questions"),
        (["--category", "status=alive,dead", "--question", "colours"], "questions"),
    ],
)
def test_survival_that_cannot_be_declared_is_refused_before_anything_is_written(
    tmp_path: Path, words: list[str], what: str
) -> None:
    """An event that is not two-valued, a time beyond the declared range, edges that fall, and edges that are missing."""
    (tmp_path / "columns.csv").write_text("months,status\n")
    with chdir(tmp_path):
        run(*DRAFT, *words, code=2, what=what)
    assert [path.name for path in tmp_path.iterdir()] == ["columns.csv"]


def test_too_many_columns_for_the_rows_are_said_before_anybody_joins_with_the_number_that_would_do(
    tmp_path: Path,
) -> None:
    names = [f"c{k}" for k in range(12)]
    (tmp_path / "columns.csv").write_text(",".join(names) + "\n")
    words = [word for name in names for word in ("--range", f"{name}=0:10")]
    draft = ["study", "init", "columns.csv", "--mechanism", "secure-sum", "--question", "regression", *words]
    with chdir(tmp_path):
        few = record_of(*draft, "--epsilon", "1", "--expected-rows", 800)["forecast"]
        assert [outlook["is_useful"] for outlook in few["outlooks"]] == [False]
        needed, n_columns = (
            int(number.replace(",", "")) for number in re.findall(r"[\d,]+", few["outlooks"][0]["words"])
        )
        assert 1_000 < needed < 20_000
        assert 1 <= n_columns < 11
        planned = record_of("plan", "--study", "study.toml", "--expected-rows", 3 * needed)
    assert [outlook["is_useful"] for outlook in planned["outlooks"]] == [True]


@pytest.mark.parametrize("width", [80, 50])
def test_a_table_that_is_wider_than_the_terminal_keeps_the_names_of_its_rows_and_every_number(width: int) -> None:
    cells = ("53.2 (9.84) [52.5, 54.0]", "51.3 (10.3) [50.3, 52.3]", "56.7 (7.78) [55.6, 57.7]")
    rows = [("", "all", "hormone = no", "hormone = yes"), ("age", *cells), ("bones: never-broken", *cells)]
    text = StringIO()
    Console(file=text, width=width).print(make_table(rows, title="Table 1", n_left=1), crop=False)
    shown = text.getvalue().split()
    assert {word for row in rows for cell in row for word in cell.split()} <= set(shown)
    assert shown.count("[50.3,") == 2
