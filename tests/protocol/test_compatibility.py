"""Studies that an earlier mooring made still verify: files from then, and only the command line of now.

`golden/README.md` says how each file was made. Nothing here imports mooring: where its modules are does not matter.
"""

import hashlib
import json
import os
import runpy
import shlex
import shutil
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import pytest
import typer

GOLDEN = Path(__file__).parent / "golden"
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())
STUDIES = ("ward", "lab", "field")
PARTICIPANTS = {"ward": ("north", "south", "east"), "lab": ("north", "south", "east"), "field": ("north", "west")}
DEALERS = {"ward": "north", "lab": "south", "field": "north"}
TABLES = {"ward": "ward.csv", "lab": "lab.csv", "field": "field.parquet"}
PASSPHRASE = "golden words"  # of west's vault; the others have none
DONE, IN_PART, REFUSED = 0, 3, 4  # exit codes


@cache
def mooring() -> Any:
    """The command that `python -m mooring` runs, wherever its modules are."""
    with patch.object(typer.Typer, "__call__", autospec=True) as called:
        runpy.run_module("mooring", run_name="__main__")
    return typer.main.get_command(called.call_args.args[0])


@dataclass(frozen=True)
class Ran:
    """What a command printed."""

    stdout: str
    stderr: str

    @property
    def told(self) -> dict[str, Any]:
        """What it told other programs."""
        return dict(json.loads(self.stdout))


@dataclass(frozen=True)
class Place:
    """A copy of the fixture, with a folder for each role."""

    root: Path

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def run(self, role: str, line: str, code: int = DONE) -> Ran:
        """Do what `python -m mooring` does in a role's folder, in this process."""
        with (
            chdir(self.root / role),
            redirect_stdout(StringIO()) as out,
            redirect_stderr(StringIO()) as errors,
            pytest.raises(SystemExit) as ended,
        ):
            mooring().main(shlex.split(line), prog_name="mooring")
        said = Ran(out.getvalue(), errors.getvalue())
        assert (ended.value.code or DONE) == code, f"{role}: mooring {line}\n{said.stdout}\n{said.stderr}"
        return said

    def share(self, study: str, name: str, table: str = "", code: int = DONE) -> Ran:
        """Share a participant's table, or the one that is given, into again.bundle."""
        labels = "" if study == "field" else "--labels "
        files = f"--study ../post/{study}.toml --anchor ../post/{study}.anchor --output again.bundle --format json"
        return self.run(name, f"share {table or TABLES[study]} {labels}{files}", code)

    def bundle(self, study: str, name: str) -> Path:
        """What the participant sent then."""
        return self.root / "analyst" / study / "inbox" / f"{name}.bundle"

    def forget_what_was_shared(self, name: str) -> None:
        """Leave of a vault what a backup from before its first share has: the identity."""
        for path in (self.root / name / "vault").iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif not path.name.startswith("identity."):
                path.unlink()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A copy of the fixture."""
    for name in [name for name in os.environ if name.startswith("MOORING_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MOORING_PASSPHRASE", PASSPHRASE)
    monkeypatch.setenv("COLUMNS", "200")
    return Place(shutil.copytree(GOLDEN, tmp_path / "golden"))


def in_common_space(table: Path) -> tuple[list[str], Any, np.ndarray]:
    """Whose rows, their labels, and the rows' inner products, which no choice of coordinates changes."""
    found = pq.read_table(table)
    order = np.argsort(np.asarray(found["participant"].to_pylist()), kind="stable")
    rows = np.column_stack([found[name].to_numpy() for name in found.column_names if name.startswith("z")])[order]
    rows = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    labels = [found["label"].to_pylist()[k] for k in order] if "label" in found.column_names else None
    return [found["participant"].to_pylist()[k] for k in order], labels, rows @ rows.T


def same_space(one: Path, other: Path) -> bool:
    (names, labels, inner), (names_then, labels_then, inner_then) = in_common_space(one), in_common_space(other)
    return names == names_then and labels == labels_then and bool(np.allclose(inner, inner_then, atol=1e-3))


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_the_fixture_is_as_it_was_made() -> None:
    listed = dict(line.split("  ")[::-1] for line in (GOLDEN / "SHA256SUMS").read_text().splitlines())
    there = {
        path.relative_to(GOLDEN).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in GOLDEN.rglob("*")
        if path.is_file() and path.relative_to(GOLDEN).as_posix() not in ("SHA256SUMS", "README.md", ".gitattributes")
    }
    assert there == listed


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_has_the_fingerprint_that_was_told_by_telephone(study: str, place: Place) -> None:
    told = place.run("post", f"study show --study {study}.toml --format json").told
    assert {key: told[key] for key in ("digest", "fingerprint")} == EXPECTED["studies"][study]


@pytest.mark.parametrize("study", STUDIES)
def test_dealing_again_gives_the_same_anchor_file(study: str, place: Place) -> None:
    place.run(DEALERS[study], f"deal --study ../post/{study}.toml --output again.anchor")
    assert (place / DEALERS[study] / "again.anchor").read_bytes() == (place / f"post/{study}.anchor").read_bytes()


@pytest.mark.parametrize(("study", "name"), [("ward", "north"), ("lab", "east"), ("field", "west")])
def test_nothing_is_shared_any_more_in_a_study_of_format_1(study: str, name: str, place: Place) -> None:
    place.share(study, name, code=REFUSED)
    place.forget_what_was_shared(name)  # as a participant that has not shared yet
    place.share(study, name, code=REFUSED)
    assert not (place / name / "again.bundle").exists()
    assert not (place / name / "vault" / "studies").exists()


@pytest.mark.parametrize("study", ["ward", "lab"])
def test_the_ledger_still_knows_the_rows(study: str, place: Place) -> None:
    header = (place / "south" / TABLES[study]).read_text().splitlines()[0]
    (place / "south/columns.csv").write_text(header + "\n")
    known = {
        "ward": "--range age=0:130 --all-ranges 0:300 --category smoker=yes,former,no --drop ill",
        "lab": "--all-ranges 0:200 --category group=o,ab,b,a --missing-word=-9 --missing fill --drop days",
    }[study]
    place.run("south", f"study init columns.csv --name other --output ../post/other.toml {known}")
    cards = " ".join(f"{name}.card.toml" for name in ("south", "east", "analyst"))
    place.run("post", f"study enrol {cards} --study other.toml", REFUSED)  # their sealing keys have no proof
    for name in ("south", "east"):
        place.run(name, f"join --name {name} --output ../post/{name}.card.toml")
    place.run("post", f"study enrol {cards} --study other.toml")
    place.run("south", "deal --study ../post/other.toml --output ../post/other.anchor")
    label = {"ward": "ill", "lab": "days"}[study]
    again = f"--study ../post/other.toml --anchor ../post/other.anchor --ignore {label} --output other.bundle"
    assert "already been uploaded" in place.run("south", f"share {TABLES[study]} {again}", REFUSED).stderr
    assert not (place / "south/other.bundle").exists()


@pytest.mark.parametrize("study", STUDIES)
def test_old_bundles_are_accepted_and_aligned_as_they_were(study: str, place: Place) -> None:
    for folder in ("fresh", "analysis"):  # an empty one; and the old one, which remembers whose bundle was accepted
        line = f"align --study ../post/{study}.toml --bundles {study}/inbox --folder {study}/{folder} --again --format json"
        told = place.run("analyst", line).told
        assert [one["name"] for one in told["intake"]["accepted"]] == list(PARTICIPANTS[study])
        assert told["intake"]["set_aside"] == told["set_aside"] == []
    if study != "lab":  # there the kept matrix is from before east came
        then = GOLDEN / "analyst" / study / "analysis" / "collaboration.parquet"
        assert same_space(place / "analyst" / study / "fresh" / "collaboration.parquet", then)


@pytest.mark.parametrize("at", [20, 400, 1000, 1600, -1])
def test_a_flipped_byte_in_a_bundle_is_refused(at: int, place: Place) -> None:
    flip(place.bundle("ward", "south"), at)
    line = "align --study ../post/ward.toml --bundles ward/inbox --folder ward/fresh --format json"
    told = place.run("analyst", line, IN_PART).told
    assert [one["name"] for one in told["intake"]["accepted"]] == ["north", "east"]
    assert [one["file"] for one in told["intake"]["set_aside"]] == ["south.bundle"]


def test_an_old_alignment_is_read_in_one_file_and_in_parts(place: Place) -> None:
    for folder in ("analysis", "analysis-in-parts"):
        place.run("analyst", f"export --folder ward/{folder} --output {folder}.parquet")
        then = GOLDEN / "analyst" / "ward" / "analysis" / "collaboration.parquet"
        assert same_space(place / "analyst" / f"{folder}.parquet", then)


def test_what_was_computed_then_is_delivered_with_the_same_bytes(place: Place) -> None:
    """In the study without a label: models of then were ONNX files, which are no longer read."""
    place.run("analyst", "deliver --study ../post/field.toml --folder field/analysis --output again")
    then = GOLDEN / "analyst" / "field" / "results"
    files = sorted(path.relative_to(then) for path in then.rglob("*.*"))
    assert files
    for file in files:
        assert (place / "analyst" / "again" / file).read_bytes() == (then / file).read_bytes()


def test_a_flipped_byte_in_the_anchor_is_refused(place: Place) -> None:
    flip(place / "post/ward.anchor", -1)
    place.share("ward", "south", code=REFUSED)
    assert not (place / "south/again.bundle").exists()


@pytest.mark.parametrize(("role", "folder"), [("north", "vault"), ("analyst", "ward/analysis")])
def test_old_records_make_a_report(role: str, folder: str, place: Place) -> None:
    told = place.run(role, f"report {folder} --study ../post/ward.toml --output again.html --format json").told
    assert told["study"]["fingerprint"] == EXPECTED["studies"]["ward"]["fingerprint"]
    assert (place / role / "again.html").stat().st_size > 10_000
