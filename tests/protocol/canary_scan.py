"""Searching for secrets in whatever leaves: as bytes, hexadecimal, base64 at any alignment, decimal, and binary numbers."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping

import numpy as np

SHORTEST = 6  # letters or bytes: shorter ones are found anywhere


def forms_of_bytes(secret: bytes) -> set[bytes]:
    """How some bytes look as they are, in hexadecimal, and within base64 (plain and for addresses)."""
    forms = {secret, secret.hex().encode(), secret.hex().upper().encode()}
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + secret)
        # the first letters also depend on what stands before, the last ones on what comes after
        inner = encoded[-(-8 * shift // 6) : (8 * (shift + len(secret))) // 6]
        forms |= {inner, inner.replace(b"+", b"-").replace(b"/", b"_")}
    return {form for form in forms if len(form) >= SHORTEST}


def forms_of_text(text: str) -> set[bytes]:
    """How words look: as they are and in other encodings."""
    plain = text.encode()
    return forms_of_bytes(plain) | {plain.lower(), plain.upper(), text.encode("utf-16-le"), text.encode("utf-16-be")}


def forms_of_number(value: float) -> set[bytes]:
    """How a number looks: in decimal, rounded or not, as Python and C write it, and as the bytes of a double.

    A number below 100 is looked for with nine digits or more: records hold many such numbers, and with fewer digits one of
    them would look like a secret by chance.
    """
    digits = (6, 8, 9, 10, 12) if abs(value) >= 100 else (9, 10, 12)
    texts = {repr(value), value.hex(), *(f"{value:.{n}g}" for n in digits), *(f"{value:.{n - 1}e}" for n in digits)}
    texts |= {f"{value:.6f}"} if abs(value) >= 100 else set()
    forms = {text.removeprefix("-").encode() for text in texts}
    forms = {form for form in forms if len(form) >= SHORTEST}
    for order in "<>":
        forms |= forms_of_bytes(np.array(value, dtype=f"{order}f8").tobytes())
    return forms


def forms_of_row(values: Iterable[float]) -> set[bytes]:
    """How numbers next to each other look in single precision; one alone is too short to tell from chance in base64."""
    items: set[bytes] = set()
    for order in "<>":
        single = np.array(list(values), dtype=f"{order}f4")
        for start in range(single.size - 1):
            items |= forms_of_bytes(single[start : start + 2].tobytes())
    return items


def forms_of_matrix(matrix: np.ndarray) -> set[bytes]:
    """Every number of a matrix, and every pair beside or below each other in single precision."""
    forms = set().union(*(forms_of_number(float(value)) for value in matrix.ravel()))
    for row in (*matrix, *matrix.T):
        forms |= forms_of_row(row)
    return forms


class Search:
    """Finds secrets, given by name in all their forms."""

    def __init__(self, needles: Mapping[str, set[bytes]]) -> None:
        self._by_beginning: dict[bytes, list[tuple[str, bytes]]] = {}
        for name, forms in needles.items():
            for form in forms:
                self._by_beginning.setdefault(form[:SHORTEST], []).append((name, form))
        self._beginnings = np.sort([_beginnings(word)[0] for word in self._by_beginning])

    def leaks(self, haystacks: Mapping[str, bytes]) -> list[str]:
        """Which secrets are found, and where; what was printed is also searched as if it had not been wrapped."""
        items = set()
        for where, content in haystacks.items():
            for seen in {content, re.sub(rb"\s+", b"", content)}:
                for place in self._candidates(_beginnings(seen)):
                    for name, form in self._by_beginning[seen[place : place + SHORTEST]]:
                        if seen.startswith(form, place):
                            items.add(f"{name} in {where}")
        return sorted(items)

    def _candidates(self, here: np.ndarray) -> np.ndarray:
        nearest = np.searchsorted(self._beginnings, here).clip(max=self._beginnings.size - 1)
        return np.flatnonzero(self._beginnings[nearest] == here)


def _beginnings(content: bytes) -> np.ndarray:
    """The bytes from every place on, as many as the shortest form has, as one number a place."""
    letters = np.frombuffer(content, dtype=np.uint8).astype(np.uint64)
    count = max(0, letters.size - SHORTEST + 1)
    return sum((letters[k : k + count] << np.uint64(8 * k) for k in range(SHORTEST)), np.zeros(count, dtype=np.uint64))
