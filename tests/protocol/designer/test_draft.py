"""Drafts of a study, its public projection and its roster."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from mooring.errors import InputError, RefusedError
from mooring.protocol.designer.draft import DeclaredColumns, DraftSettings, count_open_entries, draft_study, infer_kinds
from mooring.protocol.designer.revision import enrol_cards, project_study, write_roster
from mooring.protocol.designer.steps import enrol
from mooring.protocol.messages.study import Study, draw_nonce
from mooring.protocol.messages.study_file import parse_study
from mooring.protocol.messages.study_text import render_study
from mooring.protocol.rotation.scheme import study_projection
from mooring.protocol.workspace import Workspace
from mooring.report.step_pages import StepPages
from mooring.tables.schema import Label
from tests.protocol.support import AGREED, ENROLLED, message, write_member_card
from tests.raising import raising
from tests.record import check_record

HEADER = "age,sex,ill\n"
ALL_KNOWN = DeclaredColumns(ranges={"age": (0, 120)}, categories={"sex": ("female", "male")}, classes=("no", "yes"))


def rotation(**entries: Any) -> dict[str, Any]:
    """Entries of [mechanism]."""
    return {"name": "rotation", **entries}


def test_a_draft_depends_on_the_header_and_never_on_the_rows(tmp_path: Path) -> None:
    nonce = draw_nonce()
    rows = [b"", b"1,male,no\n", b"99,female,yes\n" * 50, bytes(range(128, 256)) * 99, b"\0\0,\0"]
    texts = set()
    for k, content in enumerate(rows):
        path = tmp_path / f"{k}.csv"
        path.write_bytes(HEADER.encode() + content)
        texts.add(draft_study(path, label="ill", settings=DraftSettings(nonce=nonce)))
    for k, age in enumerate((1.0, 99.0)):
        pa.parquet.write_table(pa.table({"age": [age], "sex": ["x" * k], "ill": [True]}), tmp_path / f"{k}.parquet")
    assert len(texts) == 1
    first, two = (
        draft_study(tmp_path / f"{k}.parquet", label="ill", settings=DraftSettings(nonce=nonce)) for k in (0, 1)
    )
    assert first == two
    assert draft_study(tmp_path / "0.csv") != draft_study(tmp_path / "0.csv")  # by the nonce


def test_a_draft_says_what_it_projects(tmp_path: Path) -> None:
    for width, method in ((30, {"projection": "none"}), (31, {"projection": "gaussian", "n_components": 30})):
        (tmp_path / "t.csv").write_text(",".join(f"c{k}" for k in range(width)) + "\n")
        text = draft_study(tmp_path / "t.csv")
        assert method.items() <= parse_study(text)["mechanism"].items()
        assert ("# projection:" in text) == (width > 30)


def test_parquets_rows_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"age": np.arange(9000.0), "n": np.arange(9000)}), path)
    before = draft_study(path, settings=DraftSettings(nonce="0" * 32))
    content = bytearray(path.read_bytes())
    content[4:50_000] = bytes(49_996)
    path.write_bytes(content)
    assert draft_study(path, settings=DraftSettings(nonce="0" * 32)) == before


def test_open_entries_are_refused_by_column_until_they_are_filled_in(tmp_path: Path) -> None:
    data, study = tmp_path / "t.csv", tmp_path / "study.toml"
    data.write_text(HEADER)
    study.write_text(draft_study(data, label="ill"))
    assert count_open_entries(study.read_text()) == 3
    with raising(InputError, "columns", got="2 open: 'age', 'sex'", cure="categories"):
        Study.read(study)
    known = replace(ALL_KNOWN, classes=())
    study.write_text(draft_study(data, label="ill", known=known))
    assert count_open_entries(study.read_text()) == 1
    assert "classes of label" in message(lambda: Study.read(study))
    study.write_text(study.read_text().replace("classes = []", 'classes = ["no", "yes"]'))
    read = Study.read(study)
    assert (read.n_features, read.mechanism.n_components, read.mechanism.n_anchor_rows) == (3, 3, 12)
    assert read.label == Label("ill", "classes", ("no", "yes"))


def test_types_of_parquet_become_kinds(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table({"a": [1.5], "b": [1], "c": [True], "d": pa.array(["x"]).dictionary_encode(), "y": [2.5]})
    pa.parquet.write_table(table, path)
    known = DeclaredColumns(all_ranges=(0, 16), categories={"d": ("x", "z")}, label_range=(0, 9))
    study = Study.from_dict(parse_study(draft_study(path, label="y", known=known)))
    assert [column.kind for column in study.columns] == ["number", "integer", "category", "category"]
    assert study.columns[2].categories == ("false", "true")
    assert study.label == Label("y", "number", (), 0, 9)
    ranged = replace(known, ranges={"b": (0, 9), "d": (0, 9)}, categories={})
    study = Study.from_dict(parse_study(draft_study(path, label="y", known=ranged)))
    assert [column.kind for column in study.columns] == ["number", "integer", "category", "number"]


def test_wide_tables_get_a_projection_and_every_setting_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"x{k}" for k in range(64)) + "\n")
    wide = Study.from_dict(parse_study(draft_study(path, known=DeclaredColumns(all_ranges=(0, 16)))))
    settings: Any = wide.mechanism
    assert (settings.projection, settings.n_components, settings.n_anchor_rows, settings.data_noise_scale) == (
        "gaussian",
        30,
        120,
        0.5,
    )
    given = Study.from_dict(
        parse_study(
            draft_study(
                path,
                name="digits",
                known=DeclaredColumns(all_ranges=(0, 16)),
                settings=DraftSettings(
                    mechanism=rotation(
                        method="aa-i-gdp-both-noise",
                        n_components=10,
                        n_anchor_rows=50,
                        data_noise_scale=0.3,
                        anchor_noise_scale=0.2,
                    ),
                    smallest_class=5,
                    image_shape=(8, 8),
                    missing_words=("-9",),
                ),
            )
        )
    )
    settings = given.mechanism
    assert (settings.n_components, settings.n_anchor_rows, settings.data_noise_scale, settings.anchor_noise_scale) == (
        10,
        50,
        0.3,
        0.2,
    )
    assert (given.name, given.smallest_class, given.image_shape, given.missing_words) == ("digits", 5, (8, 8), ("-9",))


def test_a_first_line_that_may_be_a_record_is_not_drafted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("8642.1357,male\n1,female\n")
    assert "8642" not in message(lambda: draft_study(path))
    for counted in ("0,1,2\n", "1,2,3\n"):
        path.write_text(counted)
        assert 'name = "2"' in draft_study(path)
    path.write_text("2,3,4\n")
    assert "column 1" in message(lambda: draft_study(path))
    path.write_text("age,sex\n")
    assert "Nearest to it: 'age'" in message(lambda: draft_study(path, label="agee"))


def test_a_public_projection_is_made_beside_the_study_and_named_in_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"x{k}" for k in range(6)]
    pa.parquet.write_table(pa.table({name: rng.uniform(0, 1, 40) for name in names}), tmp_path / "public.parquet")
    study = tmp_path / "study.toml"
    draft = draft_study(
        tmp_path / "public.parquet",
        known=DeclaredColumns(all_ranges=(0, 1)),
        settings=DraftSettings(mechanism=rotation(projection="public-svd", n_components=3)),
        name="svd",
    )
    study.write_text(draft)
    made = project_study(study, tmp_path / "public.parquet").study
    assert Study.read(study) == made
    assert study_projection(Study.read(study)).matrix.shape == (6, 3)
    (tmp_path / "svd.projection.safetensors").write_bytes(b"x")
    message(lambda: study_projection(Study.read(study)), RefusedError)
    other = project_study(study, tmp_path / "public.parquet", components=2).study
    assert (other.mechanism.n_components, other.mechanism.n_anchor_rows) == (2, 8)
    write_roster(other.with_members([ENROLLED]), study)
    assert "roster" in message(lambda: project_study(study, tmp_path / "public.parquet"))


def test_enrolling_keeps_what_people_wrote_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(render_study(AGREED.as_dict()) + "# our own remark\n")
    members = [write_member_card(tmp_path, name)[1] for name in ("a", "b")]
    analyst = write_member_card(tmp_path, "z", "analyst")[1]
    write_roster(AGREED.with_members(members[:1], analyst), path)
    full = AGREED.with_members(members, analyst)
    write_roster(full, path)
    assert Study.read(path) == full
    assert "# our own remark" in path.read_text()
    path.write_text("participants = []\n" + render_study(AGREED.as_dict()))  # nothing can be added to such a list
    write_roster(full, path)
    assert Study.read(path) == full
    path.write_text(render_study(AGREED.as_dict()))
    assert enrol_cards(path, [tmp_path / f"{name}.card.toml" for name in "zab"]) == full == Study.read(path)
    with pytest.raises(InputError):
        full.with_members([write_member_card(tmp_path, "a")[1]])
    with pytest.raises(InputError):
        full.with_members(analyst=write_member_card(tmp_path, "y", "analyst")[1])


def test_a_designer_is_told_who_is_enrolled_and_to_send_the_study_once_it_is_complete(tmp_path: Path) -> None:
    workspace = Workspace.at(tmp_path, StepPages())
    AGREED.write(workspace.study_file)
    cards = [write_member_card(tmp_path, name)[0] for name in ("a", "b")]
    cards.append(write_member_card(tmp_path, "z", "analyst")[0])
    for n, n_missing, is_complete in ((0, 2, False), (2, 1, False), (3, 0, True)):
        outcome = enrol(workspace, cards=cards[:n])
        assert (outcome.result, outcome.record["complete"]) == (workspace.study, is_complete)
        assert (outcome.record["participants"], outcome.record["analyst"]) == (["a", "b"][:n], "z" if n == 3 else None)
        assert outcome.lines[0].count("nobody yet") == n_missing
        assert (len(outcome.hand_off), workspace.study.fingerprint in outcome.lines[1]) == (is_complete, is_complete)
        assert all(name in outcome.lines[0] for name in ["a, b"] * (n > 0) + ["z"] * (n == 3))


def columns_of(n: int) -> DeclaredColumns:
    return DeclaredColumns(ranges={f"c{k}": (-k, k + 0.5) for k in range(n)})


@pytest.mark.parametrize(
    ("name", "n", "known", "settings"),
    [
        ("open", 3, DeclaredColumns(), DraftSettings()),
        (
            "open words",
            1,
            DeclaredColumns(categories={"c0": ()}),
            DraftSettings(mechanism=rotation(projection="gaussian")),
        ),
        ("ranges", 3, columns_of(3), DraftSettings(mechanism=rotation(method="aa-i-gdp-both-noise"))),
        ("all ranges", 3, DeclaredColumns(all_ranges=(0, 1), categories={"c1": ("a", "b")}), DraftSettings()),
        (
            "30 columns",
            30,
            DeclaredColumns(all_ranges=(0, 1)),
            DraftSettings(mechanism=rotation(n_anchor_rows=200)),
        ),
        (
            "31 columns",
            31,
            DeclaredColumns(all_ranges=(0, 1)),
            DraftSettings(mechanism=rotation(method="aa-i-gdp-anchor-noise"), smallest_class=1),
        ),
        ("indicated", 16, DeclaredColumns(all_ranges=(0, 1)), DraftSettings(missing="indicate", missing_words=("-9",))),
        ("components", 4, columns_of(4), DraftSettings(mechanism=rotation(n_components=4))),
        (
            "fewer components",
            4,
            columns_of(4),
            DraftSettings(mechanism=rotation(n_components=3), image_shape=(2, 2)),
        ),
        (
            "public",
            31,
            DeclaredColumns(all_ranges=(0, 1)),
            DraftSettings(mechanism=rotation(projection="public-svd")),
        ),
        (
            "none",
            31,
            DeclaredColumns(all_ranges=(0, 1)),
            DraftSettings(mechanism=rotation(projection="none", method="aa-i-gdp")),
        ),
    ],
)
def test_a_draft_is_as_on_record(
    name: str, n: int, known: DeclaredColumns, settings: DraftSettings, tmp_path: Path
) -> None:
    (tmp_path / "table.csv").write_text(",".join([*(f"c{k}" for k in range(n)), "y"]) + "\n")
    known = replace(known, classes=("well", "ill")) if n < 30 else replace(known, label_range=(0, 9))
    text = draft_study(tmp_path / "table.csv", label="y", known=known, settings=replace(settings, nonce="0" * 32))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    check_record(Path(__file__).parent / "record.json", name, [lines, count_open_entries(text)])


def test_measurements_with_a_comma_a_unit_or_a_limit_are_numbers_and_bad_lines_stop_nothing(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = [f"P{k:03};{10 + k},3;<{k};{k} mg;2020-01-{1 + k % 28:02};{k % 24:02}:{k:02};{k % 2}" for k in range(60)]
    names = "patient;hb;crp;dose;seen;at;member"
    expected = ["id", "number", "number", "number", "date", "text", "number"]
    for ragged in (rows, [*rows[:9], rows[9] + ";5", *rows[10:]]):
        table.write_text("\n".join([names, *ragged]))
        assert infer_kinds(table) == dict(zip(names.split(";"), expected, strict=True))
    wide = [f"{k},{'x' * 3000}{k}" + ",5" * (k == 900) for k in range(1000)]  # the bad line is beyond the first block
    table.write_text("\n".join(["a,b", *wide]))
    assert infer_kinds(table) == {"a": "number", "b": "id"}
    table.write_bytes("a,b\n1,grün\n2,rot\n".encode("latin-1"))
    assert infer_kinds(table) == {"a": "number"}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([f"k{k // 2}" for k in range(1001)], "category"),  # of the first 1,000 rows half are different: not more
        ([*(f"k{k // 2}" for k in range(998)), "y1", "y2"], "id"),
        ([*(f"k{k % 13}" for k in range(24)), *[""] * 40], "id"),  # empty cells do not count
        ([f"k{k}" for k in range(10)], "category"),
        ([f"k{k}" for k in range(11)], "id"),
        (["2020-01-01", "2020-01-02", "a", "b"], "category"),  # half are dates: not most
        (["2020-01-01", "2020-01-02", "2020-01-03", "a", "b"], "date"),
        ([""] * 5, ""),
    ],
)
def test_what_a_column_holds_is_told_by_most_of_its_first_thousand_rows(
    values: list[str], kind: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("x,n\n" + "".join(f"{value},1\n" for value in values))
    assert infer_kinds(tmp_path / "t.csv") == {"x": kind, "n": "number"}


def test_a_draft_of_sums_for_a_model_needs_a_label_even_with_open_entries(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,ill\n")
    for questions in (["model"], ["tables", "model"]):
        settings = DraftSettings({"name": "secure-sum", "questions": questions})
        with pytest.raises(InputError) as caught:
            draft_study(tmp_path / "t.csv", settings=settings)
        assert caught.value.what == "label"
        assert count_open_entries(draft_study(tmp_path / "t.csv", label="ill", settings=settings))


def test_what_is_known_of_columns_is_drafted_and_what_a_name_tells(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("patient_id,dob,seen_date,notes,age,left,sex,site,ill\n")
    known = DeclaredColumns(
        ranges={"age": (0, 120)},
        ids=("site",),
        dates={"left": ("2020-01-01", "2020-12-31")},
        births={"dob": "2021-01-01"},
        missing_words={"age": ("-9",)},
    )
    text = draft_study(tmp_path / "t.csv", label="ill", known=known, ignore=("sex",))
    plain = parse_study(text)
    assert plain["rows"]["ids"] == ["patient_id", "site"]
    assert {column["name"]: column for column in plain["columns"]} == {
        "dob": {
            "name": "dob",
            "kind": "age",
            "range": [0, 120],
            "at": "2021-01-01",
            "missing": "refuse",
            "outside": "refuse",
        },
        "seen_date": {"name": "seen_date", "kind": "date", "range": [], "missing": "refuse", "outside": "refuse"},
        "age": {
            "name": "age",
            "kind": "number",
            "range": [0, 120],
            "missing_words": ["-9"],
            "missing": "refuse",
            "outside": "refuse",
        },
        "left": {
            "name": "left",
            "kind": "date",
            "range": ["2020-01-01", "2020-12-31"],
            "missing": "refuse",
            "outside": "refuse",
        },
    }
    assert count_open_entries(text) == 2  # the days of 'seen_date', and the classes
    without = draft_study(tmp_path / "t.csv", known=replace(known, births={}), ignore=("sex", "ill"))
    assert parse_study(without)["label"] == {"kind": "none"}
    assert count_open_entries(without) == 2  # the public day of a date of birth
    with raising(InputError, "data file", problem="No column"):
        draft_study(tmp_path / "t.csv", known=known, ignore=("dob", "seen_date", "age", "left", "sex", "ill"))
    for wrong in ({"known": replace(known, missing_words={"bmi": ("x",)})}, {"ignore": ("bmi",)}, {"label": "bmi"}):
        with raising(InputError, "column 'bmi'"):
            draft_study(tmp_path / "t.csv", **wrong)


@pytest.mark.parametrize(
    ("stored", "label", "column"),
    [
        (
            pa.bool_(),
            {"kind": "classes", "classes": ["false", "true"]},
            {"kind": "category", "categories": ["false", "true"]},
        ),
        (pa.float64(), {"kind": "number", "range": []}, {"kind": "number", "range": []}),
        (pa.int64(), {"kind": "classes", "classes": []}, {"kind": "integer", "range": []}),
        (pa.string(), {"kind": "classes", "classes": []}, {"kind": "category", "categories": []}),
        (pa.null(), {"kind": "classes", "classes": []}, {"kind": "category", "categories": []}),
    ],
    ids=str,
)
def test_a_column_and_a_label_are_drafted_by_their_type(
    stored: pa.DataType, label: dict[str, Any], column: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"x": pa.array([], stored), "y": pa.array([], stored)}), path)
    plain = parse_study(draft_study(path, label="y"))
    assert plain["label"] == {"column": "y", **label}
    assert column.items() <= plain["columns"][0].items()
    if stored == pa.float64():
        of_classes = draft_study(path, label="y", known=DeclaredColumns(classes=("0", "1")))
        assert parse_study(of_classes)["label"]["classes"] == ["0", "1"]
    if stored == pa.bool_():
        named = DeclaredColumns(categories={"x": ("no", "yes")}, classes=("no", "yes"))
        plain = parse_study(draft_study(path, label="y", known=named))
        assert (plain["label"]["classes"], plain["columns"][0]["categories"]) == (["no", "yes"], ["no", "yes"])


def test_times_of_day_are_not_drafted_and_a_range_makes_words_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"at": pa.array([], pa.time32("s")), "x": pa.array([], pa.string())}), path)
    with raising(InputError, "column 'at'", got="time"):
        draft_study(path)
    ranged = parse_study(draft_study(path, ignore=("at",), known=DeclaredColumns(ranges={"x": (0, 9)})))
    assert ranged["columns"][0]["kind"] == "number"
