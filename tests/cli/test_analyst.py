"""`mooring align`, `train`, `export` and `deliver`, as an analyst would run them."""

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnxruntime
import pyarrow.parquet as pq
import pytest

from mooring import make_anchor
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import make_member
from mooring.protocol.rotation.bundle import verify_bundle
from mooring.protocol.storage.vault import Vault
from tests.commands import flat, record_of, run
from tests.sites import numeric_study, rewrite_bundle, write_site

H, R, V = 5, 20, 0.02


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a study of four, an analyst's vault, and an inbox with three bundles; the fourth is kept aside."""
    monkeypatch.chdir(tmp_path)
    vaults = [Vault.create(tmp_path / name) for name in ("a", "b", "c", "d", "analyst")]
    members = [make_member(vault.folder.name, vault) for vault in vaults[:4]]
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


def test_the_analysts_way(place: Path) -> None:
    record = record_of("align", "--bundles", "inbox", "--no-certify")
    assert [entry["name"] for entry in record["intake"]["accepted"]] == ["a", "b", "c"]
    assert record["intake"]["missing"] == ["d"]
    assert record["alignment"]["certificate"] is None
    assert record["alignment"]["converged"] is True
    record = record_of("train", "--learner", "linear")
    assert record["score"]["metric"] == "AUC"
    assert record["score"]["value"] > 0.8
    assert record_of("export", "--output", "m.parquet") == {"output": "m.parquet"}
    assert pq.read_table("m.parquet").num_rows == 120
    assert record_of("deliver", "--output", "r", "--vault", "analyst")["delivered"] == ["a", "b", "c"]
    plain = ["map.safetensors", "model.safetensors"]
    assert sorted(path.name for path in (place / "r" / "b").iterdir()) == sorted(
        [*plain, *(f"{name}.sealed" for name in plain)]
    )
    member = Study.member
    with patch.object(Study, "member", lambda study, name: replace(member(study, name), sealing_key="")):
        assert "*.sealed" not in run("deliver", "--output", "open", "--vault", "analyst").output  # as nobody has a key
    assert not list((place / "open").rglob("*.sealed"))
    assert record_of("export", "--output", "m.onnx") == {"output": "m.onnx"}
    run("export", "--output", "m.onnx", code=2, what="output")
    record_of("export", "--output", "m.onnx", "--result", "r/b", "--force")
    rows = np.column_stack([pq.read_table("m.parquet")[f"z{k + 1}"].to_numpy() for k in range(H)])
    record = onnxruntime.InferenceSession("m.onnx").run(["predictions"], {"rows": rows})[0]
    classes = np.array(Study.read(Path("study.toml")).label.classes)
    assert np.mean(np.array(pq.read_table("m.parquet")["label"].to_pylist()) == classes[record]) > 0.8
    before = (place / "r" / "b" / "map.safetensors").read_bytes()
    (place / "late" / "d.bundle").rename(place / "inbox" / "d.bundle")
    record = record_of("align", "--bundles", "inbox", "--late")["alignment"]
    assert [entry["name"] for entry in record["participants"]] == ["a", "b", "c", "d"]
    assert record_of("deliver", "--output", "r", "--vault", "analyst")["delivered"] == ["a", "b", "c", "d"]
    assert (place / "r" / "b" / "map.safetensors").read_bytes() == before
    run("align", "--bundles", "inbox", code=4, what="another alignment")
    run("align", "--bundles", "inbox", "--late", "--again", code=2, what="--late and --again")
    assert (place / "analysis" / "delivery.json").exists()
    for name in ("intake", "alignment", "training", "delivery"):
        assert json.loads((place / "analysis" / f"{name}.json").read_text())["command"].startswith("mooring")


def test_in_words_it_says_who_is_missing_and_what_was_set_aside(place: Path) -> None:
    (place / "inbox" / "broken[bold].bundle").write_bytes(b"nonsense")
    output = flat(run("align", "--bundles", "inbox", code=3).output)
    for words in ("broken[bold].bundle", "missing: d"):
        assert words in output
    run("train", "--learner", "linear")


def test_files_set_aside_are_named_even_when_too_few_bundles_remain(place: Path) -> None:
    for name in "abc":
        (place / "inbox" / f"{name}.bundle").write_bytes(b"nonsense")
    printed = flat(run("align", "--bundles", "inbox", code=2).output)
    error = record_of("align", "--bundles", "inbox", code=2)["error"]
    assert [entry["file"] for entry in error["intake"]["set_aside"]] == ["a.bundle", "b.bundle", "c.bundle"]
    for entry in error["intake"]["set_aside"]:
        assert f"{entry['file']}: {entry['reason']}" in printed


def test_exit_codes(place: Path) -> None:
    run("train", code=5, what="the alignment")
    run("align", "--bundles", "nowhere", code=5, what="the folder of bundles")
    run("align", "--bundles", "late", code=2, what="bundles")
    text = (place / "study.toml").read_text()
    (place / "draft.toml").write_text(text[: text.index("[[participants]]")])
    run("align", "--study", "draft.toml", "--bundles", "inbox", code=2, what="study")
    run("align", "--bundles", "inbox")
    run("train", "--learner", "oracle", code=2, what="learner")
    run("deliver", "--output", "r", "--vault", "a", code=4, what="the signature")
    (place / "m.parquet").write_bytes(b"mine")
    run("export", "--output", "m.parquet", code=2, what="output")
    run("export", "--output", "other.parquet", "--result", "r", code=2, what="--result")
    assert (place / "m.parquet").read_bytes() == b"mine"
    run("export", "--output", "m.parquet", "--force")


def test_who_is_left_out_is_named_and_gets_its_map(place: Path) -> None:
    """Four participants, of whom the last turned its anchor representation over, and not its rows."""
    study, path = Study.read(place / "study.toml"), place / "late" / "d.bundle"
    anchor = verify_bundle(path, study).anchor_representation
    turned = 2 * anchor.mean(axis=0) - anchor
    rewrite_bundle(path, study, Vault.open(place / "d").signing_key, anchor_representation=turned)
    path.rename(place / "inbox" / "d.bundle")
    run("align", "--bundles", "inbox", "--no-certify")
    run("train", "--learner", "linear", code=3)
    record = json.loads((place / "analysis" / "training.json").read_text())
    assert [name for name, _ in record["left_out"]] == ["d"]
    assert [name for name, _ in record["participants"]] == ["a", "b", "c"]
    assert record["rows"] == record["rows_used"] == 120
    assert record["score"]["value"] > 0.8 > 0.3 > record["left_out"][0][1]["value"]
    assert record_of("deliver", "--output", "r", "--vault", "analyst")["delivered"] == ["a", "b", "c", "d"]
