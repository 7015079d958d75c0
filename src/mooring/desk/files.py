"""Files that are put into a desk's folder, and the pages that are read from it.

The folder has the layout that the commands use. A file that somebody adds is stored where the steps that need such files
look for it. Nothing outside the folder is read or written, and the vault's content is never listed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from mooring.atomic_io import hash_file, make_folder, open_atomically
from mooring.errors import InputError, RefusedError
from mooring.protocol.designer.header import HEADER_SUFFIX
from mooring.protocol.messages.envelope import SUFFIX as SEALED
from mooring.protocol.messages.envelope import open_envelope
from mooring.protocol.step import TABLES
from mooring.protocol.steps import list_steps
from mooring.protocol.workspace import CARDS, Workspace, is_plain

PAGES = ("check.html", "report.html")
_BESIDE = (*TABLES, ".safetensors")  # a public projection lies beside the study
_MADE_HERE = ("analysis/", "RECORDS/")
_NAME = re.compile(r"[^\W_][\w .()+-]{0,120}")
_NUMBERED_CARD = re.compile(r"\.card(?: ?\(\d+\)|-\d+)\.toml$")  # as browsers number downloads of the same name
_BLOCK = 2**20


def find_page(workspace: Workspace, name: str) -> Path | None:
    """Return the path of a page that a step wrote, or None."""
    path = workspace.root / name
    return path if name in PAGES and is_plain(path) else None


def receive(workspace: Workspace, name: str, content: BinaryIO, *, replace: bool) -> Path:
    """Store a file where the steps look for files of its kind, and return its path; `replace` allows overwriting.

    An envelope is opened with the folder's vault, and its content stored.
    """
    is_sealed = name.endswith(SEALED)
    path = _choose_path(workspace, name.removesuffix(SEALED))
    folder = path.parent
    if folder.is_symlink() or path.is_symlink() or path.is_dir():
        raise RefusedError("the file", reason="there is a link or a folder of its name", cure="Remove that first.")
    make_folder(folder, mode=0o700, what="the folder", tighten=True)
    if is_sealed:
        return _open_sealed(workspace, path, content, replace=replace)
    return _store(path, content, replace=replace)


def _open_sealed(workspace: Workspace, path: Path, content: BinaryIO, *, replace: bool) -> Path:
    """Store the content of an envelope, which a member of the study must have signed."""
    study = workspace.study
    study.require_roster()
    with TemporaryDirectory(dir=path.parent, prefix=".mooring-") as folder:
        sealed, opened = Path(folder) / "sealed", Path(folder) / "opened"
        _store(sealed, content, replace=True)
        open_envelope(
            sealed,
            opened,
            study=study,
            reader=workspace.vault,
            name=path.name,
            senders={member.signing_key for member in study.members},
        )
        with opened.open("rb") as plain:
            return _store(path, plain, replace=replace)


def _store(path: Path, content: BinaryIO, *, replace: bool) -> Path:
    """Store a file; an existing file with other contents is overwritten only with `replace`."""
    if path.exists() and not replace:
        digest = hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]
        if digest != hash_file(path, what="the file"):
            raise InputError(
                f"file {path.name!r}",
                expected="new, or the same as the file that is here",
                got="a file with other contents",
                cure="Tick 'replace' to overwrite it.",
            )
        return path
    with open_atomically(path, mode=0o600, what="the file") as file:
        while block := content.read(_BLOCK):
            file.write(block)
    return path


def _choose_path(workspace: Workspace, name: str) -> Path:
    if not _NAME.fullmatch(name):
        expected = "at most 121 letters, digits, spaces and . _ - + ( ), a letter or digit first"
        raise InputError("name of the file", expected=expected, got="a different name", cure="Rename it.")
    name = _NUMBERED_CARD.sub(CARDS[0], name)
    for pattern in _list_patterns(workspace):
        folder, _, ending = pattern.rpartition("/")
        if fnmatchcase(name, ending):
            return workspace.root / folder / name
    if name.endswith(HEADER_SUFFIX):
        return workspace.root / name
    if name.endswith(".toml"):  # browsers and mail programs number files of the same name
        return workspace.study_file
    if name.endswith(_BESIDE):
        return workspace.root / name
    raise InputError(
        f"file {name!r}",
        expected=f"a table ({', '.join(TABLES)}), or a file that mooring writes",
        got="neither",
        cure="Leave the file out: it is not used here.",
    )


def _list_patterns(workspace: Workspace) -> Iterator[str]:
    """Yield the patterns of files that steps need and that others send."""
    for step in (step for steps in list_steps().values() for step in steps if step.run):
        for item in step.needs:
            yield from (pattern for pattern in item.files if not pattern.startswith(_MADE_HERE))
        yield from (awaited.file.replace("NAME", "*") for awaited in step.awaits or ())
