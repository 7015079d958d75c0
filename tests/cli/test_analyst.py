"""`mooring align`, `train`, `export` and `deliver`, as an analyst would run them."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from mooring import make_anchor
from mooring.cli.app import app
from mooring.protocol.messages.card import Member
from mooring.protocol.storage.vault import Vault
from tests.sites import numeric_study, write_site

RUNNER = CliRunner()
H, R, V = 5, 20, 0.02


def run(*words: Any, code: int = 0) -> str:
    found = RUNNER.invoke(app, [str(word) for word in words])
    assert found.exit_code == code, found.output
    return re.sub(r"\s+", " ", found.stdout + found.stderr)


def table(found: str) -> Any:
    return json.loads(found[found.index("{") :])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a study of four, an analyst's vault, and an inbox with three bundles; the fourth is kept aside."""
    monkeypatch.chdir(tmp_path)
    vaults = [Vault.create(tmp_path / name) for name in ("a", "b", "c", "d", "analyst")]
    members = [Member.from_vault(vault.folder.name, vault) for vault in vaults[:4]]
    study = numeric_study(4, H, R, V, participants=members, analyst=Member("analyst", vaults[4].signing_key.public))
    study.write(tmp_path / "study.toml")
    rng = np.random.default_rng([3, 1])
    anchor = make_anchor(R, H, rng=rng)
    for name, vault in zip("abcd", vaults, strict=False):
        path = tmp_path / ("late" if name == "d" else "inbox") / f"{name}.bundle"
        path.parent.mkdir(exist_ok=True)
        rows = rng.uniform(-1, 1, (40, H))
        write_site(path, study, vault.signing_key, rows, (rows[:, 0] > 0).astype(np.int64), anchor, rng)
    return tmp_path


def test_the_analysts_way_in_words(place: Path) -> None:
    said = run("align", "--bundles", "inbox")
    assert "Accepted 3 bundles with 120 rows: a, b, c." in said
    assert "Nothing that counts yet from: d." in said
    assert "Aligned 3 participants, 120 rows" in said
    assert "Certified" in said
    assert "mooring train" in said
    said = run("train", "--learner", "linear")
    assert "across participants" in said
    assert "an analyst cannot know" in said
    assert "by its own rows alone" in said
    said = run("export", "--output", "matrix.parquet")
    assert "Wrote matrix.parquet" in said
    assert pq.read_table("matrix.parquet").num_rows == 120
    said = run("deliver", "--output", "results", "--vault", "analyst")
    assert "Delivered to 3 participants: a, b, c." in said
    assert sorted(path.name for path in (place / "results" / "b").iterdir()) == ["map.safetensors", "model.onnx"]
    (place / "late" / "d.bundle").rename(place / "inbox" / "d.bundle")
    said = run("align", "--bundles", "inbox", "--late")
    assert "Admitted d; everybody else keeps its map, byte for byte." in said
    assert "Delivered to 4 participants" in run("deliver", "--output", "results", "--vault", "analyst")


def test_the_analysts_way_for_programs(place: Path) -> None:
    found = table(run("align", "--bundles", "inbox", "--format", "json", "--no-certify"))
    assert [entry["name"] for entry in found["intake"]["accepted"]] == ["a", "b", "c"]
    assert found["alignment"]["certificate"] is None
    assert found["alignment"]["converged"] is True
    found = table(run("train", "--format", "json", "--learner", "linear"))
    assert found["score"]["metric"] == "balanced accuracy"
    assert found["score"]["value"] > 0.8
    assert table(run("export", "--output", "m.parquet", "--format", "json")) == {"output": "m.parquet"}
    assert table(run("deliver", "--output", "r", "--vault", "analyst", "--format", "json"))["delivered"] == [
        "a",
        "b",
        "c",
    ]
    for name in ("intake", "alignment", "training", "delivery"):
        assert json.loads((place / "analysis" / f"{name}.json").read_text())["command"].startswith("mooring")


def test_what_is_set_aside_is_said_with_its_reason_and_an_exit_code(place: Path) -> None:
    (place / "inbox" / "broken[bold].bundle").write_bytes(b"nonsense")
    said = run("align", "--bundles", "inbox", code=3)
    assert "Set aside broken[bold].bundle: it is no mooring file, or it is cut short." in said
    assert "Aligned 3 participants" in said


def test_exit_codes_and_cures(place: Path) -> None:
    assert "mooring align" in run("train", code=5)
    assert "not there" in run("align", "--bundles", "nowhere", code=5)
    assert "wait for a second one" in run("align", "--bundles", "late", code=2)
    run("align", "--bundles", "inbox")
    assert "one of auto" in run("train", "--learner", "oracle", code=2)
    assert "not that of the study's analyst" in run("deliver", "--output", "r", "--vault", "a", code=4)
    (place / "m.parquet").write_bytes(b"mine")
    assert "--force" in run("export", "--output", "m.parquet", code=2)
    assert (place / "m.parquet").read_bytes() == b"mine"
    run("export", "--output", "m.parquet", "--force")


def test_a_draft_cannot_be_aligned(place: Path) -> None:
    text = (place / "study.toml").read_text()
    (place / "draft.toml").write_text(text[: text.index("[[participants]]")])
    assert "enrol" in run("align", "--study", "draft.toml", "--bundles", "inbox", code=2)
