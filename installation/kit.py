"""Collect what installs mooring on a machine without network: wheels with their hashes, and scripts that install them."""

from __future__ import annotations

import argparse
import contextlib
import email.message
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pip._internal.models.index import PyPI
from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.tags import Tag
from pip._vendor.packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from pip._vendor.packaging.version import InvalidVersion, Version

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CONSTRAINTS, HASHES = ROOT / "constraints.txt", HERE / "hashes.txt"
LINUX = ("x86_64", "aarch64")
PLATFORMS = (
    *(
        (*(f"manylinux_2_{k}_{machine}" for k in range(newest, 16, -1)), f"manylinux2014_{machine}")
        for machine in LINUX
        for newest in (39, 28)
    ),
    ("macosx_14_0_arm64", "macosx_12_0_arm64", "macosx_11_0_arm64"),
    ("win_amd64",),
)
VERSIONS = ("3.11", "3.12", "3.13")
EXTRAS = ("dask", "desk", "images", "omop", "onnx", "s3", "torch", "xgboost")
"""What hashes.txt is for."""
ONLY_ELSEWHERE = ("colorama",)
"""What wheels need on Windows only: pip looks at the machine that it runs on."""
EXAMPLES = """\
examples:
  python installation/kit.py --output dist/kit
  python installation/kit.py --output dist/windows --platform win_amd64 --python 3.12
  python installation/kit.py --output dist/linux --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64
"""
SCRIPTS = ("install.sh", "install.ps1", "Containerfile", "README.md")
SUMS = "SHA256SUMS"
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the kit that the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="folder to make; must not be there")
    parser.add_argument(
        "--renew-hashes", action="store_true", help="write hashes.txt again, as the package index has them"
    )
    parser.add_argument("--extras", default="", help="optional parts of mooring, separated by commas")
    parser.add_argument("--platform", action="append", help="platform tags of the machine it is for, if not this one's")
    parser.add_argument("--python", help="its version of Python, such as 3.12, if not this one's")
    given = parser.parse_args(arguments)
    if given.renew_hashes:
        renew_hashes()
        return
    if given.output is None:
        parser.error("--output must name the folder to make.")
    if given.output.exists():
        parser.error(f"--output {given.output} is there already; name another folder, or remove it.")
    given.output.parent.mkdir(parents=True, exist_ok=True)
    platforms, version = given.platform or [], given.python or "{}.{}".format(*sys.version_info[:2])
    with tempfile.TemporaryDirectory(dir=given.output.parent) as unfinished:  # a failed download leaves nothing
        kit = Path(unfinished, "kit")
        (kit / "wheels").mkdir(parents=True)
        download(kit / "wheels", extras=given.extras, platforms=platforms, python=given.python)
        require_known(kit / "wheels")
        digest = complete(kit, f"Python {version} on {' or '.join(platforms or [sysconfig.get_platform()])}")
        kit.rename(given.output)
    n_wheels = len(list((given.output / "wheels").iterdir()))
    print(f"{given.output}: {n_wheels} wheels. Tell the person who installs it, on another way than the kit goes:")
    print(f"SHA-256 of {SUMS}: {digest}")


def download(wheels: Path, *, extras: str, platforms: Sequence[str], python: str | None) -> None:
    """Build mooring's wheel, and put it with everything it needs into a folder.

    `extras` are optional parts, separated by commas. `platforms` are tags of another machine's platform, and `python` is its
    version, if they are not this machine's.
    """
    environment = {**os.environ, "PIP_BUILD_CONSTRAINT": str(CONSTRAINTS)}  # what builds the wheel is pinned, too
    subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", wheels, ROOT], check=True, env=environment)
    (own,) = wheels.glob("mooring-*.whl")
    words = ["--only-binary=:all:", "--constraint", str(CONSTRAINTS), "--dest", str(wheels)]
    words += [f"--platform={platform}" for platform in platforms]
    words += ["--python-version", python] if python else []
    missing = [f"{own}[{extras}]" if extras else str(own)]
    while missing:
        subprocess.run([*PIP, "download", *words, *missing], check=True)
        missing = find_missing(wheels, platforms=platforms, python=python)


def find_missing(wheels: Path, *, platforms: Sequence[str], python: str | None) -> list[str]:
    """Return what the wheels need on their own machine and pip left out, since it asks which machine it runs on."""
    if not platforms and python is None:
        return []
    systems = {"win": ("Windows", "win32", "nt"), "mac": ("Darwin", "darwin", "posix")}
    system = systems.get(platforms[0][:3], ("Linux", "linux", "posix")) if platforms else ("", "", "")
    machine = dict(zip(("platform_system", "sys_platform", "os_name"), system, strict=True)) if platforms else {}
    machine |= {"python_version": python, "python_full_version": f"{python}.0"} if python else {}
    every = [read_metadata(wheel) for wheel in wheels.glob("*.whl")]
    there = {canonicalize_name(one["Name"]) for one in every}
    asked = [Requirement(line) for one in every for line in one.get_all("Requires-Dist") or ()]
    needed = [one for one in asked if one.marker is None or one.marker.evaluate({"extra": "", **machine})]
    return sorted({f"{one.name}{one.specifier}" for one in needed if canonicalize_name(one.name) not in there})


def read_metadata(wheel: Path) -> email.message.Message:
    """Return the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith("info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def require_known(wheels: Path) -> None:
    """Stop at a wheel whose SHA-256 is not in hashes.txt; mooring's own was built here."""
    known = HASHES.read_text(encoding="utf-8")
    others = [wheel.name for wheel in sorted(wheels.glob("*.whl")) if not wheel.name.startswith("mooring-")]
    unknown = [name for name in others if f"--hash=sha256:{digest_of(wheels / name)}" not in known]
    if unknown:
        sys.exit(
            f"kit.py: not in installation/hashes.txt: {', '.join(unknown)}. If constraints.txt, the platform or the extras "
            "are new, look at the difference that --renew-hashes makes."
        )


def renew_hashes() -> None:
    """Write hashes.txt: of every file that a kit or `make` may install, the SHA-256 that the package index states."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [about["optional-dependencies"][extra] for extra in EXTRAS]
    everything = [*about["dependencies"], *ONLY_ELSEWHERE, *(line for extra in extras for line in extra)]
    hashes: dict[str, set[str]] = {}
    for platforms in PLATFORMS:
        for version in VERSIONS:
            resolved = resolve(everything, platforms, version)
            for requirements in (
                () if resolved else (about["dependencies"], ONLY_ELSEWHERE, *extras)
            ):  # each, as far as it can be had
                resolved += resolve(requirements, platforms, version)
            for name, digest in resolved:
                hashes.setdefault(name, set()).add(digest)
    pins = re.findall(r"^([\w.-]+)==(\S+)", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
    for pin in {*hashes, *(f"{canonicalize_name(name)}=={version}" for name, version in pins)}:
        hashes.setdefault(pin, set()).update(list_digests(*pin.split("==")))
    write_hashes(hashes)


def write_hashes(hashes: Mapping[str, Collection[str]]) -> None:
    """Write hashes.txt, by name==version."""
    lines = ["# SHA-256 of what is installed, as the package index stated them: kit.py --renew-hashes."]
    for name in sorted(hashes):
        lines.append(" \\\n    ".join([name, *(f"--hash=sha256:{digest}" for digest in sorted(hashes[name]))]))
    HASHES.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def list_digests(name: str, version: str) -> set[str]:
    """Return the SHA-256 of a version's source and of its wheels for Linux, macOS and Windows."""
    index = os.environ.get("PIP_INDEX_URL", PyPI.simple_url).rstrip("/")
    address = f"{index}/{canonicalize_name(name)}/"
    request = urllib.request.Request(address, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urllib.request.urlopen(request) as answer:
        files = json.load(answer)["files"]
    digests = set()
    for file in files:
        with contextlib.suppress(InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
            if file["filename"].endswith(".whl"):
                _, of_version, _, tags = parse_wheel_filename(file["filename"])
            else:
                of_version, tags = parse_sdist_filename(file["filename"])[1], None
            if of_version == Version(version) and (tags is None or any(map(is_wanted, tags))):
                digests.add(file["hashes"]["sha256"])
    return digests


def is_wanted(tag: Tag) -> bool:
    """Whether a wheel's tag is one of a system on which mooring is installed by `make` or a kit."""
    older = re.fullmatch(r"cp3(\d+)", tag.interpreter)
    is_python = tag.interpreter == "py3" or (older is not None and (tag.abi == "abi3" or int(older[1]) >= 11))
    systems = r"any|manylinux\w*_(x86_64|aarch64)|macosx_\w+|win_(amd64|arm64)"
    return is_python and not tag.abi.endswith("t") and re.fullmatch(systems, tag.platform) is not None


def resolve(requirements: Sequence[str], platforms: Sequence[str], version: str) -> list[tuple[str, str]]:
    """Return name==version and SHA-256 of the wheels that requirements need on a machine; nothing is downloaded."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        words = ["install", "--dry-run", "--ignore-installed", "--only-binary=:all:", "--target", folder]
        words += ["--constraint", str(CONSTRAINTS), "--python-version", version, "--report", str(report)]
        words += [f"--platform={platform}" for platform in platforms]
        if subprocess.run([*PIP, *words, *requirements], check=False).returncode:
            print(f"Left out: {', '.join(requirements)} for Python {version} on {platforms[0]}", file=sys.stderr)
            return []
        plans = json.loads(report.read_text(encoding="utf-8"))["install"]
    about = [(plan["metadata"], plan["download_info"]["archive_info"]["hashes"]["sha256"]) for plan in plans]
    return [(f"{canonicalize_name(one['name'])}=={one['version']}", digest) for one, digest in about]


def complete(kit: Path, machine: str) -> str:
    """Write the list of wheels with their hashes, the scripts, and the hashes of all these; return that file's SHA-256.

    `machine` says in words what the wheels are for.
    """
    lines = [f"# For {machine}."]
    for wheel in sorted((kit / "wheels").glob("*.whl")):
        about = read_metadata(wheel)
        lines.append(f"{about['Name']}=={about['Version']} --hash=sha256:{digest_of(wheel)}")
    (kit / "requirements.txt").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    for script in SCRIPTS:
        shutil.copy(HERE / script, kit / script)
    sums = [f"{digest_of(kit / name)}  {name}" for name in ("requirements.txt", *SCRIPTS)]
    (kit / SUMS).write_text("\n".join(sums) + "\n", encoding="utf-8", newline="\n")
    return digest_of(kit / SUMS)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    main()
