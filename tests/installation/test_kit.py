"""The kit for machines without network: complete, refused once a wheel was changed, and installed by its own script."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.installation.scripts import ROOT, load_script, write_wheel


@pytest.fixture(scope="module")
def kit() -> ModuleType:
    return load_script("kit")


@pytest.mark.posix
def test_a_kit_with_another_wheel_is_refused_and_a_whole_one_installed(kit: ModuleType, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "kit" / "wheels", "first", "second")
    write_wheel(tmp_path / "kit" / "wheels", "second")
    digest = kit.complete(tmp_path / "kit", "Python 3 on anything")
    assert digest == kit.digest_of(tmp_path / "kit" / kit.SUMS)
    words = ["sh", str(tmp_path / "kit" / "install.sh"), str(tmp_path / "place")]
    (python := tmp_path / "a python").symlink_to(sys.executable)
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": str(python)}
    honest = wheel.read_bytes()
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("more.py", "")
    refused = subprocess.run(words, env=environment, check=False, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "For Python 3 on anything." in refused.stderr
    wheel.write_bytes(honest)
    subprocess.run(words, env=environment, check=True, capture_output=True)
    python = tmp_path / "place" / "bin" / "python"
    assert subprocess.run([python, "-m", "first"], check=True, capture_output=True).stdout == b"it runs\n"


@pytest.mark.posix
@pytest.mark.parametrize("changed", ["", "install.sh", "install.ps1", "Containerfile", "README.md", "requirements.txt"])
def test_a_changed_script_does_not_pass(kit: ModuleType, changed: str, tmp_path: Path) -> None:
    write_wheel(tmp_path / "kit" / "wheels", "first")
    kit.complete(tmp_path / "kit", "Python 3 on anything")
    if changed:
        with (tmp_path / "kit" / changed).open("a") as file:
            file.write("# more\n")
    checked = subprocess.run(["sha256sum", "--check", kit.SUMS], cwd=tmp_path / "kit", check=False, capture_output=True)
    assert bool(checked.returncode) is bool(changed)


def test_a_wheel_that_is_not_known_stops_the_kit(
    kit: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = write_wheel(tmp_path / "wheels", "first")
    write_wheel(tmp_path / "wheels", "mooring")
    monkeypatch.setattr(kit, "HASHES", tmp_path / "hashes.txt")
    kit.HASHES.write_text(f"first==1.0 --hash=sha256:{kit.digest_of(wheel)}\n")
    kit.require_known(tmp_path / "wheels")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("more.py", "")
    with pytest.raises(SystemExit):
        kit.require_known(tmp_path / "wheels")


def test_every_wheel_that_mooring_needs_has_its_hash_for_each_platform(kit: ModuleType) -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if "==" in line
    )
    pinned = {canonicalize_name(name): version for name, version in pinned.items()}
    hashed = kit.HASHES.read_text("utf-8")
    for name in (canonicalize_name(Requirement(line).name) for line in about["dependencies"]):
        assert f"{name}=={pinned[name]} " in hashed


def test_what_builds_the_wheel_of_a_kit_is_pinned(
    kit: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environments, constraints = list[dict[str, str] | None](), ROOT / "constraints.txt"

    def run(words: list[object], *, check: bool, env: dict[str, str] | None = None) -> None:
        environments.append(env)
        write_wheel(tmp_path / "wheels", "mooring")

    monkeypatch.setattr(kit.subprocess, "run", run)
    kit.download(tmp_path / "wheels", extras="", platforms=[], python=None)
    assert environments[0] is not None
    assert environments[0]["PIP_BUILD_CONSTRAINT"] == str(constraints)
    pinned = {line.partition("==")[0] for line in constraints.read_text("utf-8").splitlines()}
    builders = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    assert {Requirement(line).name for line in builders} <= pinned


def test_a_download_that_fails_leaves_nothing(kit: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(wheels: Path, **options: object) -> None:
        write_wheel(wheels, "first")
        if problems:
            raise problems.pop()

    problems, words = [subprocess.CalledProcessError(1, "pip")], ["--output", str(tmp_path / "dist" / "kit")]
    monkeypatch.setattr(kit, "download", download)
    monkeypatch.setattr(kit, "require_known", lambda wheels: None)
    with pytest.raises(subprocess.CalledProcessError):
        kit.main(words)
    assert list((tmp_path / "dist").iterdir()) == []
    kit.main(words)
    assert (tmp_path / "dist" / "kit" / "requirements.txt").is_file()


@pytest.mark.parametrize(
    ("platforms", "python", "missing"),
    [((), None, []), (("win_amd64",), "3.12", ["colours"]), (("manylinux2014_x86_64",), "3.10", ["old<2"])],
)
def test_what_only_another_machine_needs_is_found(
    kit: ModuleType, tmp_path: Path, platforms: tuple[str, ...], python: str | None, missing: list[str]
) -> None:
    needs = ('colours; platform_system == "Windows"', 'old<2; python_version < "3.11"', 'extra-one; extra == "all"')
    write_wheel(tmp_path, "first", *needs, "second")
    write_wheel(tmp_path, "second")
    assert kit.find_missing(tmp_path, platforms=platforms, python=python) == missing
