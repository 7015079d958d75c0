"""What is typed for a study's options: ranges, words, shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mooring.errors import InputError

if TYPE_CHECKING:
    from mooring.protocol.messages.study import ProjectionName
    from mooring.tables.schema import MissingRule


def parse_named_range(given: str) -> tuple[str, tuple[float, float]]:
    """A column and its range.

    Examples
    --------
    >>> parse_named_range("age=0:120")
    ('age', (0.0, 120.0))
    """
    name, equals, ends = given.rpartition("=")
    if not (equals and name):
        raise InputError("--range", expected="NAME=LOWEST:HIGHEST", got=repr(given), cure="For example age=0:120.")
    return name, parse_range(ends)


def parse_range(given: str) -> tuple[float, float]:
    """A range.

    Examples
    --------
    >>> parse_range("-1:2.5")
    (-1.0, 2.5)
    """
    low, _, high = given.partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        raise InputError("range", expected="LOWEST:HIGHEST", got=repr(given), cure="For example 0:120.") from None


def parse_named_words(given: str) -> tuple[str, list[str]]:
    """A column and its categories.

    Examples
    --------
    >>> parse_named_words("sex=female, male")
    ('sex', ['female', 'male'])
    """
    name, equals, words = given.partition("=")
    if not (equals and name and parse_words(words)):
        raise InputError("--category", expected="NAME=WORD,WORD", got=repr(given), cure="For example sex=female,male.")
    return name, parse_words(words)


def parse_words(given: str) -> list[str]:
    """Words between commas."""
    return [word.strip() for word in given.split(",") if word.strip()]


def parse_shape(given: str | None) -> tuple[int, ...]:
    """The shape of an image.

    Examples
    --------
    >>> parse_shape("28x28")
    (28, 28)
    """
    sides = (given or "").lower().split("x") if given else []
    if not all(side.isascii() and side.isdigit() and int(side) > 0 for side in sides):
        raise InputError("--image-shape", expected="HEIGHTxWIDTH", got=repr(given), cure="For example 8x8.")
    return tuple(map(int, sides))


def parse_projection(given: str) -> ProjectionName | None:
    """A projection's name; None if it follows from the width."""
    match given:
        case "none" | "gaussian" | "public-svd":
            return given
        case "auto":
            return None
        case _:
            raise InputError(
                "--projection",
                expected="auto, none, gaussian or public-svd",
                got=repr(given),
                cure="auto is the default.",
            )


def parse_missing_rule(given: str) -> MissingRule:
    """What a missing value is."""
    match given:
        case "refuse" | "fill" | "indicate":
            return given
        case _:
            raise InputError(
                "--missing", expected="refuse, fill or indicate", got=repr(given), cure="refuse is the default."
            )
