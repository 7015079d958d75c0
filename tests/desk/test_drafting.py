"""A study is drafted on the desk as by `mooring study init`; mistakes stand at their fields, and nothing typed is lost."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from mooring.protocol.messages.study import Study
from tests import commands
from tests.desk.serving import Answer, Running, serving

HEADER = "age,pressure,smoker,seen,born,patient_id,note,ill\n"
INIT = "study init columns.csv --name ward --label ill --classes no,yes --range age=0:120 --range pressure=50:250"
INIT += (
    " --category smoker=no,yes --date seen=2000-01-01:2026-12-31 --birth born=2026-01-01 --id patient_id --ignore note"
)
COLUMNS: dict[str, dict[str, str]] = {
    "age": {"kind": "number", "low": "0", "high": "120"},
    "pressure": {"kind": "number", "low": "50", "high": "250"},
    "smoker": {"kind": "category", "words": "no, yes"},
    "seen": {"kind": "date", "low": "2000-01-01", "high": "2026-12-31"},
    "born": {"kind": "birth", "low": "2026-01-01"},
    "patient_id": {"kind": "id"},
    "note": {"kind": "leave"},
    "ill": {"kind": "classes", "words": "no,yes"},
}
MECHANISMS: dict[str, tuple[dict[str, str], str]] = {
    "rotation": ({"anchor_noise_scale": "0.2"}, "--anchor-noise 0.2"),
    "secure-sum": (
        {"epsilon": "0.5", "expected_rows": "6000", "questions": "model, tables"},
        "--mechanism secure-sum --epsilon 0.5 --expected-rows 6000 --question model --question tables",
    ),
}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "columns.csv").write_text(HEADER)
    with serving(tmp_path) as running:
        yield running


def send(desk: Running, mechanism: str, do: str, source: str = "columns.csv", **changed: str) -> Answer:
    entries = {"form_token": desk.application.session.form_token, "source": source, "mechanism": mechanism, "do": do}
    entries |= {"name": "ward", "missing": "refuse"} | MECHANISMS[mechanism][0]
    for k, (name, column) in enumerate(COLUMNS.items()):
        entries |= {f"name-{k}": name} | {f"{part}-{k}": text for part, text in column.items()}
    return desk.ask("POST", "/draft", urlencode(entries | changed).encode())


def faults(answer: Answer) -> set[str]:
    """The fields that a page says are wrong, each of which has a described fault."""
    shown = set(re.findall(r'<p class="fault" id="fault-([\w-]+)">', answer.text))
    assert shown == set(re.findall(r'aria-invalid="true" aria-describedby="fault-([\w-]+)"', answer.text))
    return shown


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_desk_drafts_the_study_that_the_command_drafts(mechanism: str, desk: Running, tmp_path: Path) -> None:
    shown = send(desk, mechanism, "look")
    assert shown.status == 200
    assert 'id="outlook"' in shown.text
    assert ("Forecast for 6,000 rows" in shown.text) == (mechanism == "secure-sum")
    assert not (tmp_path / "study.toml").exists()
    assert send(desk, mechanism, "write").status == 303
    assert "Wrote study.toml" in desk.ask("GET", "/").text
    (tmp_path / "typed").mkdir()
    (tmp_path / "typed" / "columns.csv").write_text(HEADER)
    commands.run(*shlex.split(f"{INIT} {MECHANISMS[mechanism][1]}"), place=tmp_path / "typed")
    drafts = [(folder / "study.toml").read_text() for folder in (tmp_path, tmp_path / "typed")]
    assert len({re.sub(r'nonce = "\w+"', "", draft) for draft in drafts}) == 1
    again = send(desk, mechanism, "write")
    assert again.status == 200  # it asks before it replaces a study
    assert send(desk, mechanism, "write", replace="yes").status == 303


WRONG: dict[str, tuple[str, dict[str, str], set[str]]] = {
    "no range": ("secure-sum", {"low-0": ""}, {"0"}),
    "a range of words": ("secure-sum", {"high-0": "old"}, {"0"}),
    "a range that ends below its start": ("secure-sum", {"low-0": "200"}, {"0"}),
    "one category": ("secure-sum", {"words-2": "no"}, {"2"}),
    "a day that is none": ("secure-sum", {"low-3": "31.1.2000"}, {"3"}),
    "two labels": ("secure-sum", {"kind-0": "outcome"}, {"7"}),
    "a kind of another form": ("rotation", {"kind-0": "person"}, {"0"}),
    "an epsilon below 0": ("secure-sum", {"epsilon": "-1"}, {"epsilon"}),
    "an epsilon of words": ("secure-sum", {"epsilon": "low"}, {"epsilon"}),
    "a name with a space": ("secure-sum", {"name": "My ward"}, {"name"}),
    "several": ("secure-sum", {"low-0": "", "epsilon": "x", "words-2": ""}, {"0", "2", "epsilon"}),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_stands_at_its_field_and_what_was_typed_stays(case: str, desk: Running, tmp_path: Path) -> None:
    mechanism, changed, fields = WRONG[case]
    answer = send(desk, mechanism, "write", **changed)
    assert answer.status == 200
    assert faults(answer) == fields
    typed = {
        f"{part}-{k}": text for k, column in enumerate(COLUMNS.values()) for part, text in column.items()
    } | changed
    for name, text in typed.items():
        if not name.startswith("kind"):
            assert f'name="{name}" value="{text}"' in answer.text
    assert not (tmp_path / "study.toml").exists()


def test_a_header_of_a_site_fills_the_form_and_its_ranges_stay_marked(desk: Running, tmp_path: Path) -> None:
    header = 'header = 1\nsite = "north"\nids = ["patient_id"]\nundescribed = ["note"]\n'
    header += '[[columns]]\nname = "age"\nkind = "number"\nrange = [10, 90]\n'
    header += '[[columns]]\nname = "ill"\nkind = "category"\ncategories = ["no", "yes"]\n'
    desk.upload({"north.header.toml": header.encode()})
    page = desk.ask("GET", "/draft?source=north.header.toml&mechanism=secure-sum").text
    assert 'name="low-0" value="10"' in page
    assert 'name="words-1" value="no, yes"' in page
    form = {"form_token": desk.application.session.form_token, "source": "north.header.toml", "mechanism": "secure-sum"}
    form |= {
        "name": "ward",
        "missing": "refuse",
        "do": "write",
        "name-0": "age",
        "name-1": "ill",
        "name-2": "patient_id",
    }
    form |= {
        "name-3": "note",
        "kind-0": "number",
        "low-0": "10",
        "high-0": "90",
        "kind-1": "classes",
        "words-1": "no, yes",
    }
    form |= {"kind-2": "id", "kind-3": "leave"}
    assert desk.ask("POST", "/draft", urlencode(form).encode()).status == 303
    assert Study.read(tmp_path / "study.toml").range_source.from_rows == ("age",)
    form |= {"low-0": "0", "replace": "yes"}
    assert desk.ask("POST", "/draft", urlencode(form).encode()).status == 303
    assert Study.read(tmp_path / "study.toml").range_source.from_rows == ()


@pytest.mark.parametrize("source", ["../columns.csv", "study.toml", "/etc/passwd", "none.csv", "vault/key"])
def test_a_draft_is_made_from_a_table_of_the_folder_alone(source: str, desk: Running, tmp_path: Path) -> None:
    (tmp_path.parent / "columns.csv").write_text(HEADER)
    shown = desk.ask("GET", f"/draft?source={quote(source)}&mechanism=rotation").text
    assert 'role="alert"' in shown
    assert "fieldset>" not in shown
    assert 'role="alert"' in send(desk, "rotation", "write", source=source).text
    assert 'role="alert"' in send(desk, "rotation", "write", form_token="x").text
    assert 'role="alert"' in send(desk, "rotation", "write", **{"name-0": "weight"}).text
    assert not (tmp_path / "study.toml").exists()
