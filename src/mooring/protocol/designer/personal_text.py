"""Text that may point to single persons: mail addresses, identifiers and names, by the form of the words.

The rules are simple on purpose. They miss words without such a form, such as single surnames, which is why `infer_header`
also requires several persons for each word. They also match some harmless words, such as 'Heart Failure'; a site may then
name the column as a category.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_MAIL = re.compile(r"[^\s@]@[^\s@]+\.\w")
_PARTICLES = ("van", "von", "de", "del", "di", "da", "la", "le", "bin", "al")
_PART = rf"(?:(?:{'|'.join(_PARTICLES)})\s+)?(?:[^\W\d_a-z][\w'’-]*|[^\W\d_a-z]\.|(?:Dr|Mr|Mrs|Ms|Prof)\.)"
_NAME = re.compile(rf"{_PART}(?:,?\s+{_PART}){{1,3}}")
_DIGITS, _FEW_DIGITS = re.compile(r"\d{4}"), re.compile(r"\d{3}")  # 'grade 3', 'T2' and '18-64' are categories


def find_personal(words: Collection[str], *, is_named: bool = False) -> str:
    """Return why words may identify single persons; empty if they do not seem to.

    One mail address is enough. Identifiers or names must make up half of the words or more. They are not looked for if the
    site itself named the column as a category (`is_named`). An identifier has at least four digits in a row, or at least
    three if it has letters and no space. A name consists of two to four words that begin with a capital letter.

    Examples
    --------
    >>> find_personal(["Anna Schmidt", "Peter O'Neil"]), find_personal(["never", "former", "current"])
    ('looks like names of persons', '')
    """
    if any(_MAIL.search(word) for word in words):
        return "holds mail addresses"
    if is_named or not words:
        return ""
    for pattern, reason in ((_is_identifier, "looks like identifiers"), (_is_name, "looks like names of persons")):
        if 2 * sum(map(pattern, words)) >= len(words):
            return reason
    return ""


def _is_identifier(word: str) -> bool:
    is_code = any(map(str.isalpha, word)) and not any(map(str.isspace, word))
    return (_FEW_DIGITS if is_code else _DIGITS).search(word) is not None


def _is_name(word: str) -> bool:
    starts = [part[0] for part in word.split() if part not in _PARTICLES]
    return _NAME.fullmatch(word) is not None and not any(map(str.isdigit, word)) and not any(map(str.islower, starts))
