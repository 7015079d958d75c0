"""What `make` installs of others has a hash of installation/hashes.txt, and pip refuses everything else."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.installation.scripts import ROOT, load_script, write_wheel


@pytest.fixture(scope="module")
def hashed() -> ModuleType:
    return load_script("hashed")


def test_every_pin_has_hashes(hashed: ModuleType) -> None:
    known = hashed.read_hashes()
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [hashed.name_pin(*line.split("==")) for line in lines if "==" in line]
    assert len(pins) > 150
    assert [pin for pin in pins if not known.get(pin)] == []


def test_files_of_others_need_a_known_hash_and_those_of_this_machine_have_their_own(
    hashed: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = write_wheel(tmp_path, "First_Of")
    monkeypatch.setattr(hashed, "HASHES", tmp_path / "hashes.txt")
    hashed.HASHES.write_text("# of two files\nsecond==2.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n")

    def entry(name: str, version: str, url: str, **source: object) -> dict[str, object]:
        return {"metadata": {"name": name, "version": version}, "download_info": {"url": url, **source}}

    folder = entry("mooring", "1.0", "file:///src", dir_info={"editable": True})
    lines = hashed.list_pinned(
        [folder, entry("Second", "2.0", "https://index/2"), entry("First_Of", "1.0", wheel.as_uri())]
    )
    digest = hashed.hash_file(wheel.as_uri())
    assert lines == ["second==2.0 --hash=sha256:aa --hash=sha256:bb", f"first-of==1.0 --hash=sha256:{digest}"]
    for name, version in (("second", "2.1"), ("third", "1.0")):
        with pytest.raises(SystemExit):
            hashed.list_pinned([entry(name, version, "https://index/3")])


def test_pip_refuses_a_file_that_has_another_hash(
    hashed: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = hashed.hash_file(write_wheel(tmp_path, "first").as_uri())
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    hashed.install(sys.executable, "--dry-run", f"first==1.0 --hash=sha256:{digest}")
    with pytest.raises(SystemExit):
        hashed.install(sys.executable, "--dry-run", f"first==1.0 --hash=sha256:{digest[::-1]}")
