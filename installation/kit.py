"""Collect what installs mooring on a machine without network: wheels with their hashes, and scripts that install them."""

from __future__ import annotations

import argparse
import email.message
import hashlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

HERE = Path(__file__).resolve().parent
EXAMPLES = """\
examples:
  python installation/kit.py --output dist/kit
  python installation/kit.py --output dist/windows --platform win_amd64 --python 3.12
  python installation/kit.py --output dist/linux --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64
"""
SCRIPTS = ("install.sh", "install.ps1", "Containerfile", "README.md")


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the kit that the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="folder to make; must not be there")
    parser.add_argument("--extras", default="", help="optional parts of mooring, separated by commas")
    parser.add_argument("--platform", action="append", help="platform tags of the machine it is for, if not this one's")
    parser.add_argument("--python", help="its version of Python, such as 3.12, if not this one's")
    given = parser.parse_args(arguments)
    if given.output.exists():
        parser.error(f"--output {given.output} is there already; name another folder, or remove it.")
    given.output.parent.mkdir(parents=True, exist_ok=True)
    platforms, version = given.platform or [], given.python or "{}.{}".format(*sys.version_info[:2])
    with tempfile.TemporaryDirectory(dir=given.output.parent) as unfinished:  # a failed download leaves nothing
        kit = Path(unfinished, "kit")
        (kit / "wheels").mkdir(parents=True)
        download(kit / "wheels", extras=given.extras, platforms=platforms, python=given.python)
        digest = complete(kit, f"Python {version} on {' or '.join(platforms or [sysconfig.get_platform()])}")
        kit.rename(given.output)
    print(
        f"{given.output}: {len(list((given.output / 'wheels').iterdir()))} wheels. Tell whoever installs it, by another way:"
    )
    print(f"SHA-256 of requirements.txt: {digest}")


def download(wheels: Path, *, extras: str, platforms: Sequence[str], python: str | None) -> None:
    """Build mooring's wheel, and put it with everything it needs into a folder.

    Parameters
    ----------
    wheels : Path
    extras : str
        Optional parts, separated by commas.
    platforms : sequence of str
        Tags of another machine's platform; none for this one.
    python : str, optional
        Its version, if not this one's.
    """
    root = HERE.parent
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(root)], check=True)
    (own,) = wheels.glob("mooring-*.whl")
    words = ["--only-binary=:all:", "--constraint", str(root / "constraints.txt"), "--dest", str(wheels)]
    words += [f"--platform={platform}" for platform in platforms]
    words += ["--python-version", python] if python else []
    missing = [f"{own}[{extras}]" if extras else str(own)]
    while missing:
        subprocess.run([*pip, "download", *words, *missing], check=True)
        missing = find_missing(wheels, platforms=platforms, python=python)


def find_missing(wheels: Path, *, platforms: Sequence[str], python: str | None) -> list[str]:
    """Return what the wheels need on their own machine and pip left out, since it asks which machine it runs on.

    Parameters
    ----------
    wheels : Path
    platforms, python
        As for `download`.
    """
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


def complete(kit: Path, machine: str) -> str:
    """Write the list of wheels with their hashes, and the scripts; the list's own SHA-256 is returned.

    Parameters
    ----------
    kit : Path
        Its folder `wheels` is complete.
    machine : str
        What the wheels are for, in words.
    """
    lines = [f"# For {machine}."]
    for wheel in sorted((kit / "wheels").glob("*.whl")):
        about = read_metadata(wheel)
        lines.append(f"{about['Name']}=={about['Version']} --hash=sha256:{digest_of(wheel)}")
    (kit / "requirements.txt").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    for script in SCRIPTS:
        shutil.copy(HERE / script, kit / script)
    return digest_of(kit / "requirements.txt")


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    main()
