"""The folder that a desk works in.

Everything lies there as the commands leave it when they are run in it: study.toml, vault, analysis, results. A participant's
result and an inbox are folders beside them. Nothing outside is read or written; of the vault, nothing is listed.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from mooring.atomic_io import hash_file, make_folder, open_atomically
from mooring.errors import InputError, RefusedError
from mooring.protocol.messages.public_file import PUBLIC_SUFFIX
from mooring.protocol.sums.answers import LIST_FILE

TABLE_FILES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
CARD_FILES, ANCHOR_FILES = (".card.toml",), (".anchor",)
PAGES = ("check.html", "report.html")
_INBOX_FILES = (".bundle", ".confirmation", ".share")
_OTHERS = (*TABLE_FILES, *ANCHOR_FILES, ".safetensors", LIST_FILE)
_NAME = re.compile(r"[^\W_][\w .()+-]{0,120}")
_NUMBERED_CARD = re.compile(r"\.card(?: ?\(\d+\)|-\d+)\.toml$")  # as browsers number downloads of the same name
_BLOCK = 2**20


@dataclass(frozen=True)
class Workspace:
    """A folder, by what lies where in it."""

    root: Path

    @property
    def study(self) -> Path:
        """The study's file."""
        return self.root / "study.toml"

    @property
    def vault(self) -> Path:
        """Keys, secrets and ledger."""
        return self.root / "vault"

    @property
    def inbox(self) -> Path:
        """Bundles, and answers of combiners."""
        return self.root / "inbox"

    @property
    def result(self) -> Path:
        """What the analyst delivered to this participant."""
        return self.root / "result"

    @property
    def analysis(self) -> Path:
        """The analyst's work folder."""
        return self.root / "analysis"

    def list_files(self, endings: tuple[str, ...], *, folder: Path | None = None) -> list[str]:
        """Names of plain files with one of the endings; hidden files and links are left out."""
        place = folder or self.root
        if not place.is_dir() or place.is_symlink():
            return []
        return sorted(path.name for path in place.iterdir() if path.name.endswith(endings) and _is_own(path))

    def find_page(self, name: str) -> Path | None:
        """A page that a step wrote, or None."""
        path = self.root / name
        return path if name in PAGES and _is_own(path) else None

    def receive(self, name: str, content: BinaryIO, *, replace: bool) -> Path:
        """Put a file where the steps look for files of its kind; returns where.

        Parameters
        ----------
        name : str
            As its sender calls it.
        replace : bool
            Whether it may take the place of another file of that name.
        """
        path = self._place(name)
        folder = path.parent
        if folder.is_symlink() or path.is_symlink() or path.is_dir():
            raise RefusedError("the file", reason="a link or a folder is in its place", cure="Remove that first.")
        make_folder(folder, mode=0o700, what="the folder")
        if path.exists() and not replace:
            digest = hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]
            if digest != hash_file(path, what="the file"):
                raise InputError(
                    f"file {path.name!r}",
                    expected="new, or the same as the one that is here",
                    got="another",
                    cure="Tick 'replace' if it is to take its place.",
                )
            return path
        with open_atomically(path, mode=0o600, what="the file") as file:
            while block := content.read(_BLOCK):
                file.write(block)
        return path

    def _place(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            expected = "letters, digits, spaces, dots, hyphens and brackets, a letter or digit first"
            raise InputError("name of the file", expected=expected, got="another", cure="Rename it.")
        if name.endswith(".safetensors") and not name.endswith(PUBLIC_SUFFIX):
            return self.result / name
        if name.endswith(_INBOX_FILES):
            return self.inbox / name
        name = _NUMBERED_CARD.sub(CARD_FILES[0], name)
        if name.endswith(CARD_FILES):
            return self.root / name
        if name.endswith(".toml"):  # browsers and mail programs number files of the same name
            return self.study
        if name.endswith(_OTHERS):
            return self.root / name
        raise InputError(
            f"file {name!r}",
            expected=f"a table ({', '.join(TABLE_FILES)}), or a file of mooring's",
            got="another kind",
            cure="Nothing else is used here.",
        )


def _is_own(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and not path.name.startswith(".")
