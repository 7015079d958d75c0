"""`mooring audit` and `mooring plan`, as a user would run them."""

import json
import re
import tomllib
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from mooring import AuditResult, Plan
from tests.commands import flat, run
from tests.permissions import has_mode

Result = Any  # of typer.testing, which keeps its type to itself
AUDIT = ["--method", "aa-i-gdp-anchor-noise", "--anchor-noise", "0.1", "--learner", "linear", "--components", "3"]
SUMS = ["--epsilon", "none", "--epsilon", "4"]
PLAN = ["--learner", "linear", "--components", "3", "--limit", "error at least 0.2"]
SHORT_PLAN = [*PLAN[:-1], "error at least 0.001"]  # which the least noise keeps to
CANARY = 8642.1357  # planted in rows; standardised, it stays far outside of anything else


def columns(n: int = 120) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    ill = rng.integers(0, 2, n)
    rows = rng.standard_normal((n, 3)) * [3.0, 1.5, 1.0] + 2.0 * ill[:, None]
    return {"age": rows[:, 0], "weight": rows[:, 1], "height": rows[:, 2], "sex": rng.integers(0, 2, n), "ill": ill}


def write_csv(path: Path, table: dict[str, np.ndarray]) -> Path:
    lines = [",".join(table)] + [",".join(str(value) for value in row) for row in zip(*table.values(), strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("data") / "patients.csv", columns())


@pytest.fixture(scope="module")
def audited(csv: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    folder = tmp_path_factory.mktemp("audit") / "new" / "report"
    return run("audit", csv, "--label", "ill", *AUDIT, *SUMS, "--output", folder), folder


@pytest.fixture(scope="module")
def planned(csv: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    folder = tmp_path_factory.mktemp("plan")
    words = ["plan", csv, "--label", "ill", "--participants", 3, *PLAN, "--output", folder]
    return run(*words), folder


def test_files_of_audits_and_plans_are_their_owners_alone(
    audited: tuple[Result, Path], planned: tuple[Result, Path]
) -> None:
    for _, folder in (audited, planned):
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert len(files) > 2
        assert all(has_mode(path, 0o600) for path in files)


def test_an_audit_prints_the_worst_first_and_names_the_page_to_open(audited: tuple[Result, Path]) -> None:
    printed = flat(audited[0].stdout)
    result = AuditResult.from_json((audited[1] / "audit.json").read_bytes())
    assert result.headline in printed
    assert result.joining in printed
    for words in ("lower bound", "local only", "pooled raw", "Open", "report.html", "no guarantee", "Sums, ε = 4"):
        assert words in printed
    assert [total.point.promise for total in result.totals] == [None, (4.0, 1e-5)]
    assert result.description.n_participants == 5
    assert result.description.n_features == 4


def test_a_plan_prints_its_verdict_and_names_the_page_to_open(planned: tuple[Result, Path]) -> None:
    printed = flat(planned[0].stdout)
    plan = Plan.from_json((planned[1] / "plan.json").read_bytes())
    assert plan.verdict in printed
    for words in ("Frontier", "local only", "pooled raw", "Open", "report.html"):
        assert words in printed
    assert str(plan.limit) == "error at least 0.2"
    promised = [total.point.promise for total in plan.tried.totals]
    assert promised == [None, (8.0, 1e-5), (2.0, 1e-5), (1.0, 1e-5)]


def attacks_named(plain: dict[str, Any]) -> set[str]:
    """The strongest attack of every point by error."""
    points = plain.get("search", plain)["points"]
    return {
        min(
            (o["figures"]["centred_error"]["value"], o["attack"])
            for o in point["outcomes"]
            if "centred_error" in o["figures"]
        )[1]
        for point in points
        if point["point"]["mechanism"] == "rotation"
    }


def test_a_limit_of_epsilon_is_planned_drafted_and_audited(csv: Path, tmp_path: Path) -> None:
    limit = ["--limit", "epsilon at most 3", "--participants", 4, "--components", 2]
    printed = flat(run("plan", csv, "--label", "ill", *limit, "--learner", "linear", "--output", tmp_path).stdout)
    (tmp_path / "report.html").read_text(encoding="utf-8")
    plain = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert plain["recommended"]["point"]["epsilon"] == 3
    draft, columns = tmp_path / "sums.toml", ["--label", "ill", "--classes", "0,1", "--all-ranges=-30:30"]
    run("study", "init", csv, "--from-plan", tmp_path / "plan.json", *columns, "--output", draft)
    drafted = tomllib.loads(draft.read_text(encoding="utf-8"))["mechanism"]
    recommended = {name: value for name, value in plain["mechanism"].items() if value is not None}
    assert {name: drafted[name] for name in recommended} == recommended
    words = ["audit", csv, "--study", draft, "--participants", 4, "--epsilon", "none", "--output", tmp_path / "out"]
    printed = flat(run(*words).stdout)
    for phrase in ("ε = 3", "odds by 20.1", "no guarantee"):
        assert phrase in printed
    audited = AuditResult.from_json((tmp_path / "out" / "audit.json").read_bytes())
    assert [total.point.promise for total in audited.totals] == [(3.0, 1e-5), None]
    assert audited.headline_point is audited.totals[0]
    assert audited.row_points
    (tmp_path / "plan.json").write_text(json.dumps(plain | {"method": {"name": "secure-sum", "epsilon": "much"}}))
    again = ["study", "init", csv, "--from-plan", tmp_path / "plan.json", *columns, "--output", tmp_path / "x.toml"]
    refused(*again, what="the plan")


@pytest.mark.parametrize("which", ["audit", "plan"])
def test_the_page_is_self_contained_and_says_what_it_must(which: str, request: pytest.FixtureRequest) -> None:
    _, folder = request.getfixturevalue({"audit": "audited", "plan": "planned"}[which])
    page = (folder / "report.html").read_text(encoding="utf-8")
    plain = json.loads((folder / f"{which}.json").read_text(encoding="utf-8"))
    assert len(page.encode()) < 2**20
    page = page.replace('<link rel="icon" href="data:,">', "")  # so that no browser asks for one
    for pattern in (r"<script", r"<link\b", r"<img[^>]+src=.?http", r"<iframe", r"@import", r"url\(.?http"):
        assert not re.search(pattern, page), pattern
    body = page.split("</head><body>")[1]
    assert "http" not in body
    for words in ("lower bound", "local only", "pooled raw", "no privacy guarantee", *attacks_named(plain)):
        assert words in body
    assert body.count("<figure") >= 2
    if which == "plan":
        assert plain["verdict"] in unescape(body)


def test_json_is_all_that_goes_to_standard_output(csv: Path, audited: tuple[Result, Path], tmp_path: Path) -> None:
    result = run("audit", csv, "--label", "ill", *AUDIT, *SUMS, "--output", tmp_path, "--format", "json")
    plain = json.loads(result.stdout)
    assert AuditResult.from_json(result.stdout).trustworthy
    assert result.stdout == (tmp_path / "audit.json").read_text(encoding="utf-8") + "\n"
    assert plain == json.loads((audited[1] / "audit.json").read_text(encoding="utf-8"))  # the same whenever it is run


def test_a_second_run_goes_on_from_the_folder(
    csv: Path, planned: tuple[Result, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr("mooring.audit.rotation.point.simulate", fail)
    before = (planned[1] / "plan.json").read_text(encoding="utf-8")
    words = ["plan", csv, "--label", "ill", "--participants", 3, *PLAN, "--output", planned[1], "--format", "json"]
    assert json.loads(run(*words).stdout) == json.loads(before)


def test_a_parquet_file_gives_what_the_same_table_as_text_gives(audited: tuple[Result, Path], tmp_path: Path) -> None:
    path = tmp_path / "patients.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns()), path)
    result = run("audit", path, "--label", "ill", *AUDIT, "--output", tmp_path / "out", "--format", "json")
    text = AuditResult.from_json((audited[1] / "audit.json").read_bytes())
    assert AuditResult.from_json(result.stdout).headline == text.headline


def test_a_folder_of_images(tmp_path: Path) -> None:
    pytest.importorskip("skimage")
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name in ("crosses", "noughts"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for k in range(40):
            pixels = rng.integers(0, 120, (6, 6)) + 100 * (np.eye(6, dtype=int) if name == "crosses" else 0)
            image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "images" / name / f"{k}.png")
    out = tmp_path / "out"
    words = ["audit", tmp_path / "images", "--participants", 2, *AUDIT, "--output", out, "--format", "json"]
    plain = json.loads(run(*words).stdout)
    assert plain["description"]["n_features"] == 36
    strongest = [o for o in plain["points"][0]["outcomes"] if "ssim" in o["figures"]]
    assert len(strongest) == 1
    assert "psnr" in strongest[0]["figures"]
    assert plain["points"][0]["examples"]["image_shape"] == [6, 6]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "projection only" in page
    assert "PSNR" in page


def test_an_attribute_a_natural_split_and_extra_knowledge(tmp_path: Path) -> None:
    table = columns()
    table["hospital"] = np.array(["north", "south", "west"])[np.arange(120) % 3]
    path = write_csv(tmp_path / "patients.csv", table)
    words = ["audit", path, "--label", "ill", "--split-by", "hospital", "--attribute", "sex", "--ignore", "height"]
    words += ["--known-rows", 3, "--repeated-uploads", 1, "--method", "aa-i-gdp-anchor-noise", "--anchor-noise", 0.1]
    words += ["--learner", "linear", "--output", tmp_path / "out", "--format", "json"]
    plain = json.loads(run(*words).stdout)
    assert plain["description"]["n_participants"] == 3
    assert plain["description"]["n_features"] == 2
    outcomes = {o["attack"]: o for o in plain["points"][0]["outcomes"]}
    assert "attribute" in outcomes["known-rows"]["figures"]
    assert outcomes["repeated-upload"]["figures"]


def test_without_examples_no_original_value_is_written(tmp_path: Path) -> None:
    """Every row has a value that no other has; with examples this value is in the files, without them it is not."""
    pytest.importorskip("skimage")
    images = np.clip(np.random.default_rng(0).random((60, 3, 3)), 0, 1)
    images[:, 0, 0] = 0.137
    np.savez(tmp_path / "a.npz", images=images, labels=np.arange(60) % 2)
    canary, texts = re.compile(r"\b0\.137\b"), {}
    for command, options, choice in (
        ("audit", AUDIT, "--examples"),
        ("audit", AUDIT, "--no-examples"),
        ("plan", SHORT_PLAN, "--no-examples"),
    ):
        out = tmp_path / f"{command}{choice}"
        run(command, tmp_path / "a.npz", "--participants", 2, *options, choice, "--output", out)
        texts[command, choice] = [path.read_text(encoding="utf-8") for path in sorted(out.rglob("*")) if path.is_file()]
        assert len(texts[command, choice]) >= 3
    planned = json.loads((tmp_path / "plan--no-examples" / "plan.json").read_text(encoding="utf-8"))
    assert planned["audit"]["description"]["n_features"] == 9
    assert sum(bool(canary.search(text)) for text in texts.pop(("audit", "--examples"))) >= 2
    for text in (text for texts_of_part in texts.values() for text in texts_of_part):
        body = text.split("</head><body>")[-1]
        assert not canary.search(body)
        for words in ('"original"', "original<", "projection only", "guessed without the upload"):
            assert words not in body


def test_a_table_shows_rows_side_by_side_and_utility_unless_told_not_to(
    csv: Path, audited: tuple[Result, Path], tmp_path: Path
) -> None:
    run("audit", csv, *AUDIT, "--no-examples", "--output", tmp_path)  # without a label
    shown, hidden = (
        (folder / "report.html").read_text(encoding="utf-8").split("</head><body>")[1]
        for folder in (audited[1], tmp_path)
    )
    assert re.search(r"<li>\s*<?b?>?age -?[0-9]", shown)
    assert (", rebuilt " in shown, ", rebuilt " in hidden) == (True, False)
    assert ("What joining buys" in shown, "What joining buys" in hidden) == (True, False)


def refused(*words: Any, what: str, code: int = 2) -> Result:
    """Run a command that is refused in one clear sentence."""
    result = run(*words, code=code, what=what)
    assert not result.stdout.strip()
    assert len(flat(result.stderr)) < 700
    return result


@pytest.mark.parametrize("command", ["audit", "plan"])
@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["{csv}", "--label", "sick"], "label must be the name of a column"),
        (["{csv}", "--label", "ill", "--learner", "oracle"], "learner"),
        (["{csv}", "--label", "ill", "--colluders", "5"], "targets"),
        (["{csv}", "--label", "ill", "--components", "40"], "n_components"),
        (["{csv}", "--label", "ill", "--participants", "100"], ""),
        (["{csv}", "--label", "ill", "--attribute", "shoe"], "attribute"),
        (["{csv}", "--label", "ill", "--ignore", "shoe"], "ignore"),
    ],
)
def test_bad_input_is_one_clear_sentence(command: str, words: list[str], what: str, csv: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused(command, *(word.replace("{csv}", str(csv)) for word in words), "--output", out, what=what)
    assert not (out / "report.html").exists()


def test_bad_methods_limits_files_and_folders_are_one_clear_sentence(csv: Path, tmp_path: Path) -> None:
    for command in ("audit", "plan"):
        run(
            command, "missing.csv", "--label", "ill", "--output", tmp_path, code=5
        )  # as 'check' of a missing table ends
        for option, value in (("--projection", "magic"), ("--format", "xml")):
            assert f"'{option}'" in run(command, csv, option, value, "--output", tmp_path, code=2).stderr
        words = (command, csv, "--label", "ill", "--auditor", "digits", "--output", tmp_path)
        assert "--auditor" in run(*words, code=2).stderr  # these are no images
    refused("audit", csv, "--label", "ill", "--method", "dp-sgd", "--output", tmp_path, what="method")
    refused("audit", csv, "--label", "ill", *AUDIT, "--epsilon", "much", "--output", tmp_path, what="--epsilon")
    refused("plan", csv, "--label", "ill", "--limit", "be nice", "--output", tmp_path, what="limit")
    refused(
        "audit", csv, "--label", "ill", "--anchor-noise", -1, *AUDIT, "--output", tmp_path, what="anchor_noise_scale"
    )
    (tmp_path / "taken").write_text("a file")
    refused("audit", csv, "--label", "ill", *AUDIT, "--output", tmp_path / "taken", what="folder")
    assert (tmp_path / "taken").read_text() == "a file"
    refused("audit", csv, "--study", tmp_path / "none.toml", "--output", tmp_path / "out", what="the study", code=5)


def test_errors_quote_no_value_of_a_record(tmp_path: Path) -> None:
    table = columns()
    table["age"][:] = CANARY
    path = write_csv(tmp_path / "patients.csv", {"age": table["age"], "ill": table["ill"]})
    assert "8642" not in refused("audit", path, "--label", "ill", "--output", tmp_path / "out", what="").output


def test_columns_whose_names_look_like_markup(tmp_path: Path) -> None:
    ones = np.ones(120, dtype=int)
    table = {"[/red]": ones, "[bold]": ones, "<img src=x>": columns()["age"], **columns()}
    path = write_csv(tmp_path / "patients.csv", table)
    printed = run("audit", path, "--label", "ill", *AUDIT, "--output", tmp_path / "out").stdout
    assert "[/red]" in printed
    assert "[bold]" in printed
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "&lt;img src=x&gt;" in page
    assert "<img src=x>" not in page


STUDY = """format = 3
name = "patients"
nonce = "00000000000000000000000000000001"
[mechanism]
name = "rotation"
method = "aa-i-gdp-both-noise"
n_components = {components}
n_anchor_rows = 11
data_noise_scale = 0.25
anchor_noise_scale = 0.1
projection = "{projection}"
[label]
column = "ill"
kind = "classes"
classes = ["0", "1"]
[[columns]]
names = ["age", "weight", "height"]
kind = "number"
range = [-20, 20]
[[columns]]
name = "sex"
kind = "category"
categories = ["0", "1"]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY.format(components=5, projection="none"))
    return path


def test_an_audit_of_a_study_is_at_its_own_point_and_by_its_limits(csv: Path, study: Path, tmp_path: Path) -> None:
    with study.open("a") as file:
        file.write('[limits]\nuploads = ["mean error at least 0.99"]\n')
    words = ["audit", "--study", study, csv, "--learner", "linear", "--output", tmp_path / "out", "--format", "json"]
    plain = json.loads(run(*words).stdout)
    (result,) = plain["points"]
    assert result["data_noise_scale"] == pytest.approx(0.25, abs=1e-9)
    point = result["point"]
    assert (point["method"], point["n_components"], point["n_anchor_rows"]) == ("aa-i-gdp-both-noise", 5, 11)
    assert point["anchor_noise_scale"] == 0.1
    assert plain["description"]["n_features"] == 5
    assert result["examples"]["feature_names"] == ["age", "weight", "height", "sex=0", "sex=1"]
    original = np.asarray(result["examples"]["rows"]["original"])
    assert np.abs(original).max() <= 1  # by the declared range, not by the table's own statistics
    assert set(original[:, 4]) <= {0.0, 1.0}
    assert result["deployed"] is not None
    reason, default = plain["decision"]["reasons"]
    assert (plain["decision"]["answer"], reason["limit"], default["limit"]) == ("do not share", 0.99, 0.5)
    page = unescape((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    assert plain["decision"]["sentences"][0] in page


def test_other_methods_stand_beside_the_study_s_own(csv: Path, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY.format(components=3, projection="gaussian"))
    words = ["audit", csv, "--study", path, "--method", "aa-i-gdp", "--method", "aa-i-gdp-data-noise"]
    words += ["--learner", "linear", "--participants", 3, "--output", tmp_path / "out", "--format", "json"]
    plain = json.loads(run(*words).stdout)
    assert [entry["point"]["method"] for entry in plain["points"]] == [
        "aa-i-gdp-both-noise",
        "aa-i-gdp",
        "aa-i-gdp-data-noise",
    ]
    assert [entry["data_noise_scale"] for entry in plain["points"]] == pytest.approx([0.25, 0.0, 0.25], abs=1e-9)
    assert plain["description"]["projection"] == "gaussian"
    assert plain["description"]["n_participants"] == 3


def test_a_plan_for_a_study_ends_in_lines_to_paste(study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    table = columns()
    del table["ill"]  # without utility to weigh, the plan recommends the least noise that keeps to the limit
    path = write_csv(tmp_path / "p.csv", table)
    printed = run(
        "plan", "--study", study, path, "--limit", "mean error at least 0.2", "--participants", 2, "--output", out
    ).stdout
    plain = json.loads((out / "plan.json").read_text(encoding="utf-8"))
    assert {entry["point"]["n_components"] for entry in plain["audit"]["points"]} == {5}
    assert {entry["point"]["n_anchor_rows"] for entry in plain["audit"]["points"]} == {11}
    best = plain["recommended"]
    assert best["data_noise_scale"] > 0
    assert best["data_noise_scale"] != pytest.approx(best["point"]["data_noise_level"])
    lines = printed[printed.index("[mechanism]") :].splitlines()  # σ itself, not in units of the rows
    pasted = tomllib.loads("\n".join(lines[:7]))["mechanism"]
    recommended = {name: value for name, value in plain["mechanism"].items() if value is not None}
    assert list(pasted) == list(recommended)
    point = best["point"]
    assert (pasted["method"], pasted["n_anchor_rows"], pasted["projection"]) == (point["method"], 11, "none")
    assert pasted["data_noise_scale"] == pytest.approx(best["data_noise_scale"], rel=1e-5)
    assert pasted["anchor_noise_scale"] == point["anchor_noise_scale"]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"data_noise_scale = {best['data_noise_scale']:.6g}" in page

    draft = tmp_path / "drafted.toml"
    words = ["study", "init", path, "--from-plan", out / "plan.json", "--all-ranges", "0:1", "--output", draft]
    run(*words)
    drafted = tomllib.loads(draft.read_text(encoding="utf-8"))["mechanism"]
    assert drafted == recommended
    refused(*words, "--force", "--data-noise", "0.3", what="--from-plan")
    for changed in ({"data_noise_scale": None}, {"n_anchor_rows": "many"}, {"name": "secure-sum"}):
        (out / "other.json").write_text(
            json.dumps(plain | {"mechanism": plain["mechanism"] | changed}), encoding="utf-8"
        )
        refused(*words[:4], out / "other.json", *words[5:], "--force", what="the plan")


@pytest.mark.parametrize("command", ["audit", "plan"])
@pytest.mark.parametrize(
    "words", [["--label", "ill"], ["--split-by", "sex"], ["--components", "3"], ["--projection", "none"]]
)
def test_what_a_study_settles_cannot_be_asked_for(
    command: str, words: list[str], csv: Path, study: Path, tmp_path: Path
) -> None:
    refused(command, csv, "--study", study, *words, "--output", tmp_path / "out", what=words[0])


def test_a_table_that_does_not_fit_the_study_is_refused(study: Path, tmp_path: Path) -> None:
    table = columns()
    table["age"][3] = CANARY
    words = ("--study", study, "--learner", "linear", "--output", tmp_path / "out")
    result = refused("audit", write_csv(tmp_path / "p.csv", table), *words, what="")
    assert "age" in result.stderr
    assert "8642" not in result.output
    extra = write_csv(tmp_path / "q.csv", columns() | {"shoe": np.ones(120, dtype=int)})
    assert "shoe" in refused("audit", extra, *words, what="").stderr
    run("audit", extra, *words, "--ignore", "shoe")
