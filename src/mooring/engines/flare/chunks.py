"""Files that arrive at the server in pieces, so that each end holds only a few megabytes in memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mooring.atomic_io import explain_os_errors, hash_file, make_folder, open_plain_file, sync_folder
from mooring.errors import RefusedError

PIECE_SIZE = 2**22
"""Maximum number of bytes that are transferred at a time."""
Value = str | int | bytes
Message = Mapping[str, Value]
Ask = Callable[[Message], Message]
TOPIC = "mooring"
"""FLARE topic of the sites' requests."""
SUBMIT_AGAIN = "Submit the job again. The same bytes are sent again, and accepted files are kept."


def plain_values(content: Mapping[str, object]) -> dict[str, Value]:
    """Return the entries of a message that are text, integers or bytes."""
    return {name: value for name, value in content.items() if isinstance(value, str | int | bytes)}


def read_piece(path: Path, offset: int, size: int) -> bytes:
    """Return at most `size` bytes of a file; none beyond its end."""
    with open_plain_file(path, what="the file") as file:
        file.seek(offset)
        return file.read(size)


@dataclass(eq=False)
class IncomingFile:
    """A file that one site may send. A request that is repeated because its answer was lost changes nothing."""

    path: Path
    """The place of the complete file."""
    most: int
    accept: Callable[[Path], object]
    """Checks the complete file before it is moved to its place; may raise a `RefusedError`."""
    grows: bool = False
    """Whether a later version replaces an existing file, which is kept otherwise."""
    piece_size: int = PIECE_SIZE
    _size: int = -1
    _digest: str = ""
    _came: int = 0
    _held: str = ""
    _whole: hashlib._Hash = field(default_factory=hashlib.sha256, repr=False)

    @property
    def partial(self) -> Path:
        """The path of the incomplete file."""
        return self.path.with_name(f".{self.path.name}.arriving")

    def offer(self, size: object, digest: object) -> Message:
        """Answer a site that announces a file by its size and digest."""
        if not isinstance(size, int) or not isinstance(digest, str) or size <= 0:
            raise RefusedError("the file", reason="its announcement is malformed", cure=SUBMIT_AGAIN)
        if size > self.most:
            raise RefusedError("the file", reason="it is larger than any file of this study can be", cure=SUBMIT_AGAIN)
        if self.path.exists():
            self._held = self._held or hash_file(self.path, what="the file")  # takes a while for a large file
            if self._held == digest:
                return {"have": 1}
            if not self.grows:
                return {"occupied": 1}
        make_folder(self.path.parent, mode=0o700, what="the place")
        with explain_os_errors("the place"):
            self.partial.write_bytes(b"")
            self.partial.chmod(0o600)
        self._size, self._digest, self._came, self._whole = size, digest, 0, hashlib.sha256()
        return {"have": 0}

    def put(self, offset: object, piece: object) -> Message:
        """Write the next piece."""
        if not isinstance(offset, int) or not isinstance(piece, bytes) or not 0 < len(piece) <= self.piece_size:
            raise RefusedError("the piece", reason="it is malformed", cure=SUBMIT_AGAIN)
        if offset + len(piece) <= self._came:
            return {"ok": 1}
        if offset != self._came or self._came + len(piece) > self._size:
            raise RefusedError("the piece", reason="it is not the next one", cure=SUBMIT_AGAIN)
        with explain_os_errors("the place"), self.partial.open("ab") as file:
            file.write(piece)
        self._whole.update(piece)
        self._came += len(piece)
        return {"ok": 1}

    def done(self) -> Message:
        """Check the complete file and move it to its place."""
        if self._digest and self._held == self._digest:
            return {"ok": 1}
        if self._came != self._size or self._whole.hexdigest() != self._digest:
            raise RefusedError("the file", reason="it differs from the announced file", cure=SUBMIT_AGAIN)
        self.accept(self.partial)
        with explain_os_errors("the place"):
            with self.partial.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(self.partial, self.path)
            sync_folder(self.path.parent)
        self._held = self._digest
        return {"ok": 1}

    def give_up(self) -> None:
        """Remove an incomplete file."""
        with suppress(OSError):
            self.partial.unlink()
