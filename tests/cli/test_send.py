"""`mooring send`, `share --to`, `invite`, and results at a URL, as people run them; no optional package is needed."""

import importlib.util
import json
import shlex
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import SplitResult

import fsspec
import numpy as np
import pytest

from mooring.cli import execution as running
from mooring.protocol.messages.card import Member
from mooring.protocol.participant.membership import make_member
from mooring.protocol.participant.role import Participant
from mooring.protocol.transport import object_stores as stores
from mooring.protocol.transport import transfer
from mooring.protocol.transport.presigned_upload import Answer
from mooring.tables.schema import Column, Label
from tests import commands
from tests.commands import flat
from tests.protocol.sums.support import make_sum_study
from tests.study_settings import make_study

NAMES = ("north", "south")
SIGNED = "X-Amz-Credential=AKIAHIDDEN&X-Amz-Signature=5ec2e7"


def run(*words: Any, code: int = 0, what: str = "") -> str:
    """Run a command; whatever it prints, no secret of an address is in it."""
    result = commands.run(*words, code=code, what=what)
    assert "5ec2e7" not in result.output
    return flat(result.stdout + result.stderr)


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hospitals and an analyst with a closed study and a dealt anchor."""
    place = tmp_path_factory.mktemp("ward")
    vaults = {name: Participant.join(place / name) for name in (*NAMES, "analyst")}
    study = make_study(
        "ward",
        "3" * 32,
        columns=(Column("age", "number", 0, 120), Column("smoker", "category", categories=("no", "yes"))),
        label=Label("ill", "classes", ("no", "yes")),
        method="aa-i-gdp-data-noise",
        n_components=3,
        n_anchor_rows=12,
        data_noise_scale=0.1,
    ).with_members(
        [make_member(name, vaults[name]) for name in NAMES], Member("analyst", vaults["analyst"].signing_key.public)
    )
    study.write(place / "study.toml")
    Participant(study, vaults["north"]).take("deal", output=place / "ward.anchor")
    rng = np.random.default_rng(1)
    for name in NAMES:
        ages, smokers = rng.uniform(20, 90, 40), rng.integers(0, 2, 40)
        ill = ages + 20 * smokers > 65
        words = ("no", "yes")
        lines = [f"{a:.2f},{words[s]},{words[int(i)]}" for a, s, i in zip(ages, smokers, ill, strict=True)]
        (place / f"{name}.csv").write_text("\n".join(["age,smoker,ill", *lines]) + "\n")
    return place


@pytest.fixture
def place(ward: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    shutil.copytree(ward, tmp_path / "ward")
    monkeypatch.chdir(tmp_path / "ward")
    monkeypatch.setattr(stores, "time", SimpleNamespace(sleep=lambda seconds: None))
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    yield tmp_path / "ward"
    memory.store.clear()


def share(name: str, *words: str, code: int = 0, what: str = "") -> str:
    return run("share", f"{name}.csv", "--vault", name, "--labels", *words, code=code, what=what)


@pytest.fixture
def nobody() -> str:
    """An address on this machine where nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}/ward/north.bundle?{SIGNED}"


def test_the_whole_way_through_urls(place: Path) -> None:
    for name in NAMES:
        assert f"memory://inbox/{name}.bundle" in share(name, "--to", "memory://inbox/")
    run("align", "--bundles", "memory://inbox")
    run("train", "--learner", "linear")
    run("deliver", "--output", "memory://results/", "--vault", "analyst")
    run("deliver", "--output", "results", "--vault", "analyst")
    at_store = fsspec.filesystem("memory").cat_file("/results/south/map.safetensors")
    assert at_store == Path("results/south/map.safetensors").read_bytes()
    predict = ("predict", "south.csv", "--vault", "south")
    run(*predict, "--result", "memory://results/south", "--output", "away.csv")
    run(*predict, "--result", "results/south", "--output", "here.csv")
    assert Path("away.csv").read_bytes() == Path("here.csv").read_bytes()
    run(*predict, "--result", "memory://results/north", code=4, what="the map")
    run(*predict, "--result", "memory://results/nobody", code=5, what="the result")
    run(*predict, "--result", "nowhere", code=2, what="result")


def test_a_file_goes_to_a_folder_and_for_programs(place: Path) -> None:
    share("north")
    Path("inbox").mkdir()
    Path("north.address").write_text(f"{place / 'inbox'}\n")
    result = run("send", "north.bundle", "--to", "@north.address", "--format", "json")
    record = json.loads(result)
    assert record["to"] == str(place / "inbox" / "north.bundle")
    assert (record["kind"], record["tries"], record["confirmed"]) == ("bundle", 1, True)
    assert Path("inbox/north.bundle").read_bytes() == Path("north.bundle").read_bytes()
    run("send", "ward.anchor", "--to", "inbox/")
    assert Path("inbox/ward.anchor").is_file()
    again = json.loads(share("north", "--to", "inbox", "--format", "json"))
    assert again["sent"]["digest"] == record["digest"] == again["bundle_digest"]


def test_what_must_not_leave_does_not(place: Path, nobody: str) -> None:
    for file in ("north.csv", "north/identity.json", "study.toml"):
        run("send", file, "--to", "memory://inbox/", code=4, what="the file")
    assert fsspec.filesystem("memory").store == {}
    run("send", "north", "--to", nobody, code=4, what="the file")
    run("send", "nowhere.bundle", "--to", nobody, code=5, what="the file")
    share("north")
    run("send", "north.bundle", "--to", f"http://store.invalid/x?{SIGNED}", code=4, what="the bundle")


def test_a_share_that_cannot_be_sent_is_not_lost(place: Path, nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["mooring", "share", "north.csv", "--to", nobody])
    output = share("north", "--to", nobody, code=5, what="the upload")
    assert "mooring send north.bundle --to …" in output
    assert Path("north.bundle").is_file()
    (record,) = Path("north/studies").glob("*/share.json")
    assert "/ward/north.bundle?…" in json.loads(record.read_text())["command"]
    assert "AKIAHIDDEN" not in record.read_text()
    run("send", "north.bundle", "--to", "memory://inbox/")
    assert fsspec.filesystem("memory").cat_file("/inbox/north.bundle") == Path("north.bundle").read_bytes()


def test_a_folder_without_a_slash_is_a_folder(place: Path) -> None:
    memory = fsspec.filesystem("memory")
    for name in NAMES:
        share(name, "--to", "memory://inbox")
    assert sorted(memory.store) == ["/inbox/north.bundle", "/inbox/south.bundle"]
    assert commands.record_of("send", "north.bundle", "--to", "memory://inbox")["there_before"]
    run("send", "ward.anchor", "--to", "memory://anchors")
    assert "/anchors/ward.anchor" in memory.store
    assert "mooring send south.bundle --to …" in share("south", "--to", "memory://inbox/north.bundle", code=2)
    assert memory.cat_file("/inbox/north.bundle") == Path("north.bundle").read_bytes()
    share("north", "--to", "inbox", code=5, what="the place to send to")
    assert not Path("inbox").exists()


def test_a_bundle_that_is_replaced_before_it_is_sent_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share("north")
    share("south")
    really = Participant.share

    def swapped(self: Participant, *rest: Any, **more: Any) -> Any:
        shared = really(self, *rest, **more)
        shutil.copy("south.bundle", "north.bundle")
        return shared

    monkeypatch.setattr(Participant, "share", swapped)
    share("north", "--to", "memory://inbox/", code=5, what="the file")
    assert fsspec.filesystem("memory").store == {}


@pytest.mark.parametrize(
    ("address", "recorded", "code"),
    [
        ("sftp://bob:p@5ec2e7@host/x", "sftp://host/x", 5),
        ("sftp://bob:it's5ec2e7@host/x", "sftp://host/x", 5),
        ("ftp://bob:pa?5ec2e7@host", "ftp://…", 4),
        ("https://127.0.0.1:1/x?a=5'5ec2e7&z=1 2", "https://127.0.0.1:1/x?…", 2),
        ("s3://KEY:se/5ec2e7@ward/in/", "s3://…", 5),
    ],
)
def test_no_password_gets_into_a_record_or_a_message(
    address: str, recorded: str, code: int, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `run` looks at every message, and here at the record of a share that came as far as sending."""

    def broken(*_: Any, **__: Any) -> Any:
        raise OSError("5ec2e7")

    monkeypatch.setattr(fsspec.core, "url_to_fs", broken)
    monkeypatch.setattr(sys, "argv", ["mooring", "share", "it's.csv", f"--to={address}", "--to", address, "--labels"])
    assert shlex.split(running.quote_command()) == [
        *("mooring", "share", "it's.csv", f"--to={recorded}", "--to", recorded, "--labels")
    ]
    share("north", "--to", address, code=code)
    monkeypatch.undo()
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["mooring", "share", "north.csv", f"--to={address}"])
    share("north")
    (record,) = Path("north/studies").glob("*/share.json")
    assert shlex.split(json.loads(record.read_text())["command"])[-1] == f"--to={recorded}"
    assert "5ec2e7" not in record.read_text()


def test_broken_hosts_and_proxies_are_said_to_be_such(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share("north")
    run("send", "north.bundle", "--to", f"https://a..b/x?{SIGNED}", code=2, what="address")
    monkeypatch.setenv("https_proxy", "http://me:5ec2e7@[host")
    run("send", "north.bundle", "--to", f"https://store.invalid/x?{SIGNED}", code=5, what="the proxy")
    for address in ("simplecache::http://store.invalid/inbox", "ftp://store.invalid/inbox"):
        run("send", "north.bundle", "--to", address, code=4)
        Path("south.bundle").unlink(missing_ok=True)
        share("south", "--to", address, code=4)
        assert not Path("south.bundle").exists()


def test_an_address_that_cannot_be_used_is_said_to_be_before_anything_is_written(place: Path) -> None:
    for address in ("nonsense://x/", "https://", f"http://store.invalid/x?{SIGNED}", "@nowhere.address"):
        share("north", "--to", address, code={"http:": 4, "@nowh": 5}.get(address[:5], 2))
    assert not Path("north.bundle").exists()


def test_sealed_sums_are_shared_over_http_as_send_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = make_sum_study(tmp_path, 2, least_rows=3)
    given.study.write(tmp_path / "study.toml")
    (tmp_path / "p0.csv").write_text("x0,x1,y\n1.5,2,a\n3,4,b\n5,6,c\n7,8,a\n")
    monkeypatch.chdir(tmp_path)
    address, hosts = f"http://store.invalid/p0.bundle?{SIGNED}", []

    def put_file(parts: SplitResult, *_: Any, **__: Any) -> Answer:
        hosts.append(str(parts.hostname))
        return Answer(200, "", False, {}, "http://store.invalid/p0.bundle")

    monkeypatch.setattr(transfer, "put_file", put_file)
    run("share", "p0.csv", "--vault", "v0", "--to", address)
    run("send", "p0.bundle", "--to", address)
    assert hosts == ["store.invalid"] * 2


def test_invitations_need_a_store_that_signs(place: Path) -> None:
    for place_of_bundles in ("inbox", "memory://inbox"):
        run("invite", "--bundles", place_of_bundles, code=2, what="bundles")
    run("invite", "--bundles", "s3://ward/inbox", "--expires", "30d", code=2, what="expires")
    run("invite", "--bundles", "s3://ward/inbox", "--participant", "west", code=2, what="participant")


@pytest.mark.skipif(importlib.util.find_spec("s3fs") is not None, reason="s3fs is installed")
def test_a_missing_package_is_named(place: Path) -> None:
    share("north")
    for words in (
        ("invite", "--bundles", "s3://ward/inbox"),
        ("send", "north.bundle", "--to", "s3://ward/inbox/"),
        ("align", "--bundles", "s3://ward/inbox"),
        ("deliver", "--output", "s3://ward/results", "--vault", "analyst"),
        ("predict", "north.csv", "--result", "s3://ward/results/north", "--vault", "north"),
    ):
        assert "pip install 'mooring[s3]'" in run(*words, code=2)
