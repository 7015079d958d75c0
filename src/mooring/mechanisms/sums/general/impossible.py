"""Combinations of levels that cannot occur, such as sex = m with pregnant = yes, as a study declares them.

They are public: a designer knows them without looking at rows. What is shared does not depend on them, and synthetic rows
do not contain them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from mooring.errors import InputError
from mooring.mechanisms.sums.general.levels import Levels

Combination: TypeAlias = Mapping[int, int]
"""Maps the index of each column of a combination to the index of its level."""


def read_combination(text: str) -> dict[str, str]:
    """Return a combination as words by column, or raise an `InputError` for text that is not a combination.

    Examples
    --------
    >>> read_combination("sex=m, pregnant=yes")
    {'sex': 'm', 'pregnant': 'yes'}
    """
    pairs = [part.partition("=") for part in text.split(",")]
    words = {name.strip(): word.strip() for name, _, word in pairs}
    if not all(name.strip() and sign and word.strip() for name, sign, word in pairs) or len(words) < len(pairs):
        expected = "different columns, each with a word, such as sex=m, pregnant=yes"
        raise InputError("impossible", expected=expected, got=repr(text[:60]), cure="Separate pairs by commas.")
    return words


def find_combination(columns: Sequence[Levels], words: Mapping[str, str]) -> Combination:
    """Return the combination of levels that `words` names, or raise an `InputError` if `words` names none."""
    places = {
        levels.name: index for index, levels in enumerate(columns) if levels.is_exact and levels.kind != "survival"
    }
    if len(words) < 2:
        problem = f"The impossible combination {_quote(words)} names fewer than two columns."
        cure = "Name two or more. A word that cannot occur by itself need not be declared."
        raise InputError("impossible", problem=problem, cure=cure)
    combination = {}
    for name, word in words.items():
        if name not in places:
            problem = (
                f"The impossible combination {_quote(words)} names {name[:60]!r}. Only columns of categories, and of whole "
                "numbers with few values, can be named."
            )
            raise InputError("impossible", problem=problem, cure=f"In this study: {', '.join(places) or 'no column'}.")
        levels = columns[places[name]]
        if word not in levels.names:
            problem = f"The impossible combination {_quote(words)} names a word that is no level of {name!r}."
            raise InputError("impossible", problem=problem, cure=f"Use one of {', '.join(levels.names)}.")
        combination[places[name]] = levels.names.index(word)
    return combination


def _quote(words: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={word}" for name, word in words.items())[:120]
