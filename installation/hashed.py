"""Install requirements as constraints.txt pins them, and of other projects only files whose SHA-256 is in hashes.txt.

pip refuses to install a folder together with requirements that must have hashes. So pip first says what it would install,
then installs the files of others by name, version and hash, and then this project's folders, which are built with the
setuptools that was installed so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

HERE = Path(__file__).resolve().parent
CONSTRAINTS, HASHES = HERE.parent / "constraints.txt", HERE / "hashes.txt"
QUIET = ("--quiet", "--disable-pip-version-check")


def main(arguments: Sequence[str] | None = None) -> None:
    """Install what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="of the environment; default: the one that runs this")
    parser.add_argument("--editable", action="append", default=[], help="a folder of this project, with extras")
    parser.add_argument("--no-deps", action="store_true", help="install nothing that the requirements need")
    parser.add_argument("requirements", nargs="*")
    given = parser.parse_args(arguments)
    options = ["--no-compile", "--no-warn-conflicts"]
    folders = [word for folder in given.editable for word in ("--editable", folder)]
    builders = ["setuptools"] if folders else []
    chosen = ["--no-deps"] if given.no_deps else []
    if builders:
        install(given.python, *options, *list_pinned(plan(given.python, *chosen, *builders)))
    built = ["--no-build-isolation"] if folders else []
    planned = plan(given.python, *chosen, *built, *given.requirements, *folders)
    install(given.python, *options, *list_pinned(planned))
    if folders:
        run(given.python, "install", *QUIET, *options, "--no-build-isolation", "--no-deps", *folders)


def plan(python: str, *words: str) -> list[Mapping[str, Any]]:
    """Return what pip would install, without what is installed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        run(python, "install", *QUIET, "--dry-run", "--report", str(report), "--constraint", str(CONSTRAINTS), *words)
        return list(json.loads(report.read_text(encoding="utf-8"))["install"])


def list_pinned(planned: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line with version and hashes for each planned file of others; stop at one that hashes.txt does not have.

    A file that lies on this machine already, such as a build of torch without CUDA, is installed as it is.
    """
    known, lines = read_hashes(), []
    for entry in planned:
        source = entry["download_info"]
        if "dir_info" in source:
            continue  # a folder of this project
        pin = name_pin(entry["metadata"]["name"], entry["metadata"]["version"])
        if urlsplit(source["url"]).scheme == "file":
            known[pin] = {hash_file(source["url"])}
        if pin not in known:
            sys.exit(f"hashed.py: {pin} is not in installation/hashes.txt. kit.py --renew-hashes adds what is pinned.")
        lines.append(" ".join([pin, *(f"--hash=sha256:{digest}" for digest in sorted(known[pin]))]))
    return lines


def name_pin(name: str, version: str) -> str:
    """Return name==version as hashes.txt has it."""
    return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"


def hash_file(address: str) -> str:
    """Return the SHA-256 of a file on this machine."""
    with Path(url2pathname(urlsplit(address).path)).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_hashes() -> dict[str, set[str]]:
    """Return the digests in hashes.txt, by name==version."""
    known: dict[str, set[str]] = {}
    for line in HASHES.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if words and "==" in words[0]:
            digests = known.setdefault(words[0], set())
        if words and words[0] != "#":
            digests.update(word.removeprefix("--hash=sha256:") for word in words if word.startswith("--hash="))
    return known


def install(python: str, *words: str) -> None:
    """Install lines with hashes; pip refuses a file that has none of them."""
    lines = [word for word in words if "--hash=" in word]
    if not lines:
        return
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "requirements.txt")
        listed.write_text("\n".join(lines) + "\n", encoding="utf-8")
        options = [word for word in words if "--hash=" not in word]
        run(python, "install", *QUIET, *options, "--require-hashes", "--no-deps", "--requirement", str(listed))


def run(python: str, *words: str) -> None:
    """Run pip in an environment, and stop if it fails."""
    builds_here = "--no-build-isolation" in words  # with which pip takes no constraints for builds
    environment = {
        name: value for name, value in os.environ.items() if not (builds_here and name == "PIP_BUILD_CONSTRAINT")
    }
    command = [sys.executable, "-m", "pip", "--python", python, *words]
    if subprocess.run(command, env=environment, check=False).returncode:
        sys.exit(1)


if __name__ == "__main__":
    main()
