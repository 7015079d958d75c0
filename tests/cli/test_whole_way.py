"""Four folders and an analyst's go through a study with the commands of docs/protocol.md, which is what is tested here."""

import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from mooring.cli import execution
from mooring.cli.app import COMMANDS
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.anchor import open_anchor
from mooring.protocol.step import AFTERWARDS
from mooring.protocol.steps import list_commands
from mooring.protocol.storage.vault import Vault
from mooring.tables.encoder import read_encoded
from tests import commands

WHOLE_PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
PAGE, _BY_SUMS = WHOLE_PAGE.split("## The way through by secure sums")
_DRAFT, _REST = _BY_SUMS.split("**3. Check", 1)
_JOIN, _DELIVER = PAGE[PAGE.index("**2. Join") : PAGE.index("**4. Deal")], PAGE[PAGE.index("**8. Deliver") :]
SUMS = _DRAFT + _JOIN + _REST.partition("## Who never sends")[0] + _DELIVER
PAGE += _REST.partition("## Who never sends")[2]
NAMES = ("north", "south", "east", "west")
N_ROWS, N_NEW = 60, 12
STUDY = "../post/study.toml"
# How the commands of the page change for a study of another kind; a study without a label ends in an export.
KINDS: dict[str, tuple[tuple[str, str], ...]] = {
    "classes": (),
    "number": (("--label ill --classes no,yes", "--label days --label-range 0:60"),),
    "none": (("--label ill --classes no,yes ", ""), ("--labels ", "")),
}
WITHOUT_LABEL = ("mooring train", "mooring predict")
UNSET = {"MOORING_STUDY": "", "MOORING_VAULT": ""}


@dataclass(frozen=True)
class Step:
    """One line of the page, at one role."""

    role: str
    line: str


def steps_of_the_page(page: str = PAGE) -> Iterator[Step]:
    """Commands in the page's order; what is shown for one participant is done by all that the block names."""
    for block in re.findall(r"^```sh\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL):
        first, *lines = re.sub(r" \\\n +", " ", block.strip()).splitlines()
        shown, *others = re.findall(r"(\w+)/", first)
        for role in (shown, *others):
            for line in lines:
                yield Step(role, line if role == shown else re.sub(rf"\b{shown}\b", role, line))


@dataclass(frozen=True, eq=False)
class Walk:
    """A study that went the whole way: its folder, and what every command printed, by role and first words."""

    place: Path
    kind: str
    printed: dict[tuple[str, str], str] = field(default_factory=dict)

    def run(self, role: str, *words: str, code: int | None = 0, **environment: str) -> Any:
        """Run a command in a role's folder."""
        return commands.run(*words, code=code, place=self.place / role, **UNSET, **environment)

    def data(self, *words: str) -> list[str]:
        """A command on a table, with the study and the anchor."""
        return [*words, "--study", STUDY, "--anchor", "../post/ward.anchor"]

    def vault(self, role: str) -> Vault:
        return Vault.open(self.place / role / "vault")

    @property
    def study(self) -> Study:
        return Study.read(self.place / "post" / "study.toml")


def walked(place: Path, kind: str, *, skip: Callable[[Step], bool] = lambda step: False, page: str = PAGE) -> Walk:
    """Do what the page says, in files only."""
    walk = Walk(place, kind)
    write_tables(place, kind)
    for step in steps_of_the_page(page):
        line = step.line
        for old, new in KINDS[kind]:
            line = line.replace(old, new)
        if skip(step) or (kind == "none" and line.startswith(WITHOUT_LABEL)):
            continue
        program, *words = shlex.split(line)
        here = place / step.role
        if program == "cp":
            *flags, source, target = words
            (shutil.copytree if flags else shutil.copy)(here / source, here / target)
        elif program == "mkdir":
            (here / words[0]).mkdir()
        else:
            assert program == "mooring"
            code = None if words[0] == "check" else 0  # the advice may be not to share
            walk.printed[step.role, " ".join(words[:2])] = walk.run(step.role, *words, code=code).output
    return walk


def write_tables(place: Path, kind: str) -> None:
    for name in (*NAMES, "designer", "analyst", "post"):
        (place / name).mkdir(parents=True)
    label = {"classes": ["ill"], "number": ["days"], "none": []}[kind]
    header = [*(["patient_id"] if kind == "number" else []), "age", "weight", "sex", "pressure", "smoker", *label]
    (place / "designer" / "columns.csv").write_text(",".join(header) + "\n")
    for k, name in enumerate(NAMES):
        rng = np.random.default_rng([7, k])
        for file, count in (("patients.csv", N_ROWS), ("new-patients.csv", N_NEW)):
            ids = [[make_id(name, row)] if kind == "number" else [] for row in range(count)]
            lines = [",".join(header), *(",".join([*id_, *record(rng, kind)]) for id_ in ids)]
            (place / name / file).write_text("\n".join(lines) + "\n")


def make_id(name: str, row: int) -> str:
    return f"00{row}/{name}/8642"


def record(rng: np.random.Generator, kind: str) -> list[str]:
    """A patient: the older, and those who smoke, are ill more often and for longer."""
    age, weight, pressure = (rng.uniform(low, high) for low, high in ((20, 90), (45, 130), (80, 200)))
    smokes = bool(rng.integers(2))
    days = np.clip(0.5 * age + 10 * smokes - 10 + rng.normal(0, 2), 0, 60)
    label = {"classes": ["yes" if days > 22 else "no"], "number": [f"{days:.6f}"], "none": []}[kind]
    sex = rng.choice(["female", "male"])
    return [f"{age:.7f}", f"{weight:.7f}", sex, f"{pressure:.7f}", "yes" if smokes else "no", *label]


PREDICT = ("north", "south")  # elsewhere than in the study of classes, where everybody does


def only_north_checks(step: Step) -> bool:
    if step.line.startswith("mooring predict"):
        return step.role not in PREDICT
    return step.line.startswith(("mooring check", "mooring study show", "mooring report")) and step.role != "north"


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    return walked(tmp_path_factory.mktemp("classes") / "way", "classes")


@pytest.fixture(scope="module")
def number(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    return walked(tmp_path_factory.mktemp("number") / "way", "number", skip=only_north_checks)


@pytest.fixture(scope="module")
def unlabelled(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    return walked(tmp_path_factory.mktemp("none") / "way", "none", skip=only_north_checks)


@pytest.fixture
def again(classes: Walk, tmp_path: Path) -> Walk:
    """A copy of the study that went the whole way, to do something else with."""
    shutil.copytree(classes.place, tmp_path / "way")
    return Walk(tmp_path / "way", "classes")


def test_the_page_names_every_step_of_every_role() -> None:
    steps = list(steps_of_the_page())
    named = {step.line.split()[1] for step in steps if step.line.startswith("mooring")}
    story = {"study", "join", "deal", "check", "share", "align", "train", "export", "deliver", "predict", "report"}
    assert named == story
    for command in ("join", "check", "share", "predict", "report"):
        assert {step.role for step in steps if step.line.startswith(f"mooring {command}")} >= set(NAMES)


def test_predictions_come_out_for_classes(classes: Walk) -> None:
    hits = 0
    for name in NAMES:
        lines = (classes.place / name / "predictions.csv").read_text().splitlines()
        assert lines[0] == "prediction,probability_no,probability_yes"
        assert len(lines) == 1 + N_NEW
        firsts = [line.split(",") for line in lines[1:]]
        likely, unlikely = ([float(yes) for word, _, yes in firsts if word == wanted] for wanted in ("yes", "no"))
        assert min(likely, default=1.0) >= max(unlikely, default=0.0), "a class is predicted from one probability on"
        assert all(abs(float(no) + float(yes) - 1) < 1e-5 for _, no, yes in firsts)
        assert (classes.place / name / "report.html").is_file()
        truth = [
            line.split(",")[-1] for line in (classes.place / name / "new-patients.csv").read_text().splitlines()[1:]
        ]
        hits += sum(word == true for (word, *_), true in zip(firsts, truth, strict=True))
    assert hits > 0.8 * len(NAMES) * N_NEW, "the joint model has learned something"
    assert (classes.place / "analyst" / "report.html").is_file()
    assert pq.read_table(classes.place / "analyst" / "collaboration.parquet").num_rows == 4 * N_ROWS


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_the_way_by_secure_sums_gives_predictions_and_pages(kind: str, tmp_path: Path) -> None:
    walk = walked(tmp_path / "way", kind, page=SUMS, skip=only_north_checks)
    report = (walk.place / "north" / "report.html").read_text()
    assert walk.study.fingerprint in report
    assert "(2, 1e-05)-differential privacy" in report
    for name in PREDICT:
        lines = (walk.place / name / "predictions.csv").read_text().splitlines()
        assert lines[0] == (
            "prediction,probability_no,probability_yes" if kind == "classes" else "patient_id,prediction"
        )
        assert len(lines) == 1 + N_NEW
    steps = {step.line.split()[1] for step in steps_of_the_page(SUMS) if step.line.startswith("mooring")}
    assert steps == {"study", "join", "check", "share", "combine", "align", "train", "deliver", "predict", "report"}
    if kind == "number":  # four combiners, and a threshold of four
        walk.run("analyst", "train", "--study", STUDY, "--shares", "inbox")
        values = np.loadtxt(walk.place / "north" / "predictions.csv", delimiter=",", skiprows=1, usecols=1)
        assert ((values >= 0) & (values <= 60)).all()


def test_predictions_come_out_for_numbers(number: Walk) -> None:
    for name in PREDICT:
        lines = (number.place / name / "predictions.csv").read_text().splitlines()
        ids, predicted = zip(*(line.split(",") for line in lines), strict=True)
        assert ids == ("patient_id", *(make_id(name, row) for row in range(N_NEW)))  # which stays at home
        values = np.array(predicted[1:], dtype=float)
        truth = np.loadtxt(number.place / name / "new-patients.csv", delimiter=",", skiprows=1, usecols=6)
        assert np.mean((values - truth) ** 2) < np.var(truth), "the joint model has learned something"
    given = (
        "new-patients.csv",
        "--study",
        STUDY,
        "--result",
        "result",
        "--ignore",
        "patient_id",
        "--output",
        "bare.csv",
    )
    number.run(name, "predict", *given)
    assert (number.place / name / "bare.csv").read_text().startswith("prediction\n")


def test_a_study_without_a_label_ends_in_an_export(unlabelled: Walk) -> None:
    table = pq.read_table(unlabelled.place / "analyst" / "collaboration.parquet")
    assert table.column_names == [
        "participant",
        *(f"z{k}" for k in range(1, unlabelled.study.mechanism.n_components + 1)),
    ]
    assert table.num_rows == 4 * N_ROWS
    names = sorted(path.name for path in (unlabelled.place / "south" / "result").iterdir())
    assert names == ["map.safetensors", "map.safetensors.sealed"]
    assert "label" in unlabelled.run("analyst", "train", "--study", STUDY, code=2).stderr


@pytest.mark.parametrize("kind", ["classes", "number", "none"])
def test_a_search_of_what_the_analyst_has_finds_no_secret(kind: str, request: pytest.FixtureRequest) -> None:
    walk: Walk = request.getfixturevalue({"none": "unlabelled"}.get(kind, kind))
    needles = dict(secrets_of(walk))
    assert len(needles) > 4 * (4 + N_ROWS)
    places = [walk.place / folder for folder in ("analyst", "post", "designer")]
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    assert len(files) > 20
    contents = {str(path.relative_to(walk.place)): path.read_bytes() for path in files}
    for path in files:  # Parquet is compressed
        if path.suffix == ".parquet":
            frame = pq.read_table(path)
            columns = [name for name in frame.column_names if name.startswith("z")]
            matrix = np.column_stack([frame[name].to_numpy() for name in columns])
            contents[f"{path.name}, unpacked"] = matrix.astype("<f4").tobytes() + matrix.astype("<f8").tobytes()
    assert found_in(contents, needles) == []
    at_home = {"the vaults": b"".join((walk.place / name / "vault" / "identity.json").read_bytes() for name in NAMES)}
    assert len(found_in(at_home, needles)) >= 4 * 4, "the search finds what is there"
    planted = next(form for name, form in needles.items() if "as float32" in name)
    assert found_in({"a file": b"xx" + planted + b"yy"}, needles)


def secrets_of(walk: Walk) -> Iterator[tuple[str, bytes]]:
    """Keys and secrets of every vault, the anchor, and every row as text and as numbers."""
    study = walk.study
    anchor = open_anchor(walk.vault("west"), study, walk.place / "post" / "ward.anchor").matrix
    for k, row in enumerate(anchor):
        yield f"anchor row {k} as float64", row.astype("<f8").tobytes()
        yield f"anchor row {k} as float32", row.astype("<f4").tobytes()
    for name in NAMES:
        identity = json.loads((walk.place / name / "vault" / "identity.json").read_text())
        for entry in ("signing", "sealing", "master", "ledger"):
            yield f"{entry} of {name}", identity[entry].encode()
            yield f"{entry} of {name} as bytes", bytes.fromhex(identity[entry])
        rows = read_encoded(study.schema, walk.place / name / "patients.csv")
        lines = (walk.place / name / "patients.csv").read_text().splitlines()[1:]
        for k, (line, row, values) in enumerate(zip(lines, rows.rows, rows.values, strict=True)):
            yield f"row {k} of {name} in words", line.encode()
            yield f"age or id of row {k} of {name}", line.split(",")[0].encode()
            yield f"row {k} of {name} as float32", row.astype("<f4").tobytes()
            yield f"row {k} of {name} as float64", row.astype("<f8").tobytes()
            yield f"numbers of row {k} of {name}", values[:2].astype("<f8").tobytes()
            yield f"numbers of row {k} of {name} as float32", values[:2].astype("<f4").tobytes()


def found_in(contents: Mapping[str, bytes], needles: Mapping[str, bytes]) -> list[str]:
    return [
        f"{name} in {where}" for where, content in contents.items() for name, form in needles.items() if form in content
    ]


def test_who_never_sends_or_sends_late_stops_nobody(again: Walk) -> None:
    inbox, kept = again.place / "analyst" / "inbox", again.place / "kept.bundle"
    for name in ("east", "west"):
        (inbox / f"{name}.bundle.sealed").unlink()
    (inbox / "west.bundle").unlink()  # never sends
    (inbox / "east.bundle").rename(kept)  # sends late
    for folder in ("analysis", "results"):
        shutil.rmtree(again.place / "analyst" / folder)
    assert "east, west" in again.run("analyst", "align", "--study", STUDY, "--bundles", "inbox").output
    again.run("analyst", "train", "--study", STUDY)
    again.run("analyst", "deliver", "--study", STUDY, "--output", "results")
    before = {name: (again.place / "analyst" / "results" / name / "map.safetensors").read_bytes() for name in NAMES[:2]}
    kept.rename(inbox / "east.bundle")
    assert "east" in again.run("analyst", "align", "--study", STUDY, "--bundles", "inbox", "--late").output
    again.run("analyst", "deliver", "--study", STUDY, "--output", "results")
    for name, content in before.items():
        assert (again.place / "analyst" / "results" / name / "map.safetensors").read_bytes() == content
    result = "../analyst/results/east"
    again.run("east", "predict", "new-patients.csv", "--study", STUDY, "--result", result, "--output", "late.csv")
    assert len((again.place / "east" / "late.csv").read_text().splitlines()) == 1 + N_NEW
    assert not (again.place / "analyst" / "results" / "west").exists()


def test_for_programs_every_command_prints_json_and_nothing_else(again: Walk) -> None:
    for folder in ("analysis", "results"):
        shutil.rmtree(again.place / "analyst" / folder)
    (again.place / "south" / "vault").rename(again.place / "south" / "old-vault")
    header = ["study", "init", "columns.csv", "--label", "ill", "--all-ranges", "0:300", "--output", "draft.toml"]
    at_south = ["--study", STUDY, "--vault", "old-vault"]
    anchor = ["--anchor", "../post/ward.anchor"]
    for role, words in (
        ("designer", header),
        ("designer", ["study", "show"]),
        ("designer", ["study", "enrol", "../post/north.card.toml"]),
        ("south", ["join", "--name", "south", "--vault", "new-vault"]),
        ("north", ["deal", "--study", STUDY]),
        ("south", ["check", "patients.csv", *at_south, *anchor]),
        ("south", ["share", "patients.csv", *at_south, *anchor, "--labels"]),
        ("analyst", ["align", "--study", STUDY, "--bundles", "inbox"]),
        ("analyst", ["train", "--study", STUDY, "--learner", "linear"]),
        ("analyst", ["export", "--output", "again.parquet"]),
        ("analyst", ["deliver", "--study", STUDY, "--output", "results"]),
        ("south", ["predict", "new-patients.csv", *at_south, "--result", "../analyst/results/south", "--force"]),
        ("analyst", ["report", "analysis", "--study", STUDY, "--force"]),
    ):
        result = again.run(role, *words, "--format", "json", code=None if words[0] == "check" else 0)
        assert isinstance(json.loads(result.stdout), dict), words
        if words[0] in ("check", "share", "predict"):
            assert "class_counts" in result.stdout or "score" in result.stdout


BAD_TABLES: dict[str, tuple[Callable[[list[str]], list[str]], tuple[str, ...]]] = {
    "an unknown column": (lambda lines: [lines[0].replace("weight", "heft"), *lines[1:]], ("weight",)),
    "a missing value": (lambda lines: changed(lines, 7, 1, ""), ("row 7", "weight")),
    "a number out of range": (lambda lines: changed(lines, 9, 3, "77123"), ("row 9", "pressure")),
    "an unknown label": (lambda lines: changed(lines, 11, 5, "w77123"), ("row 11", "ill")),
    "an empty file": (lambda lines: [], ("empty",)),
}


def changed(lines: list[str], row: int, column: int, value: str) -> list[str]:
    fields = lines[row].split(",")
    fields[column] = value
    return [*lines[:row], ",".join(fields), *lines[row + 1 :]]


@pytest.mark.parametrize("what", BAD_TABLES)
@pytest.mark.parametrize("command", ["check", "share"])
def test_a_table_that_does_not_fit_is_refused_by_row_and_column(
    classes: Walk, what: str, command: str, tmp_path: Path
) -> None:
    change, named = BAD_TABLES[what]
    lines = change((classes.place / "east" / "patients.csv").read_text().splitlines())
    (tmp_path / "bad.csv").write_text("".join(f"{line}\n" for line in lines))
    output = tmp_path / "none.bundle"
    labels = ["--labels", "--output", str(output)] if command == "share" else []
    result = classes.run("east", *classes.data(command, str(tmp_path / "bad.csv")), *labels, code=2)
    for words in named:
        assert words in (result.stderr if command == "share" else result.output)
    assert "77123" not in result.output
    assert command == "check" or result.stdout == ""
    assert not output.exists()


def test_a_second_upload_is_refused_and_the_first_given_again(classes: Walk, tmp_path: Path) -> None:
    header, *lines = (classes.place / "south" / "patients.csv").read_text().splitlines()
    output = tmp_path / "again.bundle"
    for rows, code in (([*lines, lines[0].replace(",", "1,", 1)], 4), (lines[::-1], 0)):
        (tmp_path / "rows.csv").write_text("\n".join([header, *rows]) + "\n")
        words = ["share", str(tmp_path / "rows.csv"), "--labels", "--output", str(output)]
        classes.run("south", *classes.data(*words), code=code)
        assert output.exists() == (code == 0)
    assert output.read_bytes() == (classes.place / "analyst" / "inbox" / "south.bundle").read_bytes()


def test_a_sealed_result_opens_at_its_participant_alone(classes: Walk, tmp_path: Path) -> None:
    for role, code in (("north", 0), ("south", 4)):
        shutil.copytree(
            classes.place / "analyst" / "results" / "north",
            result := tmp_path / role,
            ignore=shutil.ignore_patterns("*.safetensors"),
        )
        words = ["predict", "new-patients.csv", "--study", STUDY, "--result", str(result)]
        classes.run(role, *words, "--output", str(tmp_path / f"{role}.csv"), code=code)
        assert (tmp_path / f"{role}.csv").exists() == (code == 0)


def test_predictions_are_written_as_parquet_and_over_no_file_unasked(classes: Walk, tmp_path: Path) -> None:
    output = tmp_path / "found.parquet"
    words = ["predict", "new-patients.csv", "--study", STUDY, "--result", "result", "--output", str(output)]
    record = json.loads(classes.run("north", *words, "--importance", "--threshold", "0.4", "--format", "json").stdout)
    assert record["evaluation"]["threshold"] == 0.4
    assert record["evaluation"]["joint"]["auc"]["value"] > 0.8
    assert {column_importance["name"] for column_importance in record["importance"][1]} == {
        column.name for column in classes.study.columns
    }
    table, before = pq.read_table(output), output.read_bytes()
    assert table.column_names == ["prediction", "probability_no", "probability_yes"]
    assert table.num_rows == N_NEW
    yes = [share >= 0.4 for share in table["probability_yes"].to_pylist()]
    assert table["prediction"].to_pylist() == ["yes" if is_yes else "no" for is_yes in yes]
    output.write_bytes(b"mine")
    assert "--force" in classes.run("north", *words, code=2).stderr
    assert output.read_bytes() == b"mine"
    classes.run("north", *words, "--threshold", "0.4", "--beside", "patients.csv", "--force")
    assert output.read_bytes() == before


def test_a_wrong_vault_a_missing_one_and_missing_consent(classes: Walk) -> None:
    share = classes.data("share", "patients.csv")
    for words, code, what in (
        ([*share, "--labels", "--vault", "../analyst/vault"], 4, "the study"),
        ([*share, "--labels", "--vault", "nowhere"], 5, "the vault"),
        (["predict", "new-patients.csv", "--study", STUDY, "--result", "../south/result", "--force"], 4, "the map"),
    ):
        assert classes.run("north", *words, code=code).stderr.startswith(f"mooring: {what}")
    assert "--labels" in classes.run("north", *share, code=2).stderr
    classes.run("north", *share, "--labels", "--format", "yaml", code=2)


def test_a_full_disk_is_a_clear_error_and_loses_nothing(again: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    output = again.place / "south" / "again.bundle"

    def no_room(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    share = again.data("share", "patients.csv", "--output", "again.bundle")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", no_room)
        again.run("south", *share, "--labels", code=5)
    assert not output.exists()
    assert not list(again.place.rglob("*.partial"))
    again.run("south", *share, "--labels")
    assert output.read_bytes() == (again.place / "analyst" / "inbox" / "south.bundle").read_bytes()


def test_the_help_reads_like_the_story() -> None:
    printed = commands.run("--help").output
    names = re.findall(r"^[│|] (\w+)  ", printed, flags=re.MULTILINE)
    others = ["governance", "desk", "demo", "reproduce", "version", "flare"]
    answers = ["describe", "regress", "survival", "associate", "synthesize"]
    later = [name for name, phase in list_commands().items() if phase == AFTERWARDS]
    steps = [name for name in list_commands() if name not in later]
    assert names == ["run", "status", "cohort", "plan", "audit", *steps, *answers, *later, *others]


def every_command() -> list[list[str]]:
    return [[name] for name in COMMANDS if name not in ("study", "flare")] + [
        ["study", name] for name in ("init", "project", "enrol", "show")
    ]


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_every_command_has_an_example(words: list[str]) -> None:
    printed = commands.run(*words, "--help").output
    assert f"Example: mooring {' '.join(words)}" in " ".join(printed.split())


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["check", "t.csv", "--nonsense"], "--nonsense"),
        (["check"], "data"),
        (["share", "t.csv", "--labels=maybe"], "--labels"),
        (["study", "enrol", "--nonsense"], "--nonsense"),
        (["nothing-of-the-kind"], "nothing-of-the-kind"),
        (["--nonsense", "check", "t.csv"], "--nonsense"),
    ],
    ids=("option", "argument", "value", "option of a subcommand", "command", "option before a command"),
)
def test_errors_in_a_command_line_are_json_where_that_is_asked_for(words: list[str], phrase: str) -> None:
    for form in (["--format", "json"], ["--format=json"]):
        result = commands.run(*words, *form, code=execution.BAD_INPUT)
        error = json.loads(result.stdout)
        assert (error["exit_code"], error["error"]["kind"]) == (execution.BAD_INPUT, "UsageError")
        assert phrase in error["error"]["message"].lower()
    assert commands.run(*words, code=execution.BAD_INPUT).stdout == ""
    assert not commands.run(*words, "--", "--format=json", code=None).stdout  # an argument


def test_exit_codes_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    codes = (execution.BAD_INPUT, execution.IN_PART, execution.REFUSED, execution.STORAGE)
    for code in (0, *codes, execution.UNFORESEEN, execution.INTERRUPTED):
        assert f"\n| {code} | " in page


def test_sharing_in_a_process_loads_no_attacks_exits_with_the_code_and_prints_json(again: Walk) -> None:
    """`-X importtime` lists every module that is loaded on standard error."""
    again_share = [*again.data("share", "patients.csv"), "--labels", "--format", "json", "--output", "process.bundle"]
    calm = {name: value for name, value in os.environ.items() if not name.startswith("MOORING_")}

    def process(*words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        command, place = [sys.executable, *options, "-m", "mooring", *again_share, *words], again.place / "west"
        return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, env=calm)

    completed = process(options=("-X", "importtime"))
    assert "mooring.protocol.rotation.participant.upload" in completed.stderr
    assert "mooring.audit" not in completed.stderr
    assert "mooring.attacks" not in completed.stderr
    assert completed.returncode == 0, completed.stderr
    assert json.loads(completed.stdout)["reissued"] is True
    assert "Traceback" not in completed.stderr
    refused = process("--vault", "../analyst/vault")
    error = json.loads(refused.stdout)
    assert (refused.returncode, error["exit_code"], error["error"]["kind"]) == (4, 4, "RefusedError")
    assert "the analyst's" in error["error"]["reason"]
    assert refused.stderr.strip().startswith("mooring: the study is refused")


def test_every_test_that_the_threats_page_names_exists() -> None:
    root = Path(__file__).parents[2]
    named = re.findall(r"`(tests/[\w/]+\.py)`", (root / "docs" / "threats.md").read_text(encoding="utf-8"))
    assert len(set(named)) > 10
    assert [name for name in named if not (root / name).is_file()] == []
