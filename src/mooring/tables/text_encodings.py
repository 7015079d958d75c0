"""Encodings of text files: UTF-8, and encodings in which each byte stands for one character, whatever is beside it."""

from __future__ import annotations

import codecs
import io
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

ENCODINGS = ("utf-8", "windows-1252", "iso-8859-1", "iso-8859-15")
USUAL = "windows-1252"
"""The encoding that is assumed for text that is not UTF-8, because spreadsheets write it."""
_BLOCK_BYTES = 2**20
_STAND_INS = {0xDC00 + byte: 0x10FF00 + byte for byte in range(128, 256)}
_RAW = {stand_in: surrogate for surrogate, stand_in in _STAND_INS.items()}
_STAND_IN_START = chr(0x10FF80).encode()[:2]


def decode_text(data: bytes, encoding: str) -> str:
    r"""Decode text in one of `ENCODINGS`; bytes that Windows-1252 leaves undefined become control characters.

    Examples
    --------
    >>> decode_text(bytes([0x4D, 0xFC, 0x80, 0x81]), "windows-1252")
    'Mü€\x81'
    """
    if encoding == "utf-8":
        return data.decode()
    return codecs.charmap_decode(data, "strict", _list_characters(encoding))[0]


class Recoded(io.RawIOBase):
    """Converts a stream of bytes in one of `ENCODINGS` to a stream of UTF-8.

    If the encoding is UTF-8, bytes that are not valid UTF-8 become characters that nobody uses, and `restore_bytes` turns
    these characters back into the bytes.
    """

    def __init__(self, source: Any, encoding: str) -> None:
        self._source, self._rest, self._is_at_end = source, b"", False
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

        def recode(block: bytes) -> bytes:
            if encoding != "utf-8":
                return decode_text(block, encoding).encode()
            text = decoder.decode(block, final=not block)
            return text.encode() if text.isascii() else text.translate(_STAND_INS).encode()

        self._recode = recode

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer from the next block of the source, and return the number of bytes."""
        while not self._rest and not self._is_at_end:
            block = bytes(self._source.read(max(1, len(buffer) // 3)))
            self._rest, self._is_at_end = self._recode(block), not block
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def restore_bytes(cells: Any) -> Any:
    """Return cells, a pyarrow array of bytes, as they were before `Recoded` replaced what is not UTF-8."""
    unread = pc.match_substring(cells, _STAND_IN_START).fill_null(False)
    if not pc.any(unread).as_py():
        return cells
    texts = (None if cell is None else cell.decode() for cell in cells.to_pylist())
    return pa.array(
        [None if text is None else text.translate(_RAW).encode("utf-8", "surrogateescape") for text in texts],
        cells.type,
    )


def recognise_encoding(file: Any) -> str:
    """Return `USUAL` for an open text file that is not UTF-8; empty for UTF-8, also if stray bytes are mixed with it."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    broken = has_utf8 = False
    while block := file.read(_BLOCK_BYTES):
        text = decoder.decode(block)
        if not text.isascii():
            others = {letter for letter in set(text) if ord(letter) > 127}
            escaped = {letter for letter in others if "\ud800" <= letter <= "\udfff"}
            broken, has_utf8 = broken or bool(escaped), has_utf8 or escaped != others
    broken |= bool(decoder.decode(b"", final=True))
    return USUAL if broken and not has_utf8 else ""


@lru_cache(maxsize=len(ENCODINGS))
def _list_characters(encoding: str) -> str:
    """Return the character of each byte."""
    characters = (bytes([byte]).decode(encoding, "replace") for byte in range(256))
    return "".join(chr(byte) if letter == "\ufffd" else letter for byte, letter in enumerate(characters))
